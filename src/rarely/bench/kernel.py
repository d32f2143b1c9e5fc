"""The tangent kernel of many contexts, and the effective dimension of more than any matrix could hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.bench.alone import alone
from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.yardstick import seconds_of
from rarely.core.types import Array
from rarely.simulation.provenance import peak_memory
from rarely.theory import NTK, effective_dimension


def _contexts(count: int, dim: int) -> Array:
    x = np.random.default_rng(0).normal(size=(count, dim))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def ntk(_: Tell, *, count: int = 8000, dim: int = 20, depth: int = 3, turns: int = 3) -> list[Figure]:
    """The whole matrix, in turns with a product and one arccos for each of its L − 1 layers."""
    x = _contexts(count, dim)
    cosines, angles = np.empty((count, count)), np.empty((count, count))

    def plain() -> None:
        np.matmul(x, x.T, out=cosines)
        for _ in range(depth - 1):
            np.arccos(cosines, out=angles)

    with np.errstate(invalid="ignore"):  # rounding takes a cosine of the diagonal beyond 1
        times = [(seconds_of(plain), seconds_of(lambda: NTK(depth).matrix(x))) for _ in range(turns)]
    yardstick, ours = (min(column) for column in zip(*times, strict=True))
    return [
        Figure(
            "ntk",
            f"The kernel matrix of {count} contexts, L = {depth}, d = {dim}: over one product XXᵀ and one arccos of "
            "all its numbers for each layer of the recursion.",
            ours / yardstick,
            "times as long",
            "lower",
            ours,
            3.0,
            f"{ours:.1f} s against {yardstick:.1f} s",
        )
    ]


def dimension(tell: Tell, *, count: int, dim: int, ridge: float, memory_limit: int) -> dict[str, Any]:
    """d̃ between its bounds, in a process of its own."""
    x = _contexts(count, dim)
    found: list[Any] = []
    seconds = seconds_of(
        lambda: found.append(effective_dimension(x, ridge=ridge, memory_limit=memory_limit, progress=tell))
    )
    bounds = {"value": found[0].value, "lower": found[0].lower, "upper": found[0].upper}
    return bounds | {"confidence": found[0].confidence, "peak": peak_memory(), "seconds": seconds}


def effective_dimension_of_many(
    tell: Tell, *, count: int = 100_000, dim: int = 10, ridge: float = 1.0, memory_limit: int = 2**30
) -> list[Figure]:
    """How wide the bounds are, and what memory they took."""
    out = alone("kernel:dimension", tell, count=count, dim=dim, ridge=ridge, memory_limit=memory_limit)
    what = f"The effective dimension of {count:,} contexts, d = {dim}, L = 2, λ = {ridge:g}"
    bounds = f"{out['value']:.1f}, between {out['lower']:.1f} and {out['upper']:.1f} with probability ≥ "
    note = f"{bounds}{out['confidence']:.2f}, in {out['seconds']:.0f} s"
    width = 100 * (out["upper"] - out["lower"]) / out["value"]
    return [
        Figure("dimension", f"{what}: peak memory.", out["peak"] / 2**30, "GiB", "lower", out["seconds"], 4.0, note),
        Figure("dimension-width", f"{what}: between its bounds.", width, "% of d̃", "lower", out["seconds"]),
    ]


BENCHMARKS = (
    Benchmark("ntk", "The kernel matrix of 8000 contexts over a product and an arccos for each layer.", ntk),
    Benchmark(
        "dimension",
        "The effective dimension of 100 000 contexts: memory and bounds, in some minutes.",
        effective_dimension_of_many,
        "named",
    ),
)
