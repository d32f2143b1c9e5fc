"""kill -9 and many callers at once: what was acknowledged is there, once."""

import sys

import pytest

from crash_rounds import check, play
from postgresql_server import Server, missing

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and forks are POSIX's")


def test_a_killed_process_loses_and_doubles_nothing(tmp_path):
    storage = f"sqlite:///{tmp_path / 'crash.db'}"
    found = check(storage, play(storage, 8, seed=5))
    assert found["asked"] > 8


def test_training_is_possible_again_after_kills_in_trainings(tmp_path):
    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    assert check(storage, play(storage, 4, seed=6, updates=0.6, fatal=1.0))["killed in trainings"]


def test_the_crash_test_bites(tmp_path):
    """Acknowledgements without a commit are detected: the child never commits, and dies after its first group."""
    storage = f"sqlite:///{tmp_path / 'crash.db'}"
    with pytest.raises(AssertionError, match="acknowledged decisions are lost"):
        check(storage, play(storage, 1, seed=5, cheats=True, dies_after=1))


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_killed_server_loses_and_doubles_nothing():
    server = Server()
    try:
        storage = server.new_schema("crashes")
        found = check(storage, play(storage, 3, seed=5, server=server))
        assert found["asked"] > 3
    finally:
        server.stop()
