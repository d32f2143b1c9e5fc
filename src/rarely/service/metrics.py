"""Counters and histograms of a service, in the format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rarely.study import Answer, Receipt

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Histogram:
    """A histogram with fixed upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = tuple(bounds), [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, study: str) -> Iterable[str]:
        so_far = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            so_far += count
            yield sample(f"{name}_bucket", study, so_far, le=str(bound))
        yield sample(f"{name}_sum", study, self.total)
        yield sample(f"{name}_count", study, so_far)


class Meters:
    """The counters of one study, used by the writer thread and the event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.groups, self.commits = Histogram(SIZES), Histogram(SECONDS)
        self.answers: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()

    def committed(self, calls: int, seconds: float) -> None:
        with self._lock:
            self.groups.add(calls)
            self.commits.add(seconds)

    def answered(self, found: Iterable[Any]) -> None:
        with self._lock:
            for answer in found:
                self.answers[_kind(answer)] += 1

    def refuse(self, status: int) -> None:
        with self._lock:
            self.refused[status] += 1

    def lines(self, study: str) -> list[str]:
        with self._lock:
            return [
                *(sample("rarely_answers_total", study, n, kind=kind) for kind, n in sorted(self.answers.items())),
                *(sample("rarely_refused_total", study, n, status=str(s)) for s, n in sorted(self.refused.items())),
                *self.groups.lines("rarely_group_size", study),
                *self.commits.lines("rarely_commit_seconds", study),
            ]


def sample(name: str, study: str, value: float, **labels: str) -> str:
    """Return the line of one number of a study, as Prometheus reads it."""
    texts = {"study": study, **labels}
    escaped = {key: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, text in texts.items()}
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{inside}}} {value!r}"


def _kind(answer: Any) -> str:
    if isinstance(answer, Answer):
        return "decision"
    return f"reward {answer.status}" if isinstance(answer, Receipt) else "error"
