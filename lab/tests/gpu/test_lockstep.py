"""Lockstep on CPU tensors: the same arms as the core, whatever the schedules; its parts against the core's own."""

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="rarely_lab.gpu needs torch: make test-torch")


from rarely import BatchNeuralUCB, FixedGrid
from rarely._core.inputs.scaling import ContextScale
from rarely._core.model.network import Network
from rarely._core.training.gradient_descent import TrainingPlan, train
from rarely.worlds import Cosine, Quadratic, Rounds, Table
from rarely_lab.engine.play import play_policy
from rarely_lab.gpu import training
from rarely_lab.gpu.lockstep import Lockstep
from rarely_lab.reproduce.catalogue import Cell
from rarely_lab.reproduce.config import Configuration, Problem
from rarely_lab.reproduce.golden import setups

CONFIGURATIONS = (
    Configuration("fixed", batches=4),
    Configuration("adaptive", batches=6, log_ratio=4.0),
    Configuration("adaptive", batches=40, log_ratio=9.0),
    Configuration("neuralucb"),
)


def small(source, **settings):
    return Problem("small", source, **({"hidden": 16, "ridge": 0.01, "beta": 0.05, "steps": 30} | settings))


def table():
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(60, 4))
    return Table.of(rows, (rows[:, 0] * rows[:, 1] > 0).astype(int))


def cells_of(problem, reading, rounds=40, seeds=(0, 1)):
    return [Cell(problem, reading, configuration, seed, rounds) for configuration in CONFIGURATIONS for seed in seeds]


def compared(cells, precision):
    """Return replicas of the lockstep, the policies that played the same rounds one by one, and their log det Z."""
    runs = {cell.seed: cell.world().rounds(cell.seed, cell.rounds) for cell in cells}
    policies = [cell.policy() for cell in cells]
    replicas = Lockstep(policies, [runs[cell.seed] for cell in cells], "cpu", precision).play()

    def one_by_one(cell):
        policy, log_dets = cell.policy(), []
        play_policy(policy, runs[cell.seed], lambda t: log_dets.append(policy.log_det))
        return policy, log_dets

    return list(zip(replicas, map(one_by_one, cells), strict=True))


@pytest.mark.parametrize("source", [Cosine(dim=5), Quadratic(dim=5), table()], ids=["cosine", "quadratic", "table"])
def test_every_schedule_chooses_the_arms_of_the_core_in_float64(source):
    for replica, (policy, log_dets) in compared(cells_of(small(source), "paper"), torch.float64):
        np.testing.assert_array_equal(replica.arms, policy.history.arms)
        assert [u.round for u in replica.updates] == [u.round for u in policy.updates]
        assert [u.attempts for u in replica.updates] == [u.attempts for u in policy.updates]
        np.testing.assert_allclose([u.log_det for u in replica.updates], [u.log_det for u in policy.updates], rtol=1e-9)
        np.testing.assert_allclose(replica.log_dets, log_dets, rtol=1e-9)


@pytest.mark.parametrize(("reading", "precision"), [("paper", torch.float64), ("practical", torch.float32)])
def test_golden_runs_have_the_arms_of_the_core(reading, precision):
    """So records of both engines belong to one golden family."""
    for _, runs in groupby(setups(reading), key=lambda setup: (setup.problem.name, setup.seed)):
        for replica, (policy, _) in compared(list(runs), precision):
            np.testing.assert_array_equal(replica.arms, policy.history.arms)
            assert [u.round for u in replica.updates] == [u.round for u in policy.updates]


@pytest.mark.parametrize("source", [Cosine(dim=5), table()], ids=["a scale that is fitted", "a scale that is given"])
def test_the_practical_preset_chooses_the_arms_of_the_core(source):
    cells = cells_of(small(source), "practical")
    for replica, (policy, log_dets) in compared(cells, torch.float32):
        np.testing.assert_array_equal(replica.arms, policy.history.arms)
        assert [u.round for u in replica.updates] == [u.round for u in policy.updates]
        np.testing.assert_allclose(replica.log_dets[-1], log_dets[-1], rtol=1e-2)


def test_contexts_that_leave_their_scale_rebuild_z_as_the_core_does():
    class Drifting(Cosine):
        def round(self, t, secret, generator):
            contexts, means, noise = super().round(t, secret, generator)
            return contexts + (t > 20) * 3.0, means, noise

    problem = small(Drifting(dim=4))
    found = compared(cells_of(problem, "practical"), torch.float32)
    assert any(u.rescaled for _, (policy, _) in found for u in policy.updates if u.round > 20)
    for replica, (policy, _) in found:
        np.testing.assert_array_equal(replica.arms, policy.history.arms)


@given(st.integers(0, 2**31), st.integers(1, 5), st.sampled_from([1, 3]), st.integers(0, 3))
def test_contexts_are_scaled_as_the_core_scales_them(seed, dim, arms, constants):
    generator, rounds = np.random.default_rng(seed), 30
    contexts = generator.normal(size=(rounds, arms, dim)) * generator.uniform(0.1, 9, dim) + generator.normal(size=dim)
    contexts[:, :, : min(constants, dim)] = 2.5
    contexts[25:] += generator.choice([0.0, 30.0])
    scale = ContextScale.start(dim, None, constant=True, fitted=True).after(contexts[:20].reshape(-1, dim), 20)
    zeros = np.zeros((rounds, arms))
    policy = BatchNeuralUCB(dim, FixedGrid(rounds, 2), hidden=4, training=5, beta=0.1)
    engine = Lockstep([policy], [Rounds(contexts, zeros, zeros)], "cpu")
    ours = engine._scaled(torch.from_numpy(contexts)[None], [scale])[0]
    np.testing.assert_allclose(ours.flatten(0, 1), scale(contexts.reshape(-1, dim)), rtol=1e-9, atol=1e-9)


def theta(network, seed):
    weights = network.initial_weights(np.random.default_rng(seed))
    return weights, training.Theta(torch.from_numpy(weights[0])[None], torch.from_numpy(weights[1]))


@pytest.mark.parametrize("size", [1.0, 1e6], ids=["usual rewards", "rewards that need smaller steps"])
def test_trainings_of_many_lengths_are_those_of_the_core(size):
    network, plan = Network(4, 8), TrainingPlan(ridge=0.01, steps=25)
    generator, counts = np.random.default_rng(0), (3, 11, 7)
    x, y = generator.normal(size=(3, 11, 4)), size * generator.normal(size=(3, 11))
    initial = [theta(network, seed) for seed in range(3)]
    inside = np.arange(11) < np.array(counts)[:, None]
    samples = training.Samples(
        torch.from_numpy(x * inside[..., None]),
        torch.from_numpy(y * inside / network.output_scale),
        torch.tensor(counts),
    )
    first = training.Theta(*(torch.cat(parts) for parts in zip(*(part for _, part in initial), strict=True)))
    still = training.Theta(*(torch.zeros_like(part) for part in first))
    given = {"steps": 25, "ridge": 0.01, "hidden": 8, "precision": torch.float64}
    outcome = training.train(samples, first, still, **given)
    for r, count in enumerate(counts):
        one = train(network, initial[r][0], x[r, :count], y[r, :count], plan)
        assert one.accepted == bool(outcome.accepted[r])
        assert one.report.attempts == int(outcome.attempts[r])
        assert one.reason == outcome.reasons[r]
        if one.accepted:
            np.testing.assert_allclose(outcome.weights.first[r], one.weights[0], rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(outcome.weights.last[r], one.weights[1][0], rtol=1e-8, atol=1e-10)
        again = train(network, initial[r][0], x[r, :count], y[r, :count], plan, one.direction)
        twice = training.train(samples, first, outcome.direction, **given)
        np.testing.assert_allclose(twice.weights.first[r], again.weights[0], rtol=1e-8, atol=1e-10)


def emulated(x, y, w0, v0, step, steps, ridge, *, warps=3, samples=2):
    """Take the steps in the order of `descend.cu`, in float32: a lane's units, a warp's samples, then all warps."""
    units = -(-len(v0) // 32)
    w, v = np.zeros((32 * units, x.shape[1]), np.float32), np.zeros(32 * units, np.float32)
    w[: len(v0)], v[: len(v0)] = w0, v0
    start, last = w.copy(), v.copy()
    for _ in range(steps):
        sums = np.zeros((warps, *w.shape), np.float32)
        for warp in range(warps):
            for first in range(warp * samples, len(x), warps * samples):
                for i in range(first, min(first + samples, len(x))):
                    h = np.zeros(len(v), np.float32)
                    for d in range(x.shape[1]):
                        h += w[:, d] * x[i, d]
                    e = (v * np.maximum(h, 0)).reshape(units, 32).sum(0).sum() - y[i]
                    sums[warp] += np.where(h > 0, e, np.float32(0))[:, None] * x[i]
        total = sums.sum(0)
        slope = (w * total).sum(1)
        w, v = (
            w - step * (v[:, None] * total + ridge * (w - start)),
            v - step * (slope + ridge * (v - last)),
        )
    return w[: len(v0)], v[: len(v0)]


@pytest.mark.parametrize(("rows", "dim", "hidden"), [(1, 4, 2), (7, 4, 40), (13, 12, 32)])
def test_the_arithmetic_of_the_kernel_takes_the_same_steps(rows, dim, hidden):
    generator, step, ridge = np.random.default_rng(rows), np.float32(0.02), np.float32(0.01)
    x, y = generator.normal(size=(rows, dim)).astype("f4"), generator.normal(size=rows).astype("f4")
    w0 = (generator.normal(size=(hidden, dim)) / hidden**0.5).astype("f4")
    v0 = (generator.normal(size=hidden) / hidden**0.5).astype("f4")
    w, v = emulated(x, y, w0, v0, step, 15, ridge)
    samples = training.Samples(torch.from_numpy(x)[None], torch.from_numpy(y)[None], torch.tensor([rows]))
    start = training.Theta(torch.from_numpy(w0)[None], torch.from_numpy(v0)[None])
    reached = training.descend(samples, start, torch.tensor([step]), 15, float(ridge))
    np.testing.assert_allclose(reached.first[0], w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(reached.last[0], v, rtol=1e-4, atol=1e-5)


def sparsely(entries, replica, y, w0, v0, step, steps, ridge):
    """Take the steps of `descend_sparse.cu`, in float32 and from its lists: samples forward, columns backward."""
    base = entries.base[replica].numpy()
    rows, columns = (
        (pairs.numpy(), np.concatenate([[0], ends.numpy()])) for pairs, ends in (entries[1:3], entries[3:5])
    )
    first_row, first_column = replica * (len(rows[1]) // len(entries.base)), replica * len(base)
    w, v = w0.copy(), v0.copy()

    def listed(lists, at):
        part = lists[0][lists[1][at] : lists[1][at + 1]]
        return part[:, 0], part[:, 1].view(np.float32)

    for _ in range(steps):
        h = np.stack([w @ base] * len(y))
        for i in range(len(y)):
            for column, value in zip(*listed(rows, first_row + i), strict=True):
                h[i] += w[:, column] * value
        active, e = h > 0, np.maximum(h, 0) @ v - y
        sums = np.outer(active.T @ e, base)
        for d in range(len(base)):
            which, values = listed(columns, first_column + d)
            sums[:, d] += active[which].T @ (e[which] * values)
        last = np.maximum(h, 0).T @ e
        w, v = w - step * (v[:, None] * sums + ridge * (w - w0)), v - step * (last + ridge * (v - v0))
    return w, v


@given(st.integers(0, 2**31), st.integers(1, 4), st.booleans())
def test_samples_that_differ_in_few_columns_take_the_same_steps(seed, attributes, shifted):
    generator, hidden, steps = np.random.default_rng(seed), 5, 6
    counts, dim = generator.integers(1, 9, 3), 6 * attributes
    x = np.zeros((3, counts.max(), dim), "f4")
    for r, count in enumerate(counts):
        for attribute in range(attributes):
            x[r, np.arange(count), 6 * attribute + generator.integers(0, 6, count)] = 1.0
    if shifted:
        x = x * generator.uniform(0.5, 2, (3, 1, dim)).astype("f4") - generator.normal(size=(3, 1, dim)).astype("f4")
    x *= (np.arange(counts.max()) < counts[:, None])[..., None]
    y = (generator.normal(size=x.shape[:2]) * (np.arange(counts.max()) < counts[:, None])).astype("f4")
    samples = training.Samples(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(counts))
    start = training.Theta(
        *(torch.from_numpy(generator.normal(size=(3, hidden, *more)).astype("f4")) for more in ((dim,), ()))
    )
    entries = training.entries_of(samples)
    assert entries is not None
    reached = training.descend(samples, start, torch.full((3,), 0.01), steps, 0.1)
    for r, count in enumerate(counts):
        first, last = start.first[r].numpy(), start.last[r].numpy()
        w, v = sparsely(entries, r, y[r, :count], first, last, 0.01, steps, 0.1)
        np.testing.assert_allclose(reached.first[r], w, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(reached.last[r], v, rtol=1e-3, atol=1e-4)


def test_samples_that_differ_everywhere_have_no_short_lists():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 9, 12)).astype("f4"))
    assert training.entries_of(training.Samples(x, x[..., 0], torch.tensor([9, 4]))) is None


def test_near_ties_are_counted():
    class Twins(Cosine):
        def round(self, t, secret, generator):
            contexts, means, noise = super().round(t, secret, generator)
            contexts[1] = contexts[0] + 1e-9
            return contexts, means, noise

    cell = replace(cells_of(small(Twins(dim=3, arms=2), beta=1.0), "paper")[0], rounds=20)
    ((replica, _),) = compared([cell], torch.float64)
    assert replica.near_ties > 0
