"""What another policy would have earned with slates: several arms in a round, one below the other.

    r_j   reward of slot j, 0 where it was not seen      w_j   π(a_j | a_<j)/p(a_j | a_<j)      S   slates

    whole         V̂ = mean of Π_j w_j · Σ_j r_j          whatever the slots have to do with each other
    cascade       V̂ = mean of Σ_j (Π_{i≤j} w_i)·r_j      if a slot's reward knows nothing of the slots below
    independent   V̂ = mean of Σ_j w_j·r_j                if it knows of no other slot, with w_j of that slot alone

The fewer weights are multiplied, the narrower the interval. Probabilities that were drawn in turn are those given what
stands above; the weights of `independent` need those of a slot alone, which a log has whose slots were drawn so.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from rarely.extend import Array, IntArray
from rarely.extend.checks import check_choice
from rarely.frames.policy import FramePolicy
from rarely.logs.decision_log import DecisionLog, check_log
from rarely.logs.tables import InvalidLog
from rarely.offpolicy.estimates import Estimate, note_on_weights
from rarely.offpolicy.intervals import deviations, effective, normal
from rarely.offpolicy.sample import NotIdentified, Target, by_tables, compared

SlateModel = Literal["whole", "cascade", "independent"]


def slates(log: DecisionLog, target: Target, *, model: SlateModel = "cascade", level: float = 0.95) -> Estimate:
    """Estimate the mean reward of a slate, the sum of its slots, by inverse propensity scores.

    Raises `NotIdentified` as `ips` does, and for "independent" if arms above a slot could not be chosen again in it.

    Parameters
    ----------
    log
        Decisions of `select(contexts, slots=…)`, or `DecisionLog.from_arrays(…, slates=…)`. Slates without any reward
        are left out, and a slot without one was not seen.
    target, level
        As in `ips`: the target's probabilities in each slot, given what the log shows above it.
    model
        What a slot's reward may depend on: the "whole" slate, the slots above it ("cascade"), or itself alone.

    Examples
    --------
    >>> from rarely import Uniform
    >>> contexts, log, policy = np.arange(4.0)[:, None], DecisionLog(), Uniform(dim=1, seed=0)
    >>> for _ in range(500):
    ...     slate = policy.select(contexts, slots=2)
    ...     log.record(contexts, slate)
    ...     log.observe(slate, slate.arm / 4)
    >>> estimate = slates(log, log.probabilities)  # of 0, 1/4, 1/2 and 3/4, twice
    >>> estimate.rounds, estimate.low < 0.75 < estimate.high
    (500, True)
    """
    check_log(log)
    check_choice("model", model, SlateModel)
    if log.slates is None:
        raise InvalidLog("the log has no slates; record decisions of select(contexts, slots=…), or give slates=.")
    places, starts = _slots(log)
    theirs = log
    if isinstance(target, FramePolicy):
        target, theirs = target.policy, by_tables(target.tables, log)
    arms, _, logging, weights = compared(log, target, theirs, places)
    below = np.delete(np.arange(len(arms)), starts)
    if model == "independent" and (logging[below, arms[below - 1]] == 0).any():
        raise NotIdentified(
            "model 'independent' needs the probabilities of each slot alone, and this log has them given what stands "
            "above: an arm that was taken has 0 further down. Take model='cascade', which needs no others."
        )
    rewards, counted = np.nan_to_num(log.rewards[places]), _weights(weights, starts, model)
    terms = np.add.reduceat(counted * rewards, starts)
    sizes = np.maximum.reduceat(counted, starts)
    value, n = float(terms.mean()), len(terms)
    error = float(terms.std(ddof=1)) / n**0.5 if n > 1 else np.inf
    low, high = normal(value, error, deviations(level))
    note = note_on_weights(sizes)
    return Estimate(value, error, low, high, level, n, effective(sizes), float(sizes.max()), note)


def _slots(log: DecisionLog) -> tuple[IntArray, IntArray]:
    """Return the places of the slots of all slates with a reward, in order, and where each slate begins."""
    assert log.slates is not None
    order = np.lexsort((log.rounds, log.slates))
    marks = log.slates[order]
    rewarded = np.unique(marks[~np.isnan(log.rewards[order])])
    if not len(rewarded):
        raise InvalidLog("an estimate needs at least one slate with a reward.")
    kept = np.isin(marks, rewarded)
    places, marks = order[kept], marks[kept]
    return places, np.flatnonzero(np.r_[True, marks[1:] != marks[:-1]])


def _weights(weights: Array, starts: IntArray, model: SlateModel) -> Array:
    """Return what the reward of each slot is multiplied by."""
    if model == "independent":
        return weights
    out = weights.copy()
    for start, end in zip(starts, [*starts[1:], len(weights)], strict=True):
        np.cumprod(weights[start:end], out=out[start:end])
        if model == "whole":
            out[start:end] = out[end - 1]
    return out
