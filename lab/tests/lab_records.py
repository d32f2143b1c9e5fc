"""Made-up records, so that what is said of runs can be tested without playing any."""

from __future__ import annotations

import numpy as np

from rarely_lab.engine.record import FORMAT, identity
from rarely_lab.reproduce.catalogue import PROBLEMS
from rarely_lab.reproduce.cells import Cell
from rarely_lab.reproduce.config import VIEWS, Configuration
from rarely_lab.reproduce.records import Record


def record(
    problem="cosine",
    reading="practical",
    kind="neuralucb",
    seed=0,
    regret=100.0,
    seconds=1.0,
    updates=3,
    rounds=60,
    **c,
):
    cell = Cell(PROBLEMS[problem], reading, Configuration(kind, **c), seed, rounds)
    view = {"view": VIEWS.get(reading, reading)} if problem in ("mushroom", "magic") else {}
    world = {"world": "X", "arms": 2, "dim": 2} | view
    asked = {
        "problem": {"name": problem, "base": PROBLEMS[problem].base},
        "world": world,
        "reading": reading,
        "configuration": vars(cell.configuration),
        "seed": seed,
        "rounds": rounds,
    }
    at = np.linspace(1, rounds - 1, updates).astype(int).tolist()
    content = {
        "regret": regret,
        "reward": 1.0,
        "right": 0.5,
        "updates": {
            "cause": "grid",
            "rounds": at,
            "log_det": [float(t) for t in at],
            "attempts": 3,
            "rejected": [],
        },
        "log_det": [[0, 0.0], [rounds, float(rounds)]],
        "seconds": {"selecting": 0.25 * seconds, "training": 0.75 * seconds},
        "wall": {"selecting": 0.25 * seconds, "training": 0.75 * seconds, "cell": 1.01 * seconds},
        "peak_memory": 2**26,
        "environment": {
            "machine": "a machine, 2 cores",
            "system": "Linux",
            "python": "3",
            "numpy": "2",
            "rarely": "0",
            "form": "numpy",
        },
    }
    head = {"format": FORMAT, "kind": Record.kind, "id": cell.id, "identity": identity(asked)}
    curve = np.linspace(0, regret, rounds).tolist()
    return Record({**head, "code": "y", "asked": asked, **content, "curve": curve})


def runs(regrets, **kind):
    """One record for each seed."""
    return [record(seed=seed, regret=regret, **kind) for seed, regret in enumerate(regrets)]
