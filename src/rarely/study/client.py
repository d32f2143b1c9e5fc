"""A client of `rarely serve` with the methods of a study; it needs only the standard library for HTTP.

Requests that may be repeated are retried: the client makes the id of a decision before it asks, so a repeated request
gets the answer of the first. A reward that cannot be delivered is kept in a file (the spool) and delivered later.

A fallback's decision waits in the spool for its reward, and both are delivered together, the reward as an override
whose reason begins with "fallback:": no version learns from it, and estimates leave the round out. Without a reward it
is not delivered, since the study would credit the arm that it would have chosen with the missing reward.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import math
import os
import random
import socket
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

from rarely.errors import InvalidInput, RarelyError
from rarely.extend.checks import check_positive, check_whole, is_whole, named_arguments, shown
from rarely.extend.provisional import errors as core_errors
from rarely.extend.provisional import path_of, replacing, worth_from
from rarely.frames.tables import plain_rows
from rarely.study import errors as study_errors
from rarely.study.decision import Answer, Request, Requests, Slate, are_numbers, read_available
from rarely.study.errors import FallbackWarning, NotDelivered, RequestRefused, ServiceUnavailable, UnknownStudy
from rarely.study.events import check_id, new_id
from rarely.study.settings import RewardRule
from rarely.study.tell import FALLBACK, Receipt, Tell, Tells, read_tell, slots_of

RETRIED = (429, 502, 503, 504)  # HTTP statuses after which a request is retried
CALLERS_FAULTS = (400, 409, 413, 415, 422)
"""HTTP statuses of requests that would be refused for ever; after any other one, a reward waits in the spool."""
AWAY = (ServiceUnavailable, NotDelivered, UnknownStudy)
MAX_PAUSE = 30.0  # seconds between two attempts, at most
ASKS_PER_REQUEST = 500  # calls of `ask` that are sent in one request
REWARDS_PER_REQUEST = 500  # rewards of the spool that are sent in one request


class Spool:
    """A file of undelivered rewards, and of decisions of the fallback, one line of JSON each, for one process."""

    def __init__(self, path: str | os.PathLike[str], keep: float = math.inf) -> None:
        self.path, self._keep = os.fspath(path), keep
        self._lock, self.delivering = threading.Lock(), threading.Lock()
        self.asked = {body["id"]: body for body in map(_read_line, self.lines()) if "contexts" in body}
        """Decisions of the fallback that wait for a reward, by id."""

    def add(self, bodies: Sequence[dict[str, Any]]) -> None:
        """Add rewards or decisions; they are on disk when this returns."""
        with self._lock:
            _append(self.path, bodies)
            self.asked |= {body["id"]: _read_line(_line(body)) for body in bodies if "contexts" in body}

    def lines(self, *, rewards: bool = False) -> list[bytes]:
        """Return the lines, or only the rewards; not half a line that a killed process left."""
        try:
            with open(self.path, "rb") as file:
                lines = [line for line in file if line.endswith(b"\n")]
        except FileNotFoundError:
            return []
        return [line for line in lines if "contexts" not in _read_line(line)] if rewards else lines

    def forget(self) -> None:
        """Remove decisions of the fallback whose reward did not come in time."""
        now = time.time()
        with self._lock:
            rewarded = {_read_line(line).get("id") for line in self.lines(rewards=True)}
            late = [body for body in self.asked.values() if body.get("asked", now) < now - self._keep]
        self.drop({_line(body) for body in late if body["id"] not in rewarded})

    def drop(self, done: set[bytes], refused: Sequence[dict[str, Any]] = ()) -> None:
        """Remove rewards and the decisions that they belong to; refused ones are moved to another file."""
        with self._lock:
            if refused:
                _append(f"{self.path}.refused", refused)
            asked = [self.asked.pop(str(_read_line(line).get("id")), None) for line in done]
            done |= {_line(body) for body in asked if body is not None}
            lines = self.lines()
            rest = [line for line in lines if line not in done]
            if len(rest) == len(lines):
                return
            with replacing(self.path) as file:
                file.writelines(rest)


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
        A file for rewards that cannot be delivered, whatever the reason; `flush` delivers them. Only one process may
        use it.
    deadline
        Seconds that a call may take in all, with its retries and, for an `AsyncClient`, the wait for a thread; by
        default as long as these take. `flush` has as long for each of its requests.
    fallback
        The name or number of the arm that `ask` answers with if the service is away; needs a spool. Such an answer has
        the stage "fallback", version −1 and a `FallbackWarning`. By default `ask` raises.
    keep
        Seconds for which a decision of the fallback waits in the spool for its reward; a later one goes to quarantine.
    gather
        Seconds for which `ask` waits for calls of other threads, to send them in one request; 0 for a request each.

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
        deadline: float | None = None,
        fallback: str | int | None = None,
        keep: float = 7 * 24 * 3600.0,
        gather: float = 0.0,
    ) -> None:
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"url must be http://host:port or https://host; got {shown(url)}.")
        if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable()):
            raise InvalidInput("key must be an API key, text of printable ASCII characters, or None.")
        check_whole("retries", retries, 0)
        check_positive("timeout", timeout, "the seconds that one attempt may take")
        check_positive("backoff", backoff, "the seconds before the first retry")
        check_positive("keep", keep, "the seconds for which a decision of the fallback waits for its reward")
        if deadline is not None:
            check_positive("deadline", deadline, "the seconds that a call may take")
        if type(gather) not in (int, float) or gather:
            check_positive("gather", gather, "the seconds for which ask waits for other calls")
        if fallback is not None and (spool is None or not (isinstance(fallback, str) or is_whole(fallback))):
            raise InvalidInput(f"fallback must be the name or number of an arm, with a spool; got {shown(fallback)}.")
        self._parts, self._timeout, self._retries, self._backoff = parts, timeout, retries, backoff
        self._base = f"{parts.path.rstrip('/')}/v1/studies/{quote(check_id(study, 'the name of a study'), safe='')}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._spool = None if spool is None else Spool(path_of(spool), keep)
        if self._spool is not None:
            self._spool.forget()
        self._asked: dict[str, dict[str, Any]] = {} if self._spool is None else self._spool.asked
        self._deadline, self._fallback = deadline, fallback
        self._idle: list[Connection] = []
        self._call = threading.local()  # `end` of the call that a thread makes, if it began before
        self._gather, self._gate = gather, threading.Lock()
        self._group: list[tuple[dict[str, Any], Future[Any]]] = []

    # --- methods of a study

    def ask(
        self,
        contexts: Any,
        id: str | None = None,
        *,
        available: Any = None,
        worth: Any = None,
        slots: int | None = None,
        user: str | None = None,
    ) -> Any:
        """Decide, once for each id; see `Study.ask`."""
        body = _request_body(Request(contexts, id, available, worth=worth, slots=slots, user=user))
        if slots is not None:
            return _answered(self._send("POST", "decide", body, has="slots"))
        if body["id"] not in self._asked:
            try:
                told = self._ask_together(body) if self._gather else None
                return Answer(**(told or self._send("POST", "decide", body, has="arm")))
            except AWAY as error:
                if self._fallback is None or self._spool is None:
                    raise
                self._spool.add([body | {"arm": self._fallback, "asked": time.time()}])
                warnings.warn(f"the arm {self._fallback!r} was given: {error}", FallbackWarning, stacklevel=2)
        arm, now = self._asked[body["id"]]["arm"], round(time.time() * 1e6)
        index = -1 if isinstance(arm, str) else arm
        return Answer(body["id"], arm, index, 1.0, version=-1, round=0, stage="fallback", seq=0, time=now)

    def _ask_together(self, body: dict[str, Any]) -> Any:
        """Return the answer to one of several calls that are sent in one request; None if it must be sent alone."""
        end, future = self._end(), Future[Any]()
        with self._gate:
            self._group.append((body, future))
            first = len(self._group) == 1
        if first:
            try:
                time.sleep(self._gather)
            finally:
                with self._gate:
                    group, self._group = self._group, []
                for at in range(0, len(group), ASKS_PER_REQUEST):
                    self._send_group(group[at : at + ASKS_PER_REQUEST])
        try:
            return future.result(max(end - time.monotonic(), 0.0) if end < math.inf else None)
        except FutureTimeout:
            raise ServiceUnavailable("the deadline passed before the service answered.") from None

    def _send_group(self, group: list[tuple[dict[str, Any], Future[Any]]]) -> None:
        answers: Sequence[Any] = [None] * len(group)
        try:
            if len(group) > 1:
                asked = {"requests": [body for body, _ in group]}
                answers = self._send("POST", "decide", asked, has="answers")["answers"]
        except BaseException as error:
            if isinstance(error, AWAY) or not isinstance(error, RarelyError):
                for _, future in group:
                    future.set_exception(error if isinstance(error, AWAY) else ServiceUnavailable(repr(error)))
                return
        for place, (_, future) in enumerate(group):  # what is refused, perhaps for the sake of another, is sent alone
            answer = answers[place] if place < len(answers) else None
            future.set_result(answer if answer and "arm" in answer else None)

    def ask_many(self, requests: Requests) -> list[Answer | RarelyError]:
        """Decide many requests in one commit; an error takes the place of the answer of a refused one."""
        bodies = [_request_body(Request(*request)) for request in requests]
        answers = self._send("POST", "decide", {"requests": bodies}, has="answers")["answers"] if bodies else []
        return [_answered(each) for each in answers]

    def tell(
        self,
        id: str,
        reward: Any,
        *,
        key: str | None = None,
        arm: Any = None,
        reason: str = "",
        seen: int | None = None,
    ) -> Any:
        """Record a reward; see `Study.tell`.

        With a spool an undeliverable reward is kept in it, and the receipt has the status "spooled".
        """
        tells = slots_of(Tell(id, reward, key, arm=arm, reason=reason, seen=seen))
        receipts = self.tell_many(tells if isinstance(tells, Slate) else [tells])
        for each in receipts:
            if isinstance(each, RarelyError):
                raise each
        return Slate(receipts) if isinstance(tells, Slate) else receipts[0]

    def tell_many(self, tells: Tells) -> list[Receipt | RarelyError]:
        """Record many rewards in one commit; an error takes the place of the receipt of a refused one."""
        bodies = [_tell_body(Tell(*tell)) for tell in tells]
        asked, why = self._asked, "the fallback decided; flush delivers both"
        try:
            if not any(body["id"] in asked for body in bodies):
                return self._deliver(bodies)
        except AWAY as error:
            if self._spool is None:
                raise
            why = str(error)
        marks = {id: {"arm": each["arm"], "reason": f"{FALLBACK} the service was away"} for id, each in asked.items()}
        assert self._spool is not None
        self._spool.add([marks.get(body["id"], {}) | body for body in bodies])
        return [Receipt(body["id"], "spooled", why, 0) for body in bodies]

    def flush(self) -> list[Receipt | RarelyError]:
        """Deliver the rewards in the spool, and return a receipt or an error for each.

        A refused reward leaves the spool too, since it would be refused forever; it is moved to a file beside the spool
        whose name ends in .refused, and so is a line that cannot be read. What cannot be delivered now stays.
        """
        done: list[Receipt | RarelyError] = []
        if self._spool is None:
            return done
        with self._spool.delivering:
            self._spool.forget()
            while waiting := self._spool.lines(rewards=True)[:REWARDS_PER_REQUEST]:
                bodies = [_read_line(line) for line in waiting]
                receipts = self._deliver_spooled(bodies)
                pairs = zip(bodies, receipts, strict=True)
                refused = [body | {"error": str(each)} for body, each in pairs if isinstance(each, RarelyError)]
                self._spool.drop(set(waiting), refused)
                done += receipts
        return done

    @property
    def spooled(self) -> int:
        """The number of rewards in the spool."""
        return 0 if self._spool is None else len(self._spool.lines(rewards=True))

    def status(self) -> dict[str, Any]:
        """Return the state of the study, as `rarely.study.Status` describes it."""
        return dict(self._send("GET", "status"))

    def versions(self) -> list[dict[str, Any]]:
        """Return the published versions."""
        return list(self._send("GET", "versions")["versions"])

    def activate(self, version: int | str, *, force: bool = False, reason: str = "") -> dict[str, Any]:
        """Change the version in use: "next" trains one, "candidate" approves one, a number rolls back to one."""
        return dict(self._send("POST", "activate", {"version": version, "force": force, "reason": reason}))

    def close(self) -> None:
        """Close all connections that are not in use; a later call opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- sending

    def _deliver(self, bodies: list[dict[str, Any]]) -> list[Receipt | RarelyError]:
        receipts = self._send("POST", "reward", {"rewards": bodies}, has="receipts")["receipts"] if bodies else []
        return [_answered(each) for each in receipts]

    def _deliver_spooled(self, bodies: list[dict[str, Any]]) -> list[Receipt | RarelyError]:
        """Deliver rewards together if possible, else one by one, each after the fallback's decision if it has one."""
        single, decision = len(bodies) == 1, self._asked.get(bodies[0].get("id", ""))
        if single and "unreadable" in bodies[0]:
            return [RequestRefused("the line cannot be read.")]
        try:
            if single and decision is not None:
                asked = {name: value for name, value in decision.items() if name not in ("arm", "asked")}
                self._send("POST", "decide", asked)
            if single or all("id" in body and body["id"] not in self._asked for body in bodies):
                return self._deliver(bodies)
        except RarelyError as error:
            if isinstance(error, AWAY):
                raise
            if single:
                return [error]
        return [self._deliver_spooled([body])[0] for body in bodies]

    def _end(self) -> float:
        """Return when the call of this thread must have ended."""
        began: float | None = getattr(self._call, "began", None)
        return (time.monotonic() if began is None else began) + (math.inf if self._deadline is None else self._deadline)

    def _send(self, method: str, verb: str, body: Any = None, *, has: str = "") -> Any:
        """Send a request until it is answered, and return the answer, which must have a field of this name."""
        try:
            data = None if body is None else _line(body)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"contexts must be lists or arrays of finite numbers ({error}).") from None
        pause, least, why, end = self._backoff, 0.0, "the deadline has passed", self._end()
        if verb == "activate":
            self.close()  # the service may have closed a connection that was idle
        # Activation is not retried: a second request for the same training would be refused.
        for attempt in range(self._retries + 1 if verb != "activate" else 1):
            if attempt:
                rest = max(pause * random.uniform(0.5, 1.0), least)
                if time.monotonic() + rest >= end:
                    break
                time.sleep(rest)
                pause = min(2 * pause, MAX_PAUSE)
            try:
                last = min(time.monotonic() + self._timeout, end)
                status, headers, said = self._once(method, f"{self._base}/{verb}", data, last)
            except (OSError, http.client.HTTPException) as error:
                why, least = f"{type(error).__name__}: {error}", 0.0
                continue
            try:
                content = json.loads(said)
            except ValueError:
                content = None
            if status not in RETRIED:
                if not isinstance(content, dict) or (status < 300 and has and has not in content):
                    raise ServiceUnavailable(f"the answer ({status}) does not come from rarely serve; check the url.")
                if not 200 <= status < 300:
                    raise _error_of(content, status)
                return content
            pause_asked = headers.get("Retry-After", "")
            least = min(float(pause_asked), MAX_PAUSE) if pause_asked.isdigit() else 0.0
            why = f"{status}: {content.get('detail', '')}" if isinstance(content, dict) else str(status)
        raise ServiceUnavailable(
            f"{self._parts.netloc} did not accept the request ({why}). Is rarely serve running? It is safe to repeat "
            "the request with the same id."
        )

    def _once(self, method: str, path: str, data: bytes | None, end: float) -> tuple[int, Any, bytes]:
        _left(end)
        try:
            connection = self._idle.pop()
        except IndexError:
            kind = SecureConnection if self._parts.scheme == "https" else Connection
            connection = kind(str(self._parts.hostname), self._parts.port)
        try:
            connection.end = end
            connection.request(method, path, data, self._headers)
            response = connection.getresponse()
            answer = response.status, response.headers, response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Method = Callable[Concatenate[Client, Arguments], Result]


def _in_thread(method: Method[Arguments, Result]) -> Callable[Concatenate[AsyncClient, Arguments], Awaitable[Result]]:
    """Return a method of `Client` that is awaited while a thread makes the call."""

    @wraps(method)
    async def call(self: AsyncClient, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        client, began = self._client, time.monotonic()

        def work() -> Result:
            client._call.began = began  # the wait for this thread counts
            try:
                return method(client, *arguments, **options)
            finally:
                client._call.began = None

        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    return call


@named_arguments
class AsyncClient:
    """A `Client` for asyncio: the same methods, awaited, while threads make the calls.

    A cancelled call may still reach the service; it is safe to repeat it with the same id.

    Parameters
    ----------
    url, study, **options
        The arguments of `Client`.
    threads
        Calls at a time, each on a connection of its own; further ones wait.

    Examples
    --------
    >>> async def visit(contexts):
    ...     async with AsyncClient("http://127.0.0.1:8000", "colours", deadline=0.5) as client:
    ...         return await client.ask(contexts)
    """

    def __init__(self, url: str, study: str, *, threads: int = 16, **options: Any) -> None:
        check_whole("threads", threads, 1)
        self._client, self._threads = Client(url, study, **options), ThreadPoolExecutor(threads, "rarely-client")

    ask, ask_many = _in_thread(Client.ask), _in_thread(Client.ask_many)
    tell, tell_many, flush = _in_thread(Client.tell), _in_thread(Client.tell_many), _in_thread(Client.flush)
    status, versions = _in_thread(Client.status), _in_thread(Client.versions)
    activate = _in_thread(Client.activate)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()


def _request_body(request: Request) -> dict[str, Any]:
    contexts = request.contexts
    if isinstance(contexts, Mapping) and contexts.keys() <= {"user", "items"} and not are_numbers(contexts):
        rows = {name: plain_rows(table, name) for name, table in contexts.items()}
        contexts = {name: each[0] if name == "user" and len(each) == 1 else each for name, each in rows.items()}
    worth = None if request.worth is None else _given(asdict(worth_from(request.worth)))
    if worth is not None:
        worth["cost"] = _without_infinities(worth["cost"])
    available = None if request.available is None else read_available(request.available)
    more = {"available": available, "slots": request.slots, "worth": worth}
    id = new_id() if request.id is None else check_id(request.id)
    return {"id": id, "contexts": contexts} | _given({**more, "user_id": request.user})


def _without_infinities(cost: Any) -> Any:
    """Return costs with None, which a service takes for an arm that is not available, for infinite ones."""
    cost = cost.tolist() if hasattr(cost, "tolist") else cost
    if isinstance(cost, Mapping):
        return {arm: _without_infinities(each) for arm, each in cost.items()}
    if isinstance(cost, list | tuple):
        return [_without_infinities(each) for each in cost]
    return None if isinstance(cost, float) and cost == math.inf else cost


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return what is not None."""
    return {name: value for name, value in values.items() if value is not None}


def _answered(said: dict[str, Any]) -> Any:
    """Return an answer, a receipt, a slate of them or an error."""
    if "slots" in said:
        return Slate(_answered(each) for each in said["slots"])
    return Answer(**said) if "arm" in said else Receipt(**said) if "seq" in said else _error_of(said)


def _tell_body(tell: Tell) -> dict[str, Any]:
    outcomes = dict.fromkeys(tell.reward, 0.0) if isinstance(tell.reward, Mapping) and tell.reward else None
    checked = read_tell(tell, RewardRule(outcomes=outcomes))  # the service knows what they are worth
    body = {"id": checked.id, "reward": checked.outcomes or checked.value}
    return body | _given({"key": tell.key, "arm": tell.arm, "reason": tell.reason or None})


def _error_of(problem: Any, status: int = 0) -> RarelyError:
    """Return the error that the service describes, of the same class if there is one."""
    title, detail = str(problem.get("title", "")), str(problem.get("detail", problem))
    for module in (study_errors, core_errors):
        kind = getattr(module, title, None)
        if isinstance(kind, type) and issubclass(kind, RarelyError):
            return kind(detail)
    refusal = RequestRefused if not status or status in CALLERS_FAULTS else NotDelivered
    return refusal(f"{title}: {detail}")


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body, allow_nan=False, default=_listed).encode() + b"\n"


def _listed(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return value.tolist()


def _read_line(line: bytes) -> dict[str, Any]:
    """Return a line of the spool; {"unreadable": …} if it is neither a reward nor a decision of the fallback."""
    try:
        body: dict[str, Any] = json.loads(line)
        check_id(body["id"])
        _ = body["arm" if "contexts" in body else "reward"], _line(body)  # NaN and 1e999 are read, but not sent
        return body
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"unreadable": line.decode(errors="replace").rstrip("\n")}


def _append(path: str, bodies: Sequence[dict[str, Any]]) -> None:
    # A new file, which may get contexts of the fallback, only its owner may read.
    with open(path, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            half = file.read(1) != b"\n"
            file.write(b"\n" if half else b"")
        file.write(b"".join(map(_line, bodies)))
        file.flush()
        os.fsync(file.fileno())


# --- requests that end in time


def _left(end: float) -> float:
    """Return the seconds until a moment of the monotonic clock; TimeoutError if there are none."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds


class _Received(io.RawIOBase):
    """What a socket receives until a deadline: the timeout of a socket alone begins again with every byte."""

    def __init__(self, sock: Any, end: float) -> None:
        self._sock, self._end, self._raw = sock, end, sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._end))
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return what an `HTTPResponse` reads from."""
        return io.BufferedReader(self)


class Connection(http.client.HTTPConnection):
    """A connection with `end`, by which everything must be done."""

    end = float("inf")

    def __init__(self, *address: Any) -> None:
        super().__init__(*address)
        self._create_connection = self._connected
        self.response_class: Any = lambda sock, **more: http.client.HTTPResponse(_Received(sock, self.end), **more)  # type: ignore[arg-type]

    def _connected(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Connect to the first address of a name that answers."""
        failure = OSError(f"{address[0]} has no address")
        for found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                return socket.create_connection((str(found[4][0]), address[1]), _left(self.end))
            except OSError as error:
                failure = error
        raise failure

    def send(self, data: Any) -> None:
        if self.sock is not None:
            self.sock.settimeout(_left(self.end))
        super().send(data)


class SecureConnection(Connection, http.client.HTTPSConnection):
    """The same over TLS."""
