"""A plan: its numbers, what it rests on, and its advice, a sentence that comes last.

Shares of the possible gain are told only where there surely is one, by `runs.statistics` in pairs of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from rarely import Schedule
from rarely.errors import RarelyError
from rarely.pages.grid import Grid
from rarely.planning.frontier import MIN_RUNS, Frontier, Point
from rarely.planning.simulate import Fit, ScheduleKind
from rarely.runs.sealed_json import plain_json

Origin = Literal["world", "fitted", "simulated"]
"""Where the simulation's rewards are from."""
REWARDS: dict[Origin, str] = {
    "world": "the world's own rewards",
    "fitted": "rewards fitted to the log",
    "simulated": "the simulator's rewards",
}
TOLERANCE = 0.10
"""The share of the possible gain that fewer updates may lose, unless the caller says otherwise."""
SHOWN_ROUNDS = 8
"""Rounds of updates that a sentence names."""
WORDS: dict[ScheduleKind, str] = {
    "paced": "paced batches",
    "fixed": "equal batches",
    "geometric": "growing batches",
    "adaptive": "the trigger of the paper",
}


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
    >>> found = plan(log, horizon=60, runs=1, simulator=np.copy, policy="LinUCB", batches=[2, 4])
    >>> found.horizon, found.schedule(tolerance=10.0).batches
    (60, 2)
    """

    horizon: int
    arms: int
    arm_names: tuple[str, ...]
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

    @property
    def withheld(self) -> bool:
        """Whether no advice is given, because the simulated rewards have nothing to do with the log's."""
        return self.fit is not None and self.fit.r_squared <= 0

    def schedule(
        self, tolerance: float = TOLERANCE, kind: ScheduleKind | None = None, *, surely: bool = False
    ) -> Schedule:
        """Return the schedule with the fewest batches that lose at most this share, by estimate or surely."""
        point = self.frontier.enough(tolerance, kind, surely=surely)
        if point is None:
            raise NothingClose(
                f"nothing tried {'surely ' if surely else ''}loses at most {percent(tolerance)} of what "
                f"{self.frontier.often} gain. Allow more, or plan with more batches or runs."
            )
        return self.frontier.schedule(point, self.horizon)

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        enough: dict[str, Any] = {}
        for kind in self.frontier.kinds:
            point, sure = (self.frontier.enough(TOLERANCE, kind, surely=surely) for surely in (False, True))
            enough[kind] = {
                "batches": None if point is None else point.batches,
                "surely": None if sure is None else sure.batches,
                "verdicts": {str(b): verdict for b, verdict in self.frontier.verdicts(kind, TOLERANCE).items()},
                "schedule": None if point is None else self.frontier.schedule(point, self.horizon).describe(),
            }
        return dict(plain_json(asdict(self) | {"enough": enough, "advice": self.text()}))

    def text(self) -> str:
        """Return what updates bring as a table, what that rests on, and the advice, which comes last."""
        table = self.table()
        lines = [self.above(), *table.lines()] if table else []
        recipe = self.recipe()
        return "\n".join([*lines, *(f"- {note}" for note in self.notes), *filter(None, [recipe]), self.headline()])

    def above(self) -> str:
        """Return what the shares of the table are of."""
        found = self.frontier
        return (
            f"Share of the possible gain, {found.gain.value:.4g} of reward ({found.gain.low:.4g} to "
            f"{found.gain.high:.4g}), by which {found.often} are better than {found.today} over {found.rounds} rounds:"
        )

    def table(self) -> Grid | None:
        """Return what each B brings; None where it is not shown that there is anything to gain."""
        found = self.frontier
        if self.withheld or not found.gains:
            return None
        counts = sorted({point.batches for point in found.points})
        best = {b: min(p.regret.value for p in found.points if p.batches == b) for b in counts}
        body = []
        for count, later in zip(counts, (*counts[1:], None), strict=True):
            mine = {point.kind: share_of(point) for point in found.points if point.batches == count}
            # The slope to the next B; an update is never worth less than nothing.
            worth = "" if later is None else f"{max(0.0, (best[count] - best[later]) / (later - count)):.3g}"
            body.append([str(count), str(count - 1), *(mine.get(kind, "") for kind in found.kinds), worth])
        return Grid(["B", "updates", *found.kinds, "one update more is worth"], body, numbers=0)

    def headline(self) -> str:
        """Return the advice: the fewest batches that surely bring most of the gain, or why there are none."""
        found, most = self.frontier, percent(1 - TOLERANCE)
        at = f" at {found.rounds} of {self.horizon} rounds" if found.rounds < self.horizon else ""
        on = f"simulated{at} with {self.policy} on {REWARDS[self.origin]}, {_runs(found.runs)}"
        if self.withheld:
            return (
                "No advice: the reward model foresees nothing of your rewards (R² ≤ 0), so what was simulated on it "
                "says little of them. Log more rewards or better features, or give a simulator."
            )
        if not found.gains:
            more = max(MIN_RUNS, 4 * found.runs)
            return (
                f"Cannot tell: it is not shown that updates gain anything over {found.today}, whose regret is "
                f"{found.present.value:.4g} where that of {found.often} is {found.sequential.value:.4g} ({on}). "
                f"More runs may show it: runs={more} (--runs {more})."
            )
        if (sure := found.enough(TOLERANCE, surely=True)) is not None:
            return (
                f"Take {_written(found.schedule(sure, self.horizon))}: at most {sure.batches - 1} updates bring "
                f"{share_of(sure)} of what {found.often} gain, surely {most} ({on}).{self._when(sure)}"
            )
        if all(found.verdict(point, TOLERANCE) == "outside" for point in found.points):
            closest = min(found.points, key=lambda point: point.lost.value)
            return (
                f"Update as often as you can: nothing tried brings {most}. The closest, {WORDS[closest.kind]} with "
                f"B = {closest.batches}, bring {share_of(closest)} ({on})."
            )
        point = found.enough(TOLERANCE) or min(found.points, key=lambda each: each.lost.value)
        more = 4 * max(found.runs, MIN_RUNS)
        return (
            f"Cannot tell yet how many updates bring {most} of the gain: by estimate alone "
            f"{_written(found.schedule(point, self.horizon))} does, with {share_of(point)} ({on}). "
            f"More runs may tell: runs={more} (--runs {more})."
        )

    def _when(self, point: Point) -> str:
        points = getattr(self.frontier.schedule(point, self.horizon), "points", None)
        if points is None:
            rounds, of = [sum(point.pattern[: i + 1]) for i in range(len(point.pattern) - 1)], self.frontier.rounds
            return f" A typical run of {of} rounds had {len(rounds)}{_after(rounds)}."
        return f" They come{_after(points)}."

    def recipe(self) -> str | None:
        """Return the policy with its schedule for the horizon, to be pasted; None if nothing came close enough."""
        point = self.frontier.enough(TOLERANCE, surely=True) or self.frontier.enough(TOLERANCE)
        if point is None or self.withheld:
            return None
        schedule = _written(self.frontier.schedule(point, self.horizon))
        kind, remarks = {"default": "BatchNeuralUCB"}.get(self.policy, self.policy), []
        settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        settings += ["ridge='learned'"] if kind in ("LinUCB", "LinTS") and "ridge" not in self.settings else []
        if self.blocks and self.arm_names:
            line = f"FramePolicy.fit({kind}, features, arms={list(self.arm_names)}, schedule={schedule}"
            remarks.append("features: the columns of the log that describe a round")
        else:
            line = f"{kind}({'**blocks.settings' if self.blocks else f'dim={self.dim}'}, schedule={schedule}"
            remarks += [f"blocks = ArmBlocks.fit(features, arms={self.arms})"] if self.blocks else []
            if not self.blocks and self.origin != "world":
                settings.append("context_scale=scale")
                remarks.append("scale = Affine.fit(rows), the features of all arms of the log")
        if point.log_ratio is not None and self.horizon > self.frontier.rounds:
            simulated = f"the {point.log_ratio:g} simulated over {self.frontier.rounds} rounds"
            remarks.append(f"log_ratio is extrapolated from {simulated}")
        written = ", ".join([line, *settings])
        return f"To paste: {written}){'  # ' if remarks else ''}{'; '.join(remarks)}"


def share_of(point: Point) -> str:
    """Return the share of the gain that a schedule brings, with its interval; more than all is all."""
    value, low, high = (percent(min(1.0, 1 - lost)) for lost in (point.lost.value, point.lost.high, point.lost.low))
    return f"{value} ({low} to {high})" if math.isfinite(point.lost.high) else value


def _written(schedule: Schedule) -> str:
    """Return a schedule as it is constructed."""
    values: Any = schedule
    shown = [(each.name, getattr(schedule, each.name)) for each in fields(values)]
    named = ", ".join(f"{name}={value!r}" for name, value in shown if value is not None)
    return f"{type(schedule).__name__}({named})"


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _after(rounds: Sequence[int]) -> str:
    if not len(rounds):
        return ""
    shown = ", ".join(str(number) for number in rounds[:SHOWN_ROUNDS])
    rest = ", …" if len(rounds) > SHOWN_ROUNDS else ""
    return f" after round{'s' if len(rounds) > 1 else ''} {shown}{rest}"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %" if math.isfinite(share) else "unknown"
