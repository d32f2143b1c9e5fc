"""The golden families of the library's policies, and which of them a policy belongs to.

    default, practical, paper, code                BatchNeuralUCB that tunes itself, and its presets with fixed training
    neural-ucb                                     NeuralUCB that tunes itself; elsewhere it has its preset's family
    neural-ts, neural-linear, neural-epsilon       each tuned and with fixed training
    linucb, lints, kernel-ucb, uniform, ensemble   an ensemble of a regressor that is written out here

Every family has single rounds and blocks, late and missing rewards, a log, and forgetting; together they reach what
`PATHS` of `tests/golden/test_families.py` lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rarely
from rarely import BatchNeuralUCB, Discount, FixedGrid, Mixture, NeuralUCB, Policy, Window
from rarely.extend import Array
from rarely.golden.family import Families, Family
from rarely.golden.lives import Life, Trace, curved_rounds, live
from rarely.worlds import Rounds

ROUNDS, CROWD, DIM = 40, 220, 3
STEPS = 12  # steps of a fixed training: enough to leave the initial weights
PACED = rarely.Paced(ROUNDS, 3)
"""The first update has two rewards: from a single one, rounding decides the features of the version after it."""
SPARSE = rarely.SparseRows.of(columns=40, nonzeros=2).settings
BLOCKS = rarely.ArmBlocks(3, rarely.Affine.identity(DIM, constant=True), "hybrid")
CODE: dict[str, Any] = {"preset": "code", "training": rarely.Training(40, 0.01), "beta": 0.1}
"""The reading of the public program."""
Make = Callable[..., Policy]
Settings = dict[str, Any]
World = Callable[[int], Rounds]  # the rounds of a seed
Lives = dict[str, Callable[[int, float], Trace]]  # lives by name, which take a seed and a nudge
SEEDS = {
    "default": {"trigger": 7, "turns": 7, "own-columns": 32, "shared-columns": 16, "crowd": 22},
    "practical": {"mixture": 1, "crowd": 1},
    "paper": {"short": 1, "mixture": 1, "sparse": 1},
    "code": {"grid": 2},
    "neural-ucb": {"own-columns": 1},
    "neural-ts": {"paced": 1, "blocks": 1},
    "neural-linear": {"grid": 1, "window": 1, "paper": 2, "paced": 2, "blocks": 2},
    "neural-epsilon": {"paper": 1, "blocks": 6},
    "linucb": {"every-round": 1, "discount": 1},
    "lints": {"trigger": 1, "discount": 2, "burst": 2, "sparse": 1},
    "kernel-ucb": {"steps": 1},
    "ensemble": {"greedy": 1},
}
"""Seeds by family and life, which leave every choice a margin of `CLEAR`; 0 where none is given."""

# --- worlds

CURVED: World = partial(curved_rounds, count=ROUNDS)
TURNING: World = partial(curved_rounds, count=ROUNDS, turns=True)


def _sparse_rounds(seed: int) -> Rounds:
    """Return rounds whose contexts have 40 columns, and two numbers in each that are not 0."""
    drawn, columns = CURVED(seed), np.tile(np.arange(40.0), (ROUNDS, 3, 1))
    places = np.sort(np.random.default_rng(seed).permuted(columns, axis=2)[..., :2])
    return replace(drawn, contexts=np.concatenate([places, 1 + np.abs(drawn.contexts[..., :2])], axis=2))


def _rows_in_blocks(seed: int) -> Rounds:
    """Return rounds whose arms are blocks of one row."""
    drawn = CURVED(seed)
    return replace(drawn, contexts=np.asarray(BLOCKS(drawn.contexts[:, 0])))


def _returning_arms(seed: int, count: int = ROUNDS, *, shared: bool = False) -> Rounds:
    """Return rounds that offer the same four arms, each with its own column or all with two."""
    generator = np.random.default_rng((seed, 47))
    arms = generator.normal(size=(4, 2)) if shared else np.eye(4)
    means = np.tile(generator.permutation([0.0, 0.4, 0.7, 1.0]), (count, 1))
    return Rounds(np.tile(arms, (count, 1, 1)), means, means + generator.normal(0, 0.3, means.shape))


def _burst(seed: int) -> Rounds:
    """Return rounds of which two have rewards that are too large for any training."""
    drawn = CURVED(seed)
    drawn.rewards[10:12] = [[1e308], [-1e308]]
    return drawn


# --- lives


def _life(
    kind: Any, schedule: rarely.Schedule | None, world: World = CURVED, *, log: bool = False, **rest: Any
) -> Callable[[int, float], Trace]:
    """Return a life of a policy, which has no schedule for None; what `live` does not take are its settings.

    With `log` it begins with a log of a third of its rounds, every arm in turn.
    """
    how = {name: rest.pop(name) for name in ("block", "late", "missing", "few") if name in rest}
    settings = rest if schedule is None else {"schedule": schedule} | rest

    def make(rounds: Rounds, seed: int) -> Policy:
        first = np.arange(len(rounds) // 3)
        pairs = rounds.contexts[first, first % 3], rounds.rewards[first, first % 3]
        policy: Policy = (
            kind.from_log(*pairs, seed=seed, **settings) if log else kind(**{"dim": DIM} | settings, seed=seed)
        )
        return policy

    return partial(live, make, world, **how)


def _crowd(kind: Make, *, operations: int = 400_000, **settings: Any) -> Callable[[int, float], Trace]:
    """Return a life long enough for Z to become p×p, and then among so many arms that it becomes an approximation."""
    settings |= {"limits": rarely.Limits(operations=operations), "hidden": 66, "block": 10, "few": CROWD - 20}
    return _life(kind, rarely.GeometricGrid(CROWD, 3), partial(curved_rounds, count=CROWD, arms=6), **settings)


def _network(kind: Make, **settings: Any) -> Lives:
    settings = {"hidden": 8} | settings
    return {
        "grid": _life(kind, FixedGrid(ROUNDS, 3), **settings),
        "trigger": _life(kind, rarely.DeterminantTrigger(ROUNDS, 4, 8.0), block=6, late=5, missing=7, **settings),
        "log": _life(kind, rarely.GeometricGrid(ROUNDS, 3), log=True, block=5, **settings),
        "window": _life(kind, FixedGrid(ROUNDS, 3), TURNING, forgetting=Window(16), **settings),
        "burst": _life(kind, rarely.AtRounds((8, 14, 36)), _burst, forgetting=Window(20), **settings),
        "short": _life(kind, rarely.LogLogGrid(ROUNDS, 4), limits=rarely.Limits(history=1500), block=5, **settings),
    }


def _default() -> Lives:
    kind, grid = BatchNeuralUCB, FixedGrid(ROUNDS, 3)
    small: Settings = {"hidden": 8}
    shared, turning = partial(_returning_arms, shared=True), partial(curved_rounds, count=160, turns=True)
    return _network(kind) | {
        "paced": _life(kind, PACED, late=4),
        "turns": _life(kind, FixedGrid(160, 5), turning, block=20, **small),
        "own-columns": _life(kind, FixedGrid(ROUNDS, 4), _returning_arms, dim=4, **small),
        "shared-columns": _life(kind, FixedGrid(ROUNDS, 4), shared, dim=2, **small),
        "sparse": _life(kind, grid, _sparse_rounds, **SPARSE, **small),
        "blocks": _life(kind, grid, _rows_in_blocks, block=4, **BLOCKS.settings, **small),
        "crowd": _crowd(kind),
    }


def _preset(name: str, *, operations: int = 400_000, **settings: Any) -> Lives:
    """Return the lives of a preset with a fixed training that starts from the initial weights."""
    kind, grid = BatchNeuralUCB, FixedGrid(ROUNDS, 4)
    settings |= {"preset": name, "training": STEPS}
    small: Settings = {"hidden": 8} | settings
    trigger, warm = rarely.DeterminantTrigger(ROUNDS, 5, 8.0), rarely.Training(STEPS, warm_start=True)
    return _network(kind, **settings) | {
        "discount": _life(kind, grid, TURNING, forgetting=Discount(0.95), **small),
        "mixture": _life(kind, grid, exploration=Mixture(0.2), block=3, **small),
        "running": _life(kind, trigger, within_batch="running", block=4, **small),
        "deep": _life(kind, grid, depth=3, covariance="last_layer", **small),
        "warm": _life(kind, grid, **small | {"training": warm}),
        "sparse": _life(kind, grid, _sparse_rounds, **SPARSE, **small),
        "blocks": _life(kind, grid, _rows_in_blocks, block=4, **BLOCKS.settings, **small),
        "crowd": _crowd(kind, operations=operations, **settings),
        "every-round": _life(NeuralUCB, None, **small),
    }


def _sequential() -> Lives:
    """Return the lives of NeuralUCB that tunes itself; they are short, for it trains after every round."""
    short = partial(curved_rounds, count=18)
    return {
        "log": _life(NeuralUCB, None, short, log=True, hidden=4),
        "late": _life(NeuralUCB, None, short, log=True, late=5, missing=7, hidden=4),
        "own-columns": _life(NeuralUCB, None, partial(_returning_arms, count=18), dim=4, hidden=4),
    }


def _both(kind: Make) -> Lives:
    """Return the lives of a network with another rule: most with a fixed training, two of them tuned."""
    plain: Settings = {"training": STEPS, "preset": "paper"}
    return _network(kind, training=STEPS) | {
        "paper": _life(kind, FixedGrid(ROUNDS, 4), hidden=8, block=5, **plain),
        "paced": _life(kind, PACED, hidden=8),
        "blocks": _life(kind, PACED, _rows_in_blocks, block=4, hidden=8, **BLOCKS.settings),
    }


def _linear(kind: Make) -> Lives:
    grid, trigger = FixedGrid(ROUNDS, 4), rarely.DeterminantTrigger(ROUNDS, 6, 1.0)
    return {
        "every-round": _life(kind, rarely.EveryRound()),
        "paced": _life(kind, PACED, block=6, late=5, missing=7),
        "trigger": _life(kind, trigger, within_batch="frozen", intercept=False, block=4),
        "log": _life(kind, rarely.LogLogGrid(ROUNDS, 4), log=True, block=5),
        "window": _life(kind, grid, TURNING, forgetting=Window(16)),
        "discount": _life(kind, grid, forgetting=Discount(0.9), exploration=Mixture(0.2)),
        "burst": _life(kind, rarely.AtRounds((8, 14, 36)), _burst, forgetting=Window(20)),
        "short": _life(kind, rarely.GeometricGrid(ROUNDS, 4), limits=rarely.Limits(history=1000)),
        "sparse": _life(kind, grid, _sparse_rounds, **SPARSE),
        "blocks": _life(kind, grid, _rows_in_blocks, block=4, **BLOCKS.settings),
        "pair": _life(kind, grid, ridge=0.01, beta=0.1),
    }


def _kernel() -> Lives:
    grid = FixedGrid(ROUNDS, 4)
    steps: Settings = {"steps": 20, "depth": 3, "forgetting": Discount(0.9)}
    return {
        "every-round": _life(rarely.KernelUCB, rarely.EveryRound(), ridge=0.1),
        "paced": _life(rarely.KernelUCB, PACED, block=6, late=5, missing=7, ridge=0.1),
        "log": _life(rarely.KernelUCB, grid, log=True, block=5, ridge=0.1),
        "steps": _life(rarely.KernelUCB, grid, TURNING, ridge=0.1, **steps),
    }


def _ensemble() -> Lives:
    make, ends = partial(rarely.EnsemblePolicy, Line()), rarely.AtRounds((4, 12, 30))
    greedy: Settings = {"members": 1, "exploration": Mixture(0.1), "block": 5, "late": 5, "missing": 7}
    return {
        "bootstrap": _life(make, FixedGrid(ROUNDS, 4), members=4),
        "greedy": _life(make, ends, **greedy),
        "discount": _life(make, ends, TURNING, members=4, prior=0, forgetting=Discount(0.9)),
    }


class Line:
    """A regressor for the family `ensemble`: a ridge regression, so that no package decides its numbers."""

    def get_params(self, deep: bool = True) -> dict[str, float]:
        return {}

    def set_params(self) -> Line:
        return self

    def fit(self, x: Array, y: Array) -> Line:
        matrix = x.T @ x + np.eye(x.shape[1])
        self.coefficients = np.linalg.solve(matrix, x.T @ y)
        return self

    def predict(self, x: Array) -> Array:
        return np.asarray(x @ self.coefficients)


def _seeded(family: str) -> dict[str, Life]:
    seeds = SEEDS.get(family, {})
    return {name: partial(life, seeds.get(name, 0)) for name, life in EVERY[family]().items()}


EVERY: dict[str, Callable[[], Lives]] = {
    "default": _default,
    "practical": partial(_preset, "practical"),
    "paper": partial(_preset, "paper", beta=0.2, operations=300_000),
    "code": lambda: _network(BatchNeuralUCB, **CODE) | {"every-round": _life(NeuralUCB, None, hidden=8, **CODE)},
    "neural-ucb": _sequential,
    "neural-ts": partial(_both, rarely.NeuralTS),
    "neural-linear": partial(_both, rarely.NeuralLinear),
    "neural-epsilon": partial(_both, rarely.NeuralEpsilonGreedy),
    "linucb": partial(_linear, rarely.LinUCB),
    "lints": partial(_linear, rarely.LinTS),
    "kernel-ucb": _kernel,
    "uniform": lambda: {
        "grid": _life(rarely.Uniform, FixedGrid(ROUNDS, 4)),
        "blocks": _life(rarely.Uniform, PACED, block=6, late=5),
    },
    "ensemble": _ensemble,
}
FAMILIES = Families(
    Path(__file__).with_name("golden.json"),
    *(Family(name, partial(_seeded, name), needs="sklearn" if name == "ensemble" else "") for name in EVERY),
)
"""All families of the library's policies."""
_OF_CLASS: dict[type[Policy], str] = {
    rarely.NeuralLinear: "neural-linear",
    rarely.NeuralTS: "neural-ts",
    rarely.NeuralEpsilonGreedy: "neural-epsilon",
    BatchNeuralUCB: "",
    rarely.LinTS: "lints",
    rarely.LinUCB: "linucb",
    rarely.KernelUCB: "kernel-ucb",
    rarely.Uniform: "uniform",
    rarely.EnsemblePolicy: "ensemble",
}
"""The family of each class; that of a `BatchNeuralUCB` depends on its settings."""


def family_of(policy: Policy) -> Family | None:
    """Return the family of a policy: that of the nearest of its classes that has one; None if none has.

    A network of the user's, `model=…`, has none: its numbers are those of another library.

    Examples
    --------
    >>> family_of(rarely.LinUCB(dim=2)).name, family_of(NeuralUCB(dim=2, preset="paper")).name
    ('linucb', 'paper')
    """
    name = next((_OF_CLASS[kind] for kind in type(policy).__mro__ if kind in _OF_CLASS), None)
    if name is None or (isinstance(policy, BatchNeuralUCB) and policy.model is not None):
        return None
    return FAMILIES[name or _of_settings(policy)]


def _of_settings(policy: Any) -> str:
    """Return the family of a `BatchNeuralUCB` or `NeuralUCB`; that of a preset of the user's is the nearest."""
    if policy.tunes:
        return "neural-ucb" if isinstance(policy, NeuralUCB) else "default"
    described = policy.settings()["preset"]
    preset = rarely.Preset(**described) if isinstance(described, dict) else rarely.Preset.named(described)
    if preset.optimiser == "sgd" or preset.biases:
        return "code"
    return "practical" if preset.scale_contexts else "paper"
