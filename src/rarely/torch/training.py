"""Training a torch module: full gradients as in the paper, minibatches of Adam where it tunes itself, or your loop.

    ℒ/s² = Σ w_i (u(x_i; θ) − r_i/s)²/2 + λ‖θ − θ_0‖²/2        u = f/s

A context comes as (cx, c) and stands for c·u(x), c² = w: a weighted sample is a scaled one, as in the core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rarely._core.errors import InvalidInput
from rarely._core.model.network import Weights
from rarely._core.training.gradient_descent import TrainingPlan
from rarely._core.training.objective import MAX_ITERATIONS, MomentumState, Objective
from rarely._core.types import Array
from rarely.torch.factors import host, inner_products

BATCH, BATCHES = 128, 16
"""Samples of a minibatch, at least, and minibatches of a pass through all samples, at most."""
EVALUATED = 4096
"""Samples that are evaluated at a time."""
CURVED = 500
"""Samples whose Gram matrix tells the curvature."""


class TorchObjective(Objective):
    """ℒ of a module that is trained in place, on its device; weights go in and come out as arrays."""

    def __init__(self, network: Any, initial: Weights, contexts: Array, rewards: Array, plan: TrainingPlan) -> None:
        self.network, self.ridge, self._rate, self._seed = network, plan.ridge, network.rate, plan.seed
        self.dtype, self.model, self._given = np.dtype(plan.precision).type, network.model, contexts
        self.initial = tuple(w.astype(self.dtype) for w in initial)
        self._module = self.model.fresh(initial, getattr(torch, plan.precision))
        self._trained = [self._module.get_parameter(name) for name in self.model.trained]
        self._start = [p.detach().clone() for p in self._trained]
        (x, c), s = self.model.split(contexts), network.output_scale
        self._x, self._c, self.targets = (
            torch.as_tensor(np.ascontiguousarray(each, self.dtype), device=self.model.device)
            for each in (x, c / s, rewards / s)
        )
        self._parts: list[Any] = [slice(s, s + EVALUATED) for s in range(0, len(rewards), EVALUATED)]
        self._steps: Iterator[None] = iter(())

    @property
    def loops(self) -> str:
        tf32 = self.dtype is np.float32 and torch.get_float32_matmul_precision() != "highest"
        return f"torch, {self.model.device}, {'TF32' if tf32 else self.dtype.__name__}"

    def loss(self, weights: Weights) -> float:
        self.model.load(self._module, weights)
        return self._loss()

    def _loss(self) -> float:
        with torch.no_grad():
            moved = sum(((p - q) ** 2).sum().double() for p, q in zip(self._trained, self._start, strict=True))
            return float(self.ridge * moved / 2 + sum(self._squares(part).double() for part in self._parts))

    def _squares(self, part: Any) -> Any:
        u = self.model.outputs(self._module, self._x[part])
        return ((self._c[part] * u - self.targets[part]) ** 2).sum() / 2

    def _gradient(self, parts: list[Any], scale: float) -> tuple[float, list[Any]]:
        """Return Σ over some samples, and the gradient of scale·Σ + penalty."""
        total, gradient = 0.0, [self.ridge * (p.detach() - q) for p, q in zip(self._trained, self._start, strict=True)]
        for part in parts:
            loss = scale * self._squares(part)
            found = torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)
            torch._foreach_add_(gradient, list(found))
            total = total + loss.detach()
        return total, gradient

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        self.model.load(self._module, start)
        for _ in range(steps):
            total, gradient = self._gradient(self._parts, 1.0)
            if not float(total) <= hopeless:
                break
            with torch.no_grad():
                torch._foreach_add_(self._trained, gradient, alpha=-step)
        return self.model.read(self._module, self.dtype), self._loss()

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        """Take J steps of Adam on minibatches; `step` is the part of the path's rate that earlier attempts left."""
        fit = self.model.fit
        if not start.steps:
            self.model.load(self._module, self.initial)
            self._steps = self._adam(self._rate * step) if fit is None else self._fitted()
        for _ in range(steps):
            next(self._steps)
        weights, loss = self.model.read(self._module, self.dtype), self._loss()
        # The user's loss may be another than ours, so that ours may rise.
        loss = loss if fit is None or not math.isfinite(loss) else min(loss, self.loss(self.initial))
        return MomentumState(weights, weights, start.steps + steps), loss

    def _adam(self, rate: float) -> Iterator[None]:
        """Take one step each time that the next one is asked for."""
        optimiser = torch.optim.Adam(self._trained, lr=rate, fused=True)
        batch = self.model.batch or max(BATCH, math.ceil(self.samples / BATCHES))
        order = torch.Generator().manual_seed(self._seed)
        while True:
            shuffled = torch.randperm(self.samples, generator=order).to(self.model.device)
            for part in shuffled.split(batch) if batch < self.samples else [slice(None)]:
                count = batch if batch < self.samples else self.samples
                gradient = self._gradient([part], self.samples / count)[1]
                for parameter, each in zip(self._trained, gradient, strict=True):
                    parameter.grad = each
                optimiser.step()
                yield

    def _fitted(self) -> Iterator[None]:
        """Train by the user's function; however many steps are asked for, it is called once."""
        seed, device = self._seed, self.model.device
        with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
            torch.manual_seed(seed)
            generator, weights = torch.Generator(device).manual_seed(seed), (self._c * self.network.output_scale) ** 2
            self.model.fit(self._module, self.model.unpacked(self._x), self.targets / self._c, weights, generator)
        if not all(np.isfinite(w).all() for w in self.model.read(self._module, self.dtype)):
            raise InvalidInput("fit must leave finite weights; some are not. The policy has not changed.")
        while True:
            yield

    def top_curvature(self, start: Weights | None) -> tuple[float, Weights | None]:
        if self._rate is not None or not self.samples:
            return 1.0 - self.ridge, None  # Adam's rate does not depend on it
        some = self._given[:: -(-self.samples // CURVED)]
        features = self.network.values_and_factors(self.initial, some)[1]
        kernel = host(inner_products(features, features)) * np.outer(some[:, -1], some[:, -1])
        vector = np.ones(len(some))
        for _ in range(MAX_ITERATIONS):
            vector = kernel @ (vector / np.linalg.norm(vector))
        return float(np.linalg.norm(vector)) * self.samples / len(some), None
