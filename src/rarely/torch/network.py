"""A torch module in the place of the perceptron: `Network` with another inside.

Weights are a tuple of float64 arrays, one for each parameter and buffer, so that a version is a value, as in the core.
Contexts come with a constant, (x, 1), or (cx, c) where samples are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch

from rarely._core.model.network import Network, Weights
from rarely._core.training.gradient_descent import TrainingPlan
from rarely._core.types import Array
from rarely.torch.factors import TorchFactors, host
from rarely.torch.gradients import PASS, compute
from rarely.torch.training import EVALUATED, TorchObjective

RATES = (0.01, 0.002)
"""Adam's learning rates that a policy which tunes itself compares: its paths."""


@dataclass(frozen=True, eq=False)
class TorchNetwork(Network):
    """A torch module as a function of weights and contexts."""

    model: Any = None
    rate: float | None = None
    """Adam's learning rate; None where gradient descent takes a given number of steps."""
    shares_rows = linear_part = False

    @cached_property
    def output_scale(self) -> float:
        """s of f = s·u, the root mean square of ‖∂f/∂θ_0‖, as √m is for the perceptron; 1 of scaling "standard"."""
        return float(self.model.norm) if self.scaling == "ntk" else 1.0

    @cached_property
    def shapes(self) -> Any:
        return tuple(w.shape for w in self.model.weights)

    @cached_property
    def feature_widths(self) -> Any:
        return tuple(form.width for form in self.model.forms)

    @cached_property
    def parameters(self) -> int:
        return sum(w.size for w in self.model.weights)

    @property
    def most_trials(self) -> int:  # type: ignore[override]
        return 2 if self.model.fit is None else 1

    def on_path(self, path: int | None) -> Self:
        return replace(self, rate=RATES[path or 0])

    def path_name(self, path: int) -> str:
        return f"rate = {RATES[path]:g}" if self.model.fit is None else "by fit"

    def own_objective(self, initial: Weights, contexts: Array, rewards: Array, plan: TrainingPlan) -> TorchObjective:
        return TorchObjective(self, initial, contexts, rewards, plan)

    def initial_weights(self, generator: np.random.Generator) -> tuple[Array, ...]:
        return tuple(self.model.weights)

    def values(self, weights: Weights, contexts: Array) -> Array:
        rows, roots = self.model.split(contexts)
        with PASS, torch.no_grad():
            module, parts = (
                self.model.deciding(weights),
                torch.as_tensor(rows, device=self.model.device).split(EVALUATED),
            )
            return np.asarray(roots * np.concatenate([host(self.model.outputs(module, part)) for part in parts]))

    def values_and_factors(self, weights: Weights, contexts: Array) -> tuple[Array, TorchFactors]:
        model, rows = self.model, np.ascontiguousarray(contexts[:, :-1])
        with PASS:
            rows = torch.as_tensor(rows, device=model.device)
            u, found = compute(model.deciding(weights), model.forms, model.outputs, rows)
        found = [(a, d / self.output_scale) for a, d in found]
        kept = found if model.on_device else [(host(a), host(d)) for a, d in found]
        return host(u), TorchFactors(model.forms, *zip(*kept, strict=True))
