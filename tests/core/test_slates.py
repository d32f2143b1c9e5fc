"""Slates: slots in turn, each a round with the arms that are left; from one measurement as from one for each slot."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rarely
from rarely import BatchNeuralUCB, LinTS, LinUCB, Mixture, OnDemand, Uniform, Worth
from rarely._core import native
from rarely._core.choice.random_stream import RandomPlace
from rarely._core.policies import policy as policy_module
from rarely.errors import InvalidReward, InvalidSlate, WrongDecision
from rarely.extend import ArmBlocks

D, K = 3, 7
MAKERS = {
    "ucb": lambda s: LinUCB(D, OnDemand(), seed=s),
    "frozen": lambda s: LinUCB(D, OnDemand(), within_batch="frozen", seed=s),
    "epsilon": lambda s: LinUCB(D, OnDemand(), exploration=Mixture(0.3), seed=s),
    "thompson": lambda s: LinTS(D, OnDemand(), seed=s),
    "dual": lambda s: LinUCB(D, OnDemand(), covariance="dual", seed=s),
    "diagonal": lambda s: LinUCB(D, OnDemand(), covariance="diagonal", seed=s),
    "network": lambda s: BatchNeuralUCB(D, OnDemand(), hidden=4, seed=s),
    "default": lambda s: BatchNeuralUCB(D, OnDemand(), seed=s),
    "uniform": lambda s: Uniform(D, OnDemand(), seed=s),
}


def trained(name, seed):
    policy, draw = MAKERS[name](seed), np.random.default_rng(seed)
    policy.observe(policy.select(draw.normal(size=(30, 4, D))), draw.normal(size=30))
    policy.update()
    return policy


@pytest.mark.parametrize("name", MAKERS)
@given(seed=st.integers(0, 9), slots=st.integers(1, K), worth=st.booleans())
def test_slots_are_rounds_with_what_is_left(name, seed, slots, worth):
    one, other = trained(name, seed), trained(name, seed)
    draw = np.random.default_rng(seed)
    contexts, taken = draw.normal(size=(K, D)), np.zeros(K, bool)
    asked = {"worth": Worth(draw.normal(size=K), draw.normal(size=K))} if worth else {}
    slate = one.select(contexts, slots=slots, **asked)
    assert slate.slate.tolist() == [31] * slots
    for j in range(slots):
        single = other.select(contexts, ~taken, **asked)
        assert single.arm == slate.arm[j]
        for field in ("means", "bonuses", "probabilities"):
            np.testing.assert_allclose(getattr(slate, field)[j], getattr(single, field), atol=1e-9)
        assert slate.round[j] == single.round
        taken[single.arm] = True
    assert len(set(slate.arm)) == slots
    assert one.log_det == pytest.approx(other.log_det)
    assert one.history.rounds == other.history.rounds
    one.observe(slate, np.arange(slots))
    np.testing.assert_array_equal(one.history.rewards[-slots:], np.arange(slots))


def test_the_fast_path_is_taken(monkeypatch):
    policy = trained("ucb", 0)
    monkeypatch.setattr(policy_module, "plain_slate", None)
    if native.in_use():
        monkeypatch.setattr(policy_module, "slate_at_once", None)
    policy.select(np.random.default_rng(0).normal(size=(K, D)), slots=4)


@pytest.mark.parametrize("name", ["ucb", "frozen", "epsilon", "thompson", "uniform"])
@settings(max_examples=max(10, settings.default.max_examples))
@given(
    seed=st.integers(0, 10**6),
    arms=st.sampled_from([3, 16, 17, 40]),
    scale=st.sampled_from([1.0, 1e3]),
    masked=st.booleans(),
    worth=st.booleans(),
)
def test_slates_of_the_compiled_step_are_those_of_the_plain_way(name, seed, arms, scale, masked, worth):
    """Also where contexts are so large that variances lose their digits from slot to slot."""
    draw, one, other = np.random.default_rng(seed), trained(name, seed), trained(name, seed)
    other._step = None
    contexts, mask = scale * draw.normal(size=(4, arms, D)), draw.random((4, arms)) < 0.8
    mask[:, :3] = True
    asked = {"worth": Worth(draw.normal(size=(4, arms)), draw.random((4, arms)))} if worth else {}
    ours, plain = (p.select(contexts, mask if masked else None, slots=3, **asked) for p in (one, other))
    assert ours.arm.tolist() == plain.arm.tolist()
    for field in ("means", "bonuses", "probabilities"):
        np.testing.assert_allclose(getattr(ours, field), getattr(plain, field), rtol=1e-9, atol=1e-9)
    assert ours.slate.tolist() == plain.slate.tolist()
    stats, theirs = one._state.arm_stats, other._state.arm_stats
    assert (stats.rounds, stats.arms, stats.disjoint) == (theirs.rounds, theirs.arms, theirs.disjoint)
    for sums in ("unexplored", "chosen", "least_known"):
        assert getattr(stats, sums) == pytest.approx(getattr(theirs, sums), rel=1e-9)
    assert one.log_det == pytest.approx(other.log_det, rel=1e-10)
    assert one._state.random == other._state.random


def test_many_blocks_of_candidates_too(monkeypatch):
    one, other = trained("ucb", 1), trained("ucb", 1)
    contexts = np.random.default_rng(1).normal(size=(3000, D))
    slate = one.select(contexts, slots=5)
    monkeypatch.setattr(policy_module, "slate_at_once", lambda *_: None)
    plain = other.select(contexts, slots=5)
    assert slate.arm.tolist() == plain.arm.tolist()
    np.testing.assert_allclose(slate.bonuses, plain.bonuses, atol=1e-9)


def test_several_slates_in_one_call():
    one, other = trained("thompson", 2), trained("thompson", 2)
    contexts = np.random.default_rng(2).normal(size=(5, K, D))
    together = one.select(contexts, slots=3)
    singles = [other.select(each, slots=3) for each in contexts]
    assert together.arm.tolist() == [arm for each in singles for arm in each.arm]
    assert together.slate.tolist() == [r for each in singles for r in each.slate]
    assert one.log_det == other.log_det


def test_what_stands_above_may_be_a_feature():
    policy, seen = LinUCB(2, OnDemand(), seed=0), []

    def contexts(slot, above):
        seen.append((slot, tuple(above)))
        return [[float(slot), float(arm)] for arm in range(4)]

    slate = policy.select(contexts, slots=3)
    assert seen == [(0, ()), (1, (slate.arm[0],)), (2, (slate.arm[0], slate.arm[1]))]
    assert policy.history.contexts[:, 0].tolist() == [0.0, 1.0, 2.0]


def test_the_probability_of_an_ordered_slate_is_the_product():
    policy, contexts = trained("epsilon", 3), np.random.default_rng(3).normal(size=(K, D))
    state = policy._state
    slate, counts, trials = policy.select(contexts, slots=3), 0, 3000
    for seed in range(trials):
        policy._state = policy_module.changed(
            state, random=RandomPlace(np.random.default_rng(seed).bit_generator.state)
        )
        counts += policy.select(contexts, slots=3).arm.tolist() == slate.arm.tolist()
    chance = float(np.prod(slate.propensity))
    assert abs(counts / trials - chance) < 4 * np.sqrt(chance * (1 - chance) / trials)


def test_rewards_of_a_slate_and_of_a_cascade():
    policy, contexts = trained("ucb", 4), np.random.default_rng(4).normal(size=(K, D))
    policy.observe(policy.select(contexts, slots=4), 2.0)
    assert policy.history.rewards[-4:].tolist() == [0.5] * 4
    cascade = policy.select(contexts, slots=4)
    policy.observe(cascade, [0, 1], seen=2)
    policy.observe(cascade, [0, 1, 9, 9], seen=2)
    assert np.isnan(policy.history.rewards[-2:]).all()
    assert policy.history.rewards[-4:-2].tolist() == [0, 1]
    policy.observe(policy.select(contexts, slots=2), [], seen=0)
    for seen in (-1, 5, 1.5, True, "2"):
        with pytest.raises(InvalidSlate, match="seen must be a slot of the slate"):
            policy.observe(cascade, [0, 1, 0, 0], seen=seen)
    with pytest.raises(InvalidReward, match="each of the 3 slots seen"):
        policy.observe(cascade, [0, 1], seen=3)
    with pytest.raises(InvalidSlate, match="one whole slate"):
        policy.observe(cascade[1:], 1.0)
    with pytest.raises(InvalidSlate, match="decision of a slate"):
        policy.observe(policy.select(contexts), 1.0, seen=1)


@pytest.mark.filterwarnings("error::rarely.errors.DriftWarning")
def test_slots_that_nobody_saw_lack_no_reward(tmp_path):
    draw = np.random.default_rng(0)
    policy = LinUCB(D, OnDemand(), beta=0.5, seed=0)
    for day in range(6):
        for _ in range(40):
            slate = policy.select(draw.normal(size=(K, D)), slots=4)
            seen = 4 if day < 3 else 1  # from the fourth day on, three slots of four are not seen
            policy.observe(slate, draw.normal(size=seen), seen=seen)
        assert policy.missing == 0
        policy.update()
    assert policy.updates[-1].alarms == ()
    policy.save(tmp_path / "policy")
    for again in (rarely.load(tmp_path / "policy"), copy.deepcopy(policy)):
        assert (again.missing, again.fingerprint()) == (0, policy.fingerprint())
    # More was seen than was said first; what is said again changes nothing.
    policy.observe(slate, [policy.history.rewards[-4], 0.5], seen=2)
    before = policy.fingerprint()
    policy.observe(slate, policy.history.rewards[-4:-2], seen=2)
    assert (policy.missing, policy.fingerprint()) == (0, before)
    assert np.isnan(policy.history.rewards[-2:]).all()


@pytest.mark.parametrize("bad", [np.nan, "much"])
def test_a_cascade_with_a_bad_reward_hides_no_slot(bad):
    policy = LinUCB(D, OnDemand(), beta=0.5, seed=0)
    slate, before = policy.select(np.ones((K, D)), slots=3), policy.fingerprint()
    with pytest.raises(InvalidReward):
        policy.observe(slate, [bad], seen=1)
    assert policy.missing == 3
    other = LinUCB(D, OnDemand(), beta=0.5, seed=0)
    other.select(np.ones((K, D)), slots=3)
    with pytest.raises(WrongDecision):
        other.observe(slate, [], seen=0)
    assert (other.missing, before != policy.fingerprint()) == (3, False)


def test_bad_slates_are_refused_and_nothing_is_recorded():
    policy, contexts = trained("ucb", 5), np.ones((K, D))
    before = policy.fingerprint()
    for slots in (0, -1, 1.5, "3"):
        with pytest.raises(InvalidSlate, match="slots must be a whole number"):
            policy.select(contexts, slots=slots)
    with pytest.raises(InvalidSlate, match="at most as many slots as arms that are there, 2; got 3"):
        policy.select(contexts, np.arange(K) < 2, slots=3)
    with pytest.raises(InvalidSlate, match="there, 2; got 3"):
        policy.select(contexts, worth=Worth(1.0, np.where(np.arange(K) < 2, 0, np.inf)), slots=3)
    with pytest.raises(InvalidSlate, match="until_due"):
        policy.select(contexts, slots=2, until_due=True)
    with pytest.raises(ValueError, match="division"):
        policy.select(lambda slot, above: contexts / (1 - slot) if slot < 1 else raising(), slots=2)
    assert policy.fingerprint() == before


def raising():
    raise ValueError("division")


def test_blocks_of_arms_fill_slots_too():
    blocks = ArmBlocks.fit(np.random.default_rng(0).normal(size=(20, 2)), 4)
    policy = LinUCB(blocks.dim, OnDemand(), seed=0)
    assert sorted(policy.select(blocks([1.0, 2.0]), slots=4).arm.tolist()) == [0, 1, 2, 3]
