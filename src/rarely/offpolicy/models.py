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
from rarely._core.types import Array
from rarely.logs.decision_log import DecisionLog

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


def reward_model(log: DecisionLog, fit: Fit | None = None) -> Array:
    """Return q, fitted anew whenever the earlier rounds have grown by half; 0 without a reward, and in the first round.

    Where all arms share a row, each arm has a model of its own; until its first reward, that of all arms.
    """
    places, out = log.observed, np.zeros((len(log), log.arm_count))
    arms, rewards, rows, contexts = log.arms[places], log.rewards[places], log.rows, log.contexts[places]
    present = log.present[places]
    for start, end in stages(len(places)):
        here, there = places[start:end], present[start:end]
        if contexts.shape[2] or rows is None:
            chosen = contexts[np.arange(start), arms[:start]]
            values = np.zeros(there.shape)
            values[there] = _predicted(fit or Ridge(), chosen, rewards[:start], contexts[start:end][there])
            out[here] = values
            continue
        for arm in range(log.arm_count):
            mine = np.flatnonzero(arms[:start] == arm) if (arms[:start] == arm).any() else np.arange(start)
            out[here, arm] = _predicted(fit or Ridge(), rows[places[mine]], rewards[mine], rows[here])
    return out


def _predicted(fit: Fit, contexts: Array, rewards: Array, rows: Array) -> Array:
    try:
        given = fit(contexts, rewards)(rows)
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
    return values


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
