"""What to know before an estimate is trusted, in sentences.

A note is to mean something: it is rare where intervals hold the truth as often as they say, and frequent where they do
not. `benchmarks/offpolicy_notes.py` measures both. The skewness of the terms says nothing: a log that met its largest
terms has a wide interval, and one that did not looks even.
"""

from __future__ import annotations

import numpy as np

from rarely._core.types import Array
from rarely.logs.decision_log import DecisionLog
from rarely.offpolicy.intervals import Range, effective
from rarely.offpolicy.sample import Sample

MIN_EFFECTIVE_ROUNDS = 50
"""Effective rounds below which a normal interval may be too short."""
MIN_UNUSUAL_REWARDS = 40
"""Effective rewards other than the most common one below which a normal interval may be too short."""
MAX_DEVIATIONS = 4
"""Standard errors that the mean weight may lie from 1."""


def of_log(log: DecisionLog) -> str:
    """Say how many rewards are missing, and how many of them because a person gave another arm."""
    why = f"; in {len(log.overrides)} of them a person gave another arm than the one decided" if log.overrides else ""
    return f"{log.missing} of {len(log)} rounds have no reward and are left out{why}." if log.missing else ""


def of_target(sample: Sample, name: str = "target") -> str:
    """Say if the target wants arms that the log hardly chose, or may have learned from the rounds that judge it."""
    n = len(sample.weights)
    learned = (
        f"The {name} had {sample.learned} of these {n} rounds when it was last updated: it may have learned from their "
        "rewards, and the estimate is then too good. Judge it by rounds that came later."
    )
    off = (
        f"The weights of the {name} average {sample.weights.mean():.2f} where 1 is expected, "
        f"{abs(sample.deviations):.0f} standard errors away: "
    )
    if sample.deviations < 0:
        off += (
            "it wants arms that the log had next to no chance to choose, and what they pay is not in this estimate, or "
            "the probabilities on record are wrong. Log with an exploration, as Mixture(0.05)."
        )
    else:
        off += "the probabilities on record are too small for how often the arms were chosen."
    said = (learned if sample.learned else "", off if abs(sample.deviations) > MAX_DEVIATIONS else "")
    return " ".join(filter(None, said))


def of_weights(weights: Array) -> str:
    """Say if the effective rounds are too few for a normal interval."""
    rounds = effective(np.abs(weights))
    if rounds >= MIN_EFFECTIVE_ROUNDS or not weights.any() or len(weights) == 1:  # one round has no finite interval
        return ""
    return f"The weights leave {rounds:.1f} effective rounds, so few that the interval may be too short."


def of_rewards(weights: Array, rewards: Array, error: float, within: Range | None) -> str:
    """Say if the rewards that count are all the same or, with a normal interval, nearly all."""
    counted, sizes = rewards[weights != 0], np.abs(weights[weights != 0])
    if len(counted) < 2:
        return "A single reward counts, and it does not show how far others may lie from it." if len(counted) else ""
    values, times = np.unique(counted, return_counts=True)
    common = values[times.argmax()]
    others = int(len(counted) - times.max())
    unusual = sizes[counted != common]
    # Rare rewards that met small weights only look more even than the next ones will be.
    rare = min(effective(unusual), effective(sizes) * float(unusual.sum() / sizes.sum()))
    if rare >= MIN_UNUSUAL_REWARDS or 2 * others > len(counted) or (others and within is not None):
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
    return f"{what}: the interval rests on the range of rewards alone, {_text(within)}. If it is another, {give}"


def of_value(value: float, within: Range | None) -> str:
    """Say if the value lies beyond the range of rewards."""
    if within is None or within[0] <= value <= within[1]:
        return ""
    return (
        f"The value lies outside the range of rewards, {_text(within)}, because the weights of so few rounds do not "
        "average 1; the interval is cut to the range. The value of snips always lies inside."
    )


def _text(within: Range) -> str:
    return f"[{within[0]:g}, {within[1]:g}]"
