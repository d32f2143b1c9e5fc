"""Flat tables for who would rather compute than believe: all runs, and what each claim compares.

    runs.csv     one line for each run: its group, as `cosine/practical/fixed-B40`, its seed and its numbers
    checks.csv   one line for each comparison that counts: what is divided by what, and where the ratio must lie

docs/reproduction.md recomputes every verdict from the two.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rarely.runs.files import make_folder, writing
from rarely_lab.reproduce.records import Record
from rarely_lab.reproduce.report.claims import Judged
from rarely_lab.reproduce.report.results import uniform_regret

RUNS = ("group", "seed", "rounds", "regret", "versions", "seconds", "uniform", "engine", "machine", "form")
CLAIM = ("claim", "problem", "preset", "estimand", "verdict", "needed", "check")
PART = ("number", "a", "b", "goal", "machine", "form", "low", "high", "strict", "exact")


def write_tables(folder: Path, records: Sequence[Record], judged: Sequence[Judged]) -> None:
    """Write both tables into a folder."""
    make_folder(folder)
    _write(folder / "runs.csv", RUNS, map(_run, records))
    _write(folder / "checks.csv", (*CLAIM, *PART), (line for one in judged for line in _checks(one)))


def _run(one: Record) -> list[Any]:
    numbers = [one.rounds, one.regret, one.versions, one.seconds, f"{uniform_regret(one):.1f}"]
    return [one.id.rpartition("/")[0], one.seed, *numbers, one.engine, one.machine, one.form]


def _checks(one: Judged) -> Iterable[list[Any]]:
    needed = one.claim.rule.needed(len(one.counted))
    head = [one.claim.id, one.problem, one.preset, one.estimand, one.verdict, needed]
    for number, each in enumerate(one.counted):
        for part in each.check.parts:
            of = [*part.of, *[""] * (6 - len(part.of))]
            yield [*head, number, *of, part.low, part.high, int(part.strict), int(part.sample.exact)]


def _write(path: Path, head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    with writing(path), open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *lines])
