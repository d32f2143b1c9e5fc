"""The comparison as Markdown, for documentation."""

from __future__ import annotations

from collections.abc import Sequence

from rarely.comparison import tables
from rarely.comparison.records import Record
from rarely.comparison.scores import Leaderboard


def render(records: Sequence[Record], board: Leaderboard, doubts: Sequence[str] = ()) -> str:
    """Leaderboard, explanation, and a table for each problem."""
    parts = [
        *doubts,
        _grid(tables.ranking(board)),
        "\n".join(f"- {line}" for line in tables.explanation(board)),
        tables.provenance(records),
        "## Problems",
        _grid(tables.scales(board)),
        "Mean regret [95 % interval over seeds]:",
        *(part for problem in board.results.problems for part in _problem(board, problem)),
    ]
    return "\n\n".join(parts) + "\n"


def _problem(board: Leaderboard, problem: str) -> tuple[str, str]:
    return f"### {problem}", _grid(tables.of_problem(board, problem))


def _grid(grid: tables.Grid) -> str:
    rule = ["---" if index < grid.numbers else "---:" for index in range(len(grid.head))]
    lines = [grid.head, rule, *grid.body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
