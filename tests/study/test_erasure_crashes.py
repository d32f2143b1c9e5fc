"""kill -9 in the middle of an erasure or a pruning: all of it is on record, or nothing, and the study is whole."""

import signal
import subprocess
import sys

import pytest

from rarely.study import Study
from studies import linear, play

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX's")
SIGNED = {"actor": "ann"}
IDS = [f"visit-{i}" for i in range(3, 25, 3)]
CHILD = """
import os, sys
from rarely.study import Study
storage, act, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
study = Study.open(storage, "trial")
database, done = study._session.storage, 0
execute = database.execute

def counted(sql, parameters=()):
    global done
    done += 1
    if done == at:
        os.kill(os.getpid(), 9)
    return execute(sql, parameters)

database.execute = counted
if act == "erase":
    study.erase([f"visit-{i}" for i in range(3, 25, 3)], actor="ann")
else:
    study.prune(10**6, actor="ann")
print(done)
"""


def child(storage, act, at=0):
    return subprocess.run(
        [sys.executable, "-c", CHILD, storage, act, str(at)], capture_output=True, text=True, timeout=120
    )


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
    total = int(child(storage, act).stdout)
    outcomes = set()
    for at in (total // 2, total - 6, total - 1, total):
        grown(storage := new(at))
        assert child(storage, act, at).returncode == -signal.SIGKILL
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
