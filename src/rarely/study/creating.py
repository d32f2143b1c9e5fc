"""The first event of a study, and the version 0 that it begins with."""

from __future__ import annotations

from typing import Any

from rarely.core.errors import RarelyError
from rarely.core.policies.base import Policy
from rarely.study.canonical import canonical
from rarely.study.environment import describe
from rarely.study.errors import InvalidStudy, StudyExists, UnknownStudy
from rarely.study.events import next_event
from rarely.study.position import Position
from rarely.study.publishing import version_row
from rarely.study.session import Clock
from rarely.study.settings import StudySettings
from rarely.study.snapshots import from_bytes, sha256_of, to_bytes
from rarely.study.storage import Storage

UNLIMITED = 2**31 - 1
"""B of a policy whose schedule has no limit."""


def first_content(name: str, policy: Any, settings: StudySettings) -> tuple[dict[str, Any], bytes]:
    """Body of the first event, and the snapshot of version 0."""
    if not isinstance(policy, Policy):
        raise InvalidStudy(f"policy must be a policy of rarely, such as BatchNeuralUCB(…); got {policy!r}.")
    if policy.round or policy.version:
        raise InvalidStudy(
            f"policy must have decided nothing yet; this one has made {policy.round} rounds. Start a new one, from_log "
            "if there are earlier data."
        )
    if settings.blocks is not None and settings.blocks.dim != policy.dim:
        raise InvalidStudy(
            f"blocks make contexts of {settings.blocks.dim} numbers, and the policy takes {policy.dim}. Make the "
            "policy with **blocks.settings, or dim=blocks.dim."
        )
    try:
        snapshot = to_bytes(policy)
        kept = from_bytes(name, snapshot)
    except RarelyError as error:
        raise InvalidStudy(f"the policy of a study must be one that can be saved and loaded: {error}") from error
    return {
        "cut": 1,
        "dim": policy.dim,
        "environment": describe(),
        "fingerprint": kept.fingerprint(),
        "number": 0,
        "parent": None,
        "policy": type(policy).__name__,
        "settings": policy.settings(),
        "sha256": sha256_of(snapshot),
        "snapshot": 1,
        "study": settings.describe(),
    }, snapshot


def write_first(
    storage: Storage, name: str, policy: Policy, settings: StudySettings, *, actor: str, reason: str, clock: Clock
) -> None:
    """Write a new study, unless the same one is there already."""
    content, snapshot = first_content(name, policy, settings)
    batches: int | None = getattr(policy.schedule, "batches", None)
    with storage.writing(name) as tables:
        row = tables.study(name)
        if row is not None:
            known = tables.event(row.study, 1)
            if known is None or _identity(known.content) != _identity(content):
                raise StudyExists(
                    f"{storage.url} has a study called {name!r} already, with other settings. Open it with Study.open, "
                    "or choose another name."
                )
            return
        row = tables.add_study(name, UNLIMITED if batches is None else batches)
        last = Position().last
        event = next_event(name, last, "create", round(clock() * 1e6), content, actor=actor, reason=reason)
        tables.append(row.study, [event])
        tables.add_snapshot(row.study, 1, content["sha256"], snapshot)
        tables.add_version(row, version_row(content, 1, None))


def _identity(content: dict[str, Any]) -> str:
    """What must be equal for two calls of `create` to mean the same study."""
    return canonical({name: content[name] for name in ("study", "policy", "settings")})


def only_name(storage: Storage) -> str:
    """The name of the study where there is one alone."""
    with storage.reading() as tables:
        names = [row.name for row in tables.studies()]
    if len(names) != 1:
        raise UnknownStudy(f"{storage.url} holds {len(names)} studies, so name one of them: {', '.join(names)}.")
    return names[0]
