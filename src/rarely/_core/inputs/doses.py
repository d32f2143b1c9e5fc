"""A continuous arm: a price, a dose, a bid; points of an interval with features that the library builds.

    a   (m,)    the points, middles of m cells of equal width w      x   (r,)   what is known of the round
    z   (m,)    a on the scale from −1 to 1

A context is [z, z², x, z·x, 1]: a curve in a for each x. A point that was drawn with probability p has density p/w, and
a target of doses becomes probabilities of points by a kernel, so that every estimate for arms holds for doses too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rarely._core.errors import (
    InvalidInput,
    TooExpensive,
    as_number,
    check_positive,
    check_whole,
    named_arguments,
    shown,
)
from rarely._core.inputs.arm_blocks import read_rows
from rarely._core.inputs.contexts import BlockContexts
from rarely._core.inputs.scaling import Affine
from rarely._core.reading import read_real
from rarely._core.types import Array, Decision

MAX_POINTS = 65_536


@named_arguments
@dataclass(frozen=True, eq=False)
class Interval:
    """Doses between two ends, as arms.

    It stands where `ArmBlocks` do: in `Study.create(blocks=…)`, and as `arms` of a `FramePolicy`.

    Parameters
    ----------
    low, high
        The ends.
    points
        How many doses there are to choose among.
    rows
        How what is known of a round is scaled, an `Affine`; `Interval.fit` finds it from a sample. None: nothing is.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand, Worth
    >>> price = Interval(0.0, 10.0, points=5)
    >>> price.values
    array([1., 3., 5., 7., 9.])
    >>> policy = LinUCB(schedule=OnDemand(), seed=0, **price.settings)
    >>> decision = policy.select(price(), worth=Worth(gain=price.values))  # of a purchase, what was paid
    >>> price.of(decision), price.density(decision)
    (9.0, 0.5)
    """

    low: float
    high: float
    points: int = 64
    rows: Affine | None = None
    features: None = field(default=None, init=False)
    """No arm has features of its own; see `ArmBlocks`."""

    def __post_init__(self) -> None:
        check_whole("points", self.points, 2)
        if self.points > MAX_POINTS:
            raise TooExpensive(f"points must be at most {MAX_POINTS:,}, as each is an arm; got {shown(self.points)}.")
        low, high = as_number(self.low), as_number(self.high)
        if not (low < high and np.isfinite(high - low)):
            came = f"{shown(self.low)} and {shown(self.high)}"
            raise InvalidInput(f"an interval must have two finite ends, low < high; got {came}.")
        if not isinstance(self.rows, Affine | None):
            raise InvalidInput(f"rows must be an Affine, as Interval.fit makes it; got {shown(self.rows)}.")

    @classmethod
    def fit(cls, rows: Any, low: float, high: float, *, points: int = 64) -> Interval:
        """Return an interval whose rounds are described by rows like this (n, r) sample."""
        return cls(low, high, points=points, rows=Affine.fit(read_rows(rows, None), constant=False))

    @property
    def arms(self) -> int:
        """How many points there are."""
        return int(self.points)

    @property
    def width(self) -> float:
        """The width of a point's cell."""
        return float(self.high - self.low) / self.points

    @cached_property
    def values(self) -> Array:
        """(m,): the doses."""
        return np.asarray(self.low + self.width * (np.arange(self.points) + 0.5), np.float64)

    @property
    def names(self) -> tuple[str, ...]:
        """The doses as text: names of the arms."""
        return tuple(map(repr, self.values.round(12).tolist()))

    @property
    def _known(self) -> int:
        """Numbers in a row."""
        return 0 if self.rows is None else self.rows.dim

    @property
    def dim(self) -> int:
        """Numbers in a context that this makes."""
        return 2 * self._known + 3

    @property
    def settings(self) -> dict[str, Any]:
        """`dim` and `context_scale` for a policy."""
        return {"dim": self.dim, "context_scale": Affine.identity(self.dim)}

    def __call__(self, rows: Any = None, features: None = None) -> Array:
        """Return contexts of every dose: (r,) → (m, dim), or (n, r) → (n, m, dim)."""
        x = read_rows(np.zeros(0) if rows is None else rows, self._known)
        x = x if self.rows is None else (x - self.rows.center) / self.rows.spread
        z = np.linspace(-1, 1, 2 * self.arms + 1)[1::2]
        out = np.ones((len(x), self.arms, self.dim)).view(BlockContexts)
        r = self._known
        out[:, :, 0], out[:, :, 1], out[:, :, 2 : 2 + r] = z, np.square(z), x[:, None]
        out[:, :, 2 + r : 2 + 2 * r] = z[:, None] * x[:, None]
        return out[0] if rows is None or np.ndim(rows) == 1 else out

    def arm(self, dose: Any) -> Any:
        """Return the arm of a dose, or of several; refuse one outside of the interval."""
        doses = read_real(dose, "dose", InvalidInput)
        outside = ~((doses >= self.low) & (doses <= self.high))
        if outside.any():
            first = float(np.atleast_1d(doses)[np.atleast_1d(outside)][0])
            raise InvalidInput(f"a dose must lie in the interval, {self.low:g} to {self.high:g}; got {first:g}.")
        arms = np.minimum(((doses - self.low) / self.width).astype(np.int64), self.arms - 1)
        return int(arms) if arms.ndim == 0 else arms

    def of(self, decision: Decision) -> Any:
        """Return the dose that was decided, or those of n rounds."""
        doses = self.values[decision.arm]
        return float(doses) if decision.single else doses

    def density(self, decision: Decision) -> Any:
        """Return the probability density with which the dose was drawn."""
        return decision.propensity / self.width

    def smoothed(self, doses: Any, bandwidth: float) -> Array:
        """Return (n, m): a target of n doses as probabilities of points, by an Epanechnikov kernel.

        `ips(log, interval.smoothed(doses, bandwidth))` is then the kernel estimate of what the doses would have earned:
        K((dose − a)/h) over the density of what was given. A wide kernel is steady, a narrow one is near the doses.

        >>> Interval(0, 1, points=4).smoothed([0.4], bandwidth=0.3).round(2)
        array([[0.1 , 0.62, 0.28, 0.  ]])
        """
        check_positive("bandwidth", bandwidth, "how far a dose may lie from the one that was given")
        given = np.atleast_1d(read_real(doses, "doses", InvalidInput))
        self.arm(given)
        distance = (self.values - given[:, None]) / bandwidth
        weights = np.maximum(1 - np.square(distance), 0.0)
        nearest = np.arange(self.arms) == np.atleast_1d(self.arm(given))[:, None]
        weights = np.where(weights.any(axis=1, keepdims=True), weights, nearest)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def describe(self) -> dict[str, Any]:
        """Return the interval as JSON, for `from_description`."""
        ends = {"low": float(self.low), "high": float(self.high)}
        rows = None if self.rows is None else self.rows.describe()
        return {"interval": {**ends, "points": self.arms, "rows": rows}}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Interval:
        """Return the interval that `describe` described."""
        fields = description["interval"]
        return cls(**(fields | {"rows": fields["rows"] and Affine(**fields["rows"])}))
