"""Five policies on the cosine problem, in a minute: what the idea is, in numbers that judge nothing.

    LinUCB               with an update after every round
    NeuralUCB            with an update after every round
    fixed grid           BatchNeuralUCB with B equal batches
    determinant rule     BatchNeuralUCB with an update whenever det Z has grown by q, at most B − 1 times
    default              BatchNeuralUCB as it comes, under `Paced`

All of the paper's claims are about T = 2000 and its own settings, which take hours: `rarely reproduce`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rarely._reproduce.catalogue import FAIR, PROBLEMS
from rarely._reproduce.cells import Cell
from rarely._reproduce.config import Configuration
from rarely._reproduce.records import Record
from rarely._reproduce.report.results import Series

ROUNDS, RUNS, BATCHES, LOG_RATIO = 1000, 3, 20, 60.0
PROBLEM = replace(PROBLEMS["cosine"], name="cosine-quick", hidden=64, steps=30, base="")
"""The paper's cosine problem with a smaller network and shorter trainings, so that a minute is enough."""
CONFIGURATIONS = {
    "LinUCB": Configuration("linucb-intercept", ridge=FAIR[0], beta=FAIR[1]),
    "NeuralUCB, every round": Configuration("neuralucb"),
    "fixed grid": Configuration("fixed", batches=BATCHES),
    "determinant rule": Configuration("adaptive", batches=BATCHES, log_ratio=LOG_RATIO),
    "default": Configuration("default", batches=BATCHES),
}
"""By the names that a page shows, in its order."""


def quick_cells(rounds: int = ROUNDS, runs: int = RUNS) -> list[Cell]:
    """Return the cells to play, the longest first."""
    cells = (
        Cell(PROBLEM, "raw" if one.linear else "practical", one, seed, rounds)
        for seed in range(runs)
        for one in CONFIGURATIONS.values()
    )
    return sorted(cells, key=lambda cell: (-cell.work(), cell.seed))


def summarise(records: Iterable[Record]) -> list[Series]:
    """Return the quick runs among the records by policy, in the order of `CONFIGURATIONS`."""
    mine = sorted((record for record in records if record.problem == PROBLEM.name), key=lambda record: record.seed)
    rows = []
    for label, c in CONFIGURATIONS.items():
        if runs := {record.seed: record for record in mine if record.configuration == c}:
            rows.append(Series(c.id, label, c.kind, c, runs))
    return rows
