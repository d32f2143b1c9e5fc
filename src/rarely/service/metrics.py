"""Counters and histograms of a service, in the text format of Prometheus; metrics.json has type and help of each."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rarely import __version__

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
BOUNDS = {"rarely_group_size": (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)}
"""Upper bounds of a histogram's buckets; the others have those of seconds."""
FAMILIES: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
STARTED = time.time()
Labels = tuple[tuple[str, str], ...]


class Meters:
    """Counters and histograms by family and labels, some of which all share; any thread may count."""

    def __init__(self, **labels: str) -> None:
        self._lock, self._labels = threading.Lock(), labels
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._histograms: dict[tuple[str, Labels], tuple[list[int], list[float]]] = {}

    def count(self, name: str, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(labels.items())] += 1

    def observe(self, name: str, *values: float, **labels: str) -> None:
        bounds, key = BOUNDS.get(name, SECONDS), (name, tuple(labels.items()))
        with self._lock:
            counts, total = self._histograms.setdefault(key, ([0] * (len(bounds) + 1), [0.0]))
            for value in values:
                counts[bisect_left(bounds, value)] += 1
                total[0] += value

    def lines(self) -> list[str]:
        with self._lock:
            lines = [sample(name, n, **self._labels, **dict(more)) for (name, more), n in sorted(self._counts.items())]
            for (name, more), (counts, total) in sorted(self._histograms.items()):
                labels, so_far = self._labels | dict(more), 0
                for bound, count in zip((*BOUNDS.get(name, SECONDS), "+Inf"), counts, strict=True):
                    so_far += count
                    lines.append(sample(f"{name}_bucket", so_far, **labels, le=str(bound)))
                lines += [sample(f"{name}_sum", total[0], **labels), sample(f"{name}_count", so_far, **labels)]
        return lines


def process_lines() -> Iterable[str]:
    """Yield the samples of this process; memory and files only where the system has /proc."""
    yield sample("rarely_build_info", 1, version=__version__)
    yield sample("process_cpu_seconds_total", time.process_time())
    yield sample("process_start_time_seconds", STARTED)
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        yield sample("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
        yield sample("process_open_fds", len(os.listdir("/proc/self/fd")))


def free_bytes(storage: str) -> int | None:
    """Return the free bytes of the disk of an SQLite file, 0 if its folder is gone; None for other databases."""
    scheme, _, path = storage.partition(":///")
    try:
        return shutil.disk_usage(os.path.dirname(path.partition("?")[0]) or ".").free if scheme == "sqlite" else None
    except OSError:
        return 0


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
    heads = {name: [f"# HELP {name} {help}", f"# TYPE {name} {kind}"] for name, (kind, help) in FAMILIES.items()}
    return "\n".join(line for name, some in families.items() if some for line in heads[name] + some) + "\n"
