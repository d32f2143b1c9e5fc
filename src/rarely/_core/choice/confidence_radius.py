"""β, the confidence radius: a number, a function of the round, Theorem 1's β_t, or one estimated by training.

It is evaluated once per version, at t_b and the frozen log det: Algorithm 1's β_{t_b}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rarely._core.errors import InvalidInput, as_number, check_flag, check_not_negative, named_arguments, shown
from rarely._core.parts import OfKind, made


@dataclass(frozen=True, slots=True)
class VersionStats:
    """What is known when a version is frozen."""

    round: int  # t_b, the first round that the version decides
    features: int  # features in Z: t_b − 1, plus the logged samples
    log_det: float  # log det Z_{t_b} − log det λI
    ridge: float
    depth: int = 1
    steps: int = 0
    step: float | None = None  # ηm, the step on ℒ/m; None before any training took it from the curvature
    noise: float | None = None
    """Estimated standard deviation of rewards around their predictions; None without an estimate."""
    exact: bool = False  # whether the estimate is the minimiser itself, so that nothing is left to optimise
    last: bool = False  # whether the budget allows no version after this one


@named_arguments
@dataclass(frozen=True)
class TheoremRadius(OfKind):
    """Theorem 1's β_t, its unknown constants as parameters.

        β_t = C₁[ν√(log(det Z_t/det λI) − 2 log δ) + √λ·S + (λ + tL)(1 − ηmλ)^{J/2}√(t/λ)]

    t − 1 is the number of features in Z, logged ones included. The last term is the optimisation error after J
    gradient steps; before any training of known η it takes the theorem's ηm = C₃/(tL + λ), t in place of T. A step
    above 1/(mλ), which the theorem excludes, enters by `|1 − ηmλ|`. The caller ensures λ ≥ S⁻².

    Examples
    --------
    >>> radius = TheoremRadius(nu=0.5, S=1.0, delta=0.1, C1=1.0)
    >>> now = VersionStats(round=1, features=0, log_det=0.0, ridge=1.0, exact=True)
    >>> round(radius(now), 4)
    2.073
    """

    nu: float
    S: float
    delta: float = 0.05
    C1: float = 1.0
    C3: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < as_number(self.delta) < 1:
            delta = shown(self.delta)
            raise InvalidInput(f"TheoremRadius.delta must be a probability strictly between 0 and 1; got {delta}.")
        for name in ("nu", "S", "C1", "C3"):
            check_not_negative(f"TheoremRadius.{name}", getattr(self, name))

    def __call__(self, now: VersionStats) -> float:
        """Return β_{t_b}."""
        confidence = self.nu * math.sqrt(now.log_det - 2 * math.log(self.delta)) + math.sqrt(now.ridge) * self.S
        return self.C1 * (confidence + self._left_undone(now))

    def _left_undone(self, now: VersionStats) -> float:
        if now.exact:
            return 0.0
        t, ridge = now.features + 1, now.ridge
        step = self.C3 / (t * now.depth + ridge) if now.step is None else now.step
        try:
            undone = abs(1 - step * ridge) ** (now.steps / 2)
        except OverflowError:
            undone = math.inf
        return float((ridge + t * now.depth) * undone * math.sqrt(t / ridge))


@named_arguments
@dataclass(frozen=True)
class NoiseRadius(OfKind):
    """β in units of the noise: `factor` times the estimated standard deviation of rewards around their predictions.

    β follows the units that rewards come in. With `exploit_last` it is 0 for the last trained version that the budget
    allows: nothing that it would find out is ever learned from. For policies that estimate the noise: `BatchNeuralUCB`
    and its kin where they tune themselves.

    Examples
    --------
    >>> NoiseRadius(0.5)(VersionStats(round=9, features=8, log_det=1.0, ridge=0.25, noise=50.0))
    25.0
    """

    factor: float
    exploit_last: bool = False

    def __post_init__(self) -> None:
        check_not_negative("NoiseRadius.factor", self.factor)
        check_flag("NoiseRadius.exploit_last", self.exploit_last)

    def __call__(self, now: VersionStats) -> float:
        """Return β of the version frozen now."""
        if now.noise is None:
            raise InvalidInput(
                "a NoiseRadius needs a policy that estimates the noise: a neural one that tunes itself. Give beta as a "
                "number, or leave training out in preset 'practical'."
            )
        return 0.0 if now.last and self.exploit_last else self.factor * now.noise


FUNCTION = {"kind": "function"}  # the description of a β that is a function
Beta = float | Callable[[int], float] | TheoremRadius | NoiseRadius


def radius_at(beta: Beta, now: VersionStats) -> float:
    """Return β for the version frozen now, checked."""
    statistics: Any = now if isinstance(beta, TheoremRadius | NoiseRadius) else now.round
    answer = beta(statistics) if callable(beta) else beta
    value = as_number(answer)
    if not 0 <= value < math.inf:
        raise InvalidInput(f"beta must be, or return, a finite number ≥ 0; at round {now.round} it is {shown(answer)}.")
    return value


def describe_beta(beta: Beta) -> Any:
    """Return β as JSON; of a function only that it is one, and it must be given again."""
    if isinstance(beta, TheoremRadius | NoiseRadius):
        return beta.describe()
    return FUNCTION if callable(beta) else float(beta)


def beta_from(description: Any) -> Beta:
    """Return the β that `describe_beta` described, if it is not a function."""
    if not isinstance(description, dict):
        return float(description)
    if description == FUNCTION:
        raise InvalidInput(
            "this beta is a function, which JSON cannot hold: give it again, as load(path, beta=f) or beta=f."
        )
    radius: Beta = made(description, NoiseRadius, TheoremRadius)
    return radius
