"""Memory of a study that decides for long: `python tests/memory.py --requests 1000000` says how it grows.

Each request is a decision and its reward, as a service handles them, in groups of 50; a version is trained every so
often. What is resident is read after each training, when the rounds of a batch are no longer needed.
"""

import argparse
import gc
import os
import tempfile
from pathlib import Path

import numpy as np

from rarely import FixedGrid, LinUCB
from rarely.study import Request, Study, Tell

GROUP = 50


def resident():
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown(storage, requests, every, report=lambda *_: None):
    """The resident bytes after each training, of a study that takes so many requests."""
    policy = LinUCB(dim=10, schedule=FixedGrid(2 * requests, 2 * requests // every), seed=0)
    rng, sizes = np.random.default_rng(0), []
    with Study.create(storage, "long", policy=policy, arms=["a", "b", "c", "d"]) as study:
        for first in range(0, requests, GROUP):
            contexts = rng.normal(size=(GROUP, 4, 10)).round(3)
            asked = [Request(each, f"v{first + i}") for i, each in enumerate(contexts)]
            answers, _ = study.ask_and_tell(asked, [])
            study.ask_and_tell([], [Tell(answer.id, float(answer.index == 1)) for answer in answers])
            if (first + GROUP) % every == 0:
                study.update()
                study.status()
                sizes.append(resident())
                report(first + GROUP, sizes[-1])
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=10_000, help="requests between two trainings")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        grown(
            f"sqlite:///{folder}/long.db",
            asked.requests,
            asked.every,
            lambda done, size: print(f"{done} requests: {size / 1e6:.1f} MB", flush=True),
        )


if __name__ == "__main__":
    main()
