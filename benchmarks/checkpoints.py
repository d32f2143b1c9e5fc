"""What checkpoints cost and save: processor time of a decision with and without them, and of opening a study again.

    python benchmarks/checkpoints.py --decisions 1000000            # SQLite in a temporary folder
    python benchmarks/checkpoints.py --storage postgresql://…       # an empty database

The study has K = 4 arms, d = 10 and a version 1, so that the version before it is kept ready for a rollback.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np

from rarely import BatchNeuralUCB, FixedGrid, LinUCB
from rarely.study import Request, Study, session

KINDS = {
    "linear": lambda: LinUCB(dim=10, schedule=FixedGrid(10**7, 50), seed=0),
    "neural": lambda: BatchNeuralUCB(dim=10, schedule=FixedGrid(10**7, 50), hidden=64, within_batch="frozen", seed=0),
}


def decide(study: Study, count: int, size: int, tag: str, rng: np.random.Generator) -> float:
    """Decide in groups of a size, and return the processor time of all threads for each decision."""
    began = time.process_time()
    for first in range(0, count, size):
        contexts = rng.random((size, 4, 10))
        study.ask_many([Request(each, f"{tag}-{first + i}") for i, each in enumerate(contexts)])
    return (time.process_time() - began) / count


def timed(what: str, call) -> object:
    began, wall = time.process_time(), time.perf_counter()
    found = call()
    print(
        f"{what}: {time.process_time() - began:.2f} s of processor time, {time.perf_counter() - wall:.2f} s", flush=True
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", default="")
    parser.add_argument("--policy", choices=KINDS, default="linear")
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--singles", type=int, default=3000, help="decisions with and without checkpoints")
    parser.add_argument("--group", type=int, default=1000, help="decisions of one commit otherwise")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        storage = given.storage or f"sqlite:///{folder}/trial.db"
        study = Study.create(storage, "load", policy=KINDS[given.policy](), arms=4)
        answers = study.ask_many([Request(each, f"first-{i}") for i, each in enumerate(rng.random((1000, 4, 10)))])
        study.tell_many([(answer.id, float(rng.random())) for answer in answers])
        study.update()
        for label, work in (("without checkpoints", 1e9), ("with checkpoints", session.CHECKPOINT_WORK)) * 2:
            study._session._patience = session.CHECKPOINT_WORK = work
            cost = decide(study, given.singles, 1, f"{label}-{rng.integers(10**9)}", rng)
            print(f"{label}: {1e6 * cost:.0f} µs a decision", flush=True)
        cost = decide(study, given.decisions, given.group, "many", rng)
        print(f"{given.decisions} decisions in groups of {given.group}: {1e6 * cost:.0f} µs each", flush=True)
        study._session._checkpoint.join()
        with study._session.storage.checkpoints() as tables:
            sql = (
                "SELECT base, count(*), sum(length(history)), max(length(state)) FROM rarely_checkpoints GROUP BY base"
            )
            for base, count, history, state in tables.run(sql):
                print(
                    f"snapshot {base}: {count} checkpoints, {history / 1e6:.1f} MB of rows, {state / 1e6:.3f} MB state"
                )
        study.close()
        study = timed("open", lambda: Study.open(storage, "load"))
        if given.storage:
            study._session.storage._raw.close()
            timed("reconnect and decide", lambda: (study.reconnect(), decide(study, 1, 1, "again", rng)))
        timed("rollback", lambda: study.rollback(0))
        timed("rollback to the version before that", lambda: study.rollback(1))
        study.close()


if __name__ == "__main__":
    main()
