"""A form of Z that changed by itself: bonuses go on at their size, and the change is on record and announced."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from rarely.core.covariance import Auto, Covariance
from rarely.core.errors import ApproximationWarning
from rarely.core.policies.clock import BatchClock
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.state import PolicyState
from rarely.core.types import Array

EXACT = ("dual", "primal")
RECENT = 64
"""Chosen contexts by which two forms of Z are compared, the latest ones."""


def rebased(clock: BatchClock, before: tuple[str, float], now: Covariance) -> BatchClock:
    """The clock after a form of Z and its frozen log det gave way to another: growth is counted from there."""
    kind, log_det = before
    if kind == now.kind or (kind in EXACT and now.kind in EXACT):
        return clock
    return clock.rebased(now.frozen_log_det - log_det)


def with_unit(frozen: FrozenPolicy, before: Covariance, contexts: Array) -> FrozenPolicy:
    """The version after another form of Z gave way to its own, in the unit in which bonuses go on at their size.

    An approximation measures √v on another scale: after n rounds of one arm the diagonal form has about p/n where the
    exact form has 1/n. β, and the deviations on record that it follows, belong to the scale before.
    """
    kind = frozen.covariance.kind
    if kind == before.kind or (kind in EXACT and before.kind in EXACT):
        return frozen
    if kind in EXACT:
        return replace(frozen, unit=1.0)
    return replace(frozen, unit=unit_after(frozen, before, contexts))


def unit_after(frozen: FrozenPolicy, before: Covariance, contexts: Array) -> float:
    """u of a version whose Z had another form before: the geometric mean over these contexts of √v then and now."""
    if not len(contexts):
        return frozen.unit
    factors = frozen.learner.features(contexts)
    was, now = (form.measure(factors, running=frozen.running).variances for form in (before, frozen.covariance))
    there = (was > 0) & (now > 0)
    if not there.any():
        return frozen.unit
    return frozen.unit * float(np.exp(np.mean(np.log(was[there] / now[there])) / 2))


def noted(before: PolicyState, after: PolicyState, round: int) -> PolicyState:
    """The state after a call, with an event if Z changed between exact and approximate with that round.

    The first change is announced by a warning.
    """
    was, now = before.frozen.covariance.kind, after.frozen.covariance.kind
    covariance = after.frozen.covariance
    if was == now or (was in EXACT) == (now in EXACT) or not isinstance(covariance, Auto):
        return after
    latency = covariance.latency
    if now in EXACT or latency is None:
        detail = f"Z is exact again, in the {now} form"
    else:
        p = sum(o * i for o, i in after.frozen.learner.widths)
        detail = (
            f"an exact Z would take more than limits.latency = {1e3 * latency.seconds:g} ms for a decision among "
            f"{latency.arms} arms with p = {p:,}, so it is approximated by the {now} form: the rest of it is lost, and "
            "no bound on the error of bonuses is known"
        )
        if all(event.kind != "covariance" for event in after.events):
            warnings.warn(
                f"{detail}. docs/decisions/0027 has the regret that this costs. covariance='exact' keeps Z exact, and "
                "a larger latency postpones it; policy.cost tells when.",
                ApproximationWarning,
                stacklevel=4,
            )
    event = PolicyEvent("covariance", round, after.clock.version, detail)
    return replace(after, events=(*after.events, event))
