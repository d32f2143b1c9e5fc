"""Contexts of content arms crossed by the policy, and log det of the diagonal form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import ArmBlocks, NeuralLinear, NeuralTS, OnDemand
from rarely._core.covariance import Limit
from rarely._core.covariance.diagonal import Diagonal
from rarely._core.model.features import Factors


@given(seed=st.integers(0, 99), large=st.booleans())
def test_the_log_det_of_a_diagonal_grows_by_what_is_added(seed, large):
    rng = np.random.default_rng(seed)
    widths, ridge = ((60, 5), (1, 60)), 0.01
    size = 1e60 if large else 1.0  # products of so many ratios overflow, and their logarithms are summed one by one
    signals = rng.normal(size=(7, 60)) * size * (rng.random((7, 60)) < 0.5)
    factors = Factors((rng.normal(size=(7, 5)), rng.normal(size=(7, 60))), (signals, np.ones((7, 1))))
    form = Diagonal(widths, ridge, Limit(widths))
    proposal = form.propose(form.measure(factors))
    squares = np.square(factors.vectors())
    expected = np.log((ridge + np.cumsum(squares, axis=0)) / ridge).sum(axis=1)
    assert np.allclose(proposal.log_dets, expected, rtol=1e-12)
    form.accept(proposal, 7)
    form.freeze()
    assert form.log_det == pytest.approx(expected[-1], rel=1e-13)
    assert form.frozen_log_det == form.log_det


@pytest.mark.parametrize("policy_of", [NeuralLinear, NeuralTS])
def test_other_policies_take_content_arms_too(policy_of):
    rng = np.random.default_rng(0)
    users, articles = rng.normal(size=(30, 4)), rng.normal(size=(20, 3))
    blocks = ArmBlocks.fit(users, layout="bilinear", features=articles)
    policy = policy_of(schedule=OnDemand(), hidden=8, seed=0, **blocks.settings)
    for user in users:
        policy.observe(policy.select(blocks(user, articles)), float(user[0] > 0))
    policy.update()
    one, alone = policy.score(blocks(users[0], articles)), policy.score(blocks(users[0], articles[:3]))
    assert np.allclose(one.means[:3], alone.means, rtol=1e-9)
    assert np.allclose(one.bonuses[:3], alone.bonuses, rtol=1e-9)
