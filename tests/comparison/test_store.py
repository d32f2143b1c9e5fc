import gzip
import json

import pytest

from comparison_records import record
from rarely.comparison import Comparison, MixedRecords, compare, merge, read_records
from rarely.comparison.records import Record, check_record
from rarely.comparison.store import is_comparison, pack, path_of, write
from rarely.simulation import folder_lock
from rarely.simulation.folder_lock import FolderBusy, only_here
from rarely.simulation.sealed_json import Malformed, read_json, sealed

ASKED = Comparison(["needle"], ["linucb"], [3, None], seeds=2, rounds=20)


def ids(found):
    return [one.id for one in found.records]


def edit(path, **changes):
    data = read_json(path) | changes
    path.write_bytes(gzip.compress(json.dumps(data).encode()))


@pytest.fixture
def played(tmp_path):
    assert compare(ASKED, tmp_path / "out") == []
    return tmp_path / "out"


def test_a_run_resumes_with_what_is_missing(played):
    path = path_of(played, "needle/linucb/B3/seed1")
    before = {file: file.read_bytes() for file in played.rglob("*.gz")}
    path.unlink()
    told = []
    compare(ASKED, played, planned=lambda cells, todo, *_: told.append((len(cells), [cell.id for cell in todo])))
    assert told == [(4, ["needle/linucb/B3/seed1"])]
    assert read_json(path)["regret"] == json.loads(gzip.decompress(before[path]))["regret"]
    assert len(read_records(played).records) == 4


def test_an_edited_record_costs_its_own_cell_and_is_played_again(played):
    path = path_of(played, "needle/linucb/B3/seed1")
    edit(path, regret=1.0)
    found = read_records(played)
    assert len(found.records) == 3
    assert "changed after it was written" in str(found.refused[0])
    refusals = []
    compare(ASKED, played, planned=lambda cells, todo, skipped, refused: refusals.extend(refused))
    assert len(refusals) == 1
    assert path.with_name(path.name + ".refused").exists()
    assert len(read_records(played).records) == 4


@pytest.mark.parametrize(
    ("zipped", "content"), [(False, b""), (False, b"nonsense"), (True, b"[1]"), (True, b'{"format": 9}')]
)
def test_an_unreadable_record_costs_its_own_cell(played, zipped, content):
    path_of(played, "needle/linucb/B3/seed1").write_bytes(gzip.compress(content) if zipped else content)
    found = read_records(played)
    assert (len(found.records), len(found.refused)) == (3, 1)


def test_records_of_other_code_are_not_mixed_and_replaced_when_asked(played, monkeypatch):
    monkeypatch.setattr("rarely.comparison.store.code_fingerprint", lambda: "other")
    with pytest.raises(MixedRecords, match="made by other code"):
        compare(ASKED, played)
    done = []
    compare(ASKED, played, replace=True, finished=lambda result: done.append(result.cell.id))
    assert len(done) == 4


def test_another_length_is_another_question(played):
    with pytest.raises(MixedRecords):
        compare(Comparison(["needle"], ["linucb"], [3], seeds=1, rounds=30), played)
    with pytest.raises(MixedRecords, match=r"two problems called needle.*T = 20 and 30"):
        merge([_folder(played.parent / "b", record("needle", "x", 5, 0, rounds=30))], played)


@pytest.mark.skipif(folder_lock.fcntl is None, reason="Windows has no locks that end with their process")
def test_one_process_at_a_time_writes_to_a_folder(played):
    with only_here(played), pytest.raises(FolderBusy):
        compare(ASKED, played)


def test_two_processes_give_the_records_of_one(played, tmp_path):
    assert compare(ASKED, tmp_path / "two", jobs=2) == []
    assert [one.regret for one in read_records(tmp_path / "two").records] == [
        one.regret for one in read_records(played).records
    ]


def test_what_fails_is_told_and_stops_nothing_else(tmp_path, monkeypatch):
    def broken(task):
        raise RuntimeError("no model today")

    from rarely.comparison import policies

    monkeypatch.setitem(policies.POLICIES, "broken", policies.Entry("broken", broken, "broken"))
    asked = Comparison(["needle"], ["broken", "uniform"], [3], seeds=1, rounds=20)
    failures = compare(asked, tmp_path)
    assert [(one.cell.id, one.error) for one in failures] == [
        ("needle/broken/B3/seed0", "RuntimeError: no model today")
    ]
    assert ids(read_records(tmp_path)) == ["needle/uniform/B3/seed0"]


# Merging


def _folder(path, *records):
    for one in records:
        write(path, one)
    return path


def test_folders_and_packed_files_are_merged(tmp_path):
    a = _folder(tmp_path / "a", record(policy="a", seed=0), record(policy="a", seed=1))
    b = _folder(tmp_path / "b", record(policy="b", seed=0), record(policy="a", seed=1))
    assert pack(b, tmp_path / "b.jsonl.gz") == 2
    found = merge([a, tmp_path / "b.jsonl.gz"], tmp_path / "out")
    assert ids(found) == ids(read_records(tmp_path / "out")) == ["p/a/B5/seed0", "p/a/B5/seed1", "p/b/B5/seed0"]
    assert ids(merge([a], tmp_path / "out")) == ids(found)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (record(regret=11), r"two records of p/a/B5/seed0 differ \(regret 10 and 11\)"),
        (record(policy="b", digest="e"), "played on other rounds"),
        (record(seed=1, code="e"), "two versions of the code"),
        (record(seed=1, text="e"), "two versions of the code"),
        (record(policy="b", rounds=60), "two problems called p"),
    ],
)
def test_records_that_do_not_compare_are_not_merged_and_nothing_is_copied(tmp_path, other, says):
    a, b = _folder(tmp_path / "a", record()), _folder(tmp_path / "b", record(policy="z"), other)
    with pytest.raises(MixedRecords, match=says):
        merge([a, b], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_line_of_a_packed_file_is_refused_alone(tmp_path):
    lines = [json.dumps(sealed(record(seed=seed).data)) for seed in (0, 1)]
    lines += [json.dumps(sealed(record(seed=2).data) | {"regret": 1.0}), "{", "[]"]
    (tmp_path / "p.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    found = merge([tmp_path / "p.gz"], tmp_path / "out")
    assert len(found.records) == 2
    assert [file.path.name for file in found.refused] == ["line 3", "line 4", "line 5"]


@pytest.mark.parametrize("name", ["nowhere", "text"])
def test_what_is_no_folder_of_records_is_refused(tmp_path, name):
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    with pytest.raises(MixedRecords, match=name):
        merge([tmp_path / name], tmp_path / "out")


def test_a_record_at_another_place_is_refused(tmp_path):
    write(tmp_path, record())
    path_of(tmp_path, "p/a/B5/seed0").rename(path_of(tmp_path, "p/a/B5/seed7"))
    assert "belongs at" in str(read_records(tmp_path).refused[0])


def test_a_folder_of_a_comparison_is_told_from_others(tmp_path):
    assert not is_comparison(tmp_path)
    write(tmp_path, record())
    assert is_comparison(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "x"},
        {"regret": -1.0},
        {"regret": 1e9},
        {"uniform": 1e9},
        {"updates": [1, 2, 3, 4, 5]},
        {"updates": [2, 1]},
        {"covered": [3, 2]},
        {"curve": [[1, 5.0], [50, 4.0]]},
        {"curve": [[1, 5.0]]},
        {"id": "p/../../etc/B5/seed0"},
        {"identity": "x"},
        {"seconds": {}},
        {"environment": {}},
    ],
)
def test_a_record_that_no_run_can_have_left_is_refused(change):
    with pytest.raises(Malformed):
        check_record(record().data | change)


def test_names_of_records_are_no_paths():
    data = record(problem="p").data
    data["asked"]["problem"]["name"] = "../x"
    with pytest.raises(Malformed):
        check_record(Record(data).data)
