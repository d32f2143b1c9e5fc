import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import Affine, ArmBlocks, BatchNeuralUCB, FixedGrid, InvalidContexts, InvalidInput
from rarely._core.inputs.contexts import read_rounds
from rarely._core.inputs.scaling import ContextScale, Moments, RewardScale


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
        moments = moments.after(part, 1)
    np.testing.assert_allclose(moments.mean, whole.mean(axis=0), rtol=1e-9, atol=1e-9)
    if len(whole) > 1:
        np.testing.assert_allclose(
            moments.affine(early=False).spread, whole.std(axis=0) * np.sqrt(3), rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("size", [1e151, 1e200, 1.7e308])
@pytest.mark.parametrize("sign", [1, -1])
def test_contexts_whose_squares_overflow_are_refused_before_the_scale_is_lost(size, sign):
    policy, x = BatchNeuralUCB(2, FixedGrid(24, 4), hidden=8, seed=0), np.random.default_rng(0).random((3, 2))
    policy.select(1e150 * x)
    before = policy.fingerprint()
    with pytest.raises(InvalidContexts, match=r"at most 1e\+150 in size"):
        policy.select(sign * size * (0.5 + x / 2))
    assert policy.fingerprint() == before


def test_fitted_contexts_are_centred_with_norm_about_one():
    x = 100 + 30 * np.random.default_rng(0).normal(size=(500, 4))
    scaled = Affine.fit(x)(x)
    np.testing.assert_allclose(scaled[:, :4].mean(axis=0), 0, atol=1e-12)
    assert np.square(scaled[:, :4]).sum(axis=1).mean() == pytest.approx(1.0)
    assert np.all(scaled[:, 4] == 1)


@given(st.integers(2, 200), st.integers(1, 199), st.floats(-100, 100), st.floats(0.1, 100), st.integers(-20, 20))
def test_a_column_of_two_values_is_divided_by_half_their_distance_in_any_unit(count, ones, low, apart, power):
    ones, unit = min(ones, count - 1), 2.0**power
    column = np.where(np.arange(count) < ones, low + apart, low)
    other = np.linspace(-1, 1, count) ** 3
    rows = np.stack([column, other, np.linspace(0, 1, count)], axis=1)
    scale, scaled = Affine.fit(rows), Affine.fit(unit * rows)
    assert scale.spread[0] == pytest.approx((column.max() - low) / 2 * np.sqrt(3))
    assert np.abs(scale(rows)[:, 0]).max() <= 2 / np.sqrt(3) + 1e-9
    if count > 3:
        assert scale.spread[1] == pytest.approx(other.std() * np.sqrt(3))
    np.testing.assert_allclose(scaled(unit * rows), scale(rows), rtol=1e-9, atol=1e-9)


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
    for bad in ([1.0], [[1.0, np.nan]], np.zeros((1, 1, 2)), ["a", "b"], [[1.0, 2.0], [1.0]]):
        with pytest.raises(InvalidContexts):
            blocks(bad)
    for bad in ({"arms": 0}, {"arms": 2, "layout": "hybrid2"}):
        with pytest.raises(InvalidInput):
            ArmBlocks(rows=Affine.identity(2), **bad)


@given(
    st.sampled_from(["disjoint", "shared", "hybrid"]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_every_layout_is_the_plain_loop(layout, arms, width, own, rounds, constant, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(rounds or 1, width))
    with_features = own > 0 and layout != "disjoint"
    sample = rng.normal(3, 2, size=(5, own)) if with_features else None
    blocks = ArmBlocks.fit(5 + rng.normal(size=(9, width)), arms, layout=layout, constant=constant, features=sample)
    features = rng.normal(size=(len(rows), arms, own)) if with_features else None
    if rounds == 0:
        contexts = blocks(rows[0], None if features is None else features[0])[None]
    else:
        contexts = blocks(rows, features)
    assert contexts.shape == (len(rows), arms, blocks.dim)
    for i, row in enumerate(rows):
        x = [(v - c) / s for v, c, s in zip(row, blocks.rows.center, blocks.rows.spread, strict=True)]
        x += [1.0] * constant
        for k in range(arms):
            z = []
            if features is not None:
                scale = blocks.features
                z = [(v - c) / s for v, c, s in zip(features[i, k], scale.center, scale.spread, strict=True)]
            block = [value for j in range(arms) for value in (x if j == k else [0.0] * len(x))]
            mark = [float(j == k) for j in range(arms)]
            plain = {"disjoint": block, "shared": x + z + mark, "hybrid": x + z + block}[layout]
            np.testing.assert_allclose(contexts[i, k], plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", ["disjoint", "shared", "hybrid"])
def test_a_context_padded_with_zeros_is_the_same_arm_among_more(layout):
    few, many = (ArmBlocks(arms, Affine.identity(2, constant=True), layout) for arms in (2, 5))
    padded = np.pad(few([3.0, 4.0]), ((0, 0), (0, many.dim - few.dim)))
    np.testing.assert_array_equal(padded, many([3.0, 4.0])[:2])


def test_features_of_all_rounds_may_be_given_once():
    blocks = ArmBlocks(2, Affine.identity(1), "hybrid", features=Affine.identity(2))
    rows, features = np.arange(3.0)[:, None], np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(blocks(rows, features), blocks(rows, np.stack([features] * 3)))
    np.testing.assert_array_equal(blocks(rows[1], features), blocks(rows, features)[1])


def test_features_out_of_place_are_refused():
    plain = ArmBlocks(2, Affine.identity(1))
    rich = ArmBlocks(2, Affine.identity(1), "shared", features=Affine.identity(2))
    with pytest.raises(InvalidContexts, match="without features"):
        plain([1.0], np.zeros((2, 2)))
    for bad in (None, np.zeros(2), np.zeros((2, 1)), np.zeros((1, 2, 2)), np.full((2, 2), np.nan), "red"):
        with pytest.raises(InvalidContexts, match="features"):
            rich([1.0], bad)
    with pytest.raises(InvalidInput, match="'disjoint' has none"):
        ArmBlocks(2, Affine.identity(1), features=Affine.identity(2))
    with pytest.raises(InvalidInput, match="must be the Affine"):
        ArmBlocks(2, Affine.identity(1), "shared", features=np.zeros((2, 2)))


@pytest.mark.parametrize("features", [None, [[0.1], [1 / 3], [7.0]]])
def test_blocks_survive_json(features):
    blocks = ArmBlocks.fit([[0.1, 1 / 3], [2.0, 5.0]], np.int64(3), layout="hybrid", features=features)
    again = ArmBlocks.from_description(json.loads(json.dumps(blocks.describe())))
    assert again.describe() == blocks.describe()
    np.testing.assert_array_equal(again([1.0, 2.0], features), blocks([1.0, 2.0], features))


@pytest.mark.parametrize("preset", ["practical", "paper", "code"])
def test_a_policy_with_the_blocks_settings_leaves_contexts_alone(preset):
    rows = np.random.default_rng(0).normal(10, 3, size=(40, 2))
    blocks = ArmBlocks.fit(rows, arms=2)
    contexts = blocks(rows)
    policy = BatchNeuralUCB(schedule=FixedGrid(40, 2), hidden=8, preset=preset, **blocks.settings)
    policy.observe(policy.select(contexts), rows[:, 0])
    policy.update()
    np.testing.assert_array_equal(policy.context_scale(contexts[0]), contexts[0])


def test_a_log_of_other_blocks_is_refused():
    blocks, wider = (ArmBlocks(arms, Affine.identity(1)) for arms in (2, 3))
    settings = {"schedule": FixedGrid(10, 2), "hidden": 8}
    assert BatchNeuralUCB.from_log(np.eye(2), [0.0, 1.0], **settings, **blocks.settings).dim == 2
    with pytest.raises(InvalidContexts, match="dim=3"):
        BatchNeuralUCB.from_log(np.eye(2), [0.0, 1.0], **settings, **wider.settings)


def fitted_after(*parts):
    """The scale that an update fits after each of these contexts, round by round of one arm."""
    scale = ContextScale.start(parts[0].shape[1], None, constant=False, fitted=True)
    for part in parts:
        scale = scale.after(part, len(part)).fitted()
    return scale


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (lambda rng: rng.normal(size=(32, 2)), lambda rng: rng.normal(size=(300, 2)) + 3),  # another centre
        (lambda rng: 10 * rng.normal(size=(32, 2)), lambda rng: rng.normal(size=(3000, 2))),  # a smaller spread
        (lambda rng: rng.normal(size=(32, 2)), lambda rng: 10 * rng.normal(size=(300, 2))),  # a larger one
    ],
)
def test_a_column_that_has_left_its_scale_is_fitted_anew(first, later):
    rng = np.random.default_rng(0)
    contexts = [first(rng), later(rng)]
    together = np.concatenate(contexts)
    affine = fitted_after(*contexts).map
    np.testing.assert_allclose(affine.center, together.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(affine.spread, together.std(axis=0) * np.sqrt(2), rtol=1e-9)


def test_a_column_that_has_stayed_keeps_its_scale():
    rng = np.random.default_rng(0)
    before = fitted_after(first := rng.normal(size=(200, 2)))
    after = fitted_after(first, rng.normal(size=(300, 2)))
    np.testing.assert_array_equal(after.map.center, before.map.center)
    np.testing.assert_array_equal(after.map.spread, before.map.spread)


def test_numbers_are_cut_at_eight_deviations():
    scale = fitted_after(np.random.default_rng(0).normal(size=(200, 4)))
    np.testing.assert_allclose(scale(np.full((1, 4), 1e6)), 8 / np.sqrt(4))


def test_few_rounds_do_not_settle_a_spread_far_below_the_numbers():
    moments = Moments(1).after(np.array([[100.0], [101.0]]), 4)
    assert moments.affine(constant=False).spread[0] == pytest.approx(np.sqrt(0.25 + 0.75 * 100.5**2))


@pytest.mark.parametrize("rounds", [15, 16, 17])
def test_a_scale_follows_the_first_sixteen_rounds(rounds):
    scale = ContextScale.start(1, None, constant=False, fitted=True).after(np.arange(rounds)[:, None] * 1.0, rounds)
    assert scale.follows == (rounds < 16)
