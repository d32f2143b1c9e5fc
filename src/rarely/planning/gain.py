"""What updates are worth: the share of the possible gain that B batches bring, and the price of one update more.

R_0    regret of the policy in use today
R_∞    regret with the most frequent updates that were simulated
gain   R_0 − R(B), of which R_0 − R_∞ is possible; share = gain/(R_0 − R_∞)

A share is known only if the possible gain is above 0 by the tests of `_runs.statistics`, in pairs of runs, and the
share's interval is at most 1 wide. Otherwise it is "unknown": a share of nearly nothing may be anything.

The policy in use today is, for a log with one chosen arm a round, the policy that wrote it. For a log without arms, and
for a world, nobody knows one, and each arm is chosen as often as any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rarely._core.types import IntArray
from rarely._pages.grid import Grid
from rarely._runs.statistics import IntervalEstimate, differences, mean
from rarely.planning.frontier import Frontier, Point
from rarely.planning.simulate import KINDS, Kind, LogWorld, stretches
from rarely.worlds.protocol import World, seeded

MAX_WIDTH = 1.0
"""Of the interval of a share that is known."""
MOST_OF_GAIN = 0.8
"""The share of the gain at which a sentence names the next update's worth."""


@dataclass(frozen=True)
class Present:
    """The policy that is in use today, which nobody trains, and its regret."""

    logged: bool
    """Whether it is the policy of the log; otherwise it chooses arms at random."""
    regret: IntervalEstimate
    """In the simulated runs."""
    gain: IntervalEstimate
    """What most frequent updates gain over it, run by run."""

    @property
    def name(self) -> str:
        return "the policy of the log" if self.logged else "choosing arms at random"


def measure_present(world: World, rounds: int, seeds: Sequence[int], often: Sequence[float]) -> Present:
    """Measure the regret of the policy in use, in the same runs as the schedules'; `often` is of frequent updates."""
    chosen: IntArray | None = None
    if isinstance(world, LogWorld):
        places, arms, _ = world.log.log.known_rewards()
        if len(places) and len(np.unique(places)) == len(places):
            chosen = np.full(len(world.log), -1)
            chosen[places] = arms
    regrets = []
    for seed in seeds:
        if chosen is not None and isinstance(world, LogWorld):
            regrets.append(_logged_regret(world, chosen, rounds, seed))
        else:
            parts = stretches(world, seed, rounds)
            regrets.append(float(sum((part.means.max(axis=1) - part.means.mean(axis=1)).sum() for part in parts)))
    return Present(chosen is not None, mean(regrets), differences(regrets, often).interval())


def _logged_regret(world: LogWorld, chosen: IntArray, rounds: int, seed: int) -> float:
    order, means, _ = world.secret(seeded(seed, 0))
    arms = chosen[order[:rounds]]
    known = np.flatnonzero(arms >= 0)
    lost = means[known].max(axis=1) - means[known, arms[known]]
    return float(rounds * lost.mean()) if len(known) else float("nan")


@dataclass(frozen=True)
class Share:
    """One B."""

    batches: int
    shares: dict[Kind, float | None]
    """Of each kind of schedule; 1 is all of the possible gain. None: unknown."""
    low: float
    """The interval of the best kind's share."""
    high: float
    next: float | None
    """What one update more is worth, in rewards over the simulated rounds; None beyond the largest B."""

    @property
    def best(self) -> float:
        """Of the kind that brings most; NaN if unknown."""
        return max((share for share in self.shares.values() if share is not None), default=math.nan)


def shares_of(frontier: Frontier, present: Present) -> list[Share]:
    """Return a row for each B; none if updates have nothing to gain."""
    most, least = frontier.sequential.value, present.regret.value
    possible = least - most
    if not possible > 0:
        return []
    counts = sorted({point.batches for point in frontier.points})
    points = {count: [point for point in frontier.points if point.batches == count] for count in counts}
    best = {count: min(points[count], key=lambda point: point.regret.value) for count in counts}
    gains = {count: least - best[count].regret.value for count in counts}

    def ends(point: Point) -> tuple[float, float]:
        return (least - point.ratio.high * most) / possible, (least - point.ratio.low * most) / possible

    rows = []
    for count, later in zip(counts, (*counts[1:], None), strict=True):
        known = [point for point in points[count] if present.gain.low > 0 and np.diff(ends(point))[0] <= MAX_WIDTH]
        values = {one.kind: (least - one.regret.value) / possible if one in known else None for one in points[count]}
        worth = None
        if later is not None:  # the slope to the next B simulated; an update is never worth less than nothing
            worth = max(0.0, (gains[later] - gains[count]) / (later - count))
        limits = ends(best[count]) if best[count] in known else (-math.inf, math.inf)
        rows.append(Share(count, values, *limits, worth))
    return rows


def table(rows: Sequence[Share]) -> Grid:
    """Return the shares as a table."""
    body = []
    for row in rows:
        shares = [percent(row.shares[kind]) if kind in row.shares else "–" for kind in KINDS]
        worth = "–" if row.next is None else f"{row.next:.3g}"
        body.append([str(row.batches), str(row.batches - 1), *shares, _interval(row), worth])
    return Grid(["B", "updates", *KINDS, "interval of the best", "one update more is worth"], body, numbers=0)


def text(rows: Sequence[Share], frontier: Frontier, present: Present) -> list[str]:
    """Return the table in lines, after what its shares are of and before the price in a sentence."""
    if not rows:
        return [f"Updates have nothing to gain here: {present.name} has no more regret than {frontier.often}."]
    return [above(frontier, present), *table(rows).lines(), price(rows, frontier)]


def above(frontier: Frontier, present: Present) -> str:
    """Return what the shares are of."""
    possible = present.regret.value - frontier.sequential.value
    return (
        f"Share of the possible gain, which is the {possible:.4g} of reward that {frontier.often} is better than "
        f"{present.name} over {frontier.rounds} rounds:"
    )


def price(rows: Sequence[Share], frontier: Frontier) -> str:
    """Return a sentence on the first B with most of the gain, and on what the next update is worth."""
    row = next((row for row in rows if row.best >= MOST_OF_GAIN), rows[-1])
    updates = f"{row.batches - 1} update{'s' if row.batches > 2 else ''}"
    if not row.low > 0:
        runs = frontier.sequential.runs
        return (
            f"Inconclusive: {runs} run{'s do' if runs > 1 else ' does'} not show how much of the possible gain updates "
            f"bring: with {updates} it is {_interval(row)}. Ask for more --runs."
        )
    said = f"With {updates} {percent(row.best)} of the possible gain ({_interval(row)})"
    if row.next is None:
        return f"{said}; more were not simulated."
    return f"{said}; the {_ordinal(row.batches)} is worth {row.next:.3g} of reward over {frontier.rounds} rounds."


def _interval(row: Share) -> str:
    return f"{percent(row.low)} to {percent(row.high)}" if math.isfinite(row.low + row.high) else "unknown"


def percent(share: float | None) -> str:
    """Return a share in percent; None and NaN are unknown."""
    return "unknown" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else ends.get(number % 10, 'th')}"
