"""Draw the picture of README: what a policy loses that is updated 19 times, or after every round.

    python docs/picture.py               # a quarter of an hour; writes docs/images/retrain-rarely.svg

Three policies play the cosine problem of the paper, 1000 rounds, on 5 seeds that no decision about the policies used.
Both others are the library's default, whose evidence is weighed anew at each update. The picture shows the mean total
regret and, below it, the rounds after which the rare one was updated, in the first of the runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from rarely import BatchNeuralUCB, NeuralUCB, Paced, Policy, Uniform
from rarely.pages.figures import STYLE
from rarely.pages.svg import PALETTE
from rarely.worlds import Cosine

PICTURE = Path(__file__).parent / "images" / "retrain-rarely.svg"
ROUNDS, SEEDS, BATCHES = 1000, 5, 20
FIRST_SEED = 95_000
# A picture that is loaded as a file cannot follow a dark page: it has its own paper, and letters as paths.
PAPER = {"svg.fonttype": "path", "font.size": 10, "axes.grid": False, "savefig.facecolor": "white"}

Maker = Callable[[int, int], Policy]


def total_regrets(make: Maker, rounds: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Return the total regret after every round, and the rounds after which the policy was updated."""
    world = Cosine()
    shown = world.rounds(seed=seed, count=rounds)
    policy, arms = make(world.dim, seed), []
    for contexts, rewards in zip(shown.contexts, shown.rewards, strict=True):
        decision = policy.select(contexts)
        arms.append(decision.arm)
        policy.observe(decision, rewards[decision.arm])
        if policy.due and policy.round < rounds:
            policy.update()
    return shown.regrets(arms).cumsum(), [record.round for record in policy.updates]


def makers(rounds: int, batches: int) -> dict[str, tuple[Maker, str]]:
    """Return the three policies by the label of their curve, with its colour."""
    return {
        "random choice": (lambda dim, seed: Uniform(dim, seed=seed), PALETTE["grey"]),
        "the same policy, updated after every round": (
            lambda dim, seed: NeuralUCB(dim, seed=seed),
            PALETTE["orange"],
        ),
        f"the default policy, updated {batches - 1} times": (
            lambda dim, seed: BatchNeuralUCB(dim, Paced(rounds, batches), seed=seed),
            PALETTE["blue"],
        ),
    }


def draw(path: Path, rounds: int = ROUNDS, seeds: int = SEEDS, batches: int = BATCHES) -> dict[str, float]:
    """Play, draw, and return the mean total regret of each policy."""
    totals = {}
    with matplotlib.rc_context(STYLE | PAPER):
        figure = Figure(figsize=(7, 3.4))
        axes = figure.subplots()
        for label, (make, colour) in makers(rounds, batches).items():
            runs = [total_regrets(make, rounds, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
            mean = np.mean([regrets for regrets, _ in runs], axis=0)
            totals[label] = float(mean[-1])
            axes.plot(np.arange(1, rounds + 1), mean, color=colour, linewidth=2, label=f"{label}: {mean[-1]:.0f}")
        updates = runs[0][1]
        top = 2.2 * max(list(totals.values())[1:])
        axes.plot(updates, np.full(len(updates), -0.05 * top), "|", color=colour, markersize=9, clip_on=False)
        axes.annotate(
            "each tick: one update", (updates[-1], -0.05 * top), (rounds, 0.06 * top), ha="right", color=colour
        )
        axes.set_ylim(-0.1 * top, top)
        axes.set_xlim(0, rounds)
        axes.set_xlabel("decisions made")
        axes.set_ylabel("reward missed so far (regret)")
        title = f"reward missed in {rounds} decisions, mean of {seeds} runs"
        axes.legend(title=title, loc="upper right", alignment="left")
        figure.savefig(path, metadata={"Date": None})
    return totals


if __name__ == "__main__":
    for name, total in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE).items():
        print(f"{name}: {total:.1f}")
