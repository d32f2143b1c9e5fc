"""The bytes of events, formatted field by field, are those of the plain writer; lookups use their indexes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rarely import FixedGrid, LinUCB
from rarely.core.types import Decision
from rarely.study import Request, Study
from rarely.study.canonical import canonical, digest, packed
from rarely.study.decision_blocks import Block
from rarely.study.events import flaw_of, head_of, next_event
from rarely.study.requests import block_of, read_request
from rarely.study.settings import StudySettings
from rarely.study.storage import sqlite
from studies import contexts_of, linear

texts = st.text(st.characters(codec="utf-8"), max_size=20)
maybe = st.none() | texts


@given(texts, st.integers(1, 10**12), st.integers(0, 10**17), texts, texts, texts, maybe, maybe, texts)
def test_the_head_of_an_event_is_canonical_json(study, seq, time, kind, actor, reason, ref, key, why):
    plain = canonical([study, seq, kind, time, actor, reason, ref, key, why])
    assert head_of(study, seq, time, kind, actor, reason, ref, key, why) == plain


def plain_event(block, i, study, last, now, actor, reason):
    """The i-th event of a block from a dict and its arrays, one at a time."""
    question, decision = block.questions[i], block.decision
    here = np.flatnonzero(question.present)
    complete = bool(question.present.all())
    body = {
        "arm": int(decision.arms[i]),
        "arms": len(question.present),
        "block": block.first,
        "draws": block.draws + i * block.drew,
        "drew": block.drew,
        "present": None if complete else here.tolist(),
        "probability": float(decision.probabilities[i, decision.arms[i]]),
        "request": question.hash,
        "round": int(decision.rounds[i]),
        "shadow": block.shadow_of,
        "shape": list(question.numbers.shape),
        "stage": block.stage,
        "version": block.version,
    }
    arrays = [question.numbers, *(a[i][here] for a in (decision.means, decision.bonuses, decision.probabilities))]
    arrays += [] if block.shadow is None else [block.shadow[i][here]]
    signed = {"actor": question.actor or actor, "reason": reason}
    return next_event(study, last, "decide", now, body, ref=question.id, data=packed(*arrays), **signed)


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
    means, bonuses, chances, shadow = rng.normal(size=(4, n, width))
    if mask is not None:
        means[~mask] = bonuses[~mask] = np.nan
    arms = np.array([rng.choice(np.flatnonzero(question.present)) for question in questions])
    decision = Decision(arms, means, bonuses, np.zeros(n, int), np.arange(n) + 7, np.abs(chances))
    shadowed = draw(st.booleans())
    return Block(
        questions,
        decision,
        version=draw(st.integers(0, 99)),
        stage=draw(texts),
        first=draw(st.integers(1, 99)),
        draws=draw(st.integers(0, 99)),
        drew=draw(st.booleans()),
        shadow=np.abs(shadow) if shadowed else None,
        shadow_of=3 if shadowed else None,
    )


def clean(text):
    return "".join(filter(str.isprintable, text)).strip()


@given(blocks(), texts, texts, st.integers(0, 10**17))
def test_the_events_of_a_block_are_those_of_the_plain_writer(block, actor, reason, now):
    last = (block.first - 1, "0" * 64, 10**16)
    events = block.events("trial é", last, now, actor, reason)
    for i, event in enumerate(events):
        assert event == plain_event(block, i, "trial é", last, now, actor, reason)
        assert not flaw_of("trial é", event, last[0] + 1, last[1])
        last = (event.seq, event.hash, event.time)
    assert [answer.seq for answer in block.answers(events, None)] == [event.seq for event in events]


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
    plain = sqlite.SqliteConnection.execute

    def execute(self, sql, parameters=()):
        statements[sql] = tuple(parameters)
        return plain(self, sql, parameters)

    with Study.create(f"sqlite:///{tmp_path}/trial.db", "trial", policy=linear(), arms=3) as study:
        study.ask_many([(contexts_of(i), f"visit-{i}") for i in range(5)])
        monkeypatch.setattr(sqlite.SqliteConnection, "execute", execute)
        study.ask_many([(contexts_of(i), f"visit-{i}") for i in range(3, 9)])
        study.tell_many([(f"visit-{i}", 1.0) for i in range(9)])
        study.tell("visit-1", 1.0)
        asked = {sql: given for sql, given in statements.items() if "rarely_events" in sql}
        assert len(asked) > 3
        for sql, given in asked.items():
            for *_, step in plain(study._session.storage._connection, f"EXPLAIN QUERY PLAN {sql}", given):
                assert "ref=?" in step or "COVERING INDEX" in step, f"{step}: {sql}"


def test_more_ids_than_one_statement_takes_are_found(make):
    policy = LinUCB(dim=1, schedule=FixedGrid(10**5, 2), seed=0)
    study = make(policy, arms=2)
    requests = [([[1.0], [i + 1.0]], f"visit-{i}") for i in range(600)]
    first = study.ask_many(requests[:400])
    assert study.ask_many(requests)[:400] == first
    assert [found.status for found in study.tell_many([(f"visit-{i}", 1.0) for i in range(602)])][598:] == [
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
