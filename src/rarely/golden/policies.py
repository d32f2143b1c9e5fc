"""The golden families of the library's policies, and which of them a policy belongs to.

    default, practical, paper, code                BatchNeuralUCB that tunes itself, and its presets with fixed training
    neural-ucb                                     NeuralUCB that tunes itself; elsewhere it has its preset's family
    neural-ts, neural-linear, neural-epsilon       each tuned and with fixed training
    linucb, lints, kernel-ucb, uniform, ensemble   an ensemble of a regressor that is written out here

Every family has single rounds and blocks, late and missing rewards, a log, and forgetting; together they reach what
`PATHS` of `tests/golden/test_families.py` lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rarely import (
    Affine,
    ArmBlocks,
    AtRounds,
    BatchNeuralUCB,
    DeterminantTrigger,
    Discount,
    EnsemblePolicy,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    KernelUCB,
    Limits,
    LinTS,
    LinUCB,
    LogLogGrid,
    Mixture,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
    NeuralUCB,
    Paced,
    Policy,
    Preset,
    Schedule,
    SparseRows,
    Training,
    Uniform,
    Window,
)
from rarely.extend import Array
from rarely.golden.family import Families, Family
from rarely.golden.lives import Life, Stream, live

ROUNDS, CROWD, DIM = 40, 220, 3
STEPS = 12
"""Of a fixed training: enough to leave the initial weights."""
PACED = Paced(ROUNDS, 3)
"""Whose first update has two rewards: from a single one, rounding decides the features of the version after it."""
Make = Callable[..., Policy]
Settings = dict[str, Any]
Seeds = Mapping[str, int]
NO_SEEDS: Seeds = defaultdict(int)
SEEDS: dict[str, Seeds] = defaultdict(lambda: NO_SEEDS)
"""Seeds by family and life, which leave every choice a margin of `CLEAR`; 0 where none is given."""
SEEDS |= {
    family: defaultdict(int, seeds)
    for family, seeds in {
        "default": {"own-columns": 32, "shared-columns": 6, "crowd": 2},
        "practical": {"mixture": 1, "crowd": 1},
        "paper": {"short": 1, "mixture": 1, "sparse": 1},
        "code": {"grid": 2},
        "neural-ts": {"paced": 1, "blocks": 1},
        "neural-linear": {"grid": 1, "window": 1, "paper": 2, "paced": 2, "blocks": 2},
        "neural-epsilon": {"paper": 1, "blocks": 6},
        "linucb": {"every-round": 1, "discount": 1},
        "lints": {"trigger": 1, "discount": 2, "burst": 2, "sparse": 1},
        "kernel-ucb": {"steps": 1},
        "ensemble": {"greedy": 1},
    }.items()
}


def _life(
    kind: Make, schedule: Schedule, seed: int = 0, *, rounds: int = ROUNDS, turns: bool = False, **rest: Any
) -> Life:
    """Return a life in a curved world; what `live` does not take are settings of the policy."""
    how = {name: rest.pop(name) for name in ("block", "late", "missing") if name in rest}
    stream = partial(Stream.drawn, seed, rounds, turns=turns)
    return partial(live, lambda _: kind(DIM, schedule=schedule, seed=seed, **rest), stream, **how)


def _crowd(kind: Make, seed: int = 0, *, operations: int = 400_000, **settings: Any) -> Life:
    """Return a life long enough for Z to become p×p, and then among so many arms that it becomes an approximation."""
    schedule, stream = GeometricGrid(CROWD, 3), partial(Stream.drawn, seed, CROWD, arms=6)
    settings |= {"limits": Limits(operations=operations), "hidden": 66}
    return partial(
        live, lambda _: kind(DIM, schedule=schedule, seed=seed, **settings), stream, block=10, few=CROWD - 20
    )


def _logged(kind: Any, schedule: Schedule, seed: int = 0, *, rounds: int = ROUNDS, **settings: Any) -> Life:
    """Return a life that begins with a log of a third of its rounds, every arm in turn."""
    how = {name: settings.pop(name) for name in ("block", "late", "missing") if name in settings}
    first, arms = np.arange(rounds // 3), np.arange(rounds // 3) % 3

    def make(stream: Stream) -> Policy:
        log = stream.contexts[first, arms], stream.rewards[first, arms]
        policy: Policy = kind.from_log(*log, schedule=schedule, seed=seed, **settings)
        return policy

    return partial(live, make, partial(Stream.drawn, seed, rounds), **how)


def _sparse(kind: Make, schedule: Schedule, seed: int = 0, **settings: Any) -> Life:
    """Return a life whose contexts have 40 columns, and two numbers in each that are not 0."""
    columns = SparseRows.of(columns=40, nonzeros=2)

    def stream() -> Stream:
        drawn, every = Stream.drawn(seed, ROUNDS), np.tile(np.arange(40.0), (ROUNDS, 3, 1))
        places = np.sort(np.random.default_rng(seed).permuted(every, axis=2)[..., :2])
        return drawn.with_contexts(np.concatenate([places, 1 + np.abs(drawn.contexts[..., :2])], axis=2))

    return partial(live, lambda _: kind(schedule=schedule, seed=seed, **columns.settings, **settings), stream)


def _blocks(kind: Make, schedule: Schedule, seed: int = 0, **settings: Any) -> Life:
    """Return a life whose arms are blocks of one row."""
    blocks = ArmBlocks(3, Affine.identity(DIM, constant=True), "hybrid")

    def stream() -> Stream:
        drawn = Stream.drawn(seed, ROUNDS)
        return drawn.with_contexts(np.asarray(blocks(drawn.contexts[:, 0])))

    return partial(live, lambda _: kind(schedule=schedule, seed=seed, **blocks.settings, **settings), stream, block=4)


def _returning(
    kind: Make, schedule: Schedule, seed: int = 0, *, rounds: int = ROUNDS, shared: bool = False, **settings: Any
) -> Life:
    """Return a life among four arms that are offered in every round, each with its own column or all with two."""

    def stream() -> Stream:
        generator = np.random.default_rng((seed, 47))
        arms = generator.normal(size=(4, 2)) if shared else np.eye(4)
        means = np.tile(generator.permutation([0.0, 0.4, 0.7, 1.0]), (rounds, 1))
        return Stream(np.tile(arms, (rounds, 1, 1)), means, means + generator.normal(0, 0.3, means.shape))

    return partial(live, lambda _: kind(2 if shared else 4, schedule=schedule, seed=seed, **settings), stream)


def _burst(kind: Make, schedule: Schedule, seed: int = 0, **settings: Any) -> Life:
    """Return a life in which two rewards are too large for any training, until a window has passed them."""

    def stream() -> Stream:
        drawn = Stream.drawn(seed, ROUNDS)
        drawn.rewards[10:12] = [[1e308], [-1e308]]
        return drawn

    return partial(live, lambda _: kind(DIM, schedule=schedule, seed=seed, **settings), stream)


def _network(kind: Make, *, seeds: Seeds = NO_SEEDS, **settings: Any) -> dict[str, Life]:
    """Return the lives that every network has."""
    settings = {"hidden": 8} | settings
    return {
        "grid": _life(kind, FixedGrid(ROUNDS, 3), seeds["grid"], **settings),
        "trigger": _life(
            kind, DeterminantTrigger(ROUNDS, 4, 8.0), seeds["trigger"], block=6, late=5, missing=7, **settings
        ),
        "log": _logged(kind, GeometricGrid(ROUNDS, 3), seeds["log"], block=5, **settings),
        "window": _life(kind, FixedGrid(ROUNDS, 3), seeds["window"], forgetting=Window(16), turns=True, **settings),
        "burst": _burst(kind, AtRounds((8, 14, 36)), seeds["burst"], forgetting=Window(20), **settings),
        "short": _life(kind, LogLogGrid(ROUNDS, 4), seeds["short"], limits=Limits(history=1500), block=5, **settings),
    }


def _default() -> dict[str, Life]:
    """Return the lives of the policy that tunes itself."""
    kind, grid, seeds = BatchNeuralUCB, FixedGrid(ROUNDS, 3), SEEDS["default"]
    small: Settings = {"hidden": 8}
    return _network(kind, seeds=seeds) | {
        "paced": _life(kind, PACED, seeds["paced"], late=4),
        "turns": _life(kind, FixedGrid(160, 5), seeds["turns"], rounds=160, turns=True, block=20, **small),
        "own-columns": _returning(kind, FixedGrid(ROUNDS, 4), seeds["own-columns"], **small),
        "shared-columns": _returning(kind, FixedGrid(ROUNDS, 4), seeds["shared-columns"], shared=True, **small),
        "sparse": _sparse(kind, grid, seeds["sparse"], **small),
        "blocks": _blocks(kind, grid, seeds["blocks"], **small),
        "crowd": _crowd(kind, seeds["crowd"]),
    }


def _preset(name: str, *, operations: int = 400_000, **settings: Any) -> dict[str, Life]:
    """Return the lives of a preset with a fixed training that starts from the initial weights."""
    kind, grid, seeds = BatchNeuralUCB, FixedGrid(ROUNDS, 4), SEEDS[name]
    settings |= {"preset": name, "training": STEPS}
    small: Settings = {"hidden": 8} | settings
    trigger, warm = DeterminantTrigger(ROUNDS, 5, 8.0), Training(STEPS, warm_start=True)
    return _network(kind, seeds=seeds, **settings) | {
        "discount": _life(kind, grid, seeds["discount"], forgetting=Discount(0.95), turns=True, **small),
        "mixture": _life(kind, grid, seeds["mixture"], exploration=Mixture(0.2), block=3, **small),
        "running": _life(kind, trigger, seeds["running"], within_batch="running", block=4, **small),
        "deep": _life(kind, grid, seeds["deep"], depth=3, covariance="last_layer", **small),
        "warm": _life(kind, grid, seeds["warm"], **small | {"training": warm}),
        "sparse": _sparse(kind, grid, seeds["sparse"], **small),
        "blocks": _blocks(kind, grid, seeds["blocks"], **small),
        "crowd": _crowd(kind, seeds["crowd"], operations=operations, **settings),
        "every-round": _life(_every_round, grid, seeds["every-round"], **small),
    }


def _every_round(dim: int, schedule: Schedule, **settings: Any) -> Policy:
    """Return NeuralUCB, which has no schedule."""
    return NeuralUCB(dim, **settings)


def _code() -> dict[str, Life]:
    """Return the lives of the reading of the public program."""
    settings: Settings = {"preset": "code", "training": Training(40, 0.01), "beta": 0.1}
    every = _life(_every_round, FixedGrid(2, 2), SEEDS["code"]["every-round"], hidden=8, **settings)
    return _network(BatchNeuralUCB, seeds=SEEDS["code"], **settings) | {"every-round": every}


def _sequential() -> dict[str, Life]:
    """Return the lives of NeuralUCB that tunes itself; they are short, for it trains after every round."""
    seeds = SEEDS["neural-ucb"]
    small: Settings = {"hidden": 4, "rounds": 18}
    return {
        "log": _logged(_Sequential, EveryRound(), seeds["log"], **small),
        "late": _logged(_Sequential, EveryRound(), seeds["late"], late=5, missing=7, **small),
        "own-columns": _returning(_every_round, EveryRound(), seeds["own-columns"], **small),
    }


class _Sequential:
    """NeuralUCB with a schedule that is left out, for it has none."""

    @staticmethod
    def from_log(*log: Array, schedule: Schedule, **settings: Any) -> Policy:
        """Return the policy that begins with a log."""
        return NeuralUCB.from_log(*log, **settings)


def _both(name: str, kind: Make) -> dict[str, Life]:
    """Return the lives of a network with another rule: most with a fixed training, two of them tuned."""
    seeds = SEEDS[name]
    plain: Settings = {"training": STEPS, "preset": "paper"}
    return _network(kind, seeds=seeds, training=STEPS) | {
        "paper": _life(kind, FixedGrid(ROUNDS, 4), seeds["paper"], hidden=8, block=5, **plain),
        "paced": _life(kind, PACED, seeds["paced"], hidden=8),
        "blocks": _blocks(kind, PACED, seeds["blocks"], hidden=8),
    }


def _linear(name: str, kind: Make) -> dict[str, Life]:
    grid, seeds, trigger = FixedGrid(ROUNDS, 4), SEEDS[name], DeterminantTrigger(ROUNDS, 6, 1.0)
    return {
        "every-round": _life(kind, EveryRound(), seeds["every-round"]),
        "paced": _life(kind, PACED, seeds["paced"], block=6, late=5, missing=7),
        "trigger": _life(kind, trigger, seeds["trigger"], within_batch="frozen", intercept=False, block=4),
        "log": _logged(kind, LogLogGrid(ROUNDS, 4), seeds["log"], block=5),
        "window": _life(kind, grid, seeds["window"], forgetting=Window(16), turns=True),
        "discount": _life(kind, grid, seeds["discount"], forgetting=Discount(0.9), exploration=Mixture(0.2)),
        "burst": _burst(kind, AtRounds((8, 14, 36)), seeds["burst"], forgetting=Window(20)),
        "short": _life(kind, GeometricGrid(ROUNDS, 4), seeds["short"], limits=Limits(history=1000)),
        "sparse": _sparse(kind, grid, seeds["sparse"]),
        "blocks": _blocks(kind, grid, seeds["blocks"]),
        "pair": _life(kind, grid, seeds["pair"], ridge=0.01, beta=0.1),
    }


def _kernel() -> dict[str, Life]:
    grid, seeds = FixedGrid(ROUNDS, 4), SEEDS["kernel-ucb"]
    ridge: Settings = {"ridge": 0.1}
    steps: Settings = {"steps": 20, "depth": 3, "forgetting": Discount(0.9), "turns": True}
    return {
        "every-round": _life(KernelUCB, EveryRound(), seeds["every-round"], **ridge),
        "paced": _life(KernelUCB, PACED, seeds["paced"], block=6, late=5, missing=7, **ridge),
        "log": _logged(KernelUCB, grid, seeds["log"], block=5, **ridge),
        "steps": _life(KernelUCB, grid, seeds["steps"], **steps, **ridge),
    }


def _uniform() -> dict[str, Life]:
    return {"grid": _life(Uniform, FixedGrid(ROUNDS, 4)), "blocks": _life(Uniform, PACED, block=6, late=5)}


def _ensemble() -> dict[str, Life]:
    seeds, ends = SEEDS["ensemble"], AtRounds((4, 12, 30))
    greedy: Settings = {"members": 1, "exploration": Mixture(0.1), "block": 5, "late": 5, "missing": 7}
    return {
        "bootstrap": _life(_lines, FixedGrid(ROUNDS, 4), seeds["bootstrap"], members=4),
        "greedy": _life(_lines, ends, seeds["greedy"], **greedy),
        "discount": _life(_lines, ends, seeds["discount"], members=4, prior=0, forgetting=Discount(0.9), turns=True),
    }


def _lines(dim: int, **settings: Any) -> Policy:
    return EnsemblePolicy(Line(), dim, **settings)


class Line:
    """A regressor for the family `ensemble`: a ridge regression, so that no package decides its numbers."""

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def get_params(self, deep: bool = True) -> dict[str, float]:
        """Return the parameters."""
        return {"ridge": self.ridge}

    def set_params(self, **params: float) -> Line:
        """Set parameters, of which there is one."""
        self.ridge = params.get("ridge", self.ridge)
        return self

    def fit(self, x: Array, y: Array) -> Line:
        """Learn from rows and rewards."""
        matrix = x.T @ x + self.ridge * np.eye(x.shape[1])
        self.coefficients = np.linalg.solve(matrix, x.T @ y)
        return self

    def predict(self, x: Array) -> Array:
        """Return the estimate for each row."""
        return np.asarray(x @ self.coefficients)


FAMILIES = Families(
    Path(__file__).with_name("golden.json"),
    Family("default", _default),
    Family("practical", partial(_preset, "practical")),
    Family("paper", partial(_preset, "paper", beta=0.2, operations=300_000)),
    Family("code", _code),
    Family("neural-ucb", _sequential),
    Family("neural-ts", partial(_both, "neural-ts", NeuralTS)),
    Family("neural-linear", partial(_both, "neural-linear", NeuralLinear)),
    Family("neural-epsilon", partial(_both, "neural-epsilon", NeuralEpsilonGreedy)),
    Family("linucb", partial(_linear, "linucb", LinUCB)),
    Family("lints", partial(_linear, "lints", LinTS)),
    Family("kernel-ucb", _kernel),
    Family("uniform", _uniform),
    Family("ensemble", _ensemble, needs="sklearn"),
)
"""All families of the library's policies."""
_OF_CLASS: dict[type[Policy], str] = {
    NeuralLinear: "neural-linear",
    NeuralTS: "neural-ts",
    NeuralEpsilonGreedy: "neural-epsilon",
    BatchNeuralUCB: "",
    LinTS: "lints",
    LinUCB: "linucb",
    KernelUCB: "kernel-ucb",
    Uniform: "uniform",
    EnsemblePolicy: "ensemble",
}
"""The family of each class; that of a `BatchNeuralUCB` depends on its settings."""


def family_of(policy: Policy) -> Family | None:
    """Return the family of a policy: that of the nearest of its classes that has one; None if none has.

    A network of the user's, `model=…`, has none: its numbers are those of another library.

    Examples
    --------
    >>> family_of(LinUCB(dim=2)).name, family_of(NeuralUCB(dim=2, preset="paper")).name
    ('linucb', 'paper')
    """
    name = next((_OF_CLASS[kind] for kind in type(policy).__mro__ if kind in _OF_CLASS), None)
    if isinstance(policy, BatchNeuralUCB):
        if policy.model is not None:
            return None
        if name == "":
            name = _of_settings(policy)
    return None if name is None else FAMILIES[name]


def _of_settings(policy: BatchNeuralUCB) -> str:
    """Return the family of a `BatchNeuralUCB` or `NeuralUCB`; that of a preset of the user's is the nearest."""
    if policy.tuning is not None:
        return "neural-ucb" if isinstance(policy, NeuralUCB) else "default"
    described: Any = policy.settings()["preset"]
    preset = Preset(**described) if isinstance(described, dict) else Preset.named(described)
    if preset.optimiser == "sgd" or preset.biases:
        return "code"
    return "practical" if preset.scale_contexts else "paper"
