"""Rivals with a linear model that give up arms: BLCE, and batched elimination with an optimal design.

    x       (d,)    an arm's context, with a constant where contexts have none of their own: what `LinUCB` sees
    V_b     (d, d)  I + Σ x xᵀ over the rewards that update b has revealed, and no others
    θ_b     (d,)    V_b⁻¹ Σ r x
    ‖x‖_b   √(xᵀV_b⁻¹x)
    H       (d, d)  I + Σ x xᵀ over the rounds since the last update, which needs no reward

Arms are given up in every round: the versions b = 1, 2, … do so one after another, and each sees what those before it
have left. Both have grids of their own with about log log T ends, and use no more updates than these, whatever the
budget.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rarely import LogLogGrid
from rarely.extend import Array, BoolArray
from rarely_lab.compare.problems import AtEnds, Task

EXPLORED = 0.5  # BLCE's c, the part of a batch that explores. The sources at hand leave it open.
DESIGN_STEPS, DESIGN_PRECISION = 50, 1e-3


class Version(NamedTuple):
    """What an update has learned from the rewards that it revealed: θ_b and V_b⁻¹."""

    coefficients: Array
    inverse: Array
    deviation: float
    """How far a reward is from the estimate without it: the root of the mean of ((r − θᵀx)/(1 − ‖x‖²))²."""

    @classmethod
    def of(cls, rows: Array, rewards: Array) -> Version:
        """Return the ridge estimate with λ = 1."""
        inverse: Array = np.linalg.inv(np.eye(rows.shape[1]) + rows.T @ rows).astype(np.float64)
        coefficients = inverse @ (rows.T @ rewards)
        leverages = np.einsum("nd,de,ne->n", rows, inverse, rows, optimize=True)
        errors = (rewards - rows @ coefficients) / (1 - leverages)
        return cls(coefficients, inverse, float(np.sqrt(np.mean(errors**2))))


class LinearElimination(AtEnds, ABC):
    """What the two share: contexts as `LinUCB` sees them, arms that are given up, estimates from one batch each."""

    stream = 9

    def __init__(self, task: Task, ends: tuple[int, ...]) -> None:
        super().__init__(task, ends)
        self.versions: list[Version] = []
        self.round = self.began = 0

    def rows(self, contexts: Array) -> Array:
        return self._task.linear_view(contexts)

    @abstractmethod
    def keep(self, version: Version, x: Array) -> BoolArray:
        """Return which of these contexts, (n, d), a version leaves."""

    @abstractmethod
    def choose(self, x: Array) -> int:
        """Return the place of the context to play among those that are left, (n, d)."""

    def left(self, x: Array) -> list[int]:
        """Return the arms that all versions leave."""
        arms = np.arange(len(x))
        for version in self.versions:
            arms = arms[self.keep(version, x[arms])]
        return [int(arm) for arm in arms]

    def select(self, contexts: Array) -> int:
        self.round += 1
        x = self.rows(contexts)
        arms = self.left(x)
        return arms[self.choose(x[arms])]

    def learn(self, arms: Sequence[int], rows: Sequence[Array], rewards: Sequence[float]) -> None:
        self.versions.append(Version.of(np.array(rows), np.array(rewards)))
        self.began = self.round


class BLCE(LinearElimination):
    """BLCE of Yu and Oh (2026, arXiv 2606.00984), as published summaries of the paper describe it.

    The first batch, and the first half of every later one, plays the arm with the largest xᵀH⁻¹x; the second half the
    largest mean of the last version. A version gives up x if max θᵀy − θᵀx > 2ε, where ε = max ‖y‖ times the smaller
    of two radii: √(2 log(n(B−1)T²)) + 1 for n arms, and 2√log(2^(6d−5) πd (B−1)²T²/15^(d−1)) + 2. Batch b ends after
    round t_(b−1) + ⌈T^(1 − 2^(−b))/log₂ log₂ T⌉ + 2, the first of them one round earlier.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task, self.grid(task.horizon)[: max(task.batches - 1, 0)])
        d, versions = task.linear_view.scaled_dim, max(len(self._ends), 1)
        self._log_versions = 2 * math.log(task.horizon) + math.log(versions)
        sphere = (6 * d - 5) * math.log(2) + math.log(math.pi * d) - (d - 1) * math.log(15) + math.log(versions)
        self._most = 2 * math.sqrt(max(self._log_versions + sphere, 0.0)) + 2
        self._inverse = np.eye(d)

    @staticmethod
    def grid(horizon: int) -> tuple[int, ...]:
        """Return the rounds after which batches end.

        >>> BLCE.grid(2000)
        (14, 103, 329, 691, 1150, 1667)
        """
        ends, share = [0], max(math.log2(math.log2(max(horizon, 4))), 1.0)
        while ends[-1] < horizon:
            b = len(ends)
            ends.append(ends[-1] + math.ceil(horizon ** (1 - 0.5**b) / share) + (1 if b == 1 else 2))
        return tuple(ends[1:-1])

    def keep(self, version: Version, x: Array) -> BoolArray:
        norms = np.sqrt(np.einsum("nd,de,ne->n", x, version.inverse, x, optimize=True))
        radius = min(math.sqrt(2 * (math.log(len(x)) + self._log_versions)) + 1, self._most)
        means = x @ version.coefficients
        return np.asarray(means >= means.max() - 2 * norms.max() * radius)

    def choose(self, x: Array) -> int:
        end = next((end for end in self._ends if end >= self.round), self._task.horizon)
        if self.versions and self.round - self.began > EXPLORED * (end - self.began):
            place = int(np.argmax(x @ self.versions[-1].coefficients))
        else:
            place = int(np.argmax(np.einsum("nd,de,ne->n", x, self._inverse, x, optimize=True)))
        row = self._inverse @ x[place]
        self._inverse -= np.outer(row, row) / (1 + x[place] @ row)  # Sherman and Morrison
        return place

    def learn(self, arms: Sequence[int], rows: Sequence[Array], rewards: Sequence[float]) -> None:
        super().learn(arms, rows, rewards)
        self._inverse = np.eye(len(self._inverse))


class DesignElimination(LinearElimination):
    """Batched elimination of Ruan, Yang and Zhou (2021): arms are drawn from the G-optimal design of those left.

    A version gives up x if θᵀx + s‖x‖√(2 log KT) < max (θᵀy − s‖y‖√(2 log KT)), with s its estimate of a reward's
    deviation. With the constants of public code, 10√log(2dKT²) and λ = 32 log(2dT²), no problem of board v1 has an arm
    that is given up. The last version plays its largest mean.
    """

    def __init__(self, task: Task) -> None:
        batches = 1 + math.ceil(math.log2(math.log2(max(task.horizon, 4))))
        super().__init__(task, LogLogGrid(task.horizon, min(batches, task.batches)).points)
        self._radius = math.sqrt(2 * math.log(task.arms * task.horizon))

    def keep(self, version: Version, x: Array) -> BoolArray:
        norms = np.sqrt(np.einsum("nd,de,ne->n", x, version.inverse, x, optimize=True))
        means, errors = x @ version.coefficients, version.deviation * self._radius * norms
        return np.asarray(means + errors >= (means - errors).max())

    def choose(self, x: Array) -> int:
        if self.versions and len(self.versions) == len(self._ends):
            return int(np.argmax(x @ self.versions[-1].coefficients))
        return int(self._generator.choice(len(x), p=optimal_design(x)))


def optimal_design(x: Array) -> Array:
    """Return probabilities of n contexts for which the largest xᵀ(Σ p x xᵀ)⁺x is smallest, (n,).

    >>> optimal_design(np.array([[2.0, 0.0], [0.0, 1.0]])), optimal_design(np.array([[1.0], [0.5]])).round(2)
    (array([0.5, 0.5]), array([1., 0.]))
    """
    chances = np.full(len(x), 1 / len(x))
    for _ in range(DESIGN_STEPS):
        # p ← p·xᵀ(Σ p x xᵀ)⁺x / rank; the sum of p·xᵀ(…)⁺x is the rank.
        left, singular, _ = np.linalg.svd(np.sqrt(chances)[:, None] * x, full_matrices=False)
        shares = np.square(left[:, singular > 1e-9 * max(singular[0], 1e-300)]).sum(axis=1)
        before, chances = chances, shares / max(shares.sum(), 1e-300)
        if np.abs(chances - before).max() < DESIGN_PRECISION:
            break
    return np.asarray(chances / chances.sum()) if chances.sum() > 0 else np.full(len(x), 1 / len(x))
