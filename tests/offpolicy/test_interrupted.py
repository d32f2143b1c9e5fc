"""A call that fails or is interrupted, at whatever line, has changed nothing."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interrupts import lines_of
from rarely import Uniform
from rarely.offpolicy import DecisionLog

NAMES = ("rounds", "versions", "arms", "rewards", "propensities", "probabilities", "present", "contexts", "rows")


def interrupted(call, line):
    """Whether the call was interrupted after so many lines of this package; False once it has fewer."""
    return lines_of(call, line + 1) > line


def contents(log):
    """Everything that a log shows."""
    return {name: getattr(log, name) for name in NAMES} | {"observed": log.observed, "missing": log.missing}


def assert_same(one, other):
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def decided(rounds=9, seed=0):
    contexts = np.random.default_rng(seed).normal(size=(rounds, 3, 2))
    return contexts, Uniform(2, seed=seed).select(contexts)


def undisturbed(contexts, decision, rows):
    log = DecisionLog()
    log.record(contexts[:4], decision[:4], rows=rows[:4])
    log.observe(decision[1:3], [1.0, 2.0])
    return log


@pytest.mark.parametrize("call", ["record", "observe"])
def test_interrupted_at_any_line_a_call_has_changed_nothing(call):
    contexts, decision = decided()
    rows = np.arange(18.0).reshape(9, 2)
    log = undisturbed(contexts, decision, rows)
    before, line = contents(log), 0
    calls = {
        "record": lambda: log.record(contexts[4:], decision[4:], rows=rows[4:]),
        "observe": lambda: log.observe(decision[:3], [5.0, 1.0, 2.0]),
    }
    while interrupted(calls[call], line):
        assert_same(contents(log), before)
        line += 1
    assert line > 20
    other = undisturbed(contexts, decision, rows)
    if call == "record":
        other.record(contexts[4:], decision[4:], rows=rows[4:])
    else:
        other.observe(decision[:3], [5.0, 1.0, 2.0])
    assert_same(contents(log), contents(other))


def test_the_first_record_of_a_log_may_be_interrupted_too():
    contexts, decision = decided()
    log, line = DecisionLog(), 0
    while interrupted(lambda: log.record(contexts, decision, rows=np.ones((9, 1))), line):
        assert len(log) == 0
        line += 1
    # An unfinished call with rows leaves room for none.
    log = DecisionLog()
    interrupted(lambda: log.record(contexts, decision, rows=np.ones((9, 1))), line - 1)
    log.record(contexts[:2], decision[:2])
    assert log.rows is None


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 4), st.booleans(), st.integers(0, 150)), max_size=25))
def test_what_interrupted_calls_left_behind_is_never_read(steps):
    """Against a dictionary, whatever rounds are recorded and told in whatever order with however many interruptions."""
    contexts, decision = decided(15)
    log, recorded, told = DecisionLog(), [], {}
    for start, count, tell, line in steps:
        numbers = np.arange(start, start + count)
        part = decision[numbers]
        known = tell and set(numbers) <= set(recorded)
        if known and not interrupted(lambda p=part, n=numbers: log.observe(p, 10.0 * n), line):
            told |= {int(i): 10.0 * i for i in numbers}
        fresh = not tell and not set(numbers) & set(recorded)
        if fresh and not interrupted(lambda p=part, n=numbers: log.record(contexts[n], p), line):
            recorded += numbers.tolist()
        assert log.rounds.tolist() == [i + 1 for i in recorded]
        assert log.arms.tolist() == decision.arm[recorded].tolist()
        np.testing.assert_array_equal(log.rewards, [told.get(i, np.nan) for i in recorded])
        assert log.rounds[log.observed].tolist() == sorted(i + 1 for i in told)
        assert log.missing == len(recorded) - len(told)
        if recorded:
            np.testing.assert_array_equal(log.contexts, contexts[recorded])
            np.testing.assert_array_equal(log.propensities, decision.propensity[recorded])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))])
def test_a_copy_of_a_log_goes_its_own_way(copied):
    contexts, decision = decided()
    log = DecisionLog()
    log.record(contexts[:4], decision[:4])
    other = copied(log)
    log.record(contexts[4:6], decision[4:6])
    log.observe(decision[4], 1.0)
    other.record(contexts[6:], decision[6:])
    other.observe(decision[6], 2.0)
    assert log.rounds.tolist() == [1, 2, 3, 4, 5, 6]
    assert other.rounds.tolist() == [1, 2, 3, 4, 7, 8, 9]
    np.testing.assert_array_equal(log.contexts, contexts[:6])
    np.testing.assert_array_equal(other.contexts, contexts[[0, 1, 2, 3, 6, 7, 8]])
    assert (np.nansum(log.rewards), np.nansum(other.rewards)) == (1.0, 2.0)


def test_a_log_of_many_single_rounds_is_the_log_of_one_block():
    contexts, decision = decided(200)
    single, block = DecisionLog(), DecisionLog()
    block.record(contexts, decision)
    block.observe(decision[::2], np.arange(100.0))
    for t in range(200):
        single.record(contexts[t], decision[t])
    for t in reversed(range(0, 200, 2)):
        single.observe(decision[t], float(t // 2))
    assert_same({k: v for k, v in contents(single).items() if v is not None}, contents(block))
