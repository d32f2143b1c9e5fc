"""What any policy should beat, and what makes an unbiased log."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.core.choice import Coin
from rarely.core.covariance import DEFAULT_LIMIT, Kind, Sketch, describe_form
from rarely.core.draws import make_generator
from rarely.core.forgetting import Forgetting, describe_forgetting
from rarely.core.policies.linear import LinearLearner
from rarely.core.policy import Policy
from rarely.core.scaling import Affine, ContextScale
from rarely.core.schedules import EveryRound, Schedule


class Uniform(Policy):
    """Any arm that is there, each alike, whatever was observed.

    It still keeps the linear Z of its choices and the ridge estimate of their rewards, so that every
    schedule works on it and `score` shows what a greedy linear policy would know from its log.

    >>> from rarely import Uniform
    >>> Uniform(dim=1, seed=0).select([[[0.0], [0.0]]] * 6).arm
    array([1, 0, 0, 0, 1, 1])
    """

    def __init__(
        self,
        dim: int,
        schedule: Schedule | None = None,
        *,
        ridge: float = 1.0,
        context_scale: Affine | None = None,
        covariance: Kind | Sketch = "auto",
        forgetting: Forgetting | None = None,
        seed: int | np.random.Generator | None = None,
        memory_limit: int = DEFAULT_LIMIT,
    ) -> None:
        schedule = EveryRound() if schedule is None else schedule
        self._schedule, self._kind, self._limit, self._scale = schedule, covariance, memory_limit, context_scale
        scale = ContextScale.start(dim, context_scale, constant=True, fitted=False).affine
        super().__init__(
            LinearLearner.start(scale, ridge),
            schedule=schedule,
            covariance=covariance,
            ridge=ridge,
            beta=0.0,
            chooser=Coin(),
            generator=make_generator(seed),
            memory_limit=memory_limit,
            forgetting=forgetting,
        )

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        return {
            "dim": self.dim,
            "schedule": self._schedule.describe(),
            "ridge": self._ridge,
            "context_scale": None if self._scale is None else self._scale.describe(),
            "covariance": describe_form(self._kind),
            "forgetting": describe_forgetting(self.history.forgetting),
            "memory_limit": self._limit,
        }
