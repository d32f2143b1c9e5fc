"""The service as an ASGI application, and its description for programs."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from inspect import getdoc
from typing import Any

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rarely import __version__
from rarely.errors import RarelyError
from rarely.service import personalizer as personalizer  # whose routes are served too
from rarely.service.access import KeyFile, caller_of
from rarely.service.bodies import MEDIA, ProblemBody, Refusal, media_of, read_body, response_of
from rarely.service.opened import OpenedStudies
from rarely.service.routes import PUBLIC, ROUTES, Api, Handler
from rarely.service.writer import ServiceLimits
from rarely.study.storage.postgresql import without_password

LOG, REQUESTS = logging.getLogger("rarely.service"), logging.getLogger("rarely.requests")
LASTING = ("verify", "backup", "export")
"""Routes whose answer may take as long as the record is."""
REPEATABLE = ("decide", "reward")
"""Routes whose requests have an id; the writer logs why it refused them."""
MEDIA_TYPES = {
    "metrics": "text/plain", "blinded": "text/plain", "openapi": "application/json", "schema": "application/json",
    "backup": "application/octet-stream", "export": "text/csv",
}  # fmt: skip


def create_app(
    storage: str,
    *,
    keys: KeyFile | None = None,
    limits: ServiceLimits | None = None,
    automatic: bool = True,
    models: Sequence[Any] = (),
    proxies: Sequence[str] = (),
) -> Starlette:
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
    models
        Torch modules and estimators that policies of the studies were made with, as in `rarely.load`.

    proxies
        Addresses of proxies whose X-Forwarded-For is believed, for the log.

    Examples
    --------
    >>> app = create_app("sqlite:///trial.db")  # for uvicorn or any other ASGI server
    >>> "/health" in [route.path for route in app.routes]
    True
    """
    limits = ServiceLimits() if limits is None else limits
    studies = OpenedStudies(storage, limits, list(models), automatic=automatic)
    api = Api(studies, limits, describe_api(), storage, keys)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(studies.start)
        told = (without_password(storage), "no" if keys is None else len(keys.all()), limits)
        LOG.info(f"rarely {__version__} serves %s with %s keys, %s", *told)
        try:
            yield
        finally:
            await run_in_threadpool(studies.close)
            LOG.info("rarely has stopped")

    routes = [Route(each.path, _answering(api, keys, each, proxies), methods=[each.method]) for each in ROUTES]
    for route in routes:
        route.methods = (route.methods or set()) - {"HEAD"}  # which Starlette adds to GET
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False  # a redirect would lead to whatever host the request names
    for kind in (HTTPException, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.state.studies, app.state.meters = studies, api.meters
    return app


def _answering(
    api: Api, keys: KeyFile | None, route: Handler, proxies: Sequence[str]
) -> Callable[[Request], Awaitable[Response]]:
    name = route.name

    async def answer(request: Request) -> Response:
        """Return the answer of the route, or why it is refused, within the limit of time; count and log it."""
        begun, id = time.perf_counter(), _id_of(request)
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
        response.headers["X-Request-Id"] = id
        seconds, status = time.perf_counter() - begun, response.status_code
        meters = getattr(request.state, "meters", api.meters)
        meters.count("rarely_requests_total", route=name, status=str(status))
        meters.observe("rarely_request_seconds", seconds, route=name)
        if REQUESTS.isEnabledFor(logging.INFO):
            _log_request(request, status, seconds, id, proxies)
        return response

    return answer


async def _handled(api: Api, keys: KeyFile | None, route: Handler, request: Request) -> Response:
    """Check the key, read the body and call the handler; the request's state has the study's meters and the key."""
    study = request.path_params.get("name")
    if route.scope == PUBLIC:
        return await route.handler(api)
    key = caller_of(keys, request, route.scope, study)
    request.state.key = "" if key is None else key.name
    if route.name == "backup" and key is not None and key.studies is not None:
        raise Refusal(403, "a backup holds all studies, and the key is for some of them.", "StudyNotAllowed")
    if study is None:
        return await route.handler(api, key)
    opened = await api.opened(study)
    request.state.meters = opened.meters
    place = {name: value for name, value in request.path_params.items() if name != "name"}
    if not route.takes:
        return await route.handler(api, opened, key, **place)
    body = await read_body(request, route.takes, api.limits.body)
    request.state.decision = getattr(body, "id", None) or ""
    several = getattr(body, "requests", None) or getattr(body, "rewards", None)
    if keys is not None and several:
        keys.charge(key, len(several) - 1)
    return await route.handler(api, opened, key, body, **place)


def _id_of(request: Request) -> str:
    """Return the id that a caller or proxy gave the request, or a random one."""
    given = request.headers.get("x-request-id", "")
    return given if given.isascii() and given.isprintable() and 0 < len(given) <= 200 else secrets.token_hex(8)


def _client_of(request: Request, proxies: Sequence[str]) -> str:
    """Return the address of the client: what a trusted proxy reports, from the end on, up to one that is none."""
    address = request.client.host if request.client else ""
    for each in reversed(request.headers.get("x-forwarded-for", "").split(",")):
        if address not in proxies or not each.strip():
            break
        address = each.strip()[:60]
    return address


def _log_request(request: Request, status: int, seconds: float, id: str, proxies: Sequence[str]) -> None:
    """Log a request, with its path as it was sent; neither its headers nor its body."""
    path = request.scope.get("raw_path", b"").decode("ascii", "replace")
    fields = {"method": request.method, "path": path, "status": status, "milliseconds": round(seconds * 1e3, 2)}
    fields |= {"client": _client_of(request, proxies), "key": getattr(request.state, "key", ""), "request": id}
    fields |= {"decision": getattr(request.state, "decision", "")}
    REQUESTS.info(" ".join(str(value) or "-" for value in fields.values()), extra={"fields": fields})


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the router, which found no route
        request.app.state.meters.count("rarely_requests_total", route="none", status=str(error.status_code))
        return response_of(Refusal(error.status_code, str(error.detail), headers=dict(error.headers or {})))
    if not isinstance(error, RarelyError):
        LOG.error("a request failed", exc_info=error)
    return response_of(error)


# --- OpenAPI


def describe_api() -> dict[str, Any]:
    """Return all routes, and the models of their bodies, as OpenAPI describes them."""
    schemas: dict[str, Any] = {}
    models = {model for route in ROUTES for model in (*route.takes, *route.gives)} | {ProblemBody}
    for model in sorted(models, key=lambda model: model.__name__):
        schema = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {}) | {model.__name__: schema}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    says = "Every decision, reward and version is on record before it is answered."
    return {
        "openapi": "3.1.0",
        "info": {"title": "rarely", "version": __version__, "description": says},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Handler) -> dict[str, Any]:
    problem = {"description": "Why the request was refused.", "content": {MEDIA: {"schema": _any((ProblemBody,))}}}
    refused = ["404", "405", "422", "503"] + (["401", "403", "421", "429"] if route.scope != PUBLIC else [])
    refused += ["400", "409", "413", "415"] if route.takes else []
    media = "application/json" if route.gives else MEDIA_TYPES.get(route.name, "text/html")
    schema = _any(route.gives) if route.gives else {} if media == "application/json" else {"type": "string"}
    answer = {"description": "The answer.", "content": {media: {"schema": schema}}}
    responses = {"200": answer} | {code: problem for code in sorted(refused)}
    responses |= {"202": answer} if route.name == "activate" else {}
    responses |= {"303": {"description": "It was done; see the page."}} if route.name == "act" else {}
    responses |= {"503": answer} if route.path.startswith("/health") else {}
    name = route.name if route.path != "/health" else "health"
    operation: dict[str, Any] = {"operationId": name, "description": getdoc(route.handler), "responses": responses}
    text = {"in": "path", "required": True, "schema": {"type": "string"}}
    if places := re.findall(r"{(\w+)}", route.path):
        operation["parameters"] = [{"name": name, **text} for name in places]
    if route.scope != PUBLIC:
        operation["security"] = [{"key": [route.scope]}]
    if route.takes:
        content = {media_of(route.takes): {"schema": _any(route.takes)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _any(models: tuple[type[Any], ...]) -> dict[str, Any]:
    places = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return places[0] if len(places) == 1 else {"anyOf": places}
