"""Many parameters: an exact run whose p×p matrix would not fit on any machine, in a process of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.bench.alone import alone
from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.yardstick import seconds_of
from rarely.core.policies import BatchNeuralUCB
from rarely.core.schedules import FixedGrid
from rarely.simulation.play import play
from rarely.simulation.provenance import peak_memory
from rarely.worlds import Rounds


def wide(tell: Tell, *, rounds: int, hidden: int, depth: int, batches: int, steps: int) -> dict[str, Any]:
    """A wide and deep network in the dual form; runs in a process of its own."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(rounds, 4, 20)) / np.sqrt(20)
    means = np.sin(3 * contexts[:, :, 0])
    world = Rounds(contexts, means, means + rng.normal(0, 0.1, (rounds, 1)))
    schedule = FixedGrid(rounds, batches)
    policy = BatchNeuralUCB(20, schedule, hidden=hidden, depth=depth, preset="paper", seed=0, training=steps)
    tell(f"p = {policy.network.parameters:,}")
    seconds = seconds_of(lambda: play(policy, world))
    return {
        "parameters": policy.network.parameters,
        "peak": peak_memory(),
        "seconds": seconds,
        "versions": policy.version + 1,
    }


def million_parameters(
    tell: Tell, *, rounds: int = 500, hidden: int = 1000, depth: int = 3, batches: int = 20, steps: int = 20
) -> list[Figure]:
    """Exact at a million parameters."""
    out = alone("wide:wide", tell, rounds=rounds, hidden=hidden, depth=depth, batches=batches, steps=steps)
    return [
        Figure(
            "million-parameters",
            f"Peak memory of an exact run at p = {out['parameters']:,} (m = {hidden}, L = {depth}, d = 20): {rounds} "
            f"rounds, B = {batches}, J = {steps}.",
            out["peak"] / 2**30,
            "GiB",
            "lower",
            out["seconds"],
            1.0,
            f"{out['versions']} versions in {out['seconds']:.0f} s",
        )
    ]


BENCHMARKS = (
    Benchmark("million-parameters", "Peak memory of an exact run at a million parameters.", million_parameters, "full"),
)
