"""Neural ε-greedy: what exploration without bonuses gives."""

from __future__ import annotations

from typing import Any

from rarely.core.choice.rules import Mixture
from rarely.core.errors import InvalidInput
from rarely.core.policies.neural import BatchNeuralUCB
from rarely.core.schedules import Schedule


class NeuralEpsilonGreedy(BatchNeuralUCB):
    """The network's best arm, and with probability ε any arm alike (Sutton and Barto, chapter 2).

    The other arguments are those of `BatchNeuralUCB`, which with `beta=0` and `exploration=Mixture(ε)` is this policy.

    Examples
    --------
    >>> from rarely import FixedGrid, NeuralEpsilonGreedy
    >>> policy = NeuralEpsilonGreedy(dim=2, hidden=8, schedule=FixedGrid(20, 2), epsilon=0.1, seed=0)
    >>> policy.select([[1.0, 0.0], [0.0, 1.0]]).probabilities
    array([0.95, 0.05])
    """

    def __init__(self, dim: int, schedule: Schedule, *, epsilon: float = 0.1, **settings: Any) -> None:
        if taken := {"beta", "exploration"} & settings.keys():
            raise InvalidInput(
                f"{', '.join(sorted(taken))} cannot be set: this policy has no bonuses, and epsilon is its "
                "exploration. Use BatchNeuralUCB for more."
            )
        settings |= {"beta": 0.0, "exploration": Mixture(epsilon)}
        super().__init__(dim, schedule, **settings)
        self._epsilon = epsilon

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON."""
        fixed = ("beta", "exploration")
        return {name: value for name, value in super().settings().items() if name not in fixed} | {
            "epsilon": self._epsilon
        }
