"""What to know before an estimate is trusted, in sentences."""

from __future__ import annotations

import numpy as np

from rarely.core.types import Array
from rarely.logs.decision_log import DecisionLog
from rarely.offpolicy.intervals import Range, effective
from rarely.offpolicy.sample import Sample

FEW = 50
"""Effective rounds below which an interval may be too short."""
RARE = 25
"""Rewards other than the most common one, or 1/skewness² rounds, below which a normal interval is too short.

Cochran's rule: means of n terms are near normal from n = 25·skewness² on, and rare rewards have a skewness of
1/√(their share).
"""


def of_log(log: DecisionLog) -> str:
    """Rewards that are missing."""
    return f"{log.missing} of {len(log)} rounds have no reward and are left out." if log.missing else ""


def of_target(sample: Sample, name: str = "target") -> str:
    """Arms that the log hardly chose, and rounds that the target may have learned from."""
    n = len(sample.weights)
    learned = (
        f"The {name} had {sample.learned} of these {n} rounds when it was last updated: it may have learned from their "
        "rewards, and the estimate is then too good. Judge it by rounds that came later."
    )
    blind = (
        f"The weights of the {name} average {sample.weights.sum() / n:.2f} where 1 is expected: it wants arms that the "
        "log had next to no chance to choose, and what they pay is not in this estimate. Log with an exploration, as "
        "Mixture(0.05)."
    )
    return " ".join(filter(None, (learned if sample.learned else "", blind if sample.blind else "")))


def of_weights(weights: Array) -> str:
    """Few effective rounds."""
    rounds = effective(np.abs(weights))
    if rounds >= FEW:
        return ""
    return f"The weights leave {rounds:.1f} effective rounds, so few that the interval may be too short."


def of_rewards(weights: Array, rewards: Array, error: float, within: Range | None) -> str:
    """Rewards that are all the same where they count, or nearly all."""
    counted, sizes = rewards[weights != 0], np.abs(weights[weights != 0])
    if len(counted) < 2:
        return ""
    values, times = np.unique(counted, return_counts=True)
    common = values[times.argmax()]
    others = int(len(counted) - times.max())
    unusual = sizes[counted != common]
    # Rare rewards that met small weights only look more even than the next ones will be.
    rare = min(effective(unusual), effective(sizes) * float(unusual.sum() / sizes.sum()))
    if rare >= RARE or 2 * others > len(counted):
        return ""
    what = (
        f"Only {others} of {len(counted)} rewards that count differ from {common:g} ({rare:.1f} effective)"
        if others
        else f"All {len(counted)} rewards that count are {common:g}"
    )
    give = "give it as reward_range=(low, high)."
    if within is None:
        short = "has no width, which says nothing of rarer rewards" if error == 0 else "may be too short"
        return f"{what}: the interval {short}. If rewards have a range, {give}"
    if others:
        return f"{what}: the interval rests on them and on the range of rewards, {_text(within)}."
    return f"{what}: the interval rests on the range of rewards alone, {_text(within)}. If it is another, {give}"


def of_terms(influence: Array) -> str:
    """Skewed terms, for which a normal interval needs more rounds."""
    n, spread = len(influence), float(influence.std())
    if not spread:
        return ""
    skewness = float(np.mean((influence / spread) ** 3))
    wanted = RARE * skewness**2
    if n >= wanted:
        return ""
    return (
        f"The terms have a skewness of {skewness:.1f}, at which a normal interval needs {wanted:.0f} rounds; there "
        f"are {n}, so it may be too short."
    )


def of_value(value: float, within: Range | None) -> str:
    """A value beyond the range of rewards."""
    if within is None or within[0] <= value <= within[1]:
        return ""
    return (
        f"The value lies outside the range of rewards, {_text(within)}, because the weights of so few rounds do not "
        "average 1; the interval is cut to the range. The value of snips always lies inside."
    )


def _text(within: Range) -> str:
    return f"[{within[0]:g}, {within[1]:g}]"
