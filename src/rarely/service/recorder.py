"""One thread for each study that brings the running Z up to date after the answers were given."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger("rarely.service")
PATIENCE = 60.0
"""Seconds that a stopping service waits for what is under way."""


class Recorder:
    """Does the same piece of work again and again, once after each `wake` or after several of them."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._wanted, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="rarely-recorder", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        self._wanted.set()

    def close(self) -> None:
        """End after what is under way."""
        self._closing = True
        self._wanted.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            try:
                self._work()
            except Exception:  # whoever needs Z next does the work again, and is told
                LOG.exception("the running Z could not be brought up to date")
