"""The theorems' numbers, and the lemmas under them as properties of our own matrices and policies."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, InvalidInput, LinUCB
from rarely.core.covariance import FORMS, Limit
from rarely.core.network import Network
from rarely.theory import (
    adaptive_plan,
    adaptive_regret,
    adaptive_regret_order,
    effective_dimension,
    fixed_batches,
    fixed_regret,
    fixed_regret_lower_order,
    fixed_regret_order,
    log_det_bound,
    radius,
    step_size,
    steps,
    switches_lower_order,
)
from worlds import contexts, play, small, unit_rows

EXACT = ("dual", "primal", "auto")


@settings(max_examples=40, deadline=None)
@given(st.integers(10, 3000), st.integers(2, 4), st.floats(-2, 1), st.floats(0.1, 10))
def test_j_steps_of_size_eta_leave_undone_what_the_proof_allows(rounds, depth, log_ridge, s):
    """The mended J and η bring β_T's last term to about √λ·S; with the printed sign J would be negative."""
    ridge, hidden = 10**log_ridge, 50
    eta = step_size(rounds, hidden=hidden, depth=depth, ridge=ridge)
    j = steps(rounds, depth=depth, ridge=ridge, S=s)
    given_j = {"nu": 0.0, "S": 0.0, "ridge": ridge, "depth": depth, "step": eta * hidden}
    undone = radius(rounds, 0.0, steps=j, **given_j)
    assert undone <= 2 * math.sqrt(ridge) * s
    assert undone < radius(rounds, 0.0, steps=j // 2, **given_j)
    printed = ridge * s / (math.sqrt(rounds) * ridge + rounds**1.5 * depth)
    assert math.log(printed) < 0 or j == 0


def test_the_radius_is_theorem_1s():
    value = radius(5, 3.0, nu=0.5, S=2.0, ridge=0.25, depth=2, steps=8, step=0.1, delta=0.1, C1=3.0)
    confidence = 0.5 * math.sqrt(3.0 - 2 * math.log(0.1)) + 0.5 * 2.0
    undone = (0.25 + 5 * 2) * (1 - 0.1 * 0.25) ** 4 * math.sqrt(5 / 0.25)
    assert value == pytest.approx(3 * (confidence + undone))


def test_the_bounds_as_printed_by_hand():
    assert fixed_regret(8.0, 100, 7, 0.5) == pytest.approx(16 / math.log(2) * 15 + 2 * math.sqrt(800))
    assert adaptive_regret(8.0, 100, 3, 2.0, 0.5) == pytest.approx(math.sqrt(1600) * math.exp(2.0))
    assert adaptive_regret(8.0, 100, 9, 2.0, 0.5) == pytest.approx(math.sqrt(1600) * math.exp(1.0))
    assert fixed_regret_order(9.0, 100, 20, nu=2.0, ridge=4.0, S=0.5) == pytest.approx((18 + 3) * 10 + 45)
    assert fixed_regret_lower_order(100.0, 100, 4) == pytest.approx(100 + 50)
    assert switches_lower_order(3.0, 100) == pytest.approx(3 * math.log(100) / math.log(3 * math.log(100)))
    order = adaptive_regret_order(1.0, 10, 2, 3, 0.5, nu=1.0, ridge=1.0, S=1.0)
    assert order == pytest.approx(math.sqrt(21 / math.exp(1.0)) * 2 * math.sqrt(10))
    assert adaptive_regret(1e6, 10, 1, 1.0, 1.0) == math.inf


@given(st.floats(0.5, 50), st.integers(2, 10**6), st.integers(1, 20), st.floats(-3, 2))
def test_the_recommended_q_balances_both_terms_of_theorem_2(dimension, rounds, arms, log_ridge):
    ridge = 10**log_ridge
    plan = adaptive_plan(dimension, rounds, arms, ridge)
    growth = log_det_bound(dimension, rounds, arms, ridge) - 1
    assert plan.batches * plan.log_ratio == pytest.approx(growth)
    assert plan.log_ratio <= 1
    worse = (adaptive_regret(growth, rounds, plan.batches, factor * plan.log_ratio, 1.0) for factor in (0.5, 2.0))
    # One trigger fewer than batches: the last batch may grow by q² in the worst case.
    assert adaptive_regret(growth, rounds, plan.batches, plan.log_ratio, 1.0) <= 1.0001 * math.sqrt(math.e) * min(worse)


def test_the_recommended_b_of_a_grid():
    assert [fixed_batches(t) for t in (1, 2, 4, 5, 2000, 10**6)] == [1, 2, 2, 3, 45, 1000]
    with pytest.raises(InvalidInput):
        fixed_batches(0)


def features(seed, count, hidden=6):
    net = Network(3, hidden)
    weights = net.initial_weights(np.random.default_rng(seed))
    x = np.random.default_rng(seed + 1).normal(size=(count, 3)) * 10.0 ** np.random.default_rng(seed).integers(-1, 2)
    return net, net.values_and_factors(weights, x)[1]


@pytest.mark.parametrize("kind", EXACT)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(-3, 2))
def test_lemma_3_the_elliptical_potential(kind, seed, count, log_ridge):
    """Σ min{1, ‖φ_t‖²_{Z_t⁻¹}} ≤ 2 log(det Z_{T+1}/det λI), for the matrices as they are held."""
    net, phi = features(seed, count)
    covariance = FORMS[kind](net.shapes, 10**log_ridge, Limit(net.shapes))
    total = 0.0
    for t in range(count):
        covariance.freeze()
        measured = covariance.measure(phi[t : t + 1])
        total += min(1.0, float(measured.variances[0]))
        covariance.accept(covariance.propose(measured), 1)
    assert total <= 2 * covariance.log_det * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("kind", EXACT)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(0, 30), st.floats(-3, 2))
def test_lemma_4_the_determinant_inequality(kind, seed, first, more, log_ridge):
    """‖φ‖_{Z_b⁻¹} ≤ ‖φ‖_{Z_t⁻¹}·√(det Z_t/det Z_b): what a frozen matrix can overstate."""
    net, phi = features(seed, first + more + 5)
    covariance = FORMS[kind](net.shapes, 10**log_ridge, Limit(net.shapes))

    def take(rows):
        covariance.accept(covariance.propose(covariance.measure(phi[rows])), rows.stop - rows.start)

    take(slice(0, first))
    covariance.freeze()
    before, stale = covariance.log_det, covariance.measure(phi[first + more :]).variances
    take(slice(first, first + more))
    covariance.freeze()
    fresh = covariance.measure(phi[first + more :]).variances
    with np.errstate(over="ignore"):
        allowed = fresh * np.exp(covariance.log_det - before)
    assert np.all(stale <= allowed * (1 + 1e-7) + 1e-12)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 5.0), st.booleans())
def test_the_adaptive_rule_never_makes_more_batches_than_the_determinant_allows(seed, log_ratio, linear):
    schedule = DeterminantTrigger(log_ratio=log_ratio)
    policy = LinUCB(2, schedule) if linear else small(schedule, seed=seed)
    play(policy, contexts(seed))
    assert policy.version + 1 <= policy.log_det / log_ratio + 1


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("arms", [1, 2])
def test_lemma_2_holds_for_wide_networks_with_their_own_kernel(depth, arms):
    """d̃ from H̃. With Definition 1's H, which is smaller, it fails, as one arm shows: Z then has all contexts."""
    rounds, ridge = 40, 0.05
    stream = unit_rows(7, rounds * arms, 4).reshape(rounds, arms, 4)
    settings = {"hidden": 2048, "depth": depth, "ridge": ridge, "preset": "paper", "steps": 20}
    policy = BatchNeuralUCB(4, FixedGrid(rounds, 4), beta=0.1, seed=0, **settings)
    for contexts_now in stream:
        decision = policy.select(contexts_now)
        policy.observe(decision, float(np.sin(3 * contexts_now[decision.arm, 0])))
        if policy.due:
            policy.update()
    flat = stream.reshape(-1, 4)
    own = effective_dimension(flat, ridge=ridge, depth=depth, limit="network")
    printed = effective_dimension(flat, ridge=ridge, depth=depth, limit="definition")
    assert policy.log_det <= log_det_bound(own.value, rounds, arms, ridge)
    if arms == 1:
        assert policy.log_det > log_det_bound(printed.value, rounds, arms, ridge)


def test_a_run_stays_below_its_bound():
    """LinUCB is a network of one layer: both theorems' last lines hold for it, with its own β."""
    rng, rounds, nu = np.random.default_rng(0), 400, 0.1
    theta = np.array([0.6, -0.8, 0.0])
    stream = unit_rows(1, rounds * 3, 3).reshape(rounds, 3, 3)
    for schedule, bound in (
        (FixedGrid(rounds, 20), lambda p, beta: fixed_regret(p.log_det, rounds, 20, beta)),
        (DeterminantTrigger(rounds, 20, 1.0), lambda p, beta: adaptive_regret(p.log_det, rounds, 20, 1.0, beta)),
    ):
        policy, regret = LinUCB(3, schedule, intercept=False, beta=0.5), 0.0
        for arms in stream:
            decision, means = policy.select(arms), arms @ theta
            regret += means.max() - means[decision.arm]
            policy.observe(decision, means[decision.arm] + nu * rng.normal())
            if policy.due:
                policy.update()
        beta = nu * math.sqrt(policy.log_det - 2 * math.log(0.05)) + 1.0
        assert regret <= bound(policy, beta)
