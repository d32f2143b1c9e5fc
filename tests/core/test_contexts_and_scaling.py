import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import Affine, ArmBlocks, InvalidContexts, InvalidInput
from rarely.core.contexts import read_rounds
from rarely.core.scaling import Moments, RewardScale


@pytest.mark.parametrize(
    ("contexts", "shape", "single"),
    [
        (np.zeros((3, 2)), (1, 3), True),
        ([[0, 1], [1, 0]], (1, 2), True),
        ([np.zeros(2), np.zeros(2)], (1, 2), True),
        (np.zeros((4, 3, 2)), (4, 3), False),
        ([np.zeros((3, 2)), np.zeros((1, 2))], (2, 3), False),
        ([[[0, 1]], [[0, 1], [1, 1]]], (2, 2), False),
        ((np.zeros((3, 2)),), (1, 3), False),
    ],
)
def test_every_form_of_contexts_is_understood(contexts, shape, single):
    rounds = read_rounds(contexts, None, 2)
    assert rounds.present.shape == shape
    assert rounds.single == single
    (part,) = rounds.parts(lambda: 99)
    assert part.rows.shape == (rounds.present.sum(), 2)


def test_a_list_of_rounds_is_not_padded_with_the_widest():
    rounds = [np.zeros((2, 3))] * 500 + [np.zeros((4000, 3))]
    read = read_rounds(rounds, None, 3)
    assert read.arms == 10
    assert [len(part.rows) for part in read.parts(lambda: 500)] == [1000, 4000]


def test_the_error_names_the_arm_and_the_round():
    x = np.zeros((3, 2, 2))
    x[1, 1, 0] = np.nan
    with pytest.raises(InvalidContexts, match="arm 1 of round 1"):
        list(read_rounds(x, None, 2).parts(lambda: 1))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10**6), st.floats(-1e6, 1e6))
def test_moments_in_parts_are_moments_of_the_whole(sizes, seed, shift):
    rng = np.random.default_rng(seed)
    parts = [shift + rng.normal(size=(n, 3)) for n in sizes]
    whole, moments = np.concatenate(parts), Moments(3)
    for part in parts:
        moments.add(part, 1)
    np.testing.assert_allclose(moments.mean, whole.mean(axis=0), rtol=1e-9, atol=1e-9)
    if len(whole) > 1:
        np.testing.assert_allclose(moments.affine().spread, whole.std(axis=0) * np.sqrt(3), rtol=1e-6, atol=1e-8)


def test_fitted_contexts_are_centred_with_norm_about_one():
    x = 100 + 30 * np.random.default_rng(0).normal(size=(500, 4))
    scaled = Affine.fit(x)(x)
    np.testing.assert_allclose(scaled[:, :4].mean(axis=0), 0, atol=1e-12)
    assert np.square(scaled[:, :4]).sum(axis=1).mean() == pytest.approx(1.0)
    assert np.all(scaled[:, 4] == 1)


def test_a_column_that_never_varies_is_only_centred():
    x = np.column_stack([np.full(10, 5.0), np.arange(10.0)])
    scaled = Affine.fit(x)(x)
    assert not scaled[:, 0].any()
    assert np.isfinite(scaled).all()


@pytest.mark.parametrize(
    ("center", "spread"), [([0.0], [0.0]), ([0.0], [-1.0]), ([np.nan], [1.0]), ([0.0, 1.0], [1.0])]
)
def test_impossible_scales_are_refused(center, spread):
    with pytest.raises(InvalidInput):
        Affine(np.array(center), np.array(spread))


def test_reward_scales_of_ordinary_cases():
    assert RewardScale.fit(np.empty(0)) == RewardScale(0.0, 1.0)
    assert RewardScale.fit(np.full(4, 7.0)) == RewardScale(7.0, 1.0)
    assert RewardScale.fit(np.zeros(3)) == RewardScale(0.0, 1.0)


def test_disjoint_blocks_stay_zero_elsewhere():
    rows = np.random.default_rng(0).normal(10, 3, size=(50, 4))
    blocks = ArmBlocks.fit(rows, arms=3)
    contexts = blocks(rows)
    assert contexts.shape == (50, 3, blocks.dim) == (50, 3, 15)
    for arm in range(3):
        inside = contexts[:, arm, 5 * arm : 5 * arm + 5]
        assert np.all(inside[:, 4] == 1)
        np.testing.assert_allclose(inside[:, :4].mean(axis=0), 0, atol=1e-12)
        outside = np.delete(contexts[:, arm], np.s_[5 * arm : 5 * arm + 5], axis=1)
        assert not outside.any()
    np.testing.assert_array_equal(blocks(rows[0]), contexts[0])


def test_shared_blocks_mark_the_arm():
    blocks = ArmBlocks(arms=2, rows=Affine.identity(2, constant=True), layout="shared")
    np.testing.assert_array_equal(blocks([3.0, 4.0]), [[3, 4, 1, 1, 0], [3, 4, 1, 0, 1]])


def test_blocks_refuse_what_they_cannot_place():
    blocks = ArmBlocks(arms=2, rows=Affine.identity(2))
    for bad in ([1.0], [[1.0, np.nan]], np.zeros((1, 1, 2))):
        with pytest.raises(InvalidContexts):
            blocks(bad)
    for bad in ({"arms": 0}, {"arms": 2, "layout": "hybrid2"}):
        with pytest.raises(InvalidInput):
            ArmBlocks(rows=Affine.identity(2), **bad)
