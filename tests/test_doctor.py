"""What `rarely doctor` finds, line by line."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import typer

import rarely
from rarely._cli import doctor
from rarely._core import native
from rarely._core.native.build_info import Blas

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


def test_every_topic_has_a_line():
    findings = list(doctor.examine(INFO))
    assert [finding.topic for finding in findings] == ["rarely", "machine", "loops", "BLAS", "threads"]
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


def test_one_problem_is_enough(monkeypatch, capsys):
    fine, bad = doctor.Finding("a", "note", "x", "y"), doctor.Finding("b", "problem", "x", "y")
    for findings in ([fine], [fine, bad]):
        monkeypatch.setattr(doctor, "examine", lambda info, found=findings: found)
        with nullcontext() if findings == [fine] else pytest.raises(typer.Exit):
            doctor.doctor_command(json=True)
        assert json.loads(capsys.readouterr().out)["ok"] is (findings == [fine])
