"""Everything that can be said from the records: figures, claims, summary, and one page that holds them all.

DIR/report.html  DIR/claims.json  DIR/summary.csv  DIR/figures/*.png, *.svg
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rarely.core.errors import RarelyError
from rarely.experiments.published import publish, read_published
from rarely.experiments.report import html, markdown, plots
from rarely.experiments.report.claims import Judged, judge
from rarely.experiments.report.results import compare
from rarely.experiments.report.summary import as_csv
from rarely.experiments.store import Found, Store
from rarely.simulation.recorded_run import Refusal
from rarely.simulation.writing import make_folder, write_text


class NothingToReport(RarelyError):
    """There are no records."""


class Report(NamedTuple):
    """A written report, and the records that it rests on."""

    path: Path
    """The html."""
    judged: list[Judged]
    refused: list[Refusal]
    """Files that are no record, or a changed one; the report has the others."""
    records: int
    without_digest: int
    """Records of version 0.1, of which an edit may not show."""


def write_report(
    out: Path,
    drawn: Callable[[int, int], None] = lambda done, of: None,
    published: Path | None = None,
    publish_to: Path | None = None,
) -> Report:
    """Draw and write everything from the records in `out`, or from a file of published ones.

    `drawn` hears how many figures of how many are there. `publish_to` is a file for the records in compact form.
    """
    found = _found(out) if published is None else Found(read_published(published), [])
    make_folder(out)
    if publish_to is not None:
        publish(found.records, publish_to)
    comparisons = compare(found.records)
    judged = judge(comparisons)
    write_text(out / "claims.json", json.dumps(claims_json(judged, found, out), indent=1, ensure_ascii=False))
    write_text(out / "summary.csv", as_csv(comparisons))
    figures = []
    for figure in plots.draw_all(comparisons, out / "figures"):
        figures.append(figure)
        drawn(len(figures), plots.count(comparisons))
    _remove_stale(out / "figures", figures)
    doubts = doubts_about(found, out)
    write_text(out / "report.html", html.render(found.records, comparisons, judged, out / "figures", doubts))
    return Report(out / "report.html", judged, found.refused, len(found.records), _without_digest(found))


def write_markdown(out: Path, path: Path, published: Path | None = None) -> None:
    """Claims and tables as Markdown, from the records in `out` or in a file of published ones."""
    found = _found(out) if published is None else Found(read_published(published), [])
    comparisons = compare(found.records)
    write_text(path, markdown.render(found.records, comparisons, judge(comparisons), doubts_about(found, out)))


def claims_json(judged: list[Judged], found: Found, out: Path) -> dict[str, object]:
    """What `claims.json` holds."""
    return {
        "claims": [claim.describe() for claim in judged],
        "machines": sorted({record.machine for record in found.records}),
        "code": found.records[0].data["code"],
        "refused": {file.path.relative_to(out).as_posix(): file.reason for file in found.refused},
        "without_digest": _without_digest(found),
    }


def doubts_about(found: Found, out: Path) -> list[str]:
    """Warnings about the records: how many are refused, which and why; how many have no digest."""
    doubts = []
    if count := len(found.refused):
        each = "; ".join(f"{file.path.relative_to(out).as_posix()} ({file.reason})" for file in found.refused)
        were = "1 file was" if count == 1 else f"{count} files were"
        doubts.append(f"{were} refused, and this report is made without: {each}.")
    if count := _without_digest(found):
        doubts.append(
            f"{count} of {len(found.records)} records are without digest, because version 0.1 wrote them: their "
            "numbers are plausible, but an edit would not show."
        )
    return doubts


def _without_digest(found: Found) -> int:
    return sum(not record.has_digest for record in found.records)


def _found(out: Path) -> Found:
    found = Store(out).examine()
    if not compare(found.records):
        refused = "".join(f"\n{file}" for file in found.refused)
        raise NothingToReport(
            f"{out / 'records'} holds no records to report; run: rarely reproduce --out {out}.{refused}"
        )
    return found


def _remove_stale(folder: Path, figures: list[Path]) -> None:
    """Figures of records that are no longer there must not stay beside the others."""
    kept = {path.stem for path in figures}
    for path in (*folder.glob("*.svg"), *folder.glob("*.png")):
        if path.stem not in kept:
            path.unlink()
