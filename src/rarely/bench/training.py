"""Training against the product rate: how near a gradient step comes to nothing but its matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from rarely.bench.measure import Benchmark, BenchmarkFailed, Figure, Tell
from rarely.bench.operations import training_pass
from rarely.bench.yardstick import in_turns, product_rate
from rarely.core.network import Network
from rarely.core.training import Plan, Precision, train

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
    first = train(network, theta, contexts, rewards, Plan(0.01, 1, precision=precision))
    plan = Plan(0.01, steps, first.step_size / 2, precision=precision)

    def work() -> None:
        outcome = train(network, theta, contexts, rewards, plan, first.direction)
        if not outcome.accepted or outcome.attempts > 1:
            raise BenchmarkFailed(f"one attempt was to do, and {outcome.attempts} were made. {outcome.reason}")

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


BENCHMARKS = tuple(_benchmarks())
