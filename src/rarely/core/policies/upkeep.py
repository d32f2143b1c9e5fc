"""The life of a policy beside its rounds: updates made elsewhere, and a budget that grows on purpose."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from rarely.core.choice.confidence_radius import Beta
from rarely.core.covariance import Kind, Sketch
from rarely.core.errors import InvalidInput, check_whole
from rarely.core.policies.announcing import log_update
from rarely.core.policies.compaction import compacted
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.life_cost import LifeCost, life_cost
from rarely.core.policies.limits import Limits
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.policies.reforming import reformed
from rarely.core.policies.standing import Standing
from rarely.core.policies.update_job import UpdateJob, UpdateResult, with_digest
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.policies.updating import adopt, check_new, prepare


class Upkeep(Standing, ABC):
    """Calls that keep a policy alive for long."""

    _maker: CovarianceMaker
    _beta: Beta
    _limits: Limits
    _history_limit: int | None

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""

    @abstractmethod
    def _alone(self) -> AbstractContextManager[None]:
        """A call that changes the policy."""

    @property
    def cost(self) -> LifeCost:
        """What a decision and Z cost at the horizon, and up to which round Z is exact; `print(policy.cost)` says it."""
        return life_cost(self._covariance, self._maker, self._learner.widths)

    def prepare_update(self, *, force: bool = False) -> UpdateJob:
        """An update to be made elsewhere, while this policy goes on deciding.

        `job.run()` trains in another thread, process or machine, and `adopt` takes over what it returns. The policy
        itself does not change, and may be saved and loaded in between.

        Parameters
        ----------
        force
            Prepare an update also where no reward came since the last one.

        Returns
        -------
        UpdateJob
            A value that can be pickled. It holds the learner and the rewards so far, not the covariance.

        Raises
        ------
        BudgetSpent
            If no version may follow the one in use.
        NothingToLearn
            If no reward came since the last update.

        Examples
        --------
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
        state = self._state
        job = prepare(state, self._maker)
        if not force:
            check_new(state)
        return with_digest(job, self.settings(), state.learned)

    def adopt(self, result: UpdateResult) -> UpdateRecord:
        """Take over an update that was made elsewhere.

        The policy stands afterwards as if it had made the update when the job was prepared, and its decisions since
        had been those of the version before. Their features count in Z, which is frozen as it is now; rewards that
        came since wait for the next update; the schedule counts from the round of the job. A training that failed is
        recorded, and the version in use stays.

        Parameters
        ----------
        result
            What `UpdateJob.run` returned.

        Returns
        -------
        UpdateRecord
            `round` is that of the job, and `adopted` that of this call.

        Raises
        ------
        WrongUpdate
            If another policy prepared the job, or a process of this one whose later decisions or rewards were lost.
        StaleUpdate
            If the result was adopted already, or another update was made since the job was prepared.
        """
        if not isinstance(result, UpdateResult):
            raise InvalidInput(f"adopt takes what job.run() returned; got {type(result).__name__}.")
        with self._alone():
            after, record = adopt(self._state, self._maker, self._beta, result, self.settings(), self._history_limit)
            log_update(type(self).__name__, record)
            self._state = after
        return record

    def extend_budget(self, versions: int, *, reason: str) -> None:
        """Allow more versions than were planned; `events` has the round and the reason.

        A grid plans no further updates for them: call `update` when it suits. The radius of the version in use
        stays as it is, also if it was chosen for the last one.

        Parameters
        ----------
        versions
            How many are added.
        reason
            Why, in words, for the record.

        Raises
        ------
        InvalidInput
            If `versions` is not a positive whole number, `reason` is empty, or the budget has no limit.

        Examples
        --------
        >>> from rarely import LinUCB, OnDemand
        >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=1))
        >>> policy.extend_budget(2, reason="the trial goes on for two stages")
        >>> policy.versions_left, policy.events[0].detail
        (2, '2 versions added: 3 instead of 1')
        """
        check_whole("versions", versions, 1)
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidInput(f"reason must say why the budget is extended, for the record; got {reason!r}.")
        with self._alone():
            state = self._state
            clock, before = state.clock, state.clock.budget.batches
            if before is None:
                raise InvalidInput("this policy's schedule sets no limit on versions, so there is none to extend.")
            clock = clock.extended(clock.budget.extra + int(versions))
            detail = f"{versions} versions added: {clock.budget.batches} instead of {before}"
            self._state = replace(state, clock=clock, events=(*state.events, self._event("budget", detail, reason)))

    def compact(self, *, open_for: int | None = None) -> int:
        """Drop the rounds that nothing needs any more, and make memory and files smaller.

        Needed are the rounds since the last update, rewards that no update has learned from, rounds whose rewards may
        still come, and what the next training and Z are made of: for `LinUCB` nothing else, because its sums hold
        the rest; with a `Window` or a `Discount`, the rounds that it remembers; for a network without them, all
        rewards. Decisions, probabilities and later updates are the same as without the call, except that Z and a
        training cannot be made again from rounds that are gone. `history.dropped` counts them, and `events` has the
        call. Updates do the same by themselves where a `forgetting` has left a quarter of more than 1000 rounds without
        use, and where `Limits.history` is reached.

        Parameters
        ----------
        open_for
            Also drop rounds that have waited for a reward for more than so many rounds. None keeps them all.

        Returns
        -------
        int
            Rounds that were dropped. A reward for one of them is refused with `DroppedRound`.

        Examples
        --------
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
        with self._alone():
            done = compacted(self._state, open_for=open_for)
            if done.dropped:
                event = self._event("compaction", str(done))
                self._state = replace(done.state, events=(*done.state.events, event))
        return done.dropped

    def with_covariance(
        self, covariance: Kind | Sketch | None = None, *, memory_limit: int | None = None, reason: str = ""
    ) -> Self:
        """A copy of this policy whose Z has another form, or another limit of memory, from now on.

        From an exact form every other one is made without loss of rounds; an approximation holds less, and what it does
        not hold is lost. From an approximation, Z is built again from the history, with the features of the version
        in use. The copy's `events` tell which. Decisions made so far, open rewards, ids and the schedule stay.

        Parameters
        ----------
        covariance
            As in the constructor; None keeps the form.
        memory_limit
            Bytes that Z may take; None keeps the limit.
        reason
            Why, for the record.

        Returns
        -------
        Policy
            The copy; this policy is left as it is.

        Raises
        ------
        HistoryDropped
            If Z must be built again and rounds were dropped.
        TooExpensive
            If the form needs more memory than the limit allows.

        Examples
        --------
        >>> from rarely import BatchNeuralUCB, OnDemand
        >>> policy = BatchNeuralUCB(dim=1, hidden=8, schedule=OnDemand(), seed=0)
        >>> _ = policy.select([[[1.0], [2.0]]] * 5)
        >>> other = policy.with_covariance("diagonal", reason="decisions take too long")
        >>> policy.covariance, other.covariance, other.round
        ('primal', 'diagonal', 5)
        """
        other = copy.copy(self)
        other._reform(covariance, memory_limit, reason)
        return other

    def _reform(self, covariance: Kind | Sketch | None, memory_limit: int | None, reason: str) -> None:
        """Give Z another form in place; for a policy that nobody else has yet."""
        maker = self._maker.changed(covariance, memory_limit)
        state = reformed(self._state, maker, reason, same=covariance is None)
        self._state, self._maker, self._limits = state, maker, replace(self._limits, memory=maker.memory_limit)

    def _event(self, kind: str, detail: str, reason: str = "") -> PolicyEvent:
        return PolicyEvent(kind, self.round, self.version, detail, reason)
