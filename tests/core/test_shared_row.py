"""Contexts that one row and several arms make: the same products, variances and decisions without their crossing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import ArmBlocks, BatchNeuralUCB, NeuralLinear, NeuralTS, OnDemand, Training
from rarely._core.covariance import Limit
from rarely._core.covariance.diagonal import Diagonal
from rarely._core.inputs.arm_blocks import Crossed
from rarely._core.model import shared_row
from rarely._core.model.features import Factors
from rarely._core.model.network import Network
from rarely._core.model.shared_row import SharedRow


def crossed(rng: np.random.Generator, rows: int, features: int, arms: int, *, constant: bool = True):
    """The parts of contexts of one row, and the contexts as the scale crosses them."""
    scale = Crossed(rng.normal(size=rows + features), 0.5 + rng.random(rows + features), constant, rows)
    row = np.tile(rng.normal(size=rows), (arms, 1))
    contexts = np.hstack((row, rng.normal(size=(arms, features))))
    return SharedRow.of(scale.plain(contexts), rows, constant), scale(contexts)


@given(
    rows=st.integers(1, 6),
    features=st.integers(1, 6),
    arms=st.integers(5, 40),
    units=st.integers(1, 9),
    constant=st.booleans(),
    tile=st.sampled_from([1, 64, 2**18]),
    seed=st.integers(0, 99),
)
def test_products_and_norms_are_those_of_the_crossed_contexts(rows, features, arms, units, constant, tile, seed):
    rng = np.random.default_rng(seed)
    shared, contexts = crossed(rng, rows, features, arms, constant=constant)
    matrix = rng.normal(size=(units, contexts.shape[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_row, "GEMM_ALONE", tile)
        image, squares = shared.image(matrix), shared.squared().image(matrix)
    size = np.abs(contexts) @ np.abs(matrix).T
    np.testing.assert_array_equal(shared.crossed(), contexts)
    assert (np.abs(image - contexts @ matrix.T) <= 1e-13 * size).all()
    assert np.allclose(squares, np.square(contexts) @ matrix.T, rtol=0, atol=1e-12 * np.square(contexts).sum())
    assert np.allclose(shared.squared_norms(), np.square(contexts).sum(axis=1), rtol=1e-13)


def test_contexts_of_several_rows_share_none():
    plain = np.random.default_rng(0).normal(size=(10, 5))
    assert SharedRow.of(plain, 3, True) is None
    plain[:, :3] = plain[0, :3]
    assert SharedRow.of(plain, 3, True) is not None
    plain[-1, 0] += 1e-9
    assert SharedRow.of(plain, 3, True) is None
    assert SharedRow.of(plain[:4], 3, True) is None  # too few to be worth it


@given(seed=st.integers(0, 99), skip=st.sampled_from([None, 0.0, 3.0]))
def test_values_features_and_variances_are_those_of_plain_contexts(seed, skip):
    rng = np.random.default_rng(seed)
    shared, contexts = crossed(rng, 4, 3, 12)
    network = Network(contexts.shape[1], 8, skip=skip)
    weights = network.initial_weights(rng)
    weights[-1][0, 8:] = rng.normal(size=weights[-1].shape[1] - 8)
    plain_values, plain = network.values_and_factors(weights, contexts)
    values, factors = network.values_of_shared(weights, shared)
    assert np.allclose(values, plain_values, rtol=1e-12, atol=1e-12)
    assert len(factors) == 12
    assert np.allclose(factors.squared_norms, plain.squared_norms, rtol=1e-12)
    for mine in (factors, factors[np.arange(12)]):
        for one, other in zip(mine.inputs + mine.signals, plain.inputs + plain.signals, strict=True):
            assert np.allclose(one, other, rtol=1e-12, atol=1e-12)
    form = Diagonal(network.shapes, 0.3, Limit(network.shapes))
    for i in (3, 5):
        form.accept(form.propose(form.measure(factors)[[i]]), 1)
    squares = np.square(plain.vectors())
    running, frozen = 0.3 + squares[[3, 5]].sum(axis=0), np.full(squares.shape[1], 0.3)
    for features in (factors, plain):
        assert np.allclose(form.measure(features).variances, (squares / frozen).sum(axis=1), rtol=1e-12)
        assert np.allclose(form.measure(features, running=True).variances, (squares / running).sum(axis=1), rtol=1e-12)


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


@pytest.mark.once
@pytest.mark.parametrize("settings", [{"covariance": "diagonal"}, {"covariance": "last_layer"}, {}, {"depth": 3}])
def test_a_recommender_decides_as_without_the_shared_row(monkeypatch, settings):
    rng = np.random.default_rng(0)
    users, articles = rng.normal(size=(300, 4)), rng.normal(size=(20, 3))
    blocks = ArmBlocks.fit(users, layout="bilinear", features=articles)

    def play() -> tuple[list[int], list[float]]:
        training = Training(rows=30)  # so that an update leaves rewards out
        own = {"schedule": OnDemand(), "hidden": 16, "seed": 0, "training": training, **settings}
        policy = BatchNeuralUCB(**own, **blocks.settings)
        arms, means = [], []
        for t, user in enumerate(users[:60]):
            decision = policy.select(blocks(user, articles))
            policy.observe(decision, float(user[0] * articles[decision.arm, 0] > 0))
            arms.append(int(decision.arm))
            means.extend(decision.means)
            if t % 20 == 19:
                policy.update()
        assert (policy._learner.base.shared_row(blocks(users[0], articles)) is not None) is (
            shared and "depth" not in settings
        )
        return arms, means

    shared = True
    arms, means = play()
    shared = False
    monkeypatch.setattr(SharedRow, "of", lambda *_: None)
    plain_arms, plain_means = play()
    assert arms == plain_arms
    assert np.allclose(means, plain_means, rtol=1e-6, atol=1e-9)


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
