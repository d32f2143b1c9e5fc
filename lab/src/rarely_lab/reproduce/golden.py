"""Golden families of reproduction records: a policy's own family, and small runs of the paper's experiments.

    reproduce/paper, practical, code   every configuration of a network in that reading
    reproduce/default                  the library's default beside them
    reproduce/linucb                   both linear configurations, in every view

The GPU engine has no families of its own: it must decide as the core does, which `tests/gpu` checks on these runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rarely.golden import FAMILIES as POLICIES
from rarely.golden import Families, Family, Life, Trace, Watched, nudged
from rarely.worlds import Cosine, Quadratic, Table, World
from rarely_lab.engine.play import play_policy
from rarely_lab.reproduce.config import PRESETS, VIEWS, Configuration, Problem, Setup

ROUNDS = 30
NEURAL = (
    Configuration("neuralucb"),
    Configuration("fixed", batches=4),
    Configuration("adaptive", batches=5, log_ratio=6.0),
)
LINEAR = tuple(Configuration(kind, ridge=0.1, beta=0.5) for kind in ("linucb", "linucb-intercept"))


SEEDS = {
    **{("code", "golden-table", configuration.kind): 1 for configuration in NEURAL},
    ("paper", "golden-quadratic", "fixed"): 1,
    ("paper", "golden-quadratic", "adaptive"): 2,
    ("practical", "golden-quadratic", "fixed"): 1,
    ("practical", "golden-table", "fixed"): 1,
}
"""Seeds by family, problem and kind, which leave every choice a clear margin; 0 where none is given."""


def problems() -> list[Problem]:
    """Return a small problem of each kind that is published."""
    generator = np.random.default_rng(45)
    rows = generator.normal(size=(60, 3))
    table = Table.of(rows, np.where(rows[:, 0] + 0.3 * rows[:, 1] > 0, "e", "p"))
    sizes: dict[str, Any] = {"hidden": 8, "steps": 10, "ridge": 0.1, "beta": 0.1}
    sources: dict[str, World | Table] = {"cosine": Cosine(3, 3), "quadratic": Quadratic(2, 3), "table": table}
    return [Problem(f"golden-{name}", source, **sizes) for name, source in sources.items()]


def setups(family: str) -> Iterator[Setup]:
    """Yield the runs of a family."""
    for problem in problems():
        kinds: list[tuple[Any, Configuration]]
        if family == "linucb":
            views = ("raw",) if problem.view("code") == "raw" else tuple(VIEWS.values())
            kinds = [(view, configuration) for view in views for configuration in LINEAR]
        elif family == "default":
            kinds = [("practical", Configuration("default", batches=3))]
        else:
            kinds = [(family, configuration) for configuration in NEURAL]
        for reading, configuration in kinds:
            seed = SEEDS.get((family, problem.name, configuration.kind), 0)
            yield Setup(problem, reading, configuration, seed, ROUNDS)


def live(setup: Setup, nudge: float) -> Trace:
    """Play a run as the laboratory does, and return what happened."""
    rounds = setup.world().rounds(setup.seed, setup.rounds)
    policy: Any = Watched(setup.policy())
    played = play_policy(policy, nudged(rounds, nudge))
    trace: Trace = policy.trace(rounds.means)
    trace.numbers |= {"regret": float(played.regrets.sum()), "right": float(np.mean(played.arms == rounds.best))}
    trace.numbers["reward"] = float(played.rounds.paid(played.arms).sum())
    return trace


def lives(family: str) -> dict[str, Life]:
    """Return the runs of a family as lives."""
    return {setup.id: partial(live, setup) for setup in setups(family)}


FAMILIES = Families(
    Path(__file__).with_name("golden.json"),
    *(
        Family(f"reproduce/{name}", partial(lives, name), POLICIES[name])
        for name in ("default", *sorted(PRESETS), "linucb")
    ),
)


def family_of(reading: str, kind: str) -> str:
    """Return the family of a configuration's kind in a reading.

    >>> family_of("standard", "linucb"), family_of("practical", "default"), family_of("paper", "adaptive")
    ('reproduce/linucb', 'reproduce/default', 'reproduce/paper')
    """
    return f"reproduce/{'linucb' if kind.startswith('linucb') else 'default' if kind == 'default' else reading}"
