"""The comparison as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rarely.comparison import figures, svg, tables
from rarely.comparison.records import Record
from rarely.comparison.scores import Leaderboard
from rarely.simulation.page import document, grid

TITLE = "Regret under a budget of updates"


def render(records: Sequence[Record], board: Leaderboard, doubts: Sequence[str] = ()) -> str:
    """The whole page; `doubts` are warnings about the records."""
    drawn = figures.styles(board)
    seeds = sorted({record.seed for record in records})
    head = (
        f"<h1>{TITLE}</h1><p>{len(board.rows)} policies on {len(board.results.problems)} problems, {len(seeds)} seeds. "
        "A policy may be updated B − 1 times, and rewards are told only when an update begins.</p>"
    )
    sections = [
        head,
        *(f'<p class="warn">{escape(doubt)}</p>' for doubt in doubts),
        '<nav><a href="#board">Leaderboard</a><a href="#frontiers">Frontiers</a><a href="#radars">Policies</a>'
        '<a href="#problems">Problems</a><a href="#run">What was run</a></nav>',
        '<h2 id="board">Leaderboard</h2>' + _grid(tables.ranking(board), "board"),
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in tables.explanation(board)) + "</ul>",
        '<h2 id="frontiers">A frontier for each problem</h2><p>Mean regret with its 95 % interval over seeds, against '
        "the number of versions; both axes are logarithmic.</p>" + _legend(drawn),
        _panels(figures.frontier(board, problem) for problem in board.results.problems),
        '<h2 id="radars">A radar for each policy</h2><p>The rim is a normalised regret of 0, the fastest policy, and '
        "intervals that cover 95 %; the middle is uniform play, the slowest policy, and no intervals.</p>",
        _panels(
            svg.radar(row.policy, figures.axes(board, row), drawn[row.policy])
            for row in board.rows
            if row.policy != "uniform"
        ),
        '<h2 id="problems">Problems</h2>' + _grid(tables.scales(board)),
        *(
            f"<details><summary>{escape(problem)}: mean regret [95 % over seeds]</summary>"
            + _grid(tables.of_problem(board, problem))
            + "</details>"
            for problem in board.results.problems
        ),
        f'<h2 id="run">What was run</h2><p>{escape(tables.provenance(records))}</p>',
    ]
    return document(TITLE, "\n".join(sections), Path(__file__).with_name("page.css"))


def _legend(drawn: dict[str, svg.Style]) -> str:
    items = "".join(
        f"<li>{svg.swatch(style)} {escape(policy)}</li>" for policy, style in drawn.items() if policy != "uniform"
    )
    return f'<ul class="legend">{items}</ul>'


def _panels(drawn: Iterator[str]) -> str:
    return '<div class="panels">' + "\n".join(f"<figure>{one}</figure>" for one in drawn) + "</div>"


def _grid(shown: tables.Grid, css: str = "") -> str:
    return grid(shown.head, shown.body, shown.numbers, css)
