"""A study that decides for long takes no more memory, and its versions no more rounds, than it needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rarely.study import Study, versions
from studies import contexts_of, linear, play

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="says nothing of memory")
def test_memory_is_flat_over_100_000_requests():
    command = [sys.executable, str(ROOT / "tests" / "memory.py"), "--requests", "100000", "--every", "10000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = [float(line.split()[2]) for line in done.stdout.splitlines()]
    assert len(sizes) == 10
    assert max(sizes[3:]) < 1.1 * sizes[2]


def test_versions_drop_the_rounds_that_nothing_needs(make, monkeypatch):
    monkeypatch.setattr(versions, "MOST_ROUNDS", 20)
    study, twin = make(linear(9)), []
    for first in range(0, 60, 15):
        play(study, first, 15, tell=first != 30)
        study.update(force=True)
        with study._session.writing():
            twin.append(len(study._session.live.policy.history))
    assert twin == [15, 0, 15, 15]  # of which those of the third batch wait for rewards
    study.tell("visit-31", 1.0)
    study.update()
    assert study.status().rewards.pending == 0
    study.rollback(2)
    study.ask(contexts_of(99), id="again")
    assert study.replay().equal
    assert study.verify().whole


def test_dropped_rounds_change_no_decision(make, monkeypatch, tmp_path):

    answers = []
    for most in (20, 10_000):
        monkeypatch.setattr(versions, "MOST_ROUNDS", most)
        policy = linear(50)
        with Study.create(f"memory://drop-{most}", "trial", policy=policy, arms=["a", "b", "c"]) as study:
            told = []
            for first in range(0, 80, 10):
                told += [(each.arm, each.probability) for each in play(study, first, 10)]
                study.update()
            answers.append(told)
    assert answers[0] == answers[1]
