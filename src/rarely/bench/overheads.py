"""What stands around the algorithm: the import, and the laboratory's runner."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rarely.bench.measure import Benchmark, BenchmarkFailed, Figure, Tell
from rarely.bench.yardstick import seconds_of
from rarely.experiments.catalogue import PROBLEMS
from rarely.experiments.queue import plan_cells
from rarely.experiments.runner import LocalEngine, reproduce
from rarely.experiments.store import Store

PATTERNS = ("fixed-B40", "fixed-B100", "adaptive-B40-*", "adaptive-B100-*")


def imports(_: Tell, *, repeats: int = 15) -> list[Figure]:
    """The front door in fresh processes."""
    ours, numpy = _import_seconds("rarely", repeats), _import_seconds("numpy", repeats)
    note = f"{1e3 * ours:.0f} ms"
    if importlib.util.find_spec("scipy"):
        note += f"; {ours / _import_seconds('numpy, scipy.linalg', repeats):.2f} times NumPy with scipy.linalg"
    says = "`import rarely`, NumPy included, over `import numpy`; the best of a few fresh processes each."
    return [Figure("import", says, ours / numpy, "times NumPy's", "lower", ours, note=note)]


def _import_seconds(modules: str, repeats: int) -> float:
    code = f"import time; s = time.perf_counter(); import {modules}; print(time.perf_counter() - s)"
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        # Installed packages come with bytecode, and a working tree has none where nothing may be written to it.
        environment["PYTHONPYCACHEPREFIX"] = folder
        runs = [
            subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            for _ in range(1 + repeats)
        ]
    return min(float(run.stdout) for run in runs[1:])


def runner(tell: Tell, *, rounds: int = 2000, runs: int = 2, patterns: tuple[str, ...] = PATTERNS) -> list[Figure]:
    """The time of `reproduce` over that of the policies in it, in one process."""
    cells = plan_cells([PROBLEMS["cosine"]], ["practical"], runs, rounds, list(patterns))
    with tempfile.TemporaryDirectory() as name:
        failures = []

        def work() -> None:
            failures.extend(
                reproduce(cells, Path(name), LocalEngine(1), finished=lambda result: tell(f"{result.id} is played"))
            )

        seconds = seconds_of(work)
        if failures:
            raise BenchmarkFailed(f"{failures[0].id} could not be played: {failures[0].error}")
        walls = [record.data["wall"] for record in Store(Path(name)).read()]
    policies = sum(wall["selecting"] + wall["training"] for wall in walls)
    played = sum(wall["cell"] for wall in walls)
    return [
        Figure(
            "runner",
            f"`rarely reproduce` on cosine, T = {rounds}, {len(cells)} cells in one process: the whole time, with "
            "worlds, records, queue and the process's start, over the policies' own.",
            seconds / policies,
            "times the policies' time",
            "lower",
            seconds,
            1.03,
            f"{policies:.1f} s of policies; worlds and records {100 * (played / policies - 1):.1f} % more, with "
            f"process and queue {100 * (seconds / policies - 1):.1f} %",
        )
    ]


BENCHMARKS = (
    Benchmark("import", "`import rarely` over `import numpy`.", imports),
    Benchmark("runner", "The laboratory's runner over the policies' own time.", runner, "full"),
)
