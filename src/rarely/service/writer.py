"""One writer thread per study: requests that arrive within a millisecond share a commit.

An accepted request waits in the queue until its group is committed, and is answered only then. A request that finds the
queue full is refused at once. No accepted request is dropped: a stopping writer empties its queue.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from rarely.extend.checks import check_positive, check_whole
from rarely.service.bodies import Refusal
from rarely.service.metrics import Meters
from rarely.study import Answer, Receipt, Request, Slate, StudyError, Tell, UnknownStudy

LOG = logging.getLogger("rarely.service")
LOG_PAUSE = 10.0  # seconds in which the same refusal of the database is logged once


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits on what a service accepts at once.

    Parameters
    ----------
    head, body, items, arms
        Bytes of a request's head and body; decisions or rewards in one request; contexts in one decision.
    arrival, connections
        Seconds in which a whole request must arrive; connections of one client address. Both hold before a key is read.
    waiting
        Decisions and rewards of one study that may wait for the writer; further ones are refused with 429.
    group
        Decisions and rewards in one commit.
    gather
        Seconds that the writer waits for further requests before it begins a commit.
    patience, grace
        Seconds after which a request that waits for the database is answered with 503; seconds that a stopping service
        gives to pending requests.

    Examples
    --------
    >>> ServiceLimits(waiting=100).group
    256
    """

    head: int = 1 << 16
    body: int = 1 << 20
    items: int = 1000
    arms: int = 1000
    arrival: float = 20.0
    connections: int = 1000
    waiting: int = 2000
    group: int = 256
    gather: float = 0.001
    patience: float = 30.0
    grace: float = 30.0

    def __post_init__(self) -> None:
        for name in ("head", "body", "items", "arms", "connections", "waiting", "group"):
            check_whole(name, getattr(self, name), 1)
        for name in ("arrival", "gather", "patience", "grace"):
            check_positive(name, getattr(self, name), "seconds")


Call = Request | Tell  # a request or a reward; its actor is the caller


class Ticket(NamedTuple):
    """The calls of one HTTP request, and the future that awaits their answers."""

    calls: Sequence[Call]
    future: asyncio.Future[Any]
    since: float


class Writer:
    """The queue of a study, and the thread that empties it.

    `answer` commits a group of calls, and returns an answer, receipt or error for each.
    """

    def __init__(self, answer: Callable[[list[Call]], list[Any]], limits: ServiceLimits, meters: Meters) -> None:
        self._answer, self._limits, self._meters = answer, limits, meters
        self._queue: deque[Ticket] = deque()
        self.waiting, self._closing = 0, False
        self._answering: float | None = None  # since when the oldest request of the group in work has waited
        self.refused, self.refusal = 0.0, ""  # when the database last refused a commit, and why
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rarely-writer", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def oldest(self) -> float:
        """The seconds that the oldest accepted request has waited."""
        with self._changed:
            since = self._answering or (self._queue[0].since if self._queue else None)
        return 0.0 if since is None else time.monotonic() - since

    def submit(self, calls: Sequence[Call]) -> asyncio.Future[list[Any]]:
        """Accept the calls of one HTTP request, or refuse them all; to be called in the event loop.

        The future holds an answer, receipt or error for each call, after the commit.
        """
        ticket = Ticket(calls, asyncio.get_running_loop().create_future(), time.monotonic())
        with self._changed:
            if self._closing:
                raise Refusal(503, "the service is stopping; repeat the request elsewhere or later.", "Stopping")
            # A request larger than the whole queue is accepted if the queue is empty.
            if self._queue and self.waiting + len(calls) > self._limits.waiting:
                detail = f"{self.waiting} decisions and rewards wait already; repeat it after Retry-After seconds."
                raise Refusal(429, detail, "Overloaded", headers={"Retry-After": "1"})
            self._queue.append(ticket)
            self.waiting += len(calls)
            self._changed.notify()
        return ticket.future

    def close(self) -> None:
        """Accept nothing more, answer what is in the queue, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._limits.grace)
        if self._thread.is_alive():  # a disk that hangs must not keep the service from ending
            LOG.error("the writer of a study did not end within %g seconds", self._limits.grace)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                gathering = self.waiting < self._limits.group and not self._closing
            if gathering:
                time.sleep(self._limits.gather)
            tickets = self._take()
            answers, futures = self._answers(tickets), [ticket.future for ticket in tickets]
            self._answering, loop = None, futures[0].get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, futures, answers)

    def _take(self) -> list[Ticket]:
        with self._changed:
            tickets = [self._queue.popleft()]
            size = len(tickets[0].calls)
            while self._queue and size + len(self._queue[0].calls) <= self._limits.group:
                tickets.append(self._queue.popleft())
                size += len(tickets[-1].calls)
            self.waiting -= size
            self._answering = tickets[0].since
        now = time.monotonic()
        self._meters.observe("rarely_queue_seconds", *(now - ticket.since for ticket in tickets))
        return tickets

    def _answers(self, tickets: list[Ticket]) -> list[Any]:
        """Return the answers of each ticket, or the error that refuses it."""
        calls = [call for ticket in tickets for call in ticket.calls]
        begun = time.perf_counter()
        try:
            results = self._answer(calls)
        except UnknownStudy as error:  # it was deleted, and the others are served
            return [error] * len(tickets)
        except StudyError as error:  # of the database, which would refuse the others too
            if str(error) != self.refusal or time.monotonic() > self.refused + LOG_PAUSE:
                LOG.error("%d requests were refused: %s", len(tickets), error)
            self.refused, self.refusal = time.monotonic(), str(error)
            return [error] * len(tickets)
        except BaseException as error:
            if len(tickets) == 1:
                return [error]
            # Nothing was stored. A request that causes a failure must not affect those of others.
            return [self._answers([ticket])[0] for ticket in tickets]
        self.refused, self.refusal = 0.0, ""
        self._meters.observe("rarely_group_size", len(calls))
        self._meters.observe("rarely_commit_seconds", time.perf_counter() - begun)
        for result in (one for each in results for one in (each if isinstance(each, Slate) else [each])):
            told = f"reward {result.status}" if isinstance(result, Receipt) else "error"
            self._meters.count("rarely_answers_total", kind="decision" if isinstance(result, Answer) else told)
        rest = iter(results)
        return [list(islice(rest, len(ticket.calls))) for ticket in tickets]


def _resolve(futures: list[asyncio.Future[Any]], answers: list[Any]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if not future.done():  # else the caller has disconnected; the decision is on record
            (future.set_exception if isinstance(answer, BaseException) else future.set_result)(answer)
