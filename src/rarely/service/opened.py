"""The studies that a service has opened: each with its writer, its trainer and its counters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from rarely.core.errors import RarelyError
from rarely.service.dashboard import Overview
from rarely.service.limits import Limits
from rarely.service.meters import Meters, gauge
from rarely.service.problems import Refusal
from rarely.service.recorder import Recorder
from rarely.service.trainer import Trainer
from rarely.service.writer import Writer
from rarely.study import Request, Status, Study, StudyFailed, Tell, UnknownStudy
from rarely.study.grouping import answer_many, record_backlog
from rarely.study.storage import open_storage

Found = TypeVar("Found")
PAUSE = 1.0
"""Seconds between two attempts to connect again."""
FRESH = 1.0
"""Seconds for which a status is told again: it counts all rewards, and several monitors may ask."""


class OpenedStudy:
    """One study of the service."""

    def __init__(
        self, study: Study, limits: Limits, *, automatic: bool, reopen: Callable[[], Study] | None = None
    ) -> None:
        self.study, self.meters, self._reopen = study, Meters(), reopen
        self._tried, self._mending = 0.0, threading.Lock()
        self.failure = ""
        """Why it does no more work; "" while it does."""
        self.writer = Writer(self, limits, self.meters)
        self._recorder = Recorder(lambda: record_backlog(self.study))
        self.trainer = Trainer(lambda: self.study, automatic=automatic)
        self.overview = Overview(study.settings)
        """For the dashboard, which brings it up to date."""
        self._status: tuple[float, Status] | None = None
        self._lock = threading.Lock()

    def submit(self, actor: str, calls: list[Request | Tell]) -> asyncio.Future[list[Any]]:
        """Calls for the writer."""
        return self.writer.submit(actor, calls)

    def answer_many(self, calls: Any) -> list[Any]:
        """What the writer does with a group."""
        return self.watched(lambda: answer_many(self.study, calls, deferring=True))

    def answered(self) -> None:
        """What the writer does after its answers are on their way: Z follows off the path of requests."""
        self._recorder.wake()

    def watched(self, work: Callable[[], Found]) -> Found:
        """Do something with the study. After a commit that was not confirmed nothing more is done."""
        if self.failure and not self._mended():
            raise StudyFailed(self.failure)
        try:
            return work()
        except StudyFailed as error:
            self.failure = str(error) if self._reopen is not None else f"{error} Start the service again."
            self._tried = time.monotonic()
            raise

    def _mended(self) -> bool:
        """Connect again where that is safe, at most once a second.

        A server that lost the connection has committed or not, and the record says which. A file whose fsync failed is
        another matter: a second one may claim success for what is lost, so a person starts the service again.
        """
        with self._mending:
            if not self.failure:
                return True
            if self._reopen is None or time.monotonic() < self._tried + PAUSE:
                return False
            self._tried = time.monotonic()
            try:
                study = self._reopen()
            except RarelyError:
                return False
            old, self.study, self.failure = self.study, study, ""
            old.close()
            return True

    def status(self) -> Status:
        """Where the study stands, at most a second ago."""
        with self._lock:
            if self._status is None or time.monotonic() - self._status[0] > FRESH:
                self._status = (time.monotonic(), self.watched(self.study.status))
            return self._status[1]

    def metrics(self) -> list[str]:
        """Counters and numbers for Prometheus."""
        status, name = self.status(), self.study.name
        rewards = status.rewards
        lines = self.meters.lines(name)
        lines += [
            gauge("rarely_waiting", name, self.writer.waiting),
            gauge("rarely_decisions", name, status.decisions),
            gauge("rarely_events", name, status.events),
            gauge("rarely_version", name, status.version),
            gauge("rarely_versions", name, status.versions),
            gauge("rarely_versions_budget", name, status.budget),
            gauge("rarely_log_det", name, status.log_det),
            gauge("rarely_update_due", name, int(status.due)),
            gauge("rarely_training", name, int(self.trainer.under_way)),
            gauge("rarely_training_seconds", name, self.trainer.seconds),
            gauge("rarely_healthy", name, int(not self.failure and self.writer.alive)),
        ]
        kinds = ("received", "used", "pending", "late", "quarantined")
        lines += [gauge("rarely_rewards", name, getattr(rewards, kind), kind=kind) for kind in kinds]
        lines += [
            gauge("rarely_trainings_total", name, count, outcome=outcome)
            for outcome, count in sorted(self.trainer.outcomes.items())
        ]
        return lines

    def close(self) -> None:
        """Answer what waits, end a training, and give the database back."""
        self.writer.close()
        self._recorder.close()
        self.trainer.close()
        self.study.close()


class OpenedStudies:
    """The studies of one database, each opened once: at the start, or when it is asked for first."""

    def __init__(self, storage: str, limits: Limits, *, automatic: bool) -> None:
        self._storage, self._limits, self._automatic = storage, limits, automatic
        self._opened: dict[str, OpenedStudy] = {}
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Open all studies; a damaged one is refused now, with what to do."""
        for name in self.names():
            self.open(name)

    def names(self) -> list[str]:
        """The studies of the database."""
        database = open_storage(self._storage)
        try:
            database.check()
            with database.reading() as tables:
                return [row.name for row in tables.studies()]
        finally:
            database.close()

    def known(self, name: str) -> OpenedStudy | None:
        """A study that is open."""
        return self._opened.get(name)

    def open(self, name: str) -> OpenedStudy:
        """A study by its name; `UnknownStudy` if there is none."""
        with self._lock:
            if self._closed:
                raise Refusal(503, "the service is stopping.", code="Stopping")
            if name not in self._opened:
                study = self._found(name)
                again = (lambda: self._found(name)) if self._is_remote() else None
                self._opened[name] = OpenedStudy(study, self._limits, automatic=self._automatic, reopen=again)
            return self._opened[name]

    def _is_remote(self) -> bool:
        return self._storage.startswith("postgres")

    def _found(self, name: str) -> Study:
        try:
            return Study.open(self._storage, name)
        except UnknownStudy:  # its sentence names the database, which is no concern of callers
            raise UnknownStudy(f"there is no study called {name[:200]!r} here.") from None

    def all(self) -> list[OpenedStudy]:
        """Those that are open."""
        return list(self._opened.values())

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            opened, self._opened, self._closed = list(self._opened.values()), {}, True
        for each in opened:
            each.close()
