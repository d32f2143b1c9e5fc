"""The service as an ASGI application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from rarely.core.errors import RarelyError
from rarely.core.version import __version__
from rarely.service import schemas
from rarely.service.access import Access
from rarely.service.keys import KeyFile
from rarely.service.limits import Limits
from rarely.service.opened import OpenedStudies
from rarely.service.problems import MEDIA, Refusal, response_of
from rarely.service.routes import Api, Handler
from rarely.service.shortcut import Shortcut, Verb
from rarely.service.site import Site
from rarely.study import Answer

LOG = logging.getLogger("rarely.service")
PUBLIC = ""
"""The scope of a route that needs no key."""
FREQUENT = ("decide", "reward")
"""Verbs that take the shortcut past FastAPI's router."""


class Route(NamedTuple):
    """One route of the API."""

    method: str
    path: str
    scope: str
    handler: Handler
    takes: tuple[type[Any], ...]
    gives: tuple[type[Any], ...]
    status: int = 200

    @property
    def verb(self) -> str:
        """The last part of its path, by which the description of the API knows it."""
        return {"/": "index", "/studies/{name}": "dashboard"}.get(self.path, self.path.rsplit("/", 1)[-1])


class Service(FastAPI):
    """FastAPI behind a shortcut; its description of the API has the models that the bodies are read as."""

    shortcut: Shortcut | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Middleware that was added to the application must see every request.
        shortcut = None if self.user_middleware else self.shortcut
        found = None if shortcut is None else shortcut.find(scope)
        if shortcut is None or found is None:
            await super().__call__(scope, receive, send)
        else:
            await shortcut.answer(*found, scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        if self.openapi_schema is None:
            schema = super().openapi()
            parts = schema.setdefault("components", {})
            for model in schemas.BODIES:
                made = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
                parts.setdefault("schemas", {}).update(made.pop("$defs", {}) | {model.__name__: made})
            parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            self.openapi_schema = schema
        return self.openapi_schema


def pages_of(site: Site) -> list[Route]:
    """The pages, and the description of the API."""
    return [
        Route("GET", "/", "read", site.index, (), ()),
        Route("GET", "/studies/{name}", "read", site.study, (), ()),
        Route("GET", "/docs", PUBLIC, site.routes, (), ()),
        Route("GET", "/openapi.json", PUBLIC, site.openapi, (), ()),
    ]


def routes_of(api: Api) -> list[Route]:
    """All routes; the scope of each stands in `/openapi.json`, as its security."""
    study = "/v1/studies/{name}"
    outcome, signed = (schemas.OutcomeBody,), (schemas.SignedRequest,)
    return [
        Route(
            "POST",
            f"{study}/decide",
            "decide",
            api.decide,
            (schemas.DecideRequest, schemas.DecideRequests),
            (Answer, schemas.AnswersBody),
        ),
        Route(
            "POST",
            f"{study}/reward",
            "reward",
            api.reward,
            (schemas.RewardRequest, schemas.RewardRequests),
            (schemas.ReceiptBody, schemas.ReceiptsBody),
        ),
        Route("POST", f"{study}/activate", "admin", api.activate, (schemas.ActivateRequest,), outcome),
        Route("POST", f"{study}/dismiss", "admin", api.dismiss, signed, outcome),
        Route("POST", f"{study}/pin", "admin", api.pin, signed, outcome),
        Route("POST", f"{study}/unpin", "admin", api.unpin, signed, outcome),
        Route("POST", f"{study}/shadow", "admin", api.shadow, (schemas.ShadowRequest,), outcome),
        Route("GET", f"{study}/status", "read", api.status, (), (schemas.StatusBody,)),
        Route("GET", f"{study}/versions", "read", api.versions, (), (schemas.VersionsBody,)),
        Route("GET", "/metrics", "read", api.metrics, (), ()),
        Route("GET", "/health", PUBLIC, api.health, (), (schemas.HealthBody,)),
    ]


def create_app(
    storage: str,
    *,
    keys: KeyFile | None = None,
    limits: Limits | None = None,
    automatic: bool = True,
    read_only: bool = False,
) -> Service:
    """The service of all studies in a database.

    Parameters
    ----------
    storage
        "sqlite:///trial.db" or "postgresql://user@host/name".
    keys
        The API keys to ask for; None for none, and then the service answers to names of this machine alone.
    limits
        How much it takes at once.
    automatic
        Whether the next version is trained as soon as the schedule ends a batch; otherwise `activate` trains it.
    read_only
        Whether there are pages, status and metrics alone.

    Examples
    --------
    >>> app = create_app("sqlite:///trial.db")  # for uvicorn, or for a server that takes ASGI
    >>> app.title
    'rarely'
    """
    limits = Limits() if limits is None else limits
    studies = OpenedStudies(storage, limits, automatic=automatic)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(studies.start)
        try:
            yield
        finally:
            await run_in_threadpool(studies.close)

    app = Service(
        title="rarely",
        version=__version__,
        description="Decisions that last: every decision, reward and version is on record before it is answered.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    access = Access(keys)
    routes = routes_of(Api(studies, limits)) + pages_of(Site(studies, app))
    routes = [route for route in routes if route.method == "GET" or not read_only]
    for route in routes:
        _add(app, access, route)
    verbs = {route.verb: Verb(route.scope, route.handler) for route in routes if route.verb in FREQUENT}
    app.shortcut = Shortcut(verbs, access)
    for kind in (RarelyError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)
    app.state.studies, app.state.access = studies, access
    return app


def _add(app: FastAPI, access: Access, route: Route) -> None:
    def caller(request: Request) -> str:
        return "" if route.scope == PUBLIC else access.caller(request, route.scope)

    endpoint: Callable[..., Awaitable[Response]]
    if "{name}" in route.path:

        async def of_study(request: Request, name: str) -> Response:
            return await route.handler(request, name, caller(request))

        endpoint = of_study
    else:

        async def of_service(request: Request) -> Response:
            return await route.handler(request, "", caller(request))

        endpoint = of_service
    app.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=route.verb,
        operation_id=route.verb,
        description=route.handler.__doc__,
        response_class=Response,
        openapi_extra=_operation(route),
    )


def _operation(route: Route) -> dict[str, Any]:
    """What the OpenAPI description says about a route beyond its path."""
    problem = {"description": "Why it is refused.", "content": {MEDIA: {"schema": _any((schemas.ProblemBody,))}}}
    refused = ["404", "405", "422", "503"] + (["401", "403", "421"] if route.scope != PUBLIC else [])
    refused += ["400", "409", "413", "415", "429"] if route.takes else []
    given: dict[str, Any] = {"description": "The answer."}
    if route.gives:
        given["content"] = {"application/json": {"schema": _any(route.gives)}}
    else:
        kind = {"/metrics": "text/plain", "/openapi.json": "application/json"}.get(route.path, "text/html")
        given["content"] = {kind: {"schema": {} if kind == "application/json" else {"type": "string"}}}
    responses = {"200": given} | {code: problem for code in sorted(refused)}
    if route.path.endswith("/activate"):
        responses["202"] = given
    if route.path == "/health":
        responses["503"] = given
    extra: dict[str, Any] = {"responses": responses}
    if route.scope != PUBLIC:
        extra["security"] = [{"key": [route.scope]}]
    if route.takes:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": _any(route.takes)}}}
    return extra


def _any(models: tuple[type[Any], ...]) -> dict[str, Any]:
    places = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return places[0] if len(places) == 1 else {"anyOf": places}


async def _answer_error(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return response_of(Refusal(error.status_code, str(error.detail), headers=dict(error.headers or {})))
    if isinstance(error, RequestValidationError):
        return response_of(Refusal(422, "the path or a header does not fit the schema; see /docs.", code="InvalidPath"))
    if not isinstance(error, RarelyError):
        LOG.error("a request failed", exc_info=error)
    return response_of(error)
