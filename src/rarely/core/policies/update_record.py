"""What is on record about every update, accepted or not."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from rarely.core.saving.fields import CLOSE, Fields


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """One call of `update`; or the start from a log, of version 0 and round 0.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand())
    >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
    >>> record = policy.update()
    >>> record.accepted, record.version, record.round, record.samples, record.missing
    (True, 1, 5, 5, 0)
    """

    version: int
    """The version in use afterwards."""
    round: int
    """Rounds decided when it was called or prepared."""
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
    when it decided. A calibrated policy has about 0.95. Much less in several updates is a sign that the world changes:
    use `forgetting`."""

    rescaled: tuple[int, ...] = ()
    """The columns of contexts whose scale was fitted anew, because the data had left it; Z was then built again."""
    trained: int | None = None
    """Samples that the network was trained on, where `Training.rows` left some out; None where it was all of them."""
    due: str = ""
    """Why the schedule had ended the batch, and its plan for the rest of the budget; "" if the update was not due."""
    unexplored: float | None = None
    """How much of the variance before any data was left in the arms offered since the last update, in the mean over
    rounds and arms: φᵀZ⁻¹φ·λ/‖φ‖², from 0 to 1. Unlike `coverage` it counts arms that were never tried."""
    chosen: float | None = None
    """√(φᵀZ⁻¹φ) of the arms chosen since the last update, in the geometric mean, and of the arm of each round of which
    least was known. Where they are far apart, the policy repeats what it knows. After a change from an exact to an
    approximate Z they are in the unit of the exact one."""
    least_known: float | None = None
    adopted: int | None = None
    """Rounds decided when the version came into use: more than `round` where it was trained elsewhere meanwhile. None
    in files from before this was kept, where it is `round`."""
    dropped: int = 0
    """Rows of the history that were dropped after it, which a `Window`, a `Discount` or a limit has forgotten."""
    lost: int = 0
    """Rounds that are not in Z afterwards: forgotten, or dropped before it was built again."""
    loops: str = ""
    """The loops that trained the network: "avx512", "avx2", "sse2", "neon" or "numpy"; "" where none was trained, and
    in files from before this was kept. No part of `Policy.fingerprint`."""
    early: str = ""
    """What `update(seconds=…)` left undone when the time was over, and after how many steps; "" where nothing was."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rescaled", tuple(self.rescaled))  # JSON has a list

    @property
    def begins(self) -> int:
        """Rounds decided before the version came into use."""
        return self.round if self.adopted is None else self.adopted

    def describe(self) -> dict[str, Any]:
        """The record as JSON."""
        return asdict(self)


def read_records(saved: Fields, dim: int) -> tuple[UpdateRecord, ...]:
    """The saved records of a policy whose contexts have `dim` numbers."""
    rows = saved.listed("updates")
    if not rows:
        return ()
    with saved.table("updates") as table:
        for name in ("version", "round", "samples", "missing", "jitters", "attempts"):
            table.column(name, "whole", least=0)
        table.column("accepted", "flag")
        table.column("reason", "text")
        table.column("covariance", "text")
        table.column("log_det", "number")
        table.column("beta", "number", least=0)
        table.column("step_size", "number", least=0, null=True)
        for name in ("initial_loss", "final_loss"):  # a training that was rejected may have ended anywhere
            table.column(name, "number", least=0, null=True, finite=False)
        # The first files of version 0.1 lack all of these, and the others the last.
        if table.since(2, "steps"):
            table.column("steps", "whole", least=0, null=True)
        if table.since(3, "adopted"):
            table.column("adopted", "whole", least=0, null=True)
        if table.since(3, "trained"):
            table.column("trained", "whole", least=0, null=True)
        for name in ("dropped", "lost"):
            if table.since(3, name):
                table.column(name, "whole", least=0)
        for name, format in (("tuning", 2), ("loops", 2), ("due", 2), ("early", 4)):
            if table.since(format, name):
                table.column(name, "text")
        for name, most in (
            ("skip", math.inf),
            ("noise", math.inf),
            ("coverage", 1.0),
            ("unexplored", 1.0 + CLOSE),
            ("chosen", math.inf),
            ("least_known", math.inf),
        ):
            if table.since(2, name):
                table.column(name, "number", least=0, most=most, null=True)
        if table.since(2, "rescaled"):
            rising = all(_is_rising(columns, dim) for columns in table.value("rescaled"))
            table.require(rising, f"rescaled must be rising numbers of columns below {dim}")
    return tuple(UpdateRecord(**row) for row in rows)


def _is_rising(columns: Any, dim: int) -> bool:
    if columns == []:
        return True
    if not isinstance(columns, list) or any(type(column) is not int for column in columns):
        return False
    return columns == sorted(set(columns)) and columns[0] >= 0 and columns[-1] < dim
