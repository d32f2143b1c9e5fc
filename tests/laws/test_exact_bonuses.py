"""Bonuses of LinUCB against exact fractions, in any units of columns; what is lost elsewhere is announced."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import BatchNeuralUCB, InvalidContexts, JitterWarning, LinUCB, OnDemand, RoundingWarning


def solved(matrix, rhs):
    """matrix⁻¹ rhs, by elimination."""
    rows = [[*row, one] for row, one in zip(matrix, rhs, strict=True)]
    for c in range(len(rows)):
        rows[c] = [value / rows[c][c] for value in rows[c]]
        for r in range(len(rows)):
            if r != c:
                rows[r] = [a - rows[r][c] * b for a, b in zip(rows[r], rows[c], strict=True)]
    return [row[-1] for row in rows]


def exact_bonuses(contexts, arms, ridge, *, running):
    """√φᵀZ⁻¹φ of every arm of every round, after the arms chosen before it if `running`; λ is not rounded away."""
    d = contexts.shape[2] + 1
    z = [[Fraction(ridge) * (i == j) for j in range(d)] for i in range(d)]
    out = np.empty(contexts.shape[:2])
    for t, arm in enumerate(arms):
        features = [[*map(Fraction, map(float, row)), Fraction(1)] for row in contexts[t]]
        for k, x in enumerate(features):
            out[t, k] = float(sum(a * b for a, b in zip(x, solved(z, x), strict=True))) ** 0.5
        if running:
            x = features[arm]
            z = [[z[i][j] + x[i] * x[j] for j in range(d)] for i in range(d)]
    return out


def decided(policy, contexts, sizes):
    """Arms and bonuses, in blocks of these sizes."""
    parts = np.split(contexts, np.cumsum(sizes)[:-1])
    decisions = [policy.select(part) for part in parts if len(part)]
    return np.concatenate([d.arm for d in decisions]), np.concatenate([d.bonuses for d in decisions])


@given(
    units=st.lists(st.integers(-6, 9), min_size=1, max_size=3),
    ridge=st.sampled_from([1.0, 0.01, 30.0]),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
)
def test_running_bonuses_are_exact_in_any_units(units, ridge, sizes, seed):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(sum(sizes), 3, len(units))) * 10.0 ** np.array(units)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arms, bonuses = decided(LinUCB(len(units), OnDemand(), ridge=ridge, seed=0), contexts, sizes)
        one_by_one = decided(LinUCB(len(units), OnDemand(), ridge=ridge, seed=0), contexts, [1] * sum(sizes))
    truth = exact_bonuses(contexts, arms, ridge, running=True)
    np.testing.assert_allclose(bonuses, truth, rtol=1e-8)
    assert (truth[np.arange(len(arms)), arms] >= truth.max(axis=1) * (1 - 1e-7)).all()
    np.testing.assert_array_equal(one_by_one[0], arms)
    np.testing.assert_allclose(one_by_one[1], bonuses, rtol=1e-8)


@pytest.mark.parametrize("covariance", ["auto", "dual", "primal", "last_layer", "diagonal"])
@pytest.mark.parametrize("units", [1e5, 1e8, 1e60, 1e100])
def test_digits_that_no_form_can_keep_are_announced_and_no_bonus_is_missing(covariance, units):
    contexts = np.random.default_rng(0).normal(size=(30, 4, 3))
    contexts[..., 0] *= units

    def make():
        return BatchNeuralUCB(
            3, OnDemand(), preset="paper", hidden=10, within_batch="running", covariance=covariance, seed=0
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arms, bonuses = decided(make(), contexts, [30])
        singly = decided(make(), contexts, [1] * 30)
    assert np.isfinite(bonuses).all()
    assert np.isfinite(singly[1]).all()
    assert {one.category for one in caught} <= {RoundingWarning, JitterWarning}
    if not caught:
        np.testing.assert_array_equal(arms, singly[0])
        np.testing.assert_allclose(bonuses, singly[1], rtol=1e-5)


def test_contexts_too_large_for_any_variance_are_refused():
    contexts = np.random.default_rng(0).normal(size=(30, 4, 3))
    contexts[..., 0] *= 1e160
    with pytest.raises(InvalidContexts, match="small enough"):
        LinUCB(3, OnDemand()).select(contexts)
