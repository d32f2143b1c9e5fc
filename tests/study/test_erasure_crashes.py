"""kill -9 in the middle of an erasure or a pruning: all of it is on record, or nothing, and the study is whole."""

import os
import signal
import sys

import pytest

from rarely.study import Study
from studies import linear, play

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX's")
SIGNED = {"actor": "ann"}
IDS = [f"visit-{i}" for i in range(3, 25, 3)]


def forked(storage, act, at=0):
    """Forget decisions in a process of its own, killed before statement `at`: its exit code, and what it counted."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writing, str(statements(storage, act, at)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def statements(storage, act, at):
    """How many statements it takes to erase some decisions, or to prune all; before number `at` the process ends."""
    study, done = Study.open(storage, "trial"), 0
    database = study._session.storage
    execute = database.execute

    def counted(sql, parameters=()):
        nonlocal done
        done += 1
        if done == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(sql, parameters)

    database.execute = counted
    if act == "erase":
        study.erase(IDS, **SIGNED)
    else:
        study.prune(10**6, **SIGNED)
    return done


def grown(storage):
    with Study.create(storage, "trial", policy=linear(9), arms=["a", "b", "c"]) as study:
        play(study, 0, 20)
        study.update()
        play(study, 20, 10)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("act", ["erase", "prune"])
def test_all_of_it_is_on_record_or_nothing(request, tmp_path, kind, act):
    new = lambda i: f"sqlite:///{tmp_path}/trial-{i}.db"  # noqa: E731
    if kind == "postgresql":
        server = request.getfixturevalue("postgresql")
        new = lambda i: server.new_schema(f"{act}_{i}")  # noqa: E731
    grown(storage := new("whole"))
    total = int(forked(storage, act)[1])
    outcomes = set()
    for at in (total // 2, total - 6, total - 1, total):
        grown(storage := new(at))
        assert forked(storage, act, at) == (-signal.SIGKILL, "")
        with Study.open(storage, "trial") as study:
            assert study.verify().whole
            done = len(study.verify().gone)
            outcomes.add(done)
            left = [record for record in study.decisions() if not record.erased]
            assert len(left) == (30 if not done else 10 if act == "prune" else 22)
            play(study, 30, 5)
            again = study.erase(IDS, **SIGNED) if act == "erase" else study.prune(10**6, **SIGNED)
            assert (again.decisions if act == "erase" else again.events) == (0 if done else 8 if act == "erase" else 40)
            assert study.update() == "version"
            assert study.replay().equal
            assert study.verify().whole
    assert outcomes == {0, 1}  # there is something to do after the commit
