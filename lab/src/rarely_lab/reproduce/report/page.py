"""The report: everything that can be said from the records, as files in one folder.

DIR/report.html  DIR/claims.json  DIR/figures/*.svg

Flat tables are for who would rather compute than believe; docs/reproduction.md recomputes every verdict from the two:

    runs.csv     one line for each run: its group, as `cosine/practical/fixed-B40`, its seed and its numbers
    checks.csv   one line for each comparison that counts: what is divided by what, and where the ratio must lie
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rarely.pages.figures import drawn
from rarely.pages.page import render
from rarely.pages.svg import inline
from rarely.runs.files import make_folder, write_file, writing
from rarely_lab.engine.record import NothingOnRecord, Refusal, describe_records, group_of, outdated, pack, read_records
from rarely_lab.reproduce.catalogue import GROWTH
from rarely_lab.reproduce.records import Record, codes_of
from rarely_lab.reproduce.report import tables
from rarely_lab.reproduce.report.claims import PRINTED_ROUNDS, Judged
from rarely_lab.reproduce.report.few_updates import figures_of_few, render_few_updates
from rarely_lab.reproduce.report.figures import figures
from rarely_lab.reproduce.report.paper_claims import judge
from rarely_lab.reproduce.report.results import Comparison, compare, overhead, uniform_regret, where

PRINTED_RUNS = 10  # how many runs of each configuration the paper has
CAPTIONS = {
    "box": "Total regret of every configuration.",
    "scatter": "Regret against processor time.",
    "curves": "Mean regret so far; ticks show when one run updated.",
    "frontier": "Regret against the number of updates, every configuration, with intervals over runs; "
    "single runs as dots where there are few.",
    "few": "Regret relative to NeuralUCB's, and versions, against T, with the curves of the theory.",
}
RUNS = ("group", "seed", "rounds", "regret", "versions", "seconds", "uniform", "engine", "machine", "form")
CLAIM = ("claim", "problem", "preset", "estimand", "verdict", "needed", "check")
PART = ("number", "a", "b", "goal", "machine", "form", "low", "high", "strict", "exact")


class Report(NamedTuple):
    """A written report: its HTML file, the claims that it judges, and files that it leaves out."""

    path: Path
    judged: list[Judged]
    refused: list[Refusal]


def write_report(
    out: Path,
    progress: Callable[[int, int], None] = lambda done, of: None,
    published: Path | None = None,
    publish_to: Path | None = None,
    markdown: Path | None = None,
    tables_to: Path | None = None,
    few_updates: Path | None = None,
) -> Report:
    """Draw and write everything from the records in `out`, or from a file of published ones.

    `progress` receives how many figures of how many are drawn. `publish_to` is a file for the records in compact form,
    `markdown` one for claims and tables, `tables_to` a folder for runs and checks as CSV, and
    `few_updates` a file for what few updates cost over T.
    """
    stored, place = read_records(published or out, Record), out if published is None else published.parent
    comparisons = compare(stored.records)
    if not comparisons:
        refused = "".join(f"\n{file}" for file in stored.refused[:3])
        raise NothingOnRecord(
            f"{out / 'records'} holds no records to report; run rarely reproduce --out {out}.{refused}"
        )
    make_folder(out / "figures")
    if publish_to is not None:
        pack(stored.records, publish_to)
    judged = judge(comparisons)
    if tables_to is not None:
        write_tables(tables_to, stored.records, judged)
    claims = {
        "claims": [claim.describe() for claim in judged],
        "machines": sorted({record.machine for record in stored.records}),
        "code": codes_of(stored.records),
        "refused": {file.path.relative_to(place).as_posix(): file.reason for file in stored.refused},
    }
    write_file(out / "claims.json", json.dumps(claims, indent=1, ensure_ascii=False))
    pictures: dict[str, str] = {}
    to_draw = figures(comparisons) | figures_of_few(comparisons)
    for name, draw in to_draw.items():
        pictures[name] = drawn(draw)
        write_file(out / "figures" / f"{name}.svg", pictures[name])
        progress(len(pictures), len(to_draw))
    for stale in {*(out / "figures").glob("*.svg")} - {out / "figures" / f"{name}.svg" for name in pictures}:
        stale.unlink()
    warnings = [*outdated(stored.records), *stored.warnings(place, "report")]
    write_file(out / "report.html", render_page(stored.records, comparisons, judged, pictures, warnings))
    if few_updates is not None:
        write_file(few_updates, render_few_updates(comparisons))
    if markdown is not None:
        write_file(markdown, render_markdown(stored.records, comparisons, judged, warnings))
    return Report(out / "report.html", judged, stored.refused)


def write_tables(folder: Path, records: Sequence[Record], judged: Sequence[Judged]) -> None:
    """Write both tables into a folder."""
    make_folder(folder)
    _write(folder / "runs.csv", RUNS, map(_run, records))
    _write(folder / "checks.csv", (*CLAIM, *PART), (line for one in judged for line in _checks(one)))


def _run(one: Record) -> list[Any]:
    numbers = [one.rounds, one.regret, one.versions, one.seconds, f"{uniform_regret(one):.1f}"]
    return [group_of(one.id), one.seed, *numbers, one.engine, one.machine, one.form]


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


def render_page(
    records: Sequence[Record],
    comparisons: Sequence[Comparison],
    judged: Sequence[Judged],
    pictures: dict[str, str],
    warnings: Sequence[str] = (),
) -> str:
    """Return the report as one HTML file; `warnings` are about the records."""
    plain = [c for c in comparisons if c.problem not in GROWTH]
    problems = [(name, list(group)) for name, group in groupby(plain, key=lambda c: c.problem)]
    wide = [name for name in pictures if name.startswith(("frontier-", "few-"))]
    # One of each kind is enough at first: of preset practical, if it was played.
    kinds = ([name for name in wide if name.startswith(kind)] for kind in ("frontier-", "few-"))
    first = [next((name for name in of if name.endswith("-practical")), of[0]) for of in kinds if of]
    own, second = ([j for j in judged if j.second_reading is again] for again in (False, True))
    rows, second_rows = tables.claims(own), tables.claims(second)
    contents = [*([("claims", "The claims")] if judged else []), ("run", "What was run")]
    contents += [("problems", "Every configuration")]
    contents += [("deviations", "Deviations"), ("evidence", "Evidence")] if judged else []
    return render(
        "rarely_lab.reproduce.report",
        "report.html",
        contents=contents,
        sentences=tables.sentences(judged, comparisons) if judged else [],
        warnings=[*_shortfalls(plain), *warnings],
        overview=[_figure(pictures, name) for name in first],
        more=[_figure(pictures, name) for name in wide if name not in first],
        what_was_run=tables.what_was_run(comparisons),
        provenance=describe_records(records, "one configuration on one run each"),
        overhead=overhead(records),
        run_presets={c.preset for c in comparisons},
        judged=judged,
        rows=rows or second_rows,
        second=second_rows if rows else [],
        problems=problems,
        growth=tables.growing(comparisons),
        notes=_notes,
        figures=lambda c: [
            _figure(pictures, name)
            for kind in list(CAPTIONS)[:3]
            if (name := f"{c.problem}-{c.preset}-{kind}") in pictures
        ],
        tables=tables,
    )


def _shortfalls(comparisons: Sequence[Comparison]) -> list[str]:
    """Say in what the runs fall short of the paper's."""
    out = []
    if any(c.rounds != PRINTED_ROUNDS and c.base and c.base == c.problem for c in comparisons):
        lengths = ", ".join(str(n) for n in sorted({c.rounds for c in comparisons}))
        out.append(f"These runs have T = {lengths} rounds; the paper's have {PRINTED_ROUNDS}.")
    sequential = [c.sequential_runs for c in comparisons if c.base]
    if sequential and min(sequential) < PRINTED_RUNS:
        few = " to ".join(str(n) for n in sorted({min(sequential), max(sequential)}))
        which = "Sequential NeuralUCB, with which most claims compare,"
        out.append(f"{which} has {few} runs of a problem here; the paper's has {PRINTED_RUNS}.")
    return out


def _notes(c: Comparison) -> list[str]:
    notes = []
    adaptive = c.of_kind("adaptive")
    for i, a in enumerate(adaptive):
        twins = [b.label for b in adaptive[i + 1 :] if c.same_runs(a, b)]
        if twins and not any(c.same_runs(before, a) for before in adaptive[:i]):
            same = f"{a.label} and {', '.join(twins)} are the same runs"
            notes.append(f"{same}: the trigger needs fewer versions than B.")
    records = [record for series in c.series.values() for record in series.runs.values()]
    if lockstep := [r for r in records if r.data.get("near_ties") is not None]:
        near, rounds = sum(r.data["near_ties"] for r in lockstep), sum(r.rounds for r in lockstep)
        device = lockstep[0].data["environment"]["device"]
        played = f"{len(lockstep)} runs of networks were played in lockstep on {device}; in {near} of their {rounds}"
        notes.append(f"{played} rounds two arms were nearly tied, and rounding elsewhere may choose the other.")
    if aside := {run.id for s in c.series.values() for run in c.clocked(s).values() if where(run) != c.place}:
        notes.append(f"Times are of {' with '.join(c.place)} loops; runs elsewhere, left aside: {len(aside)}.")
    if retried := sum(max(0, r.data["updates"]["attempts"] - len(r.updates)) for r in records):
        notes.append(f"Trainings were repeated with a smaller step {retried} times.")
    if rejected := sum(len(r.data["updates"]["rejected"]) for r in records):
        notes.append(f"{rejected} updates failed training's own check; the version in use was kept.")
    return notes


def _figure(pictures: dict[str, str], name: str) -> tuple[str, str]:
    caption = next(CAPTIONS[part] for part in (name.rsplit("-", 1)[-1], name.split("-")[0]) if part in CAPTIONS)
    return inline(pictures[name], f"{name}: {caption}"), caption


def render_markdown(
    records: Sequence[Record], comparisons: Sequence[Comparison], judged: Sequence[Judged], warnings: Sequence[str] = ()
) -> str:
    """Return what was run, the claims, and a table for each problem and preset."""
    return render(
        "rarely_lab.reproduce.report",
        "report.md",
        records=records,
        described=describe_records(records, "one configuration on one run each"),
        comparisons=comparisons,
        judged=judged,
        warnings=warnings,
        tables=tables,
        lengths=GROWTH,
    )
