"""Decisions and rewards of several callers in one commit."""

from rarely.study import Request, StudyConflict, Tell
from rarely.study.grouping import answer_many
from studies import contexts_of, linear


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
