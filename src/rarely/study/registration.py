"""A pre-registration: what was fixed before the first decision, in a file that can be published.

The file holds settings, schedule, seed, the hash of the first event and that of version 0, and a digest of all of it.
"""

from __future__ import annotations

import json
import os
from typing import Any

from rarely.core.saving.files import replacing
from rarely.study.canonical import canonical, digest
from rarely.study.errors import InvalidStudy
from rarely.study.events import Event
from rarely.study.session import Session

MAGIC = "rarely-registration"


def registration_of(session: Session) -> dict[str, Any]:
    """What the file holds."""
    with session.reading() as tables:
        first = tables.event(session.row.study, 1)
    assert first is not None
    return _content(session, first)


def _content(session: Session, first: Event) -> dict[str, Any]:
    known = first.content
    content = {
        "kind": MAGIC,
        "study": session.name,
        "created": first.time,
        "settings": known["study"],
        "policy": known["policy"],
        "policy_settings": known["settings"],
        "schedule": known["settings"].get("schedule"),
        "seed": known["settings"].get("seed"),
        "budget": session.row.budget,
        "version_0": {"fingerprint": known["fingerprint"], "sha256": known["sha256"]},
        "environment": known["environment"],
        "first_event": first.hash,
    }
    return content | {"digest": digest(canonical(content))}


def write_registration(session: Session, path: str | os.PathLike[str]) -> str:
    """Write the file; its digest."""
    content = registration_of(session)
    with replacing(path) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode())
    return str(content["digest"])


def check_registration(session: Session, path: str | os.PathLike[str]) -> None:
    """Refuse a study that is not the one that was registered."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        known = content.pop("digest")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InvalidStudy(f"{os.fspath(path)} is no registration of a study ({error!r}).") from error
    if content.get("kind") != MAGIC or digest(canonical(content)) != known:
        raise InvalidStudy(f"{os.fspath(path)} was changed after it was written: its digest differs.")
    for name, value in registration_of(session).items():
        if name != "digest" and content.get(name) != value:
            raise InvalidStudy(
                f"study {session.name!r} is not the one that was registered in {os.fspath(path)}: {name} differs."
            )
