"""Everything that can be said from the records of a comparison.

DIR/leaderboard.html  DIR/leaderboard.json
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rarely.comparison import markdown, page
from rarely.comparison.scores import Leaderboard, leaderboard
from rarely.comparison.store import Found, read_records
from rarely.core.errors import RarelyError
from rarely.simulation.recorded_run import Refusal
from rarely.simulation.writing import write_text


class NothingToCompare(RarelyError):
    """There are no records, or none with a finite budget."""


class Written(NamedTuple):
    """A written leaderboard."""

    path: Path
    """The html."""
    board: Leaderboard
    refused: list[Refusal]


def write_leaderboard(out: Path, markdown_path: Path | None = None) -> Written:
    """Write the page, the JSON and perhaps Markdown from the records in `out`."""
    found = read_records(out)
    board = leaderboard(found.records)
    if not board.rows:
        raise NothingToCompare(
            f"{out / 'records'} holds no complete frontier of any policy; run rarely compare --out {out}."
        )
    doubts = _doubts(found, out)
    write_text(out / "leaderboard.json", json.dumps(describe(board), indent=1, ensure_ascii=False))
    write_text(out / "leaderboard.html", page.render(found.records, board, doubts))
    if markdown_path is not None:
        write_text(markdown_path, markdown.render(found.records, board, doubts))
    return Written(out / "leaderboard.html", board, found.refused)


def describe(board: Leaderboard) -> dict[str, Any]:
    """The leaderboard as JSON."""
    rows = []
    for row in board.rows:
        own = asdict(row)
        own["scores"] = {str(batches or "T"): score for batches, score in own["scores"].items()}
        rows.append(own)
    scales = {problem: asdict(scale) for problem, scale in board.results.scales.items()}
    return {"rows": rows, "scales": scales, "left_out": board.unscaled}


def _doubts(found: Found, out: Path) -> list[str]:
    if not found.refused:
        return []
    each = "; ".join(f"{file.path.relative_to(out).as_posix()} ({file.reason})" for file in found.refused)
    were = "1 file was" if len(found.refused) == 1 else f"{len(found.refused)} files were"
    return [f"{were} refused, and this page is made without: {each}."]
