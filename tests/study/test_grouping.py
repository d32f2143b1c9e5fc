"""Decisions and rewards of several callers in one commit."""

import threading

import pytest

from rarely.study import Request, StudyConflict, StudyError, Tell
from studies import contexts_of, linear, neural


def groups_of(sizes):
    """Groups of requests and rewards of several callers, each with the reward of an earlier decision."""
    first = 0
    for size in sizes:
        numbers = range(first, first + size)
        requests = [Request(contexts_of(number), f"v{number}", actor="web") for number in numbers]
        yield requests, [Tell(f"v{first // 2}", 1.0, actor="app")]
        first += size


@pytest.mark.parametrize("policy", [linear, neural])
def test_a_group_is_decided_as_its_calls_alone(make, policy):
    study = make(policy())
    requests = [Request(contexts_of(number), f"v{number}", actor="web") for number in range(6)]
    answers, _ = study.ask_and_tell(requests, [])
    assert [study.ask(contexts_of(number), id=f"v{number}") for number in range(6)] == answers
    assert study.replay().equal


def test_each_call_is_signed_by_its_caller_in_one_commit(make, monkeypatch):
    study = make()
    commits, writing = [], study._session.storage.writing
    monkeypatch.setattr(study._session.storage, "writing", lambda name: commits.append(name) or writing(name))
    requests = [
        Request(contexts_of(1), "one", actor="web"),
        Request(contexts_of(2), "two", actor="app"),
        Request(contexts_of(3), "three", actor="x" * 3000),
        Request(contexts_of(4), "two", actor="app"),
        Request([[1.0]], "four", actor="web"),
    ]
    tells = [Tell("two", 1.0, actor="app"), Tell("nobody", 1.0, actor="web")]
    answers, (told, nobody) = study.ask_and_tell(requests, tells, errors="return")
    one, two, three, conflict, four = answers
    assert len(commits) == 1
    assert [study.decision(id).actor for id in ("one", "two")] == ["web", "app"]
    assert [event.actor for event in study.events() if event.key is not None] == ["app", "web"]
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
    (error,), _ = study.ask_and_tell([Request([[1.0]])], [], errors="return")
    assert "shape" in str(error)
    assert study.ask_and_tell([], []) == ([], [])
    assert study.status() == before


def test_a_group_that_fails_changes_nothing(make, monkeypatch):
    study = make()
    first, second = groups_of([4, 4])
    study.ask_and_tell(*first)
    before = study.status()

    def broken(*_):
        raise StudyError("the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr("rarely.study.storage.tables.Tables.append", broken)
        with pytest.raises(StudyError):
            study.ask_and_tell(*second)
    assert study.status() == before
    study.ask_and_tell(*second)
    assert study.status().decisions == 8
    assert study.replay().equal


def test_threads_that_decide_train_and_look_agree(make):
    study = make(linear(50))
    ended = threading.Event()
    failures = []

    def look():
        try:
            while not ended.is_set():
                study.status()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for number, group in enumerate(groups_of([6] * 12)):
        study.ask_and_tell(*group)
        if number % 4 == 3:
            study.update()
    ended.set()
    thread.join(60)
    assert not thread.is_alive()
    assert not failures
    assert study.status().decisions == 72
    assert study.replay().equal
    assert study.verify().whole


def test_groups_of_two_processes_in_turn(make):
    one = make(linear(50))
    other = make.open()
    for number, group in enumerate(groups_of([6] * 8)):
        (one, other)[number % 3 == 2].ask_and_tell(*group)
        if number == 5:
            one.update()
    assert one.status() == other.status()
    assert one.replay().equal


def test_an_id_whose_question_was_refused_is_free_in_its_own_group(make):
    study = make()
    bad, good = Request([[1e200, 1.0]] * 3, "q"), Request(contexts_of(1), "q")
    refused, answer, same = study.ask_many([bad, good, good], errors="return")
    assert type(refused).__name__ == "InvalidContexts"
    assert answer.id == "q"
    assert same == answer
    assert study.status().decisions == 1
