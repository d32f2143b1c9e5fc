"""What updates are worth: the share of the possible gain that B batches bring, and the price of one update more.

R_0    regret of the policy in use today
R_∞    regret with the most frequent updates that were simulated
gain   R_0 − R(B), of which R_0 − R_∞ is possible; share = gain/(R_0 − R_∞)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rarely.planning.frontier import Frontier, Point
from rarely.planning.present import Present
from rarely.planning.simulate import KINDS, Kind

MOST = 0.8
"""The share of the gain at which a sentence names the next update's worth."""


@dataclass(frozen=True)
class Share:
    """One B."""

    batches: int
    shares: dict[Kind, float]
    """Of each kind of schedule; 1 is all of the possible gain."""
    low: float
    """The interval of the best kind's share."""
    high: float
    next: float | None
    """What one update more is worth, in rewards over the simulated rounds; None beyond the largest B."""

    @property
    def best(self) -> float:
        """Of the kind that brings most."""
        return max(self.shares.values())


def shares_of(frontier: Frontier, present: Present) -> list[Share]:
    """A row for each B; empty where updates have nothing to gain."""
    most, least = frontier.sequential.value, present.regret.value
    possible = least - most
    if not possible > 0:
        return []
    rows = list[Share]()
    counts = sorted({point.batches for point in frontier.points})
    best = {count: _best(frontier, count) for count in counts}
    gains = {count: least - best[count].regret.value for count in counts}
    for count in counts:
        points = [point for point in frontier.points if point.batches == count]
        shares = {point.kind: (least - point.regret.value) / possible for point in points}
        low, high = ((least - ratio * most) / possible for ratio in (best[count].ratio.high, best[count].ratio.low))
        rows.append(Share(count, shares, low, high, _next(count, counts, gains)))
    return rows


def _best(frontier: Frontier, batches: int) -> Point:
    return min((p for p in frontier.points if p.batches == batches), key=lambda point: point.regret.value)


def _next(count: int, counts: Sequence[int], gains: dict[int, float]) -> float | None:
    """The slope to the next B that was simulated; an update is never worth less than nothing."""
    later = [other for other in counts if other > count]
    return max(0.0, (gains[later[0]] - gains[count]) / (later[0] - count)) if later else None


def head(present: Present) -> list[str]:
    """The head of the table."""
    return ["B", "updates", *KINDS, "interval of the best", "one update more is worth"]


def body(rows: Sequence[Share]) -> list[list[str]]:
    """The table as texts."""
    return [
        [
            str(row.batches),
            str(row.batches - 1),
            *(_percent(row.shares.get(kind)) for kind in KINDS),
            _interval(row) if math.isfinite(row.low + row.high) else "–",
            "–" if row.next is None else f"{row.next:.3g}",
        ]
        for row in rows
    ]


def text(rows: Sequence[Share], frontier: Frontier, present: Present) -> list[str]:
    """The table in lines of one width, with what its shares are of; then the price in a sentence."""
    if not rows:
        return [f"Updates have nothing to gain here: {present.name} has no more regret than {frontier.often}."]
    lines = [head(present), *body(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    possible = present.regret.value - frontier.sequential.value
    return [
        f"Share of the possible gain, which is the {possible:.4g} of reward that {frontier.often} is better than "
        f"{present.name} over {frontier.rounds} rounds:",
        *shown,
        price(rows, frontier),
    ]


def price(rows: Sequence[Share], frontier: Frontier) -> str:
    """The first B with most of the gain, and what the next update is worth; or that the runs are too few to tell."""
    row = next((row for row in rows if row.best >= MOST), rows[-1])
    updates = f"{row.batches - 1} update{'s' if row.batches > 2 else ''}"
    if not (math.isfinite(row.low + row.high) and row.low > 0):
        runs = frontier.sequential.runs
        known = f"with {updates} it is {_interval(row)}" if math.isfinite(row.low + row.high) else "one has no interval"
        return (
            f"How much of the possible gain updates bring cannot be told from {runs} run{'s' if runs > 1 else ''}: "
            f"{known}. Ask for more --runs."
        )
    said = f"With {updates} {_percent(row.best)} of the possible gain ({_interval(row)})"
    if row.next is None:
        return f"{said}; more were not simulated."
    return f"{said}; the {_ordinal(row.batches)} is worth {row.next:.3g} of reward over {frontier.rounds} rounds."


def _interval(row: Share) -> str:
    return f"{_percent(row.low)} to {_percent(row.high)}"


def _percent(share: float | None) -> str:
    return "–" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def _ordinal(number: int) -> str:
    """
    >>> [_ordinal(n) for n in (1, 2, 8, 11, 23)]
    ['1st', '2nd', '8th', '11th', '23rd']
    """
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else ends.get(number % 10, 'th')}"
