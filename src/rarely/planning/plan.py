"""A plan: its numbers, its advice in a few sentences, and what updates are worth.

R_0    regret of the policy in use today
R_∞    regret with the most frequent updates that were simulated
gain   R_0 − R(B), of which R_0 − R_∞ is possible; share = gain/(R_0 − R_∞)

A share is known only if the possible gain is above 0 by the tests of `runs.statistics`, in pairs of runs, and the
share's interval is at most 1 wide. Otherwise it is "unknown": a share of nearly nothing may be anything.

The policy in use today is, for a log with one chosen arm a round, the policy that wrote it. For a log without arms, and
for a world, nobody knows one, and each arm is chosen as often as any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any, Literal

import numpy as np

from rarely import RarelyError, Schedule
from rarely.extend import IntArray
from rarely.pages.grid import Grid
from rarely.planning.frontier import CONFIDENCE, MIN_RUNS, Frontier, Point, Verdict
from rarely.planning.simulate import KINDS, Fit, LogWorld, ScheduleKind, stretches
from rarely.runs.sealed_json import plain_json
from rarely.runs.statistics import IntervalEstimate, differences, mean
from rarely.worlds.protocol import World, seeded

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
MAX_WIDTH = 1.0
"""The width of the interval of a share, beyond which it counts as unknown."""
MOST_OF_GAIN = 0.8
"""The share of the gain at which a sentence names the next update's worth."""


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

    def schedule(self, tolerance: float = 0.10, kind: ScheduleKind | None = None, *, surely: bool = False) -> Schedule:
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
        enough: dict[str, Any] = {percent(tolerance): {} for tolerance in TOLERANCES}
        for tolerance, kind in product(TOLERANCES, KINDS):
            point, sure, verdicts = self._fewest(tolerance, kind)
            enough[percent(tolerance)][kind] = {
                "batches": None if point is None else point.batches,
                "surely": None if sure is None else sure.batches,
                "verdicts": {str(count): verdict for count, verdict in verdicts.items()},
                "schedule": None if point is None else self.frontier.schedule(point, self.horizon).describe(),
            }
        described = asdict(self) | {"enough": enough, "advice": self.text()}
        described["shares"] = [asdict(share) for share in self.shares]
        return dict(plain_json(described))

    def _fewest(self, tolerance: float, kind: ScheduleKind) -> tuple[Point | None, Point | None, dict[int, Verdict]]:
        """Return the fewest batches of a kind that are enough, those that surely are, and the verdict on each."""
        point, sure = (self.frontier.enough(tolerance, kind, surely=surely) for surely in (False, True))
        return point, sure, self.frontier.verdicts(kind, tolerance)

    @property
    def shares(self) -> list[Share]:
        """For each B, the share of the possible gain, and what one update more is worth."""
        return [] if self.withheld else shares_of(self.frontier, self.present)

    def text(self) -> str:
        """Return what updates are worth as a table, and the advice in a few lines."""
        worth = [] if self.withheld else share_lines(self.shares, self.frontier, self.present)
        return "\n".join([*worth, self.advice()])

    def advice(self) -> str:
        """Return the advice, in a few lines."""
        lines: list[str | None] = [self.headline()]
        if not self.withheld:
            lines += [self.recipe(), *(f"Within {percent(each)}: {self._each(each)}." for each in TOLERANCES)]
        return "\n".join([*filter(None, lines), "What this rests on:", *(f"- {note}" for note in self.notes)])

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
            frontier.points, key=lambda one: (math.isnan(one.ratio.value), one.ratio.value, one.batches)
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
        scaled = not self.blocks and self.origin != "world"
        contexts = "**blocks.settings" if self.blocks else f"dim={self.dim}{', context_scale=scale' if scaled else ''}"
        settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        line = f"{kind}({', '.join([contexts, f'schedule={written}', *settings])})"
        remarks = [f"blocks = ArmBlocks.fit(features, arms={self.arms})"] if self.blocks else []
        remarks += ["scale = Affine.fit(rows), the features of all arms of the log"] if scaled else []
        if point.log_ratio is not None and self.horizon > self.frontier.rounds:
            simulated = f"the {point.log_ratio:g} simulated over {self.frontier.rounds} rounds"
            remarks.append(f"log_ratio is extrapolated from {simulated}")
        if self.frontier.verdict(point, TOLERANCES[-1]) != "within":
            remarks.append(f"whether it is within {percent(TOLERANCES[-1])} is not sure")
        return f"To paste: {line}{'  # ' if remarks else ''}{'; '.join(remarks)}"

    def _each(self, tolerance: float) -> str:
        parts = []
        for kind in KINDS:
            point, sure, verdicts = self._fewest(tolerance, kind)
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
    of = "one run" if runs == 1 else f"{runs} runs"
    if math.isfinite(high):
        sure = f"{100 * CONFIDENCE:.0f} % interval {low:.2f} to {high:.2f}, {of}"
    else:
        sure = f"{of}, {'so no' if runs < 3 else 'which differ too much for an'} interval"
    return f"{point.ratio.value:.2f} times that of {often} ({sure})"


def _updates(count: int) -> str:
    return {0: "no update", 1: "1 update"}.get(count, f"{count} updates")


def _after(rounds: Any) -> str:
    if not len(rounds):
        return ""
    shown = ", ".join(str(number) for number in rounds[:SHOWN_ROUNDS])
    rest = f", … ({len(rounds)} in all)" if len(rounds) > SHOWN_ROUNDS else ""
    return f" after round{'s' if len(rounds) > 1 else ''} {shown}{rest}"


@dataclass(frozen=True)
class Present:
    """The policy that is in use today, which nobody trains, and its regret."""

    logged: bool
    """Whether it is the policy of the log; otherwise it chooses arms at random."""
    regret: IntervalEstimate
    """Its regret in the simulated runs."""
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
            order, means, _ = world.secret(seeded(seed, 0))
            arms = chosen[order[:rounds]]
            logged = np.flatnonzero(arms >= 0)
            lost = means[logged].max(axis=1) - means[logged, arms[logged]]
            regrets.append(float(rounds * lost.mean()) if len(logged) else math.nan)
        else:
            parts = stretches(world, seed, rounds)
            regrets.append(float(sum((part.means.max(axis=1) - part.means.mean(axis=1)).sum() for part in parts)))
    return Present(chosen is not None, mean(regrets), differences(regrets, often).interval())


@dataclass(frozen=True)
class Share:
    """What the schedules of one B gain."""

    batches: int
    shares: dict[ScheduleKind, float | None]
    """The share of each kind of schedule; 1 is all of the possible gain, and None is unknown."""
    low: float
    """Where the interval of the best kind's share begins."""
    high: float
    """Where it ends."""
    next: float | None
    """What one update more is worth, in rewards over the simulated rounds; None beyond the largest B."""

    @property
    def best(self) -> float:
        """The share of the kind that brings most; NaN if unknown."""
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
        clear = [point for point in points[count] if present.gain.low > 0 and np.diff(ends(point))[0] <= MAX_WIDTH]
        values = {one.kind: (least - one.regret.value) / possible if one in clear else None for one in points[count]}
        worth = None
        if later is not None:  # the slope to the next B simulated; an update is never worth less than nothing
            worth = max(0.0, (gains[later] - gains[count]) / (later - count))
        limits = ends(best[count]) if best[count] in clear else (-math.inf, math.inf)
        rows.append(Share(count, values, *limits, worth))
    return rows


def worth_of(rows: Sequence[Share], frontier: Frontier, present: Present) -> tuple[str, Grid, str]:
    """Return what the shares are of, their table, and what the next update is worth in a sentence."""
    body = []
    for row in rows:
        shares = [percent(row.shares[kind]) if kind in row.shares else "–" for kind in KINDS]
        worth = "–" if row.next is None else f"{row.next:.3g}"
        body.append([str(row.batches), str(row.batches - 1), *shares, _share_interval(row), worth])
    table = Grid(["B", "updates", *KINDS, "interval of the best", "one update more is worth"], body, numbers=0)
    possible = present.regret.value - frontier.sequential.value
    above = (
        f"Share of the possible gain, which is the {possible:.4g} of reward that {frontier.often} is better than "
        f"{present.name} over {frontier.rounds} rounds:"
    )
    return above, table, update_price(rows, frontier)


def share_lines(rows: Sequence[Share], frontier: Frontier, present: Present) -> list[str]:
    """Return the same in lines, or the line that there is nothing to gain."""
    if not rows:
        return [f"Updates have nothing to gain here: {present.name} has no more regret than {frontier.often}."]
    above, table, price = worth_of(rows, frontier, present)
    return [above, *table.lines(), price]


def update_price(rows: Sequence[Share], frontier: Frontier) -> str:
    """Return a sentence on the first B with most of the gain, and on what the next update is worth."""
    row = next((row for row in rows if row.best >= MOST_OF_GAIN), rows[-1])
    updates = _updates(row.batches - 1)
    if not row.low > 0:
        runs = frontier.sequential.runs
        return (
            f"Inconclusive: {runs} run{'s do' if runs > 1 else ' does'} not show how much of the possible gain updates "
            f"bring: with {updates} it is {_share_interval(row)}. Ask for more --runs."
        )
    said = f"With {updates} {percent(row.best)} of the possible gain ({_share_interval(row)})"
    if row.next is None:
        return f"{said}; more were not simulated."
    return f"{said}; the {_ordinal(row.batches)} is worth {row.next:.3g} of reward over {frontier.rounds} rounds."


def _share_interval(row: Share) -> str:
    return f"{percent(row.low)} to {percent(row.high)}" if math.isfinite(row.low + row.high) else "unknown"


def percent(share: float | None) -> str:
    """Return a share in percent; None and NaN are unknown."""
    return "unknown" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else ends.get(number % 10, 'th')}"
