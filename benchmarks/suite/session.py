"""One session of measuring, on file too; how another one compares with it, and both as a table that is Markdown.

A figure has moved when one of the two is more than 1 + tolerance times the other: machines are noisy by tens of per
cent, even in ratios.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rarely import RarelyError, ScheduleWarning
from suite.figures import Benchmark, Figure, NotMeasured, Tell
from suite.machine import best_of, facts, product_rate, reader

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


FORMAT = 1
TOLERANCE = 0.25
Verdict = Literal["worse", "better", "same", "new", "not measured"]
MATTERS = {"machine": "machine", "system": "system", "python": "Python", "numpy": "NumPy"}
MATTERS |= {"passes": "kind of passes", "threads": "number of threads"}
"""Where figures may differ though the library is the same."""


class BrokenBaseline(RarelyError):
    """A baseline cannot be read."""


@dataclass(frozen=True)
class Change:
    """A figure now and then."""

    name: str
    now: Figure | None
    then: Figure | None
    verdict: Verdict

    @property
    def growth(self) -> float | None:
        """By what part of the baseline the value grew, for better or worse; None where there are not two."""
        if self.now is None or self.then is None or self.verdict == "new":
            return None
        return self.now.value / self.then.value - 1


def compare(now: Sequence[Figure], then: Sequence[Figure], tolerance: float = TOLERANCE) -> list[Change]:
    """Every figure of either, those of now first."""
    before = {figure.name: figure for figure in then}
    changes = [_change(figure, before.pop(figure.name, None), tolerance) for figure in now]
    return changes + [Change(name, None, figure, "not measured") for name, figure in before.items()]


def _change(now: Figure, then: Figure | None, tolerance: float) -> Change:
    # A figure in another unit is another figure, whatever its name.
    if then is None or (now.unit, now.better) != (then.unit, then.better) or then.value <= 0:
        return Change(now.name, now, then, "new")
    small, large = sorted((now.value, then.value))
    if large <= small * (1 + tolerance):
        return Change(now.name, now, then, "same")
    return Change(now.name, now, then, "better" if (now.value == large) == (now.better == "higher") else "worse")


def differences(now: Session, then: Session) -> list[str]:
    """In what the baseline was made elsewhere, in words."""
    return [
        f"the baseline is of another {words}: {then.made.get(name)} there, {now.made.get(name)} here"
        for name, words in MATTERS.items()
        if then.made.get(name) != now.made.get(name)
    ]


def write(path: Path, session: Session, changes: Sequence[Change] = ()) -> None:
    """Keep a session, whole or not at all; with changes, what they came to."""
    document = {"format": FORMAT, **asdict(session)}
    if changes:
        document["changes"] = [
            {
                "name": change.name,
                "verdict": change.verdict,
                "now": change.now.value if change.now else None,
                "then": change.then.value if change.then else None,
            }
            for change in changes
        ]
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> Session:
    """The inverse of `write`, changes aside."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"]
        if found == FORMAT:
            figures = [Figure(**figure) for figure in document["figures"]]
            return Session(document["made"], document["rates"], figures, document["skipped"], document["failed"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenBaseline(
            f"{path} is no baseline that can be read ({type(error).__name__}: {error}). "
            f"Make another: python benchmarks/bench.py --save {path}"
        ) from error
    raise BrokenBaseline(
        f"{path} has format {found}; this version reads {FORMAT}. "
        f"Make another: python benchmarks/bench.py --save {path}"
    )


HEAD = ("figure", "value", "asked", "reached")
AGAINST = ("baseline", "change")
SIGNS = {"higher": "≥", "lower": "≤"}


def heading(session: Session) -> str:
    """The machine and its yardsticks, in a line."""
    made, rates = session.made, session.rates
    return (
        f"{made['machine']}, Python {made['python']}, NumPy {made['numpy']}, {made['passes']} passes, "
        f"threads: {made['threads']}; matrix products {rates['float32'] / 1e9:.0f} GFLOP/s in float32 and "
        f"{rates['float64'] / 1e9:.0f} in float64, reads {rates['read'] / 1e9:.0f} GB/s"
    )


def table(changes: Sequence[Change], *, against: bool) -> str:
    """The figures measured now; with `against`, beside the baseline's."""
    lines: list[tuple[str, ...]] = [HEAD + AGAINST]
    lines += [_row(change, change.now) for change in changes if change.now is not None]
    lines = [line if against else line[: len(HEAD)] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _row(change: Change, now: Figure) -> tuple[str, ...]:
    then, growth = change.then, change.growth
    baseline = number(then.value) if then else "—"
    moved = change.verdict if growth is None else f"{100 * growth:+.0f} %, {change.verdict}"
    asked = f"{SIGNS[now.better]} {number(now.asked)}" if now.asked is not None else "—"
    reached = {None: "—", True: "yes", False: "no"}[now.reached]
    return (change.name, valued(now), asked, reached, baseline, moved)


def valued(figure: Figure) -> str:
    """Value and unit.

    >>> valued(Figure("x", "", 41.26, "% of product rate", "higher", seconds=1.0))
    '41.3 % of product rate'
    """
    return f"{number(figure.value)} {figure.unit}"


def notes(session: Session) -> list[str]:
    """A line for each figure: what it is, and its raw numbers; then what was not measured, and why."""
    lines = [f"{f.name}: {f.says}{f' ({f.note})' if f.note else ''}" for f in session.figures]
    lines += [f"{name}: skipped: {why}" for name, why in session.skipped.items()]
    return lines + [f"{name}: failed: {why}" for name, why in session.failed.items()]


def number(value: float) -> str:
    """Three digits.

    >>> number(1234.5), number(0.01234), number(60.0)
    ('1234', '0.0123', '60')
    """
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
