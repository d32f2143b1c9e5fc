"""Training against the product rate: how near a gradient step comes to nothing but its matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from rarely._core.model.network import Network
from rarely._core.training.gradient_descent import Precision, TrainingPlan, train
from rarely._core.training.objective import CompiledObjective, Objective, fastest_objective
from suite.figures import Benchmark, BenchmarkFailed, Figure, Tell
from suite.machine import best_of, in_turns, product_rate, training_pass

SHAPES = ((2000, 200, 11, 200, 55.0), (2000, 100, 45, 200, None), (20_000, 200, 50, 50, 70.0))
"""n, m, d, J, and the share of the float32 product rate that is asked for, in per cent."""


def training(
    _: Tell,
    *,
    name: str,
    samples: int,
    hidden: int,
    dim: int,
    steps: int,
    depth: int = 2,
    precision: Precision = "float32",
    asked: float | None = None,
    turns: int = 9,
) -> list[Figure]:
    """J steps of `train` with a fixed step that needs one attempt.

    A first training, not timed, finds the step and the eigenvector that a policy's later updates start from.
    """
    rng = np.random.default_rng(0)
    network = Network(dim, hidden, depth)
    theta = network.initial_weights(rng)
    contexts = rng.normal(size=(samples, dim)) / np.sqrt(dim)
    rewards = np.cos(3 * contexts @ rng.normal(size=dim)) + rng.normal(0, 0.5, samples)
    first = train(network, theta, contexts, rewards, TrainingPlan(0.01, 1, precision=precision))
    assert first.report.step_size is not None
    plan = TrainingPlan(0.01, steps, first.report.step_size / 2, precision=precision)

    def work() -> None:
        outcome = train(network, theta, contexts, rewards, plan, first.direction)
        if not outcome.accepted or outcome.report.attempts > 1:
            raise BenchmarkFailed(f"one attempt was to do, and {outcome.report.attempts} were made. {outcome.reason}")

    dtype = np.dtype(precision).type
    rate, (seconds,) = in_turns(lambda: product_rate(dtype), work, turns=turns)
    ideal = steps * training_pass(samples, network.shapes) / rate
    return [
        Figure(
            name,
            _says(samples, hidden, dim, steps, depth, precision),
            100 * ideal / seconds,
            "% of product rate",
            "higher",
            seconds,
            asked,
            f"{1e3 * seconds:.0f} ms; products alone would take {1e3 * ideal:.0f} ms",
        )
    ]


def blocks(
    _: Tell, *, samples: int = 2000, arms: int = 10, width: int = 11, hidden: int = 200, steps: int = 50, turns: int = 9
) -> list[Figure]:
    """Steps on contexts of disjoint blocks, by groups and on the whole contexts."""
    rng = np.random.default_rng(0)
    contexts = np.zeros((samples, arms, width))
    contexts[np.arange(samples), rng.integers(arms, size=samples)] = rng.normal(size=(samples, width)) / np.sqrt(width)
    network = Network(arms * width, hidden, skip=3.0)
    given = network, network.initial_weights(rng), contexts.reshape(samples, -1), rng.normal(size=samples)
    dense = CompiledObjective if CompiledObjective.fits(network) else Objective
    both = fastest_objective(*given, 0.01, np.float32), dense(*given, 0.01, np.float32)
    works = [partial(objective.descend, objective.initial, 1e-4 / samples, steps, np.inf) for objective in both]
    times = [[best_of(3, work) for work in works] for _ in range(turns)]
    ours, plain = (min(each) for each in zip(*times, strict=True))
    return [
        Figure(
            "disjoint-training",
            f"{steps} training steps on contexts of {arms} disjoint blocks of {width} at n = {samples}, m = {hidden}, "
            "float32: their time on the whole contexts, zeros included, over that by groups.",
            plain / ours,
            "times faster",
            "higher",
            ours,
            note=f"{1e3 * ours / steps:.2f} ms a step against {1e3 * plain / steps:.2f} ms",
        )
    ]


def _says(samples: int, hidden: int, dim: int, steps: int, depth: int, precision: Precision) -> str:
    shape = f"n = {samples}, m = {hidden}, d = {dim}, L = {depth}"
    count = "4nmd" if depth == 2 else "4nmd + 6nm²"
    return f"{steps} training steps at {shape} in {precision}: {count} operations each over time, of the product rate."


def _benchmarks() -> Iterator[Benchmark]:
    readings: tuple[tuple[str, int, Precision], ...] = (
        ("", 2, "float32"),
        ("-float64", 2, "float64"),
        ("-depth3", 3, "float32"),
    )
    for suffix, depth, precision in readings:
        for samples, hidden, dim, steps, asked in SHAPES:
            name = f"training-{samples}-{hidden}-{dim}{suffix}"
            measure = partial(
                training,
                name=name,
                samples=samples,
                hidden=hidden,
                dim=dim,
                steps=steps,
                depth=depth,
                precision=precision,
                asked=None if suffix else asked,
            )
            yield Benchmark(name, _says(samples, hidden, dim, steps, depth, precision), measure)


BENCHMARKS = (
    *_benchmarks(),
    Benchmark(
        "disjoint-training", "Training on contexts of disjoint blocks, against training on their zeros too.", blocks
    ),
)
