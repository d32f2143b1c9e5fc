"""What rewards a doubly robust estimate expects, learned from earlier rounds alone.

    q   (n, K)   expected reward of every arm, from a model fitted on rounds before its own

Ordinary cross-fitting learns from later rounds too. Those of a learning policy depend on the reward they are to
predict, and a term would no longer be unbiased given the past; earlier rounds do it no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rarely._core.errors import InvalidInput, check_positive
from rarely._core.inputs.contexts import read_real
from rarely._core.types import Array, BoolArray, IntArray

Predict = Callable[[Array], Array]
"""(M, d) contexts → (M,) expected rewards."""
Fit = Callable[[Array, Array], Predict]
"""(m, d) contexts of chosen arms and their (m,) rewards, m ≥ 1 → a prediction for any arm."""
MIN_FIT_ROUNDS = 16
"""Rounds before slopes are fitted: those of a handful say less than their mean."""


@dataclass(frozen=True)
class Ridge:
    """q(x) = r̄ + (x − x̄)ᵀθ, with ‖θ‖² weighed by `strength` times the mean variance of the columns.

    The intercept is free, so rewards and contexts may lie anywhere, on any common scale.

    Examples
    --------
    >>> x = np.arange(20.0)[:, None]
    >>> Ridge(strength=1e-9)(x, 7 + 2 * x[:, 0])(np.array([[100.0]])).round(3)
    array([207.])
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        check_positive("strength", self.strength, "because it makes the equations solvable")

    def __call__(self, contexts: Array, rewards: Array) -> Predict:
        center, level = contexts.mean(axis=0), float(rewards.mean())
        x = contexts - center
        gram = x.T @ x
        penalty = self.strength * float(np.trace(gram)) / x.size
        if len(x) < MIN_FIT_ROUNDS or penalty == 0.0:
            return lambda rows: np.full(len(rows), level)
        theta = np.linalg.solve(gram + penalty * np.eye(len(gram)), x.T @ (rewards - level))
        return lambda rows: np.asarray(level + (rows - center) @ theta)


def predictions(fit: Fit, contexts: Array, present: BoolArray, arms: IntArray, rewards: Array) -> Array:
    """Return q, fitted anew whenever the earlier rounds have grown by half; 0 in the first round, which has none."""
    chosen = contexts[np.arange(len(arms)), arms]
    out = np.zeros(present.shape)
    for start, end in stages(len(arms)):
        there = present[start:end]
        rows = contexts[start:end][there]
        try:
            given = fit(chosen[:start], rewards[:start])(rows)
        except TypeError as reason:
            raise InvalidInput(
                "model must be a function fit(contexts, rewards) that returns a function predict(contexts), such as "
                f"Ridge(); {reason}."
            ) from reason
        values = read_real(given, "predictions of a model", InvalidInput)
        if values.shape != (len(rows),) or not np.isfinite(values).all():
            raise InvalidInput(
                f"a model must predict one finite reward for each context; for {len(rows)} contexts it gave "
                f"{values.shape}{'' if np.isfinite(values).all() else ', not all finite'}."
            )
        out[start:end][there] = values
    return out


def stages(rounds: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of rounds, from … to, that share a model; the first round has none.

    >>> list(stages(11))
    [(1, 2), (2, 3), (3, 4), (4, 6), (6, 9), (9, 11)]
    """
    start = 1
    while start < rounds:
        end = min(rounds, start + max(1, start // 2))
        yield start, end
        start = end
