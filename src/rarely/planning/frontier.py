"""Regret against the number of batches, measured by simulation: what fewer updates cost.

    B        batches   versions of a budget; the grid doubles
    r(B)     ratio     regret of all runs over that of an update after every round, in the same runs
    ε        tolerance r ≤ 1 + ε is close enough

Which B is enough is read off intervals of r, paired by run. Among many points some interval misses by luck, so within
a kind B is judged in a fixed order: from the largest downwards as long as intervals lie below 1 + ε (*within*), from
the smallest upwards as long as they lie above (*outside*). Such a sequence errs only if the interval of one point, the
first about which it would be wrong, misses, however many points there are. Three kinds share the 5 % of error.

The log q with which an adaptive schedule spends B batches comes from pilot runs:

    G      growth     of log det Z over a run; B equal parts of it would make log q = G/B
    N      spent      batches that a run without a budget has, the last by the part of log q that it grew

How log det Z grows depends on the updates themselves: an untrained policy keeps to what it knows, and log det
with it. So G/B of another schedule's run is a start, and is then corrected by N/B, which it would be off by if N fell
as 1/log q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from rarely import DeterminantTrigger, FixedGrid, GeometricGrid, InvalidInput, Schedule
from rarely.planning.simulate import KINDS, Maker, Outcome, ScheduleKind, SimulationFailed, Trial, play_trial
from rarely.runs.processes import side_by_side
from rarely.runs.statistics import IntervalEstimate, mean, ratio_of_means
from rarely.worlds.protocol import World

Item = TypeVar("Item")
Done = TypeVar("Done")
Verdict = Literal["within", "outside", "undecided"]
PILOT_BATCHES = 8
"""Batches of the first pilot run."""
MIN_RUNS = 5
"""Runs below which nothing is sure, whatever their intervals."""
CONFIDENCE = 1 - 0.05 / len(KINDS)
"""The confidence of one point's interval; all kinds together then err with 5 %."""
PILOTS = 3
"""Pilot runs of every try."""
MAX_TRIES = 4
"""Values of log q that are tried for each B."""
CLOSE_ENOUGH = 0.08
"""|log N/B| at which a try is good enough."""


@dataclass(frozen=True)
class Point:
    """A schedule of the frontier."""

    kind: ScheduleKind
    batches: int
    """B, the budget."""
    log_ratio: float | None
    """log q of an adaptive schedule, at the simulated horizon; None of others."""
    used: float
    """Versions that runs had, on average: an adaptive schedule need not use its budget."""
    regret: IntervalEstimate
    ratio: IntervalEstimate
    """Mean regret over that of an update after every round, paired by run."""
    pattern: tuple[int, ...]
    """Batch lengths; of an adaptive one those of the run with the median number of batches."""


@dataclass(frozen=True)
class Frontier:
    """What fewer updates cost, in simulation."""

    rounds: int
    runs: int
    sequential: IntervalEstimate
    """Regret with an update after every round."""
    pilot: tuple[tuple[int, float], ...]
    """(round, growth of log det Z) in the pilot run."""
    points: tuple[Point, ...]
    reference: int | None = None
    """Batches of the schedule that the others are compared with; None: an update after every round."""
    regrets: tuple[float, ...] = ()
    """Regrets of that schedule, run by run."""

    @property
    def often(self) -> str:
        """What the others are compared with, in words."""
        if self.reference is None:
            return "an update after every round"
        return f"an update after every {self.rounds / self.reference:.3g} rounds"

    def of_kind(self, kind: ScheduleKind) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.kind == kind)

    def verdicts(self, kind: ScheduleKind, tolerance: float) -> dict[int, Verdict]:
        """Return for each B of a kind whether it is surely within the tolerance, surely outside, or undecided."""
        points = self.of_kind(kind)
        verdicts: dict[int, Verdict] = {point.batches: "undecided" for point in points}
        if self.runs >= MIN_RUNS:
            below = takewhile(lambda point: point.ratio.high <= 1 + tolerance, reversed(points))
            above = takewhile(lambda point: point.ratio.low > 1 + tolerance, points)
            verdicts |= {point.batches: "within" for point in below}
            verdicts |= {point.batches: "outside" for point in above}
        return verdicts

    def verdict(self, point: Point, tolerance: float) -> Verdict:
        """Return the same for one point."""
        return self.verdicts(point.kind, tolerance)[point.batches]

    def enough(self, tolerance: float, kind: ScheduleKind | None = None, *, surely: bool = False) -> Point | None:
        """Return the fewest batches within a tolerance, 0.1 for 10 %, from which on every larger B tried is too.

        By the ratio itself or, `surely`, by its interval. Among kinds with equal B one that is surely within comes
        first, and then the one with the lower upper bound. None if there is none.
        """

        def sure(point: Point) -> bool:
            return self.verdict(point, tolerance) == "within"

        def is_close(point: Point) -> bool:
            return sure(point) if surely else point.ratio.value <= 1 + tolerance

        kinds = KINDS if kind is None else (kind,)
        fewest = [point for each in kinds for point in [*takewhile(is_close, reversed(self.of_kind(each)))][-1:]]
        return min(fewest, key=lambda one: (one.batches, not sure(one), one.ratio.high, one.ratio.value), default=None)

    def growth(self, horizon: int) -> float:
        """Return the growth of log det Z over a horizon; beyond the simulated rounds a line in log t."""
        (before, less), (rounds, all_of_it) = self.pilot[len(self.pilot) // 2], self.pilot[-1]
        if horizon <= rounds:
            return all_of_it
        return all_of_it + (all_of_it - less) * math.log(horizon / rounds) / math.log(rounds / before)

    def schedule(self, point: Point, horizon: int) -> Schedule:
        """Return a point's schedule over another horizon; its log q, extrapolated, with three digits."""
        log_ratio = point.log_ratio
        if log_ratio is not None and horizon > self.rounds:
            log_ratio *= self.growth(horizon) / self.growth(self.rounds)
        return _schedule(point.kind, horizon, point.batches, log_ratio)


def default_batches(rounds: int, most: int | None = None) -> tuple[int, ...]:
    """Return 2, 4, 8, … up to a quarter of the rounds, and to `most`.

    >>> default_batches(100)
    (2, 4, 8, 16)
    """
    counts = tuple(2**i for i in range(1, max(2, int(math.log2(max(rounds, 8) / 4)) + 1)))
    return counts if most is None else tuple(count for count in counts if count <= most)


def measure_frontier(
    world: World,
    maker: Maker,
    rounds: int,
    batches: Sequence[int],
    seeds: Sequence[int],
    pilot_seeds: Sequence[int],
    jobs: int = 1,
    progress: Callable[[str, int, int], None] = lambda stage, done, of: None,
) -> Frontier:
    """Simulate every schedule in every run; call `progress` with a stage, the work done in it, and all of its work."""
    first = Trial("fixed", FixedGrid(rounds, min(PILOT_BATCHES, rounds)), pilot_seeds[0])
    pilot = play_trial(world, maker, rounds, first)
    growth = pilot.log_dets[-1][1]
    if not growth > 0:
        raise InvalidInput(
            "log det Z must grow in the pilot run, but all features are 0: no unit of the network answers to these "
            "contexts. Use more hidden units."
        )
    progress("pilot runs", 0, len(batches))
    log_ratios: dict[int, float] = {}
    pilots = partial(calibrate, world, maker, rounds, tuple(pilot_seeds[:PILOTS]), growth)
    for count, calibrated in _played(pilots, batches, jobs):
        log_ratios[count] = calibrated.log_ratio
        progress("pilot runs", len(log_ratios), len(batches))
    schedules = {
        kind: {count: _schedule(kind, rounds, count, log_ratios[count]) for count in batches} for kind in KINDS
    }
    reference = maker.reference(rounds)
    trials = []
    for seed in seeds:
        trials.append(Trial("sequential", reference, seed))
        trials += [Trial(kind, schedules[kind][count], seed) for count in reversed(batches) for kind in KINDS]
    outcomes: dict[Trial, Outcome] = {}
    progress("simulation", 0, len(trials))
    for trial, outcome in _played(partial(play_trial, world, maker, rounds), trials, jobs):
        outcomes[trial] = outcome
        progress("simulation", len(outcomes), len(trials))
    sequential = [outcomes[Trial("sequential", reference, seed)].regret for seed in seeds]
    points = [
        _point(kind, schedule, count, [outcomes[Trial(kind, schedule, seed)] for seed in seeds], sequential)
        for kind in KINDS
        for count, schedule in schedules[kind].items()
    ]
    often = reference.batches, tuple(sequential)
    return Frontier(rounds, len(seeds), mean(sequential), pilot.log_dets, tuple(points), *often)


def _schedule(kind: ScheduleKind, rounds: int, batches: int, log_ratio: float | None) -> Schedule:
    if kind != "adaptive" or log_ratio is None:
        return (FixedGrid if kind == "fixed" else GeometricGrid)(rounds, batches)
    return DeterminantTrigger(rounds, batches, log_ratio=float(f"{log_ratio:.3g}"))  # pilots do not know more digits


def _point(
    kind: ScheduleKind, schedule: Schedule, batches: int, runs: Sequence[Outcome], sequential: Sequence[float]
) -> Point:
    counts, regrets = [len(run.ends) for run in runs], [run.regret for run in runs]
    median = runs[int(np.argsort(counts, kind="stable")[(len(runs) - 1) // 2])]
    log_ratio = schedule.log_ratio if isinstance(schedule, DeterminantTrigger) else None
    ratio = ratio_of_means(regrets, sequential, CONFIDENCE)
    return Point(kind, batches, log_ratio, float(np.mean(counts)), mean(regrets), ratio, median.pattern)


# --- log q of adaptive schedules


class Calibrated(NamedTuple):
    """A value of log q, and the batches that the pilots spent with it."""

    log_ratio: float
    spent: float


def calibrate(world: World, maker: Maker, rounds: int, seeds: Sequence[int], growth: float, batches: int) -> Calibrated:
    """Find the log q of B batches by a few pilots; never one with which a pilot is not updated at all."""
    tried: list[Calibrated] = []
    log_ratio, low, high = growth / batches, 0.0, math.inf
    for _ in range(MAX_TRIES):
        # Twice the budget shows by how much it is exceeded, and bounds what a bad start costs.
        schedule = DeterminantTrigger(rounds, 2 * batches, log_ratio=log_ratio)
        runs = [play_trial(world, maker, rounds, Trial("adaptive", schedule, seed)) for seed in seeds]
        spent = float(np.median([_spent(run, log_ratio) for run in runs]))
        if min(run.updates for run in runs):
            tried.append(Calibrated(log_ratio, spent))
            if abs(math.log(spent / batches)) < CLOSE_ENOUGH:
                break
            low, high = (log_ratio, high) if spent > batches else (low, log_ratio)
            guess = log_ratio * spent / batches
        else:
            # Some run ended before its first update: log q has to fit into what that one grew.
            high = min(log_ratio, *(run.log_dets[-1][1] for run in runs))
            guess = min(log_ratio * spent / batches, 0.9 * high)
        # Corrections that leave what is known to be too small or too large would go back and forth.
        log_ratio = guess if low < guess < high else math.sqrt(low * high)
    if not tried:
        return Calibrated(log_ratio / 2, math.nan)
    return min(tried, key=lambda one: abs(math.log(one.spent / batches)))


def _spent(run: Outcome, log_ratio: float) -> float:
    # A run that had no versions left grew by more than log q after its last update, and shows by how much.
    (_, last_end), (_, end) = run.log_dets[-2:]
    return run.updates + max((end - last_end) / log_ratio, 1e-3)


# --- simulations side by side


def _played(work: Callable[[Item], Done], items: Sequence[Item], jobs: int) -> Iterator[tuple[Item, Done]]:
    """Yield each item with what came of it, as they end, in so many processes."""
    attempt = partial(_attempt, work)
    try:
        yield from map(attempt, items) if jobs == 1 else side_by_side(attempt, items, jobs)
    except BrokenExecutor as error:
        raise SimulationFailed(
            "a process that simulated was killed; is there enough memory? Try fewer jobs, or a smaller max_rounds."
        ) from error


def _attempt(work: Callable[[Item], Done], item: Item) -> tuple[Item, Done]:
    try:
        return item, work(item)
    except Exception as error:
        raise SimulationFailed(f"a simulation failed, {item}: {type(error).__name__}: {error}.") from error
