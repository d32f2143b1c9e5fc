"""A policy that records its rounds later is, once they are recorded, the policy that never waited."""

import copy
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, Limits, LinTS, LinUCB
from rarely.core.policies import deferral
from rarely.core.policies.playback import set_life

DIM, ARMS = 3, 4


def linear(**settings):
    return LinTS(dim=DIM, beta=0.5, seed=7, **settings)


def neural(**settings):
    return BatchNeuralUCB(dim=DIM, hidden=8, covariance="primal", within_batch="frozen", seed=3, **settings)


def started(make, schedule):
    """A policy whose rounds may wait: some are in Z, and the first version was trained."""
    policy = make(schedule=schedule)
    decision = policy.select(np.random.default_rng(0).normal(size=(20, ARMS, DIM)))
    policy.observe(decision, np.random.default_rng(1).random(20))
    policy.update()
    return policy


schedules = st.sampled_from([FixedGrid(400, 8), DeterminantTrigger(log_ratio=1.0), DeterminantTrigger(log_ratio=1e9)])
STARTED = {}


def fresh(make, schedule):
    key = (make.__name__, repr(schedule))
    if key not in STARTED:
        STARTED[key] = started(make, schedule)
    policy = copy.deepcopy(STARTED[key])
    set_life(policy, "one life")
    return policy


@given(
    st.sampled_from([linear, neural]),
    schedules,
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["wait", "record", "settle"])), max_size=8),
    st.integers(0, 10**6),
)
def test_what_waited_leaves_no_trace(make, schedule, steps, seed):
    plain, waiting = fresh(make, schedule), fresh(make, schedule)
    rng = np.random.default_rng(seed)
    for count, then in steps:
        contexts = rng.normal(size=(count, ARMS, DIM))
        assert deferral.defer(waiting, ARMS)
        one, other = plain.select(contexts), waiting.select(contexts)
        for name in ("arms", "means", "bonuses", "probabilities", "rounds", "versions"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        backlog = deferral.backlog_of(waiting)
        assert 0 < backlog.rounds <= waiting.round
        if then == "record":
            # More rounds are decided while the backlog is recorded.
            done, due = backlog.recorded()
            contexts = rng.normal(size=(3, ARMS, DIM))
            plain.select(contexts)
            waiting.select(contexts)
            assert deferral.record(waiting, backlog, done, due)
            assert deferral.backlog_of(waiting).rounds == 3
        elif then == "settle":
            deferral.settle(waiting)
            assert (waiting.due, waiting.log_det) == (plain.due, plain.log_det)
    deferral.settle(waiting)
    assert deferral.backlog_of(waiting) is None
    assert waiting.fingerprint() == plain.fingerprint()


def test_what_was_recorded_of_another_state_is_dropped():
    policy = fresh(linear, FixedGrid(400, 8))
    deferral.defer(policy, ARMS)
    policy.select(np.ones((ARMS, DIM)))
    backlog = deferral.backlog_of(policy)
    done, due = backlog.recorded()
    deferral.settle(policy)
    now = policy.fingerprint()
    assert not deferral.record(policy, backlog, done, due)
    deferral.defer(policy, ARMS)
    assert not deferral.record(policy, backlog, done, due)
    deferral.settle(policy)
    assert policy.fingerprint() == now


def test_decisions_that_need_the_running_z_never_wait():
    settings = {"dim": DIM, "hidden": 8, "schedule": FixedGrid(400, 8), "seed": 3}
    running = BatchNeuralUCB(covariance="primal", within_batch="running", **settings)
    dual = BatchNeuralUCB(covariance="dual", within_batch="frozen", **settings)
    new = LinUCB(dim=DIM, seed=0)
    for policy in (running, dual):
        policy.select(np.random.default_rng(0).normal(size=(20, ARMS, DIM)))
    assert not any(deferral.defer(policy, ARMS) for policy in (running, dual, new))


def test_more_arms_than_the_form_was_chosen_for_never_wait():
    policy = BatchNeuralUCB(
        dim=DIM, hidden=8, schedule=FixedGrid(400, 8), within_batch="frozen", limits=Limits(latency=1.0), seed=3
    )
    policy.select(np.random.default_rng(0).normal(size=(20, ARMS, DIM)))
    assert deferral.defer(policy, ARMS)
    assert not deferral.defer(policy, ARMS + 1)
    assert not deferral.may_wait(policy, ARMS + 1)


def test_log_det_is_not_told_while_rounds_wait():
    policy = fresh(linear, FixedGrid(400, 8))
    deferral.defer(policy, ARMS)
    policy.select(np.ones((ARMS, DIM)))
    for ask in (lambda: policy.log_det, policy.fingerprint, lambda: policy.update(force=True)):
        with pytest.raises(RuntimeError, match="recorded"):
            ask()


def test_another_thread_records_while_decisions_go_on():
    plain, waiting = fresh(neural, FixedGrid(400, 8)), fresh(neural, FixedGrid(400, 8))
    blocks = np.random.default_rng(2).normal(size=(40, 5, ARMS, DIM))
    deferral.defer(waiting, ARMS)
    lock, ended = threading.Lock(), threading.Event()

    def recorder():
        while not ended.is_set():
            with lock:
                backlog = deferral.backlog_of(waiting)
            found = backlog.recorded()
            with lock:
                deferral.record(waiting, backlog, *found)

    thread = threading.Thread(target=recorder)
    thread.start()
    for contexts in blocks:
        with lock:
            waiting.select(contexts)
        plain.select(contexts)
    ended.set()
    thread.join(60)
    deferral.settle(waiting)
    assert waiting.fingerprint() == plain.fingerprint()
