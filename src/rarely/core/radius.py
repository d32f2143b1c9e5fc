"""β, the confidence radius: a number, a function of the round, Theorem 1's β_t, or a part of the noise.

It is evaluated once per version, at t_b and the frozen log det: Algorithm 1's β_{t_b}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from rarely.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Occasion:
    """What is known when a version is frozen."""

    round: int
    """t_b, the first round that the version decides."""
    features: int
    """Features in Z: t_b − 1, and the logged samples where there are some."""
    log_det: float
    """log det Z_{t_b} − log det λI."""
    ridge: float
    depth: int = 1
    steps: int = 0
    step: float | None = None
    """ηm, the step on ℒ/m; None before any training took it from the curvature."""
    noise: float | None = None
    """Estimated standard deviation of rewards around their predictions; None where there is no estimate."""
    exact: bool = False
    """Whether the estimate is the minimiser itself, so that no steps leave anything undone."""


@dataclass(frozen=True)
class TheoremRadius:
    """Theorem 1's β_t, its unknown constants as parameters.

        β_t = C₁[ν√(log(det Z_t/det λI) − 2 log δ) + √λ·S + (λ + tL)(1 − ηmλ)^{J/2}√(t/λ)]

    t − 1 is the number of features in Z, logged ones too. The last term is what J gradient steps leave
    undone; before any training of known η it takes the theorem's ηm = C₃/(tL + λ), t in place of T. A step
    above 1/(mλ), which the theorem excludes, enters by |1 − ηmλ|. That λ ≥ S⁻² is the caller's affair.

    >>> radius = TheoremRadius(nu=0.5, S=1.0, delta=0.1, C1=1.0)
    >>> now = Occasion(round=1, features=0, log_det=0.0, ridge=1.0, exact=True)
    >>> round(radius(now), 4)
    2.073
    """

    nu: float
    S: float
    delta: float = 0.05
    C1: float = 1.0
    C3: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise InvalidInput(f"TheoremRadius.delta is a probability strictly between 0 and 1; got {self.delta}.")
        for name in ("nu", "S", "C1", "C3"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(f"TheoremRadius.{name} must be finite and at least 0; got {value}.")

    def __call__(self, now: Occasion) -> float:
        """β_{t_b}."""
        confidence = self.nu * math.sqrt(now.log_det - 2 * math.log(self.delta)) + math.sqrt(now.ridge) * self.S
        return self.C1 * (confidence + self._left_undone(now))

    def _left_undone(self, now: Occasion) -> float:
        if now.exact:
            return 0.0
        t, ridge = now.features + 1, now.ridge
        step = self.C3 / (t * now.depth + ridge) if now.step is None else now.step
        try:
            undone = abs(1 - step * ridge) ** (now.steps / 2)
        except OverflowError:
            undone = math.inf
        return float((ridge + t * now.depth) * undone * math.sqrt(t / ridge))


@dataclass(frozen=True)
class NoiseRadius:
    """β in units of the noise: `factor` times its estimated standard deviation, whatever units rewards come in.

    For policies that estimate it: `BatchNeuralUCB` and its kin where they tune themselves.

    >>> NoiseRadius(0.02)(Occasion(round=9, features=8, log_det=1.0, ridge=1.0, noise=50.0))
    1.0
    """

    factor: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 0):
            raise InvalidInput(f"NoiseRadius.factor must be finite and at least 0; got {self.factor}.")

    def __call__(self, now: Occasion) -> float:
        """β of the version frozen now."""
        if now.noise is None:
            raise InvalidInput(
                "a NoiseRadius needs a policy that estimates the noise, BatchNeuralUCB with steps=None; give beta as a "
                "number, or let the policy tune itself."
            )
        return self.factor * now.noise


Beta = float | Callable[[int], float] | TheoremRadius | NoiseRadius


def radius_at(beta: Beta, now: Occasion) -> float:
    """β for the version frozen now, checked.

    >>> radius_at(lambda t: 0.5 * t, Occasion(round=4, features=3, log_det=0.0, ridge=1.0))
    2.0
    """
    answer = _ask(beta, now)
    value = float(answer) if isinstance(answer, Real) else math.nan
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(
            f"beta must be, or return, a finite number of at least 0; at round {now.round} it is {answer!r}."
        )
    return value


def _ask(beta: Beta, now: Occasion) -> float:
    if isinstance(beta, TheoremRadius | NoiseRadius):
        return beta(now)
    return beta(now.round) if callable(beta) else beta


def describe_beta(beta: Beta) -> Any:
    """β as JSON; None for a function, which `load` asks for again."""
    if isinstance(beta, TheoremRadius | NoiseRadius):
        return {"kind": type(beta).__name__, **asdict(beta)}
    return None if callable(beta) else float(beta)


def beta_from(description: Any) -> Beta:
    """The inverse of `describe_beta`, functions aside."""
    if isinstance(description, dict):
        fields = {k: v for k, v in description.items() if k != "kind"}
        return NoiseRadius(**fields) if description["kind"] == "NoiseRadius" else TheoremRadius(**fields)
    return float(description)
