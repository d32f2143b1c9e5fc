"""What a study's record says so far, as columns that grow with it.

The record is append-only, so an overview reads each event once: a page that is loaded again reads what came since.

    t    time of decision     a    place of the arm     p    its probability     m    its predicted reward
    r    its reward so far    l    seconds until the first reward
    w    probability under the shadow version over p, and s, the event that holds that version
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from rarely.core.types import Array
from rarely.study.decisions import record_of
from rarely.study.events import SPECIALS, Event
from rarely.study.settings import StudySettings

CHUNK = 20
"""Decisions whose probabilities are summed."""
LATEST = 8
"""Rewards in quarantine, and steps of people, that are named."""
_COLUMNS = {"t": "d", "a": "l", "p": "d", "m": "d", "v": "l", "r": "d", "l": "d", "w": "d", "s": "l"}


class Overview:
    """Columns of all decisions, and the events that are few; one thread at a time follows."""

    def __init__(self, settings: StudySettings) -> None:
        self.settings, self.lock = settings, threading.Lock()
        self.seq = 0
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}
        self._chances: list[Array] = []
        """(K,) for each chunk: the sum of the probabilities of all arms."""
        self.updates: list[dict[str, Any]] = []
        """Version 0 and all trainings: seq, time, kind, number, and the policy's record of the update."""
        self.steps: deque[Event] = deque(maxlen=LATEST)
        """What people did last."""
        self.quarantine: Counter[str] = Counter()
        self.quarantined: deque[Event] = deque(maxlen=LATEST)
        self.late = 0
        self.reward_times = array("d")

    def column(self, name: str) -> Array:
        """One column as an array of its own."""
        return np.array(self._columns[name])

    @property
    def decisions(self) -> int:
        """How many there are."""
        return len(self._columns["t"])

    @property
    def chances(self) -> Array:
        """(chunks, K): mean probabilities of the arms."""
        width = max((len(row) for row in self._chances), default=0)
        sums = np.zeros((len(self._chances), width))
        for i, row in enumerate(self._chances):
            sums[i, : len(row)] = row
        counts = np.full(len(sums), float(CHUNK))
        if len(counts) and self.decisions % CHUNK:
            counts[-1] = self.decisions % CHUNK
        return np.asarray(sums / counts[:, None])

    def follow(self, events: Iterable[Event]) -> None:
        """Read the events that came since the last call."""
        for event in events:
            if event.kind == "decide":
                self._decision(event)
            elif event.kind in ("reward", "late reward", "quarantine"):
                self._reward(event)
            elif event.kind in SPECIALS:
                self._special(event)
            self.seq = event.seq

    def _decision(self, event: Event) -> None:
        record = record_of(event, self.settings.arms)
        answer, present = record.answer, record.present
        place = int(present[: answer.index].sum())  # among the arms that were there
        weight = np.nan if record.shadow is None else record.shadow[place] / answer.probability
        row = (
            *(event.time / 1e6, answer.index, answer.probability, record.means[place], answer.version),
            *(np.nan, np.nan, weight, record.shadow_of or 0),
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        chances = record.padded(record.probabilities, 0.0)
        if (self.decisions - 1) % CHUNK == 0:
            self._chances.append(chances)
        else:
            old = self._chances[-1]
            width = max(len(old), len(chances))
            self._chances[-1] = np.pad(old, (0, width - len(old))) + np.pad(chances, (0, width - len(chances)))

    def _reward(self, event: Event) -> None:
        self.reward_times.append(event.time / 1e6)
        if event.kind == "quarantine":
            self.quarantine[event.why] += 1
            self.quarantined.append(event)
            return
        content = event.content
        place = content["round"] - 1
        if event.kind == "late reward":
            self.late += 1
            return
        known, rewards = self._columns["r"][place], self._columns["r"]
        summed = self.settings.rewards.aggregation == "sum" and not np.isnan(known)
        rewards[place] = known + content["reward"] if summed else content["reward"]
        if np.isnan(self._columns["l"][place]):
            self._columns["l"][place] = event.time / 1e6 - self._columns["t"][place]

    def _special(self, event: Event) -> None:
        if event.kind in ("create", "version", "candidate", "rejected"):
            content = event.content
            self.updates.append(
                {
                    "seq": event.seq,
                    "time": event.time / 1e6,
                    "kind": event.kind,
                    "number": content.get("number", 0),
                    "record": content.get("record"),
                    "actor": event.actor,
                }
            )
        if event.kind not in ("create", "rejected"):
            self.steps.append(event)
