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


def with_unit(after: FrozenPolicy, before: FrozenPolicy, contexts: Array) -> FrozenPolicy:
    """The version in the unit in which bonuses go on at the size that they had before, for these chosen contexts.

    An approximation measures √v on another scale: after n rounds of one arm the diagonal form has √(p/n) or so
    where the exact form has √(1/n). β, and the deviations on record that it follows, belong to the scale before.
    """
    kind, was = after.covariance.kind, before.covariance.kind
    if kind in EXACT:
        return _in_units(after, 1.0, 1.0)
    if kind == was:
        return _in_units(after, before.unit, before.next_unit)
    later = _unit(after, before, contexts, running=True)
    return _in_units(after, later if after.running else _unit(after, before, contexts, running=False), later)


def with_next_unit(after: FrozenPolicy, before: FrozenPolicy, contexts: Array) -> FrozenPolicy:
    """The version that an update made of the one before, whose batch is now in the frozen Z."""
    after = with_unit(after, before, contexts)
    return _in_units(after, after.next_unit, after.next_unit)


def _in_units(frozen: FrozenPolicy, unit: float, later: float) -> FrozenPolicy:
    same = (unit, later) == (frozen.unit, frozen.next_unit)
    return frozen if same else replace(frozen, unit=unit, next_unit=later)


def _unit(after: FrozenPolicy, before: FrozenPolicy, contexts: Array, *, running: bool) -> float:
    """ω: the geometric mean of √v before, in its own unit, over √v after."""
    old, new = (
        each.covariance.measure(each.learner.features(contexts), running=running).variances for each in (before, after)
    )
    there, unit = (old > 0) & (new > 0), before.next_unit if running else before.unit
    return unit * float(np.exp(np.mean(np.log(old[there] / new[there])) / 2)) if there.any() else unit


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
