"""Everything that can be said from the records: figures, claims, summary, and one page that holds them all.

DIR/report.html  DIR/claims.json  DIR/summary.csv  DIR/figures/*.png, *.svg
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from rarely.core.errors import RarelyError
from rarely.lab import markdown, page, plots
from rarely.lab.claims import Judged, judge
from rarely.lab.records import Record, Store
from rarely.lab.results import compare
from rarely.lab.summary import as_csv


class NothingToReport(RarelyError):
    """There are no records."""


def write_report(out: Path, drawn: Callable[[int, int], None] = lambda done, of: None) -> tuple[Path, list[Judged]]:
    """Draw and write everything from the records in `out`; returns the page and the judged claims.

    `drawn` hears how many figures of how many are there.
    """
    records = _records(out)
    comparisons = compare(records)
    judged = judge(comparisons)
    _put(out / "claims.json", json.dumps(claims_json(judged, records), indent=1, ensure_ascii=False))
    _put(out / "summary.csv", as_csv(comparisons))
    figures = []
    for figure in plots.draw_all(comparisons, out / "figures"):
        figures.append(figure)
        drawn(len(figures), plots.count(comparisons))
    _remove_stale(out / "figures", figures)
    _put(out / "report.html", page.render(records, comparisons, judged, out / "figures"))
    return out / "report.html", judged


def write_markdown(out: Path, path: Path) -> None:
    """Claims and tables as Markdown, from the records in `out`."""
    records = _records(out)
    comparisons = compare(records)
    _put(path, markdown.render(records, comparisons, judge(comparisons)))


def claims_json(judged: list[Judged], records: list[Record]) -> dict[str, object]:
    """What `claims.json` holds."""
    return {
        "claims": [claim.describe() for claim in judged],
        "machines": sorted({record.machine for record in records}),
        "code": records[0].data["code"],
    }


def _records(out: Path) -> list[Record]:
    records = Store(out).read()
    if not compare(records):
        raise NothingToReport(f"{out / 'records'} holds no records to report; run: rarely reproduce --out {out}.")
    return records


def _put(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _remove_stale(folder: Path, figures: list[Path]) -> None:
    """Figures of records that are no longer there must not stay beside the others."""
    kept = {path.stem for path in figures}
    for path in (*folder.glob("*.svg"), *folder.glob("*.png")):
        if path.stem not in kept:
            path.unlink()
