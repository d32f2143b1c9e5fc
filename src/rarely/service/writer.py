"""One thread for each study that writes: what comes within a millisecond shares a commit.

A request that was accepted waits in the queue until its group is committed, and only then is it answered. A request
that finds the queue full is refused at once. Nothing that was accepted is dropped: a stopping writer empties its queue.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rarely.core.errors import RarelyError
from rarely.service.limits import Limits
from rarely.service.meters import Meters
from rarely.service.problems import Refusal, overloaded
from rarely.study import Request, StudyError, Tell

LOG = logging.getLogger("rarely.service")


class Answering(Protocol):
    """What the writer needs of a study."""

    def answer_many(self, calls: Any) -> list[Any]:
        """An answer, receipt or error for each call."""

    def answered(self) -> None:
        """The answers of a group are on their way."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """The calls of one request, and where their answers are awaited."""

    calls: list[tuple[str, Request | Tell]]
    future: asyncio.Future[Any]


class Writer:
    """The queue of a study, and the thread that empties it."""

    def __init__(self, study: Answering, limits: Limits, meters: Meters) -> None:
        self._study, self._limits, self._meters = study, limits, meters
        self._queue: deque[Ticket] = deque()
        self._waiting, self._closing = 0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rarely-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Calls that are accepted and not answered yet, but for those of the group under way."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the thread is at work."""
        return self._thread.is_alive()

    def submit(self, actor: str, calls: Sequence[Request | Tell]) -> asyncio.Future[list[Any]]:
        """Accept the calls of one request, or refuse them all; in the event loop.

        The future has an answer, receipt or error for each call, after the commit.
        """
        ticket = Ticket([(actor, call) for call in calls], asyncio.get_running_loop().create_future())
        with self._changed:
            if self._closing:
                raise Refusal(503, "the service is stopping; repeat the request elsewhere or later.", code="Stopping")
            # A request larger than the whole queue is taken when the queue is empty.
            if self._queue and self._waiting + len(calls) > self._limits.waiting:
                raise overloaded(self._waiting)
            self._queue.append(ticket)
            self._waiting += len(calls)
            self._changed.notify()
        return ticket.future

    def close(self) -> None:
        """Take nothing more, answer what waits, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._limits.grace)
        if self._thread.is_alive():  # a disk that does not answer must not keep the service from ending
            LOG.error("the writer of a study did not end within %g seconds", self._limits.grace)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                gathering = self._waiting < self._limits.group and not self._closing
            if gathering:
                time.sleep(self._limits.gather)
            tickets = self._take()
            self._settle(tickets, self._answers(tickets))
            self._study.answered()

    def _take(self) -> list[Ticket]:
        with self._changed:
            tickets, size = [self._queue.popleft()], 0
            size = len(tickets[0].calls)
            while self._queue and size + len(self._queue[0].calls) <= self._limits.group:
                tickets.append(self._queue.popleft())
                size += len(tickets[-1].calls)
            self._waiting -= size
        return tickets

    def _answers(self, tickets: list[Ticket]) -> list[Any]:
        """The answers of each ticket, or the error that refuses it."""
        calls = [call for ticket in tickets for call in ticket.calls]
        begun = time.perf_counter()
        try:
            found = self._study.answer_many(calls)
        except StudyError as error:  # the database; it would refuse the others too
            return [error] * len(tickets)
        except BaseException as error:
            if len(tickets) == 1:
                if not isinstance(error, RarelyError):
                    LOG.exception("a request failed")
                return [error]
            # Nothing was stored. One request that breaks something must not break those of others.
            return [self._answers([ticket])[0] for ticket in tickets]
        self._meters.committed(len(calls), time.perf_counter() - begun)
        self._meters.answered(found)
        ends, answers = 0, []
        for ticket in tickets:
            answers.append(found[ends : ends + len(ticket.calls)])
            ends += len(ticket.calls)
        return answers

    def _settle(self, tickets: list[Ticket], answers: list[Any]) -> None:
        futures = [ticket.future for ticket in tickets]
        loop = futures[0].get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, futures, answers)


def _resolve(futures: list[asyncio.Future[Any]], answers: list[Any]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future.done():  # the caller has gone; the decision is on record all the same
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
