"""Small campaigns, for tests: policies after a pilot, contexts and rewards in Parquet, Ray's work in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, LinTS, LinUCB, OnDemand, Policy, Training
from rarely.logs.tables import pyarrow

DIM, ARMS = 3, 4


order = list


@contextmanager
def serially(jobs: int | None, address: str | None) -> Iterator[Any]:
    """Do what Ray does in this process, in any `order`."""

    def commit(folder: Any, task: Any, calls: Any) -> None:
        done = set(folder.names())
        for name, args in order([call for call in calls if call[0] not in done]):
            folder.commit(task(*args), name)

    yield commit


def made(kind: str, **settings: Any) -> Policy:
    """A policy after a pilot."""
    common: dict[str, Any] = {"dim": DIM, "schedule": OnDemand(), "seed": 5, "within_batch": "frozen"} | settings
    if kind == "linear":
        policy: Policy = LinUCB(**common)
    elif kind == "thompson":
        policy = LinTS(**common)
    elif kind == "evidence":
        policy = BatchNeuralUCB(**common)
    else:
        policy = BatchNeuralUCB(
            **{"hidden": 6, "covariance": "primal", "training": Training(steps=20, rows=1000)} | common
        )
    rng = np.random.default_rng(1)
    contexts = rng.normal(size=(60, ARMS, DIM))
    decision = policy.select(contexts)
    policy.observe(decision, paid(contexts, decision.arm, rng))
    policy.update()
    return policy


def paid(contexts: Any, arms: Any, rng: Any) -> Any:
    chosen = contexts[np.arange(len(arms)), arms]
    return np.cos(2 * chosen[:, 0]) + chosen[:, 1] + 0.1 * rng.normal(size=len(arms))


def written(folder: Path, rounds: int, seed: int = 2, group: int = 50) -> Any:
    """Contexts in two Parquet files."""
    contexts = np.random.default_rng(seed).normal(size=(rounds, ARMS, DIM))
    ids = [f"{seed}-{i}" for i in range(rounds)]
    table = pyarrow().table({"id": ids, "contexts": list(contexts.reshape(rounds, -1))})
    folder.mkdir(parents=True)
    pyarrow("parquet").write_table(table.slice(0, rounds // 3), folder / "a.parquet", row_group_size=group)
    pyarrow("parquet").write_table(table.slice(rounds // 3), folder / "b.parquet")
    return contexts


def write_rewards(path: Path, ids: Any, rewards: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow("parquet").write_table(pyarrow().table({"id": list(ids), "reward": np.asarray(rewards, float)}), path)


def decided(folder: Path) -> Any:
    return pyarrow("parquet").read_table(folder)


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
