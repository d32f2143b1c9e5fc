"""Planned looks at the effects of a trial: intervals, what was shown, what to expect, and what is said at the end.

    θ̂, Z    estimate and its distance from 0, in units in which the look's boundary is the end of its interval
    e       θ̂/Z, the standard error in these units; I = 1/e² is the information about θ, and Z = S/√I with drift θ

A cut is what was known of an effect at a look. A look depends on its cut and on those before it alone: later outcomes
change neither its interval nor its boundary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from rarely.offpolicy.intervals import Range, cut, deviations
from rarely.study.boundaries import (
    FURTHEST,
    LEAST_GROWTH,
    Final,
    boundaries,
    conditional_power,
    final,
    futility,
    predictive_power,
    solved,
    spent,
)
from rarely.study.effects import Scores, Summary
from rarely.study.plan import AnalysisPlan

EVERYTHING: Range = (-math.inf, math.inf)
P_PRECISION = 1e-5  # of a repeated p-value, in standard deviations
_normal = NormalDist()


class Cut(NamedTuple):
    """What was known of an effect at a look."""

    round: int  # the decisions that had been made
    fraction: float
    """The share of the planned information: rewards that had come, of the rounds planned; 1 at the last look."""
    summary: Summary


class Outlook(NamedTuple):
    """What is to be expected of an effect after a look.

    Examples
    --------
    >>> Outlook(futility=0.3, trend=0.41, planned=0.82, predictive=0.45).planned
    0.82
    """

    futility: float
    """Z below which the trial would hardly show the planned effect; not binding, and NaN without such an effect."""
    trend: float  #: The probability of a later look that shows an effect above 0, if the estimate is right.
    planned: float  #: The same if the planned effect is right; NaN without one.
    predictive: float  #: The same averaged over what may be right, by the estimate and its error alone.


class Look(NamedTuple):
    """The interval of a look; all looks of an effect hold together with the level of its comparison.

    Examples
    --------
    >>> Look(round=240, rounds=231, estimate=0.1, low=-0.2, high=0.4, boundary=4.877).high
    0.4
    """

    round: int  #: The decisions after which it came.
    rounds: int  #: Those with a reward, for which the arms were available.
    estimate: float
    low: float
    high: float
    boundary: float
    """Normal deviations that the error spent on this look leaves; infinite where the rewards give no interval yet."""
    fraction: float = 1.0  #: The share of the planned information that it used.
    error: float = math.inf
    """The standard error if 0 is true, in units in which z is beyond the boundary where the interval excludes 0."""
    event: int = 0  #: The event that recorded the look when it was taken; 0 if it was computed afterwards.
    later: tuple[int, float, float, float] | None = None
    """What outcomes that came later would have made of a look on record: rewards, estimate, low and high."""
    outlook: Outlook | None = None  #: What was to be expected after it, of a registered comparison; None at the end.
    p: float = math.nan
    """The repeated p-value of no difference, two-sided: the least error of this comparison, over all looks, with which
    this one shows a difference. It holds whenever and why ever the trial stops (Jennison and Turnbull, 1984)."""

    @property
    def z(self) -> float:
        """The distance of the estimate from 0, in standard errors."""
        return self.estimate / self.error if math.isfinite(self.error) else 0.0

    @property
    def excludes_zero(self) -> bool:
        """Whether it shows a difference."""
        return not self.low <= 0 <= self.high


def cuts_of(scores: Scores, plan: AnalysisPlan, decisions: int) -> list[Cut]:
    """Return the planned looks that have come, with what is known now of their rounds."""
    return [Cut(at, at / plan.rounds, scores.until(at)) for at in plan.at if at <= decisions]


def looks_of(cuts: Sequence[Cut], plan: AnalysisPlan, alpha: float, within: Range = EVERYTHING) -> list[Look]:
    """Return the intervals of looks that hold together with probability 1 − alpha, within the possible values."""
    looks = []
    for each, c in zip(cuts, _bounds(cuts, plan, alpha), strict=True):
        low, high = each.summary.interval(c)
        error = each.summary.normal_error if math.isfinite(high) else math.inf
        # No mean or difference of rewards exceeds their range.
        estimate, ends = float(np.clip(each.summary.estimate, *within)), cut((low, high), within)
        looks.append(Look(each.round, each.summary.rounds, estimate, *ends, c, each.fraction, error))
    return looks


def _bounds(cuts: Sequence[Cut], plan: AnalysisPlan, alpha: float) -> list[float]:
    """Return the boundary of each look; infinite for no rewards of an arm, or all alike without a range.

    There is no error for a look that adds no outcome: it has that of the stage that it repeats.
    """
    early = sum(not each.summary.effective > 0 for each in cuts)  # they have no interval, and spend nothing
    errors = [spent(plan.spending, min(each.fraction, 1.0), alpha) for each in cuts[early:]]
    errors = np.maximum.accumulate(errors).tolist() if errors else []
    information = _growing([each.summary.information for each in cuts[early:]])
    bounds = boundaries(errors, information)
    for place, (before, error) in enumerate(pairwise(errors), 1):
        if error == before:
            stage = errors.index(error)
            bounds[place] = boundaries([*errors[:stage], error], [*information[:stage], information[place]])[-1]
    return [math.inf] * early + bounds


def _growing(information: Sequence[float]) -> list[float]:
    """Return information that grows from look to look as the integration needs it: a closed arm adds nothing."""
    return [*accumulate(information, lambda before, now: max(now, before * (1 + LEAST_GROWTH)))]


def repeated_p(cuts: Sequence[Cut], plan: AnalysisPlan) -> float:
    """Return the least error of all looks with which the last one excludes 0; NaN if it has no interval.

    >>> known = Summary(400, 0.1, 0.05, 400.0, 1e9)
    >>> round(repeated_p([Cut(400, 1.0, known)], AnalysisPlan(400, looks=1)), 4)  # of one look, the plain one
    0.0455
    """
    last = cuts[-1].summary
    if not math.isfinite(last.normal_error):
        return math.nan
    z = min(abs(last.estimate / last.normal_error), FURTHEST)

    def crossed(v: float) -> float:
        return _normal.cdf(-_bounds(cuts, plan, 2 * _normal.cdf(v))[-1])

    # The boundary is nearly linear in the deviations of the error.
    return 2 * _normal.cdf(solved(crossed, _normal.cdf(-z), (-FURTHEST, 0.0), -z, 1.0, P_PRECISION))


def taken(
    cuts: Sequence[Cut], plan: AnalysisPlan, alpha: float, within: Range = EVERYTHING, *, closed: bool = False
) -> list[Look]:
    """Return looks with their repeated p-values.

    The last one of a comparison that takes no further patients replaces the one that showed a difference. What came
    after the decision to stop is overrunning, for which no error was kept: the look has that of the stages since the
    last one that showed nothing (Whitehead, 1992).
    """
    looks, known = looks_of(cuts, plan, alpha, within), [cuts[: place + 1] for place in range(len(cuts))]
    stop = next((place for place, look in enumerate(looks) if look.excludes_zero), len(looks))
    if closed and stop + 1 < len(looks):
        known[-1] = [*cuts[:stop], cuts[-1]]
        looks[-1] = looks_of(known[-1], plan, alpha, within)[-1]
    return [look._replace(p=repeated_p(each, plan)) for look, each in zip(looks, known, strict=True)]


def share_of(plan: AnalysisPlan, comparisons: int) -> float:
    """Return the error that each of some registered comparisons has to begin with."""
    return (1 - plan.level) / (comparisons if plan.comparisons == "holm" else 1)


def shown_at(comparisons: Sequence[Sequence[Cut]], plan: AnalysisPlan) -> list[int | None]:
    """Return for each registered comparison the first look that showed a difference, counted from 0; None if none did.

    Closed testing by Bonferroni's shares at every look (Maurer and Bretz, 2013), so that all of them together err with
    probability 1 − level, whatever their correlation; of those in order, each waits for the one before it.
    """
    found: list[int | None] = [None] * len(comparisons)
    # No boundary is lower than that of one look with the whole error: most trials that show nothing end here.
    least = deviations(plan.level)
    if all(low <= 0 <= high for cuts in comparisons for low, high in (cut.summary.interval(least) for cut in cuts)):
        return found
    at = cache(lambda i, alpha: looks_of(comparisons[i], plan, alpha))  # a look depends on those before it alone
    for place in range(max(map(len, comparisons), default=0)):
        again = True
        while again:
            open_ = [i for i, look in enumerate(found) if look is None]
            tested = open_[:1] if plan.comparisons == "ordered" else open_
            alpha, again = (1 - plan.level) / (max(len(open_), 1) if plan.comparisons == "holm" else 1), False
            for i in tested:
                if len(comparisons[i]) > place and at(i, alpha)[place].excludes_zero:
                    found[i], again = place, plan.comparisons != "each"
    return found


def outlook_of(looks: Sequence[Look], plan: AnalysisPlan, alpha: float) -> Outlook | None:
    """Return what is to be expected after the last of these looks; None if it has no interval, or is the last one."""
    clear = [look for look in looks if math.isfinite(look.error)]
    later = [at / plan.rounds for at in plan.at if at > looks[-1].round] if looks else []
    if not clear or clear[-1] is not looks[-1] or not later:
        return None
    last, information = clear[-1], _growing([look.error**-2 for look in clear])
    bounds, drift = [look.boundary for look in clear], plan.effect or math.nan
    stop = math.nan if plan.effect is None else futility(_missed(clear, plan), information, bounds, drift)[-1]
    v = information[-1]
    ahead = _growing([v, *(v * share / last.fraction for share in later)])[1:]
    errors = [spent(plan.spending, look.fraction, alpha) for look in clear]
    errors += [spent(plan.spending, share, alpha) for share in later]
    c = boundaries(np.maximum.accumulate(errors).tolist(), [*information, *ahead])[len(clear) :]
    place = last.z * math.sqrt(v)
    trend, planned = conditional_power(c, ahead, place, v, [last.estimate, 0.0 if math.isnan(drift) else drift])
    expected = predictive_power(c, ahead, place, v)
    return Outlook(stop, float(trend), float(planned) if plan.effect else math.nan, expected)


def _missed(looks: Sequence[Look], plan: AnalysisPlan) -> list[float]:
    """Return the error of failing to see the planned effect that each look may have spent."""
    return [spent(plan.spending, look.fraction, 2 * (1 - plan.power)) / 2 for look in looks]


def is_futile(cuts: Sequence[Cut], plan: AnalysisPlan, alpha: float) -> bool:
    """Return whether the last of these looks is below the boundary of futility, and nothing was shown for the arm."""
    last = cuts[-1].summary
    looks = [look for look in looks_of(cuts, plan, alpha) if math.isfinite(look.error)]
    if plan.effect is None or not math.isfinite(last.normal_error) or any(look.low > 0 for look in looks):
        return False
    information, bounds = _growing([look.error**-2 for look in looks]), [look.boundary for look in looks]
    return looks[-1].z < futility(_missed(looks, plan), information, bounds, plan.effect)[-1]


def with_outlooks(looks: Sequence[Look], plan: AnalysisPlan, alpha: float) -> tuple[Look, ...]:
    """Return looks with what is to be expected after each that has no outlook on record."""
    parts = [looks[: place + 1] for place in range(len(looks))]
    return tuple(
        part[-1] if part[-1].event else part[-1]._replace(outlook=outlook_of(part, plan, alpha)) for part in parts
    )


def final_of(looks: Sequence[Look], last: Summary, alpha: float, within: Range = EVERYTHING) -> Final | None:
    """Return what the last look says by the order of stages, as if the trial had stopped where the effect was shown.

    Looks between that one and the last are left out, as in `taken`. If nothing was shown before the planned end, no
    rule says when to stop, and results have no order: p and the interval are those of the look, which hold for every
    reason. None without an interval.

    The median and the ends of the interval have the variance that they suppose, by `last`, the sums of the last look.
    """
    clear = [look for look in looks if math.isfinite(look.error)]
    if not clear:
        return None
    stop = next((place for place, look in enumerate(clear) if look.excludes_zero), len(clear) - 1)
    used, now = [*clear[:stop], clear[-1]], clear[-1]
    end = final(now.z, [look.boundary for look in used[:-1]], _growing([look.error**-2 for look in used]), alpha)

    def at(drift: float) -> float:
        """Return where the last look's interval ends, as many deviations from the estimate as the drift is."""
        away = drift / now.error - now.z
        return last.interval(abs(away))[int(away > 0)]

    median, low, high = map(at, end[1:])
    median = median if math.isfinite(median) else last.estimate  # beyond what rewards allow: nothing is as near as it
    found = Final(end.p, *(float(np.clip(value, *within)) for value in (median, low, high)))
    unplanned = now.fraction < 1 and not any(look.excludes_zero for look in clear)
    return found._replace(p=now.p, low=now.low, high=now.high) if unplanned else found


def adjusted(p_values: Sequence[float], comparisons: int, plan: AnalysisPlan) -> list[float]:
    """Return final p-values for all comparisons together; those that have not ended yet count as the largest.

    >>> [round(p, 2) for p in adjusted([0.04, 0.01], 2, AnalysisPlan(100))]
    [0.04, 0.02]
    >>> adjusted([0.04, 0.01], 2, AnalysisPlan(100, comparisons="ordered"))
    [0.04, 0.04]
    """
    if plan.comparisons == "each":
        return list(p_values)
    order = range(len(p_values)) if plan.comparisons == "ordered" else np.argsort(p_values, kind="stable").tolist()
    out, most = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        weight = comparisons - place if plan.comparisons == "holm" else 1
        most = out[i] = max(most, min(weight * p_values[i], 1.0))
    return out
