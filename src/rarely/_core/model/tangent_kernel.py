"""The neural tangent kernel of a set of contexts: Definition 1, in closed form for σ = ReLU.

    Σ^(l)   covariance of the units of layer l        H̃^(l)   kernel of the first l layers' weights
    c, θ    cosine and angle of Σ^(l) between two contexts; norms stay: Σ^(l)_ii = ‖x^i‖² in every layer

    Σ^(1) = H̃^(1) = ⟨x, x'⟩
    2E[σ'(u)σ'(v)] = κ₀ = 1 − θ/π                        (Cho and Saul, 2009)
    2E[σ(u)σ(v)]   = ‖x‖‖x'‖κ₁,  κ₁ = c·κ₀ + √(1 − c²)/π
    Σ^(l+1) = ‖x‖‖x'‖κ₁,   H̃^(l+1) = H̃^(l)·κ₀ + Σ^(l+1)

Two matrices come of it. Definition 1's is H = (H̃^(L) + Σ^(L))/2. The network as printed, with W_L ~ N(0, 2/m),
has another limit: ⟨g, g'⟩/m → H̃^(L). The first is what the theorems speak of, and the default; the second, kind
"network", is what our Z is made of when m is large.

arccos loses half of all digits near ±1, and a kernel that is off by 1e-8 is not positive semi-definite. So where two
contexts are almost parallel the angle comes from their difference (their sum, if opposed) and not from the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from rarely._core.errors import InvalidContexts, InvalidInput, check_choice, check_whole
from rarely._core.reading import read_real
from rarely._core.types import Array, BoolArray

KernelKind = Literal["definition", "network"]
TILE = 2**14  # numbers in a tile, so that what is computed of it stays in the second-level cache
CLOSE = 1e-4  # 1 − |c| below which the angle is taken from differences; above it arccos keeps fourteen digits

MAX_DEPTH = 1000  # layers: the kernel of more is all but constant, and takes as many passes


@dataclass(frozen=True, slots=True)
class NTK:
    """The kernel of networks of L = `depth` layers of weights, as a function of contexts.

    Examples
    --------
    >>> kernel = NTK(depth=2)
    >>> kernel.matrix([[1.0, 0.0], [0.0, 1.0]]).round(4)
    array([[1.5   , 0.3183],
           [0.3183, 1.5   ]])
    >>> kernel.cross([[1.0, 0.0]], [[2.0, 0.0], [-1.0, 0.0]])
    array([[3., 0.]])
    >>> NTK(depth=2, kind="network").diagonal([[1.0, 0.0], [0.0, 2.0]])
    array([2., 8.])
    """

    depth: int = 2
    kind: KernelKind = "definition"

    def __post_init__(self) -> None:
        check_whole("depth", self.depth, 2)
        if self.depth > MAX_DEPTH:
            raise InvalidInput(f"depth must be at most {MAX_DEPTH}, because each layer takes a pass; got {self.depth}.")
        check_choice("kind", self.kind, KernelKind)

    def matrix(self, contexts: Any) -> Array:
        """Return (n, n): the kernel among n contexts, exactly symmetric, half of its tiles computed."""
        x = Directions.of(contexts)
        n = len(x.norms)
        out, diagonal = np.empty((n, n)), self.gain * x.norms * x.norms
        for rows, columns in _tiles(n, n, upper=True):
            tile = self._tile(x.part(rows), x.part(columns))
            if rows == columns:  # where rounding need not be symmetric
                tile = np.triu(tile, 1) + np.triu(tile, 1).T
                np.fill_diagonal(tile, diagonal[rows])
            out[rows, columns] = tile
            out[columns, rows] = tile.T
        return out

    def cross(self, contexts: Any, others: Any) -> Array:
        """Return (n, n'): the kernel between contexts and others."""
        x, y = Directions.of(contexts), Directions.of(others)
        if x.unit.shape[1] != y.unit.shape[1]:
            widths = f"{x.unit.shape[1]} and {y.unit.shape[1]}"
            raise InvalidContexts(f"contexts must have as many numbers each as the others; got {widths}.")
        return self.between(x, y)

    def between(self, x: Directions, y: Directions) -> Array:
        """Return (n, n'): the kernel between contexts that are directions and lengths already."""
        out = np.empty((len(x.norms), len(y.norms)))
        for rows, columns in _tiles(len(x.norms), len(y.norms)):
            out[rows, columns] = self._tile(x.part(rows), y.part(columns))
        return out

    def diagonal(self, contexts: Any) -> Array:
        """Return (n,): the kernel of every context with itself; no recursion is needed, for θ = 0 stays 0."""
        norms = Directions.of(contexts).norms
        return np.asarray(self.gain * norms * norms)

    @property
    def gain(self) -> float:
        """What ‖x‖² is multiplied by on the diagonal."""
        return float(self.depth) if self.kind == "network" else (self.depth + 1) / 2

    def _tile(self, x: Directions, y: Directions) -> Array:
        c = x.unit @ y.unit.T
        close = np.abs(c) > 1 - CLOSE
        special = self._close(x, y, c, close) if close.any() else None
        np.clip(c, -1.0, 1.0, out=c)
        tangent, kept, root = c.copy(), np.empty_like(c), np.empty_like(c)
        for _ in range(self.depth - 1):
            np.multiply(c, c, out=root)
            np.subtract(1.0, root, out=root)
            np.sqrt(root, out=root)
            root *= 1 / np.pi
            np.arccos(c, out=kept)
            kept *= -1 / np.pi
            kept += 1.0
            c *= kept
            c += root
            np.minimum(c, 1.0, out=c)
            tangent *= kept
            tangent += c
        if self.kind == "definition":
            tangent += c
            tangent *= 0.5
        if special is not None:
            tangent[close] = special
        tangent *= x.norms[:, None]
        tangent *= y.norms
        return tangent

    def _close(self, x: Directions, y: Directions, c: Array, close: BoolArray) -> Array:
        """Compute the same for almost parallel or opposed unit vectors, in terms of 1 − |c|, which is near 0."""
        rows, columns = np.nonzero(close)
        gaps = x.unit[rows] - np.sign(c[close])[:, None] * y.unit[columns]  # with the sign that makes them small
        short = np.einsum("ij,ij->i", gaps, gaps) / 2  # 1 − |c|
        opposed = c[close] < 0
        angle = 2 * np.arcsin(np.sqrt(short / 2))
        # The first layer: θ is the angle, or π minus it. From there on no pair is opposed.
        kept = np.where(opposed, angle / np.pi, 1 - angle / np.pi)
        bend = _bend(angle) / np.pi
        # 1 − κ₁, without a difference of two numbers near 1
        short, first = np.where(opposed, 1 - bend, short - bend), np.where(opposed, short - 1, 1 - short)
        covariance = 1 - short
        tangent = first * kept + covariance
        for _ in range(self.depth - 2):
            angle = 2 * np.arcsin(np.sqrt(short / 2))
            short = short - _bend(angle) / np.pi
            covariance = 1 - short
            tangent = tangent * (1 - angle / np.pi) + covariance
        return np.asarray(tangent if self.kind == "network" else (tangent + covariance) / 2)


class Directions(NamedTuple):
    """Contexts as directions and lengths; the direction of a context of length 0 is 0."""

    unit: Array
    norms: Array

    @classmethod
    def of(cls, contexts: Any) -> Directions:
        x = read_contexts(contexts)
        largest = np.abs(x).max(axis=1, keepdims=True)  # of huge or tiny numbers the squares would not exist
        x = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
        lengths = np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
        unit = np.divide(x, lengths, out=np.zeros_like(x), where=lengths > 0)
        with np.errstate(over="ignore"):
            norms = (lengths * largest)[:, 0]
            if not np.isfinite(norms * norms).all():
                raise InvalidContexts("contexts must be small enough for their squared norms to be finite.")
        return cls(unit, norms)

    def part(self, rows: slice) -> Directions:
        """Return some of them."""
        return Directions(self.unit[rows], self.norms[rows])


def read_contexts(contexts: Any) -> Array:
    """Check (n, d) contexts; n may be 0."""
    x = read_real(contexts, "contexts", InvalidContexts, "numbers of shape (n, d)")
    if x.ndim != 2 or not x.shape[1]:
        raise InvalidContexts(f"contexts must have shape (n, d) with d ≥ 1, one row for each; got {x.shape}.")
    if not np.isfinite(x).all():
        raise InvalidContexts("contexts must be finite; drop or fill in the rows that are not.")
    return x


def _tiles(rows: int, columns: int, *, upper: bool = False) -> Iterator[tuple[slice, slice]]:
    """Yield tiles that cover all of a matrix, or what is on and above its diagonal; narrow ones are long."""
    side = int(np.sqrt(TILE))
    wide = min(columns, side)
    long = side if upper else max(side, TILE // max(wide, 1))
    for i in range(0, rows, long):
        for j in range(i if upper else 0, columns, side):
            yield slice(i, i + long), slice(j, j + side)


def _bend(angle: Array) -> Array:
    """Return sin θ − θ cos θ; by its series θ³/3 − … where the two terms would cancel."""
    square = angle * angle
    series = angle * square * (1 / 3 - square * (1 / 30 - square * (1 / 840 - square / 45360)))
    return np.where(angle < 0.1, series, np.sin(angle) - angle * np.cos(angle))
