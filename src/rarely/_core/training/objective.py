"""ℒ/m, its gradient and its curvature over all samples: in NumPy, and in C also by blocks.

    ℒ/m = Σ (u_i − y_i)²/2 + λ‖θ − θ_0‖²/2        see `rarely._core.training.gradient_descent` for the letters
    x  (n, d)    y  (n,)    W_1  (m, d)    W_2 … W_{L−1}  (m, m)    W_L  (1, m)

`Objective` is NumPy's form, for any network, and the oracle of the others. A pass costs 4·n·m·d operations at one
hidden layer; tiles of rows keep its n×m arrays in the cache. `CompiledObjective` is for networks without biases, its
passes in `native/passes.c`: NumPy sends the n×m activations through the cache several times, C keeps them in its
nearest part.

`ArmBlocks` gives every arm its own columns, so with K arms a context is 0 in all of them but one K-th. The samples
then fall into groups, one for each arm, and a group needs the shared columns and its own only:

    shared    c_0 columns, nonzero anywhere                       group g   n_g samples
    own       c_g columns, nonzero in the samples of group g only           Σ n_g = n, and c_0 + Σ c_g ≤ d

`pattern_of` finds the groups in the contexts themselves, however they were made: two samples are in one group if a
column that is not shared is nonzero in both, or a chain of such samples joins them. A sample of group g has
u(x; W_1, …) = u(x_g; W_1g, …), x_g its nonzero columns and W_1g those of W_1: a network of fewer inputs. So the sum
over samples is one over groups, each on a part of the weights (`BlockObjective`), without the products with zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rarely._core.errors import InvalidInput
from rarely._core.model.network import Network, Weights, Workspace
from rarely._core.native import form, in_use, library, threads
from rarely._core.native.loader import struct
from rarely._core.types import Array, BoolArray, Floats, IntArray

CACHE_BYTES = 2**18  # a tile's widest array should stay in the second-level cache through a pass
MAX_ITERATIONS, CONVERGED = 30, 0.003
"""Of a power iteration: at most this many, and the relative change at which it stops."""
SPARSE = 0.75  # blocks are looked for if at most this part of the numbers is nonzero
SHARED = 0.5  # a column that is nonzero in a greater part of the samples may be shared
MAX_ROUNDS = 64  # of the search for groups: samples joined by a longer chain are not treated as a block
STRETCH = 2e10  # operations of the compiled descent between two chances for Ctrl-C: some tenths of a second
STRIP = 8  # samples that the compiled passes take together: a group is filled up to a multiple
ROW_COST = 12  # the cost of a row beside its products, in columns
Pointers = ctypes.Array[ctypes.c_void_p]


class MomentumState(NamedTuple):
    """The state of a descent with momentum."""

    weights: Weights
    ago: Weights  # the weights one step before
    steps: int = 0  # steps taken so far

    @classmethod
    def at_rest(cls, weights: Weights) -> MomentumState:
        """Return the state before the first step."""
        return cls(weights, weights)


class Objective:
    """ℒ/m and its gradient over all samples, computed in tiles so that memory does not grow with n."""

    @property
    def loops(self) -> str:
        """The loops that compute it, as `rarely._core.native.form` names them."""
        return "numpy"

    def __init__(
        self, network: Network, initial: Weights, contexts: Floats, rewards: Floats, ridge: float, dtype: type
    ) -> None:
        if contexts.shape != (len(rewards), network.dim):
            raise InvalidInput(
                f"training needs contexts of shape ({len(rewards)}, {network.dim}), a row for each reward and a column "
                f"for each input of the network; got {contexts.shape}."
            )
        self.network, self.ridge, self.dtype = network, ridge, dtype
        self.initial: Weights = tuple(np.ascontiguousarray(w, dtype) for w in initial)
        self.contexts: Floats = contexts.astype(dtype, copy=False)
        self.targets: Floats = (rewards / network.output_scale).astype(dtype)
        widest = max(max(shape) for shape in network.shapes)
        rows = max(64, CACHE_BYTES // (widest * np.dtype(dtype).itemsize))
        self._rows = min(rows, max(1, len(contexts)))

    @cached_property
    def _work(self) -> Workspace:
        return self.network.workspace(self._rows, self.dtype)

    @property
    def samples(self) -> int:
        """n."""
        return len(self.targets)

    def _tiles(self) -> Iterator[tuple[Floats, Floats]]:
        for start in range(0, self.samples, self._rows):
            tile = slice(start, start + self._rows)
            yield self.contexts[tile], self.targets[tile]

    def _penalty(self, weights: Weights) -> float:
        moved = sum(float(np.sum(np.square(w - w0))) for w, w0 in zip(weights, self.initial, strict=True))
        return self.ridge * moved / 2

    def loss(self, weights: Weights) -> float:
        """Return ℒ/m."""
        total = self._penalty(weights)
        for contexts, targets in self._tiles():
            residuals = self.network.forward(weights, contexts, self._work) - targets
            total += float(residuals @ residuals) / 2
        return total

    def loss_and_gradient(self, weights: Weights) -> tuple[float, Weights]:
        """Return ℒ/m and ∇ℒ/m."""
        gradient = tuple(self.ridge * (w - w0) for w, w0 in zip(weights, self.initial, strict=True))
        total = self._penalty(weights)
        for contexts, targets in self._tiles():
            residuals = self.network.forward(weights, contexts, self._work) - targets
            total += float(residuals @ residuals) / 2
            self._add_backward(weights, residuals, gradient)
        return total, gradient

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        """Take J steps from `start`, none from a loss beyond `hopeless`; return the weights and their loss."""
        weights: Weights = tuple(w.copy() for w in start)
        scale = self.dtype(step)
        for _ in range(steps):
            loss, gradient = self.loss_and_gradient(weights)
            if not loss <= hopeless:
                return weights, loss
            for w, g in zip(weights, gradient, strict=True):
                g *= scale
                w -= g
        return weights, self.loss(weights)

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        """Take J steps with Nesterov's momentum: each gradient is that at θ_k + k/(k + 3)·(θ_k − θ_{k−1}).

        After a loss beyond `hopeless` it returns `start`.
        """
        now, ago, taken = start
        scale = self.dtype(step)
        for _ in range(steps):
            onward = self.dtype(taken / (taken + 3))
            ahead = tuple(w + onward * (w - b) for w, b in zip(now, ago, strict=True))
            loss, gradient = self.loss_and_gradient(ahead)
            if not loss <= hopeless:
                return start, loss
            now, ago = tuple(w - scale * g for w, g in zip(ahead, gradient, strict=True)), now
            taken += 1
        loss = self.loss(now)
        return (MomentumState(now, ago, taken) if loss <= hopeless else start), loss

    def sample_gradient(self, weights: Weights, sample: int) -> tuple[float, Weights]:
        """Return u − y of one sample, and (u − y)·φ."""
        gradient = tuple(np.zeros_like(w) for w in weights)
        residuals = self.network.forward(weights, self.contexts[sample : sample + 1], self._work)
        residuals = residuals - self.targets[sample]
        self._add_backward(weights, residuals, gradient)
        return float(residuals[0]), gradient

    def _add_backward(self, weights: Weights, residuals: Floats, into: Weights) -> None:
        """Add Φᵀ residuals of the tile of the last forward pass: a gradient is a weighted sum of features."""
        rows = len(residuals)
        self.network.backward(weights, rows, self._work)
        for layer, (out, a, d) in enumerate(zip(into, self._work.inputs, self._work.signals, strict=True)):
            signals, inputs, column = d[:rows], a[:rows], residuals[:, None]
            narrow = signals.shape[1] < inputs.shape[1]  # the weights multiply the narrower side
            product = (signals * column).T @ inputs if narrow else signals.T @ (inputs * column)
            if layer == self.network.depth - 2:
                product *= self.network.gain(weights)[:, None]
            out += product

    def top_curvature(self, start: Weights | None) -> tuple[float, Weights | None]:
        """Return λ_max(ΦᵀΦ) at θ_0 by power iteration, and its eigenvector; 0 and None if Φ is 0.

        The kernel's entries are mostly positive, so Φᵀ1 is a good start, with a ripple so that it is not
        orthogonal; later updates start from the last eigenvector and need two or three iterations.
        """
        if start is None:
            start = tuple(np.zeros_like(w) for w in self.initial)
            offset = 0
            for contexts, targets in self._tiles():
                self.network.forward(self.initial, contexts, self._work)
                ripple = 1 + 0.1 * np.cos(np.arange(offset, offset + len(targets)))
                self._add_backward(self.initial, ripple.astype(self.dtype), start)
                offset += len(targets)
        vector: Weights = tuple(w.astype(self.dtype) for w in start)
        value = 0.0
        for _ in range(MAX_ITERATIONS):
            length = np.sqrt(sum(float(np.sum(np.square(v))) for v in vector))
            if not 0 < length < np.inf:
                return value, None
            vector = tuple(v / self.dtype(length) for v in vector)
            previous, (value, vector) = value, self.curvature_times(vector)
            if abs(value - previous) <= CONVERGED * value:
                break
        return value, vector

    def largest_sample_curvature(self, weights: Weights) -> float:
        """Return max ‖φ_i‖², which limits a step on one sample."""
        tiles = (self.network.values_and_factors(weights, np.asarray(x, np.float64)) for x, _ in self._tiles())
        return max((float(factors.squared_norms.max()) for _, factors in tiles), default=0.0)

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """Return vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        product: Weights = tuple(np.zeros_like(v) for v in vector)
        total = 0.0
        for contexts, targets in self._tiles():
            rows = len(targets)
            self.network.forward(self.initial, contexts, self._work)
            self.network.backward(self.initial, rows, self._work)
            slopes: Floats = np.zeros(rows, self.dtype)
            for layer, (v, a, d) in enumerate(zip(vector, self._work.inputs, self._work.signals, strict=True)):
                if layer == self.network.depth - 2:
                    v = self.network.gain(self.initial)[:, None] * v
                slopes += np.einsum("ij,ij->i", a[:rows] @ v.T, d[:rows])
            total += float(slopes @ slopes)
            self._add_backward(self.initial, slopes, product)
        return total, product


class Pattern(NamedTuple):
    """Groups of samples and of columns."""

    samples: IntArray  # (n,): the samples, group by group
    columns: IntArray  # (d,): the shared columns, those of each group, those that are 0 in all samples
    shared: int
    group_samples: IntArray  # (G,): n_g
    group_columns: IntArray  # (G,): c_g

    @property
    def products(self) -> int:
        """Σ n_g (c_0 + c_g), which replaces n·d."""
        return int(self.group_samples @ (self.shared + self.group_columns))


def pattern_of(contexts: Floats) -> Pattern | None:
    """Return the pattern with the fewest products, or None if none has fewer than n·d.

    >>> pattern = pattern_of(np.array([[1.0, 2.0, 0.0], [1.0, 0.0, 3.0], [1.0, 4.0, 0.0], [1.0, 0.0, 5.0]]))
    >>> pattern.shared, pattern.samples, pattern.group_columns
    (1, array([0, 2, 1, 3]), array([1, 1]))
    """
    there = contexts != 0
    if np.count_nonzero(there) > SPARSE * there.size:
        return None
    often = there.sum(axis=0) > SHARED * len(there)
    patterns = [_pattern(there, shared) for shared in ((often & False, often) if often.any() else (often,))]
    best = min(filter(None, patterns), key=lambda pattern: pattern.products, default=None)
    return best if best is not None and best.products < there.size else None


def _pattern(there: BoolArray, shared: BoolArray) -> Pattern | None:
    rows, columns = np.nonzero(there & ~shared)
    column_labels = np.arange(there.shape[1])
    row_labels = np.full(len(there), there.shape[1])
    # Connected components by label propagation: the lowest column that can be reached names the group.
    for _ in range(MAX_ROUNDS):
        np.minimum.at(row_labels, rows, column_labels[columns])
        before = column_labels.copy()
        np.minimum.at(column_labels, columns, row_labels[rows])
        if np.array_equal(column_labels, before):
            break
        column_labels = column_labels[column_labels]
    else:
        return None
    names, group_samples = np.unique(row_labels, return_counts=True)
    used = there.any(axis=0) & ~shared
    group_columns = np.array([np.count_nonzero(used & (column_labels == name)) for name in names], np.int64)
    # Shared columns first, unused ones last, the others by group.
    place = np.where(shared, -1, np.where(used, column_labels, there.shape[1] + 1))
    return Pattern(
        samples=np.argsort(row_labels, kind="stable"),
        columns=np.argsort(place, kind="stable"),
        shared=int(shared.sum()),
        group_samples=group_samples.astype(np.int64),
        group_columns=group_columns,
    )


class CompiledObjective(Objective):
    """`Objective` in C, in one pass over the samples."""

    @staticmethod
    def fits(network: Network) -> bool:
        """Return whether the compiled passes are available and can compute this network."""
        return in_use() and not network.biases

    @property
    def loops(self) -> str:
        return form()

    def loss(self, weights: Weights) -> float:
        return self.descend(weights, 0.0, 0, np.inf)[1]

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        moving = self._copied(start)
        return moving, self._descend(moving, None, 0, step, steps, hopeless)

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        now, ago = self._copied(start.weights), self._copied(start.ago)
        loss = self._descend(now, ago, start.steps, step, steps, hopeless)
        return (MomentumState(now, ago, start.steps + steps) if loss <= hopeless else start), loss

    def _descend(
        self, moving: Weights, ago: Weights | None, done: int, step: float, steps: int, hopeless: float
    ) -> float:
        pointers = _at(self.initial), _at(moving), None if ago is None else _at(ago)
        task = self._task(*pointers)
        task.step_size, task.hopeless = step, hopeless
        # In stretches, so that Python can handle Ctrl-C in between.
        stretch = max(1, int(STRETCH // (4 * self.samples * self.network.parameters + 1)))
        while True:
            task.taken, task.steps = done, min(steps, stretch)
            loss = _run(library().rarely_descend, task)
            steps, done = steps - task.steps, done + task.steps
            if not steps or not loss <= hopeless:
                return loss

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        if self.network.depth > 2:
            return super().curvature_times(vector)
        product = self._copied(vector)
        pointers = _at(self.initial), _at(product)
        return _run(library().rarely_curvature, self._task(*pointers)), product

    def _task(self, initial: Pointers, weights: Pointers, previous: Pointers | None = None) -> Any:
        return struct("training_task")(
            number_bytes=np.dtype(self.dtype).itemsize,
            samples=self.samples,
            dim=self.network.dim,
            units=self.network.hidden,
            hidden_layers=self.network.depth - 1,
            threads=threads(),
            contexts=self._x.ctypes.data,
            targets=self.targets.ctypes.data,
            initial=ctypes.addressof(initial),
            weights=ctypes.addressof(weights),
            previous=None if previous is None else ctypes.addressof(previous),
            skip=-1.0 if self.network.skip is None else self.network.skip,
            ridge=self.ridge,
        )

    @cached_property
    def _x(self) -> Floats:
        return np.ascontiguousarray(self.contexts)

    def _copied(self, weights: Weights) -> Weights:
        return tuple(np.array(w, self.dtype, order="C") for w in weights)


def _at(weights: Weights) -> Pointers:
    return (ctypes.c_void_p * len(weights))(*(w.ctypes.data for w in weights))


def _run(function: Callable[..., int], task: Any) -> float:
    if function(task):
        raise MemoryError("the compiled passes could not allocate their buffers")
    return float(task.result)


class BlockObjective(CompiledObjective):
    """ℒ/m over samples in groups."""

    def __init__(self, *dense: Any, pattern: Pattern) -> None:
        super().__init__(*dense)
        samples, columns, shared, *sizes = pattern
        # In the types that C expects, and alive as long as the objective.
        self._pattern = Pattern(_plain(samples), _plain(columns), shared, *map(_plain, sizes))

    def _task(self, initial: Pointers, weights: Pointers, previous: Pointers | None = None) -> Any:
        task, pattern = super()._task(initial, weights, previous), self._pattern
        task.groups, task.shared = len(pattern.group_samples), pattern.shared
        task.sample_order, task.column_order = pattern.samples.ctypes.data, pattern.columns.ctypes.data
        task.group_samples = pattern.group_samples.ctypes.data
        task.group_columns = pattern.group_columns.ctypes.data
        return task


def _plain(numbers: IntArray) -> IntArray:
    return np.ascontiguousarray(numbers, np.intp)


def worthwhile(pattern: Pattern, network: Network) -> bool:
    """Return whether groups are faster than the whole contexts, by counting operations."""
    above = ROW_COST + 2 * (network.depth - 2) * network.hidden
    filled = -(-pattern.group_samples // STRIP) * STRIP
    ours = int(filled @ (above + pattern.shared + pattern.group_columns))
    return ours < len(pattern.samples) * (above + network.dim)


def fastest_objective(
    network: Network, initial: Weights, contexts: Array, rewards: Array, ridge: float, dtype: type
) -> Objective:
    """Return the fastest form of the objective that fits."""
    dense = network, initial, contexts, rewards, ridge, dtype
    if not CompiledObjective.fits(network):
        return Objective(*dense)
    pattern = pattern_of(contexts)
    if pattern is not None and worthwhile(pattern, network):
        return BlockObjective(*dense, pattern=pattern)
    return CompiledObjective(*dense)
