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
    """What a trainer needs; it can be pickled."""

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
    """What a trainer made; it can be pickled."""

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

    Raises
    ------
    NothingToLearn
        If no reward came since the last update, none is due and `force` is not set.
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
