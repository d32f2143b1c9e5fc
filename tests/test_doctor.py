"""What `rarely doctor` finds, line by line."""

import hashlib
import json
import os
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer

import rarely
from rarely import _doctor as doctor
from rarely._cli.doctor import doctor_command
from rarely._core import native
from rarely._core.native.build_info import Blas
from rarely.worlds.datasets import DATASETS

INFO = replace(
    rarely.build_info(),
    form="avx2",
    missing="",
    threads=2,
    cores=2,
    blas=Blas("scipy-openblas", "0.3.30", "Haswell", 2),
    build=native.build() | {"compiler": "gcc 12"},
    variables={},
)
WHY = "no compiler found. Install the package again, with GCC or Clang on the PATH."
NUMPY = replace(INFO, form="numpy", missing=WHY)


def wishing(info, wish):
    return replace(info, variables={"RARELY_COMPILED": wish})


def test_every_topic_has_a_line(tmp_path):
    findings = list(doctor.examine(INFO, tmp_path))
    topics = [finding.topic for finding in findings]
    assert len(set(topics)) == len(topics)
    expected = {"rarely", "machine", "loops", "BLAS", "threads", "load", "data", *DATASETS, "SQLite", "disk"}
    assert set(topics) == expected | set(doctor._optional_packages())
    assert all(finding.status in ("ok", "note", "problem") and finding.says for finding in findings)
    assert all(finding.advice for finding in findings if finding.status != "ok")


@pytest.mark.parametrize(
    ("info", "status", "says", "advice"),
    [
        (INFO, "ok", "compiled loops (avx2), built by gcc 12", ""),
        (replace(INFO, form="sse2", missing="no AVX2 here"), "note", "compiled loops (sse2)", "no AVX2 here"),
        (NUMPY, "note", "NumPy, several times slower", WHY),
        (wishing(NUMPY, "0"), "note", "NumPy", WHY),
        (wishing(INFO, "1"), "ok", "compiled loops (avx2)", ""),
        (wishing(NUMPY, "1"), "problem", "RARELY_COMPILED=1, but there are no compiled loops", WHY),
        (wishing(INFO, "yes"), "problem", "RARELY_COMPILED is 'yes'", "Set it to 0 or 1, or unset it."),
    ],
)
def test_the_loops_are_judged_by_what_was_asked_for(info, status, says, advice):
    found = doctor._loops(info)
    assert (found.status, found.advice) == (status, advice)
    assert says in found.says


@pytest.mark.parametrize(
    ("threads", "blas", "status"), [(2, 2, "ok"), (2, None, "ok"), (1, 4, "note"), (4, None, "note"), (4, 2, "note")]
)
def test_more_threads_than_cores_are_noted(threads, blas, status):
    first, second = doctor._threads(replace(INFO, threads=threads, blas=replace(INFO.blas, threads=blas)))
    assert (first.status, first.says) == ("ok", "scipy-openblas 0.3.30, Haswell kernels")
    assert second.status == status
    assert ("OPENBLAS_NUM_THREADS=2, or 1" in second.advice) == (status == "note")


def test_threads_of_loops_that_are_not_there_are_not_counted():
    _, found = doctor._threads(replace(INFO, form="numpy", threads=4, blas=replace(INFO.blas, threads=2)))
    assert (found.status, found.says) == ("ok", "BLAS 2, cores 2")


@pytest.mark.skipif(not hasattr(os, "getloadavg"), reason="this system does not tell its load")
@pytest.mark.parametrize(
    ("load", "threads", "status", "advice"),
    [(1.0, 2, "ok", ""), (1.1, 2, "note", "set OPENBLAS_NUM_THREADS=1"), (1.1, 1, "note", "Other work shares")],
)
def test_a_loaded_machine_is_noted(load, threads, status, advice, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    found = doctor._load(replace(INFO, threads=threads, blas=replace(INFO.blas, threads=threads)))
    assert found.status == status
    assert advice in found.advice


def test_a_system_without_load_is_no_matter(monkeypatch):
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert doctor._load(INFO).status == "ok"


def data_findings(monkeypatch, tmp_path, given=""):
    monkeypatch.setenv("RARELY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RARELY_DATA", str(given))
    return {finding.topic: finding for finding in doctor._data()}


def test_data_that_is_missing_can_be_fetched(tmp_path, monkeypatch):
    found = data_findings(monkeypatch, tmp_path)
    assert str(tmp_path / "cache") in found["data"].says
    assert (found["magic"].status, found["magic"].advice[:24]) == ("note", "rarely data magic --fetc")


def test_data_that_was_changed_is_a_problem(tmp_path, monkeypatch):
    (tmp_path / "magic04.data").write_text("1,2,g\n", encoding="utf-8")
    found = data_findings(monkeypatch, tmp_path, tmp_path)
    assert found["magic"].status == "problem"
    assert "is not the original magic04.data" in found["magic"].advice
    assert found["mushroom"].status == "note"


def test_a_data_folder_that_does_not_exist_is_a_problem(tmp_path, monkeypatch):
    assert data_findings(monkeypatch, tmp_path, tmp_path / "nowhere")["data"].status == "problem"


def test_data_that_is_the_original_is_verified(tmp_path, monkeypatch):
    content = b"1,2,g\n3,4,h\n"
    own = replace(DATASETS["magic"], size=len(content), sha256=hashlib.sha256(content).hexdigest())
    (tmp_path / own.file).write_bytes(content)
    monkeypatch.setenv("RARELY_DATA", str(tmp_path))
    assert doctor._dataset(own) == doctor.Finding("magic", "ok", f"verified: {tmp_path / own.file}")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((3, 6, 23), "ok"),
        ((3, 7, 0), "note"),
        ((3, 40, 1), "note"),
        ((3, 44, 5), "note"),
        ((3, 44, 6), "ok"),
        ((3, 45, 6), "note"),
        ((3, 50, 6), "note"),
        ((3, 50, 7), "ok"),
        ((3, 51, 2), "note"),
        ((3, 51, 3), "ok"),
        ((3, 52, 0), "ok"),
    ],
)
def test_versions_of_sqlite_that_lose_writes_are_noted(found, status):
    assert doctor._sqlite(found).status == status


def test_optional_packages_have_a_version_or_a_way_to_install_them(monkeypatch):
    asked = ["numpy>=1.26", "rich>=13; extra == 'lab'", "typer>=0.20; extra == 'lab'", "typer>=0.20; extra == 'serve'"]
    asked += ["pyarrow>=14; extra == 'parquet'", "psycopg[binary]>=3.1; extra == 'postgres'", "ruff>=1; extra == 'dev'"]
    here = {"typer": "0.29.0", "rich": "12.6.0", "psycopg": "3.1rc1"}

    def version(name):
        if name not in here:
            raise PackageNotFoundError(name)
        return here[name]

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "requires", lambda name: asked)
    assert list(doctor._extras()) == [
        doctor.Finding("rich", "note", "12.6.0; rarely is tested with 13 and later", "pip install 'rarely[lab]'"),
        doctor.Finding("typer", "ok", "0.29.0"),
        doctor.Finding("pyarrow", "ok", "not installed; pip install 'rarely[parquet]' adds it"),
        doctor.Finding("psycopg", "ok", "3.1rc1"),
    ]


def test_sources_that_are_not_installed_have_no_optional_packages(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)
    assert list(doctor._extras()) == []


def test_the_disk_is_that_of_the_nearest_folder(tmp_path, monkeypatch):
    assert doctor._disk(tmp_path / "not" / "yet" / "there").status in ("ok", "note")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: doctor.shutil._ntuple_diskusage(1, 1, 2**29))
    assert doctor._disk(tmp_path).status == "note"
    (tmp_path / "file").write_bytes(b"")
    found = doctor._disk(tmp_path / "file")
    assert (found.status, found.says) == ("problem", f"cannot write to {tmp_path / 'file'}: it is a file")


def test_a_folder_that_cannot_be_written_to_is_a_problem(tmp_path, monkeypatch):
    def refused(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refused)
    found = doctor._disk(tmp_path)
    assert (found.status, found.says) == ("problem", f"cannot write to {tmp_path}: Permission denied")


def test_one_problem_is_enough(monkeypatch, capsys):
    fine, bad = doctor.Finding("a", "note", "x", "y"), doctor.Finding("b", "problem", "x", "y")
    for findings in ([fine], [fine, bad]):
        monkeypatch.setattr(doctor, "examine", lambda info, out, found=findings: found)
        with nullcontext() if findings == [fine] else pytest.raises(typer.Exit):
            doctor_command(json=True, out=Path("out"))
        assert json.loads(capsys.readouterr().out)["ok"] is (findings == [fine])
