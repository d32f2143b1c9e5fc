"""A client of `rarely serve` with the methods of a study; it needs only the standard library for HTTP.

Requests that may be repeated are retried: the client makes the id of a decision before it asks, so a repeated request
gets the answer of the first. A reward that cannot be delivered is kept in a file (the spool) and delivered later.
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

from rarely._core import errors as core_errors
from rarely._core.errors import InvalidInput, RarelyError, check_positive, check_whole, named_arguments, shown
from rarely._core.saving.files import path_of, replacing
from rarely.study import errors as study_errors
from rarely.study.decisions import Answer, Request
from rarely.study.errors import ServiceUnavailable
from rarely.study.events import check_id, new_id
from rarely.study.settings import RewardRule
from rarely.study.tell import Receipt, Tell, read_tell

RETRIED = (429, 502, 503, 504)
"""HTTP statuses after which a request is retried."""
MAX_PAUSE = 30.0
"""Seconds between two attempts, at most."""
REWARDS_PER_REQUEST = 500
"""Rewards of the spool that are sent in one request."""


class Spool:
    """A file of undelivered rewards, one line of JSON each, for the threads of one process."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()

    def add(self, body: dict[str, Any]) -> None:
        """Add a reward; it is on disk when this returns."""
        with self._lock:
            _append(self.path, [body])

    def first(self, count: int) -> list[dict[str, Any]]:
        with self._lock:
            return [json.loads(line) for line in self._lines()[:count]]

    def drop(self, count: int, refused: Sequence[dict[str, Any]] = ()) -> None:
        """Remove the oldest rewards; refused ones are moved to another file."""
        with self._lock:
            if refused:
                _append(f"{self.path}.refused", refused)
            rest = self._lines()[count:]
            with replacing(self.path) as file:
                file.writelines(rest)

    def __len__(self) -> int:
        with self._lock:
            return len(self._lines())

    def _lines(self) -> list[bytes]:
        try:
            with open(self.path, "rb") as file:
                lines = file.readlines()
        except FileNotFoundError:
            return []
        # A process killed while writing leaves half a line, whose `add` never returned.
        return [line for line in lines if line.endswith(b"\n")]


@named_arguments
class Client:
    """A study that `rarely serve` serves.

    Parameters
    ----------
    url, study
        The address of the service: "http://127.0.0.1:8000"; the name of the study.
    key, timeout
        An API key, if the service requires one; seconds that one attempt may take.
    retries
        How often a request is retried that was not answered, or answered with 429, 502, 503 or 504.
    backoff
        Seconds before the first retry, doubled for each further one, up to 30. Each pause is drawn between half of that
        and all of it, so that many clients do not retry at once. A longer `Retry-After` of the service is respected.
    spool
        A file for rewards that cannot be delivered; `flush` delivers them. Only one process may use it.

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
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"url must be http://host:port or https://host; got {shown(url)}.")
        if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable()):
            raise InvalidInput("key must be an API key, text of printable ASCII characters, or None.")
        check_positive("timeout", timeout, "the seconds that one attempt may take")
        check_positive("backoff", backoff, "the seconds before the first retry")
        check_whole("retries", retries, 0)
        self._parts, self._timeout, self._retries, self._backoff = parts, timeout, retries, backoff
        self._base = f"{parts.path.rstrip('/')}/v1/studies/{quote(check_id(study, 'the name of a study'), safe='')}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._spool = None if spool is None else Spool(path_of(spool))
        self._own = threading.local()

    # --- methods of a study

    def ask(self, contexts: Any, id: str | None = None, *, available: Any = None) -> Answer:
        """Decide, once for each id; see `Study.ask`."""
        body = _request_body(Request(contexts, id, available))
        return Answer(**self._send("POST", "decide", body))

    def ask_many(self, requests: Iterable[Request | tuple[Any, ...]]) -> list[Answer | RarelyError]:
        """Decide many requests in one commit; an error takes the place of the answer of a refused one."""
        bodies = [_request_body(Request(*request)) for request in requests]
        found = self._send("POST", "decide", {"requests": bodies})["answers"] if bodies else []
        return [Answer(**each) if "arm" in each else _error_of(each) for each in found]

    def tell(self, id: str, reward: Any, *, key: str | None = None, arm: Any = None, reason: str = "") -> Receipt:
        """Record a reward; see `Study.tell`.

        With a spool an undeliverable reward is kept in it, and the receipt has the status "spooled".
        """
        tell = Tell(id, reward, key, arm=arm, reason=reason)
        try:
            return Receipt(**self._send("POST", "reward", _tell_body(tell)))
        except ServiceUnavailable as error:
            if self._spool is None:
                raise
            self._spool.add(_tell_body(tell))
            return Receipt(id, "spooled", str(error), 0)

    def tell_many(self, tells: Iterable[Tell | tuple[Any, ...]]) -> list[Receipt | RarelyError]:
        """Record many rewards in one commit; an error takes the place of the receipt of a refused one."""
        bodies = [_tell_body(Tell(*tell)) for tell in tells]
        return self._deliver(bodies) if bodies else []

    def flush(self) -> list[Receipt | RarelyError]:
        """Deliver the rewards in the spool, and return a receipt or an error for each.

        A refused reward leaves the spool too, since it would be refused forever; it is moved to a file beside the spool
        whose name ends in .refused.
        """
        done: list[Receipt | RarelyError] = []
        while self._spool is not None and (waiting := self._spool.first(REWARDS_PER_REQUEST)):
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
        """The number of rewards in the spool."""
        return 0 if self._spool is None else len(self._spool)

    def status(self) -> dict[str, Any]:
        """Return the state of the study, as `rarely.study.Status` describes it."""
        return dict(self._send("GET", "status"))

    def versions(self) -> list[dict[str, Any]]:
        """Return the published versions."""
        return list(self._send("GET", "versions")["versions"])

    def activate(self, version: int | str, *, force: bool = False, reason: str = "") -> dict[str, Any]:
        """Change the version in use: "next" trains one, "candidate" approves one, a number rolls back to one."""
        # Not retried: a second request for the same training would be refused.
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

    # --- sending

    def _deliver(self, bodies: Sequence[Mapping[str, Any]]) -> list[Receipt | RarelyError]:
        found = self._send("POST", "reward", {"rewards": list(bodies)})["receipts"]
        return [Receipt(**each) if "seq" in each else _error_of(each) for each in found]

    def _send(self, method: str, verb: str, body: Any = None, *, repeat: bool = True) -> Any:
        try:
            data = None if body is None else json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"contexts must be lists or arrays of finite numbers ({error}).") from None
        pause, least, why = self._backoff, 0.0, ""
        for attempt in range(self._retries + 1 if repeat else 1):
            if attempt:
                time.sleep(max(pause * random.uniform(0.5, 1.0), least))
                pause = min(2 * pause, MAX_PAUSE)
            try:
                status, headers, said = self._once(method, f"{self._base}/{verb}", data)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why, least = f"{type(error).__name__}: {error}", 0.0
                continue
            try:
                content = json.loads(said)
            except ValueError:
                content = None
            if status not in RETRIED:
                if content is None:
                    raise ServiceUnavailable(f"the answer ({status}) does not come from rarely serve; check the url.")
                if not 200 <= status < 300:
                    raise _error_of(content)
                return content
            pause_asked = headers.get("Retry-After", "")
            least = min(float(pause_asked), MAX_PAUSE) if pause_asked.isdigit() else 0.0
            why = f"{status}: {content.get('detail', '')}" if isinstance(content, dict) else str(status)
        raise ServiceUnavailable(
            f"{self._parts.netloc} did not accept the request ({why}). Is rarely serve running? It is safe to repeat "
            "the request with the same id."
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
    outcomes = dict.fromkeys(tell.reward, 0.0) if isinstance(tell.reward, Mapping) and tell.reward else None
    checked = read_tell(tell, RewardRule(outcomes=outcomes))  # the service knows what they are worth
    body = {"id": checked.id, "reward": checked.outcomes or checked.value}
    given = {"key": tell.key, "arm": tell.arm, "reason": tell.reason or None}
    return body | {k: v for k, v in given.items() if v is not None}


def _error_of(problem: Any) -> RarelyError:
    """Return the error that the service describes, of the same class if there is one."""
    title, detail = str(problem.get("title", "")), str(problem.get("detail", problem))
    for module in (study_errors, core_errors):
        kind = getattr(module, title, None)
        if isinstance(kind, type) and issubclass(kind, RarelyError):
            return kind(detail)
    return study_errors.RequestRefused(f"{title}: {detail}")


def _append(path: str, bodies: Sequence[dict[str, Any]]) -> None:
    with open(path, "a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            half = file.read(1) != b"\n"
            file.write(b"\n" if half else b"")
        file.write(b"".join(json.dumps(body, allow_nan=False).encode() + b"\n" for body in bodies))
        file.flush()
        os.fsync(file.fileno())
