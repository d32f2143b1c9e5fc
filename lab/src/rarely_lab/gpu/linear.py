"""What both kinds of lockstep share: runs of one world on a device, and what happened in each; and the shorter kind.

LinUCB with an update after every round, of R runs:

    Z⁻¹  (R, d, d)    b = Σ r x  (R, d)    a round adds x:  Z⁻¹ ← Z⁻¹ − (Z⁻¹x)(Z⁻¹x)ᵀ/(1 + xᵀZ⁻¹x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rarely import LinUCB
from rarely.extend import Array, IntArray
from rarely.extend.provisional import ROUNDED, TIE, state_of
from rarely.worlds import Rounds


class Update(NamedTuple):
    """An update of a replica, with the names of `rarely.UpdateRecord`."""

    round: int
    accepted: bool
    log_det: float
    attempts: int = 0
    reason: str = ""


@dataclass
class Replica:
    """What happened in one run."""

    arms: IntArray
    log_dets: Array  # log det Z − log det λI after each round, (T,)
    updates: list[Update] = field(default_factory=list)
    near_ties: int | None = None  # rounds in which two arms were nearly tied, where they are counted


def on_device(
    runs: Sequence[Rounds], scale: Callable[[Array], Array], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scaled contexts (S, T, K, d) and rewards (S, T, K) of runs that differ, and which each replica plays."""
    unlike = {id(run): run for run in runs}
    contexts = [scale(run.contexts.reshape(-1, run.contexts.shape[2])) for run in unlike.values()]
    shaped = [flat.reshape(*runs[0].rewards.shape, -1) for flat in contexts]
    which = torch.tensor([list(unlike).index(id(run)) for run in runs], device=device)
    return put(shaped, device), put([run.rewards for run in unlike.values()], device), which


def put(arrays: Any, device: torch.device) -> Tensor:
    """Return arrays of one shape as one tensor on the device."""
    return torch.from_numpy(np.ascontiguousarray(np.stack(arrays), np.float64)).to(device)


def play_linear(policies: Sequence[LinUCB], runs: Sequence[Rounds], device: str) -> list[Replica]:
    """Play all rounds of all runs."""
    learner: Any = state_of(policies[0]).current.learner
    contexts, paid, which = on_device(runs, learner.scale, torch.device(device))
    settings = [policy.settings() for policy in policies]
    ridge, beta = (
        torch.tensor([float(each[name]) for each in settings], dtype=torch.float64, device=device)
        for name in ("ridge", "beta")
    )
    every, columns = torch.arange(len(runs), device=device), contexts.shape[-1]
    inverse = torch.eye(columns, dtype=torch.float64, device=device) / ridge[:, None, None]
    moment, numbers = torch.zeros_like(inverse[:, 0]), torch.arange(paid.shape[2], device=device)
    arms, log_dets = [], []
    for t in range(paid.shape[1]):
        x = contexts[which, t]
        image = x @ inverse
        variances = (image * x).sum(-1).clamp(min=0)
        scores = (image @ moment[..., None])[..., 0] + beta[:, None] * variances.sqrt()
        best = scores.amax(-1, keepdim=True)
        apart, bonus = best - scores.amin(-1, keepdim=True), (beta[:, None] * variances.sqrt()).amax(-1, keepdim=True)
        tolerance = TIE * torch.maximum(apart, bonus).clamp(min=1.0) + ROUNDED * scores.abs().amax(-1, keepdim=True)
        arm = torch.where(scores >= best - tolerance, numbers, len(numbers)).amin(-1)
        grown, chosen = 1 + variances[every, arm], image[every, arm]
        inverse.sub_(chosen[:, :, None] * (chosen / grown[:, None])[:, None])
        moment.add_(paid[which, t, arm][:, None] * x[every, arm])
        arms.append(arm)
        log_dets.append(grown.log())
    every_arm, growth = torch.stack(arms, 1).cpu().numpy(), torch.stack(log_dets, 1).cumsum(1).cpu().numpy()
    return [
        Replica(arms, log_dets, [Update(t, True, value) for t, value in enumerate(log_dets[:-1], 1)])
        for arms, log_dets in zip(every_arm, growth, strict=True)
    ]
