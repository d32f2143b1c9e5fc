"""Everything that can be said from the records of a comparison.

DIR/leaderboard.html  DIR/leaderboard.json
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rarely.comparison import markdown, page
from rarely.comparison.scores import Leaderboard, Results, leaderboard
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
        raise NothingToCompare(_why_nothing(board.results, out))
    doubts = _doubts(found, out)
    write_text(out / "leaderboard.json", json.dumps(describe(board), indent=1, ensure_ascii=False, allow_nan=False))
    write_text(out / "leaderboard.html", page.render(found.records, board, doubts))
    if markdown_path is not None:
        write_text(markdown_path, markdown.render(found.records, board, doubts))
    return Written(out / "leaderboard.html", board, found.refused)


def _why_nothing(results: Results, out: Path) -> str:
    """Why no policy has a row."""
    if not results.problems:
        return f"{out / 'records'} holds no records to compare; rarely compare --out {out} makes some."
    if not results.finite():
        return f"{out / 'records'} holds runs with B = T alone; play finite budgets too, such as --budgets 5,20,T."
    if not results.scaled:
        largest = {problem: scale.batches or "T" for problem, scale in results.scales.items()}
        each = ", ".join(f"{problem} with B = {batches}" for problem, batches in largest.items())
        return (
            f"nothing but uniform play is on record, or nothing that beats it ({each}), so regrets cannot be put on a "
            "scale. Play more rounds, or a policy that learns beside yours, such as --policy linucb."
        )
    return (
        f"no policy was played with every budget on record ({', '.join(map(str, results.finite()))}) on any problem; "
        "the same command plays what is missing."
    )


def describe(board: Leaderboard) -> dict[str, Any]:
    """The leaderboard as JSON."""
    rows = []
    for row in board.rows:
        own = asdict(row)
        own["scores"] = {str(batches or "T"): score for batches, score in own["scores"].items()}
        rows.append(own)
    scales = {problem: asdict(scale) for problem, scale in board.results.scales.items()}
    described: dict[str, Any] = _finite({"rows": rows, "scales": scales, "left_out": board.unscaled})
    return described


def _finite(value: Any) -> Any:
    """With null for numbers that JSON has not, such as the ends of an interval over one problem."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _doubts(found: Found, out: Path) -> list[str]:
    if not found.refused:
        return []
    each = "; ".join(f"{file.path.relative_to(out).as_posix()} ({file.reason})" for file in found.refused)
    were = "1 file was" if len(found.refused) == 1 else f"{len(found.refused)} files were"
    return [f"{were} refused, and this page is made without: {each}."]
