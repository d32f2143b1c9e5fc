"""β, the confidence radius: a number, a function of the round, Theorem 1's β_t, or one estimated by training.

It is evaluated once per version, at t_b and the frozen log det: Algorithm 1's β_{t_b}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rarely._core.errors import InvalidInput, as_number, check_flag, check_not_negative, named_arguments, shown
from rarely._core.types import OfKind


@dataclass(frozen=True, slots=True)
class VersionStats:
    """What is known when a version is frozen."""

    round: int
    """t_b, the first round that the version decides."""
    features: int
    """Features in Z: t_b − 1, plus the logged samples."""
    log_det: float
    """log det Z_{t_b} − log det λI."""
    ridge: float
    depth: int = 1
    steps: int = 0
    step: float | None = None
    """ηm, the step on ℒ/m; None before any training took it from the curvature."""
    noise: float | None = None
    """Estimated standard deviation of rewards around their predictions; None without an estimate."""
    norm: float = 0.0
    """√m‖θ − θ_0‖ in reward units: how far training moved the weights, which is what S bounds."""
    exact: bool = False
    """Whether the estimate is the minimiser itself, so that nothing is left to optimise."""
    spread: float = 0.0
    """The largest standard deviation that the rewards have had."""
    chosen: float | None = None
    """√(φᵀZ⁻¹φ) of the arms that the version before chose, and of the least known arms that it was offered."""
    least_known: float | None = None
    first_least_known: float | None = None
    """That of the least known arms in the first batch, before anything was learned."""
    disjoint: bool = False
    """Whether the arms offered to the version before share no column: none says anything about another."""
    arms: float = 0.0
    """Arms that a round offered to the version before, in the mean."""
    last: bool = False
    """Whether the budget allows no version after this one."""


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


FEW_ARMS = 9
"""Arms without a common column up to which `factor` is what it says."""
MOST = 2.0
"""The largest part of the noise that β is."""
UNTRIED_ROUNDS = 6
"""Arms are untried only while no more is known about them than from fewer rounds than this."""
UNTRIED_PART = 0.25
"""Arms are untried only while their √v is a greater part than this of what the least known arms began with."""


@named_arguments
@dataclass(frozen=True)
class NoiseRadius(OfKind):
    """β in units of the noise, and of the other part of Theorem 1's radius, both estimated.

        β = f·max(ν̂, relative·s) + factor·√λ·Ŝ        f = relative/√v̄, but from factor to 2

        ν̂   the standard deviation of rewards around held-out predictions
        s   the largest standard deviation that the rewards have had: ν̂ of a few arms says little about the others
        v̄   φᵀZ⁻¹φ of the arms known best: the smallest mean over the arms that a version chose
        Ŝ   √m‖θ − θ_0‖: how far training went. Where rewards have next to no noise, all doubt that is left is here

    A policy that meets new arms all the time knows all of them about equally well, and needs little β. A policy that
    repeats a few arms needs more, or it never finds out that others are better. `relative` tells them apart: an arm
    known as well as the best known ones gets a bonus of that part of the noise, and one with 100 times their variance
    10 times as much. Without it f is `factor`.

    With K > 9 arms that share no column `factor` counts (K/9)² times, unless the estimate is exact: each is known from
    one round in K, and pays in one of K. `untried` is for such arms too, as those of `ArmBlocks`: while they have
    hardly been tried, β is at least what gives the least known ones a bonus of `untried`·s. "Hardly" means from fewer
    than 6 rounds (t·v̄/v, with t rounds in Z), and √v above a quarter of what it was at first.

    β follows the units that rewards come in. With `exploit_last` it is 0 for the last trained version that the budget
    allows: nothing that it would find out is ever learned from. For policies that estimate the noise: `BatchNeuralUCB`
    and its kin where they tune themselves.

    Examples
    --------
    >>> now = VersionStats(round=9, features=8, log_det=1.0, ridge=0.25, noise=50.0, norm=10.0)
    >>> NoiseRadius(0.02)(now)
    1.1
    >>> from dataclasses import replace
    >>> NoiseRadius(0.02, relative=0.1)(replace(now, chosen=0.25, least_known=0.5))
    20.1
    """

    factor: float
    relative: float = 0.0
    untried: float = 0.0
    exploit_last: bool = False

    def __post_init__(self) -> None:
        for name in ("factor", "relative", "untried"):
            check_not_negative(f"NoiseRadius.{name}", getattr(self, name))
        check_flag("NoiseRadius.exploit_last", self.exploit_last)

    def __call__(self, now: VersionStats) -> float:
        """Return β of the version frozen now."""
        if now.noise is None:
            raise InvalidInput(
                "a NoiseRadius needs a policy that estimates the noise: a neural one that tunes itself. Give beta as a "
                "number, or leave training out in preset 'practical'."
            )
        if now.last and self.exploit_last:
            return 0.0
        least = self.factor * (max(now.arms / FEW_ARMS, 1.0) ** 2 if now.disjoint and not now.exact else 1.0)
        factor, curiosity = least, 0.0
        scale = max(now.noise, self.relative * now.spread)
        if now.chosen and now.least_known:
            factor = max(factor, min(self.relative / now.chosen, MOST))
            if _hardly_tried(now.chosen, now.least_known, now):
                curiosity = self.untried / now.least_known * now.spread
        return max(factor * scale + least * math.sqrt(now.ridge) * now.norm, curiosity)


def _hardly_tried(chosen: float, least_known: float, now: VersionStats) -> bool:
    """Return whether almost nothing is known about some arms, from themselves or from others."""
    ratio = min(abs(chosen / least_known), 1e150)  # a forged record may have any, and 10¹⁵⁵ has no square
    rounds = now.features * ratio**2
    first = now.first_least_known or least_known
    return now.disjoint and rounds < UNTRIED_ROUNDS and least_known > UNTRIED_PART * first


FUNCTION = {"kind": "function"}
"""The description of a β that is a function."""
Beta = float | Callable[[int], float] | TheoremRadius | NoiseRadius


def radius_at(beta: Beta, now: VersionStats) -> float:
    """Return β for the version frozen now, checked.

    >>> radius_at(lambda t: 0.5 * t, VersionStats(round=4, features=3, log_det=0.0, ridge=1.0))
    2.0
    """
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
    kinds: dict[str, type[NoiseRadius | TheoremRadius]] = {"NoiseRadius": NoiseRadius, "TheoremRadius": TheoremRadius}
    if description.get("kind") not in kinds:
        raise InvalidInput(
            "this beta is a function, which JSON cannot hold: give it again, as load(path, beta=f) or beta=f."
            if description == FUNCTION
            else f"beta must be a number, or describe one of {', '.join(kinds)}; got {description!r}."
        )
    return kinds[description["kind"]](**{k: v for k, v in description.items() if k != "kind"})
