"""The arms that were offered since the last update, chosen or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.covariance import Candidates
from rarely.core.covariance.protocol import prior_variances
from rarely.core.saved import CLOSE, Fields


@dataclass(frozen=True, slots=True)
class Offered:
    """A running mean: how much of the variance before any data is left in an arm."""

    arms: int = 0
    unexplored: float = 0.0
    """Σ λφᵀZ⁻¹φ/‖φ‖² over these arms."""

    @property
    def share(self) -> float | None:
        """The mean, from 0 to 1; None before any arm was offered."""
        return self.unexplored / self.arms if self.arms else None

    def also(self, candidates: list[Candidates], arms: int, ridge: float) -> Offered:
        """With the first so many of these arms."""
        total, left = 0.0, arms
        for piece in candidates:
            prior = prior_variances(piece.factors, ridge)[:left]
            part = piece.variances[:left] / np.where(prior > 0, prior, np.inf)
            total, left = total + float(np.minimum(part, 1.0).sum()), left - len(part)
        return Offered(self.arms + arms, self.unexplored + total)

    def describe(self) -> dict[str, Any]:
        """The sums as JSON."""
        return {"arms": self.arms, "unexplored": self.unexplored}

    @classmethod
    def restored(cls, saved: Fields) -> Offered:
        """The saved sums."""
        with saved:
            arms = saved.whole("arms")
            return cls(arms, saved.number("unexplored", least=0.0, most=arms * (1 + CLOSE)))
