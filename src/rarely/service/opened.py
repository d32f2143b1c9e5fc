"""The studies that a service has opened, each with its writer, trainer and counters."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from rarely import RarelyError
from rarely._core.policies.alarms import KINDS as ALARMS
from rarely.service.bodies import Refusal
from rarely.service.dashboard import Overview
from rarely.service.metrics import Meters, sample
from rarely.service.trainer import Trainer
from rarely.service.writer import Call, Limits, Writer
from rarely.study import Request, Status, Study, StudyFailed, Tell, UnknownStudy
from rarely.study.storage import open_storage

Found = TypeVar("Found")
LOG = logging.getLogger("rarely.service")
RECONNECT_PAUSE = 1.0
"""Seconds between two attempts to connect again."""
STATUS_LIFETIME = 1.0
"""Seconds for which a status is reused: several monitors may ask, and each status counts all rewards."""


def answer_many(study: Study, calls: Sequence[Call]) -> list[Any]:
    """Ask and tell for several callers in one commit, and return an answer, receipt or error for each call."""
    requests, tells = ([call for call in calls if isinstance(call, kind)] for kind in (Request, Tell))
    answers, receipts = map(iter, study.ask_and_tell(requests, tells, errors="return"))
    return [next(answers if isinstance(call, Request) else receipts) for call in calls]


class OpenedStudy:
    """One study of the service."""

    def __init__(self, study: Study, limits: Limits, *, automatic: bool, reconnects: bool = False) -> None:
        self.study, self.meters, self._reconnects = study, Meters(study=study.name), reconnects
        self._tried, self._mending = 0.0, threading.Lock()
        self.failure = ""
        """Why it does no more work; "" if it works."""
        self.writer = Writer(lambda calls: self.watched(lambda: answer_many(self.study, calls)), limits, self.meters)
        self.trainer = Trainer(study, self.watched, automatic=automatic)
        self.overview = Overview(study.settings)
        """The columns of the dashboard, which brings them up to date."""
        self._status: tuple[float, Status] | None = None
        self._lock = threading.Lock()

    def watched(self, work: Callable[[], Found]) -> Found:
        """Do some work with the study; after an unconfirmed commit, refuse all further work."""
        if self.failure and not self._mended():
            raise StudyFailed(self.failure)
        try:
            return work()
        except StudyFailed as error:
            self.failure = str(error) if self._reconnects else f"{error} Start the service again."
            self._status = None
            LOG.error("study %r does no more work: %s", self.study.name, self.failure)
            self._tried = time.monotonic()
            raise

    def _mended(self) -> bool:
        """Connect again if that is safe, at most once a second, and return whether it succeeded.

        After a lost connection to a server the record says whether the commit succeeded. After a failed fsync of a
        file, a second fsync may claim success for lost data, so a person must restart the service.
        """
        with self._mending:
            if not self.failure:
                return True
            if not self._reconnects or time.monotonic() < self._tried + RECONNECT_PAUSE:
                return False
            self._tried = time.monotonic()
            try:
                self.study.reconnect()
            except RarelyError:
                return False
            self.failure = ""
            self.meters.count("rarely_reconnects_total")
            LOG.warning("study %r works again", self.study.name)
            return True

    def status(self) -> Status:
        """Return the state of the study, at most a second old."""
        with self._lock:
            if self._status is None or time.monotonic() - self._status[0] > STATUS_LIFETIME:
                self._status = (time.monotonic(), self.watched(lambda: self.study.status()))
            return self._status[1]

    def metrics(self) -> list[str]:
        """Return the samples of the study as of its last status, without touching the database."""
        name, trainer = self.study.name, self.trainer
        numbers: dict[str, float] = {"waiting": self.writer.waiting, "oldest_waiting_seconds": self.writer.oldest}
        numbers |= {"training": int(trainer.under_way), "training_seconds": trainer.seconds}
        numbers["healthy"] = int(not self.failure and self.writer.alive)
        trainings = sorted(trainer.outcomes.items())
        lines = self.meters.lines()
        lines += (sample("rarely_trainings_total", value, study=name, outcome=outcome) for outcome, value in trainings)
        if self._status is not None:
            status = self._status[1]
            numbers |= {"decisions": status.decisions, "events": status.events, "version": status.version}
            numbers |= {"versions": status.versions, "versions_budget": status.budget}
            numbers |= {"log_det": status.log_det, "update_due": int(status.due)}
            numbers["events_after_checkpoint"] = max(status.events - self.study.saved, 0)
            for kind in ("received", "used", "pending", "late", "quarantined"):
                lines.append(sample("rarely_rewards", getattr(status.rewards, kind), study=name, kind=kind))
            for kind in ALARMS:
                lines.append(sample("rarely_alarms_total", status.alarms.get(kind, 0), study=name, kind=kind))
                lines.append(sample("rarely_alarm_raised", int(kind in status.raised), study=name, kind=kind))
        return lines + [sample(f"rarely_{key}", value, study=name) for key, value in numbers.items()]

    def close(self) -> None:
        """Answer what is in the queue, kill a training, and release the database."""
        self.writer.close()
        self.trainer.close()
        self.study.close()


class OpenedStudies:
    """The studies of one database, each opened once: at the start, or at the first request."""

    def __init__(self, storage: str, limits: Limits, *, automatic: bool) -> None:
        self._storage, self._limits, self._automatic = storage, limits, automatic
        self._opened: dict[str, OpenedStudy] = {}
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Open all studies, so that a damaged one is refused now."""
        with closing(open_storage(self._storage)) as database:
            database.check()
            with database.reading() as tables:
                names = [row.name for row in tables.studies()]
        for name in names:
            self.open(name)

    def known(self, name: str) -> OpenedStudy | None:
        return self._opened.get(name)

    def open(self, name: str) -> OpenedStudy:
        """Return a study, opening it if necessary; `UnknownStudy` if there is none of that name."""
        with self._lock:
            if self._closed:
                raise Refusal(503, "the service is stopping.", "Stopping")
            if name not in self._opened:
                try:
                    study = Study.open(self._storage, name)
                except UnknownStudy:  # its message names the database, which callers should not see
                    raise UnknownStudy(f"there is no study called {name[:200]!r}.") from None
                again = self._storage.startswith("postgres")
                self._opened[name] = OpenedStudy(study, self._limits, automatic=self._automatic, reconnects=again)
            return self._opened[name]

    def all(self) -> list[OpenedStudy]:
        return list(self._opened.values())

    def close(self) -> None:
        with self._lock:
            opened, self._opened, self._closed = list(self._opened.values()), {}, True
        for each in opened:
            each.close()
