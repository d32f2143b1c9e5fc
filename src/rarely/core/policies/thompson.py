"""Thompson sampling: each arm as often as it would be the best, under what is known of it.

    r̃ ~ N(mean, bonus²), independent from arm to arm; the arm of the highest is played

The probability of every arm is integrated, not simulated, and the arm is drawn from it: so a decision's
probabilities are exact, as off-policy estimates need them. With K = 1000 arms that takes some milliseconds
(docs/decisions/0022). `ties` matters where bonuses are 0: arms of one mean and one bonus above 0 are alike in any case.
"""

from __future__ import annotations

from dataclasses import replace

from rarely.core.choice.rules import ChoiceRule, Thompson
from rarely.core.policies.base import Ties
from rarely.core.policies.linear import LinUCB
from rarely.core.policies.neural import TUNED_BETA, BatchNeuralUCB

SAMPLED_BETA = replace(TUNED_BETA, exploit_last=False)
"""A policy that is chosen for its probabilities keeps them above 0 to the end."""


class NeuralTS(BatchNeuralUCB):
    """Neural Thompson sampling (Zhang, Zhou, Li and Gu, 2021) under any schedule.

    Its σ² = λ·gᵀU⁻¹g/m is the bonus² of `beta` = ν√λ, ν being the paper's. The arguments are those of
    `BatchNeuralUCB`; without bonuses (`beta=0`) it is greedy, and `ties` says which of equal means it takes.

    Examples
    --------
    >>> from rarely import FixedGrid, NeuralTS
    >>> policy = NeuralTS(dim=2, hidden=8, schedule=FixedGrid(horizon=20, batches=2), seed=0)
    >>> policy.select([[1.0, 0.0], [1.0, 0.0]]).probabilities
    array([0.5, 0.5])
    """

    _tuned_beta = SAMPLED_BETA
    _tuned_within_batch = "frozen"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return Thompson(lowest=ties == "lowest")


class LinTS(LinUCB):
    """Linear Thompson sampling (Agrawal and Goyal, 2013) under any schedule.

    Their posterior N(θ̂, v²Z⁻¹) gives each arm the mean xᵀθ̂ and the deviation v√(xᵀZ⁻¹x), `beta` = v. Arms are
    sampled from these one by one, as in `NeuralTS`, and not through one draw of θ: with it the probability of an
    arm among several has no closed form. Its bonuses are frozen within a batch unless `within_batch` is "running".

    Examples
    --------
    >>> from rarely import LinTS
    >>> policy = LinTS(dim=1, intercept=False, seed=0)
    >>> policy.select([[1.0], [2.0], [0.0]]).probabilities.round(3)
    array([0.324, 0.426, 0.25 ])
    """

    _usual_within_batch = "frozen"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return Thompson(lowest=ties == "lowest")
