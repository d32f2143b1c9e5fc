"""The flow that every policy shares: select, observe, due, update.

    select    contexts → means and factors → bonuses under the frozen Z → arms; chosen factors → running Z
    observe   rewards, late, out of order, or never
    due       the schedule speaks
    update    learn from the rewards that are in, freeze the next version

Everything fallible happens on forks, and a call takes effect in its last lines: a call that raises has
changed nothing. A policy is used from one thread at a time.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from rarely.core import archive
from rarely.core.choice import Chooser, tolerances
from rarely.core.contexts import Part, Rounds, read_rounds
from rarely.core.covariance import FORMS, Candidates, Covariance, Kind, Limit, Widths
from rarely.core.covariance.protocol import prior_variances
from rarely.core.errors import BudgetSpent, InvalidInput, TrainingRejected, UpdateDue
from rarely.core.factors import Factors
from rarely.core.history import History, read_log
from rarely.core.radius import Beta, Occasion, describe_beta, radius_at
from rarely.core.records import UpdateRecord
from rarely.core.schedules import Budget, Schedule
from rarely.core.types import Array, Decision

Ties = Literal["lowest", "random"]


class Scores(NamedTuple):
    """What a frozen policy thinks of each arm, in reward units; NaN where no arm is."""

    means: Array
    bonuses: Array


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a learner made of the rewards; `reason` says why it must not be used, if so."""

    learner: Learner
    reason: str = ""
    step_size: float | None = None
    attempts: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None


class Learner(Protocol):
    """A frozen model of rewards: a value, of which `learn` makes the next."""

    @property
    def dim(self) -> int:
        """Numbers in a context."""

    @property
    def widths(self) -> Widths:
        """(out_l, in_l) of its features' layers."""

    @property
    def reward_spread(self) -> float:
        """The scale of its predictions, for what counts as a tie."""

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        """Means in reward units, (n,), and features."""

    def seen(self, contexts: Array) -> Learner:
        """The learner after it saw contexts of all arms, without rewards."""

    def scaled(self) -> Learner:
        """The learner with its scale of contexts fitted, as `learn` would fit it."""

    def learn(self, contexts: Array, rewards: Array) -> Lesson:
        """The next version, from all rewards that are in."""

    def occasion(self, round: int, covariance: Covariance) -> Occasion:
        """What the radius β may depend on, for a version that decides from `round` on."""

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Numbers and arrays from which `restored` makes the same value, bit for bit."""

    def restored(self, numbers: dict[str, Any], arrays: dict[str, Array]) -> Learner:
        """The saved value."""


class Policy(ABC):
    """A contextual bandit whose policy is frozen between updates, of which there are few."""

    def __init__(
        self,
        learner: Learner,
        *,
        schedule: Schedule,
        covariance: Kind,
        ridge: float,
        beta: Beta,
        chooser: Chooser,
        generator: np.random.Generator,
        memory_limit: int,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"schedule must be a Schedule, such as FixedGrid(horizon, batches); got {schedule!r}.")
        if covariance not in FORMS:
            raise InvalidInput(f"covariance must be one of {', '.join(FORMS)}; got {covariance!r}.")
        if not (np.isfinite(ridge) and ridge > 0):
            raise InvalidInput(f"ridge must be positive and finite, because Z_1 = ridge·I is inverted; got {ridge}.")
        self._learner, self._ridge, self._beta, self._chooser = learner, float(ridge), beta, chooser
        self._budget = Budget.around(schedule)
        self._generator = generator
        self._covariance = _make_covariance(covariance, learner.widths, self._ridge, self._budget, memory_limit)
        self._history = History(learner.dim)
        self._version = 0
        self._due = False
        self._base_round, self._base_log_det = 0, 0.0
        self._radius = radius_at(beta, learner.occasion(1, self._covariance))
        self._updates: list[UpdateRecord] = []

    # --- what a policy says of itself

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON, for `save`."""

    @property
    def dim(self) -> int:
        """Numbers in a context."""
        return self._learner.dim

    @property
    def schedule(self) -> Schedule:
        """The schedule, under its budget."""
        return self._budget

    @property
    def version(self) -> int:
        """The frozen policy in use, 0 … B−1."""
        return self._version

    @property
    def round(self) -> int:
        """Rounds decided so far; the next decision is round + 1."""
        return self._history.rounds

    @property
    def due(self) -> bool:
        """Whether the schedule has ended the batch; stays so until `update`."""
        return self._due

    @property
    def log_det(self) -> float:
        """log det Z_t − log det λI of the running Z."""
        return self._covariance.log_det

    @property
    def beta(self) -> float:
        """The radius of the version in use."""
        return self._radius

    @property
    def covariance(self) -> str:
        """The form of Z in use."""
        return self._covariance.kind

    @property
    def jitters(self) -> int:
        """How often rounding had to be mended; see `JitterWarning`."""
        return self._covariance.jitters

    @property
    def missing(self) -> int:
        """Rounds whose rewards are not in."""
        return self._history.missing

    @property
    def history(self) -> History:
        """Chosen contexts, arms, versions and rewards."""
        return self._history

    @property
    def updates(self) -> tuple[UpdateRecord, ...]:
        """What is on record about each update, rejected ones too."""
        return tuple(self._updates)

    # --- deciding

    def score(self, contexts: Any, mask: Any = None) -> Scores:
        """Means and bonuses under the frozen version: pure, no round."""
        rounds = read_rounds(contexts, mask, self.dim)
        means, bonuses = [], []
        for part in rounds.parts(lambda: self._rounds_at_once(rounds)):
            assessed = self._assess(part, self._covariance)
            means.append(assessed.means)
            bonuses.append(assessed.bonuses)
        return Scores(_joined(means, rounds), _joined(bonuses, rounds))

    def select(self, contexts: Any, mask: Any = None, *, until_due: bool = False) -> Decision:
        """Decide one round, or n under the frozen version.

        `contexts` is (K, d), (n, K, d) or a list of (K_i, d); `mask` says which arms are there. With
        `until_due` the rounds up to and including the one that ends the batch are decided, and no more.
        """
        rounds = read_rounds(contexts, mask, self.dim)
        if until_due and self._due:
            raise UpdateDue(
                f"until_due asks for rounds of an open batch, but version {self._version}'s batch has ended; "
                "call update() first, or select without until_due to go on under the frozen version."
            )
        learner, covariance = self._learner, self._covariance.fork()
        generator = copy.deepcopy(self._generator) if self._chooser.draws else self._generator
        start, due = self.round, self._due
        now = start
        means, bonuses, arms, chosen = [], [], [], []

        def at_once() -> int:
            most = self._rounds_at_once(rounds)
            if not until_due or self._budget.spent(self._version):
                return most
            growth = covariance.log_det - self._base_log_det
            return min(most, self._budget.lookahead(now, growth, now - self._base_round))

        for part in rounds.parts(at_once):
            assessed = self._assess(part, covariance)
            state = generator.bit_generator.state if self._chooser.draws else None
            picked = assessed.choose(self._chooser, generator)
            rows = part.row_of(picked)
            proposal = covariance.propose(assessed.candidates[rows])
            end = self._first_due(now, proposal.log_dets)
            due = due or end is not None
            keep = len(part) if end is None or not until_due else end + 1
            if state is not None and keep < len(part):
                # As if the rounds after the batch's end had never been drawn for.
                generator.bit_generator.state = state
                generator.random(keep)
            covariance.accept(proposal, keep)
            learner = learner.seen(part.rows_until(keep))
            means.append(assessed.means[:keep])
            bonuses.append(assessed.bonuses[:keep])
            arms.append(picked[:keep])
            chosen.append(part.rows[rows[:keep]])
            now += keep
            if until_due and due:
                break

        arm = np.concatenate(arms)
        numbers = np.arange(start + 1, start + 1 + len(arm))
        decision = Decision(
            arm=int(arm[0]) if rounds.single else arm,
            means=_joined(means, rounds),
            bonuses=_joined(bonuses, rounds),
            version=self._version if rounds.single else np.full(len(arm), self._version),
            round=start + 1 if rounds.single else numbers,
        )
        self._learner, self._covariance, self._generator, self._due = learner, covariance, generator, due
        self._history.add_rounds(np.concatenate(chosen), arm, self._version)
        return decision

    def _assess(self, part: Part, covariance: Covariance) -> _Assessed:
        means, factors = self._learner.assess(part.rows)
        candidates = covariance.measure(factors)
        bonuses = self._radius * np.sqrt(candidates.variances)
        prior = self._radius * np.sqrt(prior_variances(factors, self._ridge))
        return _Assessed(
            part.padded(means), part.padded(bonuses), part.padded(prior), candidates, self._learner.reward_spread
        )

    def _first_due(self, round: int, log_dets: Array) -> int | None:
        if self._budget.spent(self._version):
            return None
        return self._budget.first_due(round, log_dets - self._base_log_det)

    def _rounds_at_once(self, rounds: Rounds) -> int:
        return max(1, self._covariance.block() // rounds.arms)

    # --- learning

    def observe(self, decision: Decision | Any, rewards: Any) -> None:
        """Tell rewards: of a decision, whole or sliced, or of round numbers; now, later, in any order."""
        self._history.observe(decision.round if isinstance(decision, Decision) else decision, rewards)

    def update(self) -> UpdateRecord:
        """Learn from the rewards that are in, and freeze the next version; refused beyond the budget.

        A training that made things worse is rejected: no version is spent, the frozen policy stays, the
        record says why, and the schedule starts afresh from here.
        """
        if self._budget.spent(self._version):
            raise BudgetSpent(
                f"the budget allows {self._budget.batches} versions, and version {self._version} is the last; "
                "go on with select, or plan more batches."
            )
        contexts, rewards = self._history.observed()
        lesson = self._learner.learn(contexts, rewards)
        accepted = not lesson.reason
        covariance, radius = self._covariance, self._radius
        if accepted:
            covariance = self._covariance.fork()
            covariance.freeze()
            radius = radius_at(self._beta, lesson.learner.occasion(self.round + 1, covariance))
            self._learner, self._covariance, self._radius = lesson.learner, covariance, radius
            self._version += 1
        self._due = False
        self._base_round, self._base_log_det = self.round, covariance.log_det
        record = UpdateRecord(
            version=self._version,
            round=self.round,
            accepted=accepted,
            reason=lesson.reason,
            samples=len(rewards),
            missing=self.missing,
            log_det=covariance.log_det,
            beta=radius,
            covariance=covariance.kind,
            jitters=covariance.jitters,
            step_size=lesson.step_size,
            attempts=lesson.attempts,
            initial_loss=lesson.initial_loss,
            final_loss=lesson.final_loss,
        )
        self._updates.append(record)
        return record

    def _start_from_log(self, contexts: Any, rewards: Any) -> Self:
        """Make version 0 a trained one: the log is in the history and in Z, features taken at θ_0."""
        rows, values = read_log(contexts, rewards, self.dim)
        learner, covariance = self._learner.seen(rows).scaled(), self._covariance.fork()
        for start in range(0, len(rows), covariance.block()):
            part = rows[start : start + covariance.block()]
            proposal = covariance.propose(covariance.measure(learner.assess(part)[1]))
            covariance.accept(proposal, len(part))
        lesson = learner.learn(rows, values)
        if lesson.reason:
            raise TrainingRejected(f"version 0 could not be trained on the log: {lesson.reason}.")
        covariance.freeze()
        self._radius = radius_at(self._beta, lesson.learner.occasion(1, covariance))
        self._learner, self._covariance = lesson.learner, covariance
        self._base_log_det = covariance.log_det
        self._history.add_log(rows, values)
        return self

    # --- keeping

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write every number of the state to one file, at any moment; `rarely.load` brings it back."""
        learner_numbers, learner_arrays = self._learner.state()
        covariance_numbers, covariance_arrays = self._covariance.state()
        history_numbers, history_arrays = self._history.state()
        header = {
            "policy": type(self).__name__,
            "settings": self.settings(),
            "beta": describe_beta(self._beta),
            "generator": self._generator.bit_generator.state,
            "version": self._version,
            "due": self._due,
            "base_round": self._base_round,
            "base_log_det": self._base_log_det,
            "radius": self._radius,
            "updates": [record.describe() for record in self._updates],
            "learner": learner_numbers,
            "covariance": covariance_numbers,
            "history": history_numbers,
        }
        arrays = {f"learner.{k}": v for k, v in learner_arrays.items()}
        arrays |= {f"covariance.{k}": v for k, v in covariance_arrays.items()}
        arrays |= {f"history.{k}": v for k, v in history_arrays.items()}
        archive.write(path, header, arrays)

    def _restore(self, header: dict[str, Any], arrays: dict[str, Array]) -> None:
        def part(name: str) -> dict[str, Array]:
            prefix = name + "."
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        self._generator = _generator_from(header["generator"])
        self._version, self._due = header["version"], header["due"]
        self._base_round, self._base_log_det = header["base_round"], header["base_log_det"]
        self._radius = header["radius"]
        self._updates = [UpdateRecord(**record) for record in header["updates"]]
        self._learner = self._learner.restored(header["learner"], part("learner"))
        self._covariance.restore(header["covariance"], part("covariance"))
        self._history.restore(header["history"], part("history"))


@dataclass(frozen=True, slots=True)
class _Assessed:
    """A part's arms, (n, K) each, and the measured features of those that are there."""

    means: Array
    bonuses: Array
    prior_bonuses: Array
    candidates: Candidates
    reward_spread: float

    def choose(self, chooser: Chooser, generator: np.random.Generator) -> Any:
        scores = self.means + self.bonuses
        uniforms = generator.random(len(scores)) if chooser.draws else None
        return chooser(scores, tolerances(scores, self.prior_bonuses, self.reward_spread), uniforms)


def make_generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    """All randomness of a policy comes from here."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)


def _generator_from(state: dict[str, Any]) -> np.random.Generator:
    name = state["bit_generator"]
    if name not in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"):
        raise InvalidInput(f"a saved generator must be one of NumPy's own; got {name!r}.")
    bits = getattr(np.random, name)()
    bits.state = state
    return np.random.Generator(bits)


def _make_covariance(kind: Kind, widths: Widths, ridge: float, budget: Budget, memory_limit: int) -> Covariance:
    horizon = budget.horizon
    limit = Limit(widths, memory_limit, horizon)
    if kind == "auto":
        first_batch = budget.lookahead(0, 0.0, 0)
        if horizon is not None:
            first_batch = min(max(first_batch, horizon // (budget.batches or horizon)), horizon)
        return FORMS["auto"](widths, ridge, limit, first_batch)  # type: ignore[call-arg, return-value]
    limit.check_rounds(kind, horizon or 0)
    return FORMS[kind](widths, ridge, limit)  # type: ignore[return-value]


def _joined(parts: list[Array], rounds: Rounds) -> Array:
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole[0] if rounds.single else whole
