"""Records of a comparison: resumed by the engine, packed, merged, and never mixed."""

import gzip
import json
import re

import pytest

from comparison_records import record
from rarely import InvalidInput
from rarely.runs.files import read_json, sealed_text
from rarely_lab.compare import Comparison, MixedRecords, compare, merge, read_records
from rarely_lab.compare.runs import Store
from rarely_lab.engine.cell import LocalExecutor, run_cells
from rarely_lab.engine.record import pack

ASKED = Comparison(["needle"], ["linucb"], [3, None], seeds=2, rounds=20)


def ids(found):
    return [one.id for one in found.records]


@pytest.fixture
def played(tmp_path):
    assert compare(ASKED, tmp_path / "out") == []
    return tmp_path / "out"


def test_a_run_resumes_with_what_is_missing_or_was_edited(played):
    missing, edited = (Store(played).path(f"needle/linucb/B3/seed{seed}") for seed in (0, 1))
    before = {path: read_json(path)["regret"] for path in (missing, edited)}
    missing.unlink()
    edited.write_bytes(gzip.compress(json.dumps(read_json(edited) | {"regret": 1.0}).encode()))
    assert "changed after it was written" in str(read_records(played).refused[0])
    told = []

    def started(todo, refused):
        told.append((sorted(cell.id for cell in todo), len(refused)))

    run_cells(ASKED.plan()[0], Store(played), LocalExecutor(None), started=started)
    assert told == [(["needle/linucb/B3/seed0", "needle/linucb/B3/seed1"], 1)]
    assert {path: read_json(path)["regret"] for path in before} == before
    assert edited.with_name(edited.name + ".refused").exists()


def test_two_processes_give_the_records_of_one(played, tmp_path):
    assert compare(ASKED, tmp_path / "two", jobs=2) == []
    assert [one.regret for one in read_records(tmp_path / "two").records] == [
        one.regret for one in read_records(played).records
    ]


@pytest.mark.parametrize("policy", ["linucb", "uniform"])
def test_another_length_is_another_question(played, policy):
    """Also of a policy that has no record yet, and before it is played."""
    before = sorted(played.rglob("*"))
    with pytest.raises(MixedRecords, match=r"rounds is 20 on record|two problems called needle.*T = 20 and 30"):
        compare(Comparison(["needle"], [policy], [3], seeds=1, rounds=30), played)
    assert sorted(played.rglob("*")) == before
    with pytest.raises(MixedRecords, match=r"two problems called needle.*T = 20 and 30"):
        merge([_folder(played.parent / "b", record("needle", "x", 5, 0, rounds=30))], played)


def test_what_fails_is_told_and_stops_nothing_else(tmp_path, monkeypatch):
    def broken(task):
        raise RuntimeError("no model today")

    from rarely_lab.compare import policies

    monkeypatch.setitem(policies.POLICIES, "broken", policies.Entry("broken", broken, "broken"))
    asked = Comparison(["needle"], ["broken", "uniform"], [3], seeds=1, rounds=20)
    failures = compare(asked, tmp_path)
    (failure,) = failures
    assert failure.id == "needle/broken/B3/seed0"
    assert re.fullmatch(r"RuntimeError: no model today \(test_records.py, line \d+\)", failure.error)
    assert ids(read_records(tmp_path)) == ["needle/uniform/B3/seed0"]


# Merging


def _folder(path, *records):
    for one in records:
        Store(path).write(one)
    return path


def test_folders_and_packed_files_are_merged(tmp_path):
    a = _folder(tmp_path / "a", record(policy="a", seed=0), record(policy="a", seed=1))
    b = _folder(tmp_path / "b", record(policy="b", seed=0), record(policy="a", seed=1))
    pack(read_records(b).records, tmp_path / "b.jsonl.gz")
    told = []
    found = merge([a, tmp_path / "b.jsonl.gz"], tmp_path / "out", lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert ids(found) == ids(read_records(tmp_path / "out")) == ["p/a/B5/seed0", "p/a/B5/seed1", "p/b/B5/seed0"]
    assert ids(merge([a], tmp_path / "out")) == ids(found)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (record(regret=11), r"two records of p/a/B5/seed0 differ \(regret 10 and 11\)"),
        (record(policy="b", digest="e"), "played on other rounds"),
        (record(seed=1, code="e"), r"two versions of the code \(rarely's\)"),
        (record(seed=1, text="e"), r"two versions of the code \(the policy's own\)"),
        (record(policy="b", rounds=60), "two problems called p"),
        (record(regret=11, rounds=60), r"two problems called p, whose T differs \(T = 50 and 60\)"),
        (record(regret=11, code="e"), r"records of a made by two versions of the code \(rarely's\)"),
        (record(regret=11, text="e"), r"records of a made by two versions of the code \(the policy's own\)"),
        (record(text="e"), r"records of a made by two versions of the code \(the policy's own\)"),
    ],
)
def test_records_that_do_not_compare_are_not_merged_and_nothing_is_copied(tmp_path, other, says):
    a, b = _folder(tmp_path / "a", record()), _folder(tmp_path / "b", record(policy="z"), other)
    with pytest.raises(MixedRecords, match=says):
        merge([a, b], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_packed_file_may_have_any_name_and_a_folder_too(tmp_path):
    pack([record(seed=0), record(seed=1)], tmp_path / "packed")
    assert len(read_records(tmp_path / "packed").records) == 2
    assert len(merge([tmp_path / "packed"], tmp_path / "out.gz").records) == 2
    assert len(read_records(tmp_path / "out.gz").records) == 2


def test_packed_files_of_two_users_own_policies_are_read_from_one_folder(tmp_path):
    pack([record(policy="mine", code="rarely 0.3")], tmp_path / "1.gz")
    pack([record(policy="yours", code="rarely 0.4")], tmp_path / "2.gz")
    assert [one.policy for one in read_records(tmp_path).records] == ["mine", "yours"]


def test_a_damaged_line_of_a_packed_file_is_refused_alone(tmp_path):
    lines = [sealed_text(record(seed=seed).data) for seed in (0, 1)]
    lines += [json.dumps(json.loads(sealed_text(record(seed=2).data)) | {"regret": 1.0}), "{", "[]"]
    (tmp_path / "p.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    found = merge([tmp_path / "p.gz"], tmp_path / "out")
    assert len(found.records) == 2
    assert [file.path.name for file in found.refused] == ["line 3", "line 4", "line 5"]


@pytest.mark.parametrize(("old", "new"), [("neuralucb", "default"), ("neuralucb@fixed", "default@fixed")])
def test_the_default_of_records_of_0_3_has_its_name_of_today(old, new, tmp_path):
    others = [record(policy="neuralucb-uclaml"), record(policy="linucb@fixed")]
    pack([record(policy=old), *others], tmp_path / "p.gz")
    first, *rest = merge([tmp_path / "p.gz"], tmp_path / "out").records
    assert (first.policy, first.id) == (new, f"p/{new}/B5/seed0")
    assert first.data["identity"] == record(policy=new).data["identity"]
    assert {one.policy for one in rest} == {one.policy for one in others}
    assert ids(read_records(tmp_path / "out"))[0] == first.id


@pytest.mark.parametrize("name", ["nowhere", "text"])
def test_what_is_no_folder_of_records_is_refused(tmp_path, name):
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    with pytest.raises((MixedRecords, InvalidInput), match=name):
        merge([tmp_path / name], tmp_path / "out")


def test_a_pack_that_is_too_large_is_refused_and_not_cut(tmp_path, monkeypatch):
    pack([record(seed=0), record(seed=1)], tmp_path / "p.gz")
    size = len(gzip.decompress((tmp_path / "p.gz").read_bytes()).decode())
    monkeypatch.setattr("rarely_lab.engine.record.LARGEST_FILE", size)
    assert len(read_records(tmp_path / "p.gz").records) == 2
    monkeypatch.setattr("rarely_lab.engine.record.LARGEST_FILE", size - 1)
    with pytest.raises(InvalidInput, match=f"holds more than {size - 1} characters"):
        read_records(tmp_path / "p.gz")


def test_a_packed_record_cannot_lead_out_of_the_folder(tmp_path):
    line = sealed_text(record().data | {"id": "../../x"})
    (tmp_path / "p.gz").write_bytes(gzip.compress(line.encode()))
    (refusal,) = merge([tmp_path / "p.gz"], tmp_path / "out").refused
    assert "its id must be names" in refusal.reason
    assert not (tmp_path / "out").exists()
