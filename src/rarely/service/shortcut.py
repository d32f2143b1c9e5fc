"""Decisions and rewards past the router: the same handlers, reached by the path alone.

FastAPI matches every route, solves dependencies and keeps exit stacks; that took 0.25 ms of CPU for a request, and
uvicorn itself 0.06 ms. These two routes have nothing to solve. FastAPI has them as well, for the description of the API
and for paths that are written in an unusual way, and gives the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rarely.core.errors import RarelyError
from rarely.service.access import Access
from rarely.service.problems import response_of
from rarely.service.routes import Handler


class Verb(NamedTuple):
    """What a study is asked to do by `POST /v1/studies/{name}/VERB`."""

    scope: str
    """That a key needs."""
    handler: Handler


class Shortcut:
    """Middleware that answers the given verbs, and hands everything else on."""

    def __init__(self, app: ASGIApp, verbs: Mapping[str, Verb], access: Access) -> None:
        self._app, self._verbs, self._access = app, verbs, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._found(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        verb, name = found
        request = Request(scope, receive)
        try:
            response = await verb.handler(request, name, self._access.caller(request, verb.scope))
        except RarelyError as error:
            response = response_of(error)
        await response(scope, receive, send)

    def _found(self, scope: Scope) -> tuple[Verb, str] | None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            return None
        match scope["path"].split("/"):
            case ["", "v1", "studies", name, verb] if name and verb in self._verbs:
                return self._verbs[verb], name
        return None
