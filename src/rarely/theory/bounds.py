"""What the theorems say, as numbers: β_t, η, J, both regret bounds, the lower bounds, and the B and q that follow.

    T  rounds    K  arms    B  batches    L  depth    m  hidden    λ  ridge    ν  nu (the noise)    δ  delta
    d̃  dimension    D  log_det = log(det Z_{T+1}/det λI) ≤ d̃ log(1 + TK/λ) + 1 (Lemma 2)    β  radius, β_T

The theorems leave constants C₁, C₂, C₃ unknown: here they are parameters, 1 unless given. Functions called *order*
are what stands in an Õ(·), without constants and logarithms: they compare, and predict no number. The others are the
last lines of the proofs, for networks wide enough that the terms in m vanish. Four slips of the text are mended:

    J            is negative as printed; the inverse of its ratio is meant
    |C| ≤ D      Theorem 1's proof; |C| ≤ D/log 2, since each of these batches doubles the determinant
    2√2·β√(TD)   Theorem 1's proof; Lemma 3 has Σ ≤ 2D, so it is 4β√(TD)
    q^B          Theorem 2; B batches have B − 1 triggers, so it is q^{B−1}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rarely.core.errors import check_not_negative, check_positive, check_whole
from rarely.core.radius import Occasion, TheoremRadius

WIDE = "as in the theorems"


def radius(
    round: int,
    log_det: float,
    *,
    nu: float,
    S: float,
    ridge: float,
    depth: int,
    steps: int,
    step: float,
    delta: float = 0.05,
    C1: float = 1.0,
) -> float:
    """β_t of Theorem 1 at round t, with D of Z_t, after trainings of J `steps` of size ηm = `step`.

    >>> round(radius(1, 0.0, nu=0.5, S=1.0, ridge=1.0, depth=2, steps=10_000, step=0.01), 3)
    2.224
    """
    check_whole("round", round, 1)
    now = Occasion(round=round, features=round - 1, log_det=log_det, ridge=ridge, depth=depth, steps=steps, step=step)
    return TheoremRadius(nu=nu, S=S, delta=delta, C1=C1)(now)


def step_size(rounds: int, *, hidden: int, depth: int, ridge: float, C3: float = 1.0) -> float:
    """η = C₃/(mTL + mλ) of Theorem 1.

    >>> step_size(100, hidden=10, depth=2, ridge=1.0) == 1 / 2010
    True
    """
    check_whole("rounds", rounds, 1)
    check_positive("ridge", ridge, WIDE)
    return C3 / (hidden * rounds * depth + hidden * ridge)


def steps(rounds: int, *, depth: int, ridge: float, S: float, C2: float = 1.0) -> int:
    """J = 2 log((√T·λ + C₂T^{3/2}L)/(λS))·TL/λ of Theorem 1, the printed ratio turned around.

    So many steps bring β_t's last term down to about √λ·S, as the proof needs it.

    >>> steps(100, depth=2, ridge=1.0, S=1.0)
    3043
    """
    check_whole("rounds", rounds, 1)
    check_positive("ridge", ridge, WIDE)
    check_positive("S", S, WIDE)
    ratio = (math.sqrt(rounds) * ridge + C2 * rounds**1.5 * depth) / (ridge * S)
    return max(0, math.ceil(2 * math.log(ratio) * rounds * depth / ridge))


def log_det_bound(dimension: float, rounds: int, arms: int, ridge: float) -> float:
    """Lemma 2: D ≤ d̃ log(1 + TK/λ) + 1, d̃ of the network's own kernel (limit "network"; with H it can fail).

    >>> round(log_det_bound(2.0, rounds=10, arms=3, ridge=1.0), 3)
    7.868
    """
    return dimension * _unit(rounds, arms, ridge) + 1


def fixed_regret(log_det: float, rounds: int, batches: int, radius: float) -> float:
    """Theorem 1: R_T ≤ (2D/log 2)·⌈T/B⌉ + 4β√(TD), where rewards h lie in [−1, 1].

    >>> round(fixed_regret(10.0, rounds=100, batches=10, radius=0.5))
    352
    """
    check_whole("batches", batches, 1)
    return 2 * log_det / math.log(2) * math.ceil(rounds / batches) + 4 * radius * math.sqrt(rounds * log_det)


def adaptive_regret(log_det: float, rounds: int, batches: int, log_ratio: float, radius: float) -> float:
    """Theorem 2: R_T ≤ 2β√(2TD)·√max{q, e^D/q^{B−1}}; infinite where that is beyond all numbers.

    >>> round(adaptive_regret(10.0, rounds=100, batches=10, log_ratio=1.0, radius=0.5))
    74
    """
    check_whole("batches", batches, 1)
    return 2 * radius * math.sqrt(2 * rounds * log_det) * _exp(max(log_ratio, log_det - (batches - 1) * log_ratio) / 2)


def fixed_regret_order(dimension: float, rounds: int, batches: int, *, nu: float, ridge: float, S: float) -> float:
    """Theorem 1's (νd̃ + √(λd̃)S)√T + d̃T/B.

    >>> fixed_regret_order(4.0, rounds=100, batches=10, nu=1.0, ridge=1.0, S=1.0)
    100.0
    """
    return _learning(dimension, rounds, nu, ridge, S) + dimension * rounds / batches


def adaptive_regret_order(
    dimension: float, rounds: int, arms: int, batches: int, log_ratio: float, *, nu: float, ridge: float, S: float
) -> float:
    """Theorem 2's √max{q, (1 + TK/λ)^d̃/q^{B−1}}·(νd̃ + √(λd̃)S)√T.

    >>> best = adaptive_plan(4.0, rounds=100, arms=2, ridge=1.0)
    >>> order = adaptive_regret_order(4.0, 100, 2, best.batches, best.log_ratio, nu=1.0, ridge=1.0, S=1.0)
    >>> bool(order <= math.sqrt(math.e) * 60)
    True
    """
    left = dimension * _unit(rounds, arms, ridge) - (batches - 1) * log_ratio
    return _exp(max(log_ratio, left) / 2) * _learning(dimension, rounds, nu, ridge, S)


def fixed_regret_lower_order(dimension: float, rounds: int, batches: int) -> float:
    """√(dT) + min{T√d/B, T/√B}: no fixed grid of B batches does better on linear bandits (Han et al., 2020).

    >>> fixed_regret_lower_order(4.0, rounds=100, batches=10)
    40.0
    """
    return math.sqrt(dimension * rounds) + min(rounds * math.sqrt(dimension) / batches, rounds / math.sqrt(batches))


def switches_lower_order(dimension: float, rounds: int) -> float:
    """d log T/log(d log T) switches, without which no √T regret is had on linear bandits (Ruan et al., 2021).

    >>> round(switches_lower_order(5.0, rounds=1000), 1)
    9.8
    """
    asked = dimension * math.log(rounds)
    return asked / math.log(asked) if asked > math.e else asked


def fixed_batches(rounds: int) -> int:
    """B = √T, with which a fixed grid's d̃T/B is no more than its d̃√T (Remark 3).

    >>> fixed_batches(2000)
    45
    """
    check_whole("rounds", rounds, 1)
    return math.isqrt(rounds - 1) + 1


@dataclass(frozen=True, slots=True)
class AdaptivePlan:
    """B and log q of the determinant rule."""

    batches: int
    log_ratio: float


def adaptive_plan(dimension: float, rounds: int, arms: int, ridge: float, batches: int | None = None) -> AdaptivePlan:
    """B = d̃ log(1 + TK/λ), or a given one, and the q = (1 + TK/λ)^{d̃/B} that spends just these (Remark 6).

    >>> adaptive_plan(4.0, rounds=100, arms=2, ridge=1.0)
    AdaptivePlan(batches=22, log_ratio=0.964...)
    >>> adaptive_plan(4.0, rounds=100, arms=2, ridge=1.0, batches=4).log_ratio.__round__(3)
    5.303
    """
    check_not_negative("dimension", dimension, WIDE)
    growth = dimension * _unit(rounds, arms, ridge)
    if batches is None:
        batches = max(1, math.ceil(growth))
    check_whole("batches", batches, 1)
    return AdaptivePlan(batches, growth / batches)


def _unit(rounds: int, arms: int, ridge: float) -> float:
    check_whole("rounds", rounds, 1)
    check_whole("arms", arms, 1)
    check_positive("ridge", ridge, WIDE)
    return math.log1p(rounds * arms / ridge)


def _learning(dimension: float, rounds: int, nu: float, ridge: float, S: float) -> float:
    return (nu * dimension + math.sqrt(ridge * dimension) * S) * math.sqrt(rounds)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
