"""The training of a version: from a place of the record to a snapshot, in this process or in another one.

begin    under a lease with a fencing token: the cut, the policy as it stood there, the rewards that are settled
train    anywhere; needs no database
finish   follows what was decided since the cut, and publishes in one transaction
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.policies.base import Policy
from rarely.study.environment import describe
from rarely.study.snapshots import to_bytes


@dataclass(frozen=True, slots=True)
class Job:
    """What a trainer needs; it can be pickled.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-job", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> _ = study.tell("visit-1", 1.0)
    >>> job = study.begin_update()
    >>> job.study, job.parent, job.rewards
    ('colours', 0, (1.0,))
    """

    study: str
    token: int
    """The fencing token of the lease."""
    parent: int
    """The version in use at the cut."""
    cut: int
    """The last event that the version knows."""
    policy: Policy
    rounds: tuple[int, ...]
    rewards: tuple[float, ...]
    force: bool
    """Whether it is trained although no reward came since the last update."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a trainer made; it can be pickled.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-trained", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> from rarely.study import train
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> _ = study.tell("visit-1", 1.0)
    >>> trained = train(study.begin_update())
    >>> trained.accepted, trained.record["samples"]
    (True, 1)
    """

    study: str
    token: int
    parent: int
    cut: int
    force: bool
    accepted: bool
    snapshot: bytes
    fingerprint: str
    record: dict[str, Any]
    """The policy's `UpdateRecord` as JSON."""
    settings: dict[str, Any]
    environment: dict[str, str]


def train(job: Job) -> Trained:
    """Train the next version. The job's policy is used up.

    Parameters
    ----------
    job
        What `Study.begin_update` returned.

    Raises
    ------
    NothingToLearn
        If no reward came since the last update, none is due and `force` is not set.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-train", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> from rarely.study import train
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> _ = study.tell("visit-1", 1.0)
    >>> trained = train(study.begin_update())  # in another process, say: both can be pickled
    >>> study.finish_update(trained)
    'version'
    """
    policy = job.policy
    if job.rounds:
        policy.observe(rounds=np.array(job.rounds), rewards=np.array(job.rewards))
    record = policy.update(force=job.force)
    return Trained(
        job.study,
        job.token,
        job.parent,
        job.cut,
        job.force,
        record.accepted,
        to_bytes(policy),
        policy.fingerprint(),
        record.describe(),
        policy.settings(),
        describe(),
    )
