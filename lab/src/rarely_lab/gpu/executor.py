"""Cells of the paper in lockstep on a GPU, the others on processors.

Neural configurations of the presets `paper` and `practical` and all of LinUCB are played in lockstep. Preset `code`
takes single samples in turn, and the library's default tunes itself with the core's own code: a GPU gains nothing on
the one, and would need a second implementation for the other, so both are played on processors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from rarely import RarelyError
from rarely.runs.processes import side_by_side
from rarely.worlds import Rounds, World
from rarely_lab.engine import cell as runs
from rarely_lab.engine.executors import LocalExecutor
from rarely_lab.engine.play import Played, Stopwatch
from rarely_lab.reproduce.cells import Cell
from rarely_lab.reproduce.records import Record, content_of

DRAWN_ALONE = 8
"""Runs that are drawn in this process; more are drawn side by side."""
ALONE = {"code", "default"}
"""The preset and the configuration that are played on processors."""
SPARE = 0.8
"""The share of the free memory that replicas may fill."""


@cache
def _torch() -> Any:
    try:
        torch: Any = import_module("torch")
        import_module("cupy")
    except ModuleNotFoundError as error:
        raise RarelyError(f"the gpu engine needs {error.name}: from the checkout, pip install './lab[gpu]'.") from error
    if not torch.cuda.is_available():
        raise RarelyError("the gpu engine needs a GPU that CUDA can use, and there is none; use the local engine.")
    return torch


@dataclass(frozen=True)
class GpuExecutor:
    """One GPU, and processes for the cells that it does not play."""

    jobs: int
    say: Callable[[str], object] = print
    """Hears of replicas that did not fit into memory."""
    device: str = "cuda"

    def __call__(self, cells: Sequence[runs.Cell]) -> Iterator[runs.Result]:
        if self.device == "cuda":
            _torch()
        groups, others = grouped(cells)
        played, closed, ended = SimpleQueue[Any](), threading.Event(), threading.Event()

        def play() -> None:
            """Put the GPU's results as they come, an error if there is one, and at the end None."""
            try:
                for result in self._play_groups(groups):
                    played.put(result)
                    if closed.is_set():
                        return
            except BaseException as error:  # for the thread that asked
                played.put(error)
            played.put(None)

        def arrived(*, wait: bool) -> Iterator[runs.Result]:
            while not ended.is_set() and (wait or not played.empty()):
                if (result := played.get()) is None:
                    ended.set()
                elif isinstance(result, BaseException):
                    raise result
                else:
                    yield result

        threading.Thread(target=play, daemon=True).start()
        try:
            for result in LocalExecutor(self.jobs)(others) if others else ():
                yield result
                yield from arrived(wait=False)
            yield from arrived(wait=True)
        finally:
            closed.set()

    def _play_groups(self, groups: Sequence[list[Cell]]) -> Iterator[runs.Result]:
        """Play groups one after another; runs of one world are drawn once."""
        last, drawn = None, dict[int, Rounds]()
        for group in groups:
            world, count = group[0].world(), group[0].rounds
            if (world, count) != last:
                last, drawn = (world, count), {}
            drawn |= _drawn(world, sorted({cell.seed for cell in group} - drawn.keys()), count, self.jobs)
            yield from self._in_parts(group, drawn)

    def _in_parts(self, group: Sequence[Cell], drawn: dict[int, Rounds]) -> Iterator[runs.Result]:
        """Play a group as many replicas at a time as fit into memory, half as many where they do not."""
        left, most = list(group), self._room(group[0])
        while left:
            part = left[:most]
            try:
                played = play_group(part, [drawn[cell.seed] for cell in part], self.device)
            except Exception as error:
                if type(error).__name__ != "OutOfMemoryError" or most == 1:
                    raise
                most = max(1, min(most, len(left)) // 2)
                self.say(f"{group[0].id}: the GPU's memory is full; {most} replicas at a time from now on.")
                _torch().cuda.empty_cache()
                continue
            yield from played
            left = left[most:]

    def _room(self, cell: Cell) -> int:
        """Return how many replicas fit: Z's factor, its factors, and the activations of a training."""
        if self.device != "cuda":
            return 2**20
        from rarely_lab.gpu.lockstep import BLOCK

        rounds, problem, world = cell.rounds, cell.problem, cell.world()
        columns = world.dim + 1
        # A replica's factor of Z, twice more where it is copied to be solved, candidates, and the arrays of a training.
        each = 3 * rounds + 2 * columns + 14 * problem.hidden + 4 * BLOCK * world.arms
        numbers = 4 * columns**2 if cell.configuration.linear else rounds * each
        return max(1, int(SPARE * _torch().cuda.mem_get_info()[0]) // (8 * numbers))


def grouped(cells: Sequence[runs.Cell]) -> tuple[list[list[Cell]], list[runs.Cell]]:
    """Return cells that can be played in lockstep, group by group, and the others.

    Sequential runs are a group of their own: the others would wait for them.
    """
    groups, others = dict[Any, list[Cell]](), list[runs.Cell]()
    for cell in cells:
        if not isinstance(cell, Cell) or cell.problem.timed or {cell.reading, cell.configuration.kind} & ALONE:
            others.append(cell)
            continue
        kind = cell.configuration.kind
        family = kind if cell.configuration.linear or kind == "neuralucb" else "batched"
        groups.setdefault((cell.world(), cell.problem.name, cell.reading, family, cell.rounds), []).append(cell)
    # Cells come in the order of their seeds; those of one world stay together, whose runs are then drawn once.
    worlds = list(dict.fromkeys(key[0] for key in groups))
    return [groups[key] for key in sorted(groups, key=lambda key: worlds.index(key[0]))], others


def _drawn(world: World, seeds: Sequence[int], count: int, jobs: int) -> dict[int, Rounds]:
    """Return the rounds of some runs; drawing takes as long as playing them on a GPU."""
    if len(seeds) <= DRAWN_ALONE or jobs == 1:
        return {seed: world.rounds(seed, count) for seed in seeds}
    return dict(side_by_side(_draw, [(world, seed, count) for seed in seeds], jobs))


def _draw(task: tuple[World, int, int]) -> tuple[int, Rounds]:
    world, seed, count = task
    return seed, world.rounds(seed, count)


def play_group(cells: Sequence[Cell], rounds: Sequence[Rounds], device: str) -> list[runs.Result]:
    """Play cells in lockstep, and return the results of all."""
    from rarely_lab.gpu import linear, lockstep

    start = time.perf_counter()
    policies: list[Any] = [cell.policy() for cell in cells]
    if cells[0].configuration.linear:
        replicas: Sequence[Any] = linear.play_linear(policies, rounds, device)
        selecting, training = time.perf_counter() - start, 0.0
    else:
        engine = lockstep.Lockstep(policies, rounds, device)
        replicas = engine.play()
        selecting, training = engine.seconds["selecting"], engine.seconds["training"]
    wall = (time.perf_counter() - start) / len(cells)
    shares = [Stopwatch(seconds / len(cells), seconds / len(cells)) for seconds in (selecting, training)]
    name = str(_torch().cuda.get_device_name()) if device == "cuda" else device
    results = []
    for cell, run, replica in zip(cells, rounds, replicas, strict=True):
        played = Played(run, replica.arms, [update.round for update in replica.updates], *shares)
        content = content_of(played, replica.updates, replica.log_det_after, cell.configuration.cause, wall)
        content["environment"] |= {"engine": "gpu", "device": name}
        if replica.near_ties is not None:
            content["near_ties"] = replica.near_ties
        results.append(runs.Result(cell.id, Record.of(cell.id, cell.describe(), content)))
    return results
