"""The rounds of a log whose rewards are in, and how much each of them says about a target."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rarely.core.policies.base import Policy
from rarely.core.types import Array, IntArray
from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import InvalidLog
from rarely.offpolicy.errors import NotIdentified
from rarely.offpolicy.learned import rounds_learned_from
from rarely.offpolicy.target import Target, read_target

NEGLIGIBLE = 1e-12
"""A target's probability up to which an arm that the log could not choose is left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rounds with rewards, in the order of their numbers."""

    places: IntArray
    arms: IntArray
    rewards: Array
    target: Array
    """(n, K): the target's probabilities."""
    weights: Array
    """(n,): the target's probability of the chosen arm over the log's."""
    unlikely: float
    """The target's probability, in the mean, of arms that the log would not choose once in as many rounds."""
    learned: int
    """Rounds that the target may have learned from."""

    def __post_init__(self) -> None:
        if not self.weights.any():
            raise NotIdentified(
                f"the target must agree with the log at least once; in none of {len(self.weights)} rounds with rewards "
                "did the log choose an arm that the target would. Log more rounds."
            )

    @classmethod
    def of(cls, log: DecisionLog, target: Target) -> Sample:
        """All rounds of a log that have a reward; refused if the log could not choose what the target would."""
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
        learned = rounds_learned_from(target, log, places) if isinstance(target, Policy) else 0
        return cls(places, arms, log.rewards[places], chances, weights, unlikely, learned)

    @property
    def blind(self) -> bool:
        """Whether the target wants arms that the log would hardly ever choose, more than chance explains."""
        n = len(self.weights)
        return self.unlikely > max(float(self.weights.std()) / math.sqrt(n), 1 / n)

    def later(self) -> Sample:
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
