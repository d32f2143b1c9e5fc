"""Ids, names and reasons as a caller gives them, checked."""

from __future__ import annotations

import secrets
from typing import Any

from rarely.core.saving.fields import shortened
from rarely.study.errors import InvalidId

LONGEST_ID = 200
LONGEST_REASON = 2000


def check_id(value: Any, what: str = "a decision id", longest: int = LONGEST_ID) -> str:
    """A text that both databases keep as it is, and that a person can read in a log.

    >>> check_id("visit 17/é")
    'visit 17/é'
    >>> check_id("two\\nlines")
    Traceback (most recent call last):
        ...
    rarely.study.errors.InvalidId: a decision id must be 1 to 200 printable characters without spaces at its ends; \
got 'two\\nlines'.
    """
    fits = isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() and value == value.strip()
    if not fits:
        raise InvalidId(
            f"{what} must be 1 to {longest} printable characters without spaces at its ends; got {shortened(value)}."
        )
    return str(value)


def check_text(value: Any, what: str) -> str:
    """An actor or a reason, which may be empty."""
    return "" if value == "" else check_id(value, what, LONGEST_REASON)


def new_id() -> str:
    """An id that nobody else has."""
    return secrets.token_hex(16)


def signed(actor: str, reason: str) -> dict[str, str]:
    """Who does something, and why, checked."""
    return {"actor": check_text(actor, "actor"), "reason": check_text(reason, "reason")}
