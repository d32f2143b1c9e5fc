"""LinUCB with an update after every round, of many runs in lockstep.

Z⁻¹  (R, d, d)    b = Σ r x  (R, d)    a round adds x:  Z⁻¹ ← Z⁻¹ − (Z⁻¹x)(Z⁻¹x)ᵀ/(1 + xᵀZ⁻¹x)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rarely import LinUCB
from rarely.extend.provisional import ROUNDED, TIE, state_of
from rarely.worlds.protocol import Rounds
from rarely_lab.gpu.replicas import Replica, Update, on_device


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
    replicas = [Replica(*one) for one in zip(every_arm, growth, strict=True)]
    for replica in replicas:
        replica.updates = [Update(t, True, value) for t, value in enumerate(replica.log_dets[:-1], 1)]
    return replicas
