"""How the compiled loops are built, found, chosen and missed."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import loops
from effort import MANY
from loops import STRICT, compiler, hook, loaded, rebuild, using
from rarely import FixedGrid, InvalidInput, LinUCB, NotCompiled
from rarely._core import native
from rarely._core.covariance.cholesky import GrowingCholesky
from rarely._core.model.features import Factors, gram
from rarely._core.model.network import Network
from rarely._core.native import linalg, loader
from rarely._core.training.objective import CompiledObjective, Objective

NAMES = ["gcc", "clang", *(f"gcc-{v}" for v in range(9, 17)), *(f"clang-{v}" for v in range(14, 24))]
FOUND = {os.path.realpath(path): name for name in reversed(NAMES) if (path := shutil.which(name))}
COMPILERS = [*FOUND.values()][::-1] or ["none"]
"""All that are installed, each by one name."""
EXPORTED = (
    "descend",
    "curvature",
    "cross",
    "solve",
    "step",
    "kernel",
    "regress",
    "highest",
    "factor",
    "invert",
    "form",
    "use_form",
    "sources",
)
needs_compiled = pytest.mark.skipif(not native.available(), reason=f"no compiled loops: {native.missing()}")


def objectives(n=37, half=11, d=5, dtype=np.float64, depth=2):
    rng, net = np.random.default_rng(5), Network(d, 2 * half, depth)
    data = (net, net.initial_weights(rng), rng.normal(size=(n, d)), rng.normal(size=n), 0.1, dtype)
    return CompiledObjective(*data), Objective(*data)


def features(rng, count, widths=((60, 20), (1, 60))):
    inputs, signals = (tuple(rng.normal(size=(count, pair[side])) for pair in widths) for side in (1, 0))
    return Factors(inputs, signals)


def assert_trains_and_scores():
    """As NumPy does."""
    for dtype, close in ((np.float32, 2e-4), (np.float64, 1e-11)):
        for depth in (2, 3):
            fused, plain = objectives(dtype=dtype, depth=depth)
            step = 0.5 / (plain.top_curvature(None)[0] + plain.ridge)
            ours, theirs = (o.descend(o.initial, step, 9, np.inf)[0] for o in (fused, plain))
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=close, atol=close)
    rng = np.random.default_rng(1)
    for count in (3, 11, 40):
        old, fresh = features(rng, 150), features(rng, count)
        np.testing.assert_allclose(gram(old, fresh), old.vectors() @ fresh.vectors().T, rtol=1e-10, atol=1e-10)


def run(code, **environment):
    """What a fresh Python says."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


USE = "from rarely import LinUCB, FixedGrid; LinUCB(3, FixedGrid(9, 3)).select([[1.0, 0, 0], [0, 1.0, 0]])\n"
ASK = "from rarely._core import native; print(native.available(), native.form(), native.missing())"


def test_it_can_be_turned_off():
    said = run(USE + ASK, RARELY_COMPILED="0").stdout
    assert said.startswith("False numpy RARELY_COMPILED=0 turns the compiled loops off")


@pytest.fixture
def wish(monkeypatch):
    """Another RARELY_COMPILED, as if nothing had been loaded yet; perhaps without a library."""

    def wished(value, library=None):
        monkeypatch.setenv("RARELY_COMPILED", value)
        if library is not None:
            monkeypatch.setattr(loader, "LIBRARY", library)
        loops.forget()

    yield wished
    monkeypatch.undo()
    loops.forget()


def use():
    LinUCB(3, FixedGrid(9, 3)).select([[1.0, 0, 0], [0, 1.0, 0]])


def test_without_it_numpy_decides(wish):
    wish("", Path("nowhere.so"))
    use()
    assert (native.available(), native.form()) == (False, "numpy")
    said = native.missing()
    assert "The compiled loops were not built: nowhere.so is missing" in said or "was built without" in said


def test_a_missing_form_is_an_error_where_it_is_asked_for(wish):
    wish("1", Path("nowhere.so"))
    with pytest.raises(NotCompiled, match="RARELY_COMPILED=1 asks for the compiled loops, and they are missing"):
        use()


def test_the_advice_fits_the_installation(folder, monkeypatch):
    monkeypatch.setattr(loader, "SOURCE_TREE", folder)
    assert "(pip install --force-reinstall --no-cache-dir --no-deps rarely)" in native.missing()
    (folder / "hatch_build.py").touch()
    loops.forget()
    assert f"(pip install -e . in {folder})" in native.missing()


def test_asking_for_it_is_no_use_of_it(wish):
    wish("1", Path("nowhere.so"))
    assert (native.available(), native.form()) == (False, "numpy")


def test_a_wish_that_is_none_is_refused(wish):
    wish("yes")
    with pytest.raises(InvalidInput, match="RARELY_COMPILED must be 0, 1 or unset; got 'yes'"):
        use()


@needs_compiled
def test_a_present_form_is_used_where_it_is_asked_for(wish):
    form = native.form()
    wish("1")
    use()
    assert (native.available(), native.form()) == (True, form)


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("0", None), ("many", None), ("²", None)])
def test_threads_are_those_of_blas(given, threads, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert native.threads.__wrapped__() == (threads or native._cores())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the package looks for its library: nothing is there yet."""
    monkeypatch.setattr(loader, "LIBRARY", tmp_path / "_native.so")
    monkeypatch.setattr(loader, "RECORD", tmp_path / "_native_build.json")
    monkeypatch.setattr(native, "_wish", lambda: "")
    loops.forget()
    yield tmp_path
    monkeypatch.undo()
    loops.forget()


def test_without_a_library_the_reason_is_the_builds(folder):
    (folder / "_native_build.json").write_text(json.dumps({"failure": "no compiler found (looked for $CC, cc)"}))
    assert "no compiler found (looked for $CC, cc)" in native.missing()
    assert native.build()["failure"] == "no compiler found (looked for $CC, cc)"
    assert not native.available()
    assert native.form() == "numpy"


@pytest.mark.parametrize("record", ["", "{", "[]", "null"])
def test_a_record_that_cannot_be_read_is_none(folder, record):
    (folder / "_native_build.json").write_text(record)
    assert "is missing" in native.missing()
    assert not native.build()["compiler"]


HEADERS = {
    "riscv": b"\x7fELF" + bytes(14) + b"\xf3\x00",
    "mac": b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01",
    "windows": b"MZ" + bytes(58) + b"\x40\x00\x00\x00" + b"PE\x00\x00\x64\x86",
    "text": b"int main;",
    "empty": b"",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the loader is Linux's")
@pytest.mark.parametrize("kind", HEADERS)
def test_a_damaged_library_or_one_of_another_system_is_not_used(kind, folder):
    (folder / "_native.so").write_bytes(HEADERS[kind])
    assert "cannot be loaded" in native.missing()
    assert not native.build()["stale"]
    with pytest.warns(RuntimeWarning, match="NumPy takes the place of the compiled loops"):
        assert not native.in_use()


def test_the_build_and_the_package_take_the_same_checksum():
    assert hook().checksum(loops.SOURCES) == loader.checksum()


def test_line_ends_do_not_make_a_library_stale(folder):
    (folder / "x.c").write_bytes(b"int x;\r\nint y;\r\n")
    first = hook().checksum(folder), loader.checksum()
    (folder / "x.c").write_bytes(b"int x;\nint y;\n")
    assert first == (hook().checksum(folder), loader.checksum())


def stub(folder, names):
    """A library with these functions, none of which does anything."""
    (folder / "stub.c").write_text("".join(f"unsigned rarely_{name}(void) {{ return 1; }}\n" for name in names))
    subprocess.run([compiler(), "-shared", "-fPIC", folder / "stub.c", "-o", folder / "_native.so"], check=True)


@pytest.mark.parametrize("names", [EXPORTED, EXPORTED[:-1], ()])
def test_a_library_of_other_sources_is_not_called(names, folder):
    stub(folder, names)
    assert "built from other sources" in native.missing()
    assert native.build()["stale"]
    with pytest.warns(RuntimeWarning, match="Install the package again"):
        assert not native.in_use()


def test_a_library_of_these_sources_is_called(folder, monkeypatch):
    stub(folder, EXPORTED)
    monkeypatch.setattr(loader, "checksum", lambda: 1)
    assert native.available()
    assert not native.missing()
    assert not native.build()["stale"]


SHORTAGE = """
#undef aligned_alloc
#undef pthread_create
#include <stdlib.h>
#include <pthread.h>
static int memory = 1, threads = 1;
void *maybe_memory(size_t boundary, size_t bytes) { return memory ? aligned_alloc(boundary, bytes) : 0; }
int maybe_thread(pthread_t *id, const pthread_attr_t *attributes, void *(*work)(void *), void *argument) {
    return threads ? pthread_create(id, attributes, work, argument) : 11;
}
__attribute__((visibility("default"))) void limit(int more_memory, int more_threads) {
    memory = more_memory, threads = more_threads;
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of each compiler's library, in which memory and threads may be made to end; compiled once."""
    # In an eighth of the time of -O3, at which the library was built that every other test uses. What a compiler says
    # only when it optimises is seen in the drivers (`make test-extras`), and here with EXAMPLES=100 or other compilers.
    flags = [*STRICT, "-Daligned_alloc=maybe_memory", "-Dpthread_create=maybe_thread"]

    @cache
    def of(command):
        folder = tmp_path_factory.mktemp("built")
        level = "-Og" if MANY or command != COMPILERS[0] else "-O0"
        rebuild(folder, [level, *flags], command, SHORTAGE)
        return folder

    return of


def test_what_there_is_no_memory_or_no_thread_for(built, monkeypatch):
    monkeypatch.setattr(linalg, "threads", lambda: 3)
    monkeypatch.setattr("rarely._core.training.objective.threads", lambda: 3)
    command = compiler()
    with loaded(built(FOUND.get(os.path.realpath(shutil.which(command)), command))):
        limit = native.library().limit
        try:
            limit(1, 0)
            assert_the_caller_does_everything()
            limit(0, 1)
            assert_it_says_that_there_is_no_memory()
        finally:
            limit(1, 1)


def assert_the_caller_does_everything():
    fused, plain = objectives(n=501, half=50, d=20)
    ours, theirs = (o.descend(o.initial, 1e-4, 5, np.inf)[0] for o in (fused, plain))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-11, atol=1e-11)
    rng = np.random.default_rng(0)
    old, fresh = features(rng, 500), features(rng, 100)
    np.testing.assert_allclose(gram(old, fresh), old.vectors() @ fresh.vectors().T, rtol=1e-10, atol=1e-10)


def assert_it_says_that_there_is_no_memory():
    fused, _ = objectives(n=5, half=2, d=2)
    before = [w.copy() for w in fused.initial]
    for fails in (lambda: fused.loss(fused.initial), lambda: fused.curvature_times(fused.initial)):
        with pytest.raises(MemoryError, match="could not allocate"):
            fails()
    for a, b in zip(before, fused.initial, strict=True):
        np.testing.assert_array_equal(a, b)
    factor, _ = GrowingCholesky.of(np.eye(20))
    if linalg.compiled(40):
        with pytest.raises(MemoryError, match="could not allocate"):
            factor.solve(np.ones((20, 40)), 20)


@pytest.mark.parametrize("form", loops.FORMS.get(loops.MACHINE, ()))
@needs_compiled
def test_a_form_is_named(form):
    with using(form):
        assert native.form() == form


@needs_compiled
def test_a_form_that_the_processor_does_not_have_is_refused():
    before = native.library().rarely_form()
    assert native.library().rarely_use_form(b"abacus")
    assert native.library().rarely_form() == before


@pytest.mark.parametrize("form", ["sse2", "neon"])
def test_where_blas_is_faster_it_scores(form, monkeypatch):
    factor, _ = GrowingCholesky.of(np.eye(300))
    monkeypatch.setattr(linalg, "in_use", lambda: True)
    monkeypatch.setattr(linalg, "form", lambda: form)
    monkeypatch.setattr(linalg, "library", lambda: pytest.fail("the compiled loops were called"))
    rng, most = np.random.default_rng(0), linalg.MAX_CANDIDATES[form]
    old, fresh = features(rng, 300), features(rng, most + 1)
    np.testing.assert_allclose(gram(old, fresh), old.vectors() @ fresh.vectors().T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(factor.solve(np.ones((300, most + 1)), 300), 1.0)


@pytest.mark.parametrize("command", [COMPILERS[0], *(pytest.param(c, marks=pytest.mark.slow) for c in COMPILERS[1:])])
def test_every_compiler_makes_the_same_of_them_without_a_warning(command, built):
    if command == "none":
        pytest.skip("the sources are not compiled: neither GCC nor Clang is installed")
    with loaded(built(command)):
        for form in loops.FORMS[loops.MACHINE]:
            if not native.library().rarely_use_form(form.encode()):
                native.form.cache_clear()
                assert_trains_and_scores()


@needs_compiled
@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm, which lists a library's symbols")
def test_only_names_with_a_prefix_are_exported():
    said = subprocess.run(["nm", "-D", "--defined-only", loader.LIBRARY], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in said.stdout.splitlines() if " T " in line or " t " in line}
    assert names == {f"rarely_{name}" for name in EXPORTED}


@pytest.fixture
def no_compilers(monkeypatch, tmp_path):
    """An environment in which none is found, and no wish is expressed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "RARELY_CC", "RARELY_TARGET", "RARELY_COMPILED", "ARCHFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


MAKES_A_FILE = 'for last; do :; done; [ "$1" = --version ] && echo fine 1.0 || : > "$last"'


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(os.name == "nt", reason="the stand-ins for compilers are shell scripts")
class TestBuild:
    def test_without_a_compiler_it_says_what_it_looked_for(self, no_compilers):
        record = hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert record["failure"] == "no compiler found (looked for $CC, cc, gcc, clang)"

    def test_a_compiler_that_fails_is_quoted(self, no_compilers):
        program(no_compilers, "gcc", "echo 'x.c:1: error: no such thing' >&2; exit 1")
        record = hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert record["failure"] == "gcc failed: x.c:1: error: no such thing"

    def test_the_next_compiler_is_tried(self, no_compilers, monkeypatch):
        monkeypatch.setenv("CC", "nowhere-cc -m64")
        program(no_compilers, "cc", "exit 1")
        program(no_compilers, "clang", MAKES_A_FILE)
        record = hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert (record["failure"], record["compiler"]) == ("", "fine 1.0")
        assert record["sources"] == loader.checksum()

    def test_its_paths_may_be_relative(self, no_compilers, monkeypatch):
        monkeypatch.chdir(no_compilers)
        program(no_compilers, "cc", MAKES_A_FILE)
        assert hook().build_library(Path("."), Path("x.so"), "linux_x86_64")["failure"] == ""
        assert (no_compilers / "x.so").exists()

    def test_one_compiler_by_two_names_is_tried_once(self, no_compilers):
        program(no_compilers, "gcc", "exit 1")
        (no_compilers / "cc").symlink_to(no_compilers / "gcc")
        record = hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert record["failure"].count("failed") == 1

    def test_the_chosen_compiler_alone_is_tried(self, no_compilers, monkeypatch):
        program(no_compilers, "gcc", "exit 0")
        monkeypatch.setenv("RARELY_CC", "nowhere-cc")
        record = hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert record["failure"].startswith("nowhere-cc failed: ")

    def test_it_can_be_left_out(self, no_compilers, monkeypatch):
        monkeypatch.setenv("RARELY_COMPILED", "0")
        record = hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert record["failure"] == "RARELY_COMPILED=0 when the package was built"

    def test_an_old_library_does_not_outlive_a_failed_build(self, no_compilers):
        (no_compilers / "x.so").write_text("old")
        hook().build_library(loops.SOURCES, no_compilers / "x.so", "linux_x86_64")
        assert not (no_compilers / "x.so").exists()


def test_each_platform_has_its_file():
    names = {"win_amd64": ".dll", "macosx_11_0_arm64": ".dylib", "musllinux_1_2_aarch64": ".so"}
    for target, suffix in names.items():
        assert Path(hook().library_name(target)).suffix == suffix
    assert hook().library_name(hook().own_platform()) == loader.LIBRARY.name


def test_another_architecture_is_refused_with_a_reason(tmp_path):
    edit = lambda text: text.replace("__x86_64__", "__vax__").replace("__aarch64__", "__vax__")  # noqa: E731
    for source in loops.SOURCES.glob("*.[ch]"):
        (tmp_path / source.name).write_text(edit(source.read_text()))
    complaint = hook().compile_library([compiler(), *loops.quick_flags()], tmp_path, tmp_path / "x.so")
    assert "the compiled loops need GCC or Clang, and x86-64 or aarch64" in complaint


def test_questions_change_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = native.available(), native.missing(), native.form(), native.build()
        assert first == (native.available(), native.missing(), native.form(), native.build())
    assert bool(native.missing()) != native.available()


@pytest.mark.parametrize(
    "call",
    [
        lambda factor: linalg.factor(np.ones((5, 3))),
        lambda factor: linalg.inverse(np.ones((5, 3))),
        lambda factor: factor.solve(np.ones((300, 1)), 300),
        lambda factor: factor.solve(np.ones((1, 1)), 2, np.ones((3, 1))),
    ],
)
def test_shapes_that_c_would_leave_are_refused(call):
    if not native.available():
        pytest.skip(f"the compiled loops are not tested: {native.missing()}")
    with pytest.raises(ValueError, match=r"square|cannot solve"):
        call(GrowingCholesky.of(np.eye(3))[0])
