"""What fewer updates lose, measured by simulation.

    B        batches   versions of a budget; the grid doubles
    R_0      present   regret of the policy in use today
    R_∞      often     regret with the most frequent updates that are simulated
    lost     share     Σ(R(B) − R_∞)/Σ(R_0 − R_∞): the part of the possible gain that fewer updates do not bring
    ε        tolerance lost ≤ ε is close enough

Which B is enough is read off intervals of the share, paired by run. Among many points some interval misses by luck, so
within a kind B is judged in a fixed order: from the largest downwards as long as intervals lie below ε (*within*), from
the smallest upwards as long as they lie above (*outside*). Such a sequence errs only if the interval of one point, the
first about which it would be wrong, misses, however many points there are. The kinds share the 5 % of error.

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
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, takewhile
from typing import Any, Literal, NamedTuple

import numpy as np

from rarely import DeterminantTrigger, EveryRound, FixedGrid, GeometricGrid, Paced, Schedule
from rarely.errors import InvalidInput
from rarely.planning.simulate import (
    REFERENCE_BATCHES,
    LogWorld,
    Maker,
    Outcome,
    ScheduleKind,
    SimulationFailed,
    play,
    stretches,
)
from rarely.runs.machine import side_by_side
from rarely.runs.statistics import IntervalEstimate, mean, share_of_sums
from rarely.worlds.protocol import World, seeded

Verdict = Literal["within", "outside", "undecided"]
PILOT_BATCHES = 8  # batches of the first pilot run
MIN_RUNS = 5  # runs below which nothing is sure, whatever their intervals
ERROR = 0.05  # how often a plan may err, in all kinds of schedules together
PILOTS = 3  # pilot runs of every try
MAX_TRIES = 4  # values of log q that are tried for each B
CLOSE_ENOUGH = 0.08  # |log N/B| at which a try is good enough


@dataclass(frozen=True)
class Point:
    """A schedule of the frontier."""

    kind: ScheduleKind
    batches: int  # B, the budget
    log_ratio: float | None  # log q of an adaptive schedule, at the simulated horizon; None of others
    used: float  # versions that runs had, on average: an adaptive schedule need not use its budget
    regret: IntervalEstimate
    lost: IntervalEstimate  # the share of the possible gain that it does not bring, paired by run
    pattern: tuple[int, ...]  # batch lengths; where runs differ those of the run with the median number of batches


@dataclass(frozen=True)
class Frontier:
    """What fewer updates lose, in simulation."""

    rounds: int
    runs: int
    sequential: IntervalEstimate  # regret with the most frequent updates
    present: IntervalEstimate  # regret of the policy in use today
    gain: IntervalEstimate  # how much more the most frequent updates earn, run by run
    logged: bool  # whether the policy in use is the one that wrote the log; otherwise it chooses arms at random
    points: tuple[Point, ...]
    pilot: tuple[tuple[int, float], ...] = ()  # (round, growth of log det Z) in the pilot run of adaptive schedules
    reference: int | None = None  # batches of the most frequent updates; None: an update after every round

    @property
    def often(self) -> str:
        """The most frequent updates."""
        return "an update after every round" if self.reference is None else f"{self.reference - 1} updates"

    @property
    def today(self) -> str:
        """The policy in use, in words."""
        return "the policy of the log" if self.logged else "choosing arms at random"

    @property
    def kinds(self) -> tuple[ScheduleKind, ...]:
        """The kinds of schedules that were simulated."""
        return tuple(dict.fromkeys(point.kind for point in self.points))

    @property
    def gains(self) -> bool:
        """Whether there surely is something to gain."""
        return self.runs >= MIN_RUNS and self.gain.low > 0

    def of_kind(self, kind: ScheduleKind) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.kind == kind)

    def verdicts(self, kind: ScheduleKind, tolerance: float) -> dict[int, Verdict]:
        """Return for each B of a kind whether it is surely within the tolerance, surely outside, or undecided."""
        points = self.of_kind(kind)
        verdicts: dict[int, Verdict] = {point.batches: "undecided" for point in points}
        if self.gains:
            below = takewhile(lambda point: point.lost.high <= tolerance, reversed(points))
            above = takewhile(lambda point: point.lost.low > tolerance, points)
            verdicts |= {point.batches: "within" for point in below}
            verdicts |= {point.batches: "outside" for point in above}
        return verdicts

    def verdict(self, point: Point, tolerance: float) -> Verdict:
        return self.verdicts(point.kind, tolerance)[point.batches]

    def enough(self, tolerance: float, kind: ScheduleKind | None = None, *, surely: bool = False) -> Point | None:
        """Return the fewest batches that lose at most a share, 0.1 for 10 %, from which on every larger B tried does.

        By the estimate or, `surely`, by its interval. Among kinds with equal B one that is surely within comes
        first, and then the one with the lower upper bound. None if there is none.
        """

        def sure(point: Point) -> bool:
            return self.verdict(point, tolerance) == "within"

        def is_close(point: Point) -> bool:
            return sure(point) if surely else point.lost.value <= tolerance

        kinds = self.kinds if kind is None else (kind,)
        fewest = [point for each in kinds for point in [*takewhile(is_close, reversed(self.of_kind(each)))][-1:]]
        return min(fewest, key=lambda one: (one.batches, not sure(one), one.lost.high, one.lost.value), default=None)

    def growth(self, horizon: int) -> float:
        """Return the growth of log det Z over a horizon; beyond the simulated rounds a line in log t."""
        if not self.pilot:
            return 0.0
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


def default_batches(rounds: int) -> tuple[int, ...]:
    """Return 2, 4, 8, … up to a quarter of the rounds, and to half of what they are compared with."""
    most = min(max(rounds, 8) // 4, REFERENCE_BATCHES // 2)
    return tuple(2**i for i in range(1, int(math.log2(most)) + 1))


def improving(
    world: World,
    maker: Maker,
    rounds: int,
    batches: Sequence[int],
    kinds: Sequence[ScheduleKind],
    seeds: Sequence[int],
    pilot_seeds: Sequence[int],
    jobs: int = 1,
    progress: Callable[[str, int, int], None] = lambda stage, done, of: None,
) -> Iterator[Frontier]:
    """Simulate every schedule run by run, and yield what the runs so far say; `progress` hears a stage and its work."""
    log_ratios: dict[int, float] = {}
    pilot: tuple[tuple[int, float], ...] = ()
    if "adaptive" in kinds:
        first = FixedGrid(rounds, min(PILOT_BATCHES, rounds))
        pilot = play(world, maker, rounds, first, pilot_seeds[0]).log_dets
        growth = pilot[-1][1]
        if not growth > 0:
            raise InvalidInput(
                "log det Z must grow in the pilot run, but all features are 0: no unit of the network answers to these "
                "contexts. Use more hidden units."
            )
        progress("pilot runs", 0, len(batches))
        pilots = partial(calibrate, world, maker, rounds, tuple(pilot_seeds[:PILOTS]), growth)
        for (count,), calibrated in _played(pilots, [(count,) for count in batches], jobs):
            log_ratios[count] = calibrated.log_ratio
            progress("pilot runs", len(log_ratios), len(batches))
    plans: dict[tuple[ScheduleKind, int], Schedule] = {
        (kind, count): _schedule(kind, rounds, count, log_ratios[count] if kind == "adaptive" else None)
        for kind, count in product(kinds, batches)
    }
    reference = EveryRound() if rounds <= REFERENCE_BATCHES else Paced(rounds, REFERENCE_BATCHES)
    each = list(dict.fromkeys([reference, *reversed(plans.values())]))
    trials = [(schedule, seed) for seed in seeds for schedule in each]
    outcomes: dict[tuple[Schedule, int], Outcome] = {}
    told = 0
    progress("simulation", 0, len(trials))
    for trial, outcome in _played(partial(play, world, maker, rounds), trials, jobs):
        outcomes[trial] = outcome
        progress("simulation", len(outcomes), len(trials))
        done = next((i for i, one in enumerate(trials) if one not in outcomes), len(trials)) // len(each)
        if done > told:
            told = done
            runs = {one: [outcomes[one, seed] for seed in seeds[:done]] for one in each}
            yield _frontier(plans, reference, runs, present_regrets(world, rounds, seeds[:done]), pilot, rounds)


def _frontier(
    plans: dict[tuple[ScheduleKind, int], Schedule],
    reference: Schedule,
    runs: dict[Schedule, list[Outcome]],
    present: tuple[list[float], bool],
    pilot: tuple[tuple[int, float], ...],
    rounds: int,
) -> Frontier:
    """Return what some runs, all of them played, say."""
    often, (today, logged) = [run.regret for run in runs[reference]], present
    gains = [a - b for a, b in zip(today, often, strict=True)]
    confidence = 1 - ERROR / len({kind for kind, _ in plans})
    points = []
    for (kind, count), schedule in plans.items():
        counts, regrets = zip(*((len(run.ends), run.regret) for run in runs[schedule]), strict=True)
        median = runs[schedule][int(np.argsort(counts, kind="stable")[(len(counts) - 1) // 2])]
        lost = share_of_sums([a - b for a, b in zip(regrets, often, strict=True)], gains, confidence)
        log_ratio = schedule.log_ratio if isinstance(schedule, DeterminantTrigger) else None
        points.append(Point(kind, count, log_ratio, float(np.mean(counts)), _regret(regrets), lost, median.pattern))
    ends = _regret(often), _regret(today), mean(gains), logged
    return Frontier(rounds, len(often), *ends, tuple(points), pilot, reference.batches)


def _regret(regrets: Sequence[float]) -> IntervalEstimate:
    """Return a mean regret, of which nobody knows a negative one."""
    estimate = mean(regrets)
    return replace(estimate, low=max(estimate.low, 0.0))


def present_regrets(world: World, rounds: int, seeds: Sequence[int]) -> tuple[list[float], bool]:
    """Return the regrets of the policy in use, in the same runs; and whether it is the one that wrote the log.

    It is that for a log with one chosen arm a round. For a log without arms, and for a world, nobody knows one, and
    each arm is chosen as often as any other.
    """
    if isinstance(world, LogWorld):
        places, arms, _ = world.log.log.known_rewards()
        if len(places) and len(np.unique(places)) == len(places):
            chosen, regrets = np.full(len(world.log), -1), []
            chosen[places] = arms
            for seed in seeds:
                order, means, _ = world.drawn.get(seed) or world.secret(seeded(seed, 0))
                logged = np.flatnonzero(chosen[order[:rounds]] >= 0)
                lost = means[logged].max(axis=1) - means[logged, chosen[order[logged]]] if len(logged) else np.nan
                regrets.append(float(rounds * np.mean(lost)))
            return regrets, True
    parts = ((part.means for part in stretches(world, seed, rounds)) for seed in seeds)
    return [float(sum((means.max(axis=1) - means.mean(axis=1)).sum() for means in run)) for run in parts], False


def _schedule(kind: ScheduleKind, rounds: int, batches: int, log_ratio: float | None) -> Schedule:
    if log_ratio is not None:
        return DeterminantTrigger(rounds, batches, log_ratio=float(f"{log_ratio:.3g}"))  # pilots know no more digits
    grids: dict[str, Any] = {"paced": Paced, "fixed": FixedGrid, "geometric": GeometricGrid}
    return grids[kind](rounds, batches)  # type: ignore[no-any-return]


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
        runs = [play(world, maker, rounds, schedule, seed) for seed in seeds]
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


def _played(work: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[Any, Any]]:
    """Yield each call's arguments with what came of it, as they end, in so many processes."""
    attempt = partial(_attempt, work)
    try:
        yield from map(attempt, calls) if jobs == 1 else side_by_side(attempt, calls, jobs)
    except BrokenExecutor as error:
        raise SimulationFailed(
            "a process that simulated was killed; is there enough memory? Try fewer jobs, or a smaller max_rounds."
        ) from error


def _attempt(work: Callable[..., Any], call: tuple[Any, ...]) -> tuple[Any, Any]:
    try:
        return call, work(*call)
    except Exception as error:
        raise SimulationFailed(f"a simulation failed, {call}: {type(error).__name__}: {error}.") from error
