"""Doses: points of an interval with densities, kernel estimates, one continuous column of a frame, and studies."""

import numpy as np
import pytest

import rarely
from rarely import FramePolicy, Interval, LinTS, LinUCB, Mixture, OnDemand, Worth
from rarely.errors import InvalidInput, TooExpensive
from rarely.offpolicy import DecisionLog, ips
from rarely.study import Study
from rarely.study.errors import InvalidStudy


def paid(doses, x, rng):
    """Return rewards that are highest at dose 4 + x."""
    return 10 - np.square(doses - 4) + 2 * (doses - 4) * x + rng.normal(size=np.shape(doses))


def test_contexts_are_a_curve_in_the_dose():
    interval = Interval.fit([[1.0], [3.0]], 0.0, 8.0, points=4)
    assert interval.values.tolist() == [1.0, 3.0, 5.0, 7.0]
    contexts = interval([[3.0], [2.0]])
    z, x = np.array([-0.75, -0.25, 0.25, 0.75]), float(((3.0 - interval.rows.center) / interval.rows.spread)[0])
    np.testing.assert_allclose(contexts[0], np.column_stack([z, z**2, np.full(4, x), z * x, np.ones(4)]))
    assert contexts.shape == (2, 4, interval.dim)
    again = Interval.from_description(interval.describe())
    np.testing.assert_array_equal(again([[3.0], [2.0]]), contexts)


def test_the_best_dose_of_each_round_is_learned():
    rng = np.random.default_rng(0)
    interval = Interval.fit(rng.uniform(-2, 2, (50, 1)), 0.0, 8.0)
    policy = LinUCB(schedule=OnDemand(), seed=0, **interval.settings)
    for _ in range(10):
        x = rng.uniform(-2, 2, (40, 1))
        decision = policy.select(interval(x))
        policy.observe(decision, paid(interval.of(decision), x[:, 0], rng))
        policy.update()
    x = np.array([[-2.0], [0.0], [2.0]])
    np.testing.assert_allclose(interval.of(policy.select(interval(x))), [2.0, 4.0, 6.0], atol=0.5)


def test_densities_integrate_to_one():
    interval = Interval(0.0, 5.0, points=20)
    policy = LinTS(schedule=OnDemand(), seed=0, **interval.settings)
    decision = policy.select(interval())
    assert (decision.probabilities / interval.width).sum() * interval.width == pytest.approx(1.0)
    assert interval.density(decision) == decision.propensity / 0.25
    assert interval.arm(interval.of(decision)) == decision.arm


def test_a_kernel_estimate_is_that_of_its_definition():
    rng, interval, log, n, h = np.random.default_rng(1), Interval(0.0, 8.0, points=64), DecisionLog(), 4000, 0.6
    policy = LinUCB(schedule=OnDemand(), exploration=Mixture(1.0), seed=0, **interval.settings)
    decision = policy.select(np.broadcast_to(interval(), (n, 64, interval.dim)))
    rewards = paid(interval.of(decision), 0.0, rng)
    log.record(np.broadcast_to(interval(), (n, 64, interval.dim)), decision)
    log.observe(decision, rewards)
    target = np.full(n, 3.0)
    estimate = ips(log, interval.smoothed(target, h))
    kernel = np.maximum(1 - np.square((interval.of(decision) - 3.0) / h), 0)
    whole = np.maximum(1 - np.square((interval.values - 3.0) / h), 0).sum() * interval.width
    assert estimate.value == pytest.approx(np.mean(kernel / whole / interval.density(decision) * rewards))
    assert estimate.low < 9.0 < estimate.high
    np.testing.assert_array_equal(interval.smoothed([3.0], 1e-6).argmax(axis=1), [interval.arm(3.0)])


def test_a_price_is_a_dose_whose_worth_is_itself():
    rng, price = np.random.default_rng(2), Interval(0.0, 10.0, points=20)
    policy = LinUCB(schedule=OnDemand(), seed=0, **price.settings)
    for _ in range(15):
        decision = policy.select(np.broadcast_to(price(), (100, 20, 3)), worth=Worth(gain=price.values))
        policy.observe(decision, (rng.random(100) < 1 - price.of(decision) / 10).astype(float))
        policy.update()
    assert abs(price.of(policy.select(price(), worth=Worth(gain=price.values))) - 5.0) < 1.6


def test_a_frame_and_a_study_have_one_continuous_column(tmp_path):
    users = {"age": [20, 30, 40, 50], "town": ["Ulm", "Bonn", "Ulm", "Bonn"]}
    policy = FramePolicy.fit(LinUCB, users, arms=Interval(0.0, 8.0, points=8), schedule=OnDemand(), seed=0)
    assert policy.arms[policy.select({"age": 31, "town": "Ulm"}).arm] in {"0.5", "7.5"}
    policy.save(tmp_path / "policy.rarely")
    assert rarely.load(tmp_path / "policy.rarely").tables.doses.points == 8
    fresh = FramePolicy.fit(LinUCB, users, arms=Interval(0.0, 8.0, points=8), schedule=OnDemand(), seed=0)
    study = Study.create("memory://doses-columns", "dose", policy=fresh)
    answer = study.ask({"user": {"age": 31, "town": "Ulm"}}, id="v", worth={"gain": 2.0})
    assert 0 < float(answer.arm) < 8
    assert study.verify().whole
    assert study.replay().equal
    rows = Interval.fit([[1.0], [2.0]], 0.0, 1.0, points=4)
    other = Study.create(
        "memory://doses-rows", "dose", policy=LinUCB(schedule=OnDemand(), **rows.settings), blocks=rows
    )
    assert float(other.ask([1.5]).arm) in rows.values
    assert Study.open("memory://doses-rows", "dose").settings.arms == rows.names
    assert other.replay().equal
    bare = Interval(0.0, 1.0)
    with pytest.raises(InvalidStudy, match="must have rows"):
        Study.create("memory://doses-bare", "dose", policy=LinUCB(schedule=OnDemand(), **bare.settings), blocks=bare)


def test_bad_doses_are_refused():
    interval = Interval(0.0, 5.0)
    with pytest.raises(InvalidInput, match="a dose must lie in the interval, 0 to 5; got 6"):
        interval.arm([1.0, 6.0])
    with pytest.raises(InvalidInput, match="got nan"):
        interval.smoothed([np.nan], 1.0)
    with pytest.raises(InvalidInput, match="bandwidth"):
        interval.smoothed([1.0], 0.0)
    for low, high in ((1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0), ("0", 1.0)):
        with pytest.raises(InvalidInput, match="two finite ends"):
            Interval(low, high)
    with pytest.raises(InvalidInput, match=r"shape \(0,\)"):
        interval([1.0])


def test_more_points_than_a_round_can_hold_are_refused():
    with pytest.raises(TooExpensive, match="points must be at most 65,536"):
        Interval(0, 1, points=10**9)
