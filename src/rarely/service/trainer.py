"""Training in another process, while the version in use keeps deciding."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rarely import NothingToLearn, RarelyError
from rarely.service.bodies import Refusal
from rarely.study import ApprovalNeeded, Job, Study, StudyBusy, StudyError, StudyFailed, StudyFull, StudyPinned, Trained

LOG = logging.getLogger("rarely.service")
EXPECTED = (NothingToLearn, StudyFull, StudyPinned, ApprovalNeeded, StudyBusy)
"""Reasons not to train now that are not failures."""
KILL_TIMEOUT = 60.0
"""Seconds that a stopping service waits for a killed training process to end."""
POLL, PATIENCE = 0.5, 60.0
"""Seconds between two checks of the schedule, and from an unsuccessful training to the next automatic one."""
RECONNECT_PAUSE, RECONNECT_PATIENCE = 0.5, 3600.0
"""Seconds between two attempts to publish while the database is away, and after which it is given up."""
Watched = Callable[[Callable[[], Any]], Any]
"""Runs a call of the study, and connects again if that is possible; see `OpenedStudy.watched`."""
COMMAND = "from rarely.study.versions import train_process; train_process()"


class Trainer:
    """Trains the next version of a study when it is due or requested; one training at a time."""

    def __init__(self, study: Study, watched: Watched, *, automatic: bool) -> None:
        self._study, self._watched, self._automatic = study, watched, automatic
        self._changed = threading.Condition()
        self._wanted: dict[str, Any] | None = None
        self._closing = False
        self._child: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.under_way = False
        self.outcomes: dict[str, int] = {}
        self.last_error = ""
        self.seconds = 0.0
        """Duration of the last training."""
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
                self._child.kill()
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
                if self._closing:
                    return
                wanted, self._wanted, self.under_way = self._wanted, None, True
            assert wanted is not None
            self._train(wanted)

    def _train(self, wanted: dict[str, Any]) -> None:
        begun, outcome = time.monotonic(), "failed"
        try:
            outcome = self._update(**wanted)
            self.last_error = ""
        except EXPECTED as error:
            outcome, self.last_error = "not now", str(error)
            LOG.info("no training of study %r now: %s", self._study.name, error)
        except Exception as error:
            self.last_error = str(error)
            LOG.exception("a training of study %r failed", self._study.name)
        finally:
            self.seconds = time.monotonic() - begun
            if outcome in ("failed", "not now", "rejected"):
                self._not_before = time.monotonic() + PATIENCE
            with self._changed:
                self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
                self.under_way = False

    def _update(self, *, force: bool = False, actor: str, reason: str) -> str:
        begun = time.monotonic()
        study = self._study
        job = self._watched(lambda: study.begin_update(force=force, actor=actor, reason=reason))
        try:
            with study.renewed(job):
                trained = self._elsewhere(job)
                while True:
                    try:
                        return str(self._watched(lambda: study.finish_update(trained, actor=actor, reason=reason)))
                    except StudyFailed:  # the connection was lost: what was trained is published when it is back
                        if self._closing or time.monotonic() > begun + RECONNECT_PATIENCE:
                            raise
                        time.sleep(RECONNECT_PAUSE)
        except BaseException:
            with suppress(StudyFailed):
                self._watched(lambda: study.give_up_update(job))
            raise

    def _elsewhere(self, job: Job) -> Trained:
        """Train in another process; an error raised there is raised here."""
        command = [sys.executable, "-c", COMMAND]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, **pipes) as child:
            with self._changed:
                self._child = child
                if self._closing:
                    child.kill()
            try:
                made, said = child.communicate(pickle.dumps(job, protocol=5))
            finally:
                with self._changed:
                    self._child = None
        if child.returncode != 0:
            output = said.decode(errors="replace").strip()[-2000:] or "it printed nothing"
            raise StudyError(f"the training process ended with code {child.returncode}: {output}.")
        found = pickle.loads(made)
        if isinstance(found, RarelyError):
            raise found
        assert isinstance(found, Trained)
        return found
