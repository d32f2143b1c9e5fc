"""Policies as bytes: what a version's row holds."""

from __future__ import annotations

import hashlib
import os
import tempfile

from rarely.core.errors import SnapshotError
from rarely.core.policies.base import Policy
from rarely.core.policies.playback import set_life
from rarely.core.policies.snapshot import load
from rarely.study.canonical import digest
from rarely.study.errors import BrokenStudy


def to_bytes(policy: Policy) -> bytes:
    """What `policy.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "policy")
        policy.save(path)
        with open(path, "rb") as file:
            return file.read()


def from_bytes(study: str, data: bytes) -> Policy:
    """The policy that `to_bytes` was given; decisions of all processes of a study share one life."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "policy")
        with open(path, "wb") as file:
            file.write(data)
        try:
            policy: Policy = load(path)
        except SnapshotError as error:
            raise BrokenStudy(f"a snapshot of study {study!r} is damaged: {error}") from error
    set_life(policy, digest("life", study)[:16])
    return policy


def sha256_of(data: bytes) -> str:
    """The hash of a snapshot's bytes."""
    return hashlib.sha256(data).hexdigest()
