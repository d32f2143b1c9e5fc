"""Policies by evidence beside each other, on CPU tensors: the same arms as the core, and each part against the core."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="rarely_lab.gpu needs torch: make test-torch")

from numpy.testing import assert_allclose

from rarely import BatchNeuralUCB, NeuralEpsilonGreedy, NeuralTS, NeuralUCB, Paced
from rarely._core.model import kernels
from rarely._core.model.kernels import Memory, Units, Views
from rarely._core.policies.gaussian_process import ARITHMETIC, Arithmetic, Grams, System
from rarely.worlds import Cosine, Quadratic
from rarely_lab.engine.play import LibraryContestant, play
from rarely_lab.gpu import evidence
from rarely_lab.gpu.evidence import Device

RIDGES = np.array([1e-3, 0.1, 3.0])


def lived(make, world, seed, rounds):
    """Return the policy and what it played, as a comparison does."""
    contestant = LibraryContestant(make(world.dim, rounds, seed))
    return contestant.policy, play(contestant, world.rounds(seed, rounds))


def of(kind, batches, **settings):
    return lambda dim, rounds, seed: kind(dim, Paced(rounds, batches + seed), seed=seed, **settings)


@pytest.mark.parametrize(
    "make",
    [
        of(BatchNeuralUCB, 8),
        of(BatchNeuralUCB, 8, beta=0.0),
        of(BatchNeuralUCB, 8, within_batch="frozen"),
        of(NeuralTS, 6),
        of(NeuralEpsilonGreedy, 6),
        lambda dim, rounds, seed: NeuralUCB(dim, seed=seed),
    ],
    ids=["default", "greedy", "frozen bonuses", "draws", "epsilon", "an update after every round"],
)
@pytest.mark.parametrize("world", [Cosine(dim=4), Quadratic(dim=3)], ids=["cosine", "quadratic"])
def test_runs_beside_each_other_choose_the_arms_of_the_core(make, world):
    rounds = 30 if make(2, 9, 0).__class__ is NeuralUCB else 120
    together = Device(3, rounds, "cpu").play([lambda s=s: lived(make, world, s, rounds) for s in range(3)])
    for seed, (policy, played) in enumerate(together):
        alone, other = lived(make, world, seed, rounds)
        np.testing.assert_array_equal(played.arms, other.arms)
        assert played.updates == other.updates
        assert_allclose(policy.log_det, alone.log_det, rtol=1e-6)
        assert policy.jitters == alone.jitters


@pytest.mark.filterwarnings("ignore::rarely.ForgettingWarning", "ignore::rarely.DriftWarning")
def test_a_flip_is_found_as_the_core_finds_it():
    class Flipping(Cosine):
        def round(self, t, secret, generator):
            contexts, means, noise = super().round(t, secret, generator)
            return contexts, means * (1 if t < 150 else -1), noise

    world = Flipping(dim=3, noise=0.1)
    ((policy, played),) = Device(1, 300, "cpu").play([lambda: lived(of(BatchNeuralUCB, 12), world, 0, 300)])
    alone, other = lived(of(BatchNeuralUCB, 12), world, 0, 300)
    assert any(update.memory for update in alone.updates)
    np.testing.assert_array_equal(played.arms, other.arms)
    assert [update.memory for update in policy.updates] == [update.memory for update in alone.updates]


def data(rng, count, dim, metric):
    """Return views of contexts, two of them equal, with units, a metric, rewards and how much each counts."""
    contexts = rng.normal(size=(count, dim))
    contexts[-1] = contexts[0]
    contexts[-2] = -contexts[1]
    root = rng.normal(size=(dim, dim))
    units = Units.of(contexts.mean(axis=0), contexts.var(axis=0), np.zeros(dim, bool))
    metric = (root + root.T) / 2 if metric else None
    return Views.of(contexts, units, metric), units, metric, rng.normal(size=count), rng.uniform(0.2, 1, count)


def compared(works):
    """Return what works give beside each other, and alone."""
    return list(zip(Device(len(works), 100, "cpu").play(works), [work() for work in works], strict=True))


def arithmetic():
    return ARITHMETIC.get()


def weights_of(rng, metric):
    weights = rng.uniform(0.1, 1, len(kernels.NAMES))
    weights[kernels.LEARNED] *= metric is not None
    return weights


@pytest.mark.parametrize("memory", [Memory(), Memory(decay=0.02), Memory(change=9.0)], ids=str)
def test_each_part_is_that_of_the_core_whatever_the_sizes(memory):
    def work(seed, count, dim, with_metric):
        rng = np.random.default_rng(seed)
        views, units, metric, target, trust = data(rng, count, dim, with_metric)
        weights, times = weights_of(rng, metric), np.arange(count, dtype=float)
        wanted = [kernel for kernel in range(len(kernels.NAMES)) if kernel != kernels.LEARNED or metric is not None]
        grams = arithmetic().grams(views, wanted, np.ones(len(kernels.NAMES)), times)
        lost, variance = grams.misfits(weights, memory, trust, target, RIDGES[: 1 + seed])
        points = views.features(weights, times, memory)
        system = arithmetic().system(points, 2.0)
        coefficients, residuals = system.solved(target, 0.1 / trust)
        mean = arithmetic().mean(points, coefficients, points[3:])
        slopes = arithmetic().slopes(views, units, metric, weights, memory, times, target, 0.1)
        return lost, variance, coefficients, residuals, mean, slopes

    works = [
        lambda seed=seed, count=count, metric=metric: work(seed, count, 3, metric)
        for seed, (count, metric) in enumerate([(12, False), (25, True), (18, True)])
    ]
    for mine, core in compared(works):
        looked_at = np.isfinite(core[0])  # ridges far from the best count for nothing
        for one, other in ((mine[0][looked_at], core[0][looked_at]), *zip(mine[2:], core[2:], strict=True)):
            assert_allclose(one, other, rtol=1e-7, atol=1e-9)
        assert_allclose(mine[1][looked_at], core[1][looked_at], rtol=1e-7)


def test_a_matrix_that_is_not_positive_definite_is_mended_by_the_core(monkeypatch):
    asked = []
    for owner, name in ((Grams, "misfits"), (System, "solved"), (Arithmetic, "slopes")):
        kept = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, kept=kept, name=name: asked.append(name) or kept(*given))

    def work():
        rng = np.random.default_rng(0)
        views, units, _, target, trust = data(rng, 20, 3, metric=False)
        weights, times = np.eye(len(kernels.NAMES))[kernels.CONSTANT], np.arange(20.0)
        arithmetic().grams(views, [0, 1, 2, 3], np.ones(len(kernels.NAMES)), times).misfits(
            weights, Memory(), trust, target, np.array([1e-17])
        )
        with pytest.warns(UserWarning, match="positive definite"):
            arithmetic().system(views.features(weights, times, Memory()), 1.0).solved(target, np.full(20, 1e-17))
        with pytest.warns(UserWarning, match="positive definite"):
            return arithmetic().slopes(views, units, None, weights, Memory(), times, target, 1e-17)

    Device(1, 20, "cpu").play([work])
    assert asked == ["misfits", "solved", "slopes"]


def test_more_forms_than_there_is_room_for_take_more():
    device = Device(1, 40, "cpu")
    places = {device.take() for _ in range(5)}
    assert len(places) == 5
    assert max(places) < len(device.inverses) == len(device.past)


def test_the_place_of_a_form_is_free_once_nothing_refers_to_it():
    device = Device(1, 40, "cpu")
    place = evidence.Place(device)
    number = place.number
    assert number not in device.free
    del place
    assert number in device.free


def test_parts_that_fit_give_what_all_together_give(monkeypatch):
    def play():
        works = [lambda s=s: lived(of(BatchNeuralUCB, 5), Cosine(dim=3), s, 60)[1].arms for s in range(3)]
        return Device(3, 60, "cpu").play(works)

    whole = play()
    monkeypatch.setattr(evidence, "AT_ONCE", 1)
    np.testing.assert_array_equal(play(), whole)
