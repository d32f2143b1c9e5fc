"""Decisions and rewards past the router: the same handlers, reached by the path alone.

FastAPI matches routes, solves dependencies and keeps exit stacks. With it a request took 0.25 ms of CPU, and with
uvicorn alone 0.06 ms. These two routes have nothing to solve. FastAPI has them as well, for the description of the API
and for paths that are written in an unusual way, and gives the same answers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request
from starlette.types import Receive, Scope, Send

from rarely.core.errors import RarelyError
from rarely.service.access import Access
from rarely.service.problems import response_of
from rarely.service.routes import Handler

LOG = logging.getLogger("rarely.service")


class Verb(NamedTuple):
    """What a study is asked to do by `POST /v1/studies/{name}/VERB`."""

    scope: str
    """That a key needs."""
    handler: Handler


class Shortcut:
    """Answers the given verbs before anything else sees the request."""

    def __init__(self, verbs: Mapping[str, Verb], access: Access) -> None:
        self._verbs, self._access = verbs, access

    def find(self, scope: Scope) -> tuple[Verb, str] | None:
        """The verb and the name of the study, if that is what a request asks for."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path"):
            return None
        match scope["path"].split("/"):
            case ["", "v1", "studies", name, verb] if name and verb in self._verbs:
                return self._verbs[verb], name
        return None

    async def answer(self, verb: Verb, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that was found."""
        request = Request(scope, receive)
        try:
            response = await verb.handler(request, name, self._access.caller(request, verb.scope))
        except Exception as error:
            if not isinstance(error, RarelyError):
                LOG.error("a request failed", exc_info=error)
            response = response_of(error)
        await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body})
