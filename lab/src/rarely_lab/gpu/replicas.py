"""What both kinds of lockstep share: runs of one world on a device, and what happened in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rarely.extend import Array, IntArray
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
    log_dets: Array
    """log det Z − log det λI after each round, (T,)."""
    updates: list[Update] = field(default_factory=list)
    near_ties: int | None = None
    """Rounds in which two arms were nearly tied, where they are counted."""

    def log_det_after(self, t: int) -> float:
        return float(self.log_dets[t - 1])


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
