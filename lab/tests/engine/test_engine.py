"""Cells in, records out: the promises of the engine, for whoever uses it."""

import errno
import gzip
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rarely.runs.files import CannotWrite, FolderBusy, digest_of, lock_folder, sealed_text
from rarely_lab.engine.cell import LocalExecutor, Result, play_cell, run_cells
from rarely_lab.engine.record import FORMAT, MixedRecords, identity, read_records
from toy_cells import ToyCell, ToyRecord, store_at, toys

HERE = LocalExecutor(None)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.glob("records/**/*.json.gz"))}


def on_file(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def written(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


@pytest.fixture
def folder(tmp_path):
    assert run_cells(toys(), store_at(tmp_path), HERE) == []
    return tmp_path


@pytest.fixture
def other_code(monkeypatch):
    """Call it, and the code has changed."""
    return lambda: monkeypatch.setattr(ToyRecord, "fingerprint", classmethod(lambda cls, asked: "another"))


def test_a_record_says_what_was_asked_and_which_code_made_it(folder):
    data = on_file(folder / "records" / "plain" / "seed3.json.gz")
    assert data["format"] == FORMAT
    assert (data["kind"], data["id"], data["code"]) == ("toy", "plain/seed3", ToyRecord.fingerprint({}))
    assert data["asked"] == ToyCell(seed=3).describe()
    assert data["identity"] == identity(data["asked"])
    assert (data["value"], data["digest"]) == (3, digest_of(data))


# Resuming


def test_a_second_run_plays_nothing_and_changes_nothing(folder):
    before, started = contents(folder), []
    run_cells(toys(), store_at(folder), HERE, started=lambda todo, refused: started.append(todo))
    assert started == [[]]
    assert contents(folder) == before


def test_what_is_missing_is_played_and_nothing_else(folder):
    before, played = contents(folder), []
    run_cells(toys(6), store_at(folder), HERE, finished=lambda result: played.append(result.id))
    assert played == ["plain/seed4", "plain/seed5"]
    assert before.items() <= contents(folder).items()


def test_a_cell_that_fails_is_told_and_the_others_go_on(tmp_path):
    failures = run_cells([ToyCell("fails"), *toys()], store_at(tmp_path), HERE)
    (failure,) = failures
    assert failure.id == "fails/seed0"
    assert re.fullmatch(r"ValueError: it rained \(toy_cells.py, line \d+\)", failure.error)
    assert len(read_records(tmp_path, ToyRecord).records) == 4


def test_numbers_that_no_report_could_use_fail_their_cell(tmp_path):
    (failure,) = run_cells([ToyCell("nan")], store_at(tmp_path), HERE)
    assert failure.error == "InvalidInput: value of a finished run must be finite; it is, or holds, NaN or ∞."
    assert contents(tmp_path) == {}


# Writing


def test_half_a_record_is_never_seen(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cells(toys(), store_at(tmp_path), HERE)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]
    assert run_cells(toys(), store_at(tmp_path), HERE) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot tell whose file it is")
def test_what_a_killed_run_left_half_written_is_removed(folder):
    path = store_at(folder).path("plain/seed0")
    path.unlink()
    half = path.with_name(".rarely-0123456789abcdef.part")
    half.write_bytes(b"half")
    run_cells(toys(), store_at(folder), HERE)
    assert not half.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no locks that end with their process")
def test_a_folder_has_one_writer(folder):
    with lock_folder(folder), pytest.raises(FolderBusy, match="another run"):
        run_cells(toys(), store_at(folder), HERE)


def test_records_can_be_read_by_others(folder):
    plain = folder / "plain"
    plain.write_text("")
    assert store_at(folder).path("plain/seed0").stat().st_mode == plain.stat().st_mode


def test_a_full_disk_is_named_with_the_path(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match=r"seed0\.json\.gz cannot be written: No space left on device\. Free"):
        run_cells(toys(), store_at(tmp_path), HERE)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a//b", "a\\b", ".", "", "C:x"])
def test_names_of_records_are_no_paths(tmp_path, name):
    with pytest.raises(ValueError, match="its id must be names"):
        store_at(tmp_path).write(ToyRecord.of(name, {}, {}))


# Records that do not belong together


def test_other_settings_are_refused_and_replaced_when_asked(folder):
    before = contents(folder)
    with pytest.raises(MixedRecords, match=r"4 records made by other code.*size is 1 on record, 2 is asked for"):
        run_cells(toys(size=2), store_at(folder), HERE)
    assert contents(folder) == before
    run_cells(toys(size=2), store_at(folder), HERE, replace=True)
    assert {record.asked["size"] for record in read_records(folder, ToyRecord).records} == {2}


def test_other_code_is_refused_and_replaced_when_asked(folder, other_code):
    other_code()
    with pytest.raises(MixedRecords, match="other code"):
        run_cells(toys(), store_at(folder), HERE)
    played = []
    run_cells(toys(), store_at(folder), HERE, replace=True, finished=lambda result: played.append(result.id))
    assert len(played) == 4
    assert {record.data["code"] for record in read_records(folder, ToyRecord).records} == {"another"}


def test_a_mixture_is_refused_before_anything_is_played_or_touched(folder):
    path = store_at(folder).path("plain/seed0")
    path.write_bytes(b"")
    before, started = contents(folder), []
    with pytest.raises(MixedRecords, match="it would hold sizes 1 and 2"):
        run_cells(
            [*toys(1), ToyCell("other", size=2)],
            store_at(folder),
            HERE,
            started=lambda todo, refused: started.append(todo),
        )
    assert (contents(folder), started) == (before, [])


def test_a_mixture_on_file_is_refused(folder):
    store_at(folder).write(play_cell(ToyCell("other", size=2)).record)
    with pytest.raises(MixedRecords, match="it would hold sizes 1 and 2"):
        read_records(folder, ToyRecord)


def test_a_record_of_other_code_is_not_kept(tmp_path):
    def elsewhere(cells):
        for result in HERE(cells):
            yield replace(result, record=ToyRecord(result.record.data | {"code": "another"}))

    failures = run_cells(toys(), store_at(tmp_path), elsewhere)
    assert len(failures) == 4
    assert "another version of the code" in failures[0].error
    assert contents(tmp_path) == {}


# Damage


@pytest.mark.parametrize("edit", [{"value": 9}, {"digest": "0" * 64}, {"code": "y"}, {"more": 1}], ids=str)
def test_an_edited_record_is_refused_alone_and_its_cell_is_played_again(folder, edit):
    path = store_at(folder).path("plain/seed1")
    before = path.read_bytes()
    damaged = written(path, on_file(path) | edit).read_bytes()
    assert "its content differs from its digest" in read_records(folder, ToyRecord).refused[0].reason
    named, played = [], []
    run_cells(
        toys(),
        store_at(folder),
        HERE,
        started=lambda todo, refused: named.extend(refused),
        finished=lambda result: played.append(result.id),
    )
    assert [file.path for file in named] == [path]
    assert played == ["plain/seed1"]
    assert path.read_bytes() == before
    assert path.with_name(path.name + ".refused").read_bytes() == damaged


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"format": 2}, "it must be a toy record of format 1: its kind is 'toy', its format 2"),
        ({"format": True, "kind": "x"}, "it must be a toy record"),
        ({"kind": "comparison"}, "its kind is 'comparison'"),
        ({"kind": None}, "its kind is None"),
    ],
)
def test_a_record_of_another_kind_or_format_is_refused(folder, edit, says):
    path = store_at(folder).path("plain/seed1")
    written(path, json.loads(sealed_text(on_file(path) | edit)))
    (refusal,) = read_records(folder, ToyRecord).refused
    assert says in refusal.reason


def test_a_missing_digest_is_named(folder):
    path = store_at(folder).path("plain/seed1")
    data = on_file(path)
    del data["digest"]
    written(path, data)
    assert "it has no digest" in read_records(folder, ToyRecord).refused[0].reason


def test_a_broken_record_of_another_cell_is_named_and_not_touched(folder):
    path = store_at(folder).path("plain/seed3")
    path.write_bytes(b"")
    started = []
    run_cells(toys(2), store_at(folder), HERE, started=lambda *told: started.append(told))
    ((todo, refused),) = started
    assert (todo, [file.path for file in refused]) == ([], [path])
    assert path.read_bytes() == b""


def test_a_record_in_anothers_place_is_refused(folder):
    path = store_at(folder).path("plain/seed1")
    shutil.copy(path, path.with_name("copy of seed1.json.gz"))
    (refusal,) = read_records(folder, ToyRecord).refused
    assert f"it is the record of plain/seed1, which belongs at {path}" in refusal.reason


def odd_files(path):
    def folder():
        path.mkdir()

    def link():
        path.symlink_to(path.with_name("nowhere"))

    contents = {
        "nothing": b"",
        "text": b"regret: 3",
        "truncated": gzip.compress(b"{}")[:-3],
        "not compressed": b'{"format": 2}',
        "not closed": gzip.compress(b'{"format": 2'),
        "a number": gzip.compress(b"3"),
        "no object": gzip.compress(b"[]"),
        "not UTF-8": gzip.compress(b'{"id": "\xff"}'),
        "deep": gzip.compress(b"[" * 100_000),
        "nested": gzip.compress(b'{"a": ' * 30 + b"1" + b"}" * 30),
        "many digits": gzip.compress(b'{"format": ' + b"9" * 10_000 + b"}"),
        "damaged inside": gzip.compress(bytes(range(256)) * 40)[:200] + b"damage" * 50,
    }
    return {"folder": folder, "link": link} | {name: lambda c=c: path.write_bytes(c) for name, c in contents.items()}


@pytest.mark.parametrize("kind", odd_files(Path()))
def test_a_file_that_is_no_record_costs_its_cell_alone(folder, kind):
    path = store_at(folder).path("plain/seed1")
    for _ in range(2):  # the second time the name for what is put aside is taken
        path.unlink()
        odd_files(path)[kind]()
        found = read_records(folder, ToyRecord)
        assert [file.path for file in found.refused] == [path]
        assert len(found.records) == 3
        assert "\n" not in str(found.refused[0])
        assert run_cells(toys(), store_at(folder), HERE) == []
    assert len(read_records(folder, ToyRecord).records) == 4


def test_a_folder_that_cannot_be_read_is_named(folder, monkeypatch):
    hidden, scandir = folder / "records" / "plain", os.scandir

    def refusing(path):
        if Path(path) == hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert [str(file) for file in read_records(folder, ToyRecord).refused] == [
        f"{hidden}: it cannot be read (permission denied). Allow its reading, or remove the folder."
    ]


def test_a_link_to_a_folder_is_named_and_not_followed(folder):
    hidden = folder / "records" / "plain"
    hidden.rename(folder / "elsewhere")
    hidden.symlink_to(folder / "elsewhere", target_is_directory=True)
    (refusal,) = read_records(folder, ToyRecord).refused
    assert refusal.path == hidden
    assert "a link to a folder" in refusal.reason


def test_a_file_that_unpacks_to_more_than_any_record_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("rarely.runs.files.LARGEST_FILE", 10_000)
    path = tmp_path / "records" / "a.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    assert "it holds more than" in read_records(tmp_path, ToyRecord).refused[0].reason


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_damaged_bytes_are_refused_or_change_nothing(tmp_path, data):
    store_at(tmp_path).write(play_cell(ToyCell(seed=1)).record)
    path = store_at(tmp_path).path("plain/seed1")
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        flipped = whole[at] ^ (1 << data.draw(st.integers(0, 7)))
        path.write_bytes(whole[:at] + bytes([flipped]) + whole[at + 1 :])
    found = read_records(tmp_path, ToyRecord)
    assert len(found.records) + len(found.refused) == 1
    for survivor in found.records:  # gzip's header has bits that mean nothing
        assert digest_of(survivor.data) == digest_of(on_file(path)) == survivor.data["digest"]


def test_results_name_the_cell_and_not_its_data():
    """A table of megabytes must not travel back with every record."""
    assert set(Result.__dataclass_fields__) == {"id", "record", "error"}
