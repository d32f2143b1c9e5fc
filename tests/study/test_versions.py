"""Versions: few, published in one step, approved by people where a stage says so, and replayed from the record."""

import os
import socket
import subprocess
import sys
import time

import pytest

from rarely.offpolicy import snips
from rarely.study import (
    ApprovalNeeded,
    InvalidStudy,
    Stage,
    StaleTrainer,
    StudyBusy,
    StudyError,
    StudyFull,
    StudyPinned,
    train,
    versions,
)
from studies import Clock, contexts_of, every_storage, linear, neural, play


def fingerprint(study):
    with study._session.writing():
        return study._session.live.bare().fingerprint()


def assert_the_record_makes_the_policy(study):
    now = fingerprint(study)
    study._session._live = None
    assert fingerprint(study) == now


@every_storage
@pytest.mark.parametrize("policy", [linear, neural], ids=["linear", "neural"])
def test_a_replay_makes_the_same_versions(make, policy):
    study = make(policy())
    for batch in range(3):
        play(study, 12 * batch, 12)
        study.ask_many([(contexts_of(1000 + i), f"{batch} {i}") for i in range(11)])
        study.update()
    again = study.replay()
    assert again.equal
    assert (again.decisions, again.other_arms, again.largest_difference) == (69, (), 0.0)
    assert [training.equal for training in again.trainings] == [True] * 3
    assert study.verify().whole


def test_a_version_says_where_it_comes_from(make):
    study = make()
    play(study, 0, 5)
    study.update(actor="ann", reason="weekly")
    zero, one = study.versions()
    assert (zero.number, zero.parent, zero.first, zero.cut) == (0, None, 1, 1)
    assert (one.number, one.parent, one.first, one.cut) == (1, 0, 2, 12)
    assert one.settings["seed"] == 7
    event = next(event for event in study.events() if event.kind == "version")
    assert (event.actor, event.reason) == ("ann", "weekly")


@every_storage
def test_a_training_that_a_rollback_made_stale_keeps_nobody_from_training(make):
    study = make(linear())
    play(study, 0, 5)
    study.update()
    play(study, 5, 5)
    trained = train(study.begin_update())
    study.rollback(0, actor="someone", reason="a test")
    with pytest.raises(StaleTrainer, match="in use now"):
        study.finish_update(trained)
    study.update()
    assert study.status().trainer == ""


@pytest.mark.skipif(os.name != "posix", reason="signals that ask whether a process is there exist on POSIX alone")
def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over(make, monkeypatch):
    study = make(linear())
    play(study, 0, 5)
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    host = socket.gethostname()
    holders = iter(
        [f"{host}/{gone.pid}/1f0c", f"{host}/{os.getpid()}/1f0c", "refused", f"elsewhere.{host}/{gone.pid}", ""]
    )
    monkeypatch.setattr(versions, "holder_name", lambda: next(holders))
    first, second = study.begin_update(), study.begin_update()
    with pytest.raises(StudyBusy):
        study.begin_update()
    with pytest.raises(StaleTrainer, match="taken over"):
        study.finish_update(train(first))
    study.finish_update(train(second))
    play(study, 5, 5)
    study.begin_update()
    with pytest.raises(StudyBusy, match="unless it is renewed"):
        study.begin_update()


def test_two_trainers_with_an_expired_lease_publish_one_version(make):
    clock = Clock()
    study = make(clock=clock)
    play(study, 0, 10)
    first = study.begin_update()
    with pytest.raises(StudyBusy, match="ends in 30 seconds"):
        study.begin_update()
    clock.now += 31
    second = study.begin_update()
    late, right = train(first), train(second)
    with pytest.raises(StaleTrainer, match="taken over"):
        study.finish_update(late)
    assert study.finish_update(right) == "version"
    with pytest.raises(StaleTrainer):
        study.finish_update(late)
    assert study.finish_update(right) == "version"  # a repeated delivery changes nothing
    assert [version.number for version in study.versions()] == [0, 1]
    assert study.replay().equal


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
def test_an_interrupted_training_leaves_the_study_as_it_was(make, monkeypatch, error):
    study = make()
    play(study, 0, 10)

    def interrupted(job, progress):
        raise error

    monkeypatch.setattr("rarely.study.study.train", interrupted)
    with pytest.raises(error):
        study.update()
    monkeypatch.undo()
    assert study.status().version == 0
    assert study.update() == "version"


def test_a_rejected_training_spends_no_version(make, monkeypatch):
    from rarely import NothingToLearnWarning

    study = make(linear(batches=50))
    play(study, 0, 30, tell=False)
    assert study.status().due
    with pytest.warns(NothingToLearnWarning):
        assert study.update() == "rejected"
    assert study.status().version == 0
    assert not study.status().due
    assert_the_record_makes_the_policy(study)
    study.tell("visit-1", 1.0)
    assert study.update() == "version"
    assert study.replay().equal


@every_storage
def test_a_version_waits_for_approval(make):
    study = make(stages=[Stage("pilot", 10), Stage("main", approval=True)])
    play(study, 0, 20)
    assert study.update() == "candidate"
    assert study.status().version == 0
    with pytest.raises(ApprovalNeeded, match="waits"):
        study.update()
    play(study, 20, 10)
    with pytest.raises(InvalidStudy, match="must say who decides"):
        study.approve(actor="")
    study.pin()
    with pytest.raises(StudyPinned):
        study.approve(actor="ann")
    study.unpin()
    assert study.approve(actor="ann", reason="looks right") == 1
    assert study.ask(contexts_of(99), id="next").version == 1
    assert_the_record_makes_the_policy(study)
    assert study.update() == "candidate"
    study.dismiss(actor="bob", reason="too few")
    with pytest.raises(ApprovalNeeded, match="no candidate"):
        study.approve(actor="ann")
    assert study.status().rewards.pending == 10
    assert study.update() == "candidate"
    study.approve(actor="ann")
    assert study.replay().equal
    assert study.verify().whole


@every_storage
def test_pin_and_rollback(make):
    study = make()
    for i in range(3):
        play(study, 10 * i, 10)
        study.update()
    study.rollback(1, actor="ann", reason="complaints")
    assert study.ask(contexts_of(50), id="x").version == 1
    assert_the_record_makes_the_policy(study)
    study.pin(actor="ann")
    study.pin()
    with pytest.raises(StudyPinned):
        study.update()
    study.unpin()
    play(study, 60, 5)
    assert study.update() == "version"
    rows = study.versions()
    assert [(row.number, row.parent) for row in rows] == [(0, None), (1, 0), (2, 1), (3, 2), (4, 1)]
    with pytest.raises(StudyFull):
        study.update()
    for wrong in (5, -1, True, "1"):
        with pytest.raises(InvalidStudy):
            study.rollback(wrong)
    assert study.replay().equal
    assert study.verify().whole
    assert study.status().rewards.pending == 0


def test_the_policy_of_a_version_is_a_copy_for_estimates(make):
    study = make(stages=[Stage("main", approval=True)])
    play(study, 0, 20)
    assert study.update() == "candidate"
    log = study.log()
    candidate, first = study.policy("candidate"), study.policy(0)
    assert (candidate.version, first.version) == (1, 0)
    assert 0 <= snips(log, candidate.probabilities(log.contexts)).value <= 1
    first.select(contexts_of(1))
    assert study.policy(0).round == 0
    study.approve(actor="ann")
    assert study.policy(1).fingerprint() == candidate.fingerprint()
    for wrong in (2, -1, "candidate", None):
        with pytest.raises(StudyError, match=r"version must be one of 0 … 1|no candidate"):
            study.policy(wrong)
    assert_the_record_makes_the_policy(study)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX tells who the parent is")
def test_a_training_ends_with_the_process_that_began_it():
    """A service that is killed closes nothing, and its child would train on for nobody."""
    train = "import time; from rarely.study import versions; versions.train = lambda job: time.sleep(600); "
    begin = (
        "import os, pickle, subprocess, sys, time\n"
        f"command = {train!r} + f'versions.train_process({{os.getpid()}})'\n"
        "child = subprocess.Popen([sys.executable, '-c', command], stdin=subprocess.PIPE)\n"
        "child.stdin.write(pickle.dumps(1)); child.stdin.close(); print(child.pid, flush=True); time.sleep(600)"
    )
    given = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", begin], stdout=subprocess.PIPE, env=given, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 120
    while alive(child):
        assert time.monotonic() < end
        time.sleep(0.1)


def alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return os.path.isdir("/proc/self") is False and os.kill(process, 0) is None
