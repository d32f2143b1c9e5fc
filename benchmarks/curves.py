"""The cost model of docs/performance.md against measured time: docs/images/performance.svg.

python benchmarks/curves.py                 # two or three minutes
python benchmarks/curves.py other.svg       # somewhere else
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rarely import BatchNeuralUCB, FixedGrid
from rarely._core.model.network import Network
from rarely._core.training.gradient_descent import TrainingPlan, train
from rarely.pages.figures import STYLE
from rarely.worlds import Cosine
from rarely_lab.engine.play import play_policy
from suite.machine import (
    best_of,
    describe,
    frozen_numbers,
    product_rate,
    reader,
    scoring_dual,
    scoring_primal,
    seconds_of,
    training_pass,
)

OUT = Path(__file__).parents[1] / "docs" / "images" / "performance.svg"
DIM = 10  # of cosine; the network sees one more, a constant
BLUE, ORANGE = "#0072B2", "#D55E00"


@dataclass(frozen=True)
class Machine:
    """Its products, in operations a second."""

    float32: float
    float64: float

    @classmethod
    def here(cls) -> Machine:
        return cls(product_rate(np.float32), product_rate(np.float64))


@dataclass(frozen=True)
class Curve:
    """Seconds at each size: what was measured, and what the model says."""

    label: str
    sizes: Sequence[int]
    measured: list[float]
    model: list[float]
    colour: str = BLUE


@dataclass(frozen=True)
class Panel:
    """Curves over one size."""

    title: str
    axis: str
    curves: list[Curve]


def training_panel(machine: Machine, sizes: Sequence[int], hidden: int = 200, steps: int = 20) -> Panel:
    network = Network(DIM + 1, hidden)
    rng = np.random.default_rng(0)
    theta = network.initial_weights(rng)

    def seconds(n: int) -> float:
        contexts, rewards = rng.normal(size=(n, DIM + 1)) / np.sqrt(DIM + 1), rng.normal(size=n)
        first = train(network, theta, contexts, rewards, TrainingPlan(0.01, 1, precision="float32"))
        plan = TrainingPlan(0.01, steps, first.report.step_size / 2, precision="float32")
        return best_of(3, lambda: train(network, theta, contexts, rewards, plan, first.direction))

    model = [steps * training_pass(n, network.shapes) / machine.float32 for n in sizes]
    curve = Curve("4nmd a pass, float32", sizes, [seconds(n) for n in sizes], model)
    return Panel(f"One training: m = {hidden}, d = {DIM + 1}, J = {steps}", "samples n", [curve])


def frozen_at(rounds: int, hidden: int, covariance: str) -> BatchNeuralUCB:
    world = Cosine().rounds(seed=0, count=rounds)
    policy = BatchNeuralUCB(DIM, FixedGrid(2 * rounds, 2), hidden=hidden, training=1, covariance=covariance, seed=0)
    policy.observe(policy.select(world.contexts), world.means[:, 0])
    policy.update()
    return policy


def dual_panel(machine: Machine, sizes: Sequence[int], hidden: int = 200, together: int = 64) -> Panel:
    contexts = Cosine().rounds(seed=1, count=together).contexts
    singles, blocks, reads, products = [], [], [], []
    for t in sizes:
        policy = frozen_at(t, hidden, "dual")
        numbers, shapes = frozen_numbers(t, policy.network.shapes), policy.network.shapes
        blocks.append(best_of(5, lambda p=policy: p.score(contexts)) / together)
        singles.append(float(np.median([seconds_of(lambda c=c, p=policy: p.select(c)) for c in contexts])))
        reads.append(best_of(9, reader(numbers)))
        products.append(scoring_dual(t, contexts[:, :, 0].size, shapes) / machine.float64 / together)
    curves = [
        Curve("one at a time: a read of t²/2 + ct numbers", sizes, singles, reads),
        Curve(f"{together} together: K(t² + 2ct) operations", sizes, blocks, products, ORANGE),
    ]
    return Panel(f"A decision, dual: K = 4, m = {hidden}", "past rounds t", curves)


def primal_panel(machine: Machine, sizes: Sequence[int], together: int = 64) -> Panel:
    contexts = Cosine().rounds(seed=1, count=together).contexts
    parameters, measured, model = [], [], []
    for hidden in sizes:
        policy = frozen_at(200, hidden, "primal")
        parameters.append(policy.network.parameters)
        measured.append(best_of(5, lambda p=policy: p.score(contexts)) / together)
        operations = scoring_primal(contexts[:, :, 0].size, policy.network.shapes)
        model.append(operations / machine.float64 / together)
    curve = Curve(f"{together} together: Kp² operations", parameters, measured, model, ORANGE)
    return Panel("A decision, primal: K = 4", "parameters p", [curve])


def run_panel(machine: Machine, sizes: Sequence[int], rounds: int = 1000, hidden: int = 100, steps: int = 100) -> Panel:
    world, measured, model = Cosine().rounds(seed=0, count=rounds), [], []
    for batches in sizes:
        policy = BatchNeuralUCB(
            DIM, FixedGrid(rounds, batches), hidden=hidden, training=steps, covariance="dual", seed=0
        )
        measured.append(seconds_of(lambda p=policy: play_policy(p, world)))
        shapes, starts = policy.network.shapes, [0, *(update.round for update in policy.updates), rounds]
        trained = sum(steps * training_pass(n, shapes) for n in starts[1:-1])
        numbers = sum((end - start) * frozen_numbers(start, shapes) for start, end in itertools.pairwise(starts))
        last = frozen_numbers(rounds, shapes)
        model.append(trained / machine.float32 + numbers / last * best_of(9, reader(last)))
    curve = Curve("trainings' products and decisions' reads", sizes, measured, model)
    return Panel(f"A whole run: T = {rounds}, m = {hidden}, J = {steps}", "versions B", [curve])


PANELS: list[tuple[Callable[..., Panel], Sequence[int]]] = [
    (training_panel, (250, 500, 1000, 2000, 4000, 8000, 16000)),
    (dual_panel, (125, 250, 500, 1000, 2000, 4000)),
    (primal_panel, (16, 32, 64, 128, 192)),
    (run_panel, (5, 10, 20, 50, 100, 200)),
]


def draw(panels: Sequence[Panel], path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9, 6.4))
        for axes, panel in zip(figure.subplots(2, 2).flat, panels, strict=True):
            for curve in panel.curves:
                axes.plot(curve.sizes, curve.model, color=curve.colour, lw=1.2, label=curve.label)
                axes.plot(curve.sizes, curve.measured, "o", color=curve.colour, ms=4)
            axes.set(xscale="log", yscale="log", title=panel.title, xlabel=panel.axis, ylabel="seconds")
            axes.set_xticks(panel.curves[0].sizes, labels=[f"{size:g}" for size in panel.curves[0].sizes])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.legend(fontsize=8)
        figure.suptitle("Lines: the cost model at this machine's own rates. Dots: measured.", fontsize=9)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure, draw, and print how far each curve is from its model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    out = parser.parse_args().out
    print(describe())
    machine, panels = Machine.here(), []
    for make, sizes in PANELS:
        panels.append(make(machine, sizes))
        for curve in panels[-1].curves:
            ratios = ", ".join(f"{s:.1f}" for s in np.divide(curve.measured, curve.model))
            print(f"{panels[-1].title}; {curve.label}: measured over model {ratios}", flush=True)
    draw(panels, out)


if __name__ == "__main__":
    main()
