"""Many threads, two processes, one id: one row and one answer."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rarely.study import Study, StudyFailed
from rarely.study.storage import loses_writes
from studies import contexts_of, linear

CALLERS = Path(__file__).parents[1] / "many_callers.py"


def callers(storage):
    return subprocess.Popen(
        [sys.executable, CALLERS, storage, "trial"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_one_row_and_one_answer(storage):
    Study.create(storage, "trial", policy=linear(), arms=3).close()
    processes = [callers(storage) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout.readline() == "open\n", process.stderr.read()
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    found = [each for out, err in results for each in json.loads(out or err)]
    assert len(found) == 128
    assert len({json.dumps(answer) for answer, _, _ in found}) == 1
    assert sorted(status for _, status, _ in found) == ["accepted"] + ["duplicate"] * 127
    assert len({json.dumps(own) for _, _, own in found}) == 64
    with Study.open(storage, "trial") as study:
        status = study.status()
        assert (status.decisions, status.rewards.received) == (65, 1)
        assert study.verify().whole
        assert study.replay().equal


def test_one_id_from_64_threads_of_two_processes_in_a_shared_file(tmp_path):
    assert_one_row_and_one_answer(f"sqlite:///{tmp_path / 'trial.db'}?shared=1")


def test_one_id_from_64_threads_of_two_processes_in_postgresql(postgresql):
    assert_one_row_and_one_answer(postgresql.new_schema("callers"))


def test_a_second_process_on_a_file_hears_what_to_do(tmp_path):
    import sqlite3

    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    with Study.create(storage, "trial", policy=linear(), arms=3):
        code = (
            "import rarely.study.storage.sqlite as s; s.BUSY_TIMEOUT = 0.1\n"
            "from rarely.study import Study, StudyBusy\n"
            f"try: Study.open({storage!r}, 'trial'); print('open')\n"
            "except StudyBusy as error: print(error)\n"
        )
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
        ).stdout
    if loses_writes(sqlite3.sqlite_version_info):
        assert "in use by another process" in out
        assert "shared=1" in out
    else:
        assert out == "open\n"


def test_two_studies_of_one_process_share_a_file(tmp_path):
    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    with (
        Study.create(storage, "one", policy=linear(), arms=3) as one,
        Study.create(storage, "other", policy=linear(), arms=3) as other,
        Study.open(storage, "one") as again,
    ):
        first = one.ask(contexts_of(1), id="x")
        assert again.ask(contexts_of(1), id="x") == first
        assert again.ask(contexts_of(2), id="y").round == 2
        assert one.ask(contexts_of(3), id="z").round == 3
        assert other.ask(contexts_of(1), id="x").round == 1


def test_threads_decide_while_another_one_trains(make):
    study = make()
    for i in range(20):
        study.ask(contexts_of(i), id=f"{i}")
        study.tell(f"{i}", float(i % 2))
    failures = []

    def ask(caller):
        try:
            for i in range(15):
                study.ask(contexts_of(i), id=f"{caller} {i}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=[f"caller {caller}"]) for caller in range(4)]
    for thread in threads:
        thread.start()
    study.update()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not failures
    assert study.status().decisions == 80
    assert study.replay().equal


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_process_must_open_the_study_itself(tmp_path):
    code = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(CALLERS.parent)!r})\n"
        "from studies import contexts_of, linear\n"
        "from rarely.study import Study, StudyFailed\n"
        f"study = Study.create('sqlite:///{tmp_path}/trial.db', 'trial', policy=linear(), arms=3)\n"
        "if not os.fork():\n"
        "    try: study.ask(contexts_of(1))\n"
        "    except StudyFailed as error: print('forked' in str(error), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(study.ask(contexts_of(1)).round)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert out.stdout == "True\n1\n", out.stderr


def test_a_commit_that_fails_is_final(tmp_path, monkeypatch):
    import sqlite3

    from rarely.study.storage import sqlite

    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    study = Study.create(storage, "trial", policy=linear(), arms=3)
    study.ask(contexts_of(0), id="before")

    class Broken:
        def __init__(self, raw):
            self._raw = raw

        def __getattr__(self, name):
            return getattr(self._raw, name)

        def execute(self, sql, *parameters):
            if sql == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return self._raw.execute(sql, *parameters)

    connection = study._session.storage
    monkeypatch.setattr(connection, "_raw", Broken(connection._raw))
    with pytest.raises(StudyFailed, match="did not confirm"):
        study.ask(contexts_of(1), id="x")
    monkeypatch.undo()
    with pytest.raises(StudyFailed, match="Open the study again"):
        study.ask(contexts_of(1), id="x")
    with Study.open(storage, "trial") as again:
        assert again.status().decisions == 1
        assert again.ask(contexts_of(1), id="x").round == 2
    study.close()
    assert not [path for path, *_ in sqlite._OPEN if path.startswith(str(tmp_path))]


def test_an_interrupt_behind_the_commit_leaves_the_policy_right(make, monkeypatch):
    """Nobody heard the answer, but it is on record: the next call must know of it."""
    study = make()
    study.ask(contexts_of(0), id="before")
    connection = study._session.storage
    plain = connection._commit

    def interrupted():
        plain()
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.ask(contexts_of(1), id="x")
    monkeypatch.undo()
    assert study.ask(contexts_of(1), id="x").round == 2
    assert study.ask(contexts_of(2), id="y").round == 3
    assert study.replay().equal
