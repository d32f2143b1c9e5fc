"""The flow that every policy shares: select, observe, due, update.

    select    contexts → means and factors → bonuses under the frozen Z → arms; chosen factors → running Z
    observe   rewards, late, out of order, or never
    due       the schedule speaks
    update    learn from the rewards that are in, freeze the next version

Everything fallible happens on forks, and a call takes effect in its last lines: a call that raises has
changed nothing. A policy is used from one thread at a time.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from rarely.core import archive
from rarely.core.assessed import Assessed, Scores, likeliest, whole
from rarely.core.choice import Chooser, drawn
from rarely.core.contexts import Part, Rounds, read_rounds
from rarely.core.covariance import DEFAULT_SKETCH, FORMS, Auto, Candidates, Covariance, ErrorBound, Kind, Limit, Sketch
from rarely.core.covariance.protocol import prior_variances
from rarely.core.draws import Draws, generator_from
from rarely.core.errors import (
    BudgetSpent,
    InvalidContexts,
    InvalidInput,
    TrainingRejected,
    UpdateDue,
    check_positive,
    check_whole,
)
from rarely.core.forgetting import Forgetting, check_forgetting
from rarely.core.history import History, read_log
from rarely.core.learner import Learner, Lesson
from rarely.core.radius import Beta, radius_at
from rarely.core.records import UpdateRecord
from rarely.core.schedules import FAR, Budget, Schedule, schedule_from
from rarely.core.types import Array, Arrays, Decision

Ties = Literal["lowest", "random"]


BOTH_SIDES = 1.959963984540054
"""Standard deviations that leave 2.5 % of a Gaussian on either side."""


class Policy(ABC):
    """A contextual bandit whose policy is frozen between updates, of which there are few."""

    def __init__(
        self,
        learner: Learner,
        *,
        schedule: Schedule,
        covariance: Kind | Sketch,
        ridge: float,
        beta: Beta,
        chooser: Chooser,
        generator: np.random.Generator,
        memory_limit: int,
        forgetting: Forgetting | None = None,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"schedule must be a Schedule, such as FixedGrid(horizon, batches); got {schedule!r}.")
        if not isinstance(covariance, Sketch) and covariance not in FORMS:
            raise InvalidInput(f"covariance must be one of {', '.join(FORMS)}, or a Sketch; got {covariance!r}.")
        check_positive("ridge", ridge, "because Z_1 = ridge·I is inverted")
        check_whole("memory_limit", memory_limit, 1)
        check_forgetting(forgetting)
        self._learner, self._ridge, self._beta, self._chooser = learner, float(ridge), beta, chooser
        self._budget = Budget.around(schedule)
        self._generator = generator
        self._history = History(learner.dim, forgetting)
        self._form: Kind | Sketch = covariance
        self._memory_limit = memory_limit
        self._covariance = self._empty_covariance(self._ahead(0))
        self._version = 0
        self._due = False
        self._base_round, self._base_log_det = 0, 0.0
        self._radius = radius_at(beta, learner.occasion(1, self._covariance))
        self._updates: list[UpdateRecord] = []

    @classmethod
    def from_log(cls, contexts: Any, rewards: Any, *, dim: int | None = None, **settings: Any) -> Self:
        """A policy whose version 0 is already trained on (n, d) logged contexts and their rewards.

        `settings` are the constructor's, and `dim` the log's if it is given. The log counts in Z, with features at the
        initial weights, and in the history, before round 1; the schedule counts from round 1 on. The training is
        the first record of `updates`, with version 0 and round 0.
        """
        rows, values = read_log(contexts, rewards)
        if dim not in (None, rows.shape[1]):
            raise InvalidContexts(f"logged contexts must have shape (n, {dim}), because dim={dim}; got {rows.shape}.")
        make: Any = cls
        policy: Self = make(dim=rows.shape[1], **settings)
        return policy._start_from_log(rows, values)

    # --- what a policy says of itself

    def __repr__(self) -> str:
        stands = f"version {self.version}, round {self.round}, {self.missing} rewards missing"
        return f"<{type(self).__name__}: {stands}{', due' if self.due else ''}>"

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
    def error_bound(self) -> ErrorBound | None:
        """How far bonuses² and log det can be from those of the full Z; None where no bound is known.

        A sketch works it out when asked, in about the time of an update of its matrix.
        """
        return self._covariance.error_bound

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
        """What is on record about each update, rejected ones too; first about version 0, if a log trained it."""
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

    def probabilities(self, contexts: Any, mask: Any = None) -> Array:
        """The probability of every arm under the frozen version, (K,) or (n, K), 0 where no arm is: pure, no round."""
        rounds = read_rounds(contexts, mask, self.dim)
        parts = rounds.parts(lambda: self._rounds_at_once(rounds))
        chances = [self._assess(part, self._covariance).probabilities(self._chooser) for part in parts]
        return _joined(chances, rounds)

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
        draws = Draws(self._generator) if self._chooser.draws else None
        start, due = self.round, self._due
        now = start
        means, bonuses, chances, arms, chosen = [], [], [], [], []

        def at_once() -> int:
            most = self._rounds_at_once(rounds)
            if not until_due or self._budget.spent(self._version):
                return most
            growth = covariance.log_det - self._base_log_det
            return min(most, self._budget.lookahead(now, growth, now - self._base_round))

        for part in rounds.parts(at_once):
            assessed = self._assess(part, covariance)
            probabilities = assessed.probabilities(self._chooser)
            picked = likeliest(probabilities) if draws is None else drawn(probabilities, draws.peek(len(part)))
            rows = part.row_of(picked)
            proposal = covariance.propose(assessed.chosen(rows, covariance))
            end = self._first_due(now, proposal.log_dets)
            due = due or end is not None
            keep = len(part) if end is None or not until_due else end + 1
            if draws is not None:
                draws.keep(keep)
            covariance.accept(proposal, keep)
            learner = learner.seen(part.rows_until(keep), keep)
            means.append(assessed.means[:keep])
            bonuses.append(assessed.bonuses[:keep])
            chances.append(probabilities[:keep])
            arms.append(picked[:keep])
            chosen.append(part.rows[rows[:keep]])
            now += keep
            if until_due and due:
                break

        arm = whole(arms)
        numbers = np.arange(start + 1, start + 1 + len(arm))
        decision = Decision(
            arm=int(arm[0]) if rounds.single else arm,
            means=_joined(means, rounds),
            bonuses=_joined(bonuses, rounds),
            version=self._version if rounds.single else np.full(len(arm), self._version),
            round=start + 1 if rounds.single else numbers,
            probabilities=_joined(chances, rounds),
        )
        self._learner, self._covariance, self._due = learner, covariance, due
        if draws is not None:
            draws.commit()
        known, each = np.empty((len(arm), 3)), np.arange(len(arm))
        for column, of_all in enumerate((chances, means, bonuses)):
            known[:, column] = whole(of_all)[each, arm]
        self._history.add_rounds(whole(chosen), arm, self._version, known)
        return decision

    def _assess(self, part: Part, covariance: Covariance) -> Assessed:
        """Means, bonuses and measured features of a part's arms, in blocks where one round has very many."""
        block = max(covariance.block(), 1)
        pieces = []
        for start in range(0, len(part.rows), block):
            piece = self._measure(part.rows[start : start + block], covariance)
            # Of several blocks only the features are kept: what was solved would fill t numbers an arm.
            pieces.append(piece if len(part.rows) <= block else (*piece[:3], piece[3].unsolved()))
        means, bonuses, priors, candidates = zip(*pieces, strict=True)
        return Assessed(
            means=part.padded(whole(means)),
            bonuses=part.padded(whole(bonuses)),
            prior_bonuses=part.padded(whole(priors)),
            candidates=list(candidates),
            block=block,
            reward_spread=self._learner.reward_spread,
        )

    def _measure(self, rows: Array, covariance: Covariance) -> tuple[Array, Array, Array, Candidates]:
        with np.errstate(over="ignore", invalid="ignore"):
            means, factors = self._learner.assess(rows)
            prior = self._radius * np.sqrt(prior_variances(factors, self._ridge))
        if not (np.isfinite(means).all() and np.isfinite(prior).all()):
            raise InvalidContexts("contexts must be small enough for the features' squared norms to be finite.")
        candidates = covariance.measure(factors)
        return means, self._radius * np.sqrt(candidates.variances), prior, candidates

    def _ahead(self, version: int) -> int:
        """Rounds that a version's batch is known, or on a budget expected, to last at least; 0 if unknown."""
        horizon, batches = self._budget.horizon, self._budget.batches
        left = FAR if horizon is None else max(0, horizon - self.round)
        if self._budget.spent(version):
            return left
        ahead = self._budget.lookahead(self.round, 0.0, 0)
        even = 0 if horizon is None or batches is None else horizon // batches
        return min(left, max(ahead, even))

    def _empty_covariance(self, ahead: int) -> Covariance:
        form, sketch = ("sketched", self._form) if isinstance(self._form, Sketch) else (self._form, DEFAULT_SKETCH)
        limit = Limit(self._learner.widths, self._memory_limit, self._budget.horizon, sketch)
        if form == "auto":
            return Auto(self._learner.widths, self._ridge, limit, ahead)
        limit.check_rounds(form, self._budget.horizon or 0)
        return FORMS[form](self._learner.widths, self._ridge, limit)

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
        coverage, lesson = self._coverage(), self._learner.learn(self._history)
        if not lesson.reason:
            covariance = self._next_covariance(lesson)
            radius = self._next_radius(lesson.learner, covariance, self._version + 1)
            self._learner, self._covariance, self._radius = lesson.learner, covariance, radius
            self._version += 1
        self._due = False
        self._base_round, self._base_log_det = self.round, self._covariance.log_det
        record = self._record_of(lesson, coverage)
        self._updates.append(record)
        return record

    def _record_of(self, lesson: Lesson, coverage: float | None) -> UpdateRecord:
        return UpdateRecord(
            version=self._version,
            round=self.round,
            accepted=not lesson.reason,
            reason=lesson.reason,
            samples=len(self._history.samples().rows),
            missing=self.missing,
            log_det=self._covariance.log_det,
            beta=self._radius,
            covariance=self._covariance.kind,
            jitters=self._covariance.jitters,
            step_size=lesson.step_size,
            attempts=lesson.attempts,
            initial_loss=lesson.initial_loss,
            final_loss=lesson.final_loss,
            steps=lesson.steps,
            skip=lesson.skip,
            tuning=lesson.tuning,
            noise=self._learner.noise,
            coverage=coverage,
        )

    def _coverage(self) -> float | None:
        """How many of this version's rewards lie within two deviations of what it predicted, as `UpdateRecord` says."""
        noise, history = self._learner.noise, self._history
        if noise is None:
            return None
        own = (history.versions == self._version) & ~np.isnan(history.rewards) & ~np.isnan(history.means)
        if not own.any():
            return None
        off = np.abs(history.rewards[own] - history.means[own])
        return float(np.mean(off <= BOTH_SIDES * np.hypot(noise, history.bonuses[own])))

    def _next_covariance(self, lesson: Lesson) -> Covariance:
        """The frozen matrix of the next version: the running one or, where features or weights changed, a new one."""
        ahead = self._ahead(self._version + 1)
        basis = lesson.basis if self._history.forgetting is None else lesson.learner
        if basis is None:
            covariance = self._covariance.fork()
        else:
            contexts, weights = self._history.remembered()
            covariance = self._covariance_of(basis, contexts, weights, ahead)
        covariance.freeze(ahead)
        return covariance

    def _next_radius(self, learner: Learner, covariance: Covariance, version: int) -> float:
        """β of a version that has been trained and decides from the next round on."""
        last = self._budget.spent(version)
        return radius_at(self._beta, replace(learner.occasion(self.round + 1, covariance), last=last))

    def _covariance_of(self, learner: Learner, contexts: Array, weights: Array | None, ahead: int) -> Covariance:
        """λI + Σ w φφᵀ over these contexts, features at the learner's weights."""
        covariance = self._empty_covariance(len(contexts) + ahead)
        for start in range(0, len(contexts), covariance.block()):
            part = slice(start, start + covariance.block())
            factors = learner.assess(contexts[part])[1].weighted(None if weights is None else weights[part])
            covariance.accept(covariance.propose(covariance.measure(factors)), len(factors))
        return covariance

    def _start_from_log(self, rows: Array, values: Array) -> Self:
        """Make version 0 a trained one: the log is in the history and in Z, features taken at θ_0."""
        learner = self._learner.seen(rows, len(rows)).scaled()
        self._history.add_log(rows, values)
        lesson = learner.learn(self._history)
        if lesson.reason:
            raise TrainingRejected(f"version 0 could not be trained on the log: {lesson.reason}.")
        basis = lesson.basis or learner if self._history.forgetting is None else lesson.learner
        contexts, weights = self._history.remembered()
        covariance = self._covariance_of(basis, contexts, weights, self._ahead(0))
        covariance.freeze(self._ahead(0))
        self._radius = self._next_radius(lesson.learner, covariance, version=0)
        self._learner, self._covariance = lesson.learner, covariance
        self._base_log_det = covariance.log_det
        self._updates.append(self._record_of(lesson, coverage=None))
        return self

    # --- keeping

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write every number of the state to one file, at any moment; `rarely.load` brings it back."""
        schedule_from(self._budget.describe())  # a schedule that `load` does not know is refused now
        learner_numbers, learner_arrays = self._learner.state()
        covariance_numbers, covariance_arrays = self._covariance.state()
        history_numbers, history_arrays = self._history.state()
        header = {
            "policy": type(self).__name__,
            "settings": self.settings(),
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

    def _restore(self, header: dict[str, Any], arrays: Arrays) -> None:
        def part(name: str) -> Arrays:
            prefix = name + "."
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        self._generator = generator_from(header["generator"])
        self._version, self._due = header["version"], header["due"]
        self._base_round, self._base_log_det = header["base_round"], header["base_log_det"]
        self._radius = header["radius"]
        self._updates = [UpdateRecord(**record) for record in header["updates"]]
        self._learner = self._learner.restored(header["learner"], part("learner"))
        self._covariance.restore(header["covariance"], part("covariance"))
        self._history.restore(header["history"], part("history"))


def _joined(parts: list[Array], rounds: Rounds) -> Array:
    joined = whole(parts)
    return joined[0] if rounds.single else joined
