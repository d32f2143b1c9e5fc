"""What the theorems say, as numbers: η, J, both regret bounds, and the B and q that follow; β_t is `TheoremRadius`.

    T  rounds    K  arms    B  batches    L  depth    m  hidden    λ  ridge
    d̃  dimension    D  log_det = log(det Z_{T+1}/det λI) ≤ d̃ log(1 + TK/λ) + 1 (Lemma 2)    β  radius, β_T

The theorems leave constants C₂, C₃ unknown: here they are parameters, 1 unless given. The bounds are the last
lines of the proofs, for networks wide enough that the terms in m vanish. d̃ is that of the network's own kernel
(`effective_dimension(..., kind="network")`) wherever D is bounded through it. Slips of the text that are mended:

    J            is negative as printed; the inverse of its ratio is meant
    |C| ≤ D      Theorem 1's proof; |C| ≤ D/log 2, since each of these batches doubles the determinant
    2√2·β√(TD)   Theorem 1's proof; Lemma 3 has Σ ≤ 2D, so it is 4β√(TD)
    q^B          Theorem 2; B batches have B − 1 triggers, so it is q^{B−1}
    min{·, 1}    Lemma 1's regret of a round is at most 1, so its 2β must be at least that: β counts as ½ or more
"""

from __future__ import annotations

import math
import sys

from rarely.extend import DeterminantTrigger
from rarely.extend.checks import check_not_negative, check_positive, check_whole
from rarely.theory.dimension import Dimension

LARGEST = math.log(sys.float_info.max)  # the logarithm of the largest number


def step_size(rounds: int, *, hidden: int, depth: int, ridge: float, C3: float = 1.0) -> float:
    """Return η = C₃/(mTL + mλ) of Theorem 1.

    Parameters
    ----------
    rounds, hidden, depth, ridge, C3
        T, m, L, λ, and the constant of the theorem, which the paper does not name.

    Examples
    --------
    >>> step_size(100, hidden=10, depth=2, ridge=1.0) == 1 / 2010
    True
    """
    _check(rounds=rounds, hidden=hidden, depth=depth, ridge=ridge)
    check_positive("C3", C3, "a constant of Theorem 1")
    return C3 / (hidden * rounds * depth + hidden * ridge)


def steps(rounds: int, *, depth: int, ridge: float, S: float, C2: float = 1.0) -> int:
    """Return J = 2 log((√T·λ + C₂T^{3/2}L)/(λS))·TL/λ of Theorem 1, the printed ratio turned around.

    With η of C₃ = 1 and TL large beside λ, so many steps bring β_T's last term down to about √λ·S, as the proof needs.

    Parameters
    ----------
    rounds, depth, ridge, S, C2
        T, L, λ, the bound on the norm of the rewards, and the constant of the theorem, which the paper does not name.

    Examples
    --------
    >>> steps(100, depth=2, ridge=1.0, S=1.0)
    3043
    """
    _check(rounds=rounds, depth=depth, ridge=ridge)
    check_positive("S", S, "a bound on the rewards' norm")
    check_positive("C2", C2, "a constant of Theorem 1")
    top = math.log(math.sqrt(rounds) * ridge + C2 * rounds**1.5 * depth)
    return max(0, math.ceil(2 * (top - math.log(ridge) - math.log(S)) * rounds * depth / ridge))


def log_det_bound(dimension: float, *, rounds: int, arms: int, ridge: float) -> float:
    """Return Lemma 2's bound d̃ log(1 + TK/λ) + 1 on D, d̃ of the network's own kernel; with H it can fail.

    Parameters
    ----------
    dimension, rounds, arms, ridge
        The effective dimension d̃, T, K and λ.

    Examples
    --------
    >>> round(log_det_bound(2.0, rounds=10, arms=3, ridge=1.0), 3)
    7.868
    """
    return _growth(dimension, rounds, arms, ridge) + 1


def fixed_regret(log_det: float, *, rounds: int, batches: int, radius: float) -> float:
    """Return Theorem 1's bound on R_T, Equation (8): (2D/log 2)·⌈T/B⌉ + 4β√(TD), for expected rewards in [0, 1].

    Parameters
    ----------
    log_det, rounds, batches, radius
        D = log det Z_T − log det λI, which `policy.log_det` has; T, B and β.

    Examples
    --------
    >>> round(fixed_regret(10.0, rounds=100, batches=10, radius=0.5))
    352
    """
    _check(log_det=log_det, rounds=rounds, batches=batches, radius=radius)
    stale = 2 * log_det / math.log(2) * math.ceil(rounds / batches)
    return stale + 4 * max(radius, 0.5) * math.sqrt(rounds * log_det)


def adaptive_regret(log_det: float, *, rounds: int, batches: int, log_ratio: float, radius: float) -> float:
    """Return Theorem 2's bound on R_T, Equation (12): 2β√(2TD)·√max{q, e^D/q^{B−1}}, for expected rewards in [0, 1].

    Infinite where that is beyond all numbers.

    Parameters
    ----------
    log_det, rounds, batches, log_ratio, radius
        D = log det Z_T − log det λI, which `policy.log_det` has; T, B, log q and β.

    Examples
    --------
    >>> round(adaptive_regret(10.0, rounds=100, batches=10, log_ratio=1.0, radius=0.5))
    74
    """
    _check(log_det=log_det, rounds=rounds, batches=batches, log_ratio=log_ratio, radius=radius)
    worst = max(log_ratio, log_det - (batches - 1) * log_ratio) / 2
    growth = math.exp(worst) if worst < LARGEST else math.inf
    return 2 * max(radius, 0.5) * math.sqrt(2 * rounds * log_det) * growth


def fixed_batches(rounds: int) -> int:
    """Return B = √T, with which a fixed grid's d̃T/B is no more than its d̃√T (Remark 4).

    Parameters
    ----------
    rounds
        T.

    Examples
    --------
    >>> fixed_batches(2000)
    45
    """
    _check(rounds=rounds)
    return math.isqrt(rounds - 1) + 1


def adaptive_plan(
    dimension: float | Dimension, *, rounds: int, arms: int, ridge: float, batches: int | None = None
) -> DeterminantTrigger:
    """Return the schedule of B = d̃ log(1 + TK/λ), or a given B, and q = (1 + TK/λ)^{d̃/B}, which spends it (Remark 7).

    d̃ is that of the network's own kernel for our networks. At a small λ this B may well exceed T: then it promises
    nothing, and simulation (`rarely plan`) has to say how many updates are enough.

    Parameters
    ----------
    dimension
        The effective dimension d̃. A number, or what `effective_dimension` returned.
    rounds, arms, ridge
        T, K and λ.
    batches
        B; None takes that of the paper.

    Examples
    --------
    >>> adaptive_plan(4.0, rounds=100, arms=2, ridge=1.0)
    DeterminantTrigger(horizon=100, batches=22, log_ratio=0.964...)
    >>> round(adaptive_plan(4.0, rounds=100, arms=2, ridge=1.0, batches=4).log_ratio, 3)
    5.303
    """
    growth = _growth(dimension.value if isinstance(dimension, Dimension) else dimension, rounds, arms, ridge)
    if batches is None:
        batches = max(1, math.ceil(growth))
    _check(batches=batches)
    return DeterminantTrigger(rounds, batches, log_ratio=growth / batches)


def _check(**arguments: float) -> None:
    """Raise InvalidInput for a count that is not one, and for a number of the wrong sign."""
    for name, value in arguments.items():
        if name in ("rounds", "arms", "batches", "hidden", "depth"):
            check_whole(name, value, 1)
        elif name in ("ridge", "dimension", "log_ratio"):
            check_positive(name, value, "as in the theorems")
        else:
            check_not_negative(name, value, "as in the theorems")


def _growth(dimension: float, rounds: int, arms: int, ridge: float) -> float:
    """Return d̃ log(1 + TK/λ)."""
    _check(dimension=dimension, rounds=rounds, arms=arms, ridge=ridge)
    return dimension * math.log1p(rounds * arms / ridge)
