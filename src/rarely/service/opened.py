"""The studies that a service has opened, each with its writer, counters and trainer, which uses another process."""

from __future__ import annotations

import logging
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from rarely.errors import NothingToLearn, RarelyError
from rarely.extend.provisional import ALARM_KINDS as ALARMS
from rarely.service.bodies import Refusal
from rarely.service.dashboard import Earned, candidate_text, render_study
from rarely.service.metrics import Meters, sample
from rarely.service.writer import Call, ServiceLimits, Writer
from rarely.study import Job, Request, Status, Study, Tell, Trained, errors
from rarely.study.storage import open_storage
from rarely.study.versions import UNLIMITED

Result = TypeVar("Result")
LOG = logging.getLogger("rarely.service")
RECONNECT_PAUSE = 1.0  # seconds between two attempts to connect again
CANDIDATE_EVENTS = 1000  # events after which the candidate is compared with the version in use again
START_WAIT = 1.0  # seconds after which a service that is still opening its studies answers: it is alive, and not ready
STATUS_LIFETIME = 1.0
"""Seconds for which a status is reused: several monitors may ask, and each status counts all rewards."""
EXPECTED = (NothingToLearn, errors.StudyFull, errors.StudyPinned, errors.ApprovalNeeded, errors.StudyBusy)
"""Reasons not to train now that are not failures."""
KILL_TIMEOUT = 60.0  # seconds that a stopping service waits for a killed training process to end
POLL, PATIENCE = 0.5, 60.0
"""Seconds between two checks of the schedule, and from an unsuccessful training to the next automatic one."""
PUBLISH_PAUSE, PUBLISH_PATIENCE = 0.5, 3600.0
"""Seconds between two attempts to publish while the database is away, and after which it is given up."""
Watched = Callable[..., Any]
"""Does some work with the study, and connects again if that is possible; see `OpenedStudy.watched`."""
COMMAND = (
    "import signal; [signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)]; "
    "from rarely.study.versions import train_process; train_process(%d)"
)
"""How a training is started; whoever stops all processes of the service, as systemd does, leaves it to the service."""


class Trainer:
    """Trains the next version when it is due or requested, one at a time, while the version in use keeps deciding."""

    def __init__(self, study: Study, watched: Watched, meters: Meters, *, automatic: bool) -> None:
        self._study, self._watched, self._meters, self._automatic = study, watched, meters, automatic
        self._changed = threading.Condition()
        self._wanted: dict[str, Any] | None = None
        self._closing = False
        self._child: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.under_way = False
        self.last_error = ""
        self.seconds = 0.0  # duration of the last training
        self._thread = threading.Thread(target=self._run, name="rarely-trainer", daemon=True)
        self._thread.start()

    def start(self, *, force: bool = False, actor: str = "", reason: str = "") -> None:
        """Begin a training; `Refusal` if one is in progress."""
        with self._changed:
            if self.under_way or self._wanted is not None or self._closing:
                raise Refusal(409, "a training is in progress; its version decides when it is done.", "StudyBusy")
            self._wanted = {"force": force, "actor": actor, "reason": reason}
            self.under_way = True
            self._changed.notify()

    def close(self) -> None:
        """Kill a training in progress; its lease is released."""
        with self._changed:
            self._closing = True
            if self._child is not None:
                self._child.kill()  # which does nothing to one that has ended
            self._changed.notify()
        self._thread.join(KILL_TIMEOUT)
        if self._thread.is_alive():
            LOG.error("the trainer of a study did not end within %g seconds", KILL_TIMEOUT)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._closing:
                    self._changed.wait(POLL if self._automatic else None)
                    rested = time.monotonic() >= self._not_before
                    if self._wanted is None and self._automatic and rested and self._study.due:
                        self._wanted = {"actor": "service", "reason": "the schedule ended the batch"}
                if self._closing or self._wanted is None:
                    return
                wanted, self._wanted, self.under_way = self._wanted, None, True
            self._train(wanted)

    def _train(self, wanted: dict[str, Any]) -> None:
        begun, outcome, name, self.last_error = time.monotonic(), "failed", self._study.name, ""
        LOG.info("training of study %r for %r: %s", name, wanted["actor"], wanted["reason"] or "no reason given")
        try:
            outcome = self._update(**wanted)
            version = self._watched(Study.status).version
            LOG.info("training of study %r: %s; version %d is in use", name, outcome, version)
        except EXPECTED as error:
            outcome, self.last_error = "not now", str(error)
            LOG.info("no training of study %r now: %s", name, error)
        except Exception as error:
            self.last_error = str(error)
            if self._closing:
                LOG.info("training of study %r: ended with the service; the next start begins it again", name)
            else:
                LOG.exception("a training of study %r failed", name)
        finally:
            self.seconds = time.monotonic() - begun
            if outcome in ("failed", "not now", "rejected"):
                self._not_before = time.monotonic() + PATIENCE
            self._meters.count("rarely_trainings_total", outcome=outcome)
            with self._changed:
                self.under_way = False

    def _update(self, *, force: bool = False, actor: str, reason: str) -> str:
        begun, study = time.monotonic(), self._study
        job = self._watched(Study.begin_update, force=force, actor=actor, reason=reason)
        try:
            with study.renewed(job):
                trained = self._elsewhere(job)
                while True:
                    try:
                        return str(self._watched(Study.finish_update, trained, actor=actor, reason=reason))
                    except errors.StudyFailed:  # the connection was lost: what was trained is published when it is back
                        if self._closing or time.monotonic() > begun + PUBLISH_PATIENCE:
                            raise
                        time.sleep(PUBLISH_PAUSE)
        except BaseException:
            with suppress(errors.StudyFailed):
                self._watched(Study.give_up_update, job)
            raise

    def _elsewhere(self, job: Job) -> Trained:
        """Train in another process; an error raised there is raised here."""
        command = [sys.executable, "-c", COMMAND % os.getpid()]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, **pipes) as child:
            with self._changed:
                self._child = child
                if self._closing:
                    child.kill()
            made, said = child.communicate(pickle.dumps(job, protocol=5))
        if child.returncode != 0:
            output = said.decode(errors="replace").strip()[-2000:] or "it printed nothing"
            raise errors.StudyError(f"the training process ended with code {child.returncode}: {output}.")
        result: Trained | RarelyError = pickle.loads(made)
        if isinstance(result, RarelyError):
            raise result
        return result


def answer_many(study: Study, calls: Sequence[Call]) -> list[Any]:
    """Ask and tell for several callers in one commit, and return an answer, receipt or error for each call."""
    requests, tells = ([call for call in calls if isinstance(call, kind)] for kind in (Request, Tell))
    answers, receipts = map(iter, study.ask_and_tell(requests, tells, errors="return"))
    return [next(answers if isinstance(call, Request) else receipts) for call in calls]


class OpenedStudy:
    """One study of the service."""

    def __init__(self, study: Study, limits: ServiceLimits, *, automatic: bool, reconnects: bool = False) -> None:
        self.study, self.meters, self._reconnects = study, Meters(study=study.name), reconnects
        self._tried, self._mending = 0.0, threading.Lock()
        self.failure = ""  # why it does no more work; "" if it works
        self.damage = ""  # what is damaged, if the record is: others are served
        self.deleted = False
        self.writer = Writer(lambda calls: self.watched(answer_many, calls), limits, self.meters)
        self.trainer = Trainer(study, self.watched, self.meters, automatic=automatic)
        self.earned = Earned(study.settings.rewards)
        self._candidate: tuple[int | None, int, str] = (None, 0, "")
        self._status: tuple[float, Status] | None = None
        self._lock = threading.Lock()

    def watched(self, work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Do some work with the study; after an unconfirmed commit, refuse all further work."""
        if self.failure and not self._mended():
            raise errors.StudyFailed(self.failure)
        try:
            return work(self.study, *arguments, **options)
        except errors.BrokenStudy as error:
            if not self.damage:
                LOG.error("study %r is damaged: %s", self.study.name, error)
            self.damage = str(error)
            raise
        except errors.UnknownStudy:
            self.deleted = True
            raise
        except errors.StudyFailed as error:
            self.failure = str(error) if self._reconnects else f"{error} The service must be started again."
            self._status = None
            LOG.error("study %r does no more work: %s", self.study.name, self.failure)
            self._tried = time.monotonic()
            raise

    async def call(self, work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        return await run_in_threadpool(self.watched, work, *arguments, **options)

    @property
    def stopped(self) -> bool:
        """Whether only a new process will work again."""
        return bool(self.failure and not self._reconnects) or not self.writer.alive

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
                self._status = (time.monotonic(), self.watched(Study.status))
                self.damage = ""
                with self.earned.lock:
                    self.watched(self.earned.follow, self._status[1].events)
            return self._status[1]

    def page(self, token: str) -> str:
        """Return the dashboard, up to the last event; `token` is that of its buttons, if it has any."""
        status, earned, trainer = self.status(), self.earned, self.trainer
        with earned.lock:
            while earned.seq < status.events:
                self.watched(earned.follow, status.events)
        writer = self.failure or f"{self.writer.waiting} waiting"
        training = trainer.last_error or ("in progress" if trainer.under_way else "no problem")
        alive = self.writer.alive and not self.failure
        health = [("writer", alive, writer), ("training", not trainer.last_error, training)]
        seq, events, said = self._candidate
        if seq != status.candidate or status.events > events + CANDIDATE_EVENTS:
            said = candidate_text(self.study, status)
            self._candidate = status.candidate, status.events, said
        return render_study(self.study, earned, status, health, said, token)

    def metrics(self) -> list[str]:
        """Return the samples of the study as of its last status, without touching the database."""
        lines, name, trainer = self.meters.lines(), self.study.name, self.trainer
        numbers: dict[str, float] = {"waiting": self.writer.waiting, "oldest_waiting_seconds": self.writer.oldest}
        numbers |= {"training": int(trainer.under_way), "training_seconds": trainer.seconds}
        numbers["healthy"] = int(not (self.failure or self.damage) and self.writer.alive)
        if self._status is not None:
            status = self._status[1]
            numbers |= {"decisions": status.decisions, "events": status.events, "version": status.version}
            numbers |= {"versions": status.versions, "versions_budget": status.budget}
            numbers |= {"log_det": status.log_det, "update_due": int(status.due), "pinned": int(status.pinned)}
            numbers |= {"candidate": int(status.candidate is not None), "clock_ahead_seconds": status.ahead}
            numbers["events_after_checkpoint"] = max(status.events - self.study.saved, 0)
            with self.earned.lock:
                numbers["rewards_fell"], sums = int(self.earned.fell), self.earned.by(1)
            for number, (_, count, total, *_) in sums.items():
                lines.append(sample("rarely_reward_count", int(count), study=name, version=str(number)))
                lines.append(sample("rarely_reward_sum", float(total), study=name, version=str(number)))
            for kind in ("received", "used", "pending", "late", "quarantined"):
                lines.append(sample("rarely_rewards", getattr(status.rewards, kind), study=name, kind=kind))
            numbers["unseen_total"] = sum(status.unseen.values())
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
    """The studies of one database, each opened once: at the start, or at the first request.

    A study that cannot be opened keeps no other from being served, and is tried again after a while.
    """

    def __init__(self, storage: str, limits: ServiceLimits, models: list[Any], *, automatic: bool) -> None:
        self._storage, self._limits, self._models, self._automatic = storage, limits, models, automatic
        self._opened: dict[str, OpenedStudy] = {}
        self.broken: dict[str, tuple[float, Exception]] = {}  # when and why studies could not be opened
        self.opening: set[str] = set()
        self._lock = threading.Lock()
        self._starter: threading.Thread | None = None
        self._closed = False

    def start(self) -> None:
        """Begin to open all studies, and wait a moment for it; raise what keeps all of them from being served."""
        with self._lock:
            if self._starter is None:
                with closing(open_storage(self._storage)) as database:
                    database.check()
                    with database.reading() as tables:
                        self.opening = {row.name for row in tables.studies()}
                self._starter = threading.Thread(target=self._open_all, name="rarely-start", daemon=True)
                self._starter.start()
        self._starter.join(START_WAIT)
        if self.broken and not self._opened and not self.starting:
            raise next(iter(self.broken.values()))[1]

    def _open_all(self) -> None:
        for name in sorted(self.opening):
            with suppress(Exception):  # which is logged, and kept for those who ask
                self._open(name)

    @property
    def starting(self) -> bool:
        return self._starter is not None and self._starter.is_alive()

    def opened(self, name: str) -> OpenedStudy | None:
        """Return a study that is open; one that was deleted is closed, and its name is free."""
        opened = self._opened.get(name)
        if opened is not None and opened.deleted:
            with self._lock:
                self._opened.pop(name, None)
            threading.Thread(target=opened.close, daemon=True).start()
            return None
        return opened

    def open(self, name: str) -> OpenedStudy:
        """Return a study, opening it if necessary; `UnknownStudy` if there is none of that name."""
        with self._lock:
            if self._closed:
                raise Refusal(503, "the service is stopping.", "Stopping")
            if name in self._opened:
                return self._opened[name]
            if name in self.opening:
                raise Refusal(503, "the study is being opened; the log says how far it is.", "Opening")
            when, error = self.broken.get(name, (-math.inf, None))
            if error is not None and time.monotonic() < when + PATIENCE:
                raise error
            self.opening.add(name)
        return self._open(name)

    def _open(self, name: str) -> OpenedStudy:
        try:
            study = Study.open(self._storage, name, model=self._models)
            if self._automatic and study.status().budget >= UNLIMITED:
                LOG.warning("study %r has no limit of versions: name a schedule, such as FixedGrid", name)
            again = self._storage.startswith("postgres")
            opened = OpenedStudy(study, self._limits, automatic=self._automatic, reconnects=again)
        except errors.UnknownStudy as error:  # its message names the database, which callers should not see
            _, *deleted = str(error).partition(f" {name!r} was deleted on")
            raise errors.UnknownStudy(f"there is no study called {name[:200]!r}.{''.join(deleted)}") from None
        except Exception as error:
            LOG.error("study %r is not served: %s", name, error, exc_info=not isinstance(error, RarelyError))
            self.broken[name] = (time.monotonic(), error)
            raise
        else:
            with self._lock:
                self.broken.pop(name, None)
                if not self._closed:
                    self._opened[name] = opened
                    return opened
            opened.close()
            raise Refusal(503, "the service is stopping.", "Stopping")
        finally:
            self.opening.discard(name)

    def all(self) -> list[OpenedStudy]:
        return [opened for name in list(self._opened) if (opened := self.opened(name)) is not None]

    def close(self) -> None:
        with self._lock:
            opened, self._opened, self._closed = list(self._opened.values()), {}, True
        for each in opened:
            each.close()
