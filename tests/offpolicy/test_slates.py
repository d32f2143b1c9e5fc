"""Off-policy estimates of slates: the estimators of their definitions, and intervals that hold as often as they say."""

import numpy as np
import pytest

from effort import MANY
from rarely import LinUCB, Mixture, OnDemand, Uniform, Worth
from rarely.errors import InvalidInput
from rarely.offpolicy import DecisionLog, InvalidLog, NotIdentified, slates

K, SLOTS = 4, 3


def drawn_in_turn(chances, draw):
    """Return slates drawn in turn by (K,) weights, and their probabilities in each slot, (n, slots, K)."""
    n = len(draw)
    left, arms, out = np.ones((n, K), bool), np.empty((n, SLOTS), int), np.zeros((n, SLOTS, K))
    for j in range(SLOTS):
        p = np.where(left, chances, 0.0)
        p /= p.sum(axis=1, keepdims=True)
        arms[:, j] = (np.cumsum(p, axis=1) > draw[:, [j]]).argmax(axis=1)
        out[:, j] = p
        left[np.arange(n), arms[:, j]] = False
    return arms, out


def alone(chances, draw):
    """Return slates whose slots are drawn each for itself."""
    arms = (np.cumsum(chances) > draw[:, :, None]).argmax(axis=2)
    return arms, np.broadcast_to(chances, (*arms.shape, K)).copy()


def world(arms, rng, interact):
    """Return rewards: of the arm in its slot, and with `interact` less under a like arm above."""
    mean = 0.1 + 0.2 * arms - 0.05 * np.arange(SLOTS)
    if interact:
        mean[:, 1:] -= 0.08 * (np.abs(np.diff(arms, axis=1)) == 1)
    return (rng.random(arms.shape) < mean).astype(float)


def log_of(arms, chances, rewards):
    n = len(arms)
    given = np.zeros((n * SLOTS, K, 1))
    return DecisionLog.from_arrays(
        given,
        arms.ravel(),
        rewards.ravel(),
        probabilities=chances.reshape(-1, K),
        mask=chances.reshape(-1, K) > 0,
        slates=np.repeat(np.arange(n), SLOTS),
    )


LOGGING, TARGET = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.15, 0.2, 0.3, 0.35])


def conditional(target, chances):
    p = np.where(chances > 0, target, 0.0)
    return (p / p.sum(axis=2, keepdims=True)).reshape(-1, K)


@pytest.mark.parametrize("model", ["whole", "cascade", "independent"])
def test_estimates_are_those_of_their_definitions(model):
    rng = np.random.default_rng(0)
    draw = alone if model == "independent" else drawn_in_turn
    arms, chances = draw(LOGGING, rng.random((50, SLOTS)))
    rewards = world(arms, rng, True)
    log, target = log_of(arms, chances, rewards), conditional(TARGET, chances)
    pi, value = target.reshape(chances.shape), 0.0
    for s in range(50):
        ratio = [pi[s, j, arms[s, j]] / chances[s, j, arms[s, j]] for j in range(SLOTS)]
        for j in range(SLOTS):
            weight = {"whole": np.prod(ratio), "cascade": np.prod(ratio[: j + 1]), "independent": ratio[j]}[model]
            value += weight * rewards[s, j] / 50
    assert slates(log, target, model=model).value == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("model", ["whole", "cascade", "independent"])
def test_intervals_hold_as_often_as_they_say(model):
    rng, logs, n = np.random.default_rng(1), 500 if MANY else 200, 400
    draw = alone if model == "independent" else drawn_in_turn
    truth = world(draw(TARGET, rng.random((200_000, SLOTS)))[0], rng, model != "independent").sum(axis=1).mean()
    held = 0
    for _ in range(logs):
        arms, chances = draw(LOGGING, rng.random((n, SLOTS)))
        estimate = slates(
            log_of(arms, chances, world(arms, rng, model != "independent")), conditional(TARGET, chances), model=model
        )
        held += estimate.low < truth < estimate.high
    spread = np.sqrt(0.95 * 0.05 / logs)
    assert abs(held / logs - 0.95) <= 2.2 * spread


def test_a_policy_is_judged_by_slates_that_another_has_decided():
    rng, log = np.random.default_rng(2), DecisionLog()
    policy = LinUCB(2, OnDemand(), exploration=Mixture(0.5), seed=0)
    for _ in range(200):
        contexts = rng.normal(size=(K, 2))
        slate = policy.select(contexts, slots=SLOTS, worth=Worth(2.0))
        rewards = contexts[slate.arm, 0] + rng.normal(size=SLOTS)
        log.record(contexts, slate)
        log.observe(slate, rewards)
        policy.observe(slate, rewards)
    policy.update()
    better = slates(log, policy)
    assert better.rounds == 200
    assert better.value > slates(log, log.probabilities).value
    assert slates(log.valued(), log.probabilities).value == pytest.approx(2 * slates(log, log.probabilities).value)


@pytest.mark.parametrize("exploration", [None, Mixture(0.4)])
def test_independent_slots_of_all_slates_that_can_be_drawn_have_the_targets_value(exploration):
    """Every ordered slate of uniform logging once is its expectation, so the estimate is the value itself."""
    from itertools import permutations

    contexts, every = np.array([[0.3], [0.9], [0.1], [0.5]]), np.array([*permutations(range(K), SLOTS)])
    chances = np.zeros((len(every), SLOTS, K))
    for j in range(SLOTS):
        left = (every[:, :j, None] != np.arange(K)).all(axis=1)
        chances[:, j] = left / left.sum(axis=1, keepdims=True)
    pays = np.random.default_rng(4).random((SLOTS, K))
    given = {"probabilities": chances.reshape(-1, K), "mask": chances.reshape(-1, K) > 0}
    log = DecisionLog.from_arrays(
        np.tile(contexts, (every.size, 1, 1)),
        every.ravel(),
        pays[np.arange(SLOTS), every].ravel(),
        slates=np.repeat(np.arange(len(every)), SLOTS),
        **given,
    )
    target, alone = LinUCB(1, OnDemand(), beta=1.0, exploration=exploration, seed=0), np.zeros((SLOTS, K))
    for slate in every:  # what slates of its own have in each slot
        left = [~np.isin(np.arange(K), slate[:j]) for j in range(SLOTS)]
        turns = [target.probabilities(contexts, mask=mask)[arm] for mask, arm in zip(left, slate, strict=True)]
        alone[np.arange(SLOTS), slate] += np.prod(turns)
    exact = slates(log, np.tile(alone, (len(every), 1)), model="independent").value
    assert exact == pytest.approx(float((alone * pays).sum()), abs=1e-12)
    drawn = slates(log, target, model="independent")
    assert drawn.value == pytest.approx(exact, abs=1e-12 if exploration is None else 0.1)
    assert slates(log, log.probabilities, model="independent").value == pytest.approx(pays.mean(axis=1).sum())


def test_independent_slots_of_slates_that_a_policy_decided():
    """The truth lies in the interval about as often as it says, of logs that `select(slots=…)` wrote."""
    contexts, held = np.array([[0.3], [0.9], [0.1], [0.5]]), 0
    target = LinUCB(1, OnDemand(), beta=1.0, seed=9)
    best = np.argsort(-contexts[:, 0])[:SLOTS]
    logs = 40 if MANY else 20
    for seed in range(logs):
        rng, log = np.random.default_rng((seed, 1)), DecisionLog()
        policy = LinUCB(1, OnDemand(), beta=1.0, exploration=Mixture(0.8), within_batch="frozen", seed=seed)
        for _ in range(100):
            slate = policy.select(contexts, slots=SLOTS)
            log.record(contexts, slate)
            log.observe(slate, (rng.random(SLOTS) < 0.2 + 0.15 * slate.arm).astype(float))
        estimate = slates(log, target, model="independent")
        held += estimate.low < float((0.2 + 0.15 * best).sum()) < estimate.high
        cascade = slates(log, target, model="cascade")
        assert estimate.error < cascade.error
    assert held >= 0.85 * logs


def test_slots_that_were_not_seen_paid_nothing():
    log, policy, contexts = DecisionLog(), Uniform(1, seed=0), np.zeros((K, 1))
    for reward in ([1.0], [0.0, 1.0], [0.0, 0.0, 0.0]):
        slate = policy.select(contexts, slots=SLOTS)
        log.record(contexts, slate)
        log.observe(slate, reward, seen=len(reward))
    log.record(contexts, policy.select(contexts, slots=SLOTS))  # nothing is known of it
    estimate = slates(log, log.probabilities)
    assert (estimate.value, estimate.rounds) == (pytest.approx(2 / 3), 3)


def test_what_a_log_cannot_say_is_refused():
    rng = np.random.default_rng(3)
    arms, chances = drawn_in_turn(LOGGING, rng.random((20, SLOTS)))
    log = log_of(arms, chances, world(arms, rng, True))
    own, sure = DecisionLog(), LinUCB(1, OnDemand(), seed=0)  # which leaves nothing to chance
    slate = sure.select(np.arange(4.0)[:, None], slots=2)
    own.record(np.arange(4.0)[:, None], slate)
    own.observe(slate, [1.0, 0.0])
    with pytest.raises(NotIdentified, match="the target chooses arm 3"):
        slates(own, np.eye(4)[[3, 3]], model="independent")
    mixed, others = LinUCB(1, OnDemand(), exploration=Mixture(0.5), seed=0), DecisionLog()
    offered = [np.arange(4.0)[:, None] + slot for slot in range(2)]
    slate = mixed.select(lambda slot, above: offered[slot], slots=2)
    others.record(offered, slate)
    others.observe(slate, [1.0, 0.0])
    with pytest.raises(NotIdentified, match="differ from slot to slot"):
        slates(others, mixed, model="independent")
    with pytest.raises(InvalidInput, match="model"):
        slates(log, log.probabilities, model="wide")
    with pytest.raises(InvalidLog, match="no slates"):
        slates(DecisionLog.from_arrays(np.zeros((2, 2, 1)), [0, 1], [1.0, 0.0], propensities=[0.5, 0.5]), [0, 1])
    with pytest.raises(InvalidLog, match="one number for each of 2 rounds"):
        DecisionLog.from_arrays(np.zeros((2, 2, 1)), slates=[1])
