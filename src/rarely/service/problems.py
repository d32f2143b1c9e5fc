"""Refused requests: the HTTP status of each error, and its description after RFC 9457."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response

from rarely._core.errors import InvalidInput, RarelyError
from rarely.study import errors

MEDIA = "application/problem+json"
_STATUSES: tuple[tuple[int, tuple[type[RarelyError], ...]], ...] = (
    (404, (errors.UnknownStudy, errors.UnknownDecision)),
    (409, (errors.StudyConflict, errors.StudyExists, errors.StudyFull, errors.StudyPinned)),
    (409, (errors.ApprovalNeeded, errors.StaleTrainer)),
    (503, (errors.InvalidStorage, errors.BrokenStudy)),
    (422, (InvalidInput,)),
    (503, (errors.StudyError,)),
    (409, (RarelyError,)),
)
"""The first match counts. Errors of the database or of a damaged study may be temporary: 503."""


class Refusal(RarelyError):
    """A request that is refused before it reaches a study."""

    def __init__(self, status: int, detail: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.headers = status, code or f"Http{status}", headers or {}


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Refusal):
        return error.status
    return next((status for status, kinds in _STATUSES if isinstance(error, kinds)), 500)


def describe(error: BaseException) -> dict[str, Any]:
    """Return the error as JSON, after RFC 9457; the client raises an error of the name in `title`."""
    status, title = status_of(error), error.code if isinstance(error, Refusal) else type(error).__name__
    detail = str(error) if status != 500 else "the service failed, and nothing was changed; its log says why."
    return {"title": title, "status": status, "detail": detail}


def response_of(error: BaseException) -> Response:
    """Return the response to a refused request."""
    said = describe(error)
    headers = dict(error.headers) if isinstance(error, Refusal) else {}
    if said["status"] == 503:
        headers.setdefault("Retry-After", "1")
    return Response(json.dumps(said), said["status"], headers, MEDIA)
