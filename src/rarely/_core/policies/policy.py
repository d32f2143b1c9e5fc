"""The flow that every policy shares: select, observe, due, update.

    select    contexts → means and factors → bonuses under the frozen Z (or the running one) → arms → running Z
    observe   rewards, late, out of order, or never
    due       whether the schedule has ended the batch
    update    learn from the rewards that are in, freeze the next version

Everything that a policy knows is one `PolicyState`. A call computes the next state and ends by assigning it, so a
call that raises or is interrupted has changed nothing. `select`, `observe` and `update` are for one thread at a
time: a second one gets `PolicyBusy`. The others read one state and may be called meanwhile.

Numbers of any size are accepted, so sums may overflow: what is not finite is looked for where it matters, and NumPy's
own warnings are off during a call.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import secrets
import threading
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from rarely._core.choice.confidence_radius import radius_at
from rarely._core.choice.random_stream import RandomPlace, Seed, Seeded, seeded
from rarely._core.choice.rules import ChoiceRule, rule_from
from rarely._core.covariance import Covariance, CovarianceFactory, Kind
from rarely._core.errors import (
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    PolicyBusy,
    check_choice,
    check_flag,
    check_whole,
    named_arguments,
    shown,
)
from rarely._core.growable_array import changed
from rarely._core.inputs.contexts import ContextReader, RoundContexts
from rarely._core.inputs.forgetting import Discount, Window
from rarely._core.inputs.history import History, Late, read_log, read_rewards
from rarely._core.inputs.worth import with_worth
from rarely._core.policies import ceilings
from rarely._core.policies import update as updates
from rarely._core.policies.ceilings import Ceiling, Ledger, Shares
from rarely._core.policies.compaction import compacted, compacted_after_update
from rarely._core.policies.compiled_step import CompiledStep, by_kernels
from rarely._core.policies.covariance_change import change_covariance
from rarely._core.policies.learner import Learner, ScoreOverride
from rarely._core.policies.monitor import announce, log_update, warn_overdue
from rarely._core.policies.options import Limits
from rarely._core.policies.saving import POLICIES, content_of, decoded, encoded
from rarely._core.policies.select import Scores, decide, require_open, scores_of
from rarely._core.policies.slates import check_slots, plain_slate, require_arms, slate_at_once, slot_rewards
from rarely._core.policies.state import BatchClock, PolicyEvent, PolicyState, UpdateRecord, Version, WithinBatch
from rarely._core.policies.update import UpdateJob, UpdateResult
from rarely._core.reading import read_whole
from rarely._core.saving.fields import plain
from rarely._core.schedules import Budget, Schedule, schedule_from
from rarely._core.training.watch import Progress
from rarely._core.types import Array, Arrays, Decision, forwarded

Ties = Literal["lowest", "random"]
# What holds where a policy has no such argument.
_USUAL: dict[str, Any] = {"covariance": "exact", "ridge": 1.0, "beta": 0.0}
_USUAL |= {"within_batch": "frozen", "forgetting": None, "exploration": None}
SHOWN_UPDATES = 8  # updates in the table that a notebook shows, the last ones
_LEARNS = "observe(decision, reward) takes rewards, update() learns from them, and from_log(…) starts from a log."
_DECIDES = (
    "select(contexts) decides a round, score(contexts) returns means and bonuses, probabilities(contexts) chances."
)
_ELSEWHERE = {
    **dict.fromkeys(("fit", "partial_fit", "train", "learn"), _LEARNS),
    **dict.fromkeys(("predict", "predict_proba", "pull", "act", "choose", "recommend"), _DECIDES),
}
"""What the calls of other libraries are here."""


class Policy(ABC):
    """A contextual bandit whose policy is frozen between updates, of which there are few.

    A subclass gives its constructor a `Learner`, its arguments by their names, and a rule;
    `rarely.testing.check_policy` checks the promises.

    Examples
    --------
    >>> from rarely import LinUCB, Policy
    >>> policy = LinUCB(dim=1, seed=0)
    >>> isinstance(policy, Policy)
    True
    >>> decision = policy.select([[1.0], [2.0]])
    >>> policy.observe(decision, 0.5)
    >>> policy.due, policy.update().version
    (True, 1)
    """

    _plotter: ClassVar[Callable[..., Any]]  # set by the front door: the core knows nothing of figures
    _packed: Callable[[Any], Any] = staticmethod(lambda contexts: contexts)
    """Returns contexts of another form, which a model of the user's may have, as rows of numbers."""
    _settings: dict[str, Any]
    """The constructor's arguments; `settings` has form, limits and seed as they are now."""
    _fixed: ClassVar[tuple[str, ...]] = ()  # arguments of its base that a subclass fixes, and does not take

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        POLICIES.add(cls)
        if "__init__" in vars(cls):
            named_arguments(cls, decoded)

    def __init__(
        self,
        learner: Learner,
        settings: dict[str, Any],
        rule: ChoiceRule,
        *,
        limits: Limits,
        seed: Seed | Seeded = None,
        factory: Callable[..., CovarianceFactory] = CovarianceFactory,
        override: ScoreOverride | None = None,
        **instead: Any,
    ) -> None:
        """`settings` are the constructor's arguments, of which some may have another value `instead` where they act."""
        self._settings, use = settings, _USUAL | settings | instead
        schedule, forgetting, within_batch = use["schedule"], use["forgetting"], use["within_batch"]
        if not isinstance(schedule, Schedule):
            raise InvalidInput(
                "schedule must say when to update, as Paced(horizon, batches) does for a budget of updates, and "
                f"OnDemand() for updates when you call them; got {shown(schedule)}."
            )
        if forgetting is not None and not isinstance(forgetting, Window | Discount):
            raise InvalidInput(
                f"forgetting must be a Window(rounds), a Discount(factor) or None; got {shown(forgetting)}."
            )
        check_choice("within_batch", within_batch, WithinBatch)
        clock = BatchClock(Budget.around(schedule), rescues=within_batch == "running")
        bounds: Any = limits.with_defaults()
        self._limits = bounds
        horizon = clock.budget.horizon
        form, ridge, self._beta = use["covariance"], use["ridge"], use["beta"]
        self._factory = factory(form, ridge, limits.memory, horizon, bounds.operations, limits.arms)
        seed = seed if isinstance(seed, Seeded) else seeded(seed)
        self._seed, self._scratch = seed.setting, seed.generator
        empty = self._factory.empty(learner.widths, ahead=clock.rounds_ahead(0, 0))
        radius = radius_at(self._beta, learner.version_stats(1, empty))
        self._state = PolicyState(
            Version(learner, empty, radius, rule_from(rule, use["exploration"]), within_batch, override),
            clock,
            History(learner.dim, forgetting),
            RandomPlace(seed.generator.bit_generator.state),
            ContextReader(learner.dim, learner.fits_scale, missing=learner.takes_missing),
        )
        self._begin_life()

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON, with which `type(policy)(**policy.settings())` starts anew.

        A `beta` that is a function cannot be JSON: give it again beside the others.
        """
        form = {"covariance": self._factory.form} if "covariance" in self._settings else {}
        now = encoded(self._settings | form | {"limits": self._limits, "seed": self._seed})
        return {name: value for name, value in now.items() if name not in self._fixed}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return `settings()`, by the name that scikit-learn has for it; `sklearn.base.clone` starts anew with them."""
        return self.settings()

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.settings())

    @classmethod
    def from_log(cls, contexts: Any, rewards: Any, *, dim: int | None = None, **settings: Any) -> Self:
        """Return a policy whose version 0 is already trained on (n, d) logged contexts and their rewards.

        `settings` are the constructor's, and `dim` the log's if it is given. Rows and rewards go together by position:
        of a frame and a Series, the indexes must be the same. The log counts in Z, with features at the
        initial weights, and in the history, before round 1; the schedule counts from round 1 on. The training is
        the first record of `updates`, with version 0 and round 0.
        """
        check_whole("dim", dim, 1, besides=(None,))
        rows, values = read_log(contexts, rewards)
        if dim not in (None, rows.shape[1]):
            raise InvalidContexts(f"logged contexts must have shape (n, {dim}), because dim={dim}; got {rows.shape}.")
        make: Any = cls
        policy: Self = make(dim=rows.shape[1], **settings)
        if np.isinf(rows).any() or not (policy._learner.takes_missing or np.isfinite(rows).all()):
            raise InvalidContexts("logged contexts must be finite; drop or fill in the rows that are not.")
        with np.errstate(all="ignore"):
            state = updates.start_from_log(policy._state, policy._factory, policy._beta, rows, values)
        policy._state = replace(state, reader=state.reader.after_log(contexts))
        return policy

    # --- deciding

    def score(self, contexts: Any, mask: Any = None) -> Scores:
        """Return each arm's mean and bonus under the current Z, without recording a decision.

        Both are (K,) or (n, K), NaN for an absent arm; `contexts` and `mask` are those of `select`.

        >>> from rarely import LinUCB
        >>> LinUCB(dim=1, intercept=False).score([[1.0], [3.0]]).bonuses
        array([1., 3.])
        """
        return Scores(*self._scores(contexts, mask, chances=False)[:2])

    def probabilities(self, contexts: Any, mask: Any = None, *, worth: Any = None, user: str | None = None) -> Array:
        """Return the probability of every arm under the current Z, without recording a decision.

        They are (K,) or (n, K), 0 for an absent arm; all arguments are those of `select`.

        >>> from rarely import LinUCB, Mixture
        >>> LinUCB(dim=1, exploration=Mixture(0.2)).probabilities([[1.0], [3.0]])
        array([0.1, 0.9])
        """
        if self._state.ledger is None:
            return np.asarray(self._scores(contexts, mask, chances=True, worth=worth)[2])
        state, who = self._state, ceilings.check_user(user, self._state.ledger)
        rounds, ledger = self._read(contexts, mask, worth), state.ledger.at(self.round + 1)
        out = np.zeros(rounds.present.shape)
        for i in range(len(rounds)):
            ready, left, *_ = ceilings.within_limits(state, rounds.alone(i), who, ledger)
            with np.errstate(all="ignore"):
                out[i] = scores_of(ready.current.fork(), left, chances=True)[2, 0]
        return out[0] if rounds.single else out

    def _scores(self, contexts: Any, mask: Any, *, chances: bool, worth: Any = None) -> Array:
        """Return mean and bonus of every arm, and with `chances` its probability: (2 or 3, K) or (2 or 3, n, K)."""
        state, rounds = self._state, self._read(contexts, mask, worth)
        # In room of its own, because other threads may ask at the same time.
        scores = None if self._step is None else CompiledStep().scores(state, rounds, self._factory)
        if scores is None:
            with np.errstate(all="ignore"):  # what is not finite is refused
                scores = scores_of(state.current.fork(), rounds, chances=chances)
        return scores[:, 0] if rounds.single else scores

    def select(
        self,
        contexts: Any,
        mask: Any = None,
        *,
        worth: Any = None,
        slots: int | None = None,
        user: str | list[str | None] | None = None,
        until_due: bool = False,
    ) -> Decision:
        """Decide one round, or n under the same version.

        Returns arms, means, bonuses and probabilities. Keep it, or its `id`, for `observe`. Raises `InvalidContexts` if
        shapes, kinds or column names do not fit, or a number is not finite, and `UpdateDue` if `until_due` is set and
        the batch has ended already.

        Parameters
        ----------
        contexts
            (K, d) for one round of K arms, (n, K, d) for n rounds, or a list of (K_i, d) where rounds differ in their
            arms. Arrays, lists and data frames are accepted; a frame's column names are kept and compared.
        mask
            (K,) or (n, K): which arms are available; all of them without it.
        worth
            What outcomes are worth in this round: a `Worth`, or its gain alone. The policy learns outcomes, and chooses
            by ``u·mean + |u|·bonus − v``.
        slots
            How many arms a round shows, in order: slots are filled in turn, each a round of its own with the arms that
            are left. `contexts` may then be a function of the slot (from 0) and of the arms above that returns (K, d).
            See `observe` for the rewards of a slate, whose `Decision.slate` is the round of its first slot.
        user
            The id of the user, where `Shares` hold users out or let them keep an arm; a list of them for n rounds.
        until_due
            Decide the rounds up to and including the one that ends the batch, and no more.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> policy = LinUCB(dim=2, seed=0)
        >>> policy.select([[1.0, 0.0], [0.0, 2.0]]).arm
        1
        """
        with self._single_caller():
            before, step, done = self._state, self._step, None
            if step is not None and mask is None and slots is None and user is None and not until_due:
                done = step.decide_again(before, self._packed(contexts), worth, self._scratch, self._life)
            after, decision = done or self._decide(contexts, mask, worth, user, slots=slots, until_due=until_due)
            if after.clock.due and not until_due:
                warn_overdue(before, after)
            self._state = after if after.ledger is None else ceilings.repriced_in_time(after)
        return decision

    def _read(self, contexts: Any, mask: Any, worth: Any) -> RoundContexts:
        rounds, ledger = self._state.reader.read(self._packed(contexts), mask), self._state.ledger
        return rounds if worth is None else with_worth(rounds, worth, ceiling=ledger is not None)

    def _decide(
        self, contexts: Any, mask: Any, worth: Any, user: Any, *, slots: int | None = None, until_due: bool = False
    ) -> tuple[PolicyState, Decision]:
        """Return the state after some rounds, and their decision: one by one where each changes what is left."""
        state, decisions = self._state, list[Decision]()
        who = None if user is None is state.ledger else ceilings.check_user(user, state.ledger)
        count = None if slots is None else check_slots(slots, until_due)

        def decide_one(before: PolicyState, one: RoundContexts) -> tuple[PolicyState, Decision]:
            if before.ledger is None:
                return self._decide_freely(before, one, before.reader, self._step)
            # The plain way where shares change the rule: a record that is followed by one rule then has the same bits.
            step = None if before.ledger.shares.floors or before.ledger.shares.holdout else self._step
            each = who[len(decisions)] if isinstance(who, list) else who
            return ceilings.decide_within(
                before, one, each, lambda now, left: self._decide_freely(now, left, now.reader, step)
            )

        if count is not None and callable(contexts):
            make: Any = contexts
            return plain_slate(state, lambda *above: self._read(make(*above), mask, worth), count, decide_one)
        rounds = self._read(contexts, mask, worth)
        reader = state.reader.after(contexts, rounds)
        if until_due:
            require_open(state)
        if count is None and state.ledger is None:
            return self._decide_freely(state, rounds, reader, self._step, until_due=until_due)
        for i in range(len(rounds)):
            one = rounds.alone(i)
            if count is None:
                state, decision = decide_one(state, one)
            else:
                at_once = self._slate_at_once(state, one, count)
                state, decision = at_once or plain_slate(state, lambda *_, one=one: one, count, decide_one)
            decisions.append(decision)
            if until_due and state.clock.due:
                break
        return changed(state, reader=reader), decisions[0] if rounds.single else Decision.joined(decisions)

    def _decide_freely(
        self,
        before: PolicyState,
        rounds: RoundContexts,
        reader: ContextReader,
        step: CompiledStep | None,
        *,
        until_due: bool = False,
    ) -> tuple[PolicyState, Decision]:
        """Return the state after some rounds, and their decision, by the compiled step where it fits."""
        asked = before, rounds, reader, self._factory, self._scratch, self._life
        done = None if step is None else step.decide(*asked, until_due=until_due)
        return done or decide(*asked, until_due=until_due)

    def _slate_at_once(
        self, state: PolicyState, rounds: RoundContexts, slots: int
    ) -> tuple[PolicyState, Decision] | None:
        """Return the state after a slate, and its decision, unless its slots must be decided one by one."""
        require_arms(rounds, slots)
        if state.ledger is not None:
            return None
        step, asked = self._step, (state, rounds, state.reader, self._factory, self._scratch, self._life)
        done = None if step is None else step.decide(*asked, slots=slots)
        return done or slate_at_once(*asked, slots)

    # --- learning

    def observe(
        self,
        decision: Decision | None = None,
        rewards: Any = None,
        *,
        rounds: Any = None,
        ids: Any = None,
        seen: int | None = None,
        costs: Any = None,
        late: Late = "raise",
    ) -> None:
        """Record the rewards of a decision, whole or sliced; now, later, in any order.

        Raises `WrongDecision` or `UnknownRound` if this policy did not make the decision, or has lost it in a crash,
        `ConflictingReward` if a round has another reward already, and `InvalidReward` if a reward is not finite.

        Parameters
        ----------
        decision
            What `select` returned.
        rewards
            One finite number for each round, in the order of the rounds. A value that is recorded already is ignored. A
            pandas Series counts by position, not by its index, and one whose numbered index does not rise is refused.
        ids
            Instead of a decision: what `decision.id` gave, which is as safe and survives a restart.
        rounds
            Instead of a decision: bare round numbers. Nothing is compared, and after a crash the number of a lost
            decision belongs to a later one, so use it only where that cannot happen.
        seen
            Of a slate that was seen from above, the last slot that was seen, counted from 1; 0 for none. `rewards` has
            one number for each slot seen; the slots below get none, and are not counted as missing. A single number
            without `seen` is the slate's reward, of which each slot gets an equal share.
        costs
            What each of the rounds took of a `Ceiling(costs="learned")`; `rewards` may then be None.
        late
            "raise" `DroppedRound` for a reward of a round that was compacted away, or "count" it.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> policy = LinUCB(dim=1, seed=0)
        >>> decision = policy.select([[[1.0], [2.0]], [[3.0], [0.0]]])
        >>> policy.observe(decision[1], 0.5)  # the second round first
        >>> policy.observe(ids=decision[0].id, rewards=1.0)
        >>> policy.missing
        0
        """
        if decision is not None and not isinstance(decision, Decision):
            raise InvalidInput(
                f"observe takes the decision that select gave, and its rewards; got {type(decision).__name__}. For "
                "decisions no longer at hand: observe(ids=decision_ids, rewards=…), or observe(rounds=…, rewards=…)."
            )
        if (decision is None) + (rounds is None) + (ids is None) != 2:
            raise InvalidInput("observe takes one of decision, rounds= and ids=, and the rewards that belong to it.")
        if not (isinstance(late, str) and late == "raise"):
            check_choice("late", late, Late)
        told, only_costs = decision, costs is not None and rewards is None
        if not only_costs and (seen is not None or (decision is not None and decision.slate is not None)):
            decision, rewards = slot_rewards(decision, rewards, seen)
        with self._single_caller():
            state, history = self._state, self._state.history
            if costs is None and decision is not None:
                first = history.with_first_reward(decision, rewards)
                if first is not None:
                    self._state = changed(state, history=first)
                    return
            with np.errstate(all="ignore"):
                ledger = state.ledger if costs is None else self._with_costs(told, rounds, ids, costs)
                if not only_costs:
                    given = next(each for each in (decision, rounds, ids) if each is not None)
                    history = history.with_rewards(given, rewards, ids=ids is not None, late=late)
                if decision is not None and told is not None and decision.arms.size < told.arms.size:
                    history = history.with_unseen(told[decision.arms.size :])
                self._state = changed(state, history=history, ledger=ledger)

    def _with_costs(self, decision: Decision | None, rounds: Any, ids: Any, costs: Any) -> Ledger:
        """Return the ledger after the costs of some rounds were told."""
        history = self._state.history
        ledger: Ledger | None = self._state.ledger
        if ledger is None or ledger.costs is None:
            raise InvalidInput("costs are told to a policy under a Ceiling(costs='learned'); see Policy.under.")
        if ids is not None:
            raise InvalidInput("costs are told with the decision, or with rounds=; got ids.")
        numbers = read_whole(rounds if decision is None else decision.round, "rounds", InvalidInput)
        values = read_rewards(costs, len(numbers))
        if (values < 0).any():
            raise InvalidReward(f"costs must be at least 0; got {values.min():g}.")
        places, kept = history.find(numbers)
        if not kept.all():
            raise InvalidReward("costs must belong to rounds that are still in the history.")
        return ledger.with_costs(numbers, history.contexts[places], values)

    def update(self, *, force: bool = False, progress: Progress = None, seconds: float | None = None) -> UpdateRecord:
        """Learn from the rewards that are in, and freeze the next version; refused beyond the budget.

        A training that made things worse is rejected: no version is spent, the frozen policy stays, the
        record says why, and the schedule starts afresh from here. The same holds, with a `NothingToLearnWarning`, where
        an update is due and no reward has arrived since the last one; an update that is not due is then refused.
        Returns what was done. Raises `BudgetSpent` if no version may follow, and `NothingToLearn` if there is nothing
        new and no update is due. See also `prepare_update`.

        Parameters
        ----------
        force
            Whether to update although no reward has arrived since the last update: bonuses then include the rounds
            since, and a policy that tunes itself judges its candidates by further held-out rewards.
        progress
            Called with a fraction from 0 to 1, which never falls, and a phase: "training", "covariance" or "done". It
            may raise, as an interrupt does: then nothing has changed. Or a bar such as tqdm's: `progress=tqdm`.
        seconds
            Time that the training may take; None sets no limit. After half of it a policy that tunes itself tries no
            further candidates; after all of it the training ends at the lowest loss so far, and `early` in the record
            says so. A limit that is reached makes the update depend on the machine, so studies have none.

        Examples
        --------
        >>> from rarely import BatchNeuralUCB, OnDemand
        >>> policy = BatchNeuralUCB(dim=1, hidden=4, schedule=OnDemand(), seed=0)
        >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
        >>> policy.update(seconds=60).early
        ''
        """
        check_flag("force", force)
        with self._single_caller():
            state, beta = self._state, self._beta
            done = updates.update_at_once(state, beta) if progress is None is seconds else None
            if done is not None:
                return self._updated(*done)
            with np.errstate(all="ignore"):
                done = updates.update(state, self._factory, beta, force=force, progress=progress, seconds=seconds)
                return self._updated(*done)

    def _updated(self, after: PolicyState, record: UpdateRecord) -> UpdateRecord:
        """Go to the state after an update, without the rounds that nobody needs now; log and announce it."""
        announce(self._state, after, record, trained=record.reason not in updates.NO_REWARD)
        after, record = compacted_after_update(self._state, after, record, self._limits.history)
        log_update(type(self).__name__, record)
        self._state = after if after.ledger is None else ceilings.repriced(after, new=record.accepted)
        return record

    # --- the life of a policy beside its rounds

    def prepare_update(self, *, force: bool = False) -> UpdateJob:
        """Return an update to be run elsewhere, while this policy keeps deciding.

        `job.run()` trains in another thread, process or machine, and `adopt` takes over what it returns. The policy
        itself does not change, and may be saved and loaded in between. The job can be pickled: it holds the learner
        and the rewards so far, not the covariance. Raises `BudgetSpent` if no version may follow the one in use, and
        `NothingToLearn`, unless `force`, if no reward has arrived since the last update.

        >>> import pickle
        >>> from rarely import LinUCB, OnDemand
        >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=3))
        >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
        >>> sent = pickle.dumps(policy.prepare_update())  # to a process that trains
        >>> back = pickle.dumps(pickle.loads(sent).run())  # its answer
        >>> policy.observe(policy.select([[1.0], [2.0]]), 1.0)  # version 0 decides meanwhile
        >>> record = policy.adopt(pickle.loads(back))
        >>> record.version, record.round, record.adopted
        (1, 5, 6)
        """
        check_flag("force", force)
        state = self._state
        with np.errstate(all="ignore"):
            job = updates.prepare(state, self._factory)
            if not force:
                updates.check_new(state)
            return updates.with_digest(job, self.settings(), state.learned)

    def adopt(self, result: UpdateResult) -> UpdateRecord:
        """Adopt an update that was run elsewhere: what `UpdateJob.run` returned.

        The policy is afterwards what it would be if it had made the update when the job was prepared and had decided
        since with the version before: these rounds count in Z, rewards that came since wait for the next update, and
        the schedule counts from the round of the job. A training that failed is recorded, and the version in use stays.
        Returns the record: its `round` is that of the job, and `adopted` that of this call. Raises `WrongUpdate` if
        another policy, or a lost process of this one, prepared the job, and `StaleUpdate` if another update came first.
        """
        if not isinstance(result, UpdateResult):
            raise InvalidInput(f"adopt takes what job.run() returned; got {type(result).__name__}.")
        with self._single_caller(), np.errstate(all="ignore"):
            return self._updated(*updates.adopt(self._state, self._factory, self._beta, result, self.settings()))

    def extend_budget(self, versions: int, *, reason: str) -> None:
        """Allow more versions than were planned; `events` records the round and the reason.

        A grid plans no further updates for them: call `update` when it suits. The radius of the version in use
        stays as it is, even if it was chosen for the last one. Raises `InvalidInput` if `versions`, which are added, is
        not a positive whole number, `reason` is empty, or the budget has no limit.

        >>> from rarely import LinUCB, OnDemand
        >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=1))
        >>> policy.extend_budget(2, reason="two more stages were approved")
        >>> policy.versions_left, policy.events[0].detail
        (2, '2 versions added: 3 instead of 1')
        """
        check_whole("versions", versions, 1)
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInput(f"reason must say why the budget is extended, for the record; got {reason!r}.")
        with self._single_caller(), np.errstate(all="ignore"):
            state = self._state
            clock, before = state.clock, state.clock.budget.batches
            if before is None:
                raise InvalidInput("this policy's schedule sets no limit on versions, so there is none to extend.")
            clock = clock.extended(clock.budget.extra + int(versions))
            detail = f"{versions} versions added: {clock.budget.batches} instead of {before}"
            self._state = replace(state, clock=clock).with_event("budget", detail, reason)

    def compact(self, *, open_for: int | None = None) -> int:
        """Drop the rounds that nothing needs any more, and make memory and files smaller.

        Needed are the rounds since the last update, rewards that no update has learned from, rounds whose rewards may
        still come, and what the next training and Z are made of: for `LinUCB` nothing else, because its sums hold
        the rest; with a `Window` or a `Discount`, the rounds that it remembers; for a network without them, all
        rewards. So decisions, probabilities and later updates stay the same. Updates do it by themselves where a
        `forgetting` has left a quarter of more than 1000 rounds unused, and where `Limits.history` is reached.

        Rounds that have waited for a reward for more than `open_for` rounds are dropped too, unless it is None. Returns
        how many were dropped. A reward for one of them is refused with `DroppedRound`.

        >>> from rarely import LinUCB, OnDemand
        >>> policy = LinUCB(dim=1, schedule=OnDemand())
        >>> decision = policy.select([[[1.0], [2.0]]] * 5)
        >>> policy.observe(decision[:4], [1.0] * 4)
        >>> _ = policy.update()
        >>> policy.compact(), policy.round, policy.missing, len(policy.history)
        (4, 5, 1, 1)
        """
        if open_for is not None:
            check_whole("open_for", open_for, 0)
        with self._single_caller(), np.errstate(all="ignore"):
            done = compacted(self._state, open_for=open_for)
            if done.dropped:
                self._state = done.state.with_event("compaction", str(done))
        return done.dropped

    def with_covariance(
        self, covariance: Kind | None = None, *, memory_limit: int | None = None, reason: str = ""
    ) -> Self:
        """Return a copy of this policy whose Z has another form, or another limit of memory, from now on.

        From an exact form every other one is made without loss of rounds; from an approximation, Z is rebuilt from the
        history, with the features of the version in use. The copy's `events` say which. Raises `HistoryDropped` if Z
        must be rebuilt and rounds were dropped, and `TooExpensive` if the form needs more memory than the limit allows.

        Parameters
        ----------
        covariance, memory_limit, reason
            The form, as in the constructor; bytes that Z may take; why, for the record. None keeps what is in use.

        Examples
        --------
        >>> from rarely import BatchNeuralUCB, OnDemand
        >>> policy = BatchNeuralUCB(dim=1, hidden=8, schedule=OnDemand(), seed=0)
        >>> _ = policy.select([[[1.0], [2.0]]] * 5)
        >>> other = policy.with_covariance("diagonal", reason="decisions take too long")
        >>> policy.covariance, other.covariance, other.round
        ('primal', 'diagonal', 5)
        """
        other, factory = copy.copy(self), self._factory.changed(covariance, memory_limit)
        with np.errstate(all="ignore"):
            other._state = change_covariance(other._state, factory, reason, same_form=covariance is None)
        other._factory, other._limits = factory, replace(self._limits, memory=factory.memory_limit)
        return other

    def under(self, ceiling: Ceiling | Shares | None = None, shares: Shares | None = None) -> Self:
        """Return a copy of this policy that keeps to a `Ceiling` on what arms cost, to `Shares`, or to both.

        `Decision.price` and `reason` say what they did, `spent` and `price` how they stand. Probabilities on record are
        exact given what was spent and shown before. Raises `CeilingReached` where no arm may be shown: offer one that
        is free. Fleets and campaigns refuse such a policy, because their deciders do not know of each other.

        >>> from rarely import LinUCB, Paced, Worth
        >>> policy = LinUCB(dim=1, schedule=Paced(100, 5), seed=0).under(Ceiling(20.0))
        >>> for _ in range(100):
        ...     decision = policy.select([[1.0], [1.0]], worth=Worth(gain=[0.1, 0.5], spends=[0.0, 1.0]))
        ...     policy.observe(decision, 1.0)
        >>> policy.spent
        20.0
        """
        other = copy.copy(self)
        other._state = changed(other._state, ledger=ceilings.opened(ceiling, shares, other._state))
        return other

    @property
    def spent(self) -> float | None:
        """What was spent of the ceiling in the period of the latest round; None without a ceiling."""
        ledger = self._state.ledger
        return None if ledger is None or ledger.ceiling is None else ledger.at(self.round or 1).spent

    @property
    def price(self) -> float | None:
        """The worth of a unit of the ceiling in the next round; None without a ceiling."""
        ledger = self._state.ledger
        return None if ledger is None or ledger.ceiling is None else ledger.at(self.round + 1).price(self.round + 1)

    # --- what can be read off its state

    def __getattr__(self, name: str) -> Any:
        here = f" {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{here}", name=name, obj=self)

    def __repr__(self) -> str:
        stands = f"version {self.version}, round {self.round}, {self.missing} rewards missing"
        return f"<{type(self).__name__}: {stands}{', due' if self.due else ''}>"

    def _repr_html_(self) -> str:
        budget = self._state.clock.budget
        most = "no limit" if budget.batches is None else f"at most {budget.batches}"
        planned = budget.ahead(self.round) or "when the schedule ends the batch"
        coming = "none, the budget is spent" if budget.spent(self.version) else planned
        facts = [
            ("version", f"{self.version} ({most} versions)"),
            ("rounds decided", f"{self.round}"),
            ("rewards missing", f"{self.missing}"),
            ("next update", "due now" if self.due else coming),
            ("covariance", self.covariance),
        ]
        return facts_table(type(self).__name__, facts, self.updates)

    def explain_update(self) -> str:
        """Return in a sentence what the last update chose, and why."""
        if not self.updates:
            return "No update has been made yet."
        last = self.updates[-1]
        if not last.accepted:
            return f"The update after round {last.round} was rejected: {last.reason}."
        memory = f" From now on {last.memory}." if last.memory else ""
        return f"Version {last.version}, after round {last.round}: {last.tuning or 'as the settings say'}.{memory}"

    def plot(self, figure: Any = None, *, arms: Sequence[str] = ()) -> Any:
        """Draw rewards, arms, calibration and updates so far, with matplotlib, and return the figure.

        Notebooks show it; `policy.plot().savefig("policy.png")` writes it. `figure` is one of your own to draw into,
        such as `plt.figure(layout="constrained")` before `plt.show()`, and `arms` are names of arms 0, 1, …. The panel
        of `UpdateRecord.coverage` is empty for policies that do not estimate the noise, such as `LinUCB`.
        """
        return self._plotter(figure, arms)

    dim: int = forwarded("_learner.dim", "Numbers in a context.")
    schedule: Schedule = forwarded("_state.clock.budget", "The schedule, under its budget.")
    version: int = forwarded("_state.clock.version", "The frozen policy in use, 0 … B−1.")
    versions_left: int | None = forwarded(
        "_state.clock.versions_left", "Versions that may follow the one in use; None where the schedule sets no limit."
    )
    round: int = forwarded("_state.history.rounds", "Rounds decided so far; the next decision is round + 1.")
    due: bool = forwarded("_state.clock.due", "Whether the schedule has ended the batch; stays true until `update`.")
    log_det: float = forwarded("_covariance.log_det", "log det Z_t − log det λI of the running Z.")
    beta: float = forwarded("_state.current.radius", "The radius of the version in use.")
    covariance: str = forwarded("_covariance.kind", "The form of Z in use.")
    jitters: int = forwarded("_covariance.jitters", "How often rounding had to be mended; see `JitterWarning`.")
    missing: int = forwarded("_state.history.missing", "Rounds whose rewards are not in.")
    history: History = forwarded("_state.history", "Chosen contexts, arms, versions and rewards so far.")
    updates: tuple[UpdateRecord, ...] = forwarded(
        "_state.updates", "A record of each update, rejected ones too; first that of version 0, if a log trained it."
    )
    events: tuple[PolicyEvent, ...] = forwarded(
        "_state.events",
        "Changes of the policy besides decisions, rewards and updates: its budget, the form of its Z, its memory.",
    )
    _learner: Learner = forwarded("_state.current.learner")
    _covariance: Covariance = forwarded("_state.current.covariance")

    @property
    def exact_rounds(self) -> int | None:
        """Rounds up to which Z stays exact, 0 if it is not; None: for life, as far as is known. See `Limits`."""
        return self._factory.exact_rounds(self._covariance, self._state.most_arms)

    # --- identity, copies and files

    def _begin_life(self) -> None:
        self._life = secrets.token_hex(8)
        self._lock, learner = threading.Lock(), self._learner
        compiled = learner.linear_form is not None or not learner.predicts or by_kernels(self._covariance)
        self._step = CompiledStep() if compiled else None

    def _single_caller(self) -> threading.Lock:
        """Return the lock to hold during a call that changes the policy.

        Raise PolicyBusy if another mutating call is in progress: waiting would hide that threads share a policy. An
        interrupt cannot leave the lock held, because entering a C lock by `with` is one step.
        """
        if self._lock.locked():
            raise PolicyBusy(
                "select, observe, update and other calls that change a policy must come from one thread at a time; "
                "another one is in progress. Put a lock around the policy, or give every thread its own policy."
            )
        return self._lock

    def fingerprint(self) -> str:
        """Return a SHA-256 over settings and state: equal for equal policies, in every process and after every file.

        It leaves out the lives of the policy (see `Decision.life`) and the names of the loops that trained.

        >>> from rarely import LinUCB
        >>> LinUCB(dim=2, seed=0).fingerprint() == LinUCB(dim=2, seed=0).fingerprint()
        True
        """
        header, arrays = self._content()
        header["updates"] = [{k: v for k, v in update.items() if k != "loops"} for update in header["updates"]]
        header["history"] = {name: value for name, value in header["history"].items() if name != "lives"}
        digest = hashlib.sha256(json.dumps(header, sort_keys=True, default=plain).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __copy__(self) -> Self:
        # A shallow copy would write into the rows of the original.
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock, the life and scratch, which a copy begins anew, for `pickle` and `copy`."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_life", "_step")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_life()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write every number of the state to one file, at any moment; `rarely.load` brings it back.

        The file takes the place of an earlier one in one step, and is on the disk when `save` returns: after a crash
        there is either the old file or the new one, complete. An existing file keeps its mode, and a symbolic link
        stays. If the process is killed, the next save removes the temporary file `.rarely-….part` beside it.
        """
        from rarely._core.saving import archive  # only here, because importing it takes long

        schedule_from(self.schedule.describe())  # a schedule that `load` does not know is refused now
        archive.write(path, *self._content())

    def _content(self) -> tuple[dict[str, Any], Arrays]:
        """Return header and arrays of a saved policy."""
        numbers, arrays = content_of(self._state, self._factory)
        return {"policy": type(self).__name__, "settings": self.settings()} | numbers, arrays


def facts_table(name: str, facts: Sequence[tuple[str, str]], updates: Sequence[UpdateRecord]) -> str:
    """Return the facts as a table, and the last updates below it; all text is escaped.

    >>> facts_table("LinUCB", [("version", "3")], [])
    '<table><caption>LinUCB</caption><tbody><tr><th>version</th><td>3</td></tr></tbody></table>'
    """
    from html import escape  # only here, because importing it takes long

    rows = "".join(f"<tr><th>{escape(fact)}</th><td>{escape(value)}</td></tr>" for fact, value in facts)
    table = f"<table><caption>{escape(name)}</caption><tbody>{rows}</tbody></table>"
    if not updates:
        return table
    head = "".join(f"<th>{name}</th>" for name in ("round", "version", "rewards", "β", "noise", "coverage", ""))
    caption = f"the last {SHOWN_UPDATES} of {len(updates)} updates" if len(updates) > SHOWN_UPDATES else "updates"
    lines = [[f"<td>{escape(cell)}</td>" for cell in _cells(each)] for each in updates[-SHOWN_UPDATES:]]
    rows = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"{table}<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(record: UpdateRecord) -> tuple[str, ...]:
    noise = "" if record.noise is None else f"{record.noise:.3g}"
    coverage = "" if record.coverage is None else f"{record.coverage:.2f}"
    reason = "" if record.accepted else f"rejected: {record.reason}"
    return str(record.round), str(record.version), str(record.samples), f"{record.beta:.3g}", noise, coverage, reason
