"""What is on record about every update, accepted or not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """One call of `update`; or the start from a log, of version 0 and round 0."""

    version: int
    """The version in use afterwards."""
    round: int
    """Rounds decided when it was called."""
    accepted: bool
    reason: str
    """Why it was rejected; empty when it was not."""
    samples: int
    """Rewards that it learned from."""
    missing: int
    """Rounds whose rewards were not in."""
    log_det: float
    """log det Z_t − log det λI at the time."""
    beta: float
    """The radius of the version in use afterwards."""
    covariance: str
    """The form of Z in use afterwards."""
    jitters: int
    """Jitters so far."""
    step_size: float | None = None
    """η of the last attempt at training, where there was one."""
    attempts: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None
    steps: int | None = None
    """J, and the strength s of the skip path, where there was a training."""
    skip: float | None = None
    tuning: str = ""
    """Why these, where the policy chose them itself."""
    noise: float | None = None
    """Standard deviation of held-out rewards around their predictions, in reward units, where it is estimated."""
    coverage: float | None = None
    """Of the rewards of the version before: how many lay within 1.96·√(noise² + bonus²) of their mean, as both were
    when it decided. A calibrated policy has about 0.95."""

    rescaled: tuple[int, ...] = ()
    """The columns of contexts whose scale was fitted anew, because the data had left it; Z was then built again."""
    loops: str = ""
    """The loops that trained the network: "avx512", "avx2", "sse2", "neon" or "numpy"; "" where none was trained, and
    in files from before this was kept. No part of `Policy.fingerprint`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rescaled", tuple(self.rescaled))  # JSON has a list

    def describe(self) -> dict[str, Any]:
        """The record as JSON."""
        return asdict(self)
