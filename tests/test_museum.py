"""Every file that earlier code wrote can be read, and a policy goes on where it was."""

import csv
import gzip
import io
import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rarely
from rarely import ArmBlocks, Roster
from rarely.core.schedules import schedule_from
from rarely.experiments.store import Store
from rarely.logs.planning_log import Log
from rarely.offpolicy import read_csv, read_parquet

MUSEUM = Path(__file__).parent / "museum"
SNAPSHOTS = sorted(MUSEUM.glob("*/snapshots/*.rarely.gz"))


def note_of(snapshot):
    return json.loads(snapshot.with_name(snapshot.name.replace(".rarely.gz", ".json")).read_text())


def restored(snapshot, folder):
    """The policy of a snapshot, and whether a warning said that held-out errors were dropped."""
    path = folder / "policy.rarely"
    path.write_bytes(gzip.decompress(snapshot.read_bytes()))
    note = note_of(snapshot)
    beta = (lambda t: note["slope"] * t) if "slope" in note else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policy = rarely.load(path, beta=beta)
    # That a form is deprecated says nothing about the file.
    told = [warning for warning in caught if warning.category is not FutureWarning]
    assert all(issubclass(warning.category, rarely.SnapshotWarning) for warning in told)
    return policy, bool(told)


def holds_errors(snapshot):
    """Whether self-tuning had noted errors of held-out rewards, which later code cannot use."""
    with zipfile.ZipFile(io.BytesIO(gzip.decompress(snapshot.read_bytes()))) as bundle:
        if "learner.tuning.errors.npy" not in bundle.namelist():
            return False
        return not np.isnan(np.load(io.BytesIO(bundle.read("learner.tuning.errors.npy")))).all()


def test_some_snapshots_hold_errors_that_cannot_be_used():
    assert {snapshot.parts[-3] for snapshot in SNAPSHOTS if holds_errors(snapshot)} == {"0.1.0-6c762a4"}


def check_next(policy, note):
    """The policy stands where it stood, and decides as it did."""
    assert type(policy).__name__ == note["kind"]
    for name in ("version", "round", "due", "missing"):
        assert getattr(policy, name) == note[name], name
    assert policy.log_det == pytest.approx(note["log_det"], rel=1e-9)
    assert policy.beta == note["beta"]
    decision = policy.select(note["contexts"])
    assert decision.arm.tolist() == note["arms"]
    np.testing.assert_allclose(decision.means, note["means"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(decision.bonuses, note["bonuses"], rtol=1e-9, atol=1e-12)
    if note["probabilities"] is not None:
        np.testing.assert_allclose(decision.probabilities, note["probabilities"], rtol=1e-9, atol=1e-12)
    assert policy.log_det == pytest.approx(note["log_det_after"], rel=1e-9)
    return decision


def test_the_museum_is_there():
    assert len(SNAPSHOTS) >= 70
    assert sum(file.stat().st_size for file in MUSEUM.rglob("*") if file.is_file()) < 600_000


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: f"{path.parts[-3]}/{path.name.split('.')[0]}")
class TestSnapshots:
    def test_it_decides_as_the_saved_policy_did(self, snapshot, tmp_path):
        policy, warned = restored(snapshot, tmp_path)
        check_next(policy, note_of(snapshot))
        assert warned == holds_errors(snapshot)

    def test_it_learns_on(self, snapshot, tmp_path):
        policy, _ = restored(snapshot, tmp_path)
        decision = check_next(policy, note_of(snapshot))
        policy.observe(decision, [0.5, -0.5, 0.25])
        version = policy.version
        if not policy.schedule.spent(version):
            assert policy.update().accepted
            assert policy.version == version + 1
        assert np.isfinite(policy.select(note_of(snapshot)["contexts"]).means).all()

    def test_saved_again_it_is_the_same(self, snapshot, tmp_path):
        policy, _ = restored(snapshot, tmp_path)
        again = tmp_path / "again.rarely"
        policy.save(again)
        slope = note_of(snapshot).get("slope")
        policy = rarely.load(again, beta=(lambda t: slope * t) if slope else None)
        check_next(policy, note_of(snapshot))


@pytest.mark.parametrize("file", sorted(MUSEUM.glob("*/logs/decisions.*")), ids=lambda path: "/".join(path.parts[-3:]))
def test_a_log_of_decisions_is_read_as_it_was(file):
    if file.suffix == ".json":
        return
    if file.suffix == ".parquet":
        pytest.importorskip("pyarrow")
    log = (read_csv if file.suffix == ".csv" else read_parquet)(file)
    for name, values in json.loads(file.with_suffix(".json").read_text()).items():
        np.testing.assert_array_equal(getattr(log, name), np.array(values, np.float64), err_msg=name)


@pytest.mark.parametrize("file", sorted(MUSEUM.glob("*/logs/past.csv")), ids=lambda path: path.parts[-3])
def test_a_table_of_past_rounds_is_read_as_it_was(file):
    log = Log.from_csv(file, arm="treatment", reward="outcome")
    with file.open(encoding="utf-8") as text:
        lines = list(csv.DictReader(text))
    assert log.names == ("age", "income")
    assert log.arm_names == ("a", "b")
    np.testing.assert_array_equal(log.features, [[float(line["age"]), float(line["income"])] for line in lines])
    told = [line for line in lines if line["outcome"]]
    rounds, arms, rewards = log.known()
    assert len(rounds) == len(told) < len(lines)
    assert [log.arm_name(arm) for arm in arms] == [line["treatment"] for line in told]
    assert rewards.tolist() == [float(line["outcome"]) for line in told]


@pytest.mark.parametrize("file", sorted(MUSEUM.glob("*/logs/blocks.json")), ids=lambda path: path.parts[-3])
def test_blocks_and_rosters_are_what_they_were(file):
    described = json.loads(file.read_text())
    blocks = ArmBlocks.from_description(described)
    assert blocks.describe() == described
    described = json.loads(file.with_name("roster.json").read_text())
    roster = Roster.from_description(described)
    assert roster.describe() == described
    assert set(roster.names) == {"red", "blue"}


@pytest.mark.parametrize("folder", sorted(MUSEUM.glob("*/laboratory")), ids=lambda path: path.parts[-2])
def test_the_laboratory_reads_its_records_and_plans(folder):
    records = Store(folder).read()
    assert {record.configuration.kind for record in records} == {"linucb", "fixed", "adaptive"}
    for record in records:
        assert record.rounds == len(record.curve) == 60
        assert record.regret == pytest.approx(record.curve[-1], abs=1e-3)
    plan = json.loads((folder / "plan.json").read_text())
    found = [kinds[kind] for kinds in plan["enough"].values() for kind in kinds]
    schedules = [schedule_from(one["schedule"]) for one in found if one["schedule"] is not None]
    assert schedules
    assert all(schedule.batches <= plan["horizon"] for schedule in schedules)
