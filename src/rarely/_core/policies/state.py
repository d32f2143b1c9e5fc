"""All that a policy knows at one moment, as one value, and the values that it is made of.

PolicyState    current, clock, history, arm_stats, updates, events …
Version        the version in use: f(·; θ_b), Z, β and how means and bonuses become arms
BatchClock     where it stands in its schedule
ArmStats       how well the arms offered since the last update were known
UpdateRecord   what an update did          PolicyEvent   what else was done to the policy
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from rarely._core.choice.random_stream import RandomPlace
from rarely._core.choice.rules import ChoiceRule
from rarely._core.covariance import Covariance
from rarely._core.growable_array import GrowingTuple, changed
from rarely._core.inputs.contexts import ContextReader
from rarely._core.inputs.history import History
from rarely._core.policies.learner import Learner, ScoreOverride
from rarely._core.policies.monitor import Expectations
from rarely._core.saving.fields import Fields
from rarely._core.schedules import NEVER, BatchEnd, Budget, EndingSchedule, Schedule
from rarely._core.types import Array, Described, IntArray

WithinBatch = Literal["frozen", "running"]
EventKind = Literal["budget", "covariance", "compaction", "limit", "memory", "alarm"]
TINY_VARIANCE = 1e-30  # stands in for a variance of 0 whose logarithm is taken


# What every round makes anew is a value that nobody changes, but not `frozen`, which would take three times as long;
# for the same reason the next value is made by `changed` and not by `dataclasses.replace`.


@dataclass(eq=False)
class Version:
    """The version in use: its model is frozen, and its Z grows with every round.

    learner      f(·; θ_b) and its features        radius   β_{t_b}
    covariance   Z, both frozen and running        rule     how means and bonuses become arms
    """

    learner: Learner
    covariance: Covariance
    radius: float
    rule: ChoiceRule
    within_batch: WithinBatch = "frozen"
    """Which Z bonuses come from: with the running one the rounds of a batch spread. Means are frozen either way."""
    override: ScoreOverride | None = None  # a second opinion on arms; None where the model alone scores them

    @property
    def uses_running(self) -> bool:
        """Whether bonuses come from the running Z."""
        return self.within_batch == "running"

    @property
    def unit(self) -> float:
        """ω of the Z that bonuses come from."""
        return self.covariance.running_unit if self.within_batch == "running" else self.covariance.frozen_unit

    def fork(self) -> Version:
        """Return a copy whose running Z may grow; see `Covariance.fork`."""
        return changed(self, covariance=self.covariance.fork())


@dataclass
class BatchClock:
    """The version in use and its batch: a value, of which every round and update makes the next."""

    budget: Budget
    version: int = 0
    due_round: int = 0  # the round that ended the batch; 0 where it has not ended
    base_round: int = 0  # rounds decided before the batch
    base_log_det: float = 0.0  # log det Z − log det λI when the batch began
    rescues: bool = False  # whether a trigger whose log det saturates ends the first batch anyway
    # The schedule of the batch under way, once it was asked for, and when that batch ends, where the schedule knows.
    _schedule: Schedule | None = field(default=None, repr=False, compare=False)
    _end: BatchEnd | None = field(default=None, repr=False, compare=False)

    @property
    def due(self) -> bool:
        """Whether the batch has ended; stays so until the next update."""
        return self.due_round > 0

    @property
    def spent(self) -> bool:
        """Whether no version may follow the one in use."""
        return self.budget.spent(self.version)

    @property
    def versions_left(self) -> int | None:
        """Versions that may follow the one in use; None where there is no limit."""
        batches = self.budget.batches
        return None if batches is None else max(0, batches - 1 - self.version)

    def extended(self, extra: int) -> BatchClock:
        """Return the clock with this many versions added to the budget in all."""
        return replace(self, budget=self.budget.extended(extra), _schedule=None, _end=None)

    @property
    def _batch(self) -> Schedule:
        if self._schedule is None:
            batch = self.budget.in_batch(self.version, self.base_round, self.base_log_det)
            self._schedule = batch.rescued() if self.rescues and not self.version else batch
        return self._schedule

    def after_round(self, round: int, log_det: float) -> BatchClock:
        """Return the clock after this round, which leaves this log det."""
        if self.due:
            return self
        if self._end is None:
            batch, free = self._batch, self.budget.spent(self.version)
            if not free and not isinstance(batch, EndingSchedule):
                due = batch.first_due(round - 1, np.array([log_det - self.base_log_det])) is not None
                return self.ended(round) if due else self
            self._end = BatchEnd(NEVER, NEVER) if free else cast(EndingSchedule, batch).end(self.base_round)
        return self.ended(round) if self._end.ends_with(round, log_det - self.base_log_det) else self

    def first_due(self, round: int, log_dets: Array) -> int | None:
        """Return the index of the first of the next rounds with which the batch ends, if any."""
        return None if self.budget.spent(self.version) else self._batch.first_due(round, log_dets - self.base_log_det)

    def lookahead(self, round: int, log_det: float) -> int:
        """Return how many more rounds the batch is expected to last, at least 1."""
        if self.spent:
            return NEVER
        return self._batch.lookahead(round, log_det - self.base_log_det, round - self.base_round)

    def explain(self, round: int, log_det: float) -> str:
        """Return why the batch has ended; "" where it has not."""
        return self._batch.explain(round, log_det - self.base_log_det) if self.due else ""

    @property
    def plan(self) -> str:
        """How many updates may follow, and when the next is planned."""
        if self.spent:
            return "this was the last update"
        left, ahead = self.versions_left, self._batch.ahead(self.base_round)
        if left is None:
            return ahead or "updates have no limit"
        count = "1 update is left" if left == 1 else f"{left} updates are left"
        return f"{count}, {ahead}" if ahead else count

    def ended(self, round: int) -> BatchClock:
        """Return the clock after the batch's last round; a batch that has ended stays as it was."""
        return self if self.due else changed(self, due_round=round)

    def restarted(self, round: int, log_det: float, version: int) -> BatchClock:
        """Return the clock at the start of a batch of the given version."""
        return BatchClock(self.budget, version, 0, round, log_det, self.rescues)

    def rebased(self, before: Covariance, after: Covariance) -> BatchClock:
        """Return the clock after Z took another form: growth of log det is counted on the scale of the new one."""
        if before.kind == after.kind or (before.exact and after.exact):
            return self
        base = self.base_log_det + (after.frozen_log_det - before.frozen_log_det)
        return replace(self, base_log_det=base, _schedule=None, _end=None)

    def replayed(self, round: int, log_det: float) -> BatchClock:
        """Return the clock of a batch that began at its base and has reached this round and log det."""
        rounds = round - self.base_round
        if not rounds:
            return self
        # log det grows from round to round, and schedules ask for no less of it later: the last one decides.
        log_dets = np.full(rounds, self.base_log_det)
        log_dets[-1] = log_det
        return self if self.first_due(self.base_round, log_dets) is None else self.ended(round)

    def rounds_ahead(self, round: int, version: int) -> int:
        """Return the rounds that a version's batch will, or on a budget should, last at least; 0 if unknown."""
        horizon, batches = self.budget.horizon, self.budget.batches
        left = NEVER if horizon is None else max(0, horizon - round)
        even = 0 if horizon is None or batches is None else horizon // batches
        if self.budget.spent(version):
            expected = left
        elif self.budget.on_demand:
            expected = min(left, even)
        else:
            batch = self.budget.in_batch(version, round, 0.0)
            expected = min(left, max(batch.lookahead(round, 0.0, 0), even))
        # No end in sight is not an endless batch: a trial of 300 rounds may be over with its last update.
        return 0 if expected >= NEVER // 2 else expected

    def restored(self, saved: Fields, rounds: int) -> BatchClock:
        """Return the clock that was saved after so many rounds; this one has not started."""
        extra = saved.whole("extra_versions")
        budget = self.budget.extended(extra) if extra else self.budget
        version, base = saved.whole("version"), saved.whole("base_round")
        # A file may tell that the batch has ended, and not when: as late as can be, then.
        due = saved.whole("due_round") if "due_round" in saved else rounds * saved.flag("due")
        return BatchClock(budget, version, due, base, saved.number("base_log_det"), self.rescues)


@dataclass(frozen=True, slots=True)
class PolicyEvent(Described):
    """A change of a policy's budget, of the form of its Z, or of what it remembers, or an alarm; see `Policy.events`.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=1))
    >>> policy.extend_budget(2, reason="the trial was prolonged")
    >>> policy.events[0].kind, policy.events[0].round, policy.events[0].reason
    ('budget', 0, 'the trial was prolonged')
    """

    kind: str
    """"budget", "covariance", "compaction", "limit" where `Limits.history` was reached, or "alarm"."""
    round: int
    """Rounds decided by then."""
    version: int
    """The version in use."""
    detail: str
    """What changed, and what was lost."""
    reason: str = ""
    """Why, as the caller said."""


@dataclass(slots=True)
class ArmStats(Described):
    """Sums over the arms that were offered since the last update, chosen or not.

    v   (n, K)   φᵀZ⁻¹φ of every arm when its round was decided        v_0   (n, K)   ‖φ‖²/λ, before any data
    ω   ()       the unit of √v where Z is an approximation; see `CovarianceFactory.rescale_bonuses`
    """

    rounds: int = 0
    arms: int = 0
    unexplored: float = 0.0  # Σ v/v_0 over all arms
    chosen: float = 0.0  # Σ log ω²v over the arms that were chosen
    least_known: float = 0.0  # Σ log ω²v over the least known arm of each round, that of the largest v
    disjoint: bool = True
    """Whether no column had numbers other than 0 for two arms of a round, as with `ArmBlocks` or one-hot arms."""

    def merge(self, variances: Array, priors: Array, arms: IntArray, *, disjoint: bool, unit: float = 1.0) -> ArmStats:
        """Return the sums with these rounds; NaN stands for absent arms. Logarithms are of ω²v, ω being the `unit`."""
        # Every decision comes through here, so absent arms cost only those who have some.
        rounds, logs = len(arms), np.log(np.maximum(variances, TINY_VARIANCE))
        parts = variances / np.maximum(priors, TINY_VARIANCE)
        shift = 0.0 if unit == 1 else 2 * rounds * math.log(unit)
        total, count = float(np.add.reduce(parts, axis=None)), parts.size
        if math.isnan(total):
            total, count = float(np.nansum(parts)), int(np.count_nonzero(~np.isnan(parts)))
        chosen, least_known = logs[np.arange(rounds), arms], np.fmax.reduce(logs, axis=1)
        return ArmStats(
            self.rounds + rounds,
            self.arms + count,
            self.unexplored + total,
            self.chosen + _sum(chosen) + shift,
            self.least_known + _sum(least_known) + shift,
            self.disjoint and disjoint,
        )

    def plus(self, other: ArmStats) -> ArmStats:
        """Return the sums over the rounds of both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__ if name != "disjoint"}
        return ArmStats(**sums, disjoint=self.disjoint and other.disjoint)

    @property
    def share(self) -> float | None:
        """How much of the variance before any data is left, from 0 to 1; None before any arm was offered."""
        return self.unexplored / self.arms if self.arms else None

    @property
    def deviations(self) -> tuple[float, float] | None:
        """√v of the chosen and of the least known arms, in the geometric mean; None before any arm was offered."""
        if not self.rounds:
            return None
        return float(np.exp(0.5 * self.chosen / self.rounds)), float(np.exp(0.5 * self.least_known / self.rounds))


def _sum(numbers: Array) -> float:
    return float(numbers[0] if len(numbers) == 1 else np.add.reduce(numbers))


@dataclass(frozen=True)
class UpdateRecord(Described):
    """One call of `update`; or the start from a log, of version 0 and round 0.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand())
    >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
    >>> record = policy.update()
    >>> record.accepted, record.version, record.round, record.samples, record.missing
    (True, 1, 5, 5, 0)
    """

    version: int
    """The version in use afterwards."""
    round: int
    """Rounds decided when it was called or prepared."""
    accepted: bool
    reason: str
    """Why it was rejected; empty when it was not."""
    samples: int
    """Rewards that it learned from."""
    missing: int
    """Rounds whose rewards were not in."""
    log_det: float
    """log det Z_t − log det λI at the time."""
    beta: float
    """The radius of the version in use afterwards."""
    covariance: str
    """The form of Z in use afterwards."""
    jitters: int
    """Jitters so far."""
    step_size: float | None = None
    """η of the last attempt at training, where there was one."""
    attempts: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None
    steps: int | None = None
    """J, and the strength s of the skip path, where there was a training."""
    skip: float | None = None
    tuning: str = ""
    """Why these, where the policy chose them itself."""
    noise: float | None = None
    """Standard deviation of held-out rewards around their predictions, in reward units, where it is estimated."""
    coverage: float | None = None
    """Of the rewards of the version before: how many lay within 1.96·√(noise² + bonus²) of their mean, as both were
    when it decided. A calibrated policy has about 0.95; much less in several updates says that the world changed."""
    rescaled: tuple[int, ...] = ()
    """The columns of contexts whose scale was fitted anew, because the data had left it; Z was then built again."""
    trained: int | None = None
    """Samples that the network was trained on, where `Training.rows` left some out; None where it was all of them."""
    clipped: int | None = None
    """Rewards that `Training.clip` clipped; None without it."""
    due: str = ""
    """Why the schedule had ended the batch, and its plan for the rest of the budget; "" if the update was not due."""
    unexplored: float | None = None
    """How much of the variance before any data was left in the arms offered since the last update, in the mean over
    rounds and arms: φᵀZ⁻¹φ·λ/‖φ‖², from 0 to 1. Unlike `coverage` it counts arms that were never tried."""
    chosen: float | None = None
    """√(φᵀZ⁻¹φ) of the arms chosen since the last update, in the geometric mean, and of the arm of each round of which
    least was known. Where they are far apart, the policy repeats what it knows. After a change from an exact to an
    approximate Z they are in the unit of the exact one."""
    least_known: float | None = None
    adopted: int = 0
    """Rounds decided when the version came into use: more than `round` where it was trained elsewhere meanwhile."""
    dropped: int = 0
    """Rows of the history that were dropped after it, which a `BatchEnd`, a `Discount` or a limit has forgotten."""
    lost: int = 0
    """Rounds that are not in Z afterwards: forgotten, or dropped before it was built again."""
    alarms: tuple[str, ...] = ()
    """What has left what earlier batches led one to expect: "coverage", "rewards", "arms" or "missing"."""
    loops: str = ""
    """The loops that trained the network: "avx512", "avx2", "sse2", "neon" or "numpy"; "" where none was trained.
    Not part of `Policy.fingerprint`."""
    memory: str = ""
    """What a policy that chooses its own memory learns from since this update, and why; "" where nothing changed."""
    early: str = ""
    """What `update(seconds=…)` left undone when the time was over, and after how many steps; "" where nothing was."""


NO_UPDATE = UpdateRecord(0, 0, True, "", 0, 0, 0.0, 0.0, "", 0)
"""What the others are made of by `changed`, in a third of the time of `__init__`."""


@dataclass(eq=False)
class PolicyState:
    """All that a policy knows at one moment."""

    current: Version
    clock: BatchClock
    history: History
    random: RandomPlace  # the place of the policy's generator in its stream
    reader: ContextReader  # what contexts have looked like so far
    updates: GrowingTuple[UpdateRecord] = field(default_factory=GrowingTuple)
    arm_stats: ArmStats = field(default_factory=ArmStats)
    learned: int = 0  # rewards that were in at the last accepted update, or when it was prepared
    events: tuple[PolicyEvent, ...] = ()
    lost: int = 0  # rounds that are not in Z: forgotten, or dropped before it was rebuilt
    most_arms: int = 0  # the most arms that a round has offered
    expectations: Expectations = field(default_factory=Expectations)  # what the next batch is compared with
    ledger: Any = None  # the `Ledger` of a policy under a ceiling or shares; None of others

    def with_event(self, kind: EventKind, detail: str, reason: str = "", round: int | None = None) -> PolicyState:
        """Return the state with one more event on record."""
        at = self.history.rounds if round is None else round
        return replace(self, events=(*self.events, PolicyEvent(kind, at, self.clock.version, detail, reason)))
