"""kill -9 at random moments: nothing that was acknowledged may be lost or doubled.

A child opens the study, asks, tells and trains, and writes a line to a pipe after each answer. The parent kills it,
starts the next one, and in the end compares every line with the record. `make crash-test` is the long form.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))


from rarely import FixedGrid, LinTS
from rarely.study import Request, Study, StudyBusy, StudyFailed, session, train
from rarely.study.storage import sqlite

NAME = "crashes"


def policy():
    return LinTS(dim=3, schedule=FixedGrid(10**6, 5000), beta=0.5, seed=1)


def cheat():
    """Acknowledge and never commit, as a database that lies about its disk would."""

    def begin(self, sql):
        if not self._raw.in_transaction:
            self._raw.execute(sql)

    sqlite.SqliteStorage._commit, sqlite.SqliteStorage._begin = lambda self: None, begin


def child(storage, number, seed, pipe, cheats, updates, dies_after, fatal):
    """Ask, tell and train until the parent kills it, or it kills itself after some groups of decisions.

    `updates` is the probability of an update after a group, and `fatal` that of a kill in the middle of a training.
    Checkpoints are made so often that kills hit them too.
    """
    if cheats:
        cheat()
    session.CHECKPOINT_WORK, session.CHECKPOINT_SHARE = 0.01, 0
    generator = np.random.default_rng(seed)
    study, asked = Study.open(storage, NAME), 0
    while True:
        count = int(generator.integers(1, 4))
        ids = [f"{number}-{asked + i}" for i in range(count)]
        asked += count
        requests = [Request(generator.normal(size=(3, 3)), id) for id in ids]
        answers = study.ask_many(requests)
        lines = [f"ask {a.id} {a.index} {a.seq} {a.version} {a.probability!r}\n" for a in answers]
        os.write(pipe, "".join(lines).encode())
        dies_after -= 1
        if not dies_after:
            os.kill(os.getpid(), 9)
        for answer in answers:
            # Again and again, as clients do that did not hear an answer.
            for _ in range(int(generator.integers(1, 3))):
                study.tell(answer.id, float(answer.index == 1))
            os.write(pipe, f"tell {answer.id}\n".encode())
        if generator.random() < updates:
            began = time.monotonic()
            while True:  # the lease of a process that was killed is free at once
                try:
                    job = study.begin_update(force=True)
                    break
                except StudyBusy:
                    time.sleep(0.1)
            os.write(pipe, f"waited {time.monotonic() - began}\n".encode())
            if generator.random() < fatal:
                threading.Timer(generator.random() * 0.004, os.kill, (os.getpid(), 9)).start()
            with study.renewed(job):
                study.finish_update(train(job))
            os.write(pipe, f"version {study.status().version}\n".encode())


class Nursery:
    """A process that has imported everything and forks the children, so that a kill costs milliseconds."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def acknowledged(self, storage, number, seed, patience, cheats, updates, dies_after, fatal, strike):
        """The lines of one child that was killed after some lines and a random moment more.

        `strike` is called just before.
        """
        self._process.stdin.write(
            (json.dumps([storage, number, seed, cheats, updates, dies_after, fatal]) + "\n").encode()
        )
        self._process.stdin.flush()
        child_id, lines = int(self._line()), [self._line()]
        while len(lines) < patience[0] and lines[-1] != b"end\n":
            lines.append(self._line())
        time.sleep(patience[1])
        strike(number)
        with suppress(ProcessLookupError):
            os.kill(child_id, 9)
        while lines[-1] != b"end\n":
            lines.append(self._line())
        return [line.decode().split() for line in lines[:-1]]

    def _line(self):
        line = self._process.stdout.readline()
        assert line, f"the nursery has ended with code {self._process.wait(60)}"
        return line

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def run_nursery():
    """Fork a child for each line of stdin, and say when it has ended."""
    for line in sys.stdin:
        storage, number, seed, cheats, updates, dies_after, fatal = json.loads(line)
        child_id = os.fork()
        if not child_id:
            os.write(1, f"{os.getpid()}\n".encode())
            try:
                child(storage, number, seed, 1, cheats, updates, dies_after, fatal)
            except StudyFailed:  # the server was killed
                os._exit(0)
            except BaseException as error:
                os.write(1, f"error {error!r}\n".encode())
            finally:
                os._exit(0)
        os.waitpid(child_id, 0)
        os.write(1, b"end\n")


def play(
    storage, rounds, *, seed=0, cheats=False, updates=0.1, dies_after=0, fatal=0.0, server=None, every=3, report=None
):
    """Return the lines that were acknowledged before a number of kills.

    With `dies_after` each child kills itself after that many groups of decisions, whatever the speed of the machine.
    """
    chance = random.Random(seed)
    strike, between = (lambda number: None, lambda number: None) if server is None else server_killer(server, every)
    Study.create(storage, NAME, policy=policy(), arms=3).close()
    found, nursery = [], Nursery()
    try:
        for number in range(rounds):
            patience = (chance.randrange(1, 25), chance.expovariate(1 / 0.02)) if not dies_after else (10**9, 0.0)
            patience = (10**9, 0.0) if fatal == 1 and server is None else patience  # it kills itself
            options = (cheats, updates, dies_after, fatal, strike)
            lines = nursery.acknowledged(storage, number, (seed, number), patience, *options)
            wrong = [line for line in lines if line[0] == "error"]
            assert not wrong, " ".join(wrong[0])
            found += lines
            between(number)
            if report is not None:
                report(f"{number + 1} of {rounds} kills, {len(found)} acknowledgements")
    finally:
        nursery.close()
    return found


def check(storage, lines):
    """Nothing acknowledged is lost or doubled, the chain is valid, and the replay is equal."""
    with Study.open(storage, NAME) as study:
        on_record = {record.answer.id: record.answer for record in study.decisions()}
        asked = [line for line in lines if line[0] == "ask"]
        told = {line[1] for line in lines if line[0] == "tell"}
        versions = [int(line[1]) for line in lines if line[0] == "version"]
        assert len({line[1] for line in asked}) == len(asked), "an id was acknowledged twice"
        lost = [line[1] for line in asked if line[1] not in on_record]
        assert not lost, f"{len(lost)} of {len(asked)} acknowledged decisions are lost"
        for _, id, index, seq, version, probability in asked:
            answer = on_record[id]
            same = (str(answer.index), str(answer.seq), str(answer.version), repr(answer.probability))
            assert same == (index, seq, version, probability), id
        rewarded = [event.ref for event in study.events() if event.kind == "reward"]
        assert len(set(rewarded)) == len(rewarded), "a reward counts twice"
        assert told <= set(rewarded), f"{len(told - set(rewarded))} of {len(told)} acknowledged rewards are lost"
        status = study.status()
        assert status.version >= max(versions, default=0)
        assert status.rewards.balanced
        verification = study.verify()
        assert verification.whole, verification.flaw
        replay = study.replay()
        assert replay.equal, replay
        waited = max((float(line[1]) for line in lines if line[0] == "waited"), default=0.0)
        assert waited < 60, f"a trainer waited {waited} s for the lease of a dead one"
        died = sum(line[0] == "waited" for line in lines) - len(versions)
        return {
            "killed in trainings": died,
            "waited": round(waited, 2),
            "asked": len(asked),
            "decisions": len(on_record),
            "told": len(told),
            "versions": status.versions,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sqlite", type=int, default=1000, help="kills of a process with an SQLite file")
    parser.add_argument("--postgresql", type=int, default=200, help="kills with PostgreSQL; the server is killed too")
    parser.add_argument("--updates", type=float, default=0.1, help="updates for each group of calls")
    parser.add_argument("--fatal", type=float, default=0.0, help="kills in the middle of a training for each update")
    parser.add_argument("--every", type=int, default=3, help="the server is killed every so many times")
    given = parser.parse_args()

    def report(line):
        print(f"\r{line}", end="", flush=True)

    options = {"updates": given.updates, "fatal": given.fatal, "report": report}
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{folder}/crash.db"
        if given.sqlite:
            print("\nSQLite:", check(storage, play(storage, given.sqlite, **options)), "nothing lost or doubled")
    if given.postgresql:
        from postgresql_server import Server, missing

        if reason := missing():
            sys.exit(f"PostgreSQL: not tested, because {reason}")
        server = Server()
        try:
            storage = server.new_schema("crashes")
            lines = play(storage, given.postgresql, server=server, every=given.every, **options)
            print("\nPostgreSQL:", check(storage, lines), "nothing lost or doubled")
        finally:
            server.stop()


def server_killer(server, every):
    """Every so many times the server is killed under the child's hands, and started again for the next one."""

    def strike(number):
        if number % every == every - 1:
            server.kill()

    def between(number):
        if number % every == every - 1:
            server.start()

    return strike, between


if __name__ == "__main__":
    run_nursery() if sys.argv[1:] == ["--nursery"] else main()
