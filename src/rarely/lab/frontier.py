"""Regret against the number of batches, measured by simulation: what fewer updates cost.

    B        batches   versions of a budget; the grid doubles
    T        rounds    of each run
    G        growth    of log det Z over a pilot run; the adaptive schedule of B batches has log q = G/B
    sequential         an update after every round, which every other schedule is compared with, run by run

All schedules of a run see the same rounds and the same noise, and start from the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise, repeat
from typing import Any, Literal, get_args

import numpy as np

from rarely.core.errors import InvalidInput, RarelyError, check_choice, check_positive
from rarely.core.policies import BatchNeuralUCB, LinUCB
from rarely.core.policy import Policy
from rarely.core.schedules import DeterminantTrigger, EveryRound, FixedGrid, GeometricGrid, Schedule
from rarely.lab.statistics import Estimate, falling, mean, ratio
from rarely.worlds.protocol import Rounds, World

Kind = Literal["fixed", "geometric", "adaptive"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PolicyName = Literal["neural", "linear"]
PILOT = 8
"""Batches of the pilot run."""
AT_ONCE = 2**26
"""Bytes of contexts that are made at once."""
OURS = ("dim", "schedule", "seed", "context_scale", "intercept")


class SimulationFailed(RarelyError):
    """A process that simulated was killed."""


@dataclass(frozen=True)
class Maker:
    """How the policy that is simulated is made: fast and fixed, not tuned, unless settings say otherwise."""

    policy: PolicyName = "neural"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("policy", self.policy, PolicyName)
        if ours := [name for name in OURS if name in self.settings]:
            raise InvalidInput(f"settings must leave {', '.join(OURS)} to the planner; got {ours[0]}.")
        plain = {"hidden": 64, "steps": 100, "ridge": 0.01, "depth": 2} if self.policy == "neural" else {"ridge": 1.0}
        object.__setattr__(self, "settings", plain | dict(self.settings))
        check_positive("ridge", self.settings["ridge"], "because Z_1 = ridge·I is inverted")

    def __call__(self, world: World, schedule: Schedule, seed: int) -> Policy:
        try:
            if self.policy == "linear":
                # Contexts that come scaled have their constant already.
                return LinUCB(world.dim, schedule, intercept=world.context_scale is None, seed=seed, **self.settings)
            return BatchNeuralUCB(world.dim, schedule, context_scale=world.context_scale, seed=seed, **self.settings)
        except TypeError as error:
            raise InvalidInput(f"settings must be those of the {self.policy} policy; {error}.") from None


@dataclass(frozen=True)
class Trial:
    """One schedule in one run."""

    kind: Kind | Literal["sequential"]
    schedule: Schedule
    seed: int

    def work(self, rounds: int) -> int:
        """About how long it takes, in samples trained on: for its share of a progress bar."""
        if isinstance(self.schedule, EveryRound):
            return rounds * rounds // 2
        points = getattr(self.schedule, "points", None)
        return 20 * rounds + (sum(points) if points is not None else rounds * (self.schedule.batches or 1) // 4)


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    trial: Trial
    regret: float
    ends: tuple[int, ...]
    """Rounds that ended a batch, T last."""
    log_dets: tuple[tuple[int, float], ...]
    """(round, growth of log det Z until then) at every batch's end."""

    @property
    def pattern(self) -> tuple[int, ...]:
        """The lengths of its batches."""
        return tuple(b - a for a, b in pairwise((0, *self.ends)))


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
    regret: Estimate
    ratio: Estimate
    """Regret over that of an update after every round, paired by run."""
    smooth: float
    """The same ratio, smoothed over B so that it does not rise: few runs make one B lucky and the next unlucky."""
    pattern: tuple[int, ...]
    """Batch lengths; of an adaptive one those of the run with the median number of batches."""

    def within(self, tolerance: float) -> bool:
        """Whether its regret, smoothed over B, is at most so much above sequential's."""
        return self.smooth <= 1 + tolerance

    def surely_within(self, tolerance: float) -> bool:
        """Whether the whole 95 % interval is, too."""
        return self.within(tolerance) and self.ratio.high <= 1 + tolerance


@dataclass(frozen=True)
class Frontier:
    """What fewer updates cost, in simulation."""

    rounds: int
    runs: int
    sequential: Estimate
    """Regret with an update after every round."""
    pilot: tuple[tuple[int, float], ...]
    """(round, growth of log det Z) in the pilot run."""
    points: tuple[Point, ...]

    def of_kind(self, kind: Kind) -> tuple[Point, ...]:
        """The points of a kind, B rising."""
        return tuple(point for point in self.points if point.kind == kind)

    def enough(self, tolerance: float, kind: Kind | None = None, *, surely: bool = False) -> Point | None:
        """The fewest batches within a tolerance, 0.1 for 10 %, and among equals the lowest regret; None if none are."""
        close = [
            point
            for point in (self.points if kind is None else self.of_kind(kind))
            if (point.surely_within(tolerance) if surely else point.within(tolerance))
        ]
        return min(close, key=lambda point: (point.batches, point.smooth), default=None)

    def growth(self, horizon: int) -> float:
        """Growth of log det Z over so many rounds; beyond the simulated ones a line in log t, as the pilot ended."""
        (before, less), (rounds, all_of_it) = self.pilot[len(self.pilot) // 2], self.pilot[-1]
        if horizon <= rounds:
            return all_of_it
        return all_of_it + (all_of_it - less) * math.log(horizon / rounds) / math.log(rounds / before)

    def schedule(self, point: Point, horizon: int) -> Schedule:
        """A point's schedule over another horizon."""
        return _schedule(point.kind, horizon, point.batches, self.growth(horizon))

    def describe(self) -> dict[str, Any]:
        """All of it as JSON."""
        return asdict(self)


def default_batches(rounds: int) -> tuple[int, ...]:
    """2, 4, 8, … up to a quarter of the rounds.

    >>> default_batches(100)
    (2, 4, 8, 16)
    """
    return tuple(2**i for i in range(1, max(2, int(math.log2(max(rounds, 8) / 4)) + 1)))


def measure_frontier(
    world: World,
    maker: Maker,
    rounds: int,
    batches: Sequence[int],
    seeds: Sequence[int],
    pilot_seed: int,
    jobs: int = 1,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Frontier:
    """Simulate every schedule in every run; `told` hears how much of the work is done."""
    pilot = play_trial(world, maker, rounds, Trial("fixed", FixedGrid(rounds, min(PILOT, rounds)), pilot_seed))
    growth = pilot.log_dets[-1][1]
    if not growth > 0:
        raise InvalidInput(
            "log det Z must grow in the pilot run, but all features are 0: no unit of the network answers to these "
            "contexts. Use more hidden units."
        )
    schedules = {kind: {count: _schedule(kind, rounds, count, growth) for count in batches} for kind in KINDS}
    trials = [
        trial
        for seed in seeds
        for trial in (
            Trial("sequential", EveryRound(), seed),
            *(Trial(kind, schedules[kind][count], seed) for count in reversed(batches) for kind in KINDS),
        )
    ]
    outcomes: dict[Trial, Outcome] = {}
    whole, done = sum(trial.work(rounds) for trial in trials), 0
    told(done, whole)
    for outcome in _played(partial(play_trial, world, maker, rounds), trials, jobs):
        outcomes[outcome.trial] = outcome
        done += outcome.trial.work(rounds)
        told(done, whole)
    sequential = [outcomes[Trial("sequential", EveryRound(), seed)].regret for seed in seeds]
    points: list[Point] = []
    for kind in KINDS:
        plans = list(schedules[kind].items())
        played = [[outcomes[Trial(kind, schedule, seed)] for seed in seeds] for _, schedule in plans]
        ratios = [ratio([run.regret for run in runs], sequential) for runs in played]
        smooth = np.exp(falling([math.log(each.value) for each in ratios]))
        points += map(_point, repeat(kind), plans, played, ratios, smooth)
    return Frontier(rounds, len(seeds), mean(sequential), pilot.log_dets, tuple(points))


def play_trial(world: World, maker: Maker, rounds: int, trial: Trial) -> Outcome:
    """One schedule in one run: rewards of a batch are in before its update."""
    policy = maker(world, trial.schedule, trial.seed)
    regret, log_dets = 0.0, [(0, 0.0)]
    for part in _stretches(world, trial.seed, rounds):
        start = 0
        while start < len(part):
            # No more rounds than the batch may have: the others would be read for nothing.
            ahead = policy.schedule.lookahead(policy.round, 0.0, 0)
            decision = policy.select(part.contexts[start : start + ahead], until_due=True)
            decided = part[start : start + len(decision.round)]
            policy.observe(decision, decided.paid(decision.arm))
            regret += float(decided.regrets(decision.arm).sum())
            start += len(decided)
            if policy.due and policy.round < rounds:
                policy.update()
                log_dets.append((policy.round, policy.log_det))
    ends = tuple(record.round for record in policy.updates if record.accepted)
    return Outcome(trial, regret, (*ends, rounds), (*log_dets, (rounds, policy.log_det)))


def _stretches(world: World, seed: int, rounds: int) -> Iterator[Rounds]:
    """The run's rounds, as many at once as memory should hold."""
    size = max(1, AT_ONCE // (8 * world.arms * world.dim))
    for start in range(0, rounds, size):
        yield world.rounds(seed, min(size, rounds - start), start + 1)


def _played(play: Callable[[Trial], Outcome], trials: Sequence[Trial], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(play, trials)
        return
    # Processes need loky, of the extra [lab]; one process does without.
    from loky.process_executor import BrokenProcessPool

    from rarely.lab.runner import side_by_side

    try:
        yield from side_by_side(play, trials, jobs)
    except BrokenProcessPool:
        raise SimulationFailed(
            "a process that simulated was killed; is there enough memory? Try fewer jobs, or a smaller max_rounds."
        ) from None


def _schedule(kind: Kind, rounds: int, batches: int, growth: float) -> Schedule:
    if kind == "fixed":
        return FixedGrid(rounds, batches)
    if kind == "geometric":
        return GeometricGrid(rounds, batches)
    return DeterminantTrigger(rounds, batches, log_ratio=growth / batches)


def _point(kind: Kind, planned: tuple[int, Schedule], runs: Sequence[Outcome], ratio: Estimate, smooth: float) -> Point:
    batches, schedule = planned
    counts = [len(run.ends) for run in runs]
    median = runs[int(np.argsort(counts, kind="stable")[(len(runs) - 1) // 2])]
    return Point(
        kind=kind,
        batches=batches,
        log_ratio=schedule.log_ratio if isinstance(schedule, DeterminantTrigger) else None,
        used=float(np.mean(counts)),
        regret=mean([run.regret for run in runs]),
        ratio=ratio,
        smooth=float(smooth),
        pattern=median.pattern,
    )
