"""What a service counts, and how Prometheus reads it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rarely.study import Answer, Receipt

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How many values were at most each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = tuple(bounds), [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterable[str]:
        """As Prometheus reads it."""
        so_far = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            so_far += count
            yield f"{name}_bucket{_braces((*labels, ('le', str(bound))))} {so_far}"
        yield f"{name}_sum{_braces(labels)} {self.total!r}"
        yield f"{name}_count{_braces(labels)} {so_far}"


class Meters:
    """The counters of one study; the writer and the event loop both count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.groups, self.commits = Histogram(SIZES), Histogram(SECONDS)
        self.answers: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()

    def committed(self, calls: int, seconds: float) -> None:
        """A group was committed."""
        with self._lock:
            self.groups.add(calls)
            self.commits.add(seconds)

    def answered(self, found: Iterable[Any]) -> None:
        """What the calls of a group were answered."""
        with self._lock:
            for answer in found:
                self.answers[_kind(answer)] += 1

    def refuse(self, status: int) -> None:
        """A request was refused."""
        with self._lock:
            self.refused[status] += 1

    def lines(self, study: str) -> list[str]:
        """As Prometheus reads them."""
        own = (("study", study),)
        with self._lock:
            lines = [
                f"rarely_answers_total{_braces((*own, ('kind', kind)))} {count}"
                for kind, count in sorted(self.answers.items())
            ]
            lines += [
                f"rarely_refused_total{_braces((*own, ('status', str(status))))} {count}"
                for status, count in sorted(self.refused.items())
            ]
            lines += self.groups.lines("rarely_group_size", own)
            lines += self.commits.lines("rarely_commit_seconds", own)
        return lines


def gauge(name: str, study: str, value: float, **labels: str) -> str:
    """One number of a study.

    >>> gauge("rarely_version", "colours", 3)
    'rarely_version{study="colours"} 3'
    """
    return f"{name}{_braces((('study', study), *labels.items()))} {value!r}"


def _kind(answer: Any) -> str:
    if isinstance(answer, Answer):
        return "decision"
    return f"reward {answer.status}" if isinstance(answer, Receipt) else "error"


def _braces(labels: Labels) -> str:
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
