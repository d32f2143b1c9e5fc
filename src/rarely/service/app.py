"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import request_response

from rarely import RarelyError, __version__
from rarely.service.access import KeyFile, caller_of
from rarely.service.bodies import MEDIA, ProblemBody, Refusal, read_body, response_of
from rarely.service.opened import OpenedStudies
from rarely.service.routes import PUBLIC, ROUTES, Api, Route
from rarely.service.writer import Limits
from rarely.study.storage.postgresql import without_password

LOG, REQUESTS = logging.getLogger("rarely.service"), logging.getLogger("rarely.requests")
LASTING = ("verify", "backup", "export")
"""Routes whose answer may take as long as the record is."""
REPEATABLE = ("decide", "reward")
"""Routes whose requests have an id; the writer logs why it refused them."""
MEDIA_TYPES = {
    "metrics": "text/plain", "openapi": "application/json", "backup": "application/octet-stream", "export": "text/csv",
}  # fmt: skip


class Service(FastAPI):
    """FastAPI, with the models of all bodies in its description of the API."""

    def openapi(self) -> dict[str, Any]:
        """Return the description of the API, which is made once."""
        if self.openapi_schema is None:
            schema = super().openapi()
            models = {model for route in ROUTES for model in (*route.takes, *route.gives)} | {ProblemBody}
            parts = schema.setdefault("components", {})
            for model in sorted(models, key=lambda model: model.__name__):
                made = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
                parts.setdefault("schemas", {}).update(made.pop("$defs", {}) | {model.__name__: made})
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            self.openapi_schema = schema
        return self.openapi_schema


def create_app(
    storage: str,
    *,
    keys: KeyFile | None = None,
    limits: Limits | None = None,
    automatic: bool = True,
) -> Service:
    """Return the service of all studies in a database.

    Parameters
    ----------
    storage
        "sqlite:///trial.db" or "postgresql://user@host/name".
    keys
        The API keys to require; with None the service requires none and only answers to names of this machine.
    limits
        What it accepts at once.
    automatic
        Whether the next version is trained as soon as the schedule ends a batch; otherwise by `activate`.

    Examples
    --------
    >>> app = create_app("sqlite:///trial.db")  # for uvicorn or any other ASGI server
    >>> app.title
    'rarely'
    """
    limits = Limits() if limits is None else limits
    studies = OpenedStudies(storage, limits, automatic=automatic)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(studies.start)
        shown = (without_password(storage), "no" if keys is None else len(keys.all()), limits)
        LOG.info(f"rarely {__version__} serves %s with %s keys, %s", *shown)
        try:
            yield
        finally:
            await run_in_threadpool(studies.close)
            LOG.info("rarely has stopped")

    says = "Every decision, reward and version is on record before it is answered."
    pages: dict[str, Any] = dict.fromkeys(("docs_url", "redoc_url", "openapi_url"))
    pages["redirect_slashes"] = False  # a redirect would lead to whatever host the request names
    app = Service(title="rarely", version=__version__, description=says, lifespan=lifespan, **pages)
    api = Api(studies, limits, app, storage, keys)
    for route in ROUTES:
        _add(app, api, keys, route)
    for kind in (HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.state.studies, app.state.meters = studies, api.meters
    return app


def _add(app: FastAPI, api: Api, keys: KeyFile | None, route: Route) -> None:
    name = route.handler.__name__

    async def answer(request: Request) -> Response:
        """Return the answer of the route, or why it is refused, within the limit of time; count and log it."""
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(None if name in LASTING else api.limits.patience):
                response = await _handled(api, keys, route, request)
        except TimeoutError:
            LOG.error("%s was not answered within %g seconds", name, api.limits.patience)
            advice = "repeat it with the same id" if name in REPEATABLE else "it may still take effect: see the status"
            detail = f"it was not answered within {api.limits.patience:g} seconds; {advice}."
            response = response_of(Refusal(503, detail, "TimedOut"))
        except ClientDisconnect:
            response = Response(status_code=499)  # which nobody receives; it is counted so
        except Exception as error:
            response = await _answer_error(request, error)
            if response.status_code == 503 and name not in REPEATABLE:
                LOG.error("%s was refused: %s", name, error)
        seconds, status = time.perf_counter() - begun, response.status_code
        meters = getattr(request.state, "meters", api.meters)
        meters.count("rarely_requests_total", route=name, status=str(status))
        meters.observe("rarely_request_seconds", seconds, route=name)
        if REQUESTS.isEnabledFor(logging.INFO):
            _log_request(request, status, seconds)
        return response

    described: dict[str, Any] = {"name": name, "operation_id": name if route.path != "/health" else "health"}
    described |= {"description": route.handler.__doc__, "openapi_extra": _operation(route)}
    app.add_api_route(route.path, answer, methods=[route.method], response_class=Response, **described)
    cast(APIRoute, app.routes[-1]).app = request_response(answer)  # FastAPI's own searches for parameters first


async def _handled(api: Api, keys: KeyFile | None, route: Route, request: Request) -> Response:
    """Check the key, read the body and call the handler; the request's state has the study's meters and the key."""
    study = request.path_params.get("name")
    if route.scope == PUBLIC:
        return await route.handler(api)
    key = caller_of(keys, request, route.scope, study)
    request.state.key = caller = "" if key is None else key.name
    if route.handler.__name__ == "backup" and key is not None and key.studies is not None:
        raise Refusal(403, "a backup holds all studies, and the key is for some of them.", "StudyNotAllowed")
    if study is None:
        return await route.handler(api, key)
    opened = await api.opened(study)
    request.state.meters = opened.meters
    if not route.takes:
        return await route.handler(api, opened)
    body = await read_body(request, route.takes, api.limits.body)
    several = getattr(body, "requests", None) or getattr(body, "rewards", None)
    if keys is not None and several:
        keys.charge(key, len(several) - 1)
    return await route.handler(api, opened, body, caller)


def _log_request(request: Request, status: int, seconds: float) -> None:
    """Log a request, with its path as it was sent; neither its headers nor its body."""
    path, client = request.scope.get("raw_path", b"").decode("ascii", "replace"), request.client
    fields = {"method": request.method, "path": path, "status": status, "milliseconds": round(seconds * 1e3, 2)}
    fields |= {"client": client.host if client else "", "key": getattr(request.state, "key", "")}
    REQUESTS.info(" ".join(str(value) or "-" for value in fields.values()), extra={"fields": fields})


def _operation(route: Route) -> dict[str, Any]:
    """Return what the OpenAPI description says about a route besides its path."""
    problem = {"description": "Why the request was refused.", "content": {MEDIA: {"schema": _any((ProblemBody,))}}}
    refused = ["404", "405", "422", "503"] + (["401", "403", "421", "429"] if route.scope != PUBLIC else [])
    refused += ["400", "409", "413", "415"] if route.takes else []
    given: dict[str, Any] = {"description": "The answer."}
    if route.gives:
        given["content"] = {"application/json": {"schema": _any(route.gives)}}
    else:
        kind = MEDIA_TYPES.get(route.handler.__name__, "text/html")
        given["content"] = {kind: {"schema": {} if kind == "application/json" else {"type": "string"}}}
    responses = {"200": given} | {code: problem for code in sorted(refused)}
    if route.path.endswith("/activate"):
        responses["202"] = given
    if route.path.startswith("/health"):
        responses["503"] = given
    extra: dict[str, Any] = {"responses": responses}
    if "{name}" in route.path:
        extra["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if route.scope != PUBLIC:
        extra["security"] = [{"key": [route.scope]}]
    if route.takes:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": _any(route.takes)}}}
    return extra


def _any(models: tuple[type[Any], ...]) -> dict[str, Any]:
    places = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return places[0] if len(places) == 1 else {"anyOf": places}


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the router, which found no route
        request.app.state.meters.count("rarely_requests_total", route="none", status=str(error.status_code))
        return response_of(Refusal(error.status_code, str(error.detail), headers=dict(error.headers or {})))
    if not isinstance(error, RarelyError):
        LOG.error("a request failed", exc_info=error)
    return response_of(error)
