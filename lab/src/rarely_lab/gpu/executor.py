"""Cells on a GPU: networks in lockstep, the others on processors.

networks    NeuralUCB and the batched configurations of `paper` and `practical`: `rarely_lab.gpu.lockstep`
the others  one by one: the matrices of LinUCB are too small for a GPU, preset `code` takes single samples in turn,
            and the default is faster on 16 processors than in lockstep (docs/decisions/0084)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from rarely.errors import RarelyError
from rarely.extend.provisional import forwarded
from rarely.runs.machine import in_pools
from rarely.worlds import Rounds
from rarely_lab.engine import cell as runs
from rarely_lab.engine.play import Played, Stopwatch
from rarely_lab.reproduce.catalogue import Cell
from rarely_lab.reproduce.records import Record, content_of

NETWORKS, SPARE = 2, 0.35
"""How many processes play networks at a time, and the share of the GPU's memory that the replicas of each may fill: a
few hundred replicas fill the GPU, and those of a long run its memory."""
Part = list[Any]  # cells that a process plays at once
PIECE = 150.0  # seconds of a part, about: what is lost where a command is stopped
SECONDS = {"neuralucb": 1.5e-3, "network": 1e-6}
"""Of one of 16 processes that share an H200, by the round of a cell; of networks by the round and update.

They are those of T ≤ 2000, in eight times as long as the two that play them need. Longer ones have a Z of T² numbers,
factored at each update: measured at T = 8000 and 16 000.
"""


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


def seconds_of(cell: Any) -> float:
    """Predict the seconds of a process that a cell takes here, as its share of those that are played at once."""
    kind, longer = cell.together[0], max(1.0, cell.rounds / 2000)
    if not kind:
        return float(cell.work())
    updates = 1 if kind == "neuralucb" else cell.updates
    return float(SECONDS[kind] * cell.rounds * updates * longer ** {"neuralucb": 1, "network": 1.7}[kind])


@dataclass(frozen=True)
class GpuExecutor:
    """One GPU, and processes that use it."""

    jobs: int
    say: Callable[[str], object] = print  # hears of replicas that did not fit into memory
    device: str = "cuda"

    def __call__(self, cells: Sequence[runs.Cell]) -> Iterator[runs.Result]:
        from loky.process_executor import BrokenProcessPool

        if self.device == "cuda":
            _torch()
        # Fewer, larger blocks of memory: processes that share a GPU would otherwise wait for what others have kept.
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        parts = sorted(parted(cells), key=lambda part: -sum(map(self.work, part)))
        networks, others = ([part for part in parts if bool(part[0].together[0]) is here] for here in (True, False))
        pools = [(networks, NETWORKS), (others, max(1, self.jobs - NETWORKS) if networks else self.jobs)]
        try:
            for results, told in in_pools(partial(play_part, device=self.device), [pool for pool in pools if pool[0]]):
                for sentence in told:
                    self.say(sentence)
                yield from results
        except BrokenProcessPool:
            raise RarelyError(
                "a process that played was killed; is there enough memory? The same command continues."
            ) from None

    at_once = forwarded("jobs", "The processes, each of which plays many cells at once.")
    work = staticmethod(seconds_of)


def parted(cells: Sequence[Any]) -> list[Part]:
    """Return all cells in parts; sequential runs are a part of their own, for the others would wait for them."""
    groups, parts = dict[Any, list[Any]](), list[Part]()
    for cell in cells:
        groups.setdefault(cell.together, []).append(cell)
    for (kind, _), group in groups.items():
        if kind:
            group.sort(key=lambda cell: -cell.updates)  # those that are trained as often wait less for each other
        most = max(1, min(len(group), int(8 * PIECE / seconds_of(group[0])))) if kind else 1
        parts += [group[start : start + most] for start in range(0, len(group), most)]
    return parts


def play_part(part: Part, device: str) -> tuple[list[runs.Result], list[str]]:
    """Play the cells of a part in this process, and return their results and what is to be said.

    Half as many replicas are played at a time where they do not fit into memory.
    """
    left, said, results = list(part), list[str](), list[runs.Result]()
    if not left[0].together[0]:
        return [runs.play_cell(cell) for cell in left], said
    most = _room(left[0]) if device == "cuda" else len(left)
    while left:
        try:
            results += play_group(left[:most], device)
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError" or most == 1:
                raise
            most = max(1, min(most, len(left)) // 2)
            said.append(f"{left[0].id}: the GPU's memory is full; {most} replicas at a time from now on.")
            _torch().cuda.empty_cache()
            continue
        left = left[most:]
    return results, said


def _room(cell: Cell) -> int:
    """Return how many replicas fit: Z's factor, its factors, and the activations of a training."""
    from rarely_lab.gpu.lockstep import BLOCK

    rounds, problem, world = cell.rounds, cell.problem, cell.world()
    # A replica's factor of Z, twice more where it is copied to be solved, candidates, and the arrays of a training.
    each = 3 * rounds + 2 * (world.dim + 1) + 14 * problem.hidden + 4 * BLOCK * world.arms
    return max(1, int(SPARE * _torch().cuda.mem_get_info()[1]) // (8 * rounds * each))


def play_group(cells: Sequence[Cell], device: str) -> list[runs.Result]:
    """Play cells in lockstep, and return the results of all."""
    from rarely_lab.gpu.lockstep import Lockstep

    start = time.perf_counter()
    unlike = {cell.seed: cell for cell in cells}
    different = {seed: cell.world().rounds(seed, cell.rounds) for seed, cell in unlike.items()}
    rounds: list[Rounds] = [different[cell.seed] for cell in cells]
    engine = Lockstep([cell.policy() for cell in cells], rounds, device)
    replicas = engine.play()
    wall = (time.perf_counter() - start) / len(cells)
    shares = (seconds / len(cells) for seconds in (engine.seconds["selecting"], engine.seconds["training"]))
    selected, trained = (Stopwatch(share, share) for share in shares)
    results, name = [], str(_torch().cuda.get_device_name()) if device == "cuda" else device
    for cell, run, replica in zip(cells, rounds, replicas, strict=True):
        rounds_of, log_dets = [update.round for update in replica.updates], [0.0, *replica.log_dets.tolist()]
        played = Played(run, replica.arms, rounds_of, selected, trained, replica.near_ties)
        content = content_of(played, replica.updates, log_dets.__getitem__, cell.configuration.cause, wall)
        content["environment"] |= {"engine": "gpu", "device": name}
        results.append(runs.Result(cell.id, Record.of(cell.id, cell.describe(), content)))
    return results
