"""How much better an arm is than the control arm, with intervals that hold at every moment of an adaptive trial.

    r_t    reward of round t, scaled to [0, 1]        p_t(k)   probability of arm k, as it was drawn from
    q_t    predicted rewards, made before r_t         x_t      q(k) − q(0) + 1[a=k](r − q)/p − 1[a=0](r − q)/p

Given the past, the mean of x_t is the difference of the two arms in round t, because p_t was known before the draw.
With an allocation limit p on both arms x_t lies in [−1/p, 1/p]. So Σ(x_t − E x_t) is a martingale, and the
empirical-Bernstein bound of Howard, Ramdas, McAuliffe and Sekhon (2021, theorem 4) with their stitched boundary (eq.
10) holds for all t simultaneously: the interval may be inspected after every round, and the trial stopped when it
excludes 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rarely._core.types import Array
from rarely.study.audit import records
from rarely.study.decisions import Record
from rarely.study.errors import InvalidStudy
from rarely.study.session import Session
from rarely.study.settings import StudySettings
from rarely.study.tell import settled

ETA, POWER = 2.0, 1.4
"""η and s of the stitched boundary: epochs grow by η, and the k-th gets a share of α that falls as (k + 1)⁻ˢ."""
ZETA = 3.105473
"""ζ(1.4), rounded up: the shares sum to less than α."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """An arm against the control arm: the mean difference of rewards.

    Examples
    --------
    >>> from rarely import LinTS
    >>> from rarely.study import RewardRule, Stage, Study
    >>> rewards, stages = RewardRule(least=0.0, most=1.0), [Stage("main", least=0.1)]
    >>> settings = {"arms": ["red", "blue"], "control": "red", "rewards": rewards, "stages": stages}
    >>> study = Study.create("memory://example-contrast", "colours", policy=LinTS(dim=1, seed=0), **settings)
    >>> _ = study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
    >>> [(contrast.arm, contrast.rounds) for contrast in study.contrasts()]
    [('blue', 1)]
    """

    arm: str
    control: str
    estimate: float
    low: float
    high: float
    """The interval from `low` to `high` holds at all times simultaneously with probability `level`."""
    level: float
    rounds: int
    """Decisions with a reward for which both arms were available."""
    missing: int
    """Such decisions without a reward so far. They are left out, which is right unless a reward is missing for a
    reason that depends on the arm."""


def contrasts(session: Session, *, level: float = 0.95, control: str | None = None) -> list[Contrast]:
    """Compare every arm with the control arm; the level holds for each interval separately."""
    names, rule = session.settings.arms, session.settings.rewards
    control = session.settings.control if control is None else control
    if names is None or control not in names:
        raise InvalidStudy(f"contrasts need a control arm among the arms of the study; got {control!r}.")
    if rule.least is None or rule.most is None or rule.aggregation == "sum":
        raise InvalidStudy(
            "contrasts need the range of a decision's reward: create the study with RewardRule(least=…, most=…) and "
            "aggregation 'first' or 'last'."
        )
    if not 0 < level < 1:
        raise InvalidStudy(f"level must be between 0 and 1; got {level!r}.")
    last = session.last_seq()
    rewards, base = dict(settled(session, 0, last)), names.index(control)
    rows = list(records(session, last))
    found = []
    for arm, name in enumerate(names):
        if arm != base:
            limit = _limit(session.settings, arm, base)
            both = [record for record in rows if record.present[arm] and record.present[base]]
            columns = _columns(both, arm, base, rewards)
            estimate, low, high = difference(*columns, (rule.least, rule.most), limit, level)
            missing = int(np.isnan(columns[1]).sum())
            found.append(Contrast(name, control, estimate, low, high, level, len(both) - missing, missing))
    return found


def _limit(settings: StudySettings, arm: int, base: int) -> float:
    """Return the minimal probability of both arms that the stages guarantee."""
    names, least = settings.arms or (), 1.0
    for stage in settings.stages:
        limits = stage.limits(names)
        each = [limits] * len(names) if isinstance(limits, float) else list(limits)
        least = min(least, 1 / len(names) if stage.burn_in else min(each[arm], each[base]))
    if least <= 0:
        raise InvalidStudy(
            f"contrasts need an allocation limit above 0 on {names[arm]!r} and {names[base]!r} in every stage "
            "except burn-in: create the study with stages=[Stage('main', least=0.05)]."
        )
    return least


def _columns(
    rows: Sequence[Record], arm: int, base: int, rewards: dict[int, float]
) -> tuple[Array, Array, Array, Array]:
    """Return which of the two was chosen, rewards, probabilities and predictions; (n, 2) except for the rewards."""
    pair = [arm, base]
    return (
        np.array([[record.answer.index == arm, record.answer.index == base] for record in rows]).reshape(-1, 2),
        np.array([rewards.get(record.answer.round, np.nan) for record in rows]),
        np.array([record.padded(record.probabilities, 0.0)[pair] for record in rows]).reshape(-1, 2),
        np.array([record.padded(record.means, 0.0)[pair] for record in rows]).reshape(-1, 2),
    )


def difference(
    chosen: Array, rewards: Array, chances: Array, means: Array, within: tuple[float, float], limit: float, level: float
) -> tuple[float, float, float]:
    """Return estimate, lower and upper bound, given (n, 2) arrays for arm and control."""
    low, width, here = within[0], within[1] - within[0], ~np.isnan(rewards)
    if not here.any():
        return math.nan, -width, width
    r = (rewards[here] - low) / width
    q = np.clip((means[here] - low) / width, 0.0, 1.0)
    gains = chosen[here] / chances[here] * (r[:, None] - q)
    x = (q[:, 0] - q[:, 1]) + gains[:, 0] - gains[:, 1]
    half = boundary(_variation(x), (1 - level) / 2, 2 / limit) / len(x)
    mean = float(x.mean())
    # No difference exceeds the range of rewards, although the mean of few weighted rewards may.
    estimate, least, most = (min(max(each, -1.0), 1.0) * width for each in (mean, mean - half, mean + half))
    return estimate, least, most


def _variation(x: Array) -> float:
    """Return Σ (x_t − x̄_{t−1})²: the mean of the earlier values predicts the next."""
    before = np.concatenate([[0.0], np.cumsum(x)[:-1] / np.arange(1, len(x))])
    return float(np.square(x - before).sum())


def boundary(variation: float, alpha: float, scale: float) -> float:
    """Return how far the sum may be from its mean at any time, except with probability α; `scale` is a range's length.

    >>> round(boundary(100.0, 0.025, 1.0), 1)
    50.1
    """
    v = max(variation, 1.0)
    k1, k2 = (ETA**0.25 + ETA**-0.25) / math.sqrt(2), (math.sqrt(ETA) + 1) / 2
    share = POWER * math.log(1 + math.log(v, ETA)) + math.log(ZETA / alpha)
    spread = k2 * scale * share
    return math.sqrt(k1**2 * v * share + spread**2) + spread
