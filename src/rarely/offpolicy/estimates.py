"""What another policy would have earned, from a log of decisions with their probabilities.

    n     rounds       ()      rounds of the log whose rewards are in
    p     logging      (n, K)  probabilities that the arms were drawn from
    π     target       (n, K)  probabilities of the policy to be judged
    w     weights      (n,)    π/p of the chosen arm
    r     rewards      (n,)
    q     q            (n, K)  rewards that a model expects
    V̂     value        ()      estimate of the target's mean reward in a round
    ψ     influence    (n,)    what each round adds to n(V̂ − V); the error is √(Σψ²/n(n−1))

    ips     V̂ = mean of w·r                              ψ = w·r − V̂
    snips   V̂ = Σ w·r / Σ w                              ψ = w·(r − V̂)/w̄, by the delta method
    dr      V̂ = mean of Σ_a π(a)·q(a) + w·(r − q)        ψ = term − V̂

A policy that learns between batches decides on what it saw before, so rounds are not independent and make a
martingale. But a version is frozen while it decides and logs the probabilities that it draws from: they are exact,
and each term of ips and dr is unbiased given everything before its round. Normal intervals then rest on the central
limit theorem for martingales, which asks that no weight dominates and that the mean of the terms' conditional
variances settles: with a `Mixture(epsilon)` weights are at most K/ε. A target must not have learned from the very
rewards that judge it, or its estimate is too good; and rounds without rewards are left out, which does no harm as
long as whether a reward comes has nothing to do with what it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from statistics import NormalDist
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.types import Array, IntArray
from rarely.offpolicy.errors import InvalidLog, NotIdentified
from rarely.offpolicy.log import DecisionLog
from rarely.offpolicy.models import Fit, Ridge, predictions
from rarely.offpolicy.target import Target, read_target

NEGLIGIBLE = 1e-12
"""A target's probability up to which an arm that the log could not choose is left out."""
FEW = 50
"""Effective rounds below which a note warns of the normal interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean reward of a target in a round, and how sure it is."""

    value: float
    error: float
    """The standard error; infinite for a single round."""
    low: float
    high: float
    """The normal interval of the level."""
    level: float
    rounds: int
    """Rounds that the value is a mean of."""
    effective_rounds: float
    """(Σw)²/Σw²: how many rounds of the target itself would say as much, roughly."""
    largest_weight: float
    note: str
    """What to know before trusting it; empty when there is nothing."""


def ips(log: DecisionLog, target: Target, *, level: float = 0.95) -> Estimate:
    """Inverse propensity scores: unbiased, wide where weights are large.

    `target` is a `Policy` as it stands now, (n, K) probabilities, or (n,) arms. Each term is unbiased given the past,
    whether or not the logging policy learned between batches: see the module.

    >>> from rarely import Uniform
    >>> contexts, log = np.arange(8.0).reshape(4, 2, 1), DecisionLog()
    >>> decision = Uniform(dim=1, seed=0).select(contexts)
    >>> log.record(contexts, decision)
    >>> log.observe(decision, 10.0 * decision.arm)
    >>> decision.arm, ips(log, target=[1, 1, 1, 1]).value
    (array([1, 0, 0, 0]), 5.0)
    """
    sample = _Sample.of(log, target)
    terms = sample.weights * sample.rewards
    value = float(terms.mean())
    return sample.estimate(value, terms - value, level)


def snips(log: DecisionLog, target: Target, *, level: float = 0.95) -> Estimate:
    """Self-normalised inverse propensity scores: never outside the rewards' range, and steady when rewards are shifted.

    Not unbiased but consistent: its bias is of the order of 1/n. The rest is as for `ips`.

    >>> from rarely import Uniform
    >>> contexts, log = np.arange(8.0).reshape(4, 2, 1), DecisionLog()
    >>> decision = Uniform(dim=1, seed=0).select(contexts)
    >>> log.record(contexts, decision)
    >>> log.observe(decision, 10.0 * decision.arm)
    >>> snips(log, target=[1, 1, 1, 1]).value
    10.0
    """
    sample = _Sample.of(log, target)
    value = float((sample.weights * sample.rewards).sum() / sample.weights.sum())
    influence = sample.weights * (sample.rewards - value) / sample.weights.mean()
    return sample.estimate(value, influence, level)


def dr(log: DecisionLog, target: Target, *, model: Fit | Any = None, level: float = 0.95) -> Estimate:
    """Doubly robust: a model's rewards under the target, and what it got wrong, weighed as in `ips`.

    With exact propensities it is unbiased whatever the model; a good one makes it narrow. `model` is

        a function    fit(contexts, rewards) → predict, as `Ridge()` is one, the default. The model of a round is
                      fitted on earlier rounds alone, so each term stays unbiased given the past though the logging
                      policy learned. The first round has none before it and only teaches
        (n, K)        rewards expected in every round of the log, from elsewhere than its rewards

    >>> from rarely import Uniform
    >>> contexts, log = np.random.default_rng(0).normal(size=(400, 2, 1)), DecisionLog()
    >>> decision = Uniform(dim=1, seed=0).select(contexts)
    >>> log.record(contexts, decision)
    >>> log.observe(decision, 100.0 + contexts[np.arange(400), decision.arm, 0])
    >>> target = contexts[..., 0].argmax(axis=1)
    >>> [round(estimate.error, 1) for estimate in (ips(log, target), snips(log, target), dr(log, target))]
    [5.0, 0.1, 0.0]
    """
    sample = _Sample.of(log, target)
    fit = Ridge() if model is None else model
    if callable(fit):
        present, contexts = log.present[sample.places], log.contexts[sample.places]
        q = predictions(fit, contexts, present, sample.arms, sample.rewards)[1:]
        sample = sample.later()
    else:
        q = _read_predictions(fit, log)[sample.places]
    expected = (sample.target * q).sum(axis=1)
    terms = expected + sample.weights * (sample.rewards - q[np.arange(len(q)), sample.arms])
    value = float(terms.mean())
    return sample.estimate(value, terms - value, level)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The rounds whose rewards are in, in their order."""

    places: IntArray
    arms: IntArray
    rewards: Array
    target: Array
    weights: Array
    note: str
    unlikely: float
    """The target's probability, in the mean, of arms that the log would not choose once in as many rounds."""

    def __post_init__(self) -> None:
        if not self.weights.any():
            raise NotIdentified(
                f"the target must agree with the log at least once; in none of {len(self.weights)} rounds with rewards "
                "did the log choose an arm that the target would. Log more rounds."
            )

    @classmethod
    def of(cls, log: DecisionLog, target: Target) -> _Sample:
        places = log.observed
        if not len(places):
            raise InvalidLog(f"an estimate needs at least one round with a reward; the log has {len(log)} without.")
        arms, chances, logging = log.arms[places], read_target(target, log, places), log.probabilities[places]
        unseen = np.argwhere((chances > NEGLIGIBLE) & (logging == 0))
        if len(unseen):
            i, arm = unseen[0]
            raise NotIdentified(
                "the log must have been able to choose whatever the target would; in round "
                f"{log.rounds[places[i]]} the target chooses arm {arm} with probability {chances[i, arm]}, the log "
                "with 0. Log with an exploration, such as Mixture(0.05), or judge a target that stays within its arms."
            )
        each = np.arange(len(places))
        weights = chances[each, arms] / logging[each, arms]
        unlikely = float((chances * (logging < 1 / len(places))).sum(axis=1).mean())
        note = f"{log.missing} of {len(log)} rounds have no reward and are left out." if log.missing else ""
        return cls(places, arms, log.rewards[places], chances, weights, note, unlikely)

    def later(self) -> _Sample:
        """All rounds but the first."""
        if len(self.places) < 2:
            raise InvalidLog("a model that is to be fitted needs at least two rounds with rewards; the log has one.")
        return replace(
            self,
            places=self.places[1:],
            arms=self.arms[1:],
            rewards=self.rewards[1:],
            target=self.target[1:],
            weights=self.weights[1:],
        )

    def estimate(self, value: float, influence: Array, level: float) -> Estimate:
        if not isinstance(level, Real) or not 0 < level < 1:
            raise InvalidInput(f"level must be a number between 0 and 1, such as 0.95; got {level!r}.")
        n, total = len(self.weights), float(self.weights.sum())
        error = math.sqrt(float(np.square(influence).sum()) / (n * (n - 1))) if n > 1 else math.inf
        half = NormalDist().inv_cdf((1 + level) / 2) * error
        effective = total**2 / float(np.square(self.weights).sum())
        hidden = (
            f"The weights average {total / n:.2f} where 1 is expected: the target wants arms that the log had next to "
            "no chance to choose, and what they pay is not in this estimate. Log with an exploration, as Mixture(0.05)."
        )
        few = f"The weights leave {effective:.1f} effective rounds, so few that the interval may be too short."
        same = (
            "All rewards that count are the same, so the interval has no width; that says nothing of rarer ones."
            if n > 1 and error == 0
            else ""
        )
        deviation = float(self.weights.std()) / math.sqrt(n)
        blind = self.unlikely > max(deviation, 1 / n)
        note = " ".join(filter(None, (self.note, hidden if blind else "", few if effective < FEW else "", same)))
        largest = float(self.weights.max())
        return Estimate(value, error, value - half, value + half, level, n, effective, largest, note)


def _read_predictions(model: Any, log: DecisionLog) -> Array:
    try:
        q = np.asarray(model, np.float64)
    except (TypeError, ValueError):
        q = np.empty(0)
    present = log.present
    if q.shape != present.shape or not np.isfinite(q[present]).all():
        raise InvalidInput(
            f"model must be a function that fits, such as Ridge(), or finite rewards of shape {present.shape}, one for "
            f"each arm of each round; got {type(model).__name__} of shape {q.shape}."
        )
    return np.where(present, q, 0.0)
