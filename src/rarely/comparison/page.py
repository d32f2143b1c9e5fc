"""The comparison as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rarely.comparison import figures, svg, tables
from rarely.comparison.records import Record
from rarely.comparison.scores import Leaderboard

TITLE = "Regret under a budget of updates"


def render(records: Sequence[Record], board: Leaderboard, doubts: Sequence[str] = ()) -> str:
    """The whole page; `doubts` are warnings about the records."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
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
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{TITLE}</title><style>{style}</style></head>\n<body>\n" + "\n".join(sections) + "\n</body></html>\n"
    )


def _legend(drawn: dict[str, svg.Style]) -> str:
    items = "".join(
        f"<li>{svg.swatch(style)} {escape(policy)}</li>" for policy, style in drawn.items() if policy != "uniform"
    )
    return f'<ul class="legend">{items}</ul>'


def _panels(drawn: Iterator[str]) -> str:
    return '<div class="panels">' + "\n".join(f"<figure>{one}</figure>" for one in drawn) + "</div>"


def _grid(grid: tables.Grid, css: str = "") -> str:
    head = "".join(_cells("th", grid.head, grid.numbers))
    body = "\n".join(f"<tr>{''.join(_cells('td', line, grid.numbers))}</tr>" for line in grid.body)
    whole = f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody>"
    return f'<div class="scroll"><table class="{css}">{whole}</table></div>'


def _cells(tag: str, texts: Sequence[str], numbers: int) -> Iterator[str]:
    for index, text in enumerate(texts):
        css = ' class="n"' if index >= numbers else ""
        yield f"<{tag}{css}>{escape(text)}</{tag}>"
