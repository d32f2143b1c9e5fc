"""What this machine can do: its matrix products and its reads of memory are the yardsticks of every figure.

A machine's speed changes from second to second, by as much as a half. So a yardstick takes turns with what it
measures, in the same process, and the best of either counts; in a run that happens once, each tenth is held to
the better of the rates right before and right after it.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rarely._core import native
from rarely._core.types import Floats
from rarely.golden.family import source_digest
from rarely.runs import machine
from suite.figures import BenchmarkFailed, Tell

Widths = tuple[tuple[int, int], ...]
"""(out, in) of each layer."""
COLUMNS = 1000
REST = 0.1
"""Seconds after which BLAS's threads no longer spin, and what is measured next has the cores."""


def describe() -> str:
    """Processor, cores, Python and NumPy."""
    facts = machine.describe()
    return f"{facts['machine']}, Python {facts['python']}, NumPy {facts['numpy']}"


def facts() -> dict[str, str | int]:
    """Everything that a figure may depend on."""
    return {**machine.describe(), "code": source_digest("rarely"), "threads": native.threads()}


def seconds_of(work: Callable[[], object]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(repeats: int, work: Callable[[], object]) -> float:
    """The shortest of a few calls: what is slower is something else on the machine."""
    return min(seconds_of(work) for _ in range(repeats))


def in_turns(rate: Callable[[], float], *works: Callable[[], object], turns: int = 9) -> tuple[float, list[float]]:
    """The best rate, and the shortest time of each work, when all take turns; a turn is three calls, as a product's."""
    rates: list[float] = []
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(turns):
        rates.append(rate())
        for times, work in zip(seconds, works, strict=True):
            times.append(best_of(3, work))
    return max(rates), [min(times) for times in seconds]


def product_rate(dtype: type, size: int = 2000, repeats: int = 3) -> float:
    """Operations a second of a large square matrix product, the best of a few."""
    a: Floats = np.random.default_rng(0).random((size, size)).astype(dtype)
    a @ a
    best = best_of(repeats, lambda: a @ a)
    time.sleep(REST)
    return 2 * size**3 / best


def all_cores_read_rate(numbers: int, repeats: int = 9) -> float:
    """float64 numbers read in a second, of so many: by a matrix times a vector, or by a sum if that is faster."""
    rows = -(-numbers // COLUMNS)
    matrix, vector = np.ones((rows, COLUMNS)), np.ones(COLUMNS)
    best = min(best_of(repeats, lambda: matrix @ vector), best_of(repeats, matrix.sum))
    return rows * COLUMNS / best


def reader(numbers: int) -> Callable[[], object]:
    """One read of so many float64 numbers by one core: their sum."""
    return np.ones(numbers).sum


def training_pass(samples: int, shapes: Widths) -> int:
    """One gradient of n samples: 4nmd for two layers, and 6nm² more for each layer between.

    Forward and gradient are one product each; layers above the first also send a signal back.

    >>> training_pass(10, ((4, 3), (1, 4))) == 4 * 10 * 4 * 3
    True
    """
    hidden = shapes[:-1]
    return samples * sum((4 if layer == 0 else 6) * o * i for layer, (o, i) in enumerate(hidden))


def forward(candidates: int, shapes: Widths) -> int:
    """Means of n candidates: 2np."""
    return 2 * candidates * sum(o * i for o, i in shapes)


def scoring_dual(rounds: int, candidates: int, shapes: Widths) -> int:
    """Means and exact bonuses through the t×t triangle: gram 2ctn, triangular solve t²n, forward."""
    gram = 2 * factor_numbers(shapes) * rounds * candidates
    return gram + rounds * rounds * candidates + forward(candidates, shapes)


def scoring_primal(candidates: int, shapes: Widths) -> int:
    """Means and exact bonuses through the p×p triangle: triangular solve p²n, forward."""
    parameters = sum(o * i for o, i in shapes)
    return parameters * parameters * candidates + forward(candidates, shapes)


def factor_numbers(shapes: Widths) -> int:
    """c, the numbers in one round's factors (a, δ)."""
    return sum(o + i for o, i in shapes)


def frozen_numbers(rounds: int, shapes: Widths) -> int:
    """What one exact decision must read: the frozen triangle and the factors of its rounds, t²/2 + ct numbers."""
    return rounds * rounds // 2 + factor_numbers(shapes) * rounds


def alone(work: Callable[..., Any], tell: Tell, **arguments: Any) -> Any:
    """Return what `work(tell, **arguments)` gives in a process of its own, so that its peak memory is its own.

    The process answers in lines of JSON: what it tells on the way, and in the end its result. Any other line is a
    complaint.
    """
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from suite.machine import answer; answer(*sys.argv[1:])"
    name = f"{work.__module__}:{work.__name__}"
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1]), name, json.dumps(arguments)]
    last, result = "it said nothing", None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                found = _read(line)
                if found is None:
                    last = line.strip() or last
                elif "told" in found:
                    tell(found["told"])
                else:
                    result = found["result"]
        except BaseException:
            process.kill()
            raise
    if process.returncode or result is None:
        raise BenchmarkFailed(f"{name} ended with code {process.returncode}: {last}.")
    return result


def _read(line: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and answer.keys() & {"told", "result"} else None


def answer(name: str, arguments: str) -> None:
    """Do the work that `alone` names, on the process's own side."""
    module, _, function = name.partition(":")
    work = getattr(importlib.import_module(module), function)
    _say(result=work(lambda text: _say(told=text), **json.loads(arguments)))


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
