"""Scales of contexts of many replicas: `rarely._core.inputs.scaling.ContextScale` in tensors.

Moments depend on the contexts of a run alone, not on arms, so those after every round are known in advance:

    mean, squares   (S, T + 1, d)   of all contexts of the first t rounds of S runs
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rarely.extend.provisional import CLIP, OFF_CENTER, OFF_SPREAD, TRUSTED_ROUNDS


class Scales:
    """The scale of every replica: a center and a spread of each column, (R, d)."""

    def __init__(self, contexts: Tensor, run: Tensor, *, constant: bool) -> None:
        """Start before the first round; `contexts` are (S, T, K, d), and replica r plays run `run[r]`."""
        self.run, self.constant = run, constant
        runs, rounds, self.arms, dim = contexts.shape
        self.root = math.sqrt(dim)
        self.mean = contexts.new_zeros(runs, rounds + 1, dim)
        self.squares = torch.zeros_like(self.mean)
        for t in range(rounds):  # pairwise, as `Moments.add`
            here = contexts[:, t]
            mean = here.mean(1)
            shift = mean - self.mean[:, t]
            added = (here - mean[:, None]).square().sum(1) + shift.square() * (self.arms * t / (t + 1))
            self.squares[:, t + 1] = self.squares[:, t] + added
            self.mean[:, t + 1] = self.mean[:, t] + shift / (t + 1)
        # The first round is decided on a scale that is fitted to it.
        self.center, self.spread = self._early(*self._moments(torch.ones_like(run), run))
        self.settled = torch.zeros_like(self.center, dtype=torch.bool)
        self.follows = torch.ones_like(run, dtype=torch.bool)

    def __call__(self, contexts: Tensor, rows: Tensor) -> Tensor:
        """Scale contexts (R', …, d) of some replicas."""
        return self.apply(contexts, self.center[rows], self.spread[rows])

    def apply(self, contexts: Tensor, center: Tensor, spread: Tensor) -> Tensor:
        """Scale contexts (R', …, d) by these centers and spreads, (R', d)."""
        shape, most = (len(center), *(1,) * (contexts.dim() - 2), -1), CLIP / self.root
        scaled = ((contexts - center.view(shape)) / spread.view(shape)).clamp_(-most, most)
        return torch.cat((scaled, torch.ones_like(scaled[..., :1])), -1) if self.constant else scaled

    def follow(self, rows: Tensor, done: Tensor) -> None:
        """Let scales that follow contexts see the rounds of their replicas so far."""
        rows, done = rows[self.follows[rows]], done[self.follows[rows]]
        self.center[rows], self.spread[rows] = self._early(*self._moments(done, self.run[rows]))
        self.follows[rows] = done < TRUSTED_ROUNDS

    def fitted(self, rows: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Return centers and spreads that an update of these replicas trains with."""
        moments, old_center, old_spread = self._moments(done, self.run[rows]), self.center[rows], self.spread[rows]
        few = (done < TRUSTED_ROUNDS)[:, None]
        (early_center, early), (center, spread) = self._early(*moments), self._plain(*moments)
        center, spread = torch.where(few, early_center, center), torch.where(few, early, spread)
        ratio = spread / old_spread
        left = (ratio > OFF_SPREAD) | (ratio < 1 / OFF_SPREAD)
        left |= (center - old_center).abs() > OFF_CENTER * spread / self.root
        kept = self.settled[rows] & ~left
        return torch.where(kept, old_center, center), torch.where(kept, old_spread, spread)

    def adopt(self, rows: Tensor, done: Tensor, center: Tensor, spread: Tensor) -> Tensor:
        """Take over what was fitted, and return which of the scales changed, (R',)."""
        changed = ((center != self.center[rows]) | (spread != self.spread[rows])).any(1)
        mean, squares, count = self._moments(done, self.run[rows])
        moved = (squares / count).sqrt() > 1e-12 * mean.abs()
        self.settled[rows] |= moved & (done >= TRUSTED_ROUNDS)[:, None]
        self.center[rows], self.spread[rows] = center, spread
        self.follows[rows] = False
        return changed

    def _moments(self, done: Tensor, run: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.mean[run, done], self.squares[run, done], (self.arms * done)[:, None]

    def _early(self, mean: Tensor, squares: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        doubt = (1 - count / (self.arms * TRUSTED_ROUNDS)).clamp(min=0)
        size = (squares / count + doubt * mean.square()).sqrt()
        return mean, torch.where(size > 1e-12 * mean.abs(), size, 1.0) * self.root

    def _plain(self, mean: Tensor, squares: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        deviation = (squares / count).sqrt()
        return mean, torch.where(deviation <= 1e-12 * mean.abs(), 1.0, deviation) * self.root
