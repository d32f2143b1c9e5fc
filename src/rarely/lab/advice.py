"""What a plan comes to: the numbers, and the few sentences that they amount to."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Literal

from rarely.core.errors import RarelyError
from rarely.core.schedules import Schedule
from rarely.lab.frontier import KINDS, Frontier, Kind, Point
from rarely.lab.growth import Growth
from rarely.lab.reward_model import Fit
from rarely.theory import AdaptivePlan

Origin = Literal["world", "fitted", "imagined", "simulated"]
"""Where the simulation's rewards are from."""
TOLERANCES = (0.05, 0.10)
SHOWN = 8
"""Rounds of updates that a sentence names."""


class NothingClose(RarelyError):
    """No schedule of the frontier is within the tolerance."""


@dataclass(frozen=True)
class Theory:
    """The B and q that the theorems suggest: orders, whose constants nobody knows and are 1 here."""

    fixed: int
    adaptive: AdaptivePlan
    adaptive_lower: AdaptivePlan
    """The same for the lower and the upper end of the effective dimension."""
    adaptive_upper: AdaptivePlan


@dataclass(frozen=True)
class Plan:
    """How many updates, where, and what fewer of them cost."""

    horizon: int
    arms: int
    origin: Origin
    policy: str
    settings: dict[str, Any]
    seed: int
    growth: Growth
    """The effective dimension."""
    theory: Theory
    fit: Fit | None
    """How good the fitted reward model is, where one is fitted."""
    frontier: Frontier
    notes: tuple[str, ...]
    """What it supposes, and where it extrapolates."""

    def schedule(self, tolerance: float = 0.10, kind: Kind | None = None) -> Schedule:
        """The schedule with the fewest batches within the tolerance, over the whole horizon."""
        point = self.frontier.enough(tolerance, kind)
        if point is None:
            raise NothingClose(
                f"nothing tried came within {_percent(tolerance)} of an update after every round. Allow a larger "
                "tolerance, plan with more batches, or use EveryRound()."
            )
        return self.frontier.schedule(point, self.horizon)

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        enough = {
            _percent(tolerance): {kind: self._found(tolerance, kind) for kind in KINDS} for tolerance in TOLERANCES
        }
        described = asdict(self) | {"growth": self.growth.describe(), "enough": enough, "advice": self.text()}
        return {name: _plain(value) for name, value in described.items()}

    def _found(self, tolerance: float, kind: Kind) -> dict[str, Any]:
        point, sure = (self.frontier.enough(tolerance, kind, surely=surely) for surely in (False, True))
        schedule = None if point is None else self.frontier.schedule(point, self.horizon).describe()
        return {
            "batches": None if point is None else point.batches,
            "surely": None if sure is None else sure.batches,
            "schedule": schedule,
        }

    def text(self) -> str:
        """The advice, in a few lines."""
        lines = [self.headline()]
        lines += [f"Within {_percent(tolerance)}: {self._each(tolerance)}." for tolerance in TOLERANCES]
        lines += [*self.of_theory(), "What this rests on:"]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])

    def headline(self) -> str:
        """The smallest number of batches that is close enough, and how sure that is."""
        most, points = TOLERANCES[-1], self.frontier.points
        if any(math.isnan(point.smooth) for point in points):
            return "The simulation cannot tell: in some run there was no regret to compare."
        point = self.frontier.enough(most)
        if point is None:
            closest = min(points, key=lambda point: point.smooth)
            return (
                f"Update as often as you can: nothing tried came within {_percent(most)} of an update after every "
                f"round. The closest is {named(closest)}: {above(closest)}."
            )
        sure, updates = point.surely_within(most), "1 update" if point.batches == 2 else f"{point.batches - 1} updates"
        sentence = (
            f"{point.batches} batches, which is {updates}, {'are' if sure else 'should be'} enough: "
            f"with {named(point)} regret is {above(point)}."
        )
        if not sure:
            other = self.frontier.enough(most, surely=True)
            told = ", nor of anything else that was tried" if other is None else f"; of {named(other)} they can"
            sentence += f" {self.frontier.runs} runs cannot tell whether that is within {_percent(most)}{told}."
        return f"{sentence} {self._when(point)}"

    def _when(self, point: Point) -> str:
        points = getattr(self.frontier.schedule(point, self.horizon), "points", None)
        if points is None:
            rounds, of = [sum(point.pattern[: i + 1]) for i in range(len(point.pattern) - 1)], self.frontier.rounds
            return f"In a simulated run of {of} rounds it updated after rounds {_some(rounds)}."
        return f"Update after rounds {_some(points)} of {self.horizon}."

    def _each(self, tolerance: float) -> str:
        parts = []
        for kind in KINDS:
            point, sure = (self.frontier.enough(tolerance, kind, surely=surely) for surely in (False, True))
            if point is None:
                parts.append(f"{kind} never")
            else:
                parts.append(f"{kind} from B = {point.batches} ({f'surely {sure.batches}' if sure else 'not surely'})")
        return ", ".join(parts)

    def of_theory(self) -> list[str]:
        """Effective dimension, and what the theorems make of it."""
        growth, theory = self.growth, self.theory
        grown = f", extrapolated from {growth.measured.count}" if growth.extrapolated else ""
        low, high = theory.adaptive_lower.batches, theory.adaptive_upper.batches
        beyond = "; more than there are rounds, so it promises nothing here" if low >= self.horizon else ""
        return [
            f"Effective dimension {growth.value:.1f} ({growth.lower:.1f} to {growth.upper:.1f}) of {growth.wanted} "
            f"contexts{grown}.",
            f"Theory, orders with unknown constants, taken as 1: a fixed grid of B = {theory.fixed}, or an adaptive "
            f"one of B = {theory.adaptive.batches} ({low} to {high}) with log q = {theory.adaptive.log_ratio:.2f}"
            f"{beyond}.",
        ]


def named(point: Point) -> str:
    """A schedule in words."""
    if point.log_ratio is not None:
        return f"an adaptive schedule of B = {point.batches} (log q = {point.log_ratio:.3g} in the simulation)"
    return f"a {point.kind} grid of B = {point.batches}"


def above(point: Point) -> str:
    """How far regret is above sequential's, with its interval."""
    low, high, runs = point.ratio.low, point.ratio.high, point.ratio.runs
    interval = f"95 % interval {low:.2f} to {high:.2f}, {runs} runs" if runs > 1 else "one run, so no interval"
    return f"{point.smooth:.2f} times that of an update after every round ({interval})"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _some(rounds: Any) -> str:
    shown = [str(number) for number in rounds[:SHOWN]]
    return ", ".join(shown) + (f", … ({len(rounds)} in all)" if len(rounds) > SHOWN else "")


def _plain(value: Any) -> Any:
    """As JSON, which knows no infinity, no NaN, and no settings that are objects: these are told in words."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Integral):
        return value if isinstance(value, bool) else int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return value if value is None else str(value)
