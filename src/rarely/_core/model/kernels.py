"""The kernels among which evidence chooses, as features that are known by their inner products.

    x    raw       a context, each column over its size    c   centred   (x − center)/spread; ‖x‖² and ‖c‖² about 1
    u    [c, 1]    with the constant of a network's bias   z   [Rc, 1]   on the metric R that was learned

    linear      x·x'                   products    (u·u')²/2
    network     τ(u, u')               learned     τ(z, z')             constant    1
    columns     Σ_j min(|c_j|, |c'_j|) over columns in which both have one sign

τ is the tangent kernel of a network with one hidden layer (`tangent_kernel`), of gain 1: a network of infinite width,
trained lazily. A network of finite width also learns which directions of a context matter. So does R: R² is the mean
outer product of the gradients of what the version before predicted (Radhakrishnan, Beaglehole, Pandit and Belkin,
*Mechanism for feature learning in neural networks*, Science 383, 2024), and nothing is trained.

Functions of `columns` are sums of functions of one column each, as rough as a random walk that begins in the center:
what steps along single columns add up to, as codes, ages and prices in tables ask for. ½(‖c‖₁ + ‖c'‖₁ − ‖c − c'‖₁), the
stump kernel of Lin and Li, *Support vector machinery for infinite ensemble learning*, JMLR 9, 2008.

Time is a factor of all of them: exp(−δ|t − t'|)·1[t and t' on one side of a change], 1 where nothing is forgotten.

Features are `Factors` with directions in the place of inputs, and lengths in the place of signals, so that their norms
are those of any features. A kernel of weight 0 has a layer without columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rarely._core.growable_array import place
from rarely._core.model.features import Factors
from rarely._core.model.tangent_kernel import NTK, Directions
from rarely._core.native import in_use, library, linalg
from rarely._core.native.loader import struct
from rarely._core.types import Array, BoolArray

NAMES = ("linear", "network", "products", "constant", "learned", "columns")
LINEAR, NETWORK, PRODUCTS, CONSTANT, LEARNED, COLUMNS = range(len(NAMES))
TANGENT = NTK(2, "network")
SPARSE = 0.3
"""A column with a greater part of zeros is not centred: what is 0 stays 0, and blocks of arms share nothing."""
FEW = 64  # columns, or features on one side, up to which the compiled form is the faster
CLIP = 8.0  # numbers are cut at this many deviations from the center, as in `ContextScale`
STILL = 1e-12  # a column whose spread is a smaller part of its center than this has had a single number, up to rounding
EDGE = 1e-7
"""1 − cosine below which two contexts are one: the gradient of τ has a corner there, and its mean direction is 0."""


@dataclass(frozen=True, eq=False)
class Units:
    """How contexts become x and c: columns that never varied are 0 in c, and columns that were always 0 are 0 in x."""

    center: Array
    rates: Array  # 1/spread, or 0
    sizes: Array  # 1/size, or 0
    clips: bool = True

    @classmethod
    def of(cls, mean: Array, variance: Array, sparse: BoolArray) -> Units:
        """Return the units of contexts with these moments."""
        center, size = np.where(sparse, 0.0, mean), np.sqrt(variance + np.square(mean))
        spread = np.sqrt(variance + np.square(mean - center))
        return cls(center, _rates(spread, spread > STILL * np.abs(center)), _rates(size, size > 0))

    @classmethod
    def given(cls, dim: int, length: float = 1.0) -> Units:
        """Return the units of contexts whose scale was given, of about this length."""
        return cls(np.zeros(dim), np.full(dim, 1 / length), np.full(dim, 1 / length), clips=False)

    def raw(self, contexts: Array) -> Array:
        """Return x, (n, d)."""
        return np.asarray(contexts * self.sizes)

    def centred(self, contexts: Array) -> Array:
        """Return c, (n, d)."""
        out = np.asarray((contexts - self.center) * self.rates)
        if self.clips:
            most = CLIP / math.sqrt(out.shape[1])
            np.clip(out, -most, most, out=out)
        return out


@dataclass(frozen=True, eq=False)
class Memory:
    """What is remembered: everything, less what is far in time, or what lies on the other side of a change."""

    decay: float = 0.0
    change: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.decay or self.change)

    def __call__(self, times: Array, others: Array) -> Array:
        """Return the factor of time, (n, n')."""
        apart = np.exp(-self.decay * np.abs(times[:, None] - others))
        return np.asarray(apart * ((times[:, None] >= self.change) == (others >= self.change)))

    def __str__(self) -> str:
        if self.change:
            return f"what came before round {self.change:.0f} is set aside"
        return f"rounds count half after {math.log(2) / self.decay:.0f}" if self.decay else "nothing is forgotten"


@dataclass(frozen=True, eq=False)
class Views:
    """Contexts as each kernel sees them."""

    x: Array
    c: Array
    u: Directions
    z: Directions | None

    @classmethod
    def of(cls, contexts: Array, units: Units, metric: Array | None) -> Views:
        """Return the views of (n, d) contexts; without a metric nothing was learned yet."""
        c = units.centred(contexts)
        return cls(units.raw(contexts), c, _with_constant(c), None if metric is None else _with_constant(c @ metric))

    def grams(self, wanted: Sequence[int]) -> Array:
        """Return the (n, n) matrices of these kernels, one after the other."""
        tangent = TANGENT.between(self.u, self.u) / TANGENT.gain
        inner = (self.u.unit @ self.u.unit.T) * self.u.norms * self.u.norms[:, None]
        made = {LINEAR: self.x @ self.x.T, NETWORK: tangent, PRODUCTS: np.square(inner) / 2}
        made |= {CONSTANT: np.ones(tangent.shape), COLUMNS: shared_columns(self.c, self.c)}
        if self.z is not None:
            made[LEARNED] = TANGENT.between(self.z, self.z) / TANGENT.gain
        return np.stack([made[kernel] for kernel in wanted])

    def diagonals(self) -> Array:
        """Return the kernels of every context with itself, (kernels, n)."""
        square = np.square(self.u.norms)
        learned = square if self.z is None else np.square(self.z.norms)
        linear = np.einsum("ij,ij->i", self.x, self.x)
        return np.stack(
            [linear, square, np.square(square) / 2, np.ones(len(square)), learned, np.abs(self.c).sum(axis=1)]
        )

    def features(self, weights: Array, times: Array, memory: Memory) -> Factors:
        """Return features whose `products` are the kernels' weighted sum."""
        count, root = len(self.x), np.sqrt(weights)
        none, length = np.empty((count, 0)), self.u.norms[:, None]
        x = self.x if weights[LINEAR] > 0 else none
        z = none if self.z is None or not weights[LEARNED] > 0 else self.z.unit
        zs = none[:, :0] if self.z is None else self.z.norms[:, None]
        s = self.c * weights[COLUMNS] if weights[COLUMNS] > 0 else none
        signals = np.column_stack(
            (root[NETWORK] * length, root[PRODUCTS] * length**2 / math.sqrt(2), np.full(count, root[CONSTANT]))
        )
        clock = np.column_stack((memory.decay * times, (times >= memory.change).astype(np.float64)))
        learned = root[LEARNED] * zs if z.shape[1] else np.zeros((count, 1))
        # The signals with which rows of the layer of columns have the norm ‖s‖₁.
        sums, squares = np.abs(s).sum(axis=1), np.einsum("ij,ij->i", s, s)
        columns = np.sqrt(np.divide(sums, squares, out=np.zeros(count), where=squares > 0))[:, None]
        return Factors(
            (x, self.u.unit, z, s, clock),
            (np.full((count, 1), root[LINEAR]), signals, learned, columns, np.zeros((count, 1))),
        )

    def gradients(
        self, points: Views, coefficients: Array, weights: Array, units: Units, metric: Array | None
    ) -> Array:
        """Return the gradient at each context, with respect to c, of Σ coefficients·kernel(·, points), (n, d); columns,
        which have corners, are left out."""
        out = np.zeros((len(self.x), self.x.shape[1]))
        if weights[LINEAR] > 0:
            stretch = np.divide(units.sizes, units.rates, out=np.zeros(len(units.rates)), where=units.rates > 0)
            out += weights[LINEAR] * (coefficients @ points.x) * stretch
        if weights[NETWORK] > 0:
            out += weights[NETWORK] * _tangent_gradients(self.u, points.u, coefficients)
        if weights[PRODUCTS] > 0:
            inner = (self.u.unit @ points.u.unit.T) * points.u.norms * self.u.norms[:, None]
            out += weights[PRODUCTS] * ((inner * coefficients) @ (points.u.unit * points.u.norms[:, None]))[:, :-1]
        if weights[LEARNED] > 0 and self.z is not None and points.z is not None and metric is not None:
            out += weights[LEARNED] * _tangent_gradients(self.z, points.z, coefficients) @ metric.T
        return out


class KernelForm(NamedTuple):
    """What a mean and features are made of, for a compiled step."""

    units: Units
    metric: Array | None  # R, where its kernel has a weight
    roots: Array  # √weight of each kernel
    clock: tuple[float, float]  # time by the decay, and the side of the change, of what is decided now
    coefficients: Array
    points: Factors | None  # features with these coefficients; None before any reward
    center: float
    spread: float


def products(left: Factors, right: Factors) -> Array:
    """Return the weighted kernels between features, (n, n'), in an array of `linalg.room`."""
    widths = [array.shape[1] for array in left.inputs[:3]]
    if not len(left) or not len(right) or not in_use():
        return plain_products(left, right)
    if min(len(left), len(right)) <= FEW or max(widths) <= FEW:
        return _compiled(left, right)
    return plain_products(left, right, shared_columns)


def _compiled(left: Factors, right: Factors) -> Array:
    # ctypes takes the arrays that hold these addresses no hold on, so they are named.
    sides = [[np.ascontiguousarray(array) for array in (*side.inputs, *side.signals[:3])] for side in (left, right)]
    out = linalg.room(len(left), len(right))
    widths = [array.shape[1] for array in left.inputs[:-1]]
    left_at, right_at = ([place(array) if array.size else 0 for array in side] for side in sides)
    steps = (step // 8 for step in out.strides)
    at = out.__array_interface__["data"][0]
    if library().rarely_kernel(struct("kernel_task")(*widths, len(left), *left_at, len(right), *right_at, *steps, at)):
        raise MemoryError(linalg.NO_MEMORY)
    return out


def plain_shared(left: Array, right: Array) -> Array:
    """Return what `shared_columns` does."""
    out = np.zeros((len(left), len(right)))
    for one, other in zip(left.T, right.T, strict=True):
        out += (np.abs(one)[:, None] + np.abs(other) - np.abs(one[:, None] - other)) / 2
    return out


def plain_products(left: Factors, right: Factors, shared: Callable[[Array, Array], Array] = plain_shared) -> Array:
    """Return what `products` does."""
    out = np.zeros((len(left), len(right)))
    if left.inputs[0].shape[1]:
        np.matmul(left.inputs[0] * left.signals[0], (right.inputs[0] * right.signals[0]).T, out=out)
    mine, theirs = left.signals[1], right.signals[1]
    if mine[:, 0].any():
        out += TANGENT.between(Directions(left.inputs[1], mine[:, 0]), Directions(right.inputs[1], theirs[:, 0])) / 2
    if mine[:, 1].any():
        out += np.square(left.inputs[1] @ right.inputs[1].T) * mine[:, 1:2] * theirs[:, 1]
    if mine[:, 2].any():
        out += mine[:, 2:3] * theirs[:, 2]
    if left.inputs[2].shape[1]:
        z = [Directions(side.inputs[2], side.signals[2][:, 0]) for side in (left, right)]
        out += TANGENT.between(*z) / 2
    if left.inputs[3].shape[1]:
        out += shared(left.inputs[3], right.inputs[3])
    (time, side), (other, another) = left.inputs[4].T, right.inputs[4].T
    if time.any() or other.any():
        out *= np.exp(-np.abs(time[:, None] - other))
    if not (side.all() and another.all()):
        out *= side[:, None] == another
    return out


def shared_columns(left: Array, right: Array) -> Array:
    """Return the kernel of columns between contexts, (n, n').

    >>> shared_columns(np.array([[1.0, -2.0]]), np.array([[3.0, -0.5], [-1.0, 0.0]]))
    array([[1.5, 0. ]])
    """

    def alone(c: Array) -> Factors:
        none, zeros = np.empty((len(c), 0)), np.zeros((len(c), 3))
        return Factors((none, none, none, c, np.ones((len(c), 2)) * (0, 1)), (zeros[:, :1], zeros, *[zeros[:, :1]] * 3))

    return _compiled(alone(left), alone(right)) if len(left) and len(right) and in_use() else plain_shared(left, right)


def widths(dim: int, weights: Array) -> tuple[tuple[int, int], ...]:
    """Return the layers of features with these weights, of contexts of `dim` numbers."""
    linear, learned, columns = (weights[kernel] > 0 for kernel in (LINEAR, LEARNED, COLUMNS))
    return ((1, dim * linear), (3, dim + 1), (1, (dim + 1) * learned), (1, dim * columns), (1, 2))


def metric_root(matrix: Array, blend: float) -> Array | None:
    """Return R of a sum of outer products of gradients, (d, d), of trace d like the identity, which has the part
    `blend`; None where all are 0."""
    trace, dim = float(np.trace(matrix)), len(matrix)
    if not 0 < trace < math.inf:
        return None
    values, vectors = np.linalg.eigh((1 - blend) * (dim / trace) * matrix + blend * np.eye(dim))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _rates(sizes: Array, known: BoolArray) -> Array:
    """Return what brings columns of these sizes to a norm of 1 together, and 0 for the others."""
    out = np.zeros(len(sizes))
    np.divide(1.0, sizes * math.sqrt(max(int(known.sum()), 1)), out=out, where=known)
    return out


def _with_constant(c: Array) -> Directions:
    lengths = np.sqrt(1 + np.einsum("ij,ij->i", c, c))
    return Directions(np.column_stack((c, np.ones(len(c)))) / lengths[:, None], lengths)


def _tangent_gradients(x: Directions, points: Directions, coefficients: Array) -> Array:
    """Return the gradients of Σ coefficients·τ(·, points) at x, without that of the constant."""
    cosine = np.clip(x.unit @ points.unit.T, -1.0, 1.0)
    sine, angle = np.sqrt(np.maximum(1 - cosine**2, EDGE**2)), np.pi - np.arccos(cosine)
    value = (2 * cosine * angle + sine) / (2 * np.pi)
    slope = np.where(cosine > 1 - EDGE, 0.0, (2 * angle + cosine / sine) / (2 * np.pi))
    # τ = |u||p|·value(cosine):  ∂τ/∂u = |p|(value − slope·cosine)·u/|u| + |p|·slope·p/|p|
    along = (coefficients * points.norms * (value - slope * cosine)).sum(axis=1)
    out = along[:, None] * x.unit + (coefficients * points.norms * slope) @ points.unit
    return np.asarray(out[:, :-1])
