"""What the studies of regret share: a run, and many runs side by side that can be stopped and resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rarely import Policy
from rarely._core.types import Array
from rarely.runs.machine import ONE_THREAD, side_by_side

SECONDS_BETWEEN_LINES = 10


def play_batches(policy: Policy, contexts: Array, rewards: Array) -> list[int]:
    """Play all rounds, each batch decided in one call, and return the arms."""
    arms: list[int] = []
    while len(arms) < len(contexts):
        start = len(arms)
        decision = policy.select(contexts[start:], until_due=True)
        arms += decision.arm.tolist()
        policy.observe(decision, rewards[np.arange(start, len(arms)), decision.arm])
        if policy.due and len(arms) < len(contexts):
            policy.update()
    return arms


def play_all(
    play: Callable[..., dict[str, Any]], tasks: Sequence[tuple[Any, ...]], fields: Sequence[str], out: Path, jobs: int
) -> list[dict[str, Any]]:
    """Play the tasks that have no line in `out` yet, and return the runs of all tasks.

    `play(*task)` returns a run, in which the task's values stand under the names in `fields`. Each run is appended to
    `out` as it ends, so the same call resumes what was interrupted.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    runs = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    done = {tuple(run[name] for name in fields): run for run in runs}
    left = [task for task in tasks if task not in done]
    print(f"{len(tasks)} runs, {len(left)} to play with {jobs} processes; each is kept in {out}", flush=True)
    began = shown = time.monotonic()
    with out.open("a", encoding="utf-8") as file:
        for count, run in enumerate(_all(partial(_played, play), left, jobs) if left else (), start=1):
            done[tuple(run[name] for name in fields)] = run
            file.write(json.dumps(run) + "\n")
            file.flush()
            if time.monotonic() - shown > SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                print(f"  {count} of {len(left)} runs in {shown - began:.0f} s", flush=True)
    return [done[task] for task in tasks]


def _played(play: Callable[..., dict[str, Any]], task: tuple[Any, ...]) -> dict[str, Any]:
    return play(*task)


def _all(work: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[Any]:
    """Yield the work on each item as it ends; without loky in the standard library's processes."""
    if find_spec("loky"):
        yield from side_by_side(work, items, jobs)
        return
    os.environ.update(ONE_THREAD)  # processes that are spawned read it when they import NumPy
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as executor:
        for future in as_completed([executor.submit(work, item) for item in items]):
            yield future.result()
