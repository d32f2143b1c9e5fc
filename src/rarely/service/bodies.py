"""A request's body, read strictly: JSON in UTF-8, finite numbers, no name twice, no more bytes than are allowed."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from rarely.service.headers import header
from rarely.service.problems import Refusal

Body = TypeVar("Body", bound=BaseModel)
MOST_TOLD = 3
"""Flaws that an answer names."""


async def read_json(request: Request, most: int) -> Any:
    """The body as Python has it; `Refusal` if it is not what a body must be."""
    return parse(await _bytes(_checked(request), most))


def _checked(request: Request) -> Request:
    """The request, whose content must be JSON in UTF-8."""
    told = header(request, b"content-type")
    if told == "application/json":
        return request
    kind, _, parameters = told.partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        raise Refusal(415, "the body must be JSON in UTF-8: Content-Type: application/json.", code="WrongContentType")
    return request


async def _bytes(request: Request, most: int) -> bytes:
    told = header(request, b"content-length", "0")
    if not told.isascii() or not told.isdigit() or int(told[:20]) > most:
        raise _too_long(most)
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_long(most)
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_long(most: int) -> Refusal:
    return Refusal(413, f"a body may have at most {most} bytes; send less in one request.", code="BodyTooLong")


def parse(body: bytes) -> Any:
    """Strict JSON.

    >>> parse(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    rarely.service.problems.Refusal: the body must be JSON: an object has the name 'a' twice.
    """
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        said = f"it is not UTF-8, at byte {error.start}"
    except RecursionError:
        said = "it is nested too deeply"
    except ValueError as error:
        said = str(error)
    raise Refusal(400, f"the body must be JSON: {said}.", code="InvalidJson")


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice[:40]!r} twice")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=_unique)


def validated(model: type[Body], value: Any) -> Body:
    """The value as a model; `Refusal` that says where it does not fit."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        flaws = error.errors(include_url=False, include_context=False, include_input=False)
        told = "; ".join(f"{_place(flaw['loc'])}: {flaw['msg']}" for flaw in flaws[:MOST_TOLD])
        more = f"; and {len(flaws) - MOST_TOLD} more" if len(flaws) > MOST_TOLD else ""
        raise Refusal(422, f"the body does not fit the schema: {told}{more}.", code="InvalidBody") from None


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:40] for part in loc) or "the body"
