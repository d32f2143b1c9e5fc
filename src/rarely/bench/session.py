"""One session of measuring: benchmarks one after another, and what they were measured on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from rarely.bench.measure import Benchmark, Figure, NotMeasured, Tell
from rarely.bench.yardstick import best_of, facts, product_rate, reader
from rarely.core.errors import RarelyError, ScheduleWarning

READ = 2**23
"""Numbers in the read whose rate is reported: 64 MiB, more than most caches."""


@dataclass
class Session:
    """Figures, and why others are missing."""

    made: dict[str, Any]
    """The machine, versions, code, threads, date."""
    rates: dict[str, float]
    """Products in operations a second, reads in bytes a second."""
    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def begin(size: int = 2000, numbers: int = READ) -> Session:
    """Look at the machine."""
    rates = {
        "float32": product_rate(np.float32, size),
        "float64": product_rate(np.float64, size),
        "read": 8 * numbers / best_of(9, reader(numbers)),
    }
    return Session(facts() | {"date": datetime.now(UTC).isoformat(timespec="seconds")}, rates)


def measure(
    session: Session,
    benchmarks: Iterable[Benchmark],
    *,
    started: Callable[[Benchmark], Tell],
    finished: Callable[[Benchmark, Sequence[Figure]], None],
) -> None:
    """Run benchmarks; what is missing or fails is noted, and the others go on."""
    for benchmark in benchmarks:
        tell, figures = started(benchmark), list[Figure]()
        try:
            with warnings.catch_warnings():
                # A run whose budget is spent early is what some benchmarks are about.
                warnings.simplefilter("ignore", ScheduleWarning)
                figures += benchmark.measure(tell)
        except NotMeasured as error:
            session.skipped[benchmark.name] = str(error)
        except (RarelyError, MemoryError, OSError) as error:
            session.failed[benchmark.name] = str(error) or type(error).__name__
        session.figures += figures
        finished(benchmark, figures)
