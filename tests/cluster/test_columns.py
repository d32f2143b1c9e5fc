"""Columns in fleets and campaigns: a `FramePolicy` decides as by arrays, and learns what it decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from campaigns import close, decided, serially, write_rewards
from rarely import FramePolicy, LinTS, OnDemand, Worth, load
from rarely._cli import app
from rarely.cluster import Decider, audit, campaign, decide, join, learning, publish, update
from rarely.errors import InvalidContexts, InvalidInput

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
parquet = pytest.importorskip("pyarrow.parquet")

USERS = [{"age": 20.0 + i, "town": ("Ulm", "Łódź", None)[i % 3]} for i in range(30)]
ITEMS = [
    {"id": name, "colour": colour, "price": i + 1.0} for i, (name, colour) in enumerate(zip("xyz", "rgr", strict=True))
]
CATALOGUE = [{name: item[name] for name in ("id", "colour")} for item in ITEMS]


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (campaign, learning):
        monkeypatch.setattr(module, "committing", serially)


def of_items() -> FramePolicy:
    return FramePolicy.fit(LinTS, USERS, ITEMS, key="id", ignore=["price"], schedule=OnDemand(), seed=0)


def of_arms() -> FramePolicy:
    return FramePolicy.fit(LinTS, USERS, arms=["tea", "rum"], schedule=OnDemand(), seed=0)


def test_a_fleet_is_asked_by_columns_and_decides_as_by_arrays(tmp_path: Path) -> None:
    policy = of_items()
    publish(policy, tmp_path / "store")
    for name in ("columns", "arrays"):
        (tmp_path / name).mkdir()
    with (
        Decider(tmp_path / "store", tmp_path / "columns" / "1") as one,
        Decider(tmp_path / "store", tmp_path / "arrays" / "1") as other,
    ):
        for i, user in enumerate(USERS):
            worth = None if i % 2 else "price"
            ours = one.decide(f"v{i}", {"user": user, "items": ITEMS}, worth=worth)
            prices = None if i % 2 else Worth(gain=[1.0, 2.0, 3.0])
            theirs = other.decide(f"v{i}", policy.contexts(user, ITEMS), worth=prices)
            assert ours.arm == theirs.arm
            np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)
        assert one.unseen == {}
        one.decide("elsewhere", {"user": {"age": 3.0, "town": "Bonn"}, "items": ITEMS})
        assert one.unseen == {"town": 1}
    assert audit(tmp_path / "store", tmp_path / "columns") == {}
    write_rewards(tmp_path / "r.parquet", [f"v{i}" for i in range(30)], np.arange(30.0))
    report = update(policy, join(tmp_path / "columns", tmp_path / "waves"), tmp_path / "r.parquet")
    assert (report.joined, report.unknown, policy.version) == (30, 0, 1)
    publish(policy, tmp_path / "store")


@pytest.mark.parametrize(
    "wrong", [{"user": USERS[0]}, {"user": {"age": "old", "town": "Ulm"}, "items": ITEMS}, {"items": ITEMS}]
)
def test_what_the_columns_do_not_have_is_refused_and_not_logged(wrong: Any, tmp_path: Path) -> None:
    records: list[Any] = []
    publish(of_items(), tmp_path)
    with Decider(tmp_path, log=records.append) as decider:
        with pytest.raises(InvalidContexts):
            decider.decide("v", wrong)
        assert records == []
        assert decider.unseen == {}


def test_a_campaign_reads_the_columns_of_users(tmp_path: Path) -> None:
    policy = of_arms()
    table = pa.Table.from_pylist([{"id": f"v{i}", "sent": "2031-05-17"} | user for i, user in enumerate(USERS)])
    (tmp_path / "people").mkdir()
    parquet.write_table(table, tmp_path / "people" / "a.parquet")
    policy.save(tmp_path / "policy")
    done = CliRunner().invoke(app, ["fleet", "decide", *(str(tmp_path / n) for n in ("policy", "people", "night"))])
    assert done.exit_code == 0, done.output
    ours, chances = decided(tmp_path / "night"), policy.probabilities(USERS)
    arms = ours.column("arm").to_numpy()
    close(ours.column("probability").to_numpy(), chances[np.arange(30), arms])
    chosen = np.stack(ours.column("context").to_numpy())
    np.testing.assert_array_equal(chosen, policy.contexts(USERS)[np.arange(30), arms])
    write_rewards(tmp_path / "r.parquet", [f"v{i}" for i in range(30)], np.arange(30.0))
    words = ["fleet", "update", "policy", "night", "--rewards", "r.parquet", "--publish", "store"]
    done = CliRunner().invoke(
        app, [str(tmp_path / w) if w in ("policy", "night", "r.parquet", "store") else w for w in words]
    )
    assert done.exit_code == 0, done.output
    learned = load(tmp_path / "policy")
    assert isinstance(learned, FramePolicy)
    assert learned.version == 1
    with Decider(tmp_path / "store", log=lambda _: None) as decider:
        assert decider.decide("v", {"user": USERS[0]}).version == 1


def test_a_campaign_of_items_needs_the_items(tmp_path: Path) -> None:
    policy = of_items()
    parquet.write_table(pa.Table.from_pylist([{"id": "v"} | USERS[0]]), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match="needs the items of each row"):
        decide(policy, tmp_path / "a.parquet", tmp_path / "night")
    made = decide(policy, tmp_path / "a.parquet", tmp_path / "night", contexts=of_catalogue)
    assert made.rounds == 1


def of_catalogue(batch: Any) -> Any:
    return of_items().contexts(batch.select(["age", "town"]), CATALOGUE)
