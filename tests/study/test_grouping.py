"""Decisions and rewards of several callers in one commit."""

import threading
import warnings

import numpy as np
import pytest

from rarely import ApproximationWarning, BatchNeuralUCB, DeterminantTrigger, FixedGrid, Limits, LinTS
from rarely.study import Request, Study, StudyConflict, StudyError, Tell, grouping
from rarely.study.grouping import answer_many, record_backlog
from studies import Clock, contexts_of, linear, neural


def groups_of(sizes):
    """Groups of calls of several callers, each with the reward of an earlier decision."""
    first = 0
    for size in sizes:
        numbers = range(first, first + size)
        calls = [("web", Request(contexts_of(number), f"v{number}")) for number in numbers]
        yield [*calls, ("app", Tell(f"v{first // 2}", 1.0))]
        first += size


def test_a_group_is_decided_as_its_calls_alone(make):
    study = make(linear(), arms=["a", "b", "c"])
    calls = [("web", Request(contexts_of(number), f"v{number}")) for number in range(6)]
    found = answer_many(study, calls)
    assert [study.ask(contexts_of(number), id=f"v{number}") for number in range(6)] == found
    assert study.replay().equal


def test_each_call_is_signed_by_its_caller_in_one_commit(make, monkeypatch):
    study = make()
    commits, writing = [], study._session.storage.writing
    monkeypatch.setattr(study._session.storage, "writing", lambda name: commits.append(name) or writing(name))
    calls = [
        ("web", Request(contexts_of(1), "one")),
        ("app", Tell("two", 1.0)),
        ("app", Request(contexts_of(2), "two")),
        ("web", Tell("nobody", 1.0)),
        ("x" * 3000, Request(contexts_of(3), "three")),
        ("app", Request(contexts_of(4), "two")),
        ("web", Request([[1.0]], "four")),
    ]
    one, told, two, nobody, three, conflict, four = answer_many(study, calls)
    assert len(commits) == 1
    assert [study.decision(id).actor for id in ("one", "two")] == ["web", "app"]
    assert (one.id, two.id, told.status, nobody.status) == ("one", "two", "accepted", "quarantined")
    assert [type(error).__name__ for error in (three, conflict, four)] == [
        "InvalidId",
        "StudyConflict",
        "InvalidContexts",
    ]
    assert isinstance(conflict, StudyConflict)
    assert study.status().decisions == 2


def test_a_group_of_errors_alone_writes_nothing(make):
    study = make()
    before = study.status()
    (error,) = answer_many(study, [("web", Request([[1.0]]))])
    assert "shape" in str(error)
    assert answer_many(study, []) == []
    assert study.status() == before


@pytest.mark.parametrize("policy", [linear, neural])
def test_a_study_whose_z_follows_later_is_the_same_study(policy):
    clock = Clock()
    plain, later = (
        Study.create(f"memory://{name} {policy.__name__}", "trial", policy=policy(), arms=["a", "b", "c"], clock=clock)
        for name in ("plain", "later")
    )
    for number, group in enumerate(groups_of([5, 1, 9, 4, 12, 3, 7])):
        assert answer_many(later, group, deferring=True) == answer_many(plain, group)
        if number in (1, 4):
            record_backlog(later)
        if number == 3:
            assert [study.update() for study in (plain, later)] == ["version"] * 2
    assert later.status() == plain.status()
    assert later.versions() == plain.versions()
    assert later.replay().equal
    assert later._session.backlog == 0


def test_a_batch_that_ended_is_noticed_when_z_has_followed(make):
    study = make(LinTS(dim=2, schedule=DeterminantTrigger(log_ratio=3.0), beta=0.5, seed=7))
    first, *groups = groups_of([1, 20, 20])
    for group in (first, *groups):
        answer_many(study, group, deferring=True)
    assert study._session.backlog == 40
    assert not study.due
    record_backlog(study)
    assert study._session.backlog == 0
    assert study.due


def test_a_backlog_does_not_grow_without_end(make, monkeypatch):
    monkeypatch.setattr(grouping, "MOST_BEHIND", 10)
    study = make()
    for group in groups_of([8] * 6):
        answer_many(study, group, deferring=True)
        assert study._session.backlog <= 10 + 8


def test_a_group_that_fails_leaves_the_backlog_as_it_was(make, monkeypatch):
    study = make()
    first, second, third = groups_of([4, 4, 4])
    answer_many(study, first, deferring=True)
    answer_many(study, second, deferring=True)
    before = study._session.backlog

    def broken(*_):
        raise StudyError("the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr("rarely.study.storage.tables.Tables.append", broken)
        with pytest.raises(StudyError):
            answer_many(study, third, deferring=True)
    assert study._session.backlog == before
    answer_many(study, third, deferring=True)
    assert study.status().decisions == 12
    assert study.replay().equal


def test_threads_that_decide_record_and_look_agree(make):
    study = make(linear(50))
    ended = threading.Event()
    failures = []

    def repeat(work):
        try:
            while not ended.is_set():
                work()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in (lambda: record_backlog(study), study.status)]
    for thread in threads:
        thread.start()
    for number, group in enumerate(groups_of([6] * 30)):
        answer_many(study, group, deferring=True)
        if number % 10 == 9:
            study.update()
    ended.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures
    assert study.status().decisions == 180
    assert study.replay().equal
    assert study.verify().whole


def test_groups_of_two_processes_in_turn(make):
    one = make(linear(50))
    other = make.open()
    for number, group in enumerate(groups_of([6] * 8)):
        answer_many((one, other)[number % 3 == 2], group, deferring=True)
        if number == 5:
            one.update()
    assert one.status() == other.status()
    assert one.replay().equal


def wide_and_narrow(latency, arms):
    limits = Limits(latency=latency, arms=arms)
    return BatchNeuralUCB(2, FixedGrid(10_000, 5), hidden=16, preset="paper", limits=limits, seed=0)


def test_rounds_that_wait_are_recorded_before_those_of_another_process(tmp_path):
    """A wide round of another process changes the form of Z, which rounds that wait must not hide."""
    covariance = wide_and_narrow(1.0, 2)._state.frozen.covariance
    widths, arms = covariance._widths, 4000
    latency = 1.2 * covariance.latency.decision("primal", widths, 0, 2)
    assert latency < covariance.latency.decision("primal", widths, 0, arms)
    url, rng = f"sqlite:///{tmp_path}/s.db", np.random.default_rng(0)
    with warnings.catch_warnings(), Study.create(url, "s", policy=wide_and_narrow(latency, 2)) as one:
        warnings.simplefilter("ignore", ApproximationWarning)
        other = Study.open(url, "s")

        def ask(study, count, id):
            (answer,) = answer_many(study, [("x", Request(rng.normal(size=(count, 2)), id))], deferring=True)
            assert answer.id == id

        for number in range(5):
            ask(one, 2, f"narrow {number}")
        assert one._session.backlog
        ask(other, arms, "wide")
        ask(one, 2, "after it")
        found = []
        for study in (one, other, Study.open(url, "s")):
            with study._session.writing():
                found.append(study._session.live.policy.fingerprint())
        assert len({*found}) == 1
        for number in range(5):
            one.tell(f"narrow {number}", float(number))
        one.update()
        assert one.replay().equal


def test_an_id_whose_question_was_refused_is_free_in_its_own_group(make):
    study = make()
    bad, good = ("web", Request([[1e200, 1.0]] * 3, "q")), ("web", Request(contexts_of(1), "q"))
    refused, answer, same = answer_many(study, [bad, good, good])
    assert type(refused).__name__ == "InvalidContexts"
    assert answer.id == "q"
    assert same == answer
    assert study.status().decisions == 1
