"""Rounds decided one after another against the running Z, measured together.

    v    (N,)    φᵀZ⁻¹φ of all arms of n rounds, Z running before the first of them
    c    (N,)    φᵀZ⁻¹φ' with the feature φ' that the latest round chose

A round adds φ'φ'ᵀ to Z, so later arms are known better:  v ← v − c²/(1 + v'). One solve for all arms reads the factor
of Z once, where n single rounds would read it n times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rarely.core.choice.rules import ChoiceRule, sample_arms
from rarely.core.covariance import Covariance
from rarely.core.inputs.contexts import Part
from rarely.core.policies.scored_arms import ScoredArms, most_likely_arm
from rarely.core.types import Array, IntArray


class Turns(NamedTuple):
    """What a part's rounds chose."""

    arms: IntArray
    variances: Array
    """(n, K): of every arm when its round was decided, NaN where no arm is."""
    probabilities: Array


def in_turn(
    assessed: ScoredArms,
    part: Part,
    covariance: Covariance,
    per_deviation: float,
    rule: ChoiceRule,
    uniforms: Array | None,
) -> Turns:
    """Arms of consecutive rounds, each with the bonuses that the rounds before it leave: `per_deviation`·√v."""
    candidates = assessed.candidates[0]
    variances = candidates.variances.copy()
    ends = np.cumsum(part.present.sum(axis=1))
    arms = np.empty(len(part), np.int64)
    known, probabilities = assessed.variances.copy(), np.zeros(assessed.means.shape)
    steps = np.empty((len(part), len(variances)))
    for i, end in enumerate(ends):
        here, present = slice(end - int(part.present[i].sum()), end), part.present[i]
        known[i, present] = variances[here]
        one = assessed.round(i, per_deviation * np.sqrt(known[[i]]))
        probabilities[i] = one.probabilities(rule)[0]
        alone = probabilities[[i]]
        arms[i] = (most_likely_arm(alone) if uniforms is None else sample_arms(alone, uniforms[[i]]))[0]
        if i + 1 == len(part):
            break
        row = here.start + int(present[: arms[i]].sum())
        later = slice(end, len(variances))
        inner = covariance.cross(candidates[[row]], candidates[later])
        # The rounds before this one have changed Z as well.
        inner = inner - steps[:i, row] @ steps[:i, later]
        steps[i, later] = inner / np.sqrt(1 + variances[row])
        variances[later] = np.maximum(variances[later] - np.square(steps[i, later]), 0.0)
    return Turns(arms, known, probabilities)
