"""Events are read as they were written, hashes cover every field, and lookups use their indexes."""

import hashlib
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rarely import FixedGrid, LinUCB
from rarely._core.types import Decision
from rarely.study import Request, Study
from rarely.study.decision import block_events, block_of, read_request, record_of
from rarely.study.events import canonical, digest, flaw_of, next_event, packed, read_body
from rarely.study.settings import StudySettings
from rarely.study.storage import sqlite
from studies import contexts_of, linear

texts = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def blocks(draw):
    """Blocks of questions with all arms or some of them, as a policy might have decided them."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, most, dim = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    settings = StudySettings(None, None)
    questions = []
    for i in range(n):
        count = draw(st.integers(1, most))
        some = draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1, unique=True))
        contexts = rng.normal(size=(count, dim)) * 10.0 ** draw(st.integers(-9, 9))
        questions.append(read_request(Request(contexts, f"é {i}", some, draw(texts.map(clean))), settings, dim))
    _, mask = block_of(questions, settings)
    width = max(len(question.present) for question in questions)
    (means, bonuses), chances = rng.normal(size=(2, n, width)), rng.random((n, width))
    if mask is not None:
        means[~mask] = bonuses[~mask] = np.nan
    arms = np.array([rng.choice(np.flatnonzero(question.present)) for question in questions])
    some = draw(st.booleans())
    others = {
        "held_out": rng.random(n) < 0.5,
        "price": rng.random(n),
        "reason": np.array(["cap", ""])[rng.integers(2, size=n)],
    }
    decision = Decision(arms, means, bonuses, np.zeros(n, int), np.arange(n) + 7, chances, **others if some else {})
    decided = {"version": draw(st.integers(0, 99)), "stage": draw(texts)}
    return questions, decision, decided, draw(st.integers(0, 98))


def clean(text):
    return "".join(filter(str.isprintable, text)).strip()


@given(blocks(), texts, texts, st.integers(0, 10**17))
def test_the_events_of_a_block_are_read_as_they_were_decided(block, actor, reason, now):
    questions, decision, decided, before = block
    last, signed = (before, "0" * 64, 10**16), {"actor": actor, "reason": reason}
    for i, event in enumerate(block_events("trial é", last, now, questions, decision, decided, signed)):
        question, record = questions[i], record_of(event, None)
        assert not flaw_of("trial é", event, last[0] + 1, last[1])
        assert (event.actor, event.reason, event.time) == (question.actor or actor, reason, max(now, 10**16))
        assert (record.answer.index, record.answer.round) == (decision.arms[i], decision.rounds[i])
        assert (record.answer.version, record.answer.stage) == (decided["version"], decided["stage"])
        assert record.answer.probability == decision.probabilities[i, decision.arms[i]]
        assert record.block == before + 1
        assert (record.question.id, record.question.hash) == (question.id, question.hash)
        for found, given_ in ((record.question.numbers, question.numbers), (record.present, question.present)):
            np.testing.assert_array_equal(found, given_)
        assert event.content == read_body(event.body)  # which was not read, but kept
        for name, absent in (("held_out", None), ("price", None), ("limits", "")):
            value = getattr(decision, name.replace("limits", "reason"))
            assert getattr(record, name) == (absent if value is absent else value[i])
        here = np.flatnonzero(question.present)
        for name in ("means", "bonuses", "probabilities"):
            np.testing.assert_array_equal(getattr(record, name), getattr(decision, name)[i, here])
        last = (event.seq, event.hash, event.time)


@given(texts, texts, st.none() | texts, texts)
def test_the_hash_of_an_event_is_that_of_all_its_fields(study, actor, ref, why):
    event = next_event(study, (1, "0" * 64, 5), "reward", 7, {"b": 1.5}, actor=actor, ref=ref, key="#k", why=why)
    head = json.dumps([study, 2, "reward", 7, actor, "", ref, "#k", why], ensure_ascii=False, separators=(",", ":"))
    parts = [part.encode() for part in ("0" * 64, head, '{"b":1.5}', "")]
    assert event.hash == hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).hexdigest()


@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_a_request_has_the_hash_of_its_numbers_and_arms(count, dim, data):
    some = data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    contexts = np.arange(count * dim).reshape(count, dim) / 7
    question = read_request(Request(contexts, "one", some), StudySettings(None, None), dim)
    here = sorted(range(count) if some is None else some)
    assert question.hash == digest(canonical([[len(here), dim], here]), packed(contexts[here]))


def test_a_request_keeps_its_own_numbers():
    contexts = np.ones((2, 1))
    question = read_request(Request(contexts, "one"), StudySettings(None, None), 1)
    contexts[:] = 5.0
    assert question.numbers.tolist() == [[1.0], [1.0]]


def test_no_call_walks_over_the_record(tmp_path, monkeypatch):
    statements = {}
    plain = sqlite.SqliteStorage.execute

    def execute(self, sql, parameters=()):
        statements[sql] = tuple(parameters)
        return plain(self, sql, parameters)

    with Study.create(f"sqlite:///{tmp_path}/trial.db", "trial", policy=linear(), arms=3) as study:
        study.ask_many([(contexts_of(i), f"visit-{i}") for i in range(5)])
        monkeypatch.setattr(sqlite.SqliteStorage, "execute", execute)
        study.ask_many([(contexts_of(i), f"visit-{i}") for i in range(3, 9)])
        study.tell_many([(f"visit-{i}", 1.0) for i in range(9)])
        study.tell("visit-1", 1.0)
        with study._session.reading() as tables:
            tables.rewards_of(0, 9)
            tables.unrewarded(0, 9)
            for rule in ("first", "last", "sum"):
                tables.earned((0, 99), (0, 99), 60_000_000, rule)
            tables.latest("quarantine", 9)
        asked = {sql: given for sql, given in statements.items() if "rarely_events" in sql}
        assert len(asked) > 3
        for sql, given in asked.items():
            for *_, step in plain(study._session.storage, f"EXPLAIN QUERY PLAN {sql}", given):
                cheap = any(
                    sign in step for sign in ("ref=?", "COVERING INDEX", "seq>?", "SUBQUERY", "CO-ROUTINE", "kinds")
                )
                cheap = cheap or step in ("SCAN told", "SCAN decided")
                assert cheap or "TEMP B-TREE" in step, f"{step}: {sql}"


def test_more_ids_than_one_statement_takes_are_found(make):
    policy = LinUCB(dim=1, schedule=FixedGrid(10**5, 2), seed=0)
    study = make(policy, arms=2)
    requests = [([[1.0], [i + 1.0]], f"visit-{i}") for i in range(300)]
    first = study.ask_many(requests[:200])
    assert study.ask_many(requests)[:200] == first
    assert [found.status for found in study.tell_many([(f"visit-{i}", 1.0) for i in range(302)])][298:] == [
        "accepted",
        "accepted",
        "quarantined",
        "quarantined",
    ]
    assert study.verify().whole


def test_rewards_of_one_call_know_of_each_other(make):
    study = make()
    study.ask(contexts_of(1), id="one")
    found = study.tell_many([("one", 1.0), ("one", 1.0), ("one", 0.5), ("two", 1.0), ("two", 1.0)])
    assert [receipt.status for receipt in found] == ["accepted", "duplicate", "quarantined", "quarantined", "duplicate"]
