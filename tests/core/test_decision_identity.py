"""A late reward reaches the decision that it belongs to, or none; and what tells one policy from another."""

import copy
import json
import pickle
from fractions import Fraction

import numpy as np
import pytest

import rarely
from rarely import BatchNeuralUCB, FixedGrid, InvalidInput, LinUCB, Mixture, OnDemand, UnknownRound, WrongDecision
from worlds import MAKERS, contexts, play, rewards, small

everyone = pytest.mark.parametrize("name", MAKERS)
STREAM = contexts(seed=11)


@everyone
def test_rewards_of_decisions_lost_in_a_crash_are_refused(name, tmp_path):
    policy = MAKERS[name](FixedGrid(24, 2))
    kept = policy.select(STREAM[:4])
    policy.save(tmp_path / "p")
    lost = policy.select(STREAM[4:8])
    again = rarely.load(tmp_path / "p")
    for call in (lambda: again.observe(lost, np.ones(4)), lambda: again.observe(ids=lost.id, rewards=np.ones(4))):
        with pytest.raises(UnknownRound, match="after the last save"):
            call()
    fresh = again.select(STREAM[4:8])  # the very same contexts, so the same arms and means
    before = again.fingerprint()
    for call in (
        lambda: again.observe(lost, np.ones(4)),
        lambda: again.observe(lost[2], 1.0),
        lambda: again.observe(ids=lost.id, rewards=np.ones(4)),
        lambda: again.observe(ids=lost[2].id, rewards=1.0),
    ):
        with pytest.raises(WrongDecision, match="after the last save"):
            call()
    assert again.fingerprint() == before
    again.observe(fresh, np.zeros(4))
    again.observe(kept[:2], [1.0, 2.0])
    again.observe(ids=kept[2:].id, rewards=[3.0, 4.0])
    np.testing.assert_array_equal(again.history.rewards, [1, 2, 3, 4, 0, 0, 0, 0])


@everyone
def test_a_decision_of_another_policy_is_refused(name):
    mine, other = MAKERS[name](), MAKERS[name]()
    mine.select(STREAM[:3])
    decision = other.select(STREAM[:3])
    with pytest.raises(WrongDecision, match="another policy"):
        mine.observe(decision, np.ones(3))
    assert mine.missing == 3


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@everyone
def test_a_copy_is_a_policy_of_its_own(name, twin):
    policy = MAKERS[name]()
    play(policy, STREAM[:7])
    early = policy.select(STREAM[7])
    other = twin(policy)
    assert other.fingerprint() == policy.fingerprint()
    before = policy.fingerprint()
    theirs = other.select(STREAM[8:11])
    other.observe(early, 0.5)
    assert policy.fingerprint() == before
    ours = policy.select(STREAM[8:11])
    np.testing.assert_array_equal(ours.arm, theirs.arm)
    with pytest.raises(WrongDecision):
        policy.observe(theirs, np.ones(3))
    with pytest.raises(WrongDecision):
        other.observe(ours, np.ones(3))


def test_a_decision_whose_arm_or_mean_is_not_the_one_on_record_is_refused():
    policy = small()
    decision = policy.select(STREAM[:2])
    record = {name: getattr(decision, name) for name in decision.__dataclass_fields__}
    for changed in ({"arm": (decision.arm + 1) % 3}, {"version": decision.version + 1}, {"means": decision.means + 1}):
        with pytest.raises(WrongDecision, match="its round 1 chose arm"):
            policy.observe(rarely.Decision(**(record | changed)), [0.0, 1.0])
    for changed in ({"arm": decision.arm + 99}, {"arm": np.array([-1, -1])}):
        with pytest.raises(WrongDecision, match="its round 1 chose arm"):
            policy.observe(rarely.Decision(**(record | changed)), [0.0, 1.0])
    for changed in ({"arm": None}, {"arm": decision.arm[:1]}, {"version": 0}, {"means": decision.means[0]}):
        with pytest.raises(WrongDecision, match="a decision must"):
            policy.observe(rarely.Decision(**(record | changed)), [0.0, 1.0])
    stored = {"means": decision.means.astype(np.float32)}  # fewer digits are the same decision
    policy.observe(rarely.Decision(**(record | stored)), [0.0, 1.0])


def test_an_arm_is_not_taken_for_a_round_number():
    policy = small()
    decision = policy.select(STREAM[:3])
    for given in (decision.arm, decision.round, 1, [1, 2, 3], "1", 1.5):
        with pytest.raises(InvalidInput, match=r"observe\(rounds=…, rewards=…\)"):
            policy.observe(given, [0.0, 1.0, 2.0])
    with pytest.raises(InvalidInput, match="one of decision"):
        policy.observe(decision, [0.0, 1.0, 2.0], rounds=[1, 2, 3])
    with pytest.raises(InvalidInput, match="one of decision"):
        policy.observe(rewards=[0.0])
    policy.observe(rounds=decision.round, rewards=[0.0, 1.0, 2.0])
    assert not policy.missing


@pytest.mark.parametrize(
    "bad", ["", "7", "-7", "life-", "life-x", "life-1.5", 7, None, b"life-1", "0" * 16 + "-" + "9" * 5000]
)
def test_what_is_no_id_is_refused(bad):
    policy = small()
    policy.select(STREAM[:3])
    for ids in ([bad], bad if isinstance(bad, str) else 7):
        with pytest.raises(WrongDecision, match=r"decision\.id"):
            policy.observe(ids=ids, rewards=[0.0])


def test_ids_of_several_lives_find_their_rounds(tmp_path):
    policy, decisions = small(), []
    for x in STREAM[:6]:
        decisions.append(policy.select(x))
        policy.save(tmp_path / "p")
        policy = rarely.load(tmp_path / "p")
    order = [4, 0, 5, 2]
    policy.observe(ids=[decisions[i].id for i in order], rewards=[4.0, 0.0, 5.0, 2.0])
    np.testing.assert_array_equal(policy.history.rewards, [0, np.nan, 2, np.nan, 4, 5])
    swapped = f"{decisions[1].life}-{decisions[3].round}"
    with pytest.raises(WrongDecision, match="round 4 is not"):
        policy.observe(ids=[decisions[1].id, swapped], rewards=[1.0, 3.0])


def test_ids_are_strings_that_survive_json():
    policy = small()
    one, many = policy.select(STREAM[0]), policy.select(STREAM[1:4])
    assert isinstance(one.id, str)
    assert len({one.id, *many.id}) == 4
    policy.observe(ids=json.loads(json.dumps([one.id, *many[1:].id])), rewards=[0.0, 1.0, 2.0])
    np.testing.assert_array_equal(policy.history.rewards, [0.0, np.nan, 1.0, 2.0])


@everyone
def test_equal_policies_have_equal_fingerprints_and_others_not(name):
    one, two = MAKERS[name](), MAKERS[name]()
    if "seed" in one.settings() and name not in (
        "linear",
        "no_intercept",
        "linear_discount",
        "kernel",
        "kernel_steps",
    ):
        assert one.fingerprint() == two.fingerprint()
    two = copy.deepcopy(one)
    seen = {one.fingerprint()}
    for call in (
        lambda p: p.select(STREAM[0]),
        lambda p: p.observe(rounds=[1], rewards=[0.5]),
        lambda p: p.update(),
    ):
        call(one)
        call(two)
        assert one.fingerprint() == two.fingerprint()
        seen.add(one.fingerprint())
    assert len(seen) == 4


@everyone
def test_settings_make_the_same_policy_again(name):
    policy = MAKERS[name]()
    settings = json.loads(json.dumps(policy.settings()))
    again = type(policy)(**settings)
    assert again.settings() == policy.settings()
    assert again.fingerprint() == policy.fingerprint()
    np.testing.assert_array_equal(play(again, STREAM), play(policy, STREAM))


def test_without_a_seed_the_settings_tell_the_one_that_was_drawn():
    one = BatchNeuralUCB(2, FixedGrid(24, 4), hidden=8)
    two = BatchNeuralUCB(**one.settings())
    assert one.fingerprint() == two.fingerprint()
    assert one.fingerprint() != BatchNeuralUCB(2, FixedGrid(24, 4), hidden=8).fingerprint()


def test_a_beta_that_is_a_function_is_not_silently_replaced():
    policy = small(beta=lambda t: 0.1 * t)
    settings = policy.settings()
    with pytest.raises(InvalidInput, match="function"):
        type(policy)(**settings)
    again = type(policy)(**(settings | {"beta": lambda t: 0.1 * t}))
    np.testing.assert_array_equal(play(again, STREAM), play(policy, STREAM))


@pytest.mark.parametrize(
    "bad",
    [
        {"seed": -1},
        {"seed": "a"},
        {"seed": 1.5},
        {"seed": True},
        {"seed": {"bit_generator": "dice"}},
        {"covariance": []},
        {"covariance": {}},
        {"covariance": {"rank": -1}},
        {"covariance": {"colour": 1}},
        {"preset": {"biases": "x"}},
        {"preset": {"colour": 1}},
        {"preset": {"standardise_rewards": "no"}},
        {"training": {"warm_start": 1}},
        {"training": {"pace": 1}},
        {"limits": {"memory": 0}},
        {"limits": {"colour": 1}},
        {"schedule": {"kind": "Sometimes"}},
        {"schedule": {}},
        {"exploration": {"sigma": 1}},
        {"forgetting": {"kind": "Window"}},
        {"forgetting": {"kind": "Amnesia"}},
        {"context_scale": {"center": [0.0, 0.0]}},
        {"beta": {"kind": "Guess"}},
    ],
)
def test_settings_that_make_no_sense_get_a_typed_error(bad):
    with pytest.raises(InvalidInput):
        BatchNeuralUCB(**({"dim": 2, "schedule": FixedGrid(24, 4)} | bad))


def test_flags_of_the_linear_policies_are_flags():
    with pytest.raises(InvalidInput, match="intercept must be True or False"):
        LinUCB(2, intercept="yes")


@pytest.mark.parametrize("arms", [2, 3, 7, 10, 35, 49])
@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.07, 0.9, 1 - 1e-14, 1.0])
@pytest.mark.parametrize("name", ["paper", "thompson"])
def test_a_mixture_keeps_its_word_exactly(arms, epsilon, name):
    policy = MAKERS[name](exploration=Mixture(epsilon))
    chances = policy.probabilities(contexts(rounds=6, arms=arms))
    least = Fraction(epsilon) / arms - Fraction(1 - epsilon < arms**2 / 2**53, 2**53)
    assert all(Fraction(chance) >= least for chance in chances.flat)
    for row in chances:
        assert sum(map(Fraction, row)) == 1
        assert row.sum() == row[::-1].sum() == 1


def test_policies_of_one_generator_draw_different_numbers_and_leave_it_usable():
    generator = np.random.default_rng(0)
    one = small(seed=generator)
    weights = one.weights[0]
    two = small(seed=generator)
    assert not np.array_equal(weights, two.weights[0])
    before = generator.bit_generator.state
    play(one, STREAM)
    assert generator.bit_generator.state == before


@pytest.mark.parametrize("name", ["tuned", "mixture", "thompson"])
def test_a_reward_finds_its_round_in_any_order_and_only_once(name):
    policy = MAKERS[name]()
    decisions = [policy.select(x) for x in STREAM[:12]]
    values = np.arange(12.0)
    rng = np.random.default_rng(3)
    for i in rng.permutation(12):
        policy.observe(decisions[i], values[i])
        policy.observe(decisions[i], values[i])
        assert policy.history.rewards[i] == values[i]
    np.testing.assert_array_equal(policy.history.rewards, values)
    x, r = policy.history.samples()[1:3]
    np.testing.assert_array_equal(r, values)
    assert rewards(x).shape == (12,)


def test_a_decision_may_stand_for_its_ids():
    policy = LinUCB(2, OnDemand())
    decision = policy.select(np.ones((4, 3, 2)))
    policy.observe(ids=decision[:2], rewards=[1.0, 2.0])
    assert policy.missing == 2
    policy.update()
    decision = policy.select(np.ones((3, 2)))
    policy.observe(ids=decision, rewards=3.0)
    assert policy.missing == 2
