"""Every problem and configuration of the paper, as data, and the cells to play: what each plays, how long it takes."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from rarely.extend import PresetName
from rarely.runs.machine import reset_peak_memory
from rarely.worlds import DATASETS, Cosine, Dataset, Quadratic, World
from rarely.worlds.synthetic import DEVIATION_READING
from rarely_lab.engine import cell as engine
from rarely_lab.engine.play import LibraryContestant, drawn, play, play_policy
from rarely_lab.reproduce.config import Configuration, Kind, Problem, Setup
from rarely_lab.reproduce.records import Record, content_of, log_det_rounds


def growing(rounds: int) -> tuple[int, int]:
    """Return ⌈log₂ T⌉ and √T batches."""
    return math.ceil(math.log2(rounds)), round(math.sqrt(rounds))


GRID = (0.001, 0.01, 0.1, 1.0)  # the paper's values of LinUCB's λ and β; it reports the best of the 16 pairs
FAIR = (1.0, 1.0)  # LinUCB's λ and β fixed beforehand: the plain choice, made without a look at any result

LENGTHS = (500, 1000, 2000, 4000, 8000, 16_000)
SEQUENTIAL = 8000  # the longest T with NeuralUCB itself
LONG_RUNS = {8000: 30, 16_000: 8}
"""Runs of the longest T, of which an H200 plays one in 1.2 s (8000; NeuralUCB in about 7 s) or 6.7 s (16 000)."""
JUDGED = 4000
"""The longest T with 100 runs, and of the default: longer ones are shown beside a claim, and their versions count."""
CODE_RUNS, DEFAULT_RUNS, LINEAR_RUNS = 30, 30, 300
"""The most runs in preset code, which no GPU plays; of the default off the paper's four problems; and of LinUCB."""
_GPU: tuple[PresetName, ...] = ("paper", "practical")
_COSINE = Problem("cosine", Cosine(), hidden=200, ridge=0.01, step_size=0.01, base="cosine", runs=300)
_QUADRATIC = Problem(
    "quadratic", Quadratic(), ridge=0.01, beta=0.01, step_size=0.005, log_ratios=(20, 25, 30), base="quadratic",
    runs=600,
)  # fmt: skip
_MUSHROOM = Problem("mushroom", DATASETS["mushroom"], batches=(40, 100, 250), log_ratios=(20, 30, 40), base="mushroom")
_MAGIC = Problem("magic", DATASETS["magic"], log_ratios=(50, 60, 70), base="magic")
_FOUR = (_COSINE, _QUADRATIC, _MUSHROOM, _MAGIC)


def _lengthened(problem: Problem, rounds: int) -> Problem:
    runs, name = LONG_RUNS.get(rounds, 100), f"{problem.name}-T{rounds}"
    return replace(problem, name=name, base="", rounds=rounds, batches=growing(rounds), runs=runs, presets=_GPU)


PROBLEMS = {
    problem.name: problem
    for problem in (
        *_FOUR,
        # Where the text can be read in two ways, the other way.
        replace(_COSINE, name="cosine-sd", source=Cosine(noise=DEVIATION_READING), runs=100, presets=_GPU),
        replace(_QUADRATIC, name="quadratic-sd", source=Quadratic(noise=DEVIATION_READING), runs=100, presets=_GPU),
        replace(_MAGIC, name="magic-m400", hidden=400, presets=_GPU),
        # The four once more, for their processor times where a GPU has played the runs.
        *(replace(problem, name=f"{problem.name}-timed", timed=True, runs=20, presets=_GPU) for problem in _FOUR),
        # Two problems at six lengths, with grids of log T and √T batches: how regret and versions grow with T.
        *(_lengthened(problem, rounds) for problem in (_QUADRATIC, _COSINE) for rounds in LENGTHS),
    )
}
PAPER = tuple(problem.name for problem in _FOUR)
"""The paper's four problems; the others are second readings of them, them timed, and two problems at six lengths."""
TIMED = tuple(f"{name}-timed" for name in PAPER)
SECOND_READINGS = ("cosine-sd", "quadratic-sd", "magic-m400")
GROWTH = {f"{name}-T{length}": name for name in ("quadratic", "cosine") for length in LENGTHS}
"""The problems of one length, each with the problem that it lengthens."""
GROUPS = {"growth": tuple(GROWTH), "timed": TIMED, "all": tuple(PROBLEMS)}
"""Problems that may be asked for by one name."""
QUICK = replace(_QUADRATIC, name="quadratic-quick", hidden=64, steps=100, base="")
"""The paper's quadratic problem with a smaller network and shorter trainings, so that a minute is enough."""
QUICK_ROUNDS, QUICK_RUNS, _BATCHES = 1000, 3, 20
QUICK_CONFIGURATIONS = {
    "random choice": Configuration("uniform"),
    "LinUCB": Configuration("linucb-intercept", ridge=FAIR[0], beta=FAIR[1]),
    "NeuralUCB, every round": Configuration("neuralucb"),
    "fixed grid": Configuration("fixed", batches=_BATCHES),
    "determinant rule": Configuration("adaptive", batches=_BATCHES, log_ratio=25.0),
    "default": Configuration("default", batches=_BATCHES),
}
"""The policies of the quick page by the names that it shows, in its order."""


def configurations(problem: Problem) -> Iterator[Configuration]:
    """Yield the paper's comparison on a problem and the library's default; with a length, without LinUCB."""
    own = problem.rounds
    kinds: tuple[Kind, ...] = () if own else ("linucb", "linucb-intercept")
    for kind, (ridge, beta) in itertools.product(kinds, [FAIR] if problem.timed else itertools.product(GRID, GRID)):
        yield Configuration(kind, ridge=ridge, beta=beta)
    if not own or own <= SEQUENTIAL:
        yield Configuration("neuralucb")
    yield from (Configuration("fixed", batches=b) for b in problem.batches)
    # With a length of its own it has no budget: how many versions there are is the question.
    budgets, defaults = ((own,), problem.batches[-1:]) if own else (problem.batches, problem.batches[:2])
    yield from (Configuration("adaptive", batches=b, log_ratio=q) for b in budgets for q in problem.log_ratios)
    if not problem.timed and (own or 0) <= JUDGED:
        yield from (Configuration("default", batches=b) for b in defaults)


@dataclass(frozen=True)
class Cell(Setup, engine.Cell):
    """One configuration on one run of one problem."""

    record_type: ClassVar[type[Record]] = Record
    shared_field: ClassVar[str] = "problem"

    @property
    def together(self) -> tuple[str, Any]:
        """What plays it with others on a GPU, and what they have in common; "" is a processor, which plays it alone."""
        kind = self.configuration.kind
        if self.problem.timed or self.reading == "code" or self.configuration.linear or kind in ("uniform", "default"):
            return "", None
        return kind if kind == "neuralucb" else "network", (self.problem.name, self.reading, self.rounds)

    def describe(self) -> dict[str, Any]:
        # The world tells the source; B and log q are the configuration's, and T stands below. The rest changes no run.
        others = ("source", "batches", "log_ratios", "rounds", "timed", "runs", "presets")
        problem = {name: value for name, value in vars(self.problem).items() if name not in others}
        return {
            "problem": problem,
            "world": self.world().describe(),
            "reading": self.reading,
            "configuration": asdict(self.configuration),
            "seed": self.seed,
            "rounds": self.rounds,
        }

    def play(self) -> dict[str, Any]:
        start = time.perf_counter()
        reset_peak_memory()
        policy, log_dets, noted = self.policy(), dict[int, float](), {*log_det_rounds(self.rounds)}

        def watch(t: int) -> None:
            if t in noted:
                log_dets[t] = policy.log_det

        rounds = drawn(self.world(), self.seed, self.rounds)
        if self.configuration.kind == "default":  # the same decisions in blocks, which take less time
            played = play(LibraryContestant(policy, sorted(noted)), rounds, watch=watch)
        else:
            played = play_policy(policy, rounds, watch)
        seconds = time.perf_counter() - start
        return content_of(played, policy.updates, log_dets.__getitem__, self.configuration.cause, seconds)

    def work(self) -> float:
        """Predict how long it takes."""
        rounds, problem, configuration = self.rounds, self.problem, self.configuration
        selecting, updates = 0.5e-3 * rounds, self.updates
        if configuration.linear or configuration.kind == "uniform":
            return selecting
        if configuration.kind == "default":
            return selecting + updates * (0.1 + 0.2 * rounds**2 / 4e6)
        if self.reading == "code":
            return 2 * selecting + updates * problem.steps * 6e-5
        width = 10 if isinstance(problem.source, World) else 40
        return 2 * selecting + 2 * updates * rounds * problem.hidden * width * problem.steps / 25e9

    @property
    def updates(self) -> int:
        """Predict how many there are; an adaptive schedule is taken to use all of its budget."""
        rounds, configuration = self.rounds, self.configuration
        updates = min(configuration.batches or rounds, rounds)
        if configuration.log_ratio is not None and updates == rounds:
            # Without a budget log q decides: log det Z grows by about 2000 in such runs.
            updates = min(rounds, round(2000 / configuration.log_ratio))
        return updates

    def portable(self) -> Problem:
        """Return its problem with the table itself in place of the file that holds it."""
        source = self.problem.source
        return replace(self.problem, source=source.table()) if isinstance(source, Dataset) else self.problem


def runs_of(problem: Problem, preset: PresetName, configuration: Configuration) -> int:
    """Return how many runs are published: fixed before they are played, so that no verdict is looked at in between."""
    if preset == "code":
        return min(problem.runs, CODE_RUNS)
    if configuration.kind == "default":
        return min(problem.runs, 100 if problem.name in PAPER else DEFAULT_RUNS)
    return min(problem.runs, LINEAR_RUNS) if configuration.linear else problem.runs


def plan_cells(
    problems: Iterable[Problem],
    presets: Iterable[PresetName] | None = None,
    runs: int | None = None,
    rounds: int = 2000,
    patterns: Sequence[str] = ("*",),
) -> list[Cell]:
    """Return every cell asked for, run by run, so that an interruption leaves whole runs.

    Presets and runs are those of the publication where none are given. `patterns` picks configurations by name:
    `fixed-*`, say. A table has no more rounds than rows.
    """
    cells, asked = dict[str, Cell](), None if presets is None else (*presets,)
    for problem in problems:
        count = problem.rounds or min(rounds, problem.horizon or rounds)
        for preset, configuration in itertools.product(asked or problem.presets, configurations(problem)):
            if configuration.part_of(preset) and any(fnmatchcase(configuration.id, pattern) for pattern in patterns):
                reading = problem.view(preset) if configuration.linear else preset
                for seed in range(runs or runs_of(problem, preset, configuration)):
                    cell = Cell(problem, reading, configuration, seed, count)
                    cells.setdefault(cell.id, cell)
    return sorted(cells.values(), key=lambda cell: (cell.seed, -cell.work()))


def quick_cells(runs: int = QUICK_RUNS) -> list[Cell]:
    """Return the cells that show the idea in a minute: the first run, which is soon told, then the longest first."""
    cells = (
        Cell(QUICK, "raw" if one.linear else "practical", one, seed, QUICK_ROUNDS)
        for seed in range(runs)
        for one in QUICK_CONFIGURATIONS.values()
    )
    return sorted(cells, key=lambda cell: (cell.seed > 0, -cell.work() if cell.seed else cell.work(), cell.seed))
