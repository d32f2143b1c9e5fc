"""A session as text: a table that is Markdown too, and what each figure is."""

from __future__ import annotations

from collections.abc import Sequence

from rarely.bench.baseline import Change
from rarely.bench.measure import Figure
from rarely.bench.session import Session

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
