"""The objective of contexts with blocks: as `Objective` and `CompiledObjective`, without the products with zeros.

A sample of group g has u(x; W_1, …) = u(x_g; W_1g, …), x_g its nonzero columns and W_1g those of W_1: a network of
fewer inputs. So the sum over samples is one over groups, each a dense objective of its own on a part of the weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rarely.core.model.network import Network, Weights
from rarely.core.native.loader import TrainingTask
from rarely.core.training.block_pattern import Pattern, pattern_of
from rarely.core.training.compiled_objective import CompiledObjective, Pointers
from rarely.core.training.objective import Objective
from rarely.core.types import Array, IntArray

STRIP = 8
"""Samples that the compiled passes take together: a group is filled up to a multiple."""
ROW, GROUP = 12, 2_500_000
"""What a row costs beside its products, in columns; what a group costs NumPy, in multiplications per hidden layer."""


class _Part(NamedTuple):
    """A group: its objective, and which weights of the first and last layer belong to it."""

    objective: Objective
    first: IntArray
    last: IntArray

    def of(self, weights: Weights) -> Weights:
        """The group's weights."""
        return (weights[0][:, self.first], *weights[1:-1], weights[-1][:, self.last])

    def add(self, gradient: Weights, into: Weights) -> None:
        """Add the group's gradient to that of all weights."""
        into[0][:, self.first] += gradient[0]
        into[-1][:, self.last] += gradient[-1]
        for whole, part in zip(into[1:-1], gradient[1:-1], strict=True):
            whole += part


class BlockObjective(Objective):
    """ℒ/m over samples in groups, by NumPy."""

    def __init__(
        self,
        network: Network,
        initial: Weights,
        contexts: Array,
        rewards: Array,
        ridge: float,
        dtype: type,
        pattern: Pattern,
    ) -> None:
        super().__init__(network, initial, contexts, rewards, ridge, dtype)
        self.pattern = pattern

    @cached_property
    def _parts(self) -> list[_Part]:
        return [self._part(samples, columns) for samples, columns in self.pattern.parts()]

    def _part(self, samples: IntArray, columns: IntArray) -> _Part:
        net = self.network
        # A network has one input at least; where all of a group's are 0, any one will do.
        columns = columns if len(columns) else np.zeros(1, np.int64)
        bias, last_bias = (np.arange(inputs - net.biases, inputs) for _, inputs in (net.shapes[0], net.shapes[-1]))
        skipped = columns[:0] if net.skip is None else net.hidden + columns
        part = _Part(self, np.append(columns, bias), np.concatenate((np.arange(net.hidden), skipped, last_bias)))
        narrow, targets = replace(net, dim=len(columns)), self.targets[samples]
        contexts = np.asarray(self.contexts[samples[:, None], columns])
        objective = Objective(narrow, part.of(self.initial), contexts, targets, 0.0, self.dtype)
        objective.targets = targets  # in units of u already
        return part._replace(objective=objective)

    def loss(self, weights: Weights) -> float:
        """ℒ/m."""
        return self._penalty(weights) + sum(part.objective.loss(part.of(weights)) for part in self._parts)

    def loss_and_gradient(self, weights: Weights) -> tuple[float, Weights]:
        """ℒ/m and ∇ℒ/m."""
        gradient = tuple(self.ridge * (w - w0) for w, w0 in zip(weights, self.initial, strict=True))
        total = self._penalty(weights)
        for part in self._parts:
            loss, added = part.objective.loss_and_gradient(part.of(weights))
            total += loss
            part.add(added, gradient)
        return total, gradient

    def curvature_times(self, vector: Weights) -> tuple[float, Weights]:
        """vᵀΦᵀΦv and ΦᵀΦv, for a unit vector v in the shape of the weights."""
        product: Weights = tuple(np.zeros_like(v) for v in vector)
        total = 0.0
        for part in self._parts:
            value, added = part.objective.curvature_times(part.of(vector))
            total += value
            part.add(added, product)
        return total, product


class CompiledBlockObjective(CompiledObjective, BlockObjective):
    """The same in C."""

    def _task(self, initial: Pointers, weights: Pointers, previous: Pointers | None = None) -> TrainingTask:
        task, pattern = super()._task(initial, weights, previous), self._pattern
        task.groups, task.shared = len(pattern.group_samples), pattern.shared
        task.sample_order, task.column_order = pattern.samples.ctypes.data, pattern.columns.ctypes.data
        task.group_samples = pattern.group_samples.ctypes.data
        task.group_columns = pattern.group_columns.ctypes.data
        return task

    @cached_property
    def _pattern(self) -> Pattern:
        """As C takes it for granted, and living as long as the objective."""
        samples, columns, shared, *sizes = self.pattern
        return Pattern(_plain(samples), _plain(columns), shared, *map(_plain, sizes))


def _plain(numbers: IntArray) -> IntArray:
    return np.ascontiguousarray(numbers, np.intp)


def worthwhile(pattern: Pattern, network: Network, *, compiled: bool) -> bool:
    """Whether groups are faster than all samples as one, by the counts of docs/decisions/0023."""
    samples, products = len(pattern.samples), pattern.products
    if compiled:
        above = ROW + 2 * (network.depth - 2) * network.hidden
        filled = -(-pattern.group_samples // STRIP) * STRIP
        ours = int(filled @ (above + pattern.shared + pattern.group_columns))
        return ours < samples * (above + network.dim)
    saved = 2 * network.hidden * (samples * network.dim - products)
    return saved > GROUP * (network.depth - 1) * len(pattern.group_samples)


def fastest_objective(
    network: Network, initial: Weights, contexts: Array, rewards: Array, ridge: float, dtype: type
) -> Objective:
    """The fastest form that fits."""
    compiled = CompiledObjective.fits(network)
    given = network, initial, contexts, rewards, ridge, dtype
    pattern = pattern_of(contexts)
    if pattern is not None and worthwhile(pattern, network, compiled=compiled):
        return (CompiledBlockObjective if compiled else BlockObjective)(*given, pattern)
    return (CompiledObjective if compiled else Objective)(*given)
