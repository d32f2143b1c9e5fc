"""The flow that every policy shares: select, observe, due, update.

    select    contexts → means and factors → bonuses under the frozen Z (or the running one) → arms → running Z
    observe   rewards, late, out of order, or never
    due       whether the schedule has ended the batch
    update    learn from the rewards that are in, freeze the next version

Everything that a policy knows is one `PolicyState`. A call computes the next state and ends by assigning it, so a
call that raises or is interrupted has changed nothing. `select`, `observe` and `update` are for one thread at a
time: a second one gets `PolicyBusy`. The others read one state and may be called meanwhile.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

from rarely.core.choice.confidence_radius import Beta, radius_at
from rarely.core.choice.random_stream import Seeded
from rarely.core.choice.rules import ChoiceRule
from rarely.core.covariance import Kind, Sketch, warn_of_sketch
from rarely.core.errors import InvalidContexts, InvalidInput, check_choice
from rarely.core.inputs.contexts import ContextReader, RoundContexts
from rarely.core.inputs.forgetting import Forgetting, check_forgetting
from rarely.core.inputs.history import History, Late
from rarely.core.inputs.rewards import read_log
from rarely.core.policies.announcing import log_update
from rarely.core.policies.clock import BatchClock
from rarely.core.policies.deciding import decide, rounds_at_once
from rarely.core.policies.exclusive import alone
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.identity import Identity
from rarely.core.policies.learner import Learner
from rarely.core.policies.limits import Limits
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.policies.parameters import Parameters
from rarely.core.policies.scored_arms import ScoredArms, Scores, concatenated
from rarely.core.policies.state import PolicyState
from rarely.core.policies.update_job import UpdateJob
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.policies.updating import start_from_log, update
from rarely.core.policies.upkeep import Upkeep
from rarely.core.schedules import Budget, Schedule
from rarely.core.training.progress import Progress
from rarely.core.types import Array, Decision

Ties = Literal["lowest", "random"]
WithinBatch = Literal["frozen", "running"]
_CHANGES = ("select", "observe", "update", "adopt", "extend_budget", "compact")
"""Methods that change a policy."""


class Policy(Upkeep, Parameters, Identity, ABC):
    """A contextual bandit whose policy is frozen between updates, of which there are few.

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

    def __init__(
        self,
        learner: Learner,
        *,
        schedule: Schedule,
        covariance: Kind | Sketch,
        ridge: float,
        beta: Beta,
        chooser: ChoiceRule,
        seed: Seeded,
        limits: Limits,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch = "frozen",
        maker: Callable[..., CovarianceMaker] = CovarianceMaker,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"schedule must be a Schedule, such as FixedGrid(horizon, batches); got {schedule!r}.")
        check_forgetting(forgetting)
        check_choice("within_batch", within_batch, WithinBatch)
        clock = BatchClock(Budget.around(schedule), rescues=within_batch == "running")
        warn_of_sketch(covariance)
        self._limits, self._history_limit = limits, limits.history_bytes
        self._maker = maker(covariance, ridge, limits.memory, clock.budget.horizon, limits.decision_time)
        self._beta: Beta = beta
        self._seed, self._scratch = seed.setting, seed.generator
        empty = self._maker.empty(learner.widths, clock.rounds_ahead(0, 0))
        radius = radius_at(beta, learner.version_stats(1, empty))
        self._state = PolicyState(
            FrozenPolicy(learner, empty, radius, float(ridge), chooser, within_batch == "running"),
            clock,
            History(learner.dim, forgetting),
            seed.generator.bit_generator.state,
            ContextReader(learner.dim, learner.fits_scale),
        )
        self._begin_life()

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
        state = start_from_log(policy._state, policy._maker, policy._beta, rows, values)
        policy._state = replace(state, reader=state.reader.after_log(contexts))
        return policy

    # --- identity

    def _alone(self) -> AbstractContextManager[None]:
        """A call that changes the policy, refused at once while another one is under way."""
        return alone(self, self._caller, lambda: [getattr(Policy, name) for name in _CHANGES])

    # --- deciding

    def score(self, contexts: Any, mask: Any = None) -> Scores:
        """Means and bonuses with Z as it is now, for all of n rounds. Nothing changes: it is no round.

        Parameters
        ----------
        contexts, mask
            As in `select`.

        Returns
        -------
        Scores
            `means` and `bonuses`, (K,) or (n, K) each, NaN where no arm is.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> LinUCB(dim=1, intercept=False).score([[1.0], [3.0]]).bonuses
        array([1., 3.])
        """
        rounds, scored = _scored(self._state, contexts, mask)
        return Scores(
            _joined([arms.means for arms in scored], rounds), _joined([arms.bonuses for arms in scored], rounds)
        )

    def probabilities(self, contexts: Any, mask: Any = None) -> Array:
        """The probability of every arm with Z as it is now, for all of n rounds. Nothing changes: it is no round.

        Parameters
        ----------
        contexts, mask
            As in `select`.

        Returns
        -------
        array
            (K,) or (n, K), 0 where no arm is.

        Examples
        --------
        >>> from rarely import LinUCB, Mixture
        >>> LinUCB(dim=1, exploration=Mixture(0.2)).probabilities([[1.0], [3.0]])
        array([0.1, 0.9])
        """
        state = self._state
        rounds, scored = _scored(state, contexts, mask)
        return _joined([arms.probabilities(state.frozen.rule) for arms in scored], rounds)

    def select(self, contexts: Any, mask: Any = None, *, until_due: bool = False) -> Decision:
        """Decide one round, or n under the same version.

        Parameters
        ----------
        contexts
            (K, d) for one round of K arms, (n, K, d) for n rounds, or a list of (K_i, d) where rounds differ in their
            arms. Arrays, lists and data frames are accepted; a frame's column names are kept and compared.
        mask
            (K,) or (n, K): which arms are there; all of them without it.
        until_due
            Decide the rounds up to and including the one that ends the batch, and no more.

        Returns
        -------
        Decision
            Arms, means, bonuses and probabilities. Keep it, or its `id`, for `observe`.

        Raises
        ------
        InvalidContexts
            If shapes, kinds or column names do not fit, or a number is not finite.
        UpdateDue
            If `until_due` is set and the batch has ended already.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> policy = LinUCB(dim=2, seed=0)
        >>> policy.select([[1.0, 0.0], [0.0, 2.0]]).arm
        1
        """
        with self._alone():
            before = self._state
            rounds = before.reader.read(contexts, mask)
            reader = before.reader.after(contexts, rounds)
            after, decision = decide(
                before, rounds, reader, self._maker, self._scratch, life=self._life, until_due=until_due
            )
            self._state = after
        return decision

    # --- learning

    def observe(
        self,
        decision: Decision | None = None,
        rewards: Any = None,
        *,
        rounds: Any = None,
        ids: Any = None,
        late: Late = "raise",
    ) -> None:
        """Take in rewards: of a decision, whole or sliced; now, later, in any order.

        A decision is compared with the one on record, and refused if this policy did not make it or has lost it
        in a crash.

        Parameters
        ----------
        decision
            What `select` returned.
        rewards
            One finite number for each round. A value that is in already is ignored.
        ids
            Instead of a decision: what `decision.id` gave, which is as safe and survives a restart.
        rounds
            Instead of a decision: bare round numbers. Nothing is compared, and after a crash the number of a lost
            decision belongs to a later one, so use it only where that cannot happen.
        late
            "raise" `DroppedRound` for a reward of a round that was compacted away, or "count" it.

        Raises
        ------
        WrongDecision, UnknownRound
            If this policy did not make the decision, or has no such round.
        ConflictingReward
            If a round has another reward already.
        InvalidReward
            If a reward is not a finite number.

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
                "decisions that are not at hand: observe(ids=decision_ids, rewards=…), or observe(rounds=…, rewards=…)."
            )
        if sum(given is not None for given in (decision, rounds, ids)) != 1:
            raise InvalidInput("observe takes one of decision, rounds= and ids=, and the rewards that belong to it.")
        check_choice("late", late, Late)
        with self._alone():
            state = self._state
            if decision is not None:
                history = state.history.with_rewards_of(decision, rewards, late=late)
            elif ids is not None:
                history = state.history.with_rewards_by_id(ids, rewards, late=late)
            else:
                history = state.history.with_rewards(rounds, rewards, late=late)
            self._state = state.with_history(history)

    def update(
        self, *, force: bool = False, progress: Progress | None = None, seconds: float | None = None
    ) -> UpdateRecord:
        """Learn from the rewards that are in, and freeze the next version; refused beyond the budget.

        A training that made things worse is rejected: no version is spent, the frozen policy stays, the
        record says why, and the schedule starts afresh from here. The same holds, with a `NothingToLearnWarning`, where
        an update is due and no reward came since the last; an update that is not due is then refused. With `force` it
        takes place: the bonuses then know the rounds since, and a policy that tunes itself judges its candidates by
        further held-out rewards.

        When half of `seconds` is over, a policy that tunes itself tries no further candidates. When all of it is over,
        the training ends at the point of the lowest loss so far, and `early` in the record says so. A few steps are
        always taken. A budget that is not used up changes no number. One that is makes the update depend on the
        machine, so studies, whose versions can be trained again, have none. See also `prepare_update`.

        Parameters
        ----------
        force
            Whether to update although no reward came since the last update.
        progress
            Called with a fraction from 0 to 1, which never falls, and a phase: "training", "covariance" or "done". It
            may raise, as an interrupt does: then nothing has changed.
        seconds
            Time that the training may take; None is no limit. Building Z again, if the update does so, is not counted.

        Returns
        -------
        UpdateRecord
            What was done.

        Raises
        ------
        BudgetSpent, NothingToLearn, InvalidInput
            If no version may follow, nothing is new and none is due, or `seconds` is not a positive number.

        Examples
        --------
        >>> from rarely import BatchNeuralUCB, OnDemand
        >>> policy = BatchNeuralUCB(dim=1, hidden=4, schedule=OnDemand(), seed=0)
        >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
        >>> policy.update(seconds=60).early
        ''
        """
        with self._alone():
            run = partial(UpdateJob.run, progress=progress, seconds=seconds)
            after, record = update(self._state, self._maker, self._beta, run, force=force, limit=self._history_limit)
            log_update(type(self).__name__, record)
            self._state = after
        return record


def _scored(state: PolicyState, contexts: Any, mask: Any) -> tuple[RoundContexts, list[ScoredArms]]:
    """The rounds, and what the frozen version thinks of their arms, in parts that fit into memory."""
    rounds = state.reader.read(contexts, mask)
    parts = rounds.parts(lambda: rounds_at_once(state.frozen, rounds))
    return rounds, [state.frozen.facing(part).assess(part) for part in parts]


def _joined(parts: list[Array], rounds: RoundContexts) -> Array:
    joined = concatenated(parts)
    return joined[0] if rounds.single else joined
