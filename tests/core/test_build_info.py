"""What is said about the loops that decide and train: by the package, and by every update of a policy."""

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import rarely
from rarely._core import native
from rarely._core.native import build_info as module
from worlds import MAKERS, contexts, play, small

STREAM = contexts(seed=5)


def test_it_names_versions_form_and_threads():
    info = rarely.build_info()
    assert (info.rarely, info.numpy) == (rarely.__version__, np.__version__)
    assert (info.form, info.missing) == (native.form(), native.missing())
    assert (info.threads, info.cores) == (native.threads(), native._cores())
    assert info.build == native.build()
    assert info.blas.name
    assert info.blas.threads is None or info.blas.threads >= 1


def test_it_is_json_and_text():
    info = rarely.build_info()
    assert json.loads(json.dumps(info.describe())) == info.describe()
    assert f"form: {info.form}\n" in str(info)


def said(code, **environment):
    command = [sys.executable, "-W", "ignore", "-c", f"import rarely; info = rarely.build_info(); {code}"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def test_what_is_turned_off_is_said_with_the_way_to_turn_it_on():
    lines = said("print(info.form); print(info.missing); print(info.variables['RARELY_COMPILED'])", RARELY_COMPILED="0")
    assert lines.splitlines() == ["numpy", native._OFF, "0"]


@pytest.mark.skipif("openblas" not in module.blas().name, reason="NumPy's BLAS is not OpenBLAS")
@pytest.mark.parametrize("threads", [1, 2])
def test_the_threads_of_openblas_are_its_own_answer(threads):
    if native._cores() < threads:
        pytest.skip(f"this process may use {native._cores()} core, and OpenBLAS takes no more threads than that")
    assert said("print(info.blas.threads, info.threads)", OPENBLAS_NUM_THREADS=str(threads)) == f"{threads} {threads}\n"


def test_another_blas_is_named_without_threads(monkeypatch):
    monkeypatch.setattr(module, "_libraries", lambda: iter([ctypes.CDLL(None)] if os.name == "posix" else []))
    monkeypatch.setattr(module, "_PREFIXES", ("no_blas_",))
    monkeypatch.setattr(np, "show_config", lambda mode: {"Build Dependencies": {"blas": {"name": "accelerate"}}})
    assert module.blas() == module.Blas("accelerate", "unknown", "", None)


def test_an_old_processor_is_the_reason_for_the_slowest_form(monkeypatch):
    monkeypatch.setattr(native, "form", lambda: "sse2")
    assert "does not offer AVX2" in rarely.build_info().missing
    monkeypatch.setattr(native, "form", lambda: "avx2")
    assert rarely.build_info().missing == native.missing()


@pytest.mark.parametrize(
    ("name", "loops"),
    [("paper", native.form()), ("tuned", native.form()), ("code", "numpy"), ("deep", "numpy"), ("linear", "")],
)
def test_an_update_says_which_loops_trained(name, loops):
    policy = MAKERS[name]()
    play(policy, STREAM[:12])
    assert policy.updates
    assert {update.loops for update in policy.updates} == {loops}


def test_a_log_trains_version_0_and_says_by_which_loops():
    rows = contexts(seed=2, arms=1)[:, 0]
    policy = rarely.BatchNeuralUCB.from_log(rows, rows.sum(axis=1), schedule=rarely.FixedGrid(9, 3), hidden=8, seed=0)
    assert policy.updates[0].loops == native.form()


def test_an_update_that_trains_nothing_names_no_loops():
    policy = small(rarely.EveryRound())
    policy.select(STREAM[0])
    with pytest.warns(rarely.NothingToLearnWarning):
        assert policy.update().loops == ""


def test_the_loops_are_saved_and_no_part_of_the_fingerprint(tmp_path):
    policy = small()
    play(policy, STREAM[:12])
    before = policy.fingerprint()
    policy.save(tmp_path / "policy.rarely")
    assert rarely.load(tmp_path / "policy.rarely").updates == policy.updates
    other = tuple(replace(update, loops="another") for update in policy.updates)
    policy._state = replace(policy._state, updates=other)
    assert policy.fingerprint() == before
    policy.save(tmp_path / "other.rarely")
    again = rarely.load(tmp_path / "other.rarely")
    assert again.fingerprint() == before
    assert {update.loops for update in again.updates} == {"another"}
    policy._state = replace(policy._state, updates=(replace(other[0], beta=9.0), *other[1:]))
    assert policy.fingerprint() != before
