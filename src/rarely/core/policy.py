"""The flow that every policy shares: select, observe, due, update.

    select    contexts → means and factors → bonuses under the frozen Z → arms; chosen factors → running Z
    observe   rewards, late, out of order, or never
    due       whether the schedule has ended the batch
    update    learn from the rewards that are in, freeze the next version

Everything that a policy knows is one `PolicyState`. A call computes the next state and ends by assigning it, so a
call that raises or is interrupted has changed nothing. `select`, `observe` and `update` are for one thread at a
time: a second one gets `PolicyBusy`. The others read one state and may be called meanwhile.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import secrets
import threading
import traceback
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from rarely.core import archive
from rarely.core.assessed import Scores, likeliest, whole
from rarely.core.choice import Chooser, drawn
from rarely.core.clock import BatchClock
from rarely.core.contexts import ContextReader, Rounds
from rarely.core.covariance import DEFAULT_SKETCH, FORMS, Auto, Covariance, ErrorBound, Kind, Limit, Sketch
from rarely.core.draws import Draws, Seeded, generator_from
from rarely.core.errors import (
    BudgetSpent,
    InvalidContexts,
    InvalidInput,
    NothingToLearn,
    NothingToLearnWarning,
    PolicyBusy,
    TrainingRejected,
    UpdateDue,
    check_positive,
    check_whole,
)
from rarely.core.forgetting import Forgetting, check_forgetting
from rarely.core.frozen import FrozenPolicy
from rarely.core.history import History, read_log
from rarely.core.learner import Learner, Lesson
from rarely.core.radius import Beta, radius_at
from rarely.core.records import UpdateRecord
from rarely.core.schedules import Budget, Schedule, schedule_from
from rarely.core.types import Array, Arrays, Decision, IntArray

Ties = Literal["lowest", "random"]


BOTH_SIDES = 1.959963984540054
"""Standard deviations that leave 2.5 % of a Gaussian on either side."""


@dataclass(frozen=True, slots=True)
class PolicyState:
    """All that a policy knows at one moment."""

    frozen: FrozenPolicy
    clock: BatchClock
    history: History
    random: Any
    """The place of the policy's generator in its stream."""
    reader: ContextReader
    """What contexts have looked like so far."""
    updates: tuple[UpdateRecord, ...] = ()
    learned: int = 0
    """Rewards that were in at the last accepted update."""


class Chosen(NamedTuple):
    """Some consecutive rounds as they were decided."""

    means: Array
    bonuses: Array
    probabilities: Array
    arms: IntArray
    contexts: Array
    """(n, d): those of the chosen arms."""


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
        seed: Seeded,
        memory_limit: int,
        forgetting: Forgetting | None = None,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"schedule must be a Schedule, such as FixedGrid(horizon, batches); got {schedule!r}.")
        if not isinstance(covariance, Sketch | str) or (isinstance(covariance, str) and covariance not in FORMS):
            raise InvalidInput(f"covariance must be one of {', '.join(FORMS)}, or a Sketch; got {covariance!r}.")
        check_positive("ridge", ridge, "because Z_1 = ridge·I is inverted")
        check_whole("memory_limit", memory_limit, 1)
        check_forgetting(forgetting)
        self._beta: Beta = beta
        self._form: Kind | Sketch = covariance
        self._memory_limit, self._seed = memory_limit, seed.setting
        self._scratch = seed.generator
        clock = BatchClock(Budget.around(schedule))
        empty = self._empty_covariance(learner, float(ridge), clock.budget.horizon, clock.rounds_ahead(0, 0))
        radius = radius_at(beta, learner.occasion(1, empty))
        self._state = PolicyState(
            FrozenPolicy(learner, empty, radius, float(ridge), chooser),
            clock,
            History(learner.dim, forgetting),
            seed.generator.bit_generator.state,
            ContextReader(learner.dim, learner.fits_scale),
        )
        self._begin_life()

    def _begin_life(self) -> None:
        self._life, self._lock, self._holder = secrets.token_hex(8), threading.Lock(), 0

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
        policy._start_from_log(rows, values, contexts)
        return policy

    # --- identity

    def __repr__(self) -> str:
        stands = f"version {self.version}, round {self.round}, {self.missing} rewards missing"
        return f"<{type(self).__name__}: {stands}{', due' if self.due else ''}>"

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON, the seed included: `type(policy)(**policy.settings())` starts anew.

        A `beta` that is a function cannot be JSON: give it again beside the others.
        """

    def fingerprint(self) -> str:
        """A SHA-256 over settings and state: equal for equal policies, in every process and after every file.

        The lives of the policy (see `Decision.life`) are no part of it, nor are the names of the loops that trained.
        """
        header, arrays = self._content(self._state)
        header["updates"] = [{k: v for k, v in update.items() if k != "loops"} for update in header["updates"]]
        header["history"] = {name: value for name, value in header["history"].items() if name != "lives"}
        digest = hashlib.sha256(json.dumps(header, sort_keys=True, default=archive.plain).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __copy__(self) -> Self:
        # A shallow copy would write into the rows of the original.
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: all but the lock and the life, which the copy begins anew."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_holder", "_life")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_life()

    @property
    def dim(self) -> int:
        """Numbers in a context."""
        return self._learner.dim

    @property
    def schedule(self) -> Schedule:
        """The schedule, under its budget."""
        return self._state.clock.budget

    @property
    def version(self) -> int:
        """The frozen policy in use, 0 … B−1."""
        return self._state.clock.version

    @property
    def round(self) -> int:
        """Rounds decided so far; the next decision is round + 1."""
        return self._state.history.rounds

    @property
    def due(self) -> bool:
        """Whether the schedule has ended the batch; stays so until `update`."""
        return self._state.clock.due

    @property
    def log_det(self) -> float:
        """log det Z_t − log det λI of the running Z."""
        return self._covariance.log_det

    @property
    def beta(self) -> float:
        """The radius of the version in use."""
        return self._state.frozen.radius

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
        return self._state.history.missing

    @property
    def history(self) -> History:
        """Chosen contexts, arms, versions and rewards, as they stand now."""
        return self._state.history

    @property
    def updates(self) -> tuple[UpdateRecord, ...]:
        """What is on record about each update, rejected ones too; first about version 0, if a log trained it."""
        return self._state.updates

    @property
    def _learner(self) -> Learner:
        return self._state.frozen.learner

    @property
    def _covariance(self) -> Covariance:
        return self._state.frozen.covariance

    def _own_lock(self) -> threading.Lock:
        """The lock of a call that changes the policy, refused at once while another thread's is under way."""
        # Waiting would be correct too, but would hide that threads share a policy.
        if self._lock.locked():
            if self._holder != threading.get_ident() or self._calls_under_way() > 1:
                raise PolicyBusy(
                    "select, observe and update must be called by one thread at a time; another call on this policy is "
                    "under way. Put a lock around the policy, or give every thread a policy of its own."
                )
            self._lock = threading.Lock()  # an interrupt came between the end of a call and the release of its lock
        self._holder = threading.get_ident()
        return self._lock

    def _calls_under_way(self) -> int:
        """How many calls of this thread are changing the policy, the one that asks included."""
        codes = {getattr(Policy, name).__code__ for name in ("select", "observe", "update")}
        frames = (frame for frame, _ in traceback.walk_stack(None))
        return sum(frame.f_code in codes and frame.f_locals.get("self") is self for frame in frames)

    # --- deciding

    def score(self, contexts: Any, mask: Any = None) -> Scores:
        """Means and bonuses under the frozen version: pure, no round."""
        state = self._state
        rounds = state.reader.read(contexts, mask)
        parts = rounds.parts(lambda: _at_once(state.frozen, rounds))
        assessed = [state.frozen.facing(part).assess(part) for part in parts]
        return Scores(_joined([a.means for a in assessed], rounds), _joined([a.bonuses for a in assessed], rounds))

    def probabilities(self, contexts: Any, mask: Any = None) -> Array:
        """The probability of every arm under the frozen version, (K,) or (n, K), 0 where no arm is: pure, no round."""
        state = self._state
        rounds = state.reader.read(contexts, mask)
        parts = rounds.parts(lambda: _at_once(state.frozen, rounds))
        chances = [state.frozen.facing(part).assess(part).probabilities(state.frozen.rule) for part in parts]
        return _joined(chances, rounds)

    def select(self, contexts: Any, mask: Any = None, *, until_due: bool = False) -> Decision:
        """Decide one round, or n under the frozen version.

        `contexts` is (K, d), (n, K, d) or a list of (K_i, d); `mask` says which arms are there. With
        `until_due` the rounds up to and including the one that ends the batch are decided, and no more.
        """
        with self._own_lock():
            state, decision = self._decided(self._state, contexts, mask, until_due)
            self._state = state
        return decision

    def _decided(self, state: PolicyState, contexts: Any, mask: Any, until_due: bool) -> tuple[PolicyState, Decision]:
        """The state after these rounds, and their decision."""
        rounds = state.reader.read(contexts, mask)
        reader = state.reader.after(contexts, rounds)
        if until_due and state.clock.due:
            raise UpdateDue(
                f"until_due asks for rounds of an open batch, but version {state.clock.version}'s batch has ended; "
                "call update() first, or select without until_due to go on under the frozen version."
            )
        frozen, clock, history = state.frozen.fork(), state.clock, state.history
        draws = Draws(self._scratch, state.random) if frozen.rule.draws else None
        done: list[Chosen] = []
        now = history.rounds

        def at_once() -> int:
            most = 1 if frozen.learner.follows else _at_once(frozen, rounds)
            return min(most, clock.lookahead(now, frozen.covariance.log_det)) if until_due else most

        for part in rounds.parts(at_once):
            frozen = frozen.facing(part)
            assessed, covariance = frozen.assess(part), frozen.covariance
            probabilities = assessed.probabilities(frozen.rule)
            arms = likeliest(probabilities) if draws is None else drawn(probabilities, draws.peek(len(part)))
            rows = part.row_of(arms)
            if frozen.learner.follows:
                learner = frozen.learner.seen(part.rows, 1)
                chosen = np.concatenate([history.contexts, *(each.contexts for each in done), part.rows[rows]])
                frozen = replace(frozen, learner=learner, covariance=self._covariance_of(learner, state, chosen))
                keep, end = 1, clock.first_due(now, np.array([frozen.covariance.log_det]))
            else:
                proposal = covariance.propose(assessed.chosen(rows, covariance))
                end = clock.first_due(now, proposal.log_dets)
                keep = len(part) if end is None or not until_due else end + 1
                covariance.accept(proposal, keep)
                frozen = frozen.with_learner(frozen.learner.seen(part.rows_until(keep), keep))
            if end is not None:
                clock = clock.ended()
            if draws is not None:
                draws.keep(keep)
            done.append(
                Chosen(
                    assessed.means[:keep],
                    assessed.bonuses[:keep],
                    probabilities[:keep],
                    arms[:keep],
                    part.rows[rows[:keep]],
                )
            )
            now += keep
            if until_due and clock.due:
                break

        means, bonuses, probabilities, arms, chosen = _together(done)
        each = np.arange(len(arms))
        known = np.empty((len(arms), 3))
        for column, array in enumerate((probabilities, means, bonuses)):
            known[:, column] = array[each, arms]
        history = history.with_rounds(chosen, arms, clock.version, known, self._life)
        random = state.random if draws is None else draws.state
        after = PolicyState(frozen, clock, history, random, reader, state.updates, state.learned)
        start = now - len(arms) + 1
        return after, Decision(
            arm=int(arms[0]) if rounds.single else arms,
            means=means[0] if rounds.single else means,
            bonuses=bonuses[0] if rounds.single else bonuses,
            version=clock.version if rounds.single else np.full(len(arms), clock.version),
            round=start if rounds.single else np.arange(start, start + len(arms)),
            probabilities=probabilities[0] if rounds.single else probabilities,
            life=self._life,
        )

    def _empty_covariance(self, learner: Learner, ridge: float, horizon: int | None, ahead: int) -> Covariance:
        form, sketch = ("sketched", self._form) if isinstance(self._form, Sketch) else (self._form, DEFAULT_SKETCH)
        limit = Limit(learner.widths, self._memory_limit, horizon, sketch)
        if form == "auto":
            return Auto(learner.widths, ridge, limit, ahead)
        limit.check_rounds(form, horizon or 0)
        return FORMS[form](learner.widths, ridge, limit)

    # --- learning

    def observe(
        self, decision: Decision | None = None, rewards: Any = None, *, rounds: Any = None, ids: Any = None
    ) -> None:
        """Tell rewards: of a decision, whole or sliced; now, later, in any order.

        A decision is compared with the one on record, and refused if this policy did not make it or has lost it
        in a crash. Where the decision itself is not at hand, `ids=` takes what `decision.id` gave, which is as safe and
        survives a restart. `rounds=` takes bare round numbers: nothing is compared, and after a crash the number of
        a lost decision belongs to a later one, so use it only where that cannot happen.
        """
        if decision is not None and not isinstance(decision, Decision):
            raise InvalidInput(
                f"observe takes the decision that select gave, and its rewards; got {type(decision).__name__}. For "
                "decisions that are not at hand: observe(ids=decision_ids, rewards=…), or observe(rounds=…, rewards=…)."
            )
        if sum(given is not None for given in (decision, rounds, ids)) != 1:
            raise InvalidInput("observe takes one of decision, rounds= and ids=, and the rewards that belong to it.")
        with self._own_lock():
            state = self._state
            if decision is not None:
                history = state.history.with_rewards_of(decision, rewards)
            elif ids is not None:
                history = state.history.with_rewards_by_id(ids, rewards)
            else:
                history = state.history.with_rewards(rounds, rewards)
            self._state = replace(state, history=history)

    def update(self, *, force: bool = False) -> UpdateRecord:
        """Learn from the rewards that are in, and freeze the next version; refused beyond the budget.

        A training that made things worse is rejected: no version is spent, the frozen policy stays, the
        record says why, and the schedule starts afresh from here. The same holds, with a `NothingToLearnWarning`, where
        an update is due and no reward came since the last; an update that is not due is then refused. With `force` it
        takes place: the bonuses then know the rounds since, and a policy that tunes itself judges its candidates by
        further held-out rewards.
        """
        with self._own_lock():
            state, record = self._updated(self._state, force)
            self._state = state
        return record

    def _updated(self, state: PolicyState, force: bool) -> tuple[PolicyState, UpdateRecord]:
        """The state after an update, and its record."""
        clock, history, learner = state.clock, state.history, state.frozen.learner
        if clock.spent:
            raise BudgetSpent(
                f"the budget allows {clock.budget.batches} versions, and version {clock.version} is the last; "
                "go on with select, or plan more batches."
            )
        lesson = (None if force else self._nothing_new(state)) or learner.learn(history)
        frozen, version = state.frozen, clock.version
        if not lesson.reason:
            version += 1
            covariance = self._next_covariance(state, lesson)
            radius = self._next_radius(clock, history, lesson.learner, covariance, version)
            frozen = replace(frozen, learner=lesson.learner, covariance=covariance, radius=radius)
        clock = clock.restarted(history.rounds, frozen.covariance.log_det, version)
        learned = state.learned if lesson.reason else history.arrived
        after = replace(state, frozen=frozen, clock=clock, learned=learned)
        record = _record_of(after, lesson, _coverage(state))
        return replace(after, updates=(*state.updates, record)), record

    def _nothing_new(self, state: PolicyState) -> Lesson | None:
        """A rejected lesson where no reward came since the last update."""
        if state.history.arrived > state.learned:
            return None
        since = "since the last update" if state.learned else "so far"
        reason = f"no reward came {since}"
        if not state.clock.due:
            raise NothingToLearn(
                f"an update must have something to learn from, and {reason}: it would spend a version of the budget "
                "for nothing. Call observe first, or update(force=True)."
            )
        warnings.warn(
            f"an update was due, but {reason}, so it was skipped: the version in use goes on, and no version of the "
            "budget is spent. Tell rewards with observe.",
            NothingToLearnWarning,
            stacklevel=4,
        )
        return Lesson(state.frozen.learner, reason)

    def _next_covariance(self, state: PolicyState, lesson: Lesson) -> Covariance:
        """The frozen matrix of the next version: the running one or, where features or weights changed, a new one."""
        clock, history = state.clock, state.history
        ahead = clock.rounds_ahead(history.rounds, clock.version + 1)
        basis = lesson.basis if history.forgetting is None else lesson.learner
        if basis is None:
            covariance = state.frozen.covariance.fork()
        else:
            covariance = self._covariance_of(basis, state, *history.remembered(), ahead=ahead)
        covariance.freeze(ahead)
        return covariance

    def _next_radius(
        self, clock: BatchClock, history: History, learner: Learner, covariance: Covariance, version: int
    ) -> float:
        """β of a version that has been trained and decides from the next round on."""
        occasion = learner.occasion(history.rounds + 1, covariance)
        return radius_at(self._beta, replace(occasion, last=clock.budget.spent(version)))

    def _covariance_of(
        self, learner: Learner, state: PolicyState, contexts: Array, weights: Array | None = None, *, ahead: int = 0
    ) -> Covariance:
        """λI + Σ w φφᵀ over these contexts, features at the learner's weights."""
        horizon = state.clock.budget.horizon
        covariance = self._empty_covariance(learner, state.frozen.ridge, horizon, len(contexts) + ahead)
        for start in range(0, len(contexts), covariance.block()):
            part = slice(start, start + covariance.block())
            factors = learner.assess(contexts[part])[1].weighted(None if weights is None else weights[part])
            covariance.accept(covariance.propose(covariance.measure(factors)), len(factors))
        return covariance

    def _start_from_log(self, rows: Array, values: Array, contexts: Any) -> None:
        """Make version 0 a trained one: the log is in the history and in Z, features taken at θ_0."""
        state, clock = self._state, self._state.clock
        learner = state.frozen.learner.seen(rows, len(rows)).scaled()
        history = state.history.with_log(rows, values)
        lesson = learner.learn(history)
        if lesson.reason:
            raise TrainingRejected(f"version 0 could not be trained on the log: {lesson.reason}.")
        basis = lesson.basis or learner if history.forgetting is None else lesson.learner
        ahead = clock.rounds_ahead(0, 0)
        covariance = self._covariance_of(basis, state, *history.remembered(), ahead=ahead)
        covariance.freeze(ahead)
        radius = self._next_radius(clock, history, lesson.learner, covariance, version=0)
        after = replace(
            state,
            frozen=replace(state.frozen, learner=lesson.learner, covariance=covariance, radius=radius),
            clock=clock.restarted(0, covariance.log_det, 0),
            history=history,
            reader=state.reader.after_log(contexts),
            learned=history.arrived,
        )
        self._state = replace(after, updates=(_record_of(after, lesson, coverage=None),))

    # --- saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write every number of the state to one file, at any moment; `rarely.load` brings it back."""
        schedule_from(self.schedule.describe())  # a schedule that `load` does not know is refused now
        archive.write(path, *self._content(self._state))

    def _content(self, state: PolicyState) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a saved policy."""
        learner_numbers, learner_arrays = state.frozen.learner.state()
        covariance_numbers, covariance_arrays = state.frozen.covariance.state()
        history_numbers, history_arrays = state.history.state()
        header = {
            "policy": type(self).__name__,
            "settings": self.settings(),
            "generator": state.random,
            "version": state.clock.version,
            "due": state.clock.due,
            "base_round": state.clock.base_round,
            "base_log_det": state.clock.base_log_det,
            "radius": state.frozen.radius,
            "updates": [record.describe() for record in state.updates],
            "learned": state.learned,
            "reader": state.reader.describe(),
            "learner": learner_numbers,
            "covariance": covariance_numbers,
            "history": history_numbers,
        }
        arrays = {f"learner.{k}": v for k, v in learner_arrays.items()}
        arrays |= {f"covariance.{k}": v for k, v in covariance_arrays.items()}
        arrays |= {f"history.{k}": v for k, v in history_arrays.items()}
        return header, arrays

    def _restore(self, header: dict[str, Any], arrays: Arrays) -> None:
        def part(name: str) -> Arrays:
            prefix = name + "."
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        state = self._state
        self._seed = header["settings"].get("seed")  # files of version 0.1 do not tell it
        self._scratch = generator_from(header["generator"])
        frozen, history = state.frozen, state.history.restored(header["history"], part("history"))
        frozen.covariance.restore(header["covariance"], part("covariance"))
        learner = frozen.learner.restored(header["learner"], part("learner"))
        updates = tuple(UpdateRecord(**record) for record in header["updates"])
        # Version 0.1 did not keep how many rewards the last update had.
        learned = header.get("learned", updates[-1].samples if updates else 0)
        clock = BatchClock(
            state.clock.budget, header["version"], header["due"], header["base_round"], header["base_log_det"]
        )
        self._state = PolicyState(
            replace(frozen, learner=learner, radius=header["radius"]),
            clock,
            history,
            header["generator"],
            ContextReader.restored(learner.dim, learner.fits_scale, header.get("reader", {})),
            updates,
            learned,
        )


def _at_once(frozen: FrozenPolicy, rounds: Rounds) -> int:
    """Rounds that are well decided at a time."""
    return max(1, frozen.covariance.block() // rounds.arms)


def _joined(parts: list[Array], rounds: Rounds) -> Array:
    joined = whole(parts)
    return joined[0] if rounds.single else joined


def _together(done: list[Chosen]) -> Chosen:
    """All rounds of a call in order."""
    return done[0] if len(done) == 1 else Chosen(*(np.concatenate(arrays) for arrays in zip(*done, strict=True)))


def _coverage(state: PolicyState) -> float | None:
    """How many of this version's rewards lie within two deviations of what it predicted, as `UpdateRecord` says."""
    noise, history = state.frozen.learner.noise, state.history
    if noise is None:
        return None
    rewards, means = history.rewards, history.means
    own = (history.versions == state.clock.version) & ~np.isnan(rewards) & ~np.isnan(means)
    if not own.any():
        return None
    off = np.abs(rewards[own] - means[own])
    return float(np.mean(off <= BOTH_SIDES * np.hypot(noise, history.bonuses[own])))


def _record_of(state: PolicyState, lesson: Lesson, coverage: float | None) -> UpdateRecord:
    covariance = state.frozen.covariance
    return UpdateRecord(
        version=state.clock.version,
        round=state.history.rounds,
        accepted=not lesson.reason,
        reason=lesson.reason,
        samples=state.history.counted,
        missing=state.history.missing,
        log_det=covariance.log_det,
        beta=state.frozen.radius,
        covariance=covariance.kind,
        jitters=covariance.jitters,
        step_size=lesson.step_size,
        attempts=lesson.attempts,
        initial_loss=lesson.initial_loss,
        final_loss=lesson.final_loss,
        steps=lesson.steps,
        skip=lesson.skip,
        tuning=lesson.tuning,
        rescaled=lesson.rescaled,
        noise=state.frozen.learner.noise,
        coverage=coverage,
        loops=lesson.loops,
    )
