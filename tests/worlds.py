"""Small worlds and policies that several suites use."""

from __future__ import annotations

import numpy as np

from rarely import (
    Affine,
    ArmBlocks,
    BatchNeuralUCB,
    DeterminantTrigger,
    Discount,
    FixedGrid,
    KernelUCB,
    LinTS,
    LinUCB,
    Mixture,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
    NeuralUCB,
    NoiseRadius,
    Preset,
    SparseRows,
    Training,
    Uniform,
    Window,
)

HORIZON = 24


def contexts(seed=0, rounds=HORIZON, arms=3, dim=2):
    return np.random.default_rng(seed).normal(size=(rounds, arms, dim))


def play_world(policy, rounds):
    """Play rounds of a world one by one, each reward observed at once, and return the arms."""
    arms = []
    for seen, paid in zip(rounds.contexts, rounds.rewards, strict=True):
        decision = policy.select(seen)
        arms.append(int(decision.arm))
        policy.observe(decision, paid[arms[-1]])
        if policy.due and len(arms) < len(rounds):
            policy.update()
    return arms


def unit_rows(seed, count, dim):
    """Contexts of length 1, as the theorems have them."""
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rewards(rows):
    """A fixed function of chosen contexts with a little deterministic noise."""
    rows = np.atleast_2d(rows)
    return np.sin(rows.sum(axis=1)) + 0.1 * np.cos(100 * rows[:, 0])


def small(schedule=None, kind=BatchNeuralUCB, **settings):
    defaults = {"hidden": 16, "training": 20, "ridge": 0.1, "beta": 0.5, "preset": "paper", "seed": 3}
    return kind(2, schedule or FixedGrid(HORIZON, 4), **(defaults | settings))


BIASED = Preset(biases=True)
SGD = Preset(optimiser="sgd", scaling="standard")
MAKERS = {
    "paper": small,
    "practical": lambda schedule=None, **s: small(schedule, **({"preset": "practical"} | s)),
    "deep": lambda schedule=None, **s: small(schedule, **({"depth": 3, "preset": BIASED, "hidden": 40} | s)),
    "primal": lambda schedule=None, **s: small(schedule, **({"covariance": "primal"} | s)),
    "diagonal": lambda schedule=None, **s: small(schedule, **({"covariance": "diagonal"} | s)),
    "last_layer": lambda schedule=None, **s: small(schedule, **({"covariance": "last_layer"} | s)),
    "adaptive": lambda schedule=None, **s: small(schedule or DeterminantTrigger(HORIZON, 4, 2.0), **s),
    "running": lambda schedule=None, **s: small(schedule, **({"within_batch": "running"} | s)),
    "running_primal": lambda schedule=None, **s: small(
        schedule, **({"within_batch": "running", "covariance": "primal"} | s)
    ),
    "random_ties": lambda schedule=None, **s: small(schedule, **({"ties": "random"} | s)),
    "sgd": lambda schedule=None, **s: small(schedule, **({"preset": SGD} | s)),
    "code": lambda schedule=None, **s: small(schedule, **({"preset": "code", "training": Training(20, 0.01)} | s)),
    "linear": lambda schedule=None, **s: LinUCB(2, schedule or FixedGrid(HORIZON, 4), **({"beta": 0.5, "seed": 0} | s)),
    "no_intercept": lambda schedule=None, **s: LinUCB(
        2,
        schedule or DeterminantTrigger(HORIZON, 4, 1.0),
        **({"intercept": False, "within_batch": "frozen", "seed": 0} | s),
    ),
    "tuned": lambda schedule=None, **s: small(schedule, **({"preset": "practical", "training": None} | s)),
    "window": lambda schedule=None, **s: small(schedule, **({"forgetting": Window(9)} | s)),
    "discount": lambda schedule=None, **s: small(schedule, **({"forgetting": Discount(0.9)} | s)),
    "linear_discount": lambda schedule=None, **s: LinUCB(
        2, schedule or FixedGrid(HORIZON, 4), **({"forgetting": Discount(0.8), "seed": 0} | s)
    ),
    "mixture": lambda schedule=None, **s: small(schedule, **({"exploration": Mixture(0.3)} | s)),
    "thompson": lambda schedule=None, **s: small(schedule, NeuralTS, **s),
    "epsilon_greedy": lambda schedule=None, **s: NeuralEpsilonGreedy(
        2, schedule or FixedGrid(HORIZON, 4), **({"hidden": 16, "training": 20, "epsilon": 0.3, "seed": 3} | s)
    ),
    "neural_linear": lambda schedule=None, **s: small(schedule, NeuralLinear, **({"preset": "practical"} | s)),
    "linear_thompson": lambda schedule=None, **s: LinTS(2, schedule or FixedGrid(HORIZON, 4), **({"seed": 4} | s)),
    "kernel": lambda schedule=None, **s: KernelUCB(
        2, schedule or FixedGrid(HORIZON, 4), **({"ridge": 0.1, "seed": 0} | s)
    ),
    "kernel_steps": lambda schedule=None, **s: KernelUCB(
        2, schedule or FixedGrid(HORIZON, 4), **({"steps": 20, "depth": 3, "forgetting": Discount(0.9), "seed": 0} | s)
    ),
    "uniform": lambda schedule=None, **s: Uniform(2, schedule or FixedGrid(HORIZON, 4), **({"seed": 5} | s)),
    "default": lambda schedule=None, **s: BatchNeuralUCB(2, schedule or FixedGrid(HORIZON, 4), **({"seed": 0} | s)),
}
DRAWN = ("uniform", "random_ties", "mixture", "thompson", "epsilon_greedy", "neural_linear", "linear_thompson")
REBUILT = ("window", "discount", "linear_discount", "neural_linear", "kernel_steps")
"""Whose matrix is built again at updates."""
DETERMINISTIC = [name for name in MAKERS if name not in DRAWN]
FIELDS = ArmBlocks(3, Affine.identity(1, constant=True))
ARTICLES = ArmBlocks(None, Affine.identity(1, constant=True), "bilinear", features=Affine.identity(1))
WORDS = SparseRows.of(columns=30, nonzeros=3)


def returning_arms(rng, rounds, arms):
    """The same arms in every round, none of which says anything about another."""
    return np.tile(np.eye(3)[:arms], (rounds, 1, 1))


def blocks_of_rows(rng, rounds, arms):
    return np.array([FIELDS(row)[:arms] for row in rng.normal(size=(rounds, 1))])


def packed_rows(rng, rounds, arms):
    """Contexts of three of 30 columns."""
    columns = np.argsort(rng.random((rounds * arms, 30)), axis=1)[:, :3]
    rows = [dict(zip(each.tolist(), rng.normal(size=3), strict=True)) for each in columns]
    return WORDS.pack(rows).reshape(rounds, arms, WORDS.dim)


AS_SHIPPED = {
    "returning_arms": (lambda schedule: BatchNeuralUCB(3, schedule, seed=0), returning_arms),
    "returning_arms_tried_to_the_end": (
        lambda schedule: BatchNeuralUCB(3, schedule, beta=NoiseRadius(0.1), seed=0),
        returning_arms,
    ),
    "arm_blocks": (lambda schedule: BatchNeuralUCB(schedule=schedule, seed=0, **FIELDS.settings), blocks_of_rows),
    "content_arms": (lambda schedule: BatchNeuralUCB(schedule=schedule, seed=0, **ARTICLES.settings), None),
    "sparse_rows": (lambda schedule: BatchNeuralUCB(schedule=schedule, seed=0, **WORDS.settings), packed_rows),
    "sparse_linear": (lambda schedule: LinUCB(schedule=schedule, seed=0, **WORDS.settings), packed_rows),
    "neural_ts": (lambda schedule: NeuralTS(2, schedule, seed=0), None),
    "neural_linear_default": (lambda schedule: NeuralLinear(2, schedule, seed=0), None),
}
"""Policies as users construct them, beside the default of `MAKERS`, and how their contexts are drawn."""


def sequential(**settings):
    defaults = {"hidden": 16, "training": 20, "ridge": 0.1, "beta": 0.5, "preset": "paper", "seed": 3}
    return NeuralUCB(2, **(defaults | settings))


def play(policy, stream, block=None):
    """All rounds with an update whenever due; returns arms. `block` None: round by round."""
    arms, t = [], 0
    while t < len(stream):
        if block is None:
            decision = policy.select(stream[t])
            chosen = np.array([decision.arm])
        else:
            decision = policy.select(stream[t : t + block], until_due=True)
            chosen = decision.arm
        told = rewards(stream[np.arange(t, t + len(chosen)), chosen])
        policy.observe(decision, told if block else told[0])
        arms += list(chosen)
        t += len(chosen)
        if policy.due:
            policy.update()
    return np.array(arms)
