"""NeuralLinear: a network learns what to look at, and Bayesian linear regression on that decides.

a   (n, m)   last hidden layer at the version's weights (with a skip path: and s·x)
ĉ            (λI + Σ aaᵀ)⁻¹ Σ a r̃   over the rounds whose rewards are in
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rarely._core.covariance import Widths
from rarely._core.covariance.cholesky import ridge_solution
from rarely._core.errors import SnapshotError
from rarely._core.inputs.history import History
from rarely._core.model.features import Factors
from rarely._core.policies.learner import FitResult, Learner, LearnerAround, RewardTask
from rarely._core.policies.network_learner import NetworkLearner
from rarely._core.policies.neural import NeuralTS
from rarely._core.saving.fields import Fields
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays


@dataclass(frozen=True)
class LastLayerLearner(LearnerAround):
    """A network whose last layer is fitted exactly; its feature is that layer's input."""

    coefficients: Array = field(default_factory=lambda: np.zeros(0))
    """ĉ, in units of u; none before the first update, where the mean is 0."""

    @property
    def _network(self) -> NetworkLearner:
        innermost = self.innermost
        assert isinstance(innermost, NetworkLearner)
        return innermost

    @property
    def widths(self) -> Widths:
        return self._network.network.shapes[-1:]

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        network = self._network
        factors = self.base.assess(contexts)[1].last_layer()
        a = factors.inputs[0]
        values = a @ self.coefficients if len(self.coefficients) else np.zeros(len(a))
        return network.rewards.center + network.rewards.spread * network.network.output_scale * values, factors

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        fit = self.base.learn(history, watch)
        learner = self.with_base(fit.learner)
        if fit.reason:
            return replace(fit, learner=learner, basis=None if fit.basis is None else self.with_base(fit.basis))
        _, contexts, rewards, weights = history.samples()
        network = learner._network
        targets = (rewards - network.rewards.center) / (network.rewards.spread * network.network.output_scale)
        a = learner.assess(contexts)[1].weighted(weights).vectors()
        targets = targets if weights is None else targets * np.sqrt(weights)
        coefficients = ridge_solution(network.plan.ridge * np.eye(a.shape[1]) + a.T @ a, a.T @ targets)
        fitted = replace(learner, coefficients=coefficients)
        return replace(fit, learner=fitted, basis=fitted)

    def reward_task(self, history: History, new: int) -> RewardTask | None:
        task = self.base.reward_task(history, new)
        return None if task is None else replace(task, scale=None)  # its own regression is on the sample

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.base.state()
        return numbers, arrays | {"coefficients": self.coefficients}

    def restored(self, saved: Fields) -> Self:
        coefficients = saved.array("coefficients", (None,))
        if len(coefficients) not in (0, self._network.network.shapes[-1][1]):
            raise SnapshotError("must hold learner.coefficients of the last layer, or none. Use a backup.")
        return replace(self, base=self.base.restored(saved), coefficients=coefficients)


class NeuralLinear(NeuralTS):
    """Thompson sampling on the last layer (Riquelme, Tucker and Snoek, 2018) under any schedule.

    At each update the network is trained as `BatchNeuralUCB`'s; then the mean is the ridge regression on its
    last layer's input, and Z is rebuilt from all rounds as that layer sees them now. The arguments are those of
    `BatchNeuralUCB`: λ is the ridge of the regression too, and an arm's deviation is β·√(aᵀZ⁻¹a).

    Examples
    --------
    >>> from rarely import FixedGrid, NeuralLinear
    >>> policy = NeuralLinear(dim=2, hidden=8, schedule=FixedGrid(horizon=20, batches=2), seed=0)
    >>> policy.select([[1.0, 0.0], [1.0, 0.0]]).probabilities
    array([0.5, 0.5])
    """

    _takes_models = False

    def _around(self, learner: Learner) -> Learner:
        return LastLayerLearner(learner)
