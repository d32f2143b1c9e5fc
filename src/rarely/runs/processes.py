"""Work side by side in processes with one BLAS thread each."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from typing import TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
"""A process for each core, a thread for each process: BLAS threads that wait for each other slow down all of them."""


def side_by_side(work: Callable[[Item], Done], items: Sequence[Item], jobs: int) -> Iterator[Done]:
    """Yield the work on each item as it ends, each in a process with one BLAS thread. Needs loky."""
    from loky import ProcessPoolExecutor

    executor = ProcessPoolExecutor(
        max_workers=min(jobs, len(items)), env=ONE_THREAD, initializer=end_with, initargs=(os.getpid(),)
    )
    try:
        for future in as_completed([executor.submit(work, item) for item in items]):
            yield future.result()
    finally:
        executor.shutdown(kill_workers=True)


def end_with(parent: int) -> None:
    """End this process when its parent is gone, and leave Ctrl-C to the parent: a killed run must not go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.name != "posix" or os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
