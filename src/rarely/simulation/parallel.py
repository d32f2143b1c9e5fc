"""Work side by side in processes, each with one BLAS thread."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import TypeVar

from loky import get_reusable_executor

Item = TypeVar("Item")
Done = TypeVar("Done")
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
"""A process a core, a thread a process: BLAS threads that wait for each other make all of them slow."""


def side_by_side(work: Callable[[Item], Done], items: Sequence[Item], jobs: int) -> Iterator[Done]:
    """The work on each item in a process of its own, with one BLAS thread; what came of it as it ends."""
    executor = get_reusable_executor(
        max_workers=min(jobs, len(items)), env=ONE_THREAD, reuse=False, initializer=_end_with, initargs=(os.getpid(),)
    )
    try:
        for future in as_completed([executor.submit(work, item) for item in items]):
            yield future.result()
    finally:
        executor.shutdown(wait=False, kill_workers=True)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: a killed run must not go on in the background.

    Ctrl-C is the parent's to hear.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
