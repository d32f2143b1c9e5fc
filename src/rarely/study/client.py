"""A client of `rarely serve`, with the verbs of a study and nothing but the standard library.

A request that may be repeated is repeated: the client makes the id of a decision before it asks, so that the answer of
a repeated request is the first one. A reward that cannot be delivered is kept in a file, and delivered later.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from rarely.core import errors as core_errors
from rarely.core.errors import InvalidInput, RarelyError, check_positive, check_whole
from rarely.study import errors as study_errors
from rarely.study.decisions import Answer
from rarely.study.deliveries import Receipt, Tell, read_tell
from rarely.study.errors import ServiceUnavailable
from rarely.study.requests import Request
from rarely.study.spool import Spool
from rarely.study.texts import check_id, new_id

AGAIN = (429, 502, 503, 504)
"""Answers after which a request is repeated."""
LONGEST_PAUSE = 30.0
TOGETHER = 500
"""Rewards of the spool that are sent in one request."""


class Client:
    """A study that is served elsewhere.

    Parameters
    ----------
    url
        Of the service: "http://127.0.0.1:8000".
    study
        The name of the study.
    key
        An API key, where the service asks for one.
    timeout
        Seconds that one attempt may take.
    retries
        How often a request is repeated that was not answered, or answered with 429, 502, 503 or 504.
    backoff
        Seconds before the first repetition; then twice as long each time, up to 30. Each pause is drawn between half of
        that and all of it, so that many clients do not come back together. `Retry-After` is waited for if it is longer.
    spool
        A file for rewards that cannot be delivered; `flush` delivers them. It belongs to one process.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8000", "colours", retries=0)
    >>> client.ask([[1.0, 0.0], [0.0, 1.0]], id="visit-1")  # doctest: +SKIP
    Answer(id='visit-1', arm='red', index=0, probability=1.0, version=0, round=1, stage='main', seq=2, time=…)
    >>> client.tell("visit-1", 1.0)  # doctest: +SKIP
    Receipt(id='visit-1', status='accepted', reason='', seq=3)
    """

    def __init__(
        self,
        url: str,
        study: str,
        *,
        key: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
        backoff: float = 0.1,
        spool: str | os.PathLike[str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"url must be http://host:port or https://host; got {url!r}.")
        check_positive("timeout", timeout, "the seconds that one attempt may take")
        check_positive("backoff", backoff, "the seconds before the first repetition")
        check_whole("retries", retries, 0)
        self._parts, self._timeout, self._retries, self._backoff = parts, timeout, retries, backoff
        self._base = f"{parts.path.rstrip('/')}/v1/studies/{quote(check_id(study, 'the name of a study'), safe='')}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._spool = None if spool is None else Spool(spool)
        self._own = threading.local()

    # --- the verbs

    def ask(self, contexts: Any, id: str | None = None, *, available: Any = None) -> Answer:
        """Decide, once for each id; see `Study.ask`."""
        body = _request_body(Request(contexts, id, available))
        return Answer(**self._send("POST", "decide", body))

    def ask_many(self, requests: Iterable[Request | tuple[Any, ...]]) -> list[Answer | RarelyError]:
        """Decide many requests in one commit; the place of a refused one holds its error."""
        bodies = [_request_body(Request(*request)) for request in requests]
        found = self._send("POST", "decide", {"requests": bodies})["answers"] if bodies else []
        return [Answer(**each) if "arm" in each else _error_of(each) for each in found]

    def tell(self, id: str, reward: float, *, key: str | None = None) -> Receipt:
        """Tell a reward: now, late, or again; see `Study.tell`.

        With a spool a reward that cannot be delivered is kept, and the receipt has the status "spooled".
        """
        tell = Tell(id, reward, key)
        try:
            return Receipt(**self._send("POST", "reward", _tell_body(tell)))
        except ServiceUnavailable as error:
            if self._spool is None:
                raise
            self._spool.add(_tell_body(tell))
            return Receipt(id, "spooled", str(error), 0)

    def tell_many(self, tells: Iterable[Tell | tuple[Any, ...]]) -> list[Receipt | RarelyError]:
        """Tell many rewards in one commit; the place of a refused one holds its error."""
        bodies = [_tell_body(Tell(*tell)) for tell in tells]
        return self._deliver(bodies) if bodies else []

    def flush(self) -> list[Receipt | RarelyError]:
        """Deliver what the spool holds; a receipt or an error for each reward.

        A reward that the service refuses leaves the spool too: it would be refused for ever. It is written to a file
        beside the spool whose name ends in .refused.
        """
        done: list[Receipt | RarelyError] = []
        while self._spool is not None and (waiting := self._spool.first(TOGETHER)):
            receipts = self._deliver(waiting)
            refused = [
                body | {"error": str(receipt)}
                for body, receipt in zip(waiting, receipts, strict=True)
                if isinstance(receipt, RarelyError)
            ]
            self._spool.drop(len(waiting), refused)
            done += receipts
        return done

    @property
    def spooled(self) -> int:
        """Rewards that wait in the spool."""
        return 0 if self._spool is None else len(self._spool)

    def status(self) -> dict[str, Any]:
        """Where the study stands."""
        return dict(self._send("GET", "status"))

    def versions(self) -> list[dict[str, Any]]:
        """The published versions."""
        return list(self._send("GET", "versions")["versions"])

    def activate(self, version: int | str, *, force: bool = False, reason: str = "") -> dict[str, Any]:
        """Let another version decide: "next" trains one, "candidate" approves one, a number rolls back to one."""
        # A training that is asked for twice would be refused the second time, so this is not repeated.
        body = {"version": version, "force": force, "reason": reason}
        return dict(self._send("POST", "activate", body, repeat=False))

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- how they are sent

    def _deliver(self, bodies: Sequence[Mapping[str, Any]]) -> list[Receipt | RarelyError]:
        found = self._send("POST", "reward", {"rewards": list(bodies)})["receipts"]
        return [Receipt(**each) if "seq" in each else _error_of(each) for each in found]

    def _send(self, method: str, verb: str, body: Any = None, *, repeat: bool = True) -> Any:
        data = None if body is None else _encoded(body)
        pause, least, why = self._backoff, 0.0, ""
        for attempt in range(self._retries + 1 if repeat else 1):
            if attempt:
                time.sleep(max(pause * random.uniform(0.5, 1.0), least))
                pause = min(2 * pause, LONGEST_PAUSE)
            try:
                status, headers, said = self._once(method, f"{self._base}/{verb}", data)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why, least = f"{type(error).__name__}: {error}", 0.0
                continue
            if status not in AGAIN:
                return _content_of(status, said)
            why, least = _detail_of(status, said), _seconds_of(headers.get("Retry-After"))
        raise ServiceUnavailable(
            f"{self._parts.netloc} did not take the request ({why}). Is rarely serve running? The same request with "
            "the same id may be repeated."
        )

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, Any, bytes]:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            assert self._parts.hostname is not None
            connection = self._own.connection = kind(self._parts.hostname, self._parts.port, timeout=self._timeout)
        connection.request(method, path, data, self._headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()


def _request_body(request: Request) -> dict[str, Any]:
    contexts, available = request.contexts, request.available
    contexts = contexts.tolist() if hasattr(contexts, "tolist") else contexts
    if isinstance(contexts, Mapping):
        contexts = {name: each.tolist() if hasattr(each, "tolist") else each for name, each in contexts.items()}
    body = {"id": new_id() if request.id is None else check_id(request.id), "contexts": contexts}
    return body if available is None else body | {"available": list(available)}


def _tell_body(tell: Tell) -> dict[str, Any]:
    checked = read_tell(tell)
    body = {"id": checked.id, "reward": checked.value}
    return body if tell.key is None else body | {"key": tell.key}


def _encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"contexts must be lists or arrays of finite numbers ({error}).") from None


def _content_of(status: int, said: bytes) -> Any:
    try:
        content = json.loads(said)
    except ValueError:
        raise ServiceUnavailable(f"the answer ({status}) is not that of rarely serve; check the url.") from None
    if 200 <= status < 300:
        return content
    raise _error_of(content)


def _error_of(problem: Any) -> RarelyError:
    """The error that the service tells of: of the same class where the library has it."""
    title, detail = str(problem.get("title", "")), str(problem.get("detail", problem))
    for module in (study_errors, core_errors):
        kind = getattr(module, title, None)
        if isinstance(kind, type) and issubclass(kind, RarelyError):
            return kind(detail)
    return study_errors.RequestRefused(f"{title}: {detail}")


def _detail_of(status: int, said: bytes) -> str:
    try:
        return f"{status}: {json.loads(said)['detail']}"
    except (ValueError, KeyError, TypeError):
        return str(status)


def _seconds_of(header: str | None) -> float:
    return min(float(header), LONGEST_PAUSE) if header is not None and header.isdigit() else 0.0
