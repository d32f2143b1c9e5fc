"""The network f(x; θ) = √m·W_L σ(W_{L−1} σ(… σ(W_1 x))), and its factors.

    d    dim       numbers in a context          m  hidden   units in each hidden layer (even when paired)
    L    depth     layers of weights, L ≥ 2      θ  weights  W_1 (m, d), W_2 … W_{L−1} (m, m), W_L (1, m)
    u              f/√m; all work is done on u, for then ∂u/∂θ is the feature φ = g/√m itself

Equation (3) of the paper. Assumption 2 asks for doubled contexts x' = [x, x]/√2 and block-diagonal
weights diag(W, W), W ~ N(0, 4/m). Only W_1 meets x', and only through its two halves' sum over √2: so
W_1 = [W; W] with entries N(0, 2/m) on plain x, W_l = diag(W, W) with N(0, 4/m) above it and
W_L = [w, −w] with N(0, 2/m) are *the same algorithm* without the doubled first layer: the same f, the same
gradient steps, the same inner products, at any depth (tests/core/test_network.py).

A skip path of strength s adds s·c·x to u, so that the model holds the linear one. Its weights c, at first 0, are
weights of W_L from s·x: the last layer is W_L = [w, c] on [σ(…), s·x], so φ and Z include them automatically.
Likewise a bias is a weight from a unit that is always 1, and needs no code beyond that unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from rarely._core.errors import InvalidInput, check_choice, check_not_negative, check_whole
from rarely._core.model.features import Factors, gram
from rarely._core.native.linalg import BLAS_ALONE, product
from rarely._core.types import Array, Floats

MAX_DEPTH = 1000
Weights = tuple[Floats, ...]
Scaling = Literal["ntk", "standard"]
Initial = Literal["paired", "uniform"]
Multiply = Callable[[Floats, Floats, Floats], object]  # (a, b, out): out becomes a·bᵀ


def _by_blas(a: Floats, b: Floats, out: Floats) -> None:
    np.matmul(a, b.T, out=out)


def _by_lanes(a: Floats, b: Floats, out: Floats) -> None:
    if len(a) * b.size <= BLAS_ALONE:
        np.matmul(a, b.T, out=out)
    else:
        out[:] = product(np.asarray(a, np.float64), np.asarray(b, np.float64))


@dataclass(frozen=True)
class Network:
    """The shape of a network; weights are values that go in and come out."""

    dim: int
    hidden: int
    depth: int = 2
    biases: bool = False
    scaling: Scaling = "ntk"  # "ntk": f = √m·u, φ = g/√m as printed. "standard": f = u, φ = g
    initial: Initial = "paired"  # "paired": f(·; θ_0) = 0, biases 0. "uniform": every entry in ±1/√fan-in

    skip: float | None = None  # s, the strength of the linear path; None without one, 0 if it is idle
    skips: ClassVar[tuple[float, ...]] = (0.0, 3.0)
    """The strengths s of the skip path that a policy which tunes itself compares; it begins with the first."""

    def __post_init__(self) -> None:
        check_choice("scaling", self.scaling, Scaling)
        check_choice("initial", self.initial, Initial)
        for name, least in (("dim", 1), ("hidden", 1), ("depth", 2)):
            check_whole(name, getattr(self, name), least)
        if self.depth > MAX_DEPTH:
            raise InvalidInput(f"depth must be at most {MAX_DEPTH}, because every layer is listed; got {self.depth}.")
        if self.skip is not None:
            check_not_negative("skip", self.skip, "or None for no skip path")
        if self.initial == "paired" and self.hidden % 2:
            raise InvalidInput(
                f"hidden must be even, because paired units start as mirror images so that f(x; θ_0) = 0; "
                f"got {self.hidden}. Use {self.hidden + 1}."
            )

    @cached_property
    def output_scale(self) -> float:
        """√m if f = √m·u, else 1."""
        return float(np.sqrt(self.hidden)) if self.scaling == "ntk" else 1.0

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(out, in) of W_1 … W_L; with biases the last column of each is the bias."""
        outs = [self.hidden] * (self.depth - 1) + [1]
        ins = [self.dim] + [self.hidden] * (self.depth - 1)
        ins[-1] += self._skipped
        return tuple((o, i + self.biases) for o, i in zip(outs, ins, strict=True))

    @property
    def feature_widths(self) -> tuple[tuple[int, int], ...]:
        """(out, in) of the layers of its features."""
        return self.shapes

    @property
    def _skipped(self) -> int:
        """Numbers that the skip path brings to the last layer."""
        return 0 if self.skip is None else self.dim

    @cached_property
    def parameters(self) -> int:
        """p = md + m²(L − 2) + m without biases and skip path (the paper's text counts one m² too many)."""
        return sum(o * i for o, i in self.shapes)

    def tuned(self, skip: float) -> Self:
        """Return the network for a policy that tunes itself, with a skip path of this strength."""
        return replace(self, skip=skip)

    def kernel(self, weights: Weights, contexts: Array) -> Array:
        """Return the inner products of the contexts' features, (n, n)."""
        factors = self.values_and_factors(weights, contexts)[1]
        return gram(factors, factors)

    def own_objective(self, initial: Weights, contexts: Array, rewards: Array, plan: Any) -> Any:
        """Return the objective of a `TrainingPlan`, if the network comes with one of its own."""
        return None

    def initial_weights(self, generator: np.random.Generator) -> tuple[Array, ...]:
        """Return θ_0."""
        if self.initial == "uniform":
            drawn = tuple(generator.uniform(-1, 1, (o, i)) / np.sqrt(i - self.biases) for o, i in self.shapes)
            drawn[-1][0, self.hidden : self.hidden + self._skipped] = 0
            return drawn
        half, weights = self.hidden // 2, []
        for layer, (o, i) in enumerate(self.shapes):
            w, fan_in = np.zeros((o, i)), i - self.biases
            if layer == 0:
                w[:half, :fan_in] = generator.normal(0, np.sqrt(2 / self.hidden), (half, fan_in))
                w[half:] = w[:half]
            elif layer < self.depth - 1:
                w[:half, :half] = generator.normal(0, np.sqrt(4 / self.hidden), (half, half))
                w[half:, half : 2 * half] = w[:half, :half]
            else:
                w[0, :half] = generator.normal(0, np.sqrt(2 / self.hidden), half)
                w[0, half : 2 * half] = -w[0, :half]
            weights.append(w)
        return tuple(weights)

    def workspace(self, rows: int, dtype: type, multiply: Multiply = _by_blas) -> Workspace:
        """Return room for `rows` contexts at a time, so that a training loop allocates nothing."""
        room = np.ones if self.biases else np.empty
        inputs: Weights = tuple([room((rows, i), dtype) for _, i in self.shapes])
        signals: Weights = tuple([np.empty((rows, o), dtype) for o, _ in self.shapes])
        return Workspace(inputs, signals, np.empty((rows, 1), dtype), multiply)

    def forward(self, weights: Weights, contexts: Floats, work: Workspace) -> Floats:
        """Return u of each context, (n,), and fill the workspace's inputs a_0 … a_{L−1}."""
        n = len(contexts)
        if work.inputs[0] is not contexts:
            work.inputs[0][:n, : self.dim] = contexts
        for w, a, b in zip(weights, work.inputs, work.inputs[1:], strict=False):
            units = b[:n, : self.hidden]
            work.multiply(a[:n], w, units)
            np.maximum(units, 0, out=units)
        if self.skip is not None:
            np.multiply(contexts, self.skip, out=work.inputs[-1][:n, self.hidden : self.hidden + self.dim])
        work.multiply(work.inputs[-1][:n], weights[-1], work.values[:n])
        return work.values[:n, 0]

    def backward(self, weights: Weights, rows: int, work: Workspace) -> None:
        """Fill the workspace's signals δ_1 … δ_L, after `forward`; δ_{L−1} still lacks its gain.

        δ_{L−1} = W_L ∘ 1[a > 0]. The factor W_L is the same in every row, so the caller applies it
        where that is cheap: to a gradient of m rows, and not to n.
        """
        work.signals[-1][:rows] = 1
        for layer in range(self.depth - 2, -1, -1):
            signal, active = work.signals[layer][:rows], work.inputs[layer + 1][:rows, : self.hidden] > 0
            if layer == self.depth - 2:
                np.copyto(signal, active)
                continue
            above = weights[layer + 1][:, : self.hidden]
            if layer == self.depth - 3:
                above = self.gain(weights)[:, None] * above
            work.multiply(work.signals[layer + 1][:rows], above.T, signal)
            signal *= active

    def gain(self, weights: Weights) -> Floats:
        """Return the factor that the last hidden layer's signal lacks: W_L without its bias, (m,)."""
        return weights[-1][0, : self.hidden]

    def values(self, weights: Weights, contexts: Array) -> Array:
        """Return f of each context, (n,)."""
        work = self.workspace(len(contexts), np.float64, _by_lanes)
        return np.asarray(self.output_scale * self.forward(weights, contexts, work), np.float64)

    def values_and_factors(self, weights: Weights, contexts: Array) -> tuple[Array, Factors]:
        """Return f of each context, (n,), and its feature."""
        work = self.workspace(len(contexts), np.float64, _by_lanes)
        if not self.biases:
            work = replace(work, inputs=(contexts, *work.inputs[1:]))
        values = self.output_scale * self.forward(weights, contexts, work)
        self.backward(weights, len(contexts), work)
        work.signals[-2][:] *= self.gain(weights)
        inputs: Any = work.inputs  # of float64, as the workspace is
        signals: Any = work.signals
        return np.asarray(values, np.float64), Factors(inputs, signals)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Arrays that one pass through a network fills: a_0 … a_{L−1}, δ_1 … δ_L and u."""

    inputs: tuple[Floats, ...]
    signals: tuple[Floats, ...]
    values: Floats
    multiply: Multiply
