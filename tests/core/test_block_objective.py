"""Training by groups of samples against training on the whole contexts, zeros and all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loops import folder_of_the_run, in_kind, kinds
from rarely import ArmBlocks, BatchNeuralUCB, FixedGrid, Preset
from rarely._core.inputs.scaling import Affine
from rarely._core.model.network import Network
from rarely._core.training import objective as objective_module
from rarely._core.training.gradient_descent import TrainingPlan, objective_of, train
from rarely._core.training.objective import (
    BlockObjective,
    CompiledObjective,
    MomentumState,
    Objective,
    pattern_of,
    worthwhile,
)

CLOSE = {np.float32: 2e-4, np.float64: 1e-11}
GROUPS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 4)), min_size=1, max_size=5)
"""Samples and columns of each."""
SHAPES = {
    "groups": GROUPS,
    "shared": st.integers(0, 3),
    "unused": st.integers(0, 2),
    "half": st.integers(1, 20),
    "depth": st.integers(2, 4),
    "ridge": st.sampled_from([1e-3, 0.5]),
    "skip": st.sampled_from([None, 0.0, 2.0]),
    "dtype": st.sampled_from([np.float32, np.float64]),
    "seed": st.integers(0, 10**6),
}


@pytest.fixture(scope="module", params=kinds())
def loops(request, tmp_path_factory):
    """The compiled loops in every way in which they can be run here."""
    with in_kind(request.param, folder_of_the_run(tmp_path_factory)):
        yield


def blocks_of(rng, groups, shared=0, unused=0, zeros=0.0):
    """Contexts of shuffled samples and columns, nonzero in the shared columns and in those of a sample's group."""
    n, dim = sum(samples for samples, _ in groups), shared + sum(columns for _, columns in groups) + unused
    contexts = np.zeros((n, max(dim, 1)))
    contexts[:, :shared] = rng.normal(size=(n, shared))
    row, column = 0, shared
    for samples, columns in groups:
        contexts[row : row + samples, column : column + columns] = rng.normal(size=(samples, columns))
        row, column = row + samples, column + columns
    contexts[rng.random(contexts.shape) < zeros] = 0.0
    return contexts[rng.permutation(n)][:, rng.permutation(contexts.shape[1])]


def a_pattern(contexts):
    """One, whether it is worth its while or not."""
    there = contexts != 0
    return objective_module._pattern(there, there.sum(axis=0) > 0.9 * len(there))


def parts(pattern):
    """The samples and the columns of each group."""
    columns, own = np.split(pattern.columns, [pattern.shared]), np.cumsum(pattern.group_columns)
    samples = np.split(pattern.samples, np.cumsum(pattern.group_samples))
    return [
        (each, np.concatenate((columns[0], some)))
        for each, some in zip(samples, np.split(columns[1], own)[:-1], strict=False)
    ]


def both(form, groups, shared, unused, half, depth, ridge, skip, dtype, seed):
    """The same objective by groups and as a whole."""
    rng = np.random.default_rng(seed)
    contexts = blocks_of(rng, groups, shared, unused)
    net = Network(contexts.shape[1], 2 * half, depth, skip=skip)
    data = net, net.initial_weights(rng), contexts, rng.normal(size=len(contexts)), ridge, dtype
    return form(*data, pattern=a_pattern(contexts)), Objective(*data)


def assert_close(ours, theirs, dtype):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=CLOSE[dtype], atol=CLOSE[dtype] * max(1, np.abs(b).max(initial=0)))


def at_a_kink(plain, vector, rng):
    """Whether rounding may switch a unit on or off, so that the curvature jumps."""
    values = []
    for size in (0.0, 1e-6, 1e-6, 1e-6, 1e-6):
        moved = tuple(w * (1 + size * rng.normal(size=w.shape)) for w in plain.initial)
        data = (moved, plain.contexts.astype(np.float64), plain.targets.astype(np.float64), plain.ridge, np.float64)
        values.append(Objective(plain.network, *data).curvature_times(tuple(v.astype(np.float64) for v in vector))[0])
    return np.ptp(values) > 1e-4 * max(values)


def assert_the_same_descents(ours, plain, rng, steps):
    """Plain descent, momentum, loss and curvature."""
    dtype = plain.dtype
    start = tuple((w + rng.normal(0, 0.2, w.shape)).astype(dtype) for w in plain.initial)
    step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge + 10 * plain.samples)
    (moved, loss), (expected, expected_loss) = (o.descend(start, step, steps, np.inf) for o in (ours, plain))
    assert_close(moved, expected, dtype)
    assert loss == pytest.approx(expected_loss, rel=CLOSE[dtype])
    (motion, loss), (expected, expected_loss) = (
        o.descend_with_momentum(MomentumState(start, o.initial, 2), step, steps, np.inf) for o in (ours, plain)
    )
    assert_close(motion.weights + motion.ago, expected.weights + expected.ago, dtype)
    assert loss == pytest.approx(expected_loss, rel=CLOSE[dtype])
    assert ours.loss(start) == pytest.approx(plain.loss(start), rel=CLOSE[dtype])
    vector = tuple(rng.normal(size=w.shape).astype(dtype) for w in plain.initial)
    if dtype == np.float32 and at_a_kink(plain, vector, rng):
        return
    (value, product), (expected_value, expected) = (o.curvature_times(vector) for o in (ours, plain))
    assert value == pytest.approx(expected_value, rel=CLOSE[dtype])
    assert_close(product, expected, dtype)
    assert ours.top_curvature(None)[0] == pytest.approx(plain.top_curvature(None)[0], rel=0.01)


@given(steps=st.integers(0, 5), **SHAPES)
def test_compiled_groups_change_nothing_but_rounding(loops, steps, **shape):
    ours, plain = both(BlockObjective, **shape)
    assert_the_same_descents(ours, plain, np.random.default_rng(shape["seed"] + 1), steps)


@pytest.mark.parametrize(("depth", "threads"), [(2, 1), (3, 2), (2, 3), (3, 7)])
def test_threads_share_the_groups(loops, depth, threads, monkeypatch):
    # Large enough for seven threads: each wants 2¹⁸ products of its own.
    monkeypatch.setattr("rarely._core.training.objective.threads", lambda: threads)
    shape = {"shared": 2, "unused": 1, "ridge": 0.1, "skip": 2.0, "dtype": np.float64, "half": {2: 80, 3: 30}[depth]}
    groups = [(300, 20), (3, 7), (150, 1), (0, 2), (500, 9)]
    ours, plain = both(BlockObjective, groups=groups, seed=0, depth=depth, **shape)
    assert_the_same_descents(ours, plain, np.random.default_rng(1), 3)


@given(GROUPS, st.integers(0, 3), st.integers(0, 2), st.sampled_from([0.0, 0.3]), st.integers(0, 10**6))
def test_a_pattern_has_every_sample_and_every_number_once(groups, shared, unused, zeros, seed):
    contexts = blocks_of(np.random.default_rng(seed), groups, shared, unused, zeros)
    pattern = a_pattern(contexts)
    assert sorted(pattern.samples) == list(range(len(contexts)))
    assert sorted(pattern.columns) == list(range(contexts.shape[1]))
    assert sum(len(samples) * len(columns) for samples, columns in parts(pattern)) == pattern.products
    rest, seen = contexts.copy(), []
    for samples, columns in parts(pattern):
        rest[np.ix_(samples, columns)] = 0.0
        seen.extend(samples)
    assert not rest.any()
    assert sorted(seen) == list(range(len(contexts)))


@pytest.mark.parametrize(("layout", "shared"), [("disjoint", 0), ("hybrid", 4), ("shared", 4)])
@pytest.mark.parametrize("favourite", [0.2, 0.97])
def test_the_blocks_of_arms_are_found(layout, shared, favourite):
    """Also where one arm has nearly all samples."""
    rng = np.random.default_rng(0)
    blocks = ArmBlocks(5, Affine.identity(3, constant=True), layout)
    arms = np.where(rng.random(400) < favourite, 0, rng.integers(5, size=400))
    contexts = blocks(rng.normal(size=(400, 3)))[np.arange(400), arms]
    pattern = pattern_of(contexts)
    own = 1 if layout == "shared" else 4
    if layout == "disjoint" or favourite < 0.5:
        assert (pattern.shared, len(pattern.group_samples)) == (shared, 5)
        assert pattern.group_columns.tolist() == [own] * 5
        assert pattern.group_samples.tolist() == np.bincount(arms).tolist()
    assert pattern.products <= 400 * (shared + own) * 1.2 + 400 * own * (favourite > 0.5 and layout != "disjoint")


def test_contexts_without_blocks_have_no_pattern():
    rng = np.random.default_rng(0)
    assert pattern_of(rng.normal(size=(30, 4))) is None
    assert pattern_of(np.empty((0, 4))) is None
    scattered = rng.normal(size=(300, 10)) * (rng.random((300, 10)) < 0.6)
    assert pattern_of(scattered) is None


def test_a_long_chain_of_samples_is_no_pattern(monkeypatch):
    """Two of them, so that there would be groups."""
    chain, none = np.eye(60) + np.eye(60, k=1), np.zeros((60, 60))
    order = np.random.default_rng(0).permutation(120)
    contexts = np.block([[chain, none], [none, chain]])[order][:, order]
    assert pattern_of(contexts).group_samples.tolist() == [60, 60]
    monkeypatch.setattr(objective_module, "MAX_ROUNDS", 3)
    assert pattern_of(contexts) is None


def test_all_contexts_0_are_one_group_without_columns(loops):
    net = Network(3, 8, skip=1.0)
    theta = net.initial_weights(np.random.default_rng(0))
    data = net, theta, np.zeros((9, 3)), np.arange(9.0), 0.1, np.float64
    pattern = pattern_of(data[2])
    assert pattern.products == 0
    assert_the_same_descents(BlockObjective(*data, pattern=pattern), Objective(*data), np.random.default_rng(1), 3)


def arms_and_rewards(samples=1200, arms=8, width=6):
    rng = np.random.default_rng(3)
    contexts = np.zeros((samples, arms, width))
    contexts[np.arange(samples), rng.integers(arms, size=samples)] = rng.normal(size=(samples, width))
    return contexts.reshape(samples, -1), rng.normal(size=samples)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_faster_form_is_taken(compiled, monkeypatch):
    monkeypatch.setattr(CompiledObjective, "fits", staticmethod(lambda network: compiled))
    contexts, rewards = arms_and_rewards(width=20)
    net = Network(contexts.shape[1], 200)
    theta = net.initial_weights(np.random.default_rng(0))
    plan = TrainingPlan(0.1, precision="float32")
    by_group, whole = (BlockObjective, CompiledObjective) if compiled else (Objective, Objective)
    assert type(objective_of(net, theta, contexts, rewards, plan)) is by_group
    assert type(objective_of(net, theta, contexts + 1.0, rewards, plan)) is whole


def test_groups_that_do_not_pay_are_not_taken():
    """Groups of one sample are filled up to eight rows, which costs deeper layers more than the first one saves."""
    contexts = np.eye(20) @ np.diag(np.arange(1.0, 21.0))
    pattern = pattern_of(contexts)
    assert len(pattern.group_samples) == 20
    assert not worthwhile(pattern, Network(20, 100, depth=3))
    net = Network(20, 100, depth=3)
    theta = net.initial_weights(np.random.default_rng(0))
    assert type(objective_of(net, theta, contexts, np.ones(20), TrainingPlan(0.1))) in (CompiledObjective, Objective)


def test_a_training_is_the_same_but_for_rounding(monkeypatch):
    contexts, rewards = arms_and_rewards()
    net = Network(contexts.shape[1], 32, skip=1.0)
    theta = net.initial_weights(np.random.default_rng(0))
    ours = train(net, theta, contexts, rewards, TrainingPlan(0.1, 30))
    monkeypatch.setattr(objective_module, "pattern_of", lambda contexts: None)
    plain = train(net, theta, contexts, rewards, TrainingPlan(0.1, 30))
    assert ours.accepted
    assert ours.report.final_loss == pytest.approx(plain.report.final_loss, rel=1e-10)
    assert_close(ours.weights, plain.weights, np.float64)


def test_a_policy_with_blocks_learns_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    rows, blocks = rng.normal(size=(120, 3)), ArmBlocks(6, Affine.identity(3, constant=True))
    rewards = rng.normal(size=120)
    means, double = [], Preset.named("practical", precision="float64")
    for look in (objective_module.pattern_of, lambda contexts: None):
        monkeypatch.setattr(objective_module, "pattern_of", look)
        policy = BatchNeuralUCB(
            schedule=FixedGrid(240, 2), hidden=32, training=40, preset=double, seed=0, **blocks.settings
        )
        policy.observe(policy.select(blocks(rows)), rewards)
        policy.update()
        means.append(policy.score(blocks(rows[:20])).means)
    np.testing.assert_allclose(*means, rtol=1e-9, atol=1e-9)
