"""The service as an ASGI application: its routes, the pages for people, and its description for programs."""

from __future__ import annotations

import asyncio
import glob
import hmac
import json
import logging
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from inspect import getdoc
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel, TypeAdapter
from starlette import responses
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from rarely import __version__
from rarely.errors import RarelyError
from rarely.pages.page import render
from rarely.service import bodies
from rarely.service.access import Key, KeyFile, caller_of
from rarely.service.bodies import Refusal, response_of
from rarely.service.metrics import Meters, exposition, free_bytes, process_lines, sample
from rarely.service.opened import OpenedStudies, OpenedStudy
from rarely.service.writer import Call, ServiceLimits
from rarely.study import Answer, Erasure, Pruning, Receipt, Request, Status, Study, Tell, Verification, errors
from rarely.study.reports import html_of
from rarely.study.storage.postgresql import without_password
from rarely.study.versions import UNLIMITED

LOG, REQUESTS = logging.getLogger("rarely.service"), logging.getLogger("rarely.requests")
LASTING = ("verify", "backup", "export", "erase", "prune")  # routes whose answer may take as long as the record is
REPEATABLE = ("decide", "reward")  # routes whose requests have an id; the writer logs why it refused them
PUBLIC = ""  # the scope of a route that needs no key
STUDY = "/v1/studies/{name}"
STALL = 5.0
"""Seconds without an answer of the database, or since it refused to write, in which the service is not ready."""
PROBE_WAIT = 0.8  # seconds that a probe of readiness waits for the database; Kubernetes waits for one second
MIN_FREE = 64 << 20  # free bytes below which the disk of an SQLite file counts as full
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""A page loads nothing and runs no script."""
TEMPORARY = "rarely-backup-"  # how folders begin in which a backup is written; the number of the process follows
Step = Callable[..., Any]
_IDS = random.Random()
"""Names requests in the log. They are no secrets, and the system's own numbers would let the writer take the lock of
the interpreter at every request."""
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def as_json(value: Any, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(_encode(value), status, media_type="application/json")


class Handler(NamedTuple):
    """A route of the service; the handler of a study's route is given the study, and what the request brings."""

    method: str
    path: str
    scope: str
    handler: Callable[..., Awaitable[Response]]
    takes: tuple[type[BaseModel], ...]  # models of the body, the one of a single request first
    gives: tuple[type[Any], ...]
    media: str  # of an answer that has no model

    @property
    def name(self) -> str:
        """The name of the route in logs and metrics."""
        return self.handler.__name__


ROUTES: list[Handler] = []  # all routes; `/openapi.json` has the scope of each as its security


def route(
    scope: str,
    takes: tuple[type[BaseModel], ...] = (),
    gives: tuple[type[Any], ...] = (),
    *,
    path: str = "",
    method: str = "",
    media: str = "application/json",
) -> Callable[[Callable[..., Awaitable[Response]]], Any]:
    """Add a method of `Api` to the routes, of a study by its name unless a path is given, and POST if it has a body."""

    def add(handler: Callable[..., Awaitable[Response]]) -> Any:
        where = path or f"{STUDY}/{handler.__name__.replace('_', '-')}"
        ROUTES.append(Handler(method or ("POST" if takes else "GET"), where, scope, handler, takes, gives, media))
        return handler

    return add


class Api:
    """The handlers of all routes, over the studies of a service."""

    def __init__(
        self, studies: OpenedStudies, limits: ServiceLimits, schema: Any, storage: str, keys: KeyFile | None
    ) -> None:
        self.studies, self.limits, self._schema, self._storage, self._keys = studies, limits, schema, storage, keys
        self.meters = Meters(study="")  # of requests that are not about a study
        self._backup = asyncio.Lock()
        _remove_abandoned()
        self._probe: tuple[float, asyncio.Task[bool]] | None = None

    def _visible(self, key: Key) -> list[OpenedStudy]:
        return [each for each in self.studies.all() if key.covers(each.study.name)]

    def _broken(self, key: Key) -> list[str]:
        return [name for name in list(self.studies.broken) if key.covers(name)]

    async def opened(self, name: str) -> OpenedStudy:
        opened = self.studies.opened(name)
        return await run_in_threadpool(self.studies.open, name) if opened is None else opened

    # --- decisions and rewards

    @route("decide", (bodies.DecideRequest, bodies.DecideRequests), (Answer, *bodies.DECIDED))
    async def decide(self, study: OpenedStudy, key: Key, body: Any) -> Response:
        """Decide one request, or many in one commit; each id is decided once."""
        several = bodies.listed(body, "requests")
        requests = [self._request(each, key.name) for each in several or [body]]
        return await self._submit(study, requests, "answers" if several else "")

    @route("reward", (bodies.RewardRequest, bodies.RewardRequests), (Receipt, *bodies.REWARDED))
    async def reward(self, study: OpenedStudy, key: Key, body: Any) -> Response:
        """Record one reward, or many in one commit; repeating it changes nothing."""
        several, by = bodies.listed(body, "rewards"), key.name
        told = several or [body]
        tells = [Tell(each.id, each.reward, each.key, by, each.arm, each.reason, each.seen) for each in told]
        return await self._submit(study, tells, "receipts" if several else "")

    def _request(self, body: bodies.DecideRequest, caller: str) -> Request:
        contexts = body.asked
        # By the schema the items of a list are all rows or all numbers.
        rows = isinstance(contexts, list) and bool(contexts) and isinstance(contexts[0], list)
        arms = contexts.get("items", contexts) if isinstance(contexts, dict) else contexts
        if len(arms) > self.limits.arms and (rows or isinstance(contexts, dict)):
            detail = f"a decision may have at most {self.limits.arms} arms; got {len(arms)}."
            raise Refusal(422, detail, "InvalidContexts")
        if rows and len(set(map(len, contexts))) == 1:
            contexts = np.array(contexts, np.float64)  # the study checks an array faster than lists
        worth = body.worth.fields() if isinstance(body.worth, bodies.WorthBody) else body.worth
        return Request(contexts, body.id, body.available, caller, worth, body.slots, body.user_id)

    async def _submit(self, study: OpenedStudy, calls: Sequence[Call], several: str) -> Response:
        """Return what became of the calls as a list of that name, or of a single one."""
        if len(calls) > self.limits.items:
            raise Refusal(413, f"a request may hold at most {self.limits.items} items; got {len(calls)}.", "TooMany")
        results = await study.writer.submit(calls)
        if not several and isinstance(results[0], RarelyError):
            return bodies.response_of(results[0])
        said = [bodies.describe(each) if isinstance(each, RarelyError) else each.describe() for each in results]
        return as_json({several: said} if several else said[0])

    # --- versions

    @route("admin", (bodies.ActivateRequest,), (bodies.OutcomeBody,))
    async def activate(self, study: OpenedStudy, key: Key, body: bodies.ActivateRequest) -> Response:
        """Change the version in use: train the next one, approve the candidate, or roll back.

        A training continues after the answer (202); `status` says when its version decides.
        """
        if body.version == "next":
            study.trainer.start(force=body.force, actor=key.name or "service", reason=body.reason)
            return as_json({"outcome": "training", "version": (await run_in_threadpool(study.status)).version}, 202)
        if body.version == "candidate":
            return await _do(study, body, key, "version", Study.approve)
        return await _do(study, body, key, "version", Study.rollback, body.version)

    # --- persons and old events

    @route("erase", (bodies.EraseRequest,), (Erasure,))
    async def erase(self, study: OpenedStudy, key: Key, body: bodies.EraseRequest) -> Response:
        """Erase contexts, ids and texts of persons; `remains` says what may still hold them."""
        return await _do(study, body, key, "erase", Study.erase, body.ids, by=body.by)

    @route("erase", (bodies.PruneRequest,), (Pruning,))
    async def prune(self, study: OpenedStudy, key: Key, body: bodies.PruneRequest) -> Response:
        """Drop decisions and rewards from before a moment, as far as the version in use does not need them."""
        return await _do(study, body, key, "prune", Study.prune, body.before, dry_run=body.dry_run)

    # --- audits, while others decide

    @route("admin", gives=(Verification,))
    async def verify(self, study: OpenedStudy, _: Key) -> Response:
        """Check the whole record; `flaw` says what is wrong."""
        return as_json(asdict(await study.call(Study.verify)))

    @route("admin", media="application/octet-stream")
    async def backup(self, study: OpenedStudy, _: Key) -> Response:
        """Return a copy of the whole database, with all its studies, as an SQLite file."""
        if self._backup.locked():
            raise Refusal(429, "a backup is being made.", "Overloaded", headers={"Retry-After": "60"})
        name, temporary = f"{study.study.name}-backup.db", f"{TEMPORARY}{os.getpid()}-"
        async with self._backup:
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=temporary, ignore_cleanup_errors=True))
                await study.call(Study.backup, path := os.path.join(folder, "backup.db"))
                return responses.FileResponse(path, filename=name, background=BackgroundTask(stack.pop_all().close))

    @route("admin", media="text/csv")
    async def export(self, study: OpenedStudy, _: Key) -> Response:
        """Return all decisions with id, time, stage, actor, probabilities and rewards as CSV."""
        parts = study.watched(Study.csv_text)
        begun = await run_in_threadpool(next, parts, "")  # what refuses it is said before the answer begins
        name = f'attachment; filename="{quote(study.study.name)}-export.csv"'
        return responses.StreamingResponse(
            chain([begun], parts), media_type="text/csv", headers={"Content-Disposition": name}
        )

    # --- state

    @route("read", gives=(Status,))
    async def status(self, study: OpenedStudy, _: Key) -> Response:
        """Return the state of the study."""
        trainer, status = study.trainer, await run_in_threadpool(study.status)
        return as_json(status.describe() | {"training": trainer.under_way, "training_error": trainer.last_error})

    @route("decide")
    async def schema(self, study: OpenedStudy, _: Key) -> Response:
        """Return the JSON schema of a request for one decision of this study, by its columns if it has tables."""
        return as_json(study.study.request_schema())

    @route("read", gives=(bodies.VersionsBody,))
    async def versions(self, study: OpenedStudy, _: Key) -> Response:
        """Return the published versions: parent, log range, settings, environment and SHA-256."""
        return as_json({"versions": [version.describe() for version in await study.call(Study.versions)]})

    @route("read", path="/metrics", media="text/plain")
    async def metrics(self, key: Key) -> Response:
        """Return counters, gauges and histograms of the key's studies and of the process, as Prometheus reads them."""
        problems, free = await self._problems(STALL), free_bytes(self._storage)
        lines = [line for each in self._visible(key) for line in each.metrics()]
        lines += [sample("rarely_healthy", 0, study=name) for name in self._broken(key)]
        lines += [*self.meters.lines(), *process_lines(), sample("rarely_ready", int(not problems))]
        lines.append(sample("rarely_keys_valid", int(self._keys is None or not self._keys.failure)))
        lines += [] if free is None else [sample("rarely_storage_free_bytes", free)]
        return Response(exposition(lines), media_type="text/plain; version=0.0.4")

    @route(PUBLIC, gives=(bodies.HealthBody,), path="/health/live")
    async def live(self) -> Response:
        """Return 200 while the process may work: start it again if it does not. Needs no key."""
        stopped = any(each.stopped for each in self.studies.all())
        return _health(["a study works again only in a new process"] * stopped)

    @route(PUBLIC, gives=(bodies.HealthBody,), path="/health")
    @route(PUBLIC, gives=(bodies.HealthBody,), path="/health/ready")
    async def ready(self) -> Response:
        """Return whether all studies can decide; 503 if requests should go elsewhere. Needs no key, names none."""
        return _health(await self._problems(PROBE_WAIT))

    async def _problems(self, wait: float) -> list[str]:
        """Return what keeps the service from deciding, after reading from all databases for at most `wait` seconds.

        One probe runs at a time. It also connects again to a database that came back: while a service is not ready,
        no other request may come that would.
        """
        loop = asyncio.get_running_loop()
        if self._probe is None or self._probe[1].done():
            self._probe = (loop.time(), loop.create_task(run_in_threadpool(self._touch)))
        begun, probe = self._probe
        await asyncio.wait([probe], timeout=wait)
        studies, now = self.studies.all(), time.monotonic()
        stalled = not probe.done() and loop.time() - begun >= STALL
        free = free_bytes(self._storage)
        problems = {
            "studies are being opened": self.studies.starting,
            "a study cannot decide": bool(self.studies.broken and not studies)
            or (probe.done() and not probe.result())
            or any(each.failure or not each.writer.alive for each in studies),
            f"the database has not answered for {STALL:g} seconds": stalled
            or any(each.writer.oldest > STALL for each in studies),
            "the database refused to write": any(0 < each.writer.refused > now - STALL for each in studies),
            "the disk is full or gone": free is not None and free < MIN_FREE,
        }
        return [problem for problem, there in problems.items() if there]

    def _touch(self) -> bool:
        """Return whether all studies could be read."""
        studies, read = self.studies.all(), 0
        for each in studies:
            with suppress(Exception):
                with suppress(errors.BrokenStudy, errors.UnknownStudy):  # the others can be served
                    each.status()
                read += 1
        return read == len(studies)

    # --- pages for people

    @route("read", path="/", media="text/html")
    async def index(self, key: Key) -> Response:
        """Return the page of all studies that the key covers."""
        names = [name for name in self.studies.opening if key.covers(name)]
        broken = [(name, "is being opened; the log says how far it is") for name in names]
        broken += [(name, "is not served; the log says why") for name in self._broken(key)]
        statuses = []
        for each in self._visible(key):
            try:
                statuses.append(await run_in_threadpool(each.status))
            except errors.UnknownStudy:
                continue  # it was deleted
            except RarelyError:
                broken.append((each.study.name, "cannot be read now; the log says why"))
        return page(render("rarely.service", "index.html", studies=statuses, broken=broken, unlimited=UNLIMITED))

    @route("read", path="/studies/{name}", media="text/html")
    async def dashboard(self, study: OpenedStudy, key: Key) -> Response:
        """Return the dashboard of a study, with buttons for a key with the scope `admin`."""
        token = self._token(study, key) if "admin" in key.scopes else ""
        return page(await run_in_threadpool(study.page, token))

    @route("admin", (bodies.ActRequest,), path="/studies/{name}/act", media="text/html")
    async def act(self, study: OpenedStudy, key: Key, body: bodies.ActRequest) -> Response:
        """Do what a button of the dashboard says, and lead back to it."""
        if not hmac.compare_digest(body.token, self._token(study, key)):
            raise Refusal(403, "the page is not of this service and key; load it again.", "WrongToken")
        if body.act == "rollback" and not body.version.isdecimal():
            raise Refusal(422, f"choose a version to roll back to; got {body.version[:40]!r}.", "InvalidBody")
        arguments = [int(body.version[:18])] if body.act == "rollback" else []
        await _do(study, body, key, body.act, getattr(Study, body.act), *arguments)
        return Response(status_code=303, headers={"Location": f"../{quote(study.study.name)}"})

    def _token(self, study: OpenedStudy, key: Key) -> str:
        """Return what a page of a study holds for the forms of a key: another site knows neither key nor secret."""
        return hmac.new(bytes.fromhex(key.hash), f"act/{study.study.name}".encode(), "sha256").hexdigest()

    @route("read", path="/studies/{name}/analysis", media="text/html")
    async def analysis(self, study: OpenedStudy, _: Key) -> Response:
        """Return the analysis of a trial as a page, or why it has none."""
        return page(await study.call(analysis_of))

    @route("blinded", path="/studies/{name}/blinded", media="text/plain")
    async def blinded(self, study: OpenedStudy, _: Key) -> Response:
        """Return counts, looks and deviations of a trial without arms, for those who must not know them."""
        text = await study.call(lambda study: study.analysis().blinded())
        return Response(text, media_type="text/plain", headers=PAGE_HEADERS)

    @route("approve", (bodies.CloseRequest,), (bodies.OutcomeBody,))
    async def close(self, study: OpenedStudy, key: Key, body: bodies.CloseRequest) -> Response:
        """Give an arm, or the trial, no further patients: the caller and a second person agree, each by a key."""
        second = None if self._keys is None else self._keys.find(body.approval.get_secret_value())
        if second is None or "approve" not in second.scopes or not second.covers(study.study.name):
            detail = "approval must be the key of a second person with the scope 'approve', who covers the study."
            raise Refusal(403, detail, "ApprovalNeeded")
        step = partial(Study.close_enrolment if body.arm is None else Study.close_arm, approved_by=second.name)
        return await _do(study, body, key, "closed", step, *([] if body.arm is None else [body.arm]))

    @route(PUBLIC, path="/openapi.json")
    async def openapi(self) -> Response:
        """Return the description of the API for programs."""
        return as_json(self._schema)


def _health(problems: list[str]) -> Response:
    return as_json({"status": "failed" if problems else "ok", "problems": problems}, 503 if problems else 200)


async def _do(
    study: OpenedStudy, body: Any, key: Key, outcome: str, step: Step, *arguments: Any, **options: Any
) -> Response:
    """Take a step with the study in another thread, in the name of the caller, and return what became of it."""
    actor, reason = key.name or "service", body.reason or "no reason given"
    done = await study.call(step, *arguments, **options, actor=actor, reason=body.reason)
    if isinstance(done, Erasure | Pruning):  # the log does not say of whom
        answer = done.describe()
    else:
        answer = {"outcome": outcome, "version": (await study.call(Study.status)).version}
        outcome += f", version {answer['version']} is in use,"
    LOG.info("study %r: %s by %r: %s", study.study.name, outcome, actor, reason)
    return as_json(answer)


def _step(step: Step, outcome: str, says: str, scope: str = "admin") -> None:
    """Add the route of a method of a study that takes who does it, and why."""

    async def handler(api: Api, study: OpenedStudy, key: Key, body: bodies.SignedRequest) -> Response:
        return await _do(study, body, key, outcome, step)

    handler.__name__, handler.__doc__ = step.__name__, says
    route(scope, (bodies.SignedRequest,), (bodies.OutcomeBody,))(handler)


_step(Study.dismiss, "dismissed", "Drop the candidate that awaits approval.")
_step(Study.pin, "pinned", "Keep the version in use: updates are refused until unpin.")
_step(Study.unpin, "unpinned", "Allow updates again.")
_step(Study.look, "taken", "Take the next planned look of a trial, and freeze it on record.", "look")
_step(Study.repair_clock, "repaired", "Let the record's time pass again after a wrong clock, or confirm the clock.")


def _remove_abandoned() -> None:
    """Remove the temporary files of services that have ended."""
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), f"{TEMPORARY}*-*")):
        number = folder.rpartition(TEMPORARY)[2].partition("-")[0]
        ended = os.path.isdir("/proc/self") and not os.path.isdir(f"/proc/{number}")
        if number.isdecimal() and (ended or int(number) == os.getpid()):
            shutil.rmtree(folder, ignore_errors=True)


def page(text: str) -> Response:
    """Return a page as a response."""
    return Response(text, media_type="text/html", headers=PAGE_HEADERS)


def analysis_of(study: Study) -> str:
    """Return the page of a trial's analysis, or of the reason why it has none."""
    try:
        return html_of(study.analysis(), study=study.name, live=True)
    except errors.InvalidStudy as refusal:
        return html_of(None, study=study.name, refused=str(refusal), live=True)


# --- the application


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
) -> Callable[[HttpRequest], Awaitable[Response]]:
    name = route.name

    async def answer(request: HttpRequest) -> Response:
        """Return the answer of the route, or why it is refused, within the limit of time; count and log it."""
        begun, id = time.perf_counter(), request.headers.get("x-request-id", "")
        if not (id.isascii() and id.isprintable() and 0 < len(id) <= 200):
            id = f"{_IDS.getrandbits(64):016x}"
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


async def _handled(api: Api, keys: KeyFile | None, route: Handler, request: HttpRequest) -> Response:
    """Check the key, read the body and call the handler; the request's state has the study's meters and the key."""
    study = request.path_params.get("name")
    if route.scope == PUBLIC:
        return await route.handler(api)
    key = caller_of(keys, request, route.scope, study)
    request.state.key = key.name
    if route.name == "backup" and key.studies is not None:
        raise Refusal(403, "a backup holds all studies, and the key is for some of them.", "StudyNotAllowed")
    if study is None:
        return await route.handler(api, key)
    opened = await api.opened(study)
    request.state.meters = opened.meters
    place = {name: value for name, value in request.path_params.items() if name != "name"}
    if not route.takes:
        return await route.handler(api, opened, key, **place)
    body = await bodies.read_body(request, route.takes, api.limits.body)
    request.state.decision = vars(body).get("id") or ""
    several = bodies.listed(body, "requests", "rewards")
    if keys is not None and several:
        keys.charge(key, len(several) - 1)
    return await route.handler(api, opened, key, body, **place)


def _client_of(request: HttpRequest, proxies: Sequence[str]) -> str:
    """Return the address of the client: what a trusted proxy reports, from the end on, up to one that is none."""
    address = request.client.host if request.client else ""
    for each in reversed(request.headers.get("x-forwarded-for", "").split(",")):
        if address not in proxies or not each.strip():
            break
        address = each.strip()[:60]
    return address


def _log_request(request: HttpRequest, status: int, seconds: float, id: str, proxies: Sequence[str]) -> None:
    """Log a request, with its path as it was sent; neither its headers nor its body."""
    path = request.scope.get("raw_path", b"").decode("ascii", "replace")
    fields = {"method": request.method, "path": path, "status": status, "milliseconds": round(seconds * 1e3, 2)}
    fields |= {"client": _client_of(request, proxies), "key": getattr(request.state, "key", ""), "request": id}
    fields |= {"decision": getattr(request.state, "decision", "")}
    REQUESTS.info(" ".join(str(value) or "-" for value in fields.values()), extra={"fields": fields})


async def _answer_error(request: HttpRequest, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the router, which found no route
        request.app.state.meters.count("rarely_requests_total", route="none", status=str(error.status_code))
        headers = dict(error.headers or {})
        here = f"; it takes {headers['Allow']}" if "Allow" in headers else ""
        said = f"there is no {request.method} {request.url.path[:200]}{here}. /openapi.json lists paths and methods."
        return response_of(Refusal(error.status_code, said, headers=headers))
    if not isinstance(error, RarelyError):
        LOG.error("a request failed", exc_info=error)
    return response_of(error)


# --- OpenAPI


def describe_api() -> dict[str, Any]:
    """Return all routes, and the models of their bodies, as OpenAPI describes them."""
    schemas: dict[str, Any] = {}
    models = {model for route in ROUTES for model in (*route.takes, *route.gives)} | {bodies.ProblemBody}
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
    problem = {
        "description": "Why the request was refused.",
        "content": {bodies.MEDIA: {"schema": _any((bodies.ProblemBody,))}},
    }
    refused = ["404", "405", "422", "503"] + (["401", "403", "421", "429"] if route.scope != PUBLIC else [])
    refused += ["400", "409", "413", "415"] if route.takes else []
    schema = _any(route.gives) if route.gives else {} if route.media == "application/json" else {"type": "string"}
    answer = {"description": "The answer.", "content": {route.media: {"schema": schema}}}
    responses = {"200": answer} | {code: problem for code in sorted(refused)}
    responses |= {"202": answer} if route.name == "activate" else {}
    responses |= {"303": {"description": "It was done; see the page."}} if route.name == "act" else {}
    responses |= {"503": answer} if route.path.startswith("/health") else {}
    name = route.name if route.path != "/health" else "health"
    operation: dict[str, Any] = {"operationId": name, "description": getdoc(route.handler), "responses": responses}
    if places := re.findall(r"{(\w+)}", route.path):
        text = {"in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [{"name": name, **text} for name in places]
    if route.scope != PUBLIC:
        operation["security"] = [{"key": [route.scope]}]
    if route.takes:
        content = {bodies.media_of(route.takes): {"schema": _any(route.takes)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _any(models: tuple[type[Any], ...]) -> dict[str, Any]:
    places = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    return places[0] if len(places) == 1 else {"anyOf": places}
