"""The claims and the tables as Markdown, to be kept beside code: `rarely report DIR --markdown FILE`."""

from __future__ import annotations

from collections.abc import Sequence

from rarely.experiments.records import Record
from rarely.experiments.report import tables
from rarely.experiments.report.claims import Judged
from rarely.experiments.report.results import Comparison


def render(
    records: Sequence[Record], comparisons: Sequence[Comparison], judged: Sequence[Judged], doubts: Sequence[str] = ()
) -> str:
    """What was run, what is doubtful about it, the claims, and a table for each problem and preset."""
    facts = records[0].data["environment"]
    machines = " and ".join(sorted({record.machine for record in records}))
    hours = sum(record.seconds for record in records) / 3600
    parts = [
        f"{len(records)} records (one configuration on one run each), {hours:.1f} hours of processor time on "
        f"{machines}, Python {facts['python']}, NumPy {facts['numpy']}; code {records[0].data['code']}.",
        *doubts,
        _written(tables.what_was_run(comparisons)),
        "## The claims",
        _claims(judged),
    ]
    for c in comparisons:
        parts += [f"## {c.problem}, preset {c.preset}", _written(tables.results(c))]
    return "\n\n".join(parts) + "\n"


def _claims(judged: Sequence[Judged]) -> str:
    presets, rows = tables.claims(judged)
    body = []
    for row in rows:
        verdicts = [f"{tables.mark(j)}: {tables.behind(j)}" if j else "—" for j in row.judged.values()]
        body.append([row.name, row.says, *verdicts])
    return _written(tables.Grid(["claim", "the paper, in other words", *presets], body, numbers=len(presets) + 2))


def _written(grid: tables.Grid) -> str:
    rule = ["---"] * grid.numbers + ["---:"] * (len(grid.head) - grid.numbers)
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (grid.head, rule, *grid.body)
    )
