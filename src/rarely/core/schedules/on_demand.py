"""Updates that the caller's clock decides: nights, weeks, releases, not rounds."""

from __future__ import annotations

from dataclasses import dataclass

from rarely.core.schedules.protocol import FAR, Schedule, check_counts
from rarely.core.types import Array


@dataclass(frozen=True)
class OnDemand(Schedule):
    """No update is ever due: the caller calls `update` when it suits, every night, say.

    Parameters
    ----------
    batches
        The most versions that there may be; None sets no limit. `policy.versions_left` counts down, and
        `policy.extend_budget` adds to it.
    horizon
        Rounds planned for, if known. Nothing happens at the horizon; it tells the policy what its life will cost.

    Notes
    -----
    `update` without a reward since the last one is refused with `NothingToLearn`.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=3))
    >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
    >>> policy.due, policy.update().version, policy.versions_left
    (False, 1, 1)
    """

    plans_ahead = False
    on_demand = True

    batches: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        for name in ("batches", "horizon"):
            if getattr(self, name) is not None:
                check_counts(self, name)

    def first_due(self, round: int, growth: Array) -> int | None:
        return None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return FAR

    def ahead(self, round: int) -> str:
        return "the next when update() is called"
