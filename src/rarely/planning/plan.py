"""A plan: its numbers, and its advice in a few sentences."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from rarely._core.errors import RarelyError
from rarely._core.schedules import Schedule
from rarely._runs.sealed_json import plain_json
from rarely.planning import gain
from rarely.planning.frontier import CONFIDENCE, MIN_RUNS, Frontier, Point
from rarely.planning.gain import Present, Share, percent, shares_of
from rarely.planning.simulate import KINDS, Fit, Kind

Origin = Literal["world", "fitted", "simulated"]
"""Where the simulation's rewards are from."""
REWARDS: dict[Origin, str] = {
    "world": "the world's own rewards",
    "fitted": "rewards fitted to the log",
    "simulated": "the simulator's rewards",
}
TOLERANCES = (0.05, 0.10)
"""How far above the reference regret may lie, as a plan reports it."""
SHOWN_ROUNDS = 8
"""Rounds of updates that a sentence names."""


class NothingClose(RarelyError):
    """No schedule of the frontier is within the tolerance."""


@dataclass(frozen=True)
class Plan:
    """How many updates, where, and what fewer of them cost.

    Examples
    --------
    >>> import numpy as np
    >>> from rarely.logs import DecisionLog
    >>> from rarely.planning import plan
    >>> log = DecisionLog.from_arrays(rows=np.random.default_rng(0).random((60, 2)), arm_count=2)
    >>> found = plan(log, horizon=60, runs=1, simulator=np.copy, policy="linear", batches=[2, 4])
    >>> found.horizon, found.schedule(tolerance=10.0).batches
    (60, 2)
    """

    horizon: int
    arms: int
    dim: int
    """Numbers in a context."""
    blocks: bool
    """Whether contexts are a round's row in the arm's block."""
    origin: Origin
    policy: str
    settings: dict[str, Any]
    seed: int
    fit: Fit | None
    """How good the fitted reward model is, where one is fitted."""
    frontier: Frontier
    notes: tuple[str, ...]
    """What it supposes, and where it extrapolates."""
    present: Present
    """The policy in use today, with which updates are compared."""

    @property
    def withheld(self) -> bool:
        """Whether no advice is given, because the simulated rewards have nothing to do with the log's."""
        return self.fit is not None and self.fit.r_squared <= 0

    def schedule(self, tolerance: float = 0.10, kind: Kind | None = None, *, surely: bool = False) -> Schedule:
        """Return the schedule with the fewest batches within the tolerance, by estimate or surely."""
        point = self.frontier.enough(tolerance, kind, surely=surely)
        if point is None:
            raise NothingClose(
                f"nothing tried came {'surely ' if surely else ''}within {percent(tolerance)} of "
                f"{self.frontier.often}. Allow a larger tolerance, plan with more batches or runs, or use EveryRound()."
            )
        return self.frontier.schedule(point, self.horizon)

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        enough = {
            percent(tolerance): {kind: self._found(tolerance, kind) for kind in KINDS} for tolerance in TOLERANCES
        }
        described = asdict(self) | {"enough": enough, "advice": self.text()}
        described["shares"] = [asdict(share) for share in self.shares]
        return dict(plain_json(described))

    def _found(self, tolerance: float, kind: Kind) -> dict[str, Any]:
        point, sure = (self.frontier.enough(tolerance, kind, surely=surely) for surely in (False, True))
        schedule = None if point is None else self.frontier.schedule(point, self.horizon).describe()
        return {
            "batches": None if point is None else point.batches,
            "surely": None if sure is None else sure.batches,
            "verdicts": {str(count): verdict for count, verdict in self.frontier.verdicts(kind, tolerance).items()},
            "schedule": schedule,
        }

    @property
    def shares(self) -> list[Share]:
        """For each B, the share of the possible gain, and what one update more is worth."""
        return [] if self.withheld else shares_of(self.frontier, self.present)

    def text(self) -> str:
        """Return what updates are worth as a table, and the advice in a few lines."""
        worth = [] if self.withheld else gain.text(self.shares, self.frontier, self.present)
        return "\n".join([*worth, self.advice()])

    def advice(self) -> str:
        """Return the advice, in a few lines."""
        lines = [self.headline()]
        if not self.withheld:
            if (recipe := self.recipe()) is not None:
                lines.append(recipe)
            lines += [f"Within {percent(tolerance)}: {self._each(tolerance)}." for tolerance in TOLERANCES]
        return "\n".join([*lines, "What this rests on:", *(f"- {note}" for note in self.notes)])

    def headline(self) -> str:
        """Return the fewest batches that are surely close enough, or why there are none; and on what rewards."""
        if self.withheld:
            return (
                "No advice: the reward model foresees nothing of your rewards (R² ≤ 0), so what was simulated on it "
                "says little of them. Log more rewards or better features, or give a simulator."
            )
        shorter = self.frontier.rounds < self.horizon
        at = f", simulated at {self.frontier.rounds} of {self.horizon} rounds" if shorter else ""
        return f"On {REWARDS[self.origin]}{at}, with {_POLICY[self.policy]}: {self._verdict()}"

    def _verdict(self) -> str:
        most, frontier = TOLERANCES[-1], self.frontier
        sure = frontier.enough(most, surely=True)
        if sure is not None:
            return (
                f"{sure.batches} batches, at most {_updates(sure.batches - 1)}, are enough: with {named(sure)} regret "
                f"is {above(sure, frontier.often)}, which is within {percent(most)}. {self._when(sure)}"
            )
        largest, runs = max(point.batches for point in frontier.points), frontier.runs
        more = [str(count) for count in (2 * largest, 4 * largest) if count < frontier.rounds]
        batches = f"batches=[{', '.join(more)}] (--batches {','.join(more)})"
        larger = f", or larger B than the {largest} tried: {batches}" if more else ""
        if all(frontier.verdict(point, most) == "outside" for point in frontier.points):
            closest = min(frontier.points, key=lambda point: point.ratio.value)
            return (
                f"nothing tried is within {percent(most)} of {frontier.often}, surely. The closest is "
                f"{named(closest)}: {above(closest, frontier.often)}. Update as often as you can"
                f"{larger.replace(', or', ', or try')}."
            )
        enough = frontier.enough(most)
        point = enough or min(
            frontier.points, key=lambda point: (math.isnan(point.ratio.value), point.ratio.value, point.batches)
        )
        if math.isnan(point.ratio.value):
            return f"cannot tell, because {frontier.often} has no regret at all to compare with."
        guess = "By estimate alone the fewest are those of" if enough else "The closest is"
        needed = max(MIN_RUNS, 4 * runs)
        return (
            f"cannot tell which number of batches is within {percent(most)} of {frontier.often}. {guess} "
            f"{named(point)}: {above(point, frontier.often)}. To tell, pass runs={needed} (--runs {needed}){larger}."
        )

    def _when(self, point: Point) -> str:
        points = getattr(self.frontier.schedule(point, self.horizon), "points", None)
        if points is None:
            rounds, of = [sum(point.pattern[: i + 1]) for i in range(len(point.pattern) - 1)], self.frontier.rounds
            return f"A typical simulated run of {of} rounds had {_updates(len(rounds))}{_after(rounds)}."
        return f"Update{_after(points)} of {self.horizon}."

    def recipe(self) -> str | None:
        """Return the policy with its schedule for the horizon, to be pasted; None if nothing came close enough."""
        point = self.frontier.enough(TOLERANCES[-1], surely=True) or self.frontier.enough(TOLERANCES[-1])
        if point is None:
            return None
        schedule = self.frontier.schedule(point, self.horizon)
        values: Any = schedule
        shown = [(f.name, getattr(schedule, f.name)) for f in fields(values) if getattr(schedule, f.name) is not None]
        written = f"{type(schedule).__name__}({', '.join(f'{name}={value!r}' for name, value in shown)})"
        kind = "LinUCB" if self.policy == "linear" else "BatchNeuralUCB"
        own = not self.blocks and self.origin != "world"
        contexts = "**blocks.settings" if self.blocks else f"dim={self.dim}{', context_scale=scale' if own else ''}"
        settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        line = f"{kind}({', '.join([contexts, f'schedule={written}', *settings])})"
        remarks = [f"blocks = ArmBlocks.fit(features, arms={self.arms})"] if self.blocks else []
        remarks += ["scale = Affine.fit(rows), the features of all arms of the log"] if own else []
        if point.log_ratio is not None and self.horizon > self.frontier.rounds:
            simulated = f"the {point.log_ratio:g} simulated over {self.frontier.rounds} rounds"
            remarks.append(f"log_ratio is extrapolated from {simulated}")
        if self.frontier.verdict(point, TOLERANCES[-1]) != "within":
            remarks.append(f"whether it is within {percent(TOLERANCES[-1])} is not sure")
        return f"To paste: {line}{'  # ' if remarks else ''}{'; '.join(remarks)}"

    def _each(self, tolerance: float) -> str:
        parts = []
        for kind in KINDS:
            verdicts = self.frontier.verdicts(kind, tolerance)
            point, sure = (self.frontier.enough(tolerance, kind, surely=surely) for surely in (False, True))
            outside = [count for count, verdict in verdicts.items() if verdict == "outside"]
            if sure is not None:
                part = f"{kind} surely from B = {sure.batches}"
                if point is not None and point.batches < sure.batches:
                    part += f", perhaps from {point.batches}"
            elif len(outside) == len(verdicts):
                part = f"{kind} surely not up to B = {outside[-1]}"
            else:
                part = f"{kind} cannot tell" if point is None else f"{kind} perhaps from B = {point.batches}"
            if outside and len(outside) < len(verdicts):
                part += f" (B = {outside[-1]} is surely too few)"
            parts.append(part)
        return "; ".join(parts)


_POLICY = {
    "neural": "the plain network (not the self-tuning default)",
    "default": "the default policy",
    "linear": "LinUCB",
}


def named(point: Point) -> str:
    """Return a schedule in words."""
    if point.log_ratio is not None:
        return f"an adaptive schedule of B = {point.batches} (log q = {point.log_ratio:.3g} in the simulation)"
    return f"a {point.kind} grid of B = {point.batches}"


def above(point: Point, often: str = "an update after every round") -> str:
    """Return how far regret is above that of the schedule compared with, with its interval."""
    low, high, runs = point.ratio.low, point.ratio.high, point.ratio.runs
    value = f"{point.ratio.value:.2f} times that of {often}"
    if not math.isfinite(high):
        few = "one run, so no interval" if runs == 1 else f"{runs} runs, "
        if runs > 1:
            few += "so no interval" if runs < 3 else "which differ too much for an interval"
        return f"{value} ({few})"
    return f"{value} ({100 * CONFIDENCE:.0f} % interval {low:.2f} to {high:.2f}, {runs} runs)"


def _updates(count: int) -> str:
    return {0: "no update", 1: "1 update"}.get(count, f"{count} updates")


def _after(rounds: Any) -> str:
    if not len(rounds):
        return ""
    shown = ", ".join(str(number) for number in rounds[:SHOWN_ROUNDS])
    rest = f", … ({len(rounds)} in all)" if len(rounds) > SHOWN_ROUNDS else ""
    return f" after round{'s' if len(rounds) > 1 else ''} {shown}{rest}"
