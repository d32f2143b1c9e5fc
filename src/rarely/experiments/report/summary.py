"""One row for each configuration: what `summary.csv` and the report's tables hold."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from typing import Any

from rarely.experiments.report.results import NEURAL, Comparison, Series


def rows(comparison: Comparison) -> list[dict[str, Any]]:
    """A problem's configurations in one preset."""
    return [_row(comparison, series) for series in comparison.series.values()]


def as_csv(comparisons: Iterable[Comparison]) -> str:
    """All rows, one line each; a figure that does not exist is left empty."""
    every = [row for comparison in comparisons for row in rows(comparison)]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(every[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in every)
    return text.getvalue()


def _row(comparison: Comparison, series: Series) -> dict[str, Any]:
    regret = series.regret
    sequential = comparison.series.get(NEURAL)
    speed = comparison.time_ratios(sequential, series).interval() if sequential else None
    return {
        "problem": comparison.problem,
        "preset": comparison.preset,
        "configuration": series.name,
        "label": series.label,
        "ridge": series.configuration.ridge,
        "beta": series.configuration.beta,
        "runs": len(series.runs),
        "rounds": comparison.rounds,
        "regret_mean": regret.value,
        "regret_sd": series.deviation,
        "regret_low": regret.low,
        "regret_high": regret.high,
        "best_arm_share": series.right,
        "updates": series.updates,
        "rejected_updates": series.rejected,
        "seconds": series.seconds(),
        "seconds_selecting": series.seconds("selecting"),
        "seconds_training": series.seconds("training"),
        "times_faster_than_neuralucb": speed.value if speed else None,
        "log_det": series.log_det,
        "peak_memory_bytes": series.memory,
    }


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return "" if value is None else value
