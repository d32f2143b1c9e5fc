"""The handlers of all routes: the API, and the pages for people."""

from __future__ import annotations

import asyncio
import glob
import hmac
import json
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response, StreamingResponse

from rarely.errors import RarelyError
from rarely.pages.page import render
from rarely.service import bodies
from rarely.service.access import Key, KeyFile, name_of
from rarely.service.bodies import (
    ActivateRequest,
    CloseRequest,
    DecideRequest,
    OutcomeBody,
    Refusal,
    RewardRequest,
    SignedRequest,
)
from rarely.service.metrics import Meters, exposition, free_bytes, process_lines, sample
from rarely.service.opened import OpenedStudies, OpenedStudy
from rarely.service.writer import Call, ServiceLimits
from rarely.study import (
    Answer,
    BrokenStudy,
    InvalidStudy,
    Receipt,
    Request,
    Status,
    Study,
    Tell,
    UnknownStudy,
    Verification,
)
from rarely.study.reports import html_of
from rarely.study.versions import UNLIMITED

LOG = logging.getLogger("rarely.service")
PUBLIC = ""
"""The scope of a route that needs no key."""
STUDY = "/v1/studies/{name}"
STALL = 5.0
"""Seconds without an answer of the database, or since it refused to write, in which the service is not ready."""
PROBE_WAIT = 0.8
"""Seconds that a probe of readiness waits for the database; Kubernetes waits for one second."""
MIN_FREE = 64 << 20
"""Free bytes below which the disk of an SQLite file counts as full."""
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""A page loads nothing and runs no script."""
TEMPORARY = "rarely-backup-"
"""How folders begin in which a backup is written; the number of the process follows."""
Step = Callable[..., Any]
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
    takes: tuple[type[BaseModel], ...]
    """Models of the body, the one of a single request first."""
    gives: tuple[type[Any], ...]

    @property
    def name(self) -> str:
        """The name of the route in logs and metrics."""
        return self.handler.__name__


ROUTES: list[Handler] = []
"""All routes; `/openapi.json` has the scope of each as its security."""


def route(
    method: str, path: str, scope: str, takes: tuple[type[BaseModel], ...] = (), gives: tuple[type[Any], ...] = ()
) -> Callable[[Callable[..., Awaitable[Response]]], Any]:
    """Add a method of `Api` to the routes of the service."""

    def add(handler: Callable[..., Awaitable[Response]]) -> Any:
        ROUTES.append(Handler(method, path, scope, handler, takes, gives))
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
        self._secret = secrets.token_bytes(32)  # of forms, where there are no keys

    def _visible(self, key: Key | None) -> list[OpenedStudy]:
        return [each for each in self.studies.all() if key is None or key.covers(each.study.name)]

    def _broken(self, key: Key | None) -> list[str]:
        return [name for name in list(self.studies.broken) if key is None or key.covers(name)]

    async def opened(self, name: str) -> OpenedStudy:
        opened = self.studies.opened(name)
        return await run_in_threadpool(self.studies.open, name) if opened is None else opened

    # --- decisions and rewards

    @route("POST", f"{STUDY}/decide", "decide", (DecideRequest, bodies.DecideRequests), (Answer, *bodies.DECIDED))
    async def decide(self, study: OpenedStudy, key: Key | None, body: Any) -> Response:
        """Decide one request, or many in one commit; each id is decided once."""
        requests = [self._request(each, name_of(key)) for each in getattr(body, "requests", [body])]
        return await self._submit(study, requests, "answers" if hasattr(body, "requests") else "")

    @route("POST", f"{STUDY}/reward", "reward", (RewardRequest, bodies.RewardRequests), (Receipt, *bodies.REWARDED))
    async def reward(self, study: OpenedStudy, key: Key | None, body: Any) -> Response:
        """Record one reward, or many in one commit; repeating it changes nothing."""
        rewards, by = getattr(body, "rewards", [body]), name_of(key)
        tells = [Tell(each.id, each.reward, each.key, by, each.arm, each.reason, each.seen) for each in rewards]
        return await self._submit(study, tells, "receipts" if hasattr(body, "rewards") else "")

    def _request(self, body: DecideRequest, caller: str) -> Request:
        contexts = body.asked
        # By the schema the items of a list are all rows or all numbers.
        rows = isinstance(contexts, list) and bool(contexts) and isinstance(contexts[0], list)
        arms = contexts.get("items", contexts) if isinstance(contexts, dict) else contexts
        if len(arms) > self.limits.arms and (rows or isinstance(contexts, dict)):
            detail = f"a decision may have at most {self.limits.arms} arms; got {len(arms)}."
            raise Refusal(422, detail, "InvalidContexts")
        if rows and len(set(map(len, contexts))) == 1:
            contexts = np.array(contexts, np.float64)  # the study checks an array faster than lists
        worth = body.worth.model_dump() if isinstance(body.worth, BaseModel) else body.worth
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

    @route("POST", f"{STUDY}/activate", "admin", (ActivateRequest,), (OutcomeBody,))
    async def activate(self, study: OpenedStudy, key: Key | None, body: ActivateRequest) -> Response:
        """Change the version in use: train the next one, approve the candidate, or roll back.

        A training continues after the answer (202); `status` says when its version decides.
        """
        if body.version == "next":
            study.trainer.start(force=body.force, actor=name_of(key) or "service", reason=body.reason)
            status: Status = await run_in_threadpool(study.status)
            return as_json({"outcome": "training", "version": status.version}, 202)
        if body.version == "candidate":
            return await _do(study, body, key, "version", Study.approve)
        return await _do(study, body, key, "version", Study.rollback, body.version)

    # --- audits, while others decide

    @route("GET", f"{STUDY}/verify", "admin", gives=(Verification,))
    async def verify(self, study: OpenedStudy, _: Key | None) -> Response:
        """Check the whole record; `flaw` says what is wrong."""
        return as_json(asdict(await run_in_threadpool(study.watched, lambda: study.study.verify())))

    @route("GET", f"{STUDY}/backup", "admin")
    async def backup(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return a copy of the whole database, with all its studies, as an SQLite file."""
        if self._backup.locked():
            raise Refusal(429, "a backup is being made.", "Overloaded", headers={"Retry-After": "60"})
        async with self._backup:
            return await run_in_threadpool(_file, study, "backup.db", Study.backup)

    @route("GET", f"{STUDY}/export", "admin")
    async def export(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return all decisions with id, time, stage, actor, probabilities and rewards as CSV."""
        parts = study.watched(study.study.csv_text)
        begun = await run_in_threadpool(next, parts, "")  # what refuses it is said before the answer begins
        name = f'attachment; filename="{quote(study.study.name)}-export.csv"'
        return StreamingResponse(chain([begun], parts), media_type="text/csv", headers={"Content-Disposition": name})

    # --- state

    @route("GET", f"{STUDY}/status", "read", gives=(Status,))
    async def status(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return the state of the study."""
        status: Status = await run_in_threadpool(study.status)
        trainer = study.trainer
        return as_json(status.describe() | {"training": trainer.under_way, "training_error": trainer.last_error})

    @route("GET", f"{STUDY}/schema", "decide")
    async def schema(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return the JSON schema of a request for one decision of this study, by its columns if it has tables."""
        return as_json(study.study.request_schema())

    @route("GET", f"{STUDY}/versions", "read", gives=(bodies.VersionsBody,))
    async def versions(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return the published versions: parent, log range, settings, environment and SHA-256."""
        versions = await run_in_threadpool(study.watched, study.study.versions)
        return as_json({"versions": [version.describe() for version in versions]})

    @route("GET", "/metrics", "read")
    async def metrics(self, key: Key | None) -> Response:
        """Return counters, gauges and histograms of the key's studies and of the process, as Prometheus reads them."""
        problems, free = await self._problems(STALL), free_bytes(self._storage)
        lines = [line for each in self._visible(key) for line in each.metrics()]
        lines += [sample("rarely_healthy", 0, study=name) for name in self._broken(key)]
        lines += [*self.meters.lines(), *process_lines(), sample("rarely_ready", int(not problems))]
        lines.append(sample("rarely_keys_valid", int(self._keys is None or not self._keys.failure)))
        lines += [] if free is None else [sample("rarely_storage_free_bytes", free)]
        return Response(exposition(lines), media_type="text/plain; version=0.0.4")

    @route("GET", "/health/live", PUBLIC, gives=(bodies.HealthBody,))
    async def live(self) -> Response:
        """Return 200 while the process may work: start it again if it does not. Needs no key."""
        stopped = ["a study works again only in a new process"] * any(each.stopped for each in self.studies.all())
        return as_json({"status": "failed" if stopped else "ok", "problems": stopped}, 503 if stopped else 200)

    @route("GET", "/health", PUBLIC, gives=(bodies.HealthBody,))
    @route("GET", "/health/ready", PUBLIC, gives=(bodies.HealthBody,))
    async def ready(self) -> Response:
        """Return whether all studies can decide; 503 if requests should go elsewhere. Needs no key, names none."""
        problems = await self._problems(PROBE_WAIT)
        return as_json({"status": "failed" if problems else "ok", "problems": problems}, 503 if problems else 200)

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
                with suppress(BrokenStudy, UnknownStudy):  # the others can be served
                    each.status()
                read += 1
        return read == len(studies)

    # --- pages for people

    @route("GET", "/", "read")
    async def index(self, key: Key | None) -> Response:
        """Return the page of all studies that the key covers."""
        names = [name for name in self.studies.opening if key is None or key.covers(name)]
        broken = [(name, "is being opened; the log says how far it is") for name in names]
        broken += [(name, "is not served; the log says why") for name in self._broken(key)]
        statuses = []
        for each in self._visible(key):
            try:
                statuses.append(await run_in_threadpool(each.status))
            except UnknownStudy:
                continue  # it was deleted
            except RarelyError:
                broken.append((each.study.name, "cannot be read now; the log says why"))
        shown: dict[str, Any] = {"studies": statuses, "broken": broken, "unlimited": UNLIMITED}
        return page(render("rarely.service", "index.html", **shown))

    @route("GET", "/studies/{name}", "read")
    async def dashboard(self, study: OpenedStudy, key: Key | None) -> Response:
        """Return the dashboard of a study, with buttons for a key with the scope `admin`."""
        token = self._token(study, key) if key is None or "admin" in key.scopes else ""
        return page(await run_in_threadpool(study.page, token))

    @route("POST", "/studies/{name}/act", "admin", (bodies.ActRequest,))
    async def act(self, study: OpenedStudy, key: Key | None, body: bodies.ActRequest) -> Response:
        """Do what a button of the dashboard says, and lead back to it."""
        if not hmac.compare_digest(body.token, self._token(study, key)):
            raise Refusal(403, "the page is not of this service and key; load it again.", "WrongToken")
        arguments = []
        if body.act == "rollback":
            if not body.version.isdecimal():
                raise Refusal(422, f"choose a version to roll back to; got {body.version[:40]!r}.", "InvalidBody")
            arguments = [int(body.version[:18])]
        await _do(study, body, key, body.act, getattr(Study, body.act), *arguments)
        return Response(status_code=303, headers={"Location": f"../{quote(study.study.name)}"})

    def _token(self, study: OpenedStudy, key: Key | None) -> str:
        """Return what a page of a study holds for the forms of a key: another site knows neither key nor secret."""
        secret = self._secret if key is None else bytes.fromhex(key.hash)
        return hmac.new(secret, f"act/{study.study.name}".encode(), "sha256").hexdigest()

    @route("GET", "/studies/{name}/analysis", "read")
    async def analysis(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return the analysis of a trial as a page, or why it has none."""
        return page(await run_in_threadpool(study.watched, lambda: analysis_of(study.study)))

    @route("GET", "/studies/{name}/blinded", "blinded")
    async def blinded(self, study: OpenedStudy, _: Key | None) -> Response:
        """Return counts, looks and deviations of a trial without arms, for those who must not know them."""
        text = await run_in_threadpool(study.watched, lambda: study.study.analysis().blinded())
        return Response(text, media_type="text/plain", headers=PAGE_HEADERS)

    @route("POST", f"{STUDY}/close", "approve", (CloseRequest,), (OutcomeBody,))
    async def close(self, study: OpenedStudy, key: Key | None, body: CloseRequest) -> Response:
        """Give an arm, or the trial, no further patients: the caller and a second person agree, each by a key."""
        second = None if self._keys is None else self._keys.find(body.approval.get_secret_value())
        if second is None or "approve" not in second.scopes or not second.covers(study.study.name):
            detail = "approval must be the key of a second person with the scope 'approve', who covers the study."
            raise Refusal(403, detail, "ApprovalNeeded")
        step = partial(Study.close_enrolment if body.arm is None else Study.close_arm, approved_by=second.name)
        return await _do(study, body, key, "closed", step, *([] if body.arm is None else [body.arm]))

    @route("GET", "/openapi.json", PUBLIC)
    async def openapi(self) -> Response:
        """Return the description of the API for programs."""
        return as_json(self._schema)


async def _do(study: OpenedStudy, body: Any, key: Key | None, outcome: str, step: Step, *arguments: Any) -> Response:
    """Take a step with the study in another thread, and return its outcome and the version in use."""
    signed = {"actor": name_of(key) or "service", "reason": body.reason}
    await run_in_threadpool(study.watched, lambda: step(study.study, *arguments, **signed))
    status = await run_in_threadpool(study.watched, lambda: study.study.status())
    said = (outcome, status.version, signed["actor"], body.reason or "no reason given")
    LOG.info("study %r: %s, version %d is in use, by %r: %s", study.study.name, *said)
    return as_json({"outcome": outcome, "version": status.version})


def _step(step: Step, outcome: str, says: str, scope: str = "admin") -> None:
    """Add the route of a method of a study that takes who does it, and why."""

    async def handler(api: Api, study: OpenedStudy, key: Key | None, body: SignedRequest) -> Response:
        return await _do(study, body, key, outcome, step)

    handler.__name__, handler.__doc__ = step.__name__, says
    route("POST", f"{STUDY}/{step.__name__.replace('_', '-')}", scope, (SignedRequest,), (OutcomeBody,))(handler)


_step(Study.dismiss, "dismissed", "Drop the candidate that awaits approval.")
_step(Study.pin, "pinned", "Keep the version in use: updates are refused until unpin.")
_step(Study.unpin, "unpinned", "Allow updates again.")
_step(Study.look, "taken", "Take the next planned look of a trial, and freeze it on record.", "look")
_step(Study.repair_clock, "repaired", "Let the record's time pass again after a wrong clock, or confirm the clock.")


def _file(study: OpenedStudy, name: str, write: Callable[[Study, str], Any]) -> Response:
    """Return what a method of the study writes to a file, which is removed when it was sent."""
    folder = tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-")
    remove = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    try:
        study.watched(lambda: write(study.study, os.path.join(folder, name)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return FileResponse(os.path.join(folder, name), filename=f"{study.study.name}-{name}", background=remove)


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
    except InvalidStudy as refusal:
        return html_of(None, study=study.name, refused=str(refusal), live=True)
