"""What another policy would have earned with slates: several arms in a round, one below the other.

    r_j   reward of slot j, 0 where it was not seen      w_j   π(a_j | a_<j)/p(a_j | a_<j)      S   slates

    whole         V̂ = mean of Π_j w_j · Σ_j r_j          whatever the slots have to do with each other
    cascade       V̂ = mean of Σ_j (Π_{i≤j} w_i)·r_j      if a slot's reward knows nothing of the slots below
    independent   V̂ = mean of Σ_j w_j·r_j                if it knows of no other slot, with w_j of that slot alone

The fewer weights are multiplied, the narrower the interval. What a slot has alone, whatever stands above, a log knows
whose slots were drawn so. Of slots that were drawn in turn, as those of `select(contexts, slots=…)`, it follows:

    w_j = π_j(a_j)/(p(a_j | a_<j)·Π_{i<j} (1 − p(a_j | a_<i)))

Each arm that is left in slot j has been spared by the slots above with the chances in the product, one after another,
so on average over what stands there every arm has the weight π_j(a), as if none had been taken. π_j(a), the target's
probability of an arm in slot j, is that of a policy in slates of its own, of which some are drawn: their mean is right
on average however few they are, and exact where it draws nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rarely.extend import Array, IntArray, Policy
from rarely.extend.checks import check_choice
from rarely.extend.provisional import sample_arms
from rarely.logs.decision_log import DecisionLog, check_log, probabilities_of
from rarely.logs.tables import InvalidLog
from rarely.offpolicy.estimates import Estimate, note_on_weights
from rarely.offpolicy.intervals import deviations, effective, normal
from rarely.offpolicy.sample import NotIdentified, Target, check_able, compared, on_its_contexts, read_target

SlateModel = Literal["whole", "cascade", "independent"]
DRAWN = 16  # slates that a target draws for each on record, for its probabilities in a slot whatever stands above


def slates(log: DecisionLog, target: Target, *, model: SlateModel = "cascade", level: float = 0.95) -> Estimate:
    """Estimate the mean reward of a slate, the sum of its slots, by inverse propensity scores.

    Raises `NotIdentified` as `ips` does, and for "independent" if the contexts of arms that stand above a slot are not
    on record, because they are others in each slot.

    Parameters
    ----------
    log
        Decisions of `select(contexts, slots=…)`, or `DecisionLog.from_arrays(…, slates=…)`. Slates without any reward
        are left out, and a slot without one was not seen.
    target, level
        As in `ips`: the target's probabilities in each slot, given what the log shows above it. For "independent"
        those of the slot alone, also of arms above it; `log.probabilities` is the old rule all the same.
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
    target, theirs = on_its_contexts(target, log)
    if model == "independent" and _in_turn(log, places, starts):
        weights = _weights_alone(log, target, theirs, places, starts)
    else:
        weights = compared(log, target, theirs, places)[3]
    rewards, counted = np.nan_to_num(log.rewards[places]), _multiplied(weights, starts, model)
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


def _in_turn(log: DecisionLog, places: IntArray, starts: IntArray) -> bool:
    """Return whether an arm that stands in a slot could not be chosen again in the next."""
    below = np.delete(np.arange(len(places)), starts)
    return bool((probabilities_of(log, places)[below, log.arms[places][below - 1]] == 0).any())


def _weights_alone(log: DecisionLog, target: Any, theirs: DecisionLog, places: IntArray, starts: IntArray) -> Array:
    """Return the weight of each slot by itself, of slots that were drawn in turn: w_j of the module."""
    each, arms, logging = np.arange(len(places)), log.arms[places], probabilities_of(log, places)
    first = np.repeat(starts, np.diff([*starts, len(places)]))
    slot, spared, above = each - first, np.ones_like(logging), np.zeros(logging.shape, np.bool_)
    for j in range(1, slot.max() + 1):
        here = np.flatnonzero(slot == j)
        spared[here] = spared[here - 1] * np.maximum(1 - logging[here - 1], 0)
        above[here] = above[here - 1]
        above[here, arms[here - 1]] = True
    if isinstance(target, Policy):
        chances = _chances_in_slots(target, theirs, places, first)
    else:
        present = log.present
        present[places] = present[places[first]]
        chances = read_target(target, log, places, present)
        if np.array_equal(chances, logging, equal_nan=True):  # the old rule, whatever its slots would have alone
            return np.ones(len(places))
    able = (spared > 0) & ((logging > 0) | above)
    name = "slot {} of the slate of round {}".format
    check_able(chances, able, lambda i: name(slot[i] + 1, log.rounds[places[first[i]]]), "take model='cascade'")
    return np.asarray(chances[each, arms] / (logging[each, arms] * spared[each, arms]))


def _chances_in_slots(target: Policy, log: DecisionLog, places: IntArray, first: IntArray) -> Array:
    """Return a policy's probabilities in each slot of slates of its own: the mean over some that it draws."""
    contexts, present, worth = log.contexts[places], log.present[places], log.worth
    if (contexts[present] != contexts[first][present]).any():
        raise NotIdentified(
            "model 'independent' needs the contexts of all arms in each slot, and this log has no more those of arms "
            "that stand above it, which differ from slot to slot. Take model='cascade', which does not ask for them."
        )
    chances, generator = np.zeros(present.shape), np.random.default_rng(0)
    left = np.repeat(present[:, None], DRAWN, axis=1)  # of the first slot of each slate, and of no other
    slot = np.arange(len(places)) - first
    for j in range(slot.max() + 1):
        here = np.flatnonzero(slot == j)
        heads = np.repeat(first[here], DRAWN)
        mask = left[first[here]].reshape(len(heads), -1)
        valued = None if worth is None else worth[places[heads]]
        drawn = target.probabilities(contexts[heads], mask=mask, worth=valued)
        arms = sample_arms(drawn, generator.random(len(drawn)))
        chances[here] = drawn.reshape(len(here), DRAWN, -1).mean(axis=1)
        left[heads, np.tile(np.arange(DRAWN), len(here)), arms] = False
    return chances


def _multiplied(weights: Array, starts: IntArray, model: SlateModel) -> Array:
    """Return what the reward of each slot is multiplied by."""
    if model == "independent":
        return weights
    out, lengths = weights.copy(), np.diff(starts, append=len(weights))
    for slot in range(1, lengths.max(initial=1)):
        here = starts[lengths > slot] + slot
        out[here] *= out[here - 1]
    return np.repeat(out[starts + lengths - 1], lengths) if model == "whole" else out
