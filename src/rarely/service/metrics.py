"""Counters and histograms of a service, in the text format of Prometheus.

`FAMILIES` has all of them; the dashboard for Grafana and the alerts in examples/service use these names.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from rarely._core.version import __version__
from rarely.study import Answer, Receipt

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
FAMILIES = {
    "rarely_requests_total": ("counter", "HTTP requests by study, route and status."),
    "rarely_request_seconds": ("histogram", "Seconds from a request's head to its answer, by route."),
    "rarely_queue_seconds": ("histogram", "Seconds that accepted requests waited for the writer."),
    "rarely_commit_seconds": ("histogram", "Seconds of a commit with its decisions."),
    "rarely_group_size": ("histogram", "Decisions and rewards in a commit."),
    "rarely_answers_total": ("counter", "Decisions, rewards by status, and errors inside of accepted requests."),
    "rarely_waiting": ("gauge", "Decisions and rewards that wait for the writer."),
    "rarely_oldest_waiting_seconds": ("gauge", "Seconds that the oldest accepted request has waited."),
    "rarely_healthy": ("gauge", "1 if the study can decide."),
    "rarely_ready": ("gauge", "1 if /health/ready answers 200."),
    "rarely_keys_valid": ("gauge", "0 if the file of keys is damaged and the last good keys are in use."),
    "rarely_storage_free_bytes": ("gauge", "Free bytes of the disk that holds an SQLite file."),
    "rarely_decisions": ("gauge", "Decisions on record."),
    "rarely_events": ("gauge", "Events on record."),
    "rarely_rewards": ("gauge", "Rewards by kind: received = used + pending + late + quarantined."),
    "rarely_version": ("gauge", "The version in use."),
    "rarely_versions": ("gauge", "Published versions."),
    "rarely_versions_budget": ("gauge", "The number of versions that the study may publish."),
    "rarely_update_due": ("gauge", "1 if the schedule has ended the batch."),
    "rarely_log_det": ("gauge", "Information gathered: log det Z - log det of its start."),
    "rarely_training": ("gauge", "1 while a version is trained."),
    "rarely_training_seconds": ("gauge", "Seconds of the last training."),
    "rarely_trainings_total": ("counter", "Trainings by outcome."),
    "rarely_alarms_total": ("counter", "Alarms of updates so far, by kind."),
    "rarely_alarm_raised": ("gauge", "1 if the last update raised an alarm of the kind."),
    "rarely_build_info": ("gauge", "1, with the version of rarely."),
    "process_cpu_seconds_total": ("counter", "Processor time of the service, without trainings."),
    "process_start_time_seconds": ("gauge", "When the service started, in seconds since 1970."),
    "process_resident_memory_bytes": ("gauge", "Resident memory."),
    "process_open_fds": ("gauge", "Open files and connections."),
}
"""Type and help of each family."""
STARTED = time.time()


class Histogram:
    """A histogram with fixed upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = tuple(bounds), [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, **labels: str) -> Iterable[str]:
        so_far = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            so_far += count
            yield sample(f"{name}_bucket", so_far, **labels, le=str(bound))
        yield sample(f"{name}_sum", self.total, **labels)
        yield sample(f"{name}_count", so_far, **labels)


class Meters:
    """The counters of one study's writer, which the event loop reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.groups, self.commits, self.queue = Histogram(SIZES), Histogram(SECONDS), Histogram(SECONDS)
        self.answers: Counter[str] = Counter()

    def committed(self, calls: int, seconds: float) -> None:
        with self._lock:
            self.groups.add(calls)
            self.commits.add(seconds)

    def waited(self, seconds: Iterable[float]) -> None:
        with self._lock:
            for each in seconds:
                self.queue.add(each)

    def answered(self, found: Iterable[Any]) -> None:
        with self._lock:
            for answer in found:
                self.answers[_kind(answer)] += 1

    def lines(self, study: str) -> list[str]:
        with self._lock:
            kinds = sorted(self.answers.items())
            return [
                *(sample("rarely_answers_total", count, study=study, kind=kind) for kind, count in kinds),
                *self.groups.lines("rarely_group_size", study=study),
                *self.commits.lines("rarely_commit_seconds", study=study),
                *self.queue.lines("rarely_queue_seconds", study=study),
            ]


class RequestMeters:
    """The counters of all HTTP requests; used in the event loop alone."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def count(self, study: str, route: str, status: int, seconds: float) -> None:
        self._counts[study, route, str(status)] += 1
        if route not in self._seconds:
            self._seconds[route] = Histogram(SECONDS)
        self._seconds[route].add(seconds)

    def lines(self, visible: set[str]) -> Iterable[str]:
        """Yield the samples, those of studies only if they are visible to the caller."""
        for (study, route, status), count in sorted(self._counts.items()):
            if not study or study in visible:
                yield sample("rarely_requests_total", count, study=study, route=route, status=status)
        for route, histogram in sorted(self._seconds.items()):
            yield from histogram.lines("rarely_request_seconds", route=route)


def process_lines() -> Iterable[str]:
    """Yield the samples of this process; memory and files only where the system has /proc."""
    yield sample("rarely_build_info", 1, version=__version__)
    yield sample("process_cpu_seconds_total", time.process_time())
    yield sample("process_start_time_seconds", STARTED)
    with suppress(OSError):
        with open("/proc/self/statm", encoding="ascii") as file:
            yield sample("process_resident_memory_bytes", int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        yield sample("process_open_fds", len(os.listdir("/proc/self/fd")))


def free_bytes(storage: str) -> int | None:
    """Return the free bytes of the disk of an SQLite file; None for other databases."""
    scheme, _, path = storage.partition(":///")
    return shutil.disk_usage(os.path.dirname(path.partition("?")[0]) or ".").free if scheme == "sqlite" else None


def sample(name: str, value: float, **labels: str) -> str:
    """Return the line of one number, as Prometheus reads it."""
    escaped = {key: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, text in labels.items()}
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def exposition(lines: Iterable[str]) -> str:
    """Return the samples by family, each with its help and type."""
    families: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for line in lines:
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        families[name if name in FAMILIES else name.rpartition("_")[0]].append(line)
    parts = [
        f"# HELP {name} {FAMILIES[name][1]}\n# TYPE {name} {FAMILIES[name][0]}\n" + "\n".join(found)
        for name, found in families.items()
        if found
    ]
    return "\n".join([*parts, ""])


def _kind(answer: Any) -> str:
    if isinstance(answer, Answer):
        return "decision"
    return f"reward {answer.status}" if isinstance(answer, Receipt) else "error"
