"""Campaigns: the decisions, weights and Z of one process, whoever works and whatever fails."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import campaigns
from campaigns import ARMS, DIM, close, decided, made, paid, serially, write_rewards, written
from rarely import BatchNeuralUCB, InvalidInput, Mixture, NothingToLearn, OnDemand, Training
from rarely._core.choice.rules import sample_arms
from rarely.cluster import campaign, decide, learning, update

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "committing", serially)
    monkeypatch.setattr(learning, "committing", serially)


@pytest.mark.parametrize("kind", ["linear", "neural", "thompson"])
@pytest.mark.parametrize("block", [16, 64])
def test_decisions_are_those_of_one_process(kind: str, block: int, tmp_path: Path) -> None:
    policy = made(kind)
    contexts = written(tmp_path / "in", 130)
    decide(policy, tmp_path / "in", tmp_path / "out", block=block)
    table, probabilities = decided(tmp_path / "out"), policy.probabilities(contexts)
    draws = campaign.uniforms(campaign.key_of(policy), table.column("id").to_pylist())
    arms = sample_arms(probabilities, draws) if kind == "thompson" else policy.select(contexts).arm
    assert table.column("arm").to_pylist() == list(arms)
    close(table.column("probability"), probabilities[np.arange(130), arms])
    assert table.column("round").to_pylist() == list(range(130))
    assert table.column("block").to_pylist() == [i // block for i in range(130)]
    assert set(table.column("version").to_pylist()) == {1}
    np.testing.assert_array_equal(np.stack(table.column("context").to_numpy()), contexts[np.arange(130), arms])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("linear", {}),
        ("linear", {"intercept": False}),
        ("neural", {}),
        ("neural", {"covariance": "diagonal"}),
        ("neural", {"covariance": "last_layer"}),
        ("neural", {"training": Training(steps=20, rows=80)}),
    ],
)
def test_an_update_is_that_of_one_process(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    policy = made(kind, **settings)
    alone, rng = copy.deepcopy(policy), np.random.default_rng(3)
    # Later nights differ where Z is rebuilt: one process has kept every round.
    for night in range(1 if "training" in settings else 2):
        here = tmp_path / f"night{night}"
        contexts = written(here / "in", 150, seed=10 + night)
        decide(policy, here / "in", here / "out", block=16)
        decision = alone.select(contexts)
        rewards = paid(contexts, decision.arm, rng)
        came = rng.permutation(150)[:120]
        rewards_at = here / "rewards" / "a.parquet"
        write_rewards(rewards_at, [f"{10 + night}-{i}" for i in came], rewards[came])
        alone.observe(rounds=decision.round[np.sort(came)], rewards=rewards[np.sort(came)])
        report = update(policy, here / "out", here / "rewards")
        record = alone.update()
        assert (report.rounds, report.joined, report.open) == (150, 120, 30 * (night + 1))
        ours = policy.updates[-1]
        assert (ours.accepted, ours.version, ours.round, ours.samples) == (
            True,
            night + 2,
            record.round,
            record.samples,
        )
        assert (ours.steps, ours.skip, ours.missing) == (record.steps, record.skip, record.missing)
        close(ours.beta, record.beta)
        close(ours.log_det, record.log_det)
        test = rng.normal(size=(20, ARMS, DIM))
        for mine, theirs in zip(policy.score(test), alone.score(test), strict=True):
            close(mine, theirs)
        if kind == "neural":
            for mine, theirs in zip(policy.weights, alone.weights, strict=True):
                close(mine, theirs)


@pytest.mark.parametrize("kind", ["linear", "neural"])
def test_neither_workers_nor_failures_change_a_bit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 1, 2, 7 and 64 workers end their tasks in any order: 75 blocks, 38 subtrees and 5 buckets."""
    monkeypatch.setattr(learning, "SUBTREE", 2)
    monkeypatch.setattr(learning, "BUCKET", 64)
    found = []
    written(tmp_path / "in", 300)
    write_rewards(tmp_path / "r.parquet", [f"2-{i}" for i in range(0, 300, 2)], np.linspace(0, 1, 150))
    for workers in (1, 2, 7, 64):
        policy, out = (
            made(kind, **({"training": Training(steps=20, rows=80)} if kind == "neural" else {})),
            f"out{workers}",
        )
        monkeypatch.setattr(campaigns, "order", partial(ended, workers, np.random.default_rng(workers)))
        repeated(lambda p=policy, out=out: decide(p, tmp_path / "in", tmp_path / out, block=4))
        repeated(lambda p=policy, out=out: update(p, tmp_path / out, tmp_path / "r.parquet"))
        blocks = [block.read_bytes() for block in sorted((tmp_path / out).glob("block-*"))]
        found.append((policy.fingerprint(), blocks))
    assert len(found[0][1]) == 75
    assert all(other == found[0] for other in found)


def ended(workers: int, rng: np.random.Generator, calls: list[Any]) -> Iterator[Any]:
    """Yield calls in an order in which so many workers may end them; of several, one call kills the driver."""
    busy, waiting = list[Any](), iter(calls)
    while busy := [*busy, *islice(waiting, workers - len(busy))]:
        if workers > 1 and rng.random() < 0.02:
            raise KeyboardInterrupt
        yield busy.pop(rng.integers(len(busy)))


BY_THREADS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from campaigns import serially
from rarely import load
from rarely.cluster import campaign, decide, learning, update
campaign.committing = learning.committing = serially
here, policy = Path(sys.argv[2]), load(Path(sys.argv[2]) / "policy")
decide(policy, here / "in", sys.argv[3], block=4096)
update(policy, sys.argv[3], here / "r.parquet")
"""


@pytest.mark.parametrize("kind", ["linear", "neural"])
def test_threads_of_blas_change_no_bit_of_a_task(kind: str, tmp_path: Path) -> None:
    made(kind, **({"hidden": 64} if kind == "neural" else {})).save(tmp_path / "policy")
    written(tmp_path / "in", 6000)
    write_rewards(tmp_path / "r.parquet", [f"2-{i}" for i in range(6000)], np.linspace(0, 1, 6000))
    found = []
    for threads in ("1", "2"):
        words = [Path(campaigns.__file__).parent, tmp_path, tmp_path / threads]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads}
        subprocess.run([sys.executable, "-c", BY_THREADS, *words], env=environment, check=True)
        files = [path for start in ("block", "_sums", "_z") for path in sorted((tmp_path / threads).glob(f"{start}-*"))]
        found.append([path.read_bytes() for path in files])
    assert len(found[0]) == 4
    assert found[0] == found[1]


@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
def test_a_sum_of_subtrees_is_that_of_their_leaves(leaves: int, size: int) -> None:
    names = [f"{i}" for i in range(leaves)]
    parts = [learning.tree_sum(names[i : i + size], joined) for i in range(0, leaves, size)]
    assert learning.tree_sum(parts, joined) == learning.tree_sum(names, joined)


def joined(left: str, right: str) -> str:
    return f"({left} {right})"


def repeated(call: Any) -> None:
    for _ in range(500):
        try:
            call()
            return
        except KeyboardInterrupt:
            pass
    raise AssertionError


@pytest.mark.filterwarnings("ignore::rarely.DriftWarning")
@pytest.mark.parametrize("bucket", [20, 1000])
def test_late_unknown_and_conflicting_rewards(bucket: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "BUCKET", bucket)
    policy = made("linear")
    alone = copy.deepcopy(policy)
    contexts = written(tmp_path / "in1", 100, seed=1)
    decide(policy, tmp_path / "in1", tmp_path / "night1", block=16)
    first = alone.select(contexts)
    write_rewards(tmp_path / "r" / "a.parquet", [f"1-{i}" for i in range(50)], np.arange(50) / 50)
    ids = ["1-3", "1-60", "1-60", "1-61", "stranger", "1-62"]
    write_rewards(tmp_path / "r" / "b.parquet", ids, [3 / 50, 1.0, 2.0, np.nan, 1.0, 0.5])
    report = update(policy, tmp_path / "night1", tmp_path / "r")
    counts = (report.joined, report.late, report.duplicate, report.conflicting, report.invalid, report.unknown)
    assert counts == (51, 0, 1, 2, 1, 1)
    (path,) = (tmp_path / "night1").glob("_aside-*.parquet")
    table = parquet.read_table(path).to_pydict()
    aside = sorted(zip(table["id"], table["why"], strict=True))
    assert aside == [("1-60", "conflicting"), ("1-60", "conflicting"), ("1-61", "invalid"), ("stranger", "unknown")]
    alone.observe(rounds=first.round[[*range(50), 62]], rewards=[*(np.arange(50) / 50), 0.5])
    alone.update()

    contexts = written(tmp_path / "in2", 40, seed=2)
    decide(policy, tmp_path / "in2", tmp_path / "night2", block=16)
    second = alone.select(contexts)
    write_rewards(tmp_path / "r" / "c.parquet", ["2-5", "1-70", "1-4"], [1.0, 0.25, 9.0])
    report = update(policy, [tmp_path / "night1", tmp_path / "night2"], tmp_path / "r")
    counts = (report.joined, report.late, report.duplicate, report.conflicting, report.unknown, report.open)
    assert counts == (2, 1, 52, 3, 1, 140 - 53)
    alone.observe(rounds=[first.round[70], second.round[5]], rewards=[0.25, 1.0])
    alone.update()
    close(policy.coefficients, alone.coefficients)
    close(policy.score(contexts).bonuses, alone.score(contexts).bonuses)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    policy = made("linear")
    written(tmp_path / "in", 20)
    with pytest.raises(InvalidInput, match="settled"):
        decide(BatchNeuralUCB(dim=DIM, schedule=OnDemand(), seed=0), tmp_path / "in", tmp_path / "out")
    with pytest.raises(InvalidInput, match="column 'person'"):
        decide(policy, tmp_path / "in", tmp_path / "out", id="person")
    with pytest.raises(InvalidInput, match="Parquet"):
        decide(policy, tmp_path / "nowhere", tmp_path / "out")
    decide(policy, tmp_path / "in", tmp_path / "out", block=8)
    with pytest.raises(InvalidInput, match="another policy"):
        decide(made("linear", beta=2.0), tmp_path / "in", tmp_path / "out", block=8)
    write_rewards(tmp_path / "r.parquet", ["2-1"], [1.0])
    before = policy.fingerprint()
    write_rewards(tmp_path / "none.parquet", [], [])
    with pytest.raises(NothingToLearn, match="at least one reward"):
        update(policy, tmp_path / "out", tmp_path / "none.parquet")
    write_rewards(tmp_path / "none.parquet", ["stranger"], [1.0])
    with pytest.raises(NothingToLearn):
        update(policy, tmp_path / "out", tmp_path / "none.parquet")
    (tmp_path / "out" / "block-00000001.parquet").unlink()
    with pytest.raises(InvalidInput, match="block 1 is missing"):
        update(policy, tmp_path / "out", tmp_path / "r.parquet")
    assert policy.fingerprint() == before


@pytest.mark.parametrize("kind", [int, str])
def test_ids_are_numbers_or_text(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "BUCKET", 7)
    policy, ids = made("linear"), [kind(i) for i in range(-20, 20)]
    parquet.write_table(
        pa.table({"id": ids, "contexts": [[float(i)] * 12 for i in range(40)]}), tmp_path / "in.parquet"
    )
    decide(policy, tmp_path / "in.parquet", tmp_path / "out", block=8)
    rewards = pa.table({"id": [str(one) for one in ids[::-2]] + [None], "reward": [float(i) for i in range(21)]})
    parquet.write_table(rewards, tmp_path / "r.parquet")
    report = update(policy, tmp_path / "out", tmp_path / "r.parquet")
    assert (report.joined, report.unknown) == (20, 1)


def test_rounds_may_differ_in_their_arms(tmp_path: Path) -> None:
    policy = made("thompson", exploration=Mixture(0.2))
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(1 + i % 3, DIM)) for i in range(20)]
    table = pa.table({"id": list(range(20)), "contexts": [row.ravel() for row in rows]})
    parquet.write_table(table, tmp_path / "in.parquet")
    decide(policy, tmp_path / "in.parquet", tmp_path / "out", block=7)
    arms = decided(tmp_path / "out").column("arm").to_pylist()
    assert all(arm < len(row) for arm, row in zip(arms, rows, strict=True))
    chosen = np.stack(decided(tmp_path / "out").column("context").to_numpy())
    np.testing.assert_array_equal(chosen, [row[arm] for row, arm in zip(rows, arms, strict=True)])
