"""The routes of the API: what each takes, gives and needs."""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import Request as HttpRequest
from fastapi import Response
from starlette.concurrency import run_in_threadpool

from rarely.core.errors import RarelyError
from rarely.service import schemas
from rarely.service.bodies import read_json, validated
from rarely.service.limits import Limits
from rarely.service.opened import OpenedStudies, OpenedStudy
from rarely.service.problems import Refusal, describe, response_of
from rarely.study import Answer, Receipt, Request, StudyClosed, Tell

JSON = "application/json"
_TEXT = json.encoder.encode_basestring_ascii
_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
Handler = Callable[[HttpRequest, str, str], Awaitable[Response]]
"""A handler is given the request, the study's name and the caller's."""


def as_json(value: Any, status: int = 200) -> Response:
    """An answer."""
    return Response(_ENCODE(value), status, media_type=JSON)


def answer_text(answer: Answer) -> str:
    """A decision as JSON, formatted without an encoder.

    >>> answer_text(Answer("visit-1", "red", 0, 0.5, 1, 7, "main", 9, 17))
    '{"id":"visit-1","arm":"red","index":0,"probability":0.5,"version":1,"round":7,"stage":"main","seq":9,"time":17}'
    """
    arm = _TEXT(answer.arm) if isinstance(answer.arm, str) else answer.arm
    return (
        f'{{"id":{_TEXT(answer.id)},"arm":{arm},"index":{answer.index},"probability":{answer.probability!r},'
        f'"version":{answer.version},"round":{answer.round},"stage":{_TEXT(answer.stage)},"seq":{answer.seq},'
        f'"time":{answer.time}}}'
    )


class Api:
    """The handlers, over the studies of a service."""

    def __init__(self, studies: OpenedStudies, limits: Limits) -> None:
        self.studies, self.limits = studies, limits

    async def study(self, name: str) -> OpenedStudy:
        """A study by its name."""
        known = self.studies.known(name)
        return await run_in_threadpool(self.studies.open, name) if known is None else known

    # --- decisions and rewards

    async def decide(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Decide one request, or many in one commit; each id is decided once."""
        study, body = await self.study(name), await read_json(http, self.limits.body)
        if isinstance(body, dict) and "requests" in body:
            many = validated(schemas.DecideRequests, body).requests
            answers = await self._answers(study, caller, [self._request(each) for each in many])
            return as_json({"answers": [_described(answer) for answer in answers]})
        one = self._request(validated(schemas.DecideRequest, body))
        return _single((await self._answers(study, caller, [one]))[0])

    async def reward(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Tell one reward, or many in one commit; the same again changes nothing."""
        study, body = await self.study(name), await read_json(http, self.limits.body)
        if isinstance(body, dict) and "rewards" in body:
            many = validated(schemas.RewardRequests, body).rewards
            receipts = await self._answers(study, caller, [_tell(each) for each in many])
            return as_json({"receipts": [_described(receipt) for receipt in receipts]})
        one = _tell(validated(schemas.RewardRequest, body))
        return _single((await self._answers(study, caller, [one]))[0])

    def _request(self, given: schemas.DecideRequest) -> Request:
        if len(given.contexts) > self.limits.arms and not _is_row(given.contexts):
            raise Refusal(
                422,
                f"a decision may have at most {self.limits.arms} arms; got {len(given.contexts)}.",
                code="InvalidContexts",
            )
        return Request(_as_array(given.contexts), given.id, given.available)

    async def _answers(self, study: OpenedStudy, caller: str, calls: list[Any]) -> list[Any]:
        if len(calls) > self.limits.items:
            raise Refusal(
                413, f"a request may hold at most {self.limits.items} items; got {len(calls)}.", code="TooMany"
            )
        try:
            return await study.submit(caller, calls)
        except Refusal as refusal:
            study.meters.refuse(refusal.status)
            raise

    # --- versions

    async def activate(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Let another version decide: train the next one, approve the candidate, or roll back.

        A training goes on after the answer (202); `status` tells when its version decides.
        """
        study, body = await self.study(name), await read_json(http, self.limits.body)
        given = validated(schemas.ActivateRequest, body)
        fields = {"actor": caller or "service", "reason": given.reason}
        if given.version == "next":
            study.trainer.start(force=given.force, **fields)
            return as_json({"outcome": "training", "version": (await self._status(study)).version}, 202)
        if given.version == "candidate":
            await self._do(study, lambda: study.study.approve(**fields))
        else:
            number = given.version
            await self._do(study, lambda: study.study.rollback(number, **fields))
        return await self._outcome(study, "version")

    async def dismiss(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Drop the candidate that waits for approval."""
        return await self._steer(http, name, caller, "dismiss", "dismissed")

    async def pin(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Keep the version in use: updates are refused until unpin."""
        return await self._steer(http, name, caller, "pin", "pinned")

    async def unpin(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Allow updates again."""
        return await self._steer(http, name, caller, "unpin", "unpinned")

    async def shadow(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Score a version beside the one in use; it never affects an answer."""
        study, body = await self.study(name), await read_json(http, self.limits.body)
        given = validated(schemas.ShadowRequest, body)
        fields = {"actor": caller or "service", "reason": given.reason}
        await self._do(study, lambda: study.study.shadow(given.version, **fields))
        return await self._outcome(study, "no shadow" if given.version is None else "shadow")

    async def _steer(self, http: HttpRequest, name: str, caller: str, verb: str, outcome: str) -> Response:
        study, body = await self.study(name), await read_json(http, self.limits.body)
        given = validated(schemas.SignedRequest, body)
        fields = {"actor": caller or "service", "reason": given.reason}
        await self._do(study, lambda: getattr(study.study, verb)(**fields))
        return await self._outcome(study, outcome)

    async def _do(self, study: OpenedStudy, work: Callable[[], Any]) -> Any:
        return await run_in_threadpool(study.watched, work)

    async def _outcome(self, study: OpenedStudy, outcome: str) -> Response:
        status = await self._do(study, study.study.status)
        return as_json({"outcome": outcome, "version": status.version})

    # --- what a study says about itself

    async def _status(self, study: OpenedStudy) -> Any:
        return await run_in_threadpool(study.status)

    async def status(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Where the study stands."""
        study = await self.study(name)
        said = (await self._status(study)).describe()
        trainer = study.trainer
        return as_json(said | {"training": trainer.under_way, "training_error": trainer.last_error})

    async def versions(self, http: HttpRequest, name: str, caller: str) -> Response:
        """The published versions: parent, log range, settings, seed, environment and SHA-256."""
        study = await self.study(name)
        rows = [asdict(row) for row in await self._do(study, study.study.versions)]
        for row in rows:
            row |= {field: json.loads(row[field]) for field in ("settings", "seed", "environment")}
        return as_json({"versions": rows})

    async def health(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Whether the service can decide; 503 if a study cannot. Needs no key."""
        problems = {
            each.study.name: each.failure or "the writer has ended"
            for each in self.studies.all()
            if each.failure or not each.writer.alive
        }
        return as_json({"status": "failed" if problems else "ok", "problems": problems}, 503 if problems else 200)

    async def metrics(self, http: HttpRequest, name: str, caller: str) -> Response:
        """Counters and numbers of all studies, as Prometheus reads them."""
        lines: list[str] = []
        for each in self.studies.all():
            try:
                lines += await run_in_threadpool(each.metrics)
            except StudyClosed:
                continue
            except RarelyError:
                lines.append(f"# {each.study.name}: no status can be read; see /health")
        return Response("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")


def _tell(given: schemas.RewardRequest) -> Tell:
    return Tell(given.id, given.reward, given.key)


def _as_array(contexts: Any) -> Any:
    """Rows of equal length as an array, which the study checks faster than lists; others as they are."""
    # The schema has seen to it that the items of a list are all rows or all numbers.
    rows = isinstance(contexts, list) and bool(contexts) and isinstance(contexts[0], list)
    return np.array(contexts, np.float64) if rows and len(set(map(len, contexts))) == 1 else contexts


def _is_row(contexts: Any) -> bool:
    """One row of numbers, of which blocks make contexts."""
    return isinstance(contexts, list) and bool(contexts) and not isinstance(contexts[0], list)


def _single(found: Answer | Receipt | RarelyError) -> Response:
    if isinstance(found, RarelyError):
        return response_of(found)
    return Response(answer_text(found) if isinstance(found, Answer) else _ENCODE(_described(found)), media_type=JSON)


def _described(found: Answer | Receipt | RarelyError) -> dict[str, Any]:
    if isinstance(found, RarelyError):
        return describe(found)
    return {name: getattr(found, name) for name in found.__slots__}
