"""The arms that were offered since the last update, chosen or not: how well each was known.

v   (n, K)   φᵀZ⁻¹φ of every arm when its round was decided        v_0   (n, K)   ‖φ‖²/λ, before any data
ω   ()       the unit of √v where Z is an approximation; see `form_change`
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, IntArray

LEAST = 1e-30
"""A variance whose logarithm is taken for one of 0."""


@dataclass(frozen=True, slots=True)
class Offered:
    """Sums over the rounds since the last update."""

    rounds: int = 0
    arms: int = 0
    unexplored: float = 0.0
    """Σ v/v_0 over all arms."""
    chosen: float = 0.0
    """Σ log ω²v over the arms that were chosen."""
    least_known: float = 0.0
    """Σ log ω²v over the least known arm of each round, that of the largest v."""
    disjoint: bool = True
    """Whether no column had numbers other than 0 for two arms of a round, as with `ArmBlocks` or one-hot arms."""

    def also(self, variances: Array, priors: Array, arms: IntArray, *, disjoint: bool, unit: float = 1.0) -> Offered:
        """With rounds that chose these arms; NaN where no arm is. Logarithms are of ω²v, ω being the `unit`."""
        if not len(arms):
            return self
        # Every decision comes through here, so absent arms cost only those who have some.
        logs, parts = np.log(np.maximum(variances, LEAST)), variances / np.maximum(priors, LEAST)
        shift = 0.0 if unit == 1 else 2 * len(arms) * math.log(unit)
        total, count = float(np.add.reduce(parts, axis=None)), parts.size
        if math.isnan(total):
            total, count = float(np.nansum(parts)), int(np.count_nonzero(~np.isnan(parts)))
        return Offered(
            self.rounds + len(arms),
            self.arms + count,
            self.unexplored + total,
            self.chosen + float(np.add.reduce(logs[np.arange(len(arms)), arms])) + shift,
            self.least_known + float(np.add.reduce(np.fmax.reduce(logs, axis=1))) + shift,
            self.disjoint and disjoint,
        )

    @property
    def share(self) -> float | None:
        """How much of the variance before any data is left, from 0 to 1; None before any arm was offered."""
        return self.unexplored / self.arms if self.arms else None

    @property
    def deviations(self) -> tuple[float, float] | None:
        """√v of the chosen and of the least known arms, in the geometric mean; None before any arm was offered."""
        if not self.rounds:
            return None
        return float(np.exp(0.5 * self.chosen / self.rounds)), float(np.exp(0.5 * self.least_known / self.rounds))

    def describe(self) -> dict[str, Any]:
        """The sums as JSON."""
        return asdict(self)

    @classmethod
    def restored(cls, saved: Fields, most: int) -> Offered:
        """The saved sums; those of a batch that version 0.1 began lack its rounds.

        Early files do not say whether arms were disjoint; in a batch that had begun they count as not.
        """
        with saved:
            rounds = saved.whole("rounds", most=most)
            arms = saved.whole("arms", least=rounds)
            unexplored = saved.number("unexplored", least=0.0, most=arms * (1 + CLOSE))
            chosen, least_known = saved.number("chosen"), saved.number("least_known")
            ordered = chosen <= least_known + CLOSE * (1 + abs(least_known))
            saved.require(ordered, "chosen must not exceed least_known, the largest of each round")
            saved.require(rounds > 0 or not (arms or chosen or least_known), "sums must be 0 before any round")
            disjoint = saved.flag("disjoint") if "disjoint" in saved else not rounds
            saved.require(rounds > 0 or disjoint, "disjoint must be true before any round")
            return cls(rounds, arms, unexplored, chosen, least_known, disjoint)
