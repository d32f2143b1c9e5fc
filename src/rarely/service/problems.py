"""What a refused request is answered: a status, and a sentence that says what to do."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response

from rarely.core.errors import InvalidInput, RarelyError
from rarely.study.errors import (
    ApprovalNeeded,
    BrokenStudy,
    InvalidStorage,
    StaleTrainer,
    StudyConflict,
    StudyError,
    StudyExists,
    StudyFull,
    StudyPinned,
    UnknownDecision,
    UnknownStudy,
)

MEDIA = "application/problem+json"
_STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (UnknownStudy, 404),
    (UnknownDecision, 404),
    (StudyConflict, 409),
    (StudyExists, 409),
    (StudyFull, 409),
    (StudyPinned, 409),
    (ApprovalNeeded, 409),
    (StaleTrainer, 409),
    (InvalidStorage, 503),
    (BrokenStudy, 503),
    (InvalidInput, 422),
    (StudyError, 503),
    (RarelyError, 409),
)
"""The first that fits counts. What the database or a damaged study causes may pass: 503."""


class Refusal(RarelyError):
    """A request that is refused before a study hears of it."""

    def __init__(self, status: int, detail: str, *, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.headers = status, code or f"Http{status}", headers or {}


def overloaded(waiting: int) -> Refusal:
    """The queue is full."""
    detail = f"{waiting} decisions and rewards are waiting already; repeat the request after Retry-After seconds."
    return Refusal(429, detail, code="Overloaded", headers={"Retry-After": "1"})


def status_of(error: BaseException) -> int:
    """The status of an error.

    >>> from rarely.study import StudyConflict
    >>> status_of(StudyConflict("another body"))
    409
    """
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def code_of(error: BaseException) -> str:
    """A name for programs; the client raises an error of the same name."""
    return error.code if isinstance(error, Refusal) else type(error).__name__


def describe(error: BaseException) -> dict[str, Any]:
    """The problem as JSON, after RFC 9457."""
    status = status_of(error)
    detail = str(error) if status != 500 else "the service failed; its log says why. Nothing was changed."
    return {"title": code_of(error), "status": status, "detail": detail}


def response_of(error: BaseException) -> Response:
    """The answer to a refused request."""
    said = describe(error)
    headers = dict(error.headers) if isinstance(error, Refusal) else {}
    if said["status"] == 503:
        headers.setdefault("Retry-After", "1")
    return Response(json.dumps(said), said["status"], headers, MEDIA)
