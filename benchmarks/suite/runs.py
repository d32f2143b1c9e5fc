"""Whole runs against their own training's products, what stands around the algorithm, and the tangent kernel."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid, NeuralUCB, Training
from rarely._core.types import Array
from rarely.theory import NTK
from rarely.worlds import Cosine, Rounds
from rarely_lab.engine.cell import LocalExecutor, run_cells
from rarely_lab.reproduce.catalogue import PROBLEMS, plan_cells
from rarely_lab.reproduce.records import Store
from suite.figures import Benchmark, BenchmarkFailed, Figure, NotMeasured, Tell
from suite.machine import product_rate, seconds_of, training_pass

STEPS = 200
PRINTED: dict[str, Any] = {"hidden": 200, "ridge": 0.01, "beta": 0.001, "training": STEPS}
"""The paper's settings for cosine."""
ONE_FILE = Path(__file__).parents[2] / "examples" / "one_file.py"
PLAIN = ("paper", "practical")


def one_file(tell: Tell, *, rounds: int = 2000, hidden: int = 200, path: Path = ONE_FILE) -> list[Figure]:
    """The same adaptive run by `examples/one_file.py` and by the library."""
    plain, world = _load(path), Cosine().rounds(seed=0, count=rounds)
    settings = PRINTED | {"hidden": hidden}

    def ours(preset: str, play_on: PlayOn) -> float:
        schedule = DeterminantTrigger(horizon=rounds, batches=40, log_ratio=40.0)
        runs = [BatchNeuralUCB(10, schedule, seed=0, preset=preset, covariance="exact", **settings) for _ in range(3)]
        return median(seconds_of(partial(play_on, policy, world, rounds)) for policy in runs)

    def progress(t: int, _: int) -> None:
        if t % 500 == 0:
            tell(f"one_file.py: round {t} of {rounds}")

    def theirs() -> None:
        given = {name: value for name, value in settings.items() if name != "training"} | {"steps": STEPS}
        arguments = given | {"scheme": "adaptive", "batches": 40, "log_q": 40.0, "progress": progress}
        plain.batch_neural_ucb(world.contexts, lambda s, arm: world.rewards[s, arm], **arguments)

    ways: dict[str, PlayOn] = {"a batch decided in one call": _play_batches, "one round at a time": _play_singly}
    times = {(preset, how): ours(preset, way) for preset in PLAIN for how, way in ways.items()}
    slow = seconds_of(theirs)
    return [
        Figure(
            f"one-file-{preset}" + ("-singly" if ways[how] is _play_singly else ""),
            f"Cosine, T = {rounds}, m = {hidden}, adaptive B = 40, log q = 40, J = 200, preset {preset}, {how}: "
            "against examples/one_file.py.",
            slow / seconds,
            "times faster",
            "higher",
            seconds,
            60.0,
            f"{seconds:.2f} s against {slow:.1f} s",
        )
        for (preset, how), seconds in times.items()
    ]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_file", path)
    if not path.exists() or spec is None or spec.loader is None:
        raise NotMeasured("examples/one_file.py is not here: run the benchmarks from a checkout.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fixed(tell: Tell, *, rounds: int = 2000, batches: int = 200, hidden: int = 200) -> list[Figure]:
    """A fixed grid."""

    def figure(name: str, how: str, play_on: PlayOn) -> Figure:
        policy = BatchNeuralUCB(10, FixedGrid(rounds, batches), seed=0, **PRINTED | {"hidden": hidden})
        return _over_training(name, f"fixed grid, B = {batches}, {how}", policy, rounds, tell, play_on)

    return [
        figure("fixed-200", "a batch decided in one call", _play_batches),
        figure("fixed-200-singly", "one round at a time", _play_singly),
    ]


def sequential(tell: Tell, *, rounds: int = 2000, hidden: int = 200) -> list[Figure]:
    """A training after every round."""
    policy = NeuralUCB(10, seed=0, **PRINTED | {"hidden": hidden})
    how = "an update after every round (NeuralUCB)"
    return [_over_training("sequential", how, policy, rounds, tell, _play_singly)]


def _over_training(name: str, how: str, policy: BatchNeuralUCB, rounds: int, tell: Tell, play_on: PlayOn) -> Figure:
    world = Cosine().rounds(seed=0, count=rounds)
    size = max(1, rounds // 10)

    def done() -> int:
        passes = (training_pass(update.samples, policy.network.shapes) for update in policy.updates)
        return STEPS * sum(passes)

    seconds = ideal = 0.0
    before = product_rate(np.float32)
    for start in range(0, rounds, size):
        trained = done()
        seconds += seconds_of(partial(play_on, policy, world[start : start + size], rounds))
        tell(f"round {policy.round} of {rounds}")
        after = product_rate(np.float32)
        ideal += (done() - trained) / max(before, after)
        before = after
    operations = done()
    hidden = policy.network.hidden
    return Figure(
        name,
        f"Cosine, T = {rounds}, m = {hidden}, preset practical, {how}: the whole run over its "
        "training's 4nmd operations a pass at the float32 product rate.",
        seconds / ideal,
        "times the products' time",
        "lower",
        seconds,
        3.0,
        f"{seconds:.1f} s for {len(policy.updates)} trainings of {operations:.2e} operations in all",
    )


PlayOn = Callable[[BatchNeuralUCB, Rounds, int], None]
"""Some rounds out of a run of so many."""


def _play_singly(policy: BatchNeuralUCB, part: Rounds, rounds: int) -> None:
    """One by one, without the laboratory's clock, which costs some tenths of a millisecond a round."""
    for contexts, rewards in zip(part.contexts, part.rewards, strict=True):
        decision = policy.select(contexts)
        policy.observe(decision, rewards[decision.arm])
        if policy.due and policy.round < rounds:
            policy.update()


def _play_batches(policy: BatchNeuralUCB, part: Rounds, rounds: int) -> None:
    """Each batch decided in one call."""
    while len(part):
        decision = policy.select(part.contexts, until_due=True)
        policy.observe(decision, part[: len(decision)].paid(decision.arm))
        part = part[len(decision) :]
        if policy.due and policy.round < rounds:
            policy.update()


def blocks(_: Tell, *, rounds: int = 2000, hidden: int = 200) -> list[Figure]:
    """The same run with a batch's rounds decided in one call."""
    world = Cosine().rounds(seed=0, count=rounds)

    def fresh() -> BatchNeuralUCB:
        trigger = DeterminantTrigger(horizon=rounds, batches=200, log_ratio=40.0)
        settings = PRINTED | {"hidden": hidden, "training": Training(STEPS, step_size=0.01)}
        return BatchNeuralUCB(10, trigger, preset="code", seed=0, **settings)

    together, singly = fresh(), fresh()
    quick = seconds_of(lambda: _play_batches(together, world, rounds))
    slow = seconds_of(lambda: _play_singly(singly, world, rounds))
    same = sum(a == b for a, b in zip(together.history.arms, singly.history.arms, strict=True))
    return [
        Figure(
            "blocks",
            f"Cosine, T = {rounds}, preset code, adaptive B = 200, log q = 40: a batch decided in one call, against "
            "one round at a time.",
            slow / quick,
            "times faster",
            "higher",
            quick,
            note=f"{quick:.2f} s against {slow:.2f} s; {same} of {rounds} arms are the same",
        )
    ]


PATTERNS = ("fixed-B40", "fixed-B100", "adaptive-B40-*", "adaptive-B100-*")


def imports(_: Tell, *, repeats: int = 15, package: str = "rarely", yardstick: str = "numpy") -> list[Figure]:
    """The front door in fresh processes."""
    ours, numpy = _import_seconds(package, repeats), _import_seconds(yardstick, repeats)
    note = f"{1e3 * ours:.0f} ms"
    says = "`import rarely`, NumPy included, over `import numpy`; the least processor time of a few processes."
    return [Figure("import", says, ours / numpy, "times NumPy's", "lower", ours, note=note)]


def _import_seconds(modules: str, repeats: int) -> float:
    code = f"import time; s = time.process_time(); import {modules}; print(time.process_time() - s)"
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        # Installed packages come with bytecode, and a working tree has none where nothing may be written to it.
        environment["PYTHONPYCACHEPREFIX"] = folder
        runs = [
            subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            for _ in range(1 + repeats)
        ]
    return min(float(run.stdout) for run in runs[1:])


def runner(tell: Tell, *, rounds: int = 2000, runs: int = 2, patterns: tuple[str, ...] = PATTERNS) -> list[Figure]:
    """The time of `reproduce` over that of the policies in it, in one process."""
    cells = plan_cells([PROBLEMS["cosine"]], ["practical"], runs, rounds, list(patterns))
    with tempfile.TemporaryDirectory() as name:
        failures = []

        def work() -> None:
            failures.extend(
                run_cells(
                    cells,
                    Store(Path(name)),
                    LocalExecutor(None),
                    finished=lambda result: tell(f"{result.id} is played"),
                )
            )

        seconds = seconds_of(work)
        if failures:
            raise BenchmarkFailed(f"{failures[0].id} could not be played: {failures[0].error}")
        walls = [record.data["wall"] for record in Store(Path(name)).find().records]
    policies = sum(wall["selecting"] + wall["training"] for wall in walls)
    played = sum(wall["cell"] for wall in walls)
    return [
        Figure(
            "runner",
            f"`rarely reproduce` on cosine, T = {rounds}, {len(cells)} cells in one process: the whole time, with "
            "worlds, records and queue, over the policies' own.",
            seconds / policies,
            "times the policies' time",
            "lower",
            seconds,
            1.03,
            f"{policies:.1f} s of policies; worlds and records {100 * (played / policies - 1):.1f} % more, with "
            f"the queue {100 * (seconds / policies - 1):.1f} %",
        )
    ]


def _contexts(count: int, dim: int) -> Array:
    x = np.random.default_rng(0).normal(size=(count, dim))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def ntk(_: Tell, *, count: int = 8000, dim: int = 20, depth: int = 3, turns: int = 3) -> list[Figure]:
    """The whole matrix, in turns with a product and one arccos for each of its L − 1 layers."""
    x = _contexts(count, dim)
    cosines, angles = np.empty((count, count)), np.empty((count, count))

    def plain() -> None:
        np.matmul(x, x.T, out=cosines)
        for _ in range(depth - 1):
            np.arccos(cosines, out=angles)

    with np.errstate(invalid="ignore"):  # rounding takes a cosine of the diagonal beyond 1
        times = [(seconds_of(plain), seconds_of(lambda: NTK(depth).matrix(x))) for _ in range(turns)]
    yardstick, ours = (min(column) for column in zip(*times, strict=True))
    return [
        Figure(
            "ntk",
            f"The kernel matrix of {count} contexts, L = {depth}, d = {dim}: over one product XXᵀ and one arccos of "
            "all its numbers for each layer of the recursion.",
            ours / yardstick,
            "times as long",
            "lower",
            ours,
            3.0,
            f"{ours:.1f} s against {yardstick:.1f} s",
        )
    ]


BENCHMARKS = (
    Benchmark("fixed-200", "Cosine with a fixed grid of 200 batches, over its training's products.", fixed),
    Benchmark("sequential", "NeuralUCB, 2000 trainings, over its training's products.", sequential, "full"),
    Benchmark("one-file", "Cosine, adaptive B = 40, against examples/one_file.py, in two presets.", one_file, "full"),
    Benchmark("blocks", "Deciding a batch in one call against one round at a time.", blocks),
    Benchmark("import", "`import rarely` over `import numpy`.", imports),
    Benchmark("runner", "The laboratory's runner over the policies' own time.", runner, "full"),
    Benchmark("ntk", "The kernel matrix of 8000 contexts over a product and an arccos for each layer.", ntk),
)
