"""Faults of files and of people: damaged and missing logs, two coordinators, other contexts, other policies."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns import ARMS, DIM, decided, made, paid, serially, write_rewards, written
from rarely import InvalidContexts, InvalidInput, LinUCB, NothingToLearn, OnDemand, RarelyError, load
from rarely.cluster import (
    Decider,
    FolderBusy,
    LostDecisions,
    LostDecisionsWarning,
    audit,
    campaign,
    decide,
    decider_logs,
    fleet,
    join,
    learning,
    prune,
    publish,
    rotate,
    update,
)
from rarely.cluster.campaign import listed_contexts, offered_in, read_block
from rarely.cluster.files import Folder, Rows

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "committing", serially)
    monkeypatch.setattr(learning, "committing", serially)


class Shop:
    """A store, logs and waves."""

    def __init__(self, folder: Path, policy: Any = None) -> None:
        self.store, self.logs, self.waves = folder / "store", folder / "logs", folder / "waves"
        self.logs.mkdir()
        publish(policy or made("linear"), self.store)

    def decide(self, log: str, ids: Any) -> Path:
        with Decider(self.store, self.logs / log) as decider:
            for id in ids:
                decider.decide(str(id), np.random.default_rng(0).normal(size=(ARMS, DIM)))
        return self.logs / log

    def join(self, **how: Any) -> list[str]:
        """Return the ids of all waves."""
        waves = join(self.logs, self.waves, **how)
        return [id for wave in waves for id in parquet.read_table(wave).column("id").to_pylist()]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_damaged_byte_deletes_nothing_and_is_named(shop: Shop, tmp_path: Path) -> None:
    """Change bytes all over a log, ends of lines among them: the decisions of those lines alone are lost."""
    path, rng = shop.decide("1", range(6)), np.random.default_rng(1)
    whole = path.read_bytes()
    starts = np.cumsum([0, *map(len, io.BytesIO(whole).readlines())])
    ends = [int(end) - 1 for end in starts[2:]]
    for at in [*ends, *rng.integers(starts[1], len(whole) - 1, size=6).tolist()]:
        content = bytearray(whole)
        content[at] ^= 4
        path.write_bytes(content)
        line = int(np.searchsorted(starts, at, side="right"))
        # A line end that is gone takes the next decision along, and one that came leaves two lines that are not whole.
        gone = {line - 2, line - 1} if at in ends[:-1] else {line - 2}
        for call in (lambda: shop.decide("1", ["x"]), shop.join, lambda: audit(shop.store, shop.logs)):
            with pytest.raises(LostDecisions, match=rf"logs/1, line {line} \(from byte {starts[line - 1]}\)"):
                call()
            assert path.read_bytes() == content
        with pytest.warns(LostDecisionsWarning, match=f"line {line} "):
            assert shop.join(accept_losses=True) == [f"{i}" for i in range(6) if i not in gone]
        unknown = [id for id, by in audit(shop.store, shop.logs, accept_losses=True).items() if np.isnan(by)]
        assert unknown[1:] == [f"{i}" for i in range(6) if i not in gone and i > min(gone)]
        shutil.rmtree(shop.waves)
    assert rotate(shop.logs)
    shop.decide("1", ["after"])
    with pytest.warns(LostDecisionsWarning):
        assert "after" in shop.join(accept_losses=True)


def test_what_is_no_log_is_named(shop: Shop, tmp_path: Path) -> None:
    shop.decide("1", range(2))
    (shop.logs / "empty").touch()
    assert shop.join() == ["0", "1"]
    (shop.logs / "notes").write_text("bought milk\n")
    with pytest.raises(LostDecisions, match="notes must be a log"):
        shop.join()
    with pytest.raises(InvalidInput, match="local folder of logs"):
        join(tmp_path / "nowhere", shop.waves)


def test_forged_lines_are_damaged_lines(shop: Shop) -> None:
    """Give a line another value of any field, with the checksum that fits."""
    path = shop.decide("1", range(3))
    first, second, *others = io.BytesIO(path.read_bytes()).readlines()
    text, tab, packed = second[9:-1].partition(b"\t")
    fields, harmless = json.loads(text), [(name, "x") for name in ("id", "policy", "origin")]
    harmless += [(name, number) for name in ("probability", "mean", "bonus") for number in (-1, 10**30)]
    harmless += [("absent", {}), ("absent", ""), ("worth", {})]
    for name in fields:
        for value in (None, "x", -1, 10**30, [1], {}, [7, 7]):
            path.write_bytes(first + decider_logs.sealed(fields | {name: value}, tab + packed) + b"".join(others))
            if (name, value) in harmless:
                continue
            with pytest.raises(RarelyError, match=r"line 2|decisions of a wave"):
                shop.join()


def test_logs_are_joined_once_whatever_they_are_called(shop: Shop) -> None:
    path = shop.decide("1", range(10))
    assert shop.join() == [f"{i}" for i in range(10)]
    path.rename(shop.logs / "1.1")
    assert len(shop.join()) == 10
    with Decider(shop.store, shop.logs / "1") as decider:
        decider.decide("10", np.ones((ARMS, DIM)))
        (shop.logs / "old").mkdir()
        (shop.logs / "1").rename(shop.logs / "old" / "a")  # logrotate, while the decider lives
        (shop.logs / "1").touch()
        decider.decide("11", np.ones((ARMS, DIM)))
        assert shop.join()[10:] == ["11", "10"]
        shutil.copy(shop.logs / "1", shop.logs / "backup")
        decider.decide("12", np.ones((ARMS, DIM)))
        assert shop.join()[12:] == ["12"]
        rotate(shop.logs)
        decider.decide("13", np.ones((ARMS, DIM)))
        os.truncate(shop.logs / "1", 0)  # copytruncate, after the copy
        decider.decide("14", np.ones((ARMS, DIM)))
        with pytest.raises(LostDecisions, match="of which 0 lines were read, is not in"):
            shop.join()
        with pytest.warns(LostDecisionsWarning):
            assert shop.join(accept_losses=True)[13:] == ["14"]
        with open(shop.logs / "1", "ab") as file:
            file.write(b"echo\n")
        with pytest.raises(LostDecisions, match="another program"):
            decider.decide("15", np.ones((ARMS, DIM)))


def test_a_log_that_is_gone_is_named(shop: Shop, tmp_path: Path) -> None:
    path = shop.decide("1", range(10))
    shop.join()
    path.rename(tmp_path / "elsewhere")
    shop.decide("1", range(10, 15))
    with pytest.raises(LostDecisions, match="of which 11 lines were read"):
        shop.join()
    (tmp_path / "elsewhere").rename(shop.logs / "back")
    assert shop.join() == [f"{i}" for i in range(15)]


def test_rotated_logs_are_removed_when_waves_have_them(shop: Shop) -> None:
    shop.decide("1", range(5))
    with Decider(shop.store, shop.logs / "2") as decider:
        decider.decide("5", np.ones((ARMS, DIM)))
        assert len(rotate(shop.logs)) == 2
        assert rotate(shop.logs) == []
        assert prune(shop.logs, shop.waves) == []
        decider.decide("6", np.ones((ARMS, DIM)))
        assert audit(shop.store, shop.logs) == {}
        assert shop.join() == ["0", "1", "2", "3", "4", "6", "5"]
        assert prune(shop.logs, shop.waves, keep=1) == []
        assert len(prune(shop.logs, shop.waves)) == 2
        assert prune(shop.logs, shop.waves) == []
        decider.decide("7", np.ones((ARMS, DIM)))
        assert shop.join()[7:] == ["7"]
    with pytest.raises(LostDecisions, match="before '6'"):
        audit(shop.store, shop.logs)
    assert set(audit(shop.store, shop.logs, accept_losses=True)) == {"6", "7"}


@pytest.mark.parametrize(("arms", "dim", "most"), [(50, 4, 2000), (10, 20, 2000), (200, 1, 2000), (50, 48, 19_900)])
def test_a_decision_takes_little_more_than_its_numbers(arms: int, dim: int, most: int, tmp_path: Path) -> None:
    shop, rng = Shop(tmp_path, LinUCB(dim=dim, schedule=OnDemand(), seed=0)), np.random.default_rng(0)
    contexts = rng.normal(size=(50, arms, dim))
    with Decider(shop.store, shop.logs / "1") as decider:
        for i in range(50):
            decider.decide(f"visit {10**6 + i}", contexts[i], rng.random(arms) < 0.99)
    assert (shop.logs / "1").stat().st_size / 50 <= most
    assert audit(shop.store, shop.logs) == {}
    for said, given in zip(list(decider_logs.lines_of(shop.logs / "1"))[1:], contexts, strict=True):
        present = np.isin(np.arange(arms), said[1].absent, invert=True)
        np.testing.assert_array_equal(said[1].contexts, given[present])


@pytest.mark.parametrize("text", [b"\n", b"\x1b", b"\x1bn", b"\x1be\n\x1b\x1b", b"n\x1bn\ne"])
def test_any_bytes_are_kept(text: bytes, tmp_path: Path) -> None:
    numbers = np.frombuffer((text * 64)[:64], "<f8").reshape(2, 4)
    line = decider_logs.Logged("a", 0, "p", "o", 0, 0, 2, (), 1.0, 0.0, 0.0, (1, 2, 0.0, 0.0, 0.0, False), numbers)
    (tmp_path / "log").write_bytes(line.line("log"))
    ((_, said),) = decider_logs.lines_of(tmp_path / "log")
    assert said.contexts.tobytes() == numbers.tobytes()


def meeting(monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[], Any], other: Callable[[], Any]) -> None:
    """Let another coordinator call as the first is about to name a file."""
    commit, met = Folder.commit, []

    def commits(folder: Folder, temporary: str, named: str) -> None:
        if named.startswith(name) and not met:
            met.append(True)
            with pytest.raises(FolderBusy, match="another coordinator works in"):
                other()
        commit(folder, temporary, named)

    monkeypatch.setattr(Folder, "commit", commits)
    call()
    assert met


def test_of_two_at_once_one_gives_way(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.decide("1", range(20))
    meeting(monkeypatch, "_read", shop.join, shop.join)
    assert len(shop.join()) == 20
    later = made("linear", beta=2.0)
    meeting(monkeypatch, "used", lambda: publish(later, shop.store), lambda: publish(made("neural"), shop.store))
    assert len(json.loads((shop.store / "used.json").read_text())) == 2
    policy, again = made("linear"), made("linear")
    written(tmp_path / "in", 20)
    call = lambda: decide(policy, tmp_path / "in", tmp_path / "night", block=8)  # noqa: E731
    meeting(monkeypatch, "block-00000001", call, call)
    write_rewards(tmp_path / "r.parquet", ["2-1"], [1.0])
    learn = lambda one: update(one, tmp_path / "night", tmp_path / "r.parquet")  # noqa: E731
    meeting(monkeypatch, "_joined", lambda: learn(policy), lambda: learn(again))
    assert learn(again).joined == 1
    assert again.fingerprint() == policy.fingerprint()


def test_a_claim_where_there_are_no_locks(tmp_path: Path) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    folder = Folder(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "out")
    with folder.alone():
        with pytest.raises(FolderBusy, match="remove out/"), folder.alone():
            pass
        (left,) = (tmp_path / "out").iterdir()
    assert not list((tmp_path / "out").iterdir())
    left.touch()  # of one that was killed
    with pytest.raises(FolderBusy), folder.alone():
        pass
    assert [path.name for path in (tmp_path / "out").iterdir()] == [left.name]


def test_a_damaged_version_is_mended_by_publishing_it(tmp_path: Path) -> None:
    policy = made("linear")
    name = publish(policy, tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:100] + b"?" + whole[101:])
    with pytest.raises(RarelyError, match="publish the version again"):
        Decider(tmp_path, log=print)
    assert publish(policy, tmp_path) == name
    assert (tmp_path / name).read_bytes() == whole
    for text in ("", "[]", "[1]", '["../x"]', "{}"):
        (tmp_path / "used.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"used\.json .*is damaged"):
            Decider(tmp_path, log=print)


def test_a_model_of_ones_own_reaches_load(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[Any]()
    restored = fleet.restore
    monkeypatch.setattr(fleet, "restore", lambda saved, name, model: given.append(model) or restored(saved, name))
    with Decider(shop.store, shop.logs / "1", model="net") as decider:
        decider.decide("a", np.ones((ARMS, DIM)))
    assert audit(shop.store, shop.logs, model="net") == {}
    assert given == ["net", "net"]


def test_two_coordinators_learn_from_one_night(tmp_path: Path) -> None:
    """The first knows half of the rewards, the second all; whichever policy stays has learned each reward once."""
    made("linear").save(tmp_path / "policy")
    contexts = written(tmp_path / "in", 40)
    decide(load(tmp_path / "policy"), tmp_path / "in", tmp_path / "night")
    arms = decided(tmp_path / "night").column("arm").to_numpy()
    rewards, ids = paid(contexts, arms, np.random.default_rng(0)), [f"2-{i}" for i in range(40)]
    first, second = load(tmp_path / "policy"), load(tmp_path / "policy")
    write_rewards(tmp_path / "r" / "1.parquet", ids[:20], rewards[:20])
    assert update(first, tmp_path / "night", tmp_path / "r").joined == 20
    write_rewards(tmp_path / "r" / "2.parquet", ids[20:], rewards[20:])
    assert update(second, tmp_path / "night", tmp_path / "r").joined == 40
    report = update(first, tmp_path / "night", tmp_path / "r")
    assert (report.joined, report.late, report.duplicate, report.open) == (20, 20, 20, 0)
    with pytest.raises(NothingToLearn, match="40 rewards, 40 duplicate"):
        update(second, tmp_path / "night", tmp_path / "r")
    test = np.random.default_rng(1).normal(size=(5, ARMS, DIM))
    np.testing.assert_allclose(first.score(test).bonuses, second.score(test).bonuses, rtol=1e-9)
    np.testing.assert_allclose(first.coefficients, second.coefficients, rtol=1e-9)


def half_decided(folder: Path, **how: Any) -> Path:
    """Contexts of 40 rounds, and a folder that lacks one block of three."""
    written(folder / "in", 40)
    decide(made("linear"), folder / "in", folder / "out", block=16, **how)
    (folder / "out" / "block-00000001.parquet").unlink()
    return folder / "in" / "b.parquet"


def twice(batch: Any) -> Any:
    return 2 * listed_contexts(DIM, batch)


def once(batch: Any) -> Any:
    return 1 * listed_contexts(DIM, batch)


def test_decide_resumes_the_same_call_alone(tmp_path: Path) -> None:
    path = half_decided(tmp_path, contexts=once)
    again = lambda **how: decide(  # noqa: E731
        made("linear"), tmp_path / "in", tmp_path / "out", **{"block": 16, "contexts": once} | how
    )
    table, before = parquet.read_table(path), sorted((tmp_path / "out").iterdir())
    for how in ({"contexts": twice}, {"contexts": None}, {"id": "other"}, {"block": 20}):
        if "id" in how:
            for each in (tmp_path / "in").iterdir():
                one = parquet.read_table(each)
                now = os.stat(each)
                parquet.write_table(one.append_column("other", one.column("id")), each)
                os.utime(each, ns=(now.st_atime_ns, now.st_mtime_ns))
        with pytest.raises(InvalidInput, match="to resume, the call and its files must be the same"):
            again(**how)
    assert sorted((tmp_path / "out").iterdir()) == before
    shutil.rmtree(tmp_path / "in")
    shutil.rmtree(tmp_path / "out")
    path = half_decided(tmp_path, contexts=once)
    again()
    assert len(decided(tmp_path / "out")) == 40
    other = np.random.default_rng(9).normal(size=(len(table), ARMS * DIM))
    (tmp_path / "out" / "block-00000001.parquet").unlink()
    parquet.write_table(pa.table({"id": table.column("id"), "contexts": list(other)}), path)
    with pytest.raises(InvalidInput, match="source"):
        again()


def test_files_stay_as_they_are_while_they_are_read(tmp_path: Path) -> None:
    written(tmp_path / "in", 40)
    rows = Rows.at(tmp_path / "in", ["id"])
    os.utime(tmp_path / "in" / "b.parquet", ns=(1, 1))
    with pytest.raises(InvalidInput, match=r"b\.parquet must stay as it is"):
        list(rows.batches(0, 40))


@pytest.mark.parametrize("other", [made("neural"), made("linear", beta=2.0), made("linear", seed=6)])
def test_a_night_of_another_policy_is_refused(other: Any, shop: Shop, tmp_path: Path) -> None:
    written(tmp_path / "in", 20)
    decide(other, tmp_path / "in", tmp_path / "night")
    write_rewards(tmp_path / "r.parquet", ["2-1", "0"], [1.0, 1.0])
    publish(other, shop.store)
    shop.decide("1", range(5))
    policy = made("linear")
    before = policy.fingerprint()
    for night in (tmp_path / "night", join(shop.logs, shop.waves)[0]):
        with pytest.raises(InvalidInput, match="must be decided by this policy"):
            update(policy, night, tmp_path / "r.parquet")
    assert policy.fingerprint() == before
    assert update(other, [tmp_path / "night", *join(shop.logs, shop.waves)], tmp_path / "r.parquet").joined == 2
    with pytest.raises(InvalidInput, match="must be given once"):
        update(other, [tmp_path / "night", tmp_path / "night"], tmp_path / "r.parquet")


def test_eight_damaged_bytes_of_a_block_are_found(tmp_path: Path) -> None:
    written(tmp_path / "in", 300)
    decide(made("neural"), tmp_path / "in", tmp_path / "out")
    folder, path = Folder.at(tmp_path / "out"), tmp_path / "out" / "block-00000000.parquet"
    whole, table, offered = path.read_bytes(), read_block(folder, 0), offered_in(folder, 0).describe()
    found, rng = 0, np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        at = int(rng.integers(len(whole) - 8))
        for i in range(at, at + 8):
            content[i] ^= int(rng.integers(1, 256))
        path.write_bytes(content)
        try:
            same = read_block(folder, 0).equals(table) and offered_in(folder, 0).describe() == offered
        except InvalidInput as error:
            found += str(path) in str(error)
        else:
            assert same
    assert found > 200


def changed(folder: Path, name: str, column: Any) -> None:
    """Let the second file of contexts have another column."""
    table = parquet.read_table(folder / "b.parquet")
    table = table.drop([name]) if column is None else table.set_column(table.schema.get_field_index(name), name, column)
    parquet.write_table(table, folder / "b.parquet", row_group_size=10)


def looked_up(batch: Any) -> Any:
    return listed_contexts(DIM, batch) * (np.asarray(batch.column("scale").to_numpy()) / 1)[:, None, None]


def test_faults_of_contexts_are_named(tmp_path: Path) -> None:
    def fresh() -> Path:
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        written(tmp_path / "in", 60)
        for each in (tmp_path / "in").iterdir():
            table = parquet.read_table(each)
            parquet.write_table(table.append_column("scale", pa.array(np.ones(len(table)))), each)
        return tmp_path / "in"

    def fails(where: str, kind: type[Exception] = InvalidInput) -> None:
        with pytest.raises(kind, match=where):
            decide(made("linear"), tmp_path / "in", tmp_path / "out", contexts=looked_up)

    changed(fresh(), "scale", None)
    fails(r"b\.parquet, row group 0, rows 0 to 9: contexts cannot be made: KeyError.*scale")
    changed(fresh(), "scale", pa.array(["1"] * 40))
    fails(r"b\.parquet, row group 0, rows 0 to 9: contexts cannot be made")
    changed(fresh(), "scale", pa.array([1.0] * 25 + [np.nan] + [1.0] * 14))
    fails(r"b\.parquet, row group 2, rows 20 to 29: .*", InvalidContexts)
    changed(fresh(), "id", pa.array([None if i == 35 else f"{i}" for i in range(40)]))
    fails(r"b\.parquet, row group 3, rows 30 to 39: every decision needs an id")
    changed(fresh(), "id", pa.array(range(40)))
    fails(r"'id' must have one type in all files; it is string in .*a\.parquet, and int64 in .*b\.parquet")
    for cut in (100, -30):
        path = fresh() / "b.parquet"
        path.write_bytes(path.read_bytes()[:cut])
        fails(r"b\.parquet cannot be read as Parquet")


def test_folders_of_partitions_are_read(tmp_path: Path) -> None:
    rows = {"2026-01-02": ["a", "b"], "2026-01-10": ["c"], "a%2Fb": ["d"]}
    for day, ids in rows.items():
        (tmp_path / "in" / f"date={day}").mkdir(parents=True)
        table = pa.table({"id": ids, "contexts": [[1.0] * DIM * 2] * len(ids)})
        parquet.write_table(table, tmp_path / "in" / f"date={day}" / "1.parquet")
    (tmp_path / "in" / "other").mkdir()
    (tmp_path / "in" / "other" / "no.parquet").touch()
    days = list[str]()
    decide(
        made("linear"),
        tmp_path / "in",
        tmp_path / "out",
        contexts=lambda batch: days.extend(batch.column("date").to_pylist()) or listed_contexts(DIM, batch),
    )
    assert decided(tmp_path / "out").column("id").to_pylist() == ["a", "b", "c", "d"]
    assert days[-4:] == ["2026-01-02", "2026-01-02", "2026-01-10", "a/b"]


def test_nothing_to_learn_says_what_became_of_the_rewards(tmp_path: Path) -> None:
    written(tmp_path / "in", 20)
    policy = made("linear")
    decide(policy, tmp_path / "in", tmp_path / "out")
    write_rewards(tmp_path / "r.parquet", ["x", "y", "2-3"], [1.0, 1.0, np.nan])
    with pytest.raises(NothingToLearn, match=r"3 rewards, 1 invalid, 2 unknown.*_aside-.*\.parquet"):
        update(policy, tmp_path / "out", tmp_path / "r.parquet")


def test_forged_files_of_a_night_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "in", 20)
    policy = made("linear")
    decide(policy, tmp_path / "in", tmp_path / "out")
    write_rewards(tmp_path / "r.parquet", ["2-3"], [1.0])
    update(policy, tmp_path / "out", tmp_path / "r.parquet")
    write_rewards(tmp_path / "r.parquet", ["2-4"], [1.0])
    before = policy.fingerprint()
    (updated,) = (tmp_path / "out").glob("_update-*")
    for path, names in (
        (tmp_path / "out" / "_campaign.json", ["version", "rounds", "dim"]),
        (updated, ["home", "base"]),
    ):
        whole = path.read_text()
        for forged in ("", "[]", "null", *(json.dumps(json.loads(whole) | {name: [None]}) for name in names)):
            path.write_text(forged)
            with pytest.raises(InvalidInput, match="damaged"):
                update(policy, tmp_path / "out", tmp_path / "r.parquet")
        path.write_text(whole)
    path = tmp_path / "out" / "_campaign.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rounds": 2**62, "block": 1}))
    with pytest.raises(InvalidInput, match="block 1 is missing"):
        update(policy, tmp_path / "out", tmp_path / "r.parquet")
    assert policy.fingerprint() == before
