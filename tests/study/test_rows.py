"""Studies that are given one row a decision, and sessions that learn from each other."""

import numpy as np
import pytest

from rarely import ArmBlocks, InvalidContexts, LinUCB
from rarely.study import InvalidStudy, Study
from studies import contexts_of, every_storage, linear, play


def rows_study(name, **settings):
    rows = np.random.default_rng(0).normal(size=(50, 4))
    blocks = ArmBlocks.fit(rows, arms=3)
    policy = LinUCB(dim=blocks.dim, seed=0)
    return Study.create("memory://rows", name, policy=policy, arms=["a", "b", "c"], blocks=blocks, **settings), rows


def test_a_row_becomes_the_contexts_of_all_arms():
    study, rows = rows_study("rows")
    answers = study.ask_many([(row, f"{i}") for i, row in enumerate(rows)])
    for answer in answers:
        study.tell(answer.id, float(answer.index == 1))
    study.update()
    few = study.ask(rows[0], id="few", available=["c"])
    assert few.arm == "c"
    study._session._live = None
    assert study.ask(rows[3], id="3") == answers[3]
    log = study.log()
    assert np.array_equal(log.rows[:50], rows)
    assert log.contexts.shape == (51, 3, 15)
    assert np.array_equal(log.present[50], [False, False, True])
    assert study.decision("3").question.numbers.shape == (4,)
    assert study.replay().equal


@pytest.mark.parametrize("row", [[1.0], [[1.0, 2.0, 3.0, 4.0]], [1.0, 2.0, 3.0, np.inf], "abcd", None])
def test_rows_that_are_none_are_refused(row):
    study, _ = rows_study("bad rows")
    with pytest.raises(InvalidContexts):
        study.ask(row)


def test_blocks_must_fit_the_policy():
    blocks = ArmBlocks.fit(np.random.default_rng(0).normal(size=(9, 4)), arms=3)
    with pytest.raises(InvalidStudy, match="15 numbers"):
        Study.create("memory://rows", "other dim", policy=linear(), blocks=blocks)
    with pytest.raises(InvalidStudy, match="3 arms"):
        Study.create("memory://rows", "other arms", policy=LinUCB(dim=15), blocks=blocks, arms=2)


@every_storage
def test_two_sessions_follow_each_other(make):
    """As two processes would: each sees the decisions and the versions of the other."""
    one, other = make(), make()
    for turn in range(3):
        for study in (one, other):
            number = f"{turn} {study is one}"
            study.ask(contexts_of(turn), id=number)
            study.tell(number, float(turn % 2))
        (one, other)[turn % 2].update()
    assert one.ask(contexts_of(9), id="x").version == other.ask(contexts_of(8), id="y").version == 3
    prints = []
    for study in (one, other):
        with study._session.writing():
            prints.append(study._session.live.bare().fingerprint())
    assert prints[0] == prints[1]
    one.rollback(1)
    assert other.ask(contexts_of(7), id="z").version == 1
    assert one.replay().equal


def test_the_log_has_what_off_policy_estimates_need(make):
    from rarely.offpolicy import snips

    study = make()
    play(study, 0, 60)
    log = study.log()
    record = study.decision("visit-7")
    assert np.array_equal(log.probabilities[7], record.probabilities)
    assert np.array_equal(log.contexts[7], contexts_of(7))
    assert log.missing == 0
    assert 0 <= snips(log, np.full((60, 3), 1 / 3)).value <= 1
