"""The theorems' numbers, and the lemmas under them as properties of our own matrices and policies."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, InvalidInput, LinUCB, TheoremRadius
from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import FORMS, Limit
from rarely._core.model.network import Network
from rarely.theory import (
    adaptive_plan,
    adaptive_regret,
    effective_dimension,
    fixed_batches,
    fixed_regret,
    log_det_bound,
    step_size,
    steps,
)
from worlds import contexts, play, small, unit_rows

EXACT = ("dual", "primal")


@given(st.integers(30, 3000), st.integers(2, 4), st.floats(-2, 0), st.floats(0.1, 10))
def test_j_steps_of_size_eta_leave_undone_what_the_proof_allows(rounds, depth, log_ridge, s):
    """The mended J and η bring β_T's last term to about √λ·S; with fewer steps, or more, it is something else."""
    ridge, hidden = 10**log_ridge, 50
    eta = step_size(rounds, hidden=hidden, depth=depth, ridge=ridge)
    j = steps(rounds, depth=depth, ridge=ridge, S=s)
    now = VersionStats(rounds, rounds - 1, 0.0, ridge, depth, steps=j, step=eta * hidden)
    undone = TheoremRadius(nu=0.0, S=0.0)(now)
    assert 0.4 * math.sqrt(ridge) * s <= undone <= 2 * math.sqrt(ridge) * s


def test_the_bounds_as_printed_by_hand():
    assert fixed_regret(8.0, rounds=100, batches=7, radius=0.5) == pytest.approx(
        16 / math.log(2) * 15 + 2 * math.sqrt(800)
    )
    assert adaptive_regret(8.0, rounds=100, batches=3, log_ratio=2.0, radius=0.5) == pytest.approx(
        math.sqrt(1600) * math.exp(2.0)
    )
    assert adaptive_regret(8.0, rounds=100, batches=9, log_ratio=2.0, radius=0.5) == pytest.approx(
        math.sqrt(1600) * math.exp(1.0)
    )
    assert adaptive_regret(1e6, rounds=10, batches=1, log_ratio=1.0, radius=1.0) == math.inf


@given(st.floats(0.5, 50), st.integers(2, 10**6), st.integers(1, 20), st.floats(-3, 2))
def test_the_recommended_q_balances_both_terms_of_theorem_2(dimension, rounds, arms, log_ridge):
    ridge = 10**log_ridge
    plan = adaptive_plan(dimension, rounds=rounds, arms=arms, ridge=ridge)
    growth = log_det_bound(dimension, rounds=rounds, arms=arms, ridge=ridge) - 1
    assert plan.batches == math.ceil(growth)
    assert plan.batches * plan.log_ratio == pytest.approx(growth)

    def bound(factor):
        log_ratio = factor * plan.log_ratio
        return adaptive_regret(growth, rounds=rounds, batches=plan.batches, log_ratio=log_ratio, radius=1.0)

    assert bound(1.0) <= min(bound(0.5), bound(0.9), bound(1.1), bound(2.0)) * (1 + 1e-9)


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
    # With one arm the bound is all but reached, so the network must be wide for the rounds; with two it is far.
    (rounds, hidden), ridge = ((20, 1024) if arms == 1 else (40, 512)), 0.05
    stream = unit_rows(7, rounds * arms, 4).reshape(rounds, arms, 4)
    settings = {"hidden": hidden, "depth": depth, "ridge": ridge, "preset": "paper", "training": 5}
    policy = BatchNeuralUCB(4, FixedGrid(rounds, 4), beta=0.1, seed=0, **settings)
    for contexts_now in stream:
        decision = policy.select(contexts_now)
        policy.observe(decision, float(np.sin(3 * contexts_now[decision.arm, 0])))
        if policy.due:
            policy.update()
    flat = stream.reshape(-1, 4)
    own = effective_dimension(flat, ridge=ridge, depth=depth, kind="network")
    printed = effective_dimension(flat, ridge=ridge, depth=depth, kind="definition")
    assert policy.log_det <= log_det_bound(own.value, rounds=rounds, arms=arms, ridge=ridge)
    if arms == 1:
        assert policy.log_det > log_det_bound(printed.value, rounds=rounds, arms=arms, ridge=ridge)


def test_a_run_stays_below_its_bound():
    """LinUCB is a network of one layer: both theorems' last lines hold for it, with its own β, and say something."""
    rng, rounds, nu = np.random.default_rng(0), 8000, 0.1
    theta = np.array([0.3, -0.4, 0.0])
    stream = unit_rows(1, rounds * 3, 3).reshape(rounds, 3, 3)
    means = stream @ theta + 0.5
    for schedule, bound in (
        (FixedGrid(rounds, 1600), lambda d, beta: fixed_regret(d, rounds=rounds, batches=1600, radius=beta)),
        (
            DeterminantTrigger(rounds, 80, 0.5),
            lambda d, beta: adaptive_regret(d, rounds=rounds, batches=80, log_ratio=0.5, radius=beta),
        ),
    ):
        policy, regret = LinUCB(3, schedule, beta=0.5), 0.0
        while policy.round < rounds:
            start = policy.round
            decision = policy.select(stream[start:], until_due=True)
            part = means[start : policy.round]
            got = part[np.arange(len(part)), decision.arm]
            regret += float((part.max(axis=1) - got).sum())
            policy.observe(decision, got + nu * rng.normal(size=len(got)))
            if policy.due:
                policy.update()
        beta = nu * math.sqrt(policy.log_det - 2 * math.log(0.05)) + math.sqrt(theta @ theta + 0.25)
        allowed = bound(policy.log_det, beta)
        assert regret <= allowed < 0.8 * float((means.max(axis=1) - means.min(axis=1)).sum())


def test_the_bound_does_not_trust_a_radius_that_is_too_small():
    """One round, the wrong arm: with 2β below its regret Lemma 1 would not hold."""
    assert adaptive_regret(math.log1p(1e4), rounds=1, batches=2, log_ratio=4.6, radius=0.01) >= 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: step_size(1, hidden=0, depth=2, ridge=1.0),
        lambda: step_size(1, hidden=2, depth=2, ridge=1.0, C3=-1.0),
        lambda: steps(1, depth=2, ridge=1.0, S=1.0, C2=-1.0),
        lambda: fixed_regret(-1.0, rounds=1, batches=1, radius=1.0),
        lambda: adaptive_regret(1.0, rounds=1, batches=1, log_ratio=-5.0, radius=1.0),
        lambda: log_det_bound(-3.0, rounds=1, arms=1, ridge=1.0),
        lambda: adaptive_plan(0.0, rounds=1, arms=1, ridge=1.0),
    ],
)
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(InvalidInput, match="must be"):
        wrong()


def test_tiny_numbers_are_numbers():
    assert steps(10, depth=2, ridge=1e-5, S=1e-300) > 0
