"""One schedule in one simulated run, and many of them side by side.

    B    batches   versions of a budget
    T    rounds    of each run

All schedules of a run see the same rounds and the same noise, and start from the same weights.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args

from rarely.core.errors import (
    InvalidInput,
    OutlierWarning,
    RarelyError,
    RejectedWarning,
    ScheduleWarning,
    check_choice,
    check_positive,
)
from rarely.core.policies import BatchNeuralUCB, LinUCB
from rarely.core.policies.base import Policy
from rarely.core.schedules import EveryRound, FixedGrid, Schedule
from rarely.worlds.protocol import Rounds, World

Kind = Literal["fixed", "geometric", "adaptive"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PolicyName = Literal["neural", "default", "linear"]
AT_ONCE = 2**26
"""Bytes of contexts that are made at once."""
OURS = ("dim", "schedule", "seed", "context_scale", "intercept")
PLAIN: dict[PolicyName, dict[str, Any]] = {
    "neural": {"hidden": 64, "training": 100, "ridge": 0.01, "depth": 2},
    "default": {},
    "linear": {"ridge": 1.0, "within_batch": "running"},
}
TUNED = ("training", "steps", "skip", "step_size")
"""What the default policy chooses itself."""
FINEST, MOST_BATCHES = 128, 64
"""Of the default policy, whose updates take long: the batches of its reference, and the most that are tried unasked."""

Item = TypeVar("Item")
Done = TypeVar("Done")


class SimulationFailed(RarelyError):
    """A process that simulated was killed."""


@dataclass(frozen=True)
class Maker:
    """How the simulated policy is made: "neural" is fast and fixed, "default" tunes itself, "linear" is LinUCB."""

    policy: PolicyName = "neural"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("policy", self.policy, PolicyName)
        if ours := [name for name in OURS if name in self.settings]:
            raise InvalidInput(f"settings must leave {', '.join(OURS)} to the planner; got {ours[0]}.")
        if self.policy == "default" and any(name in self.settings for name in TUNED):
            raise InvalidInput('policy "default" chooses its training itself; use policy "neural" to set the steps.')
        object.__setattr__(self, "settings", PLAIN[self.policy] | dict(self.settings))
        check_positive("ridge", self.settings.get("ridge", 0.01), "because Z_1 = ridge·I is inverted")
        if not 1e-12 <= self.ridge <= 1e12:
            raise InvalidInput(f"ridge must lie between 1e-12 and 1e12 for a plan; got {self.ridge:g}.")
        # A policy that nobody plays shows now what would else show in the middle of a simulation.
        self._made(2, EveryRound(), None, 0)

    @property
    def ridge(self) -> float:
        """λ, also where it is the policy's own default."""
        return float(self.settings.get("ridge", 0.01))

    def reference(self, rounds: int) -> Schedule:
        """What schedules are compared with: an update after every round, or of the default policy almost so."""
        return FixedGrid(rounds, FINEST) if self.policy == "default" and rounds > FINEST else EveryRound()

    @property
    def depth(self) -> int:
        """Layers, likewise."""
        return int(self.settings.get("depth", 2))

    def __call__(self, world: World, schedule: Schedule, seed: int) -> Policy:
        return self._made(world.dim, schedule, world, seed)

    def _made(self, dim: int, schedule: Schedule, world: World | None, seed: int) -> Policy:
        scale = None if world is None else world.context_scale
        try:
            if self.policy == "linear":
                # Contexts that come scaled have their constant already.
                return LinUCB(dim, schedule, intercept=scale is None, seed=seed, **self.settings)
            # A plan must not depend on the speed of the machine that makes it.
            settings = {"covariance": "exact", **self.settings}
            return BatchNeuralUCB(dim, schedule, context_scale=scale, seed=seed, **settings)
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

    @property
    def name(self) -> str:
        """By which its outcome is kept."""
        return json.dumps([self.kind, self.schedule.describe(), self.seed], sort_keys=True)


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

    @property
    def updates(self) -> int:
        """Versions after the first."""
        return len(self.ends) - 1

    def describe(self) -> dict[str, Any]:
        """As JSON, from which `from_description` makes it again, bit for bit."""
        return {"regret": self.regret, "ends": self.ends, "log_dets": self.log_dets}

    @classmethod
    def from_description(cls, trial: Trial, described: dict[str, Any]) -> Outcome:
        """The outcome of a trial that was played before."""
        log_dets = tuple((int(t), float(value)) for t, value in described["log_dets"])
        return cls(trial, float(described["regret"]), tuple(int(t) for t in described["ends"]), log_dets)


def play_trial(world: World, maker: Maker, rounds: int, trial: Trial) -> Outcome:
    """One schedule in one run: rewards of a batch are in before its update."""
    policy = maker(world, trial.schedule, trial.seed)
    regret, log_dets = 0.0, [(0, 0.0)]
    for part in stretches(world, trial.seed, rounds):
        start = 0
        while start < len(part):
            # No more rounds than the batch may have: the others would be read for nothing.
            ahead = policy.schedule.lookahead(policy.round, 0.0, 0)
            decision = policy.select(part.contexts[start : start + ahead], until_due=True)
            decided = part[start : start + len(decision)]
            policy.observe(decision, decided.paid(decision.arm))
            regret += float(decided.regrets(decision.arm).sum())
            start += len(decided)
            if policy.due and policy.round < rounds:
                with warnings.catch_warnings():
                    # Budgets that are spent early and trainings that fail are part of what is simulated.
                    for category in (ScheduleWarning, RejectedWarning, OutlierWarning):
                        warnings.simplefilter("ignore", category)
                    policy.update()
                log_dets.append((policy.round, policy.log_det))
    ends = tuple(record.round for record in policy.updates if record.accepted)
    return Outcome(trial, regret, (*ends, rounds), (*log_dets, (rounds, policy.log_det)))


def stretches(world: World, seed: int, rounds: int) -> Iterator[Rounds]:
    """The run's rounds, as many at once as memory should hold."""
    size = max(1, AT_ONCE // (8 * world.arms * world.dim))
    for start in range(0, rounds, size):
        yield world.rounds(seed, min(size, rounds - start), start + 1)


def worked(work: Callable[[Item], Done], items: Sequence[Item], jobs: int) -> Iterator[Done]:
    """The work on each item, in this process or side by side, as it ends."""
    if jobs == 1:
        yield from map(work, items)
        return
    # Processes need loky, of the extra [lab]; one process does without.
    from loky.process_executor import BrokenProcessPool

    from rarely.simulation.parallel import side_by_side

    try:
        yield from side_by_side(work, items, jobs)
    except BrokenProcessPool:
        raise SimulationFailed(
            "a process that simulated was killed; is there enough memory? Try fewer jobs, or a smaller max_rounds."
        ) from None
