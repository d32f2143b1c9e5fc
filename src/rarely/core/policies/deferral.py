"""A policy that decides first and records later, for services that answer in between.

    defer     from now on, what is chosen waits
    backlog   the rounds that wait, as a value: another thread may record it while decisions go on
    record    take over what was recorded
    settle    record everything now; the state is then that of a policy that never waited, bit for bit

Only the running Z, log det and `due` wait. Rounds, history, the generator and the scale of contexts never do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rarely.core.covariance import Deferred, Recorded
from rarely.core.covariance import may_wait as form_may_wait
from rarely.core.policies.base import Policy
from rarely.core.policies.clock import BatchClock


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rounds that were decided and are not in the running Z yet."""

    covariance: Deferred
    clock: BatchClock
    decided: int
    """Rounds in all, these included."""

    @property
    def rounds(self) -> int:
        """How many wait."""
        return self.covariance.rounds - self.covariance.inner.rounds

    def recorded(self) -> tuple[Recorded, bool]:
        """Z with these rounds, and whether the batch has ended with one of them. Nothing changes."""
        done, due, round = self.covariance.recorded(), False, self.decided - self.rounds
        for log_dets in done.log_dets:
            due = due or self.clock.first_due(round, log_dets) is not None
            round += len(log_dets)
        return done, due


def may_wait(policy: Policy, arms: int) -> bool:
    """Whether rounds of at most so many arms may wait: no decision depends on the running Z, and its form stays."""
    frozen = policy._state.frozen
    covariance = frozen.covariance.inner if isinstance(frozen.covariance, Deferred) else frozen.covariance
    return not frozen.running and not frozen.learner.follows and form_may_wait(covariance, arms)


def defer(policy: Policy, arms: int) -> bool:
    """Let rounds of at most so many arms wait from now on, if they may; whether they do."""
    if not may_wait(policy, arms):
        return False
    state = policy._state
    if not isinstance(state.frozen.covariance, Deferred):
        covariance = Deferred(state.frozen.covariance)
        policy._state = replace(state, frozen=replace(state.frozen, covariance=covariance))
    return True


def backlog_of(policy: Policy) -> Backlog | None:
    """The rounds that wait; None where rounds do not wait."""
    state = policy._state
    covariance = state.frozen.covariance
    return Backlog(covariance, state.clock, state.history.rounds) if isinstance(covariance, Deferred) else None


def record(policy: Policy, backlog: Backlog, done: Recorded, due: bool) -> bool:
    """Take over what was recorded of a backlog; whether the policy is still the one that it came from."""
    state = policy._state
    covariance = state.frozen.covariance
    if not isinstance(covariance, Deferred) or covariance.inner is not backlog.covariance.inner:
        return False
    clock = state.clock.ended() if due else state.clock
    policy._state = replace(state, clock=clock, frozen=replace(state.frozen, covariance=covariance.after(done)))
    return True


def settle(policy: Policy) -> None:
    """Record all rounds that wait; rounds do not wait from then on."""
    backlog = backlog_of(policy)
    if backlog is not None:
        done, due = backlog.recorded()
        state = policy._state
        clock = state.clock.ended() if due else state.clock
        policy._state = replace(state, clock=clock, frozen=replace(state.frozen, covariance=done.covariance))
