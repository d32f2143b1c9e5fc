"""What any policy should beat, and what makes an unbiased log."""

from __future__ import annotations

from typing import Any

from rarely.core.choice.random_stream import Seed, seeded
from rarely.core.choice.rules import UniformChoice
from rarely.core.covariance import Kind, Sketch
from rarely.core.inputs.forgetting import Forgetting
from rarely.core.inputs.scaling import Affine, ContextScale
from rarely.core.policies.base import Policy
from rarely.core.policies.limits import DEFAULT_HISTORY, Limits
from rarely.core.policies.linear import LinearLearner
from rarely.core.policies.renamed import grouped_limits
from rarely.core.policies.settings import decoded, encoded
from rarely.core.schedules import EveryRound, Schedule


class Uniform(Policy):
    """Any arm that is there, each alike, whatever was observed.

    It still keeps the linear Z of its choices and the ridge estimate of their rewards, so that every
    schedule works on it and `score` shows what a greedy linear policy would know from its log.

    Examples
    --------
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
        seed: Seed = None,
        limits: Limits | None = None,
        **renamed: Any,
    ) -> None:
        (limits,) = decoded(limits=limits)
        limits = grouped_limits(type(self).__name__, limits, renamed).settled(history=DEFAULT_HISTORY)
        limits.check_unset(type(self).__name__, "latency", "arms")
        schedule, covariance = decoded(schedule=schedule, covariance=covariance)
        context_scale, forgetting = decoded(context_scale=context_scale, forgetting=forgetting)
        schedule = EveryRound() if schedule is None else schedule
        self._schedule, self._scale = schedule, context_scale
        scale = ContextScale.start(dim, context_scale, constant=True, fitted=False).affine
        super().__init__(
            LinearLearner.start(scale, ridge),
            schedule=schedule,
            covariance=covariance,
            ridge=ridge,
            beta=0.0,
            chooser=UniformChoice(),
            seed=seeded(seed),
            limits=limits,
            forgetting=forgetting,
        )

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        return encoded(
            {
                "dim": self.dim,
                "schedule": self._schedule,
                "ridge": self._maker.ridge,
                "context_scale": self._scale,
                "covariance": self._maker.form,
                "forgetting": self.history.forgetting,
                "seed": self._seed,
                "limits": self._limits,
            }
        )
