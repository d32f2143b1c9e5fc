"""Made-up records, so that what is said of runs can be tested without playing any."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from rarely_lab.engine.record import FORMAT, identity
from rarely_lab.reproduce.catalogue import GROWTH, PROBLEMS, Cell, configurations
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
    at = np.linspace(1, rounds - 1, updates).astype(int)
    content = {
        "regret": regret,
        "reward": 1.0,
        "right": 0.5,
        "updates": {
            "cause": "grid",
            "rounds": at.tolist(),
            "log_det": at.astype(float).tolist(),
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


SPREAD = (1.0, 1.002, 0.998)


def field(regret_of, seconds_of=lambda c: 1.0, problem="cosine", preset="practical", updates_of=lambda c: 30):
    """Three runs of every configuration, regrets and times as a function of the configuration."""
    table = problem in ("mushroom", "magic")
    records = []
    for c in configurations(PROBLEMS[problem]):
        reading = (VIEWS[preset] if table else "raw") if c.linear else preset
        own = 1 + 1e-4 * np.random.default_rng(zlib.crc32(c.id.encode())).standard_normal((2, len(SPREAD)))
        for seed, noise in enumerate(SPREAD):
            kind = {"kind": c.kind, "batches": c.batches, "log_ratio": c.log_ratio, "ridge": c.ridge, "beta": c.beta}
            sizes = {"regret": noise * own[0, seed] * regret_of(c), "seconds": own[1, seed] * seconds_of(c)}
            sizes["updates"] = updates_of(c)
            records.append(record(problem, reading, seed=seed, rounds=2000, **kind, **sizes))
    return records


def as_the_paper_says(problem):
    """Regrets of a made-up world in which all of the paper is true."""
    fixed = {40: 149.0, 100: 139.0, 200: 133.0, 250: 131.0}
    if problem == "cosine":
        fixed[40] = 220.0
    if problem == "quadratic":
        fixed[200] = 108.0
    adaptive = {40: 118.0, 100: 104.0, 200: 103.0, 250: 102.0}

    def regret(c):
        if c.kind == "linucb-intercept":
            return 90.0 if problem == "cosine" else regret(replace(c, kind="linucb"))
        if c.linear:
            return 115.0 if problem == "magic" else 1000.0
        return 100.0 if c.kind == "neuralucb" else (fixed if c.kind == "fixed" else adaptive)[c.batches]

    return regret


def times_as_the_paper_says(problem):
    def seconds(c):
        if c.linear or c.kind == "neuralucb":
            return 2.0 if c.linear else 2000.0
        return 90.0 if problem == "quadratic" else 222.0

    return seconds


def updates_as_the_paper_says(c):
    return 1999 if c.batches is None else c.batches - 1


def paper(problem):
    return field(
        as_the_paper_says(problem), times_as_the_paper_says(problem), problem, updates_of=updates_as_the_paper_says
    )


def lengths(versions_of, regret_of, seeds=5, names=GROWTH):
    """Runs of every scheme; `versions_of` the rule, `regret_of` of a kind, both with a small spread."""
    records, noise = [], np.random.default_rng(0)
    for name in names:
        t = PROBLEMS[name].rounds
        for c in configurations(PROBLEMS[name]):
            for seed in range(seeds):
                versions = versions_of(t) + seed % 3 if c.log_ratio else c.batches or t
                regret = regret_of(c.kind, t) * np.exp(0.01 * noise.standard_normal())
                sizes = {"regret": float(regret), "updates": int(versions) - 1, "rounds": t, "seed": seed}
                records.append(record(name, "practical", **vars(c), **sizes))
    return records
