"""Fleets: what was answered is in the log, versions follow the store, and waves become the next version."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns import ARMS, DIM, close, made, paid, serially, write_rewards
from rarely import Mixture, Worth
from rarely.cluster import (
    Decider,
    LogBusy,
    LostDecisions,
    StaleVersionWarning,
    audit,
    decider_logs,
    join,
    learning,
    publish,
    rollback,
    update,
)
from rarely.errors import InvalidInput, RarelyError

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
parquet = pytest.importorskip("pyarrow.parquet")


def contexts_of(seed: int, rounds: int = 1) -> Any:
    return np.random.default_rng(seed).normal(size=(rounds, ARMS, DIM))


def test_a_decider_decides_in_worth_and_the_audit_does_it_again(tmp_path: Path) -> None:
    policy, draw = made("linear"), np.random.default_rng(0)
    publish(policy, tmp_path / "store")
    with Decider(tmp_path / "store", log=tmp_path / "logs" / "1.log") as decider:
        for i, contexts in enumerate(contexts_of(0, 20)):
            worth = (
                None if i % 4 == 0 else Worth(draw.uniform(-2, 2, ARMS), np.where(draw.random(ARMS) < 0.2, np.inf, 0))
            )
            mask = None if i % 3 else np.arange(ARMS) != 1
            decider.decide(f"visit {i}", contexts, mask, worth=worth)
    assert audit(tmp_path / "store", tmp_path / "logs") == {}


def test_only_their_owner_reads_logs_and_tables_which_have_contexts_of_people(tmp_path: Path) -> None:
    publish(made("linear"), tmp_path / "store")
    before = os.umask(0o022)
    try:
        with Decider(tmp_path / "store", log=tmp_path / "logs" / "1.log") as decider:
            decider.decide("visit", contexts_of(0)[0])
        (wave,) = join(tmp_path / "logs", tmp_path / "waves")
    finally:
        os.umask(before)
    for path in (tmp_path / "logs" / "1.log", Path(wave) / "block-00000000.parquet"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_version_is_published_once_and_rolled_back(tmp_path: Path) -> None:
    policy = made("linear")
    first = publish(policy, tmp_path)
    assert publish(policy, tmp_path) == first
    policy.observe(policy.select(contexts_of(0, 5)), np.ones(5))
    policy.update()
    second = publish(policy, tmp_path)
    assert json.loads((tmp_path / "used.json").read_text()) == [first, second]
    assert rollback(tmp_path) == first
    with pytest.raises(InvalidInput, match="none to return to"):
        rollback(tmp_path)
    assert publish(policy, tmp_path) == second
    (tmp_path / second).write_bytes((tmp_path / first).read_bytes())
    with pytest.raises(RarelyError, match="SHA-256"):
        Decider(tmp_path, log=print)


def test_a_decider_decides_as_the_policy_does_with_running_bonuses(tmp_path: Path) -> None:
    policy = made("linear", within_batch="running")
    publish(policy, tmp_path)
    records: list[dict[str, Any]] = []
    with Decider(tmp_path, log=records.append) as decider:
        for i, contexts in enumerate(contexts_of(3, 200)):
            ours, alone = decider.decide(f"{i}", contexts), policy.select(contexts)
            assert ours.arm == alone.arm
            np.testing.assert_allclose(ours.bonuses, alone.bonuses, rtol=1e-12)  # the policy's is one compiled step
    assert [record["id"] for record in records] == [f"{i}" for i in range(200)]


def test_the_draw_of_a_decision_depends_on_version_and_id_alone(tmp_path: Path) -> None:
    publish(made("thompson", exploration=Mixture(0.5)), tmp_path)
    contexts = contexts_of(1, 60)
    orders = np.arange(60), np.random.default_rng(0).permutation(60)
    found = []
    for order in orders:
        with Decider(tmp_path, log=lambda record: None) as decider:
            found.append({i: decider.decide(f"visit {i}", contexts[i]).arm for i in order})
    assert found[0] == found[1]


def test_a_decider_follows_the_store_and_outlives_it(tmp_path: Path) -> None:
    policy, store = made("linear"), tmp_path / "store"
    publish(policy, store)
    with Decider(store, log=tmp_path / "log", poll=0.01) as decider:
        policy.observe(policy.select(contexts_of(0, 5)), np.ones(5))
        policy.update()
        publish(policy, store)
        wait_until(lambda: decider.version == 2)
        store.rename(tmp_path / "elsewhere")
        with pytest.warns(StaleVersionWarning, match="version 2 stays in use"):
            wait_until(lambda: decider._away)
        assert decider.decide("a", contexts_of(1)[0]).version == 2
        (tmp_path / "elsewhere").rename(store)
        wait_until(lambda: not decider._away)


def wait_until(holds: Any) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError


def lines(path: Path) -> list[Any]:
    return [said for _, said in decider_logs.lines_of(path)]


def ids_in(*paths: Path) -> list[str]:
    return [said.id for path in paths for said in lines(path) if isinstance(said, decider_logs.Logged)]


def logged(id: str, **fields: Any) -> decider_logs.Logged:
    known = {"version": 0, "policy": "0" * 16, "origin": "0" * 12, "before": 0, "arm": 1, "arms": 2, "absent": ()}
    thoughts = {"probability": 1.0, "mean": 0.1, "bonus": 0.2, "stats": (1, 2, 0.5, -1.0, -1.0, False)}
    return decider_logs.Logged(**{"id": id, "contexts": np.ones((2, 3)), **known, **thoughts, **fields})


def test_half_a_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = decider_logs.Log(path)
    log.append(logged("a"))
    log.append(logged("b"))
    log.close()
    whole = path.read_bytes()
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        log = decider_logs.Log(path, sync=True)
        log.append(logged("c"))
        log.close()
        assert ids_in(path) == [*["a", "b"][: max(0, whole[:end].count(b"\n") - 1)], "c"]


def test_one_log_has_one_decider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(made("linear"), tmp_path / "store")
    log = tmp_path / "log"
    with Decider(tmp_path / "store", log) as first:
        first.decide("a", np.ones((4, 3)))
        with pytest.raises(LogBusy, match="close it, or give each a log of its own"):
            Decider(tmp_path / "store", log)
        code = "import sys; from rarely.cluster import Decider; Decider(*sys.argv[1:])"
        other = subprocess.run([sys.executable, "-c", code, tmp_path / "store", log], capture_output=True, text=True)
        assert "LogBusy" in other.stderr
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(LogBusy):  # a fork
            first.decide("b", np.ones((4, 3)))
        monkeypatch.undo()
        with pytest.raises(InvalidInput, match="id must be text"):
            first.decide(7, np.ones((4, 3)))  # type: ignore[arg-type]
    with Decider(tmp_path / "store", log) as second:
        second.decide("c", np.ones((4, 3)))
    assert ids_in(log) == ["a", "c"]


@pytest.mark.parametrize("bucket", [5, 1000])
def test_an_id_of_two_decisions_is_set_aside(bucket: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "committing", serially)
    monkeypatch.setattr(learning, "BUCKET", bucket)
    policy, alone, contexts = made("linear"), made("linear"), contexts_of(7, 24)
    publish(policy, tmp_path / "store")
    (tmp_path / "logs").mkdir()
    ids = [*"abcdefghij", "d", "k", *"lmnopqrstuv", "c"]  # one decider asks twice for d, both for c
    for name, asked in (("1", range(12)), ("2", range(12, 24))):
        with Decider(tmp_path / "store", tmp_path / "logs" / name) as decider:
            for i in asked:
                decider.decide(ids[i], contexts[i])
    write_rewards(tmp_path / "r.parquet", ["a", "d", "c", "v", "c"], [1.0, 2.0, 3.0, 4.0, 3.0])
    joined = join(tmp_path / "logs", tmp_path / "waves")
    report = update(policy, joined, tmp_path / "r.parquet")
    assert (report.rounds, report.joined, report.unknown, report.repeated, report.open) == (24, 2, 3, 4, 22)
    (path,) = Path(joined[0]).glob("_aside-*.parquet")
    table = parquet.read_table(path).to_pydict()
    assert sorted(zip(table["id"], table["why"], strict=True)) == [
        *[("c", "repeated")] * 2,
        *[("c", "unknown")] * 2,
        *[("d", "repeated")] * 2,
        ("d", "unknown"),
    ]
    alone.observe(rounds=alone.select(contexts).round[[0, 22]], rewards=[1.0, 4.0])
    alone.update()
    close(policy.coefficients, alone.coefficients)
    write_rewards(tmp_path / "late.parquet", ["b", "c"], [1.0, 3.0])  # and is again, when the wave is given again
    report = update(policy, joined, tmp_path / "late.parquet")
    assert (report.joined, report.late, report.unknown, report.repeated) == (1, 1, 1, 4)


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    publish(made("linear"), tmp_path / "store")
    code = (
        "import sys, numpy as np; from rarely.cluster import Decider\n"
        "decider = Decider(sys.argv[1], sys.argv[2])\n"
        "for i in range(10**6):\n"
        "    decider.decide(f'{sys.argv[3]}-{i}', np.ones((4, 3))); print(f'{sys.argv[3]}-{i}', flush=True)"
    )
    answered, rng = [], np.random.default_rng(0)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "a"
    for life in range(int(os.environ.get("KILLS", "4"))):
        command = [sys.executable, "-c", code, str(tmp_path / "store"), str(log), str(life)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            answered += [process.stdout.readline().strip() for _ in range(int(rng.integers(1, 60)))]
            os.kill(process.pid, signal.SIGKILL)
            answered += [line.strip() for line in process.stdout.read().splitlines(keepends=True) if line[-1:] == "\n"]
    found = ids_in(log)
    assert len(found) == len(set(found))
    assert set(answered) <= set(found)
    assert audit(tmp_path / "store", log.parent) == {}


@pytest.mark.parametrize("kind", ["linear", "neural", "evidence"])
def test_waves_of_logs_become_the_next_version(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "committing", serially)
    monkeypatch.setattr(decider_logs, "BLOCK", 16)
    policy, store = made(kind, within_batch="running"), tmp_path / "store"
    publish(policy, store)
    (tmp_path / "logs").mkdir()
    alone, contexts = copy.deepcopy(policy), contexts_of(7, 40)
    with Decider(store, tmp_path / "logs" / "a") as decider:  # one of them alone decides as one process does
        arms = [decider.decide(f"{i}", contexts[i]).arm for i in range(40)]
        assert join(tmp_path / "logs", tmp_path / "waves") == [str(tmp_path / "waves" / "wave-000001")]
        assert len(join(tmp_path / "logs", tmp_path / "waves")) == 1
        decision = alone.select(contexts)
        assert list(decision.arm) == arms
        rewards = paid(contexts, decision.arm, np.random.default_rng(0))
        write_rewards(tmp_path / "r.parquet", [f"{i}" for i in range(40)], rewards)
        alone.observe(decision, rewards)
        report = update(policy, join(tmp_path / "logs", tmp_path / "waves"), tmp_path / "r.parquet")
        alone.update()
        assert (report.rounds, report.joined, report.unknown) == (40, 40, 0)
        if kind == "evidence":  # inducing contexts: means up to a jitter of a millionth, bonuses of what they span
            assert policy.covariance == "primal"
            np.testing.assert_allclose(policy.score(contexts).means, alone.score(contexts).means, atol=1e-4)
            assert (policy.score(contexts).bonuses <= alone.score(contexts).bonuses + 1e-4).all()
        else:
            for mine, theirs in zip(policy.score(contexts), alone.score(contexts), strict=True):
                close(mine, theirs)
        decider.decide("late", contexts[0])
    joined = join(tmp_path / "logs", tmp_path / "waves")
    assert len(joined) == 2
    write_rewards(tmp_path / "r.parquet", ["late"], [1.0])
    assert update(policy, joined, tmp_path / "r.parquet").rounds == 1


@pytest.mark.parametrize("kind", ["linear", "neural", "thompson"])
def test_every_decision_can_be_made_again(kind: str, tmp_path: Path) -> None:
    policy, rng, masks = made(kind, within_batch="running"), np.random.default_rng(0), [None, [True, False, True, True]]
    (tmp_path / "logs").mkdir()
    for life in range(3):  # a version, the same after a restart, and the next
        if life != 1:
            publish(policy, tmp_path / "store")
        with Decider(tmp_path / "store", tmp_path / "logs" / "a") as decider:
            for i, contexts in enumerate(contexts_of(life, 30)):
                decider.decide(f"{life}-{i}", contexts, masks[i % 2])
        policy.observe(policy.select(contexts_of(9, 20)), rng.normal(size=20))
        policy.update()
    assert audit(tmp_path / "store", tmp_path / "logs") == {}

    path = tmp_path / "logs" / "a"
    records = [said for said in lines(path) if isinstance(said, decider_logs.Logged)]
    records[40] = replace(records[40], bonus=records[40].bonus + 0.25)
    chosen = records[50].arm
    records[50] = replace(records[50], id="other", arm=0)
    rewritten(path, records)
    found = audit(tmp_path / "store", tmp_path / "logs")
    assert found["1-10"] == pytest.approx(0.25)
    if kind == "linear":
        assert ("other" in found) == bool(chosen)
    rewritten(path, records[:10] + records[11:])
    with pytest.raises(LostDecisions, match=r"before '0-11' in .* is missing"):
        audit(tmp_path / "store", tmp_path / "logs")
    found = audit(tmp_path / "store", tmp_path / "logs", accept_losses=True)
    assert [id for id, by in found.items() if np.isnan(by)] == [f"0-{i}" for i in range(11, 30)]
    rewritten(path, [])
    with pytest.raises(InvalidInput, match="must have a log with decisions"):
        audit(tmp_path / "store", tmp_path / "logs")


def rewritten(path: Path, records: list[decider_logs.Logged]) -> None:
    path.unlink()
    log = decider_logs.Log(path)
    for record in records:
        log.append(record)
    log.close()


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, write = decider_logs.Log(tmp_path / "log"), os.write
    log.append(logged("a"))
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:5]))
    with pytest.raises(OSError, match="disk full"):
        log.append(logged("b"))
    monkeypatch.undo()
    log.append(logged("c"))
    log.close()
    assert ids_in(tmp_path / "log") == ["a", "c"]
