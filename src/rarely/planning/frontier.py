"""Regret against the number of batches, measured by simulation: what fewer updates cost.

    B        batches   versions of a budget; the grid doubles
    r(B)     ratio     regret of all runs over that of an update after every round, in the same runs
    ε        tolerance r ≤ 1 + ε is close enough

Which B is enough is read off intervals of r, paired by run. Among many points some interval misses by luck, so within
a kind B is judged in a fixed order: from the largest downwards as long as intervals lie below 1 + ε (*within*), from
the smallest upwards as long as they lie above (*outside*). Such a sequence errs only if the interval of one point, the
first about which it would be wrong, misses; so whatever the number of points, and whether r falls with B or not, each
kind needs no more than its interval's confidence. Three kinds share the 5 % of error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Literal

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.schedules import DeterminantTrigger, FixedGrid, GeometricGrid, Schedule
from rarely.planning.calibrate_log_ratio import PILOTS, Calibrated, calibrate
from rarely.planning.finished_trials import Codec, FinishedTrials
from rarely.planning.simulate import KINDS, Kind, Maker, Outcome, Trial, play_trial
from rarely.simulation.statistics import IntervalEstimate, mean, ratio_of_means
from rarely.worlds.protocol import World

Verdict = Literal["within", "outside", "undecided"]
GRID = 8
"""Batches of the first pilot run."""
SURE = 5
"""Runs below which nothing is sure, whatever their intervals."""
CONFIDENCE = 1 - 0.05 / len(KINDS)
TRIAL_CODEC: Codec[Trial, Outcome] = Codec(
    lambda trial: trial.name,
    lambda outcome: (outcome.trial.name, outcome.describe()),
    Outcome.from_description,
)
PILOT_CODEC: Codec[int, Calibrated] = Codec(
    lambda batches: f"log q of {batches} batches",
    lambda found: (f"log q of {found.batches} batches", [found.log_ratio, found.spent]),
    lambda batches, value: Calibrated(batches, *value),
)


@dataclass(frozen=True)
class Point:
    """A schedule of the frontier."""

    kind: Kind
    batches: int
    """B, the budget."""
    log_ratio: float | None
    """log q of an adaptive one, at the simulated horizon."""
    used: float
    """Versions that runs had, on average: an adaptive schedule need not use its budget."""
    regret: IntervalEstimate
    ratio: IntervalEstimate
    """Mean regret over that of an update after every round, paired by run."""
    pattern: tuple[int, ...]
    """Batch lengths; of an adaptive one those of the run with the median number of batches."""
    idle: int = 0
    """Runs without a single update."""

    @property
    def updates(self) -> int:
        """Updates of a typical run."""
        return len(self.pattern) - 1

    @property
    def spare(self) -> bool:
        """Whether runs left clearly more than a quarter of the budget."""
        return self.used < 0.75 * self.batches


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

    @property
    def often(self) -> str:
        """What the others are compared with, in words."""
        if self.reference is None:
            return "an update after every round"
        return f"an update after every {self.rounds / self.reference:.3g} rounds"

    def of_kind(self, kind: Kind) -> tuple[Point, ...]:
        """The points of a kind, B rising."""
        return tuple(point for point in self.points if point.kind == kind)

    def verdicts(self, kind: Kind, tolerance: float) -> dict[int, Verdict]:
        """Of each B of a kind: surely within the tolerance, surely outside, or neither is sure."""
        points = self.of_kind(kind)
        verdicts: dict[int, Verdict] = {point.batches: "undecided" for point in points}
        if self.runs >= SURE:
            below = takewhile(lambda point: point.ratio.high <= 1 + tolerance, reversed(points))
            above = takewhile(lambda point: point.ratio.low > 1 + tolerance, points)
            verdicts |= {point.batches: "within" for point in below}
            verdicts |= {point.batches: "outside" for point in above}
        return verdicts

    def verdict(self, point: Point, tolerance: float) -> Verdict:
        """The same of one point."""
        return self.verdicts(point.kind, tolerance)[point.batches]

    def enough(self, tolerance: float, kind: Kind | None = None, *, surely: bool = False) -> Point | None:
        """The fewest batches within a tolerance, 0.1 for 10 %, from which on every larger B tried is too.

        By the ratio itself or, `surely`, by its interval. Among kinds with equal B one that is surely within comes
        first, and then the one with the lower upper bound. None if there is none.
        """

        def is_close(point: Point) -> bool:
            return self.verdict(point, tolerance) == "within" if surely else point.ratio.value <= 1 + tolerance

        found = []
        for each in KINDS if kind is None else (kind,):
            close = list(takewhile(is_close, reversed(self.of_kind(each))))
            found += [(point, self.verdict(point, tolerance)) for point in close[-1:]]
        best = min(
            found,
            key=lambda one: (one[0].batches, one[1] != "within", one[0].ratio.high, one[0].ratio.value),
            default=None,
        )
        return None if best is None else best[0]

    def growth(self, horizon: int) -> float:
        """Growth of log det Z over so many rounds; beyond the simulated ones a line in log t, as the pilot ended."""
        (before, less), (rounds, all_of_it) = self.pilot[len(self.pilot) // 2], self.pilot[-1]
        if horizon <= rounds:
            return all_of_it
        return all_of_it + (all_of_it - less) * math.log(horizon / rounds) / math.log(rounds / before)

    def schedule(self, point: Point, horizon: int) -> Schedule:
        """A point's schedule over another horizon; its log q, extrapolated, with the three digits that it deserves."""
        log_ratio = point.log_ratio
        if log_ratio is not None and horizon > self.rounds:
            log_ratio *= self.growth(horizon) / self.growth(self.rounds)
        return _schedule(point.kind, horizon, point.batches, log_ratio)

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        return asdict(self)


def default_batches(rounds: int, most: int | None = None) -> tuple[int, ...]:
    """2, 4, 8, … up to a quarter of the rounds, and to `most`.

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
    told: Callable[[str, int, int], None] = lambda stage, done, of: None,
    finished: FinishedTrials | None = None,
) -> Frontier:
    """Simulate every schedule in every run; `told` hears how much of the work is done, `finished` keeps what is."""
    finished = FinishedTrials() if finished is None else finished
    pilot = play_trial(world, maker, rounds, Trial("fixed", FixedGrid(rounds, min(GRID, rounds)), pilot_seeds[0]))
    growth = pilot.log_dets[-1][1]
    if not growth > 0:
        raise InvalidInput(
            "log det Z must grow in the pilot run, but all features are 0: no unit of the network answers to these "
            "contexts. Use more hidden units."
        )
    log_ratios: dict[int, float] = {}
    told("pilot runs", 0, len(batches))
    work = partial(calibrate, world, maker, rounds, tuple(pilot_seeds[:PILOTS]), growth)
    for found in finished.work(work, batches, jobs, PILOT_CODEC):
        log_ratios[found.batches] = _rounded(found.log_ratio)
        told("pilot runs", len(log_ratios), len(batches))
    schedules = {
        kind: {count: _schedule(kind, rounds, count, log_ratios[count]) for count in batches} for kind in KINDS
    }
    reference = maker.reference(rounds)
    trials = [
        trial
        for seed in seeds
        for trial in (
            Trial("sequential", reference, seed),
            *(Trial(kind, schedules[kind][count], seed) for count in reversed(batches) for kind in KINDS),
        )
    ]
    outcomes: dict[Trial, Outcome] = {}
    whole, done = sum(trial.work(rounds) for trial in trials), 0
    told("simulation", done, whole)
    for outcome in finished.work(partial(play_trial, world, maker, rounds), trials, jobs, TRIAL_CODEC):
        outcomes[outcome.trial] = outcome
        done += outcome.trial.work(rounds)
        told("simulation", done, whole)
    sequential = [outcomes[Trial("sequential", reference, seed)].regret for seed in seeds]
    points = [
        _point(kind, count, schedule, [outcomes[Trial(kind, schedule, seed)] for seed in seeds], sequential)
        for kind in KINDS
        for count, schedule in schedules[kind].items()
    ]
    return Frontier(rounds, len(seeds), mean(sequential), pilot.log_dets, tuple(points), reference.batches)


def _schedule(kind: Kind, rounds: int, batches: int, log_ratio: float | None) -> Schedule:
    if kind == "fixed":
        return FixedGrid(rounds, batches)
    if kind == "geometric":
        return GeometricGrid(rounds, batches)
    assert log_ratio is not None
    return DeterminantTrigger(rounds, batches, log_ratio=_rounded(log_ratio))


def _rounded(log_ratio: float) -> float:
    """Three digits: pilots do not know more."""
    return float(f"{log_ratio:.3g}")


def _point(kind: Kind, batches: int, schedule: Schedule, runs: Sequence[Outcome], sequential: Sequence[float]) -> Point:
    counts = [len(run.ends) for run in runs]
    median = runs[int(np.argsort(counts, kind="stable")[(len(runs) - 1) // 2])]
    regrets = [run.regret for run in runs]
    return Point(
        kind=kind,
        batches=batches,
        log_ratio=schedule.log_ratio if isinstance(schedule, DeterminantTrigger) else None,
        used=float(np.mean(counts)),
        regret=mean(regrets),
        ratio=ratio_of_means(regrets, sequential, CONFIDENCE),
        pattern=median.pattern,
        idle=sum(run.updates == 0 for run in runs),
    )
