"""Builds of the compiled loops for the tests: other forms, compilers, architectures and sanitizers."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from rarely._core import native
from rarely._core.native import linalg, loader

ROOT = Path(__file__).parents[1]
SOURCES = Path(native.__file__).parent
DRIVER = Path(__file__).with_name("native_driver.c")
STRICT = ["-Wall", "-Wextra", "-Werror"]
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
FORMS = {"x86_64": ("sse2", "avx2", "avx512"), "aarch64": ("neon",)}
OTHER = {"x86_64": ("aarch64", ("neon",)), "aarch64": ("x86_64", ("sse2", "avx2"))}
"""The other architecture, and its forms that qemu-user can run."""
EMULATED = bool(os.environ.get("RARELY_EMULATED"))
"""What `make test-extras` sets: the loops of the other architecture are tested too."""
SANITIZER = os.environ.get("RARELY_SANITIZER", "")
"""What `make sanitize` sets: the loops are then tested with this sanitizer, and in no other way."""


def kinds() -> list[str]:
    """Every way in which the loops are tested here, as `in_kind` takes it."""
    if SANITIZER:
        return [f"{form} with {SANITIZER} sanitizer" for form in FORMS.get(MACHINE, ())]
    other, forms = OTHER.get(MACHINE, ("", ())) if EMULATED else ("", ())
    return [*FORMS.get(MACHINE, ()), *(f"{form} on emulated {other}" for form in forms)]


def folder_of_the_run(factory) -> Path:
    """One for all processes that run these tests, and for no other run."""
    base = factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "drivers"


@contextmanager
def in_kind(kind: str, folder: Path):
    """The loops in one of the `kinds`, for any number of candidates; skips the test where that cannot be."""
    skip_if_off()
    form, *how = kind.split(maxsplit=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linalg, "MAX_CANDIDATES", {})
        if not how:
            if not native.available():
                pytest.skip(f"the compiled loops are not tested: {native.missing()}")
            with using(form):
                yield
            return
        program = emulated(folder, how[1].split()[1]) if how[0] == "on" else sanitized(folder)
        with Remote(program) as remote:
            if remote.rarely_use_form(form.encode()):
                pytest.skip(f"{'this processor' if how[0] == 'with' else 'the emulator'} has no {form}")
            patch.setattr(loader, "load", lambda: loader.State(remote, ""))
            forget()
            try:
                yield
            finally:
                patch.undo()
                forget()


@contextmanager
def using(form: str):
    """Another form than the processor's best."""
    library = native.library()
    best = library.rarely_form()
    if library.rarely_use_form(form.encode()):
        pytest.skip(f"this processor has no {form}")
    native.form.cache_clear()
    try:
        yield
    finally:
        library.rarely_use_form(best)
        native.form.cache_clear()


def rebuild(folder: Path, flags, command: str, more: str) -> None:
    """Compile the library into a folder by another compiler, with other flags and more sources."""
    skip_if_off()
    for source in SOURCES.glob("*.[ch]"):
        shutil.copy(source, folder)
    (folder / "more.c").write_text(more)
    complaint = hook().compile_library([command, *quick_flags(), *flags], folder, folder / loader.LIBRARY.name)
    assert not complaint, complaint


@contextmanager
def loaded(folder: Path):
    """The library of a folder in the place of the one that is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "LIBRARY", folder / loader.LIBRARY.name)
        patch.setattr(loader, "RECORD", folder / loader.RECORD.name)
        forget()
        try:
            yield
        finally:
            patch.undo()
            forget()


def skip_if_off() -> None:
    """Skips the test where the user wants no compiled loops."""
    if os.environ.get("RARELY_COMPILED") == "0":
        pytest.skip(f"the compiled loops are not tested: {native.missing()}")


def forget() -> None:
    """What was found out about the library: it is another one now."""
    for cached in (loader.load, native.in_use, native.form, native._wish):
        getattr(cached, "cache_clear", lambda: None)()


@cache
def hook() -> ModuleType:
    """`hatch_build.py`; what it needs of hatchling are classes to derive from, and the tests need not have it."""
    needed = {"builders.hooks": "BuildHookInterface", "metadata": "MetadataHookInterface"}
    with pytest.MonkeyPatch.context() as patch:
        for name, base in needed.items() if importlib.util.find_spec("hatchling") is None else ():
            parts = f"hatchling.{name}.plugin.interface".split(".")
            for end in range(1, len(parts) + 1):
                patch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(parts[end - 1]))
            setattr(sys.modules[".".join(parts)], base, object)
        spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def quick_flags() -> list[str]:
    """The flags of the build, with half of its optimisations: compiling takes longer than the tests."""
    return [{"-O3": "-O1"}.get(flag, flag) for flag in (*hook().FLAGS, *hook().POSIX_FLAGS)]


def compiler() -> str:
    """One for this machine; skips the test where there is none."""
    if MACHINE not in FORMS:
        pytest.skip(f"the compiled loops are for {' and '.join(FORMS)}; this is {MACHINE}")
    return next(filter(shutil.which, ("cc", "gcc", "clang")), None) or pytest.skip(
        "other builds of the compiled loops are not tested: no compiler found (looked for cc, gcc, clang)"
    )


def emulated(folder: Path, machine: str) -> list[str]:
    """The driver for another architecture, and what runs it."""
    cross, emulator = f"{machine}-linux-gnu-gcc", f"qemu-{machine}"
    for tool, package in ((cross, f"gcc-{machine.replace('_', '-')}-linux-gnu"), (emulator, "qemu-user")):
        if shutil.which(tool) is None:
            pytest.skip(f"the loops for {machine} are not tested: no {tool} (apt-get install {package})")
    program = driver(folder / machine, [cross, "-O2"])
    libraries = ("-L", f"/usr/{machine}-linux-gnu")
    return [emulator, *libraries, *(("-cpu", "max") if machine == "x86_64" else ()), str(program)]


def sanitized(folder: Path) -> list[str]:
    """The driver with the sanitizer that was asked for."""
    name = SANITIZER.replace(",", "-")
    flags = ["-O1", "-g", f"-fsanitize={SANITIZER}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    return [str(driver(folder / name, [compiler(), *flags]))]


def driver(program: Path, command: list[str]) -> Path:
    """Compile it, once for all processes that run the tests."""
    lock = program.with_suffix(".lock")
    program.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        until = time.monotonic() + 300
        while not program.exists() and lock.exists() and time.monotonic() < until:
            time.sleep(0.1)
        assert program.exists(), "the process that was to compile the driver did not; see its failure"
        return program
    try:
        flags = [flag for flag in hook().FLAGS if flag not in ("-O3", "-shared")]
        sources = [DRIVER, *sorted(SOURCES.glob("*.c"))]
        part = program.with_suffix(".part")
        flags += ["-pthread", *STRICT, "-DRARELY_SOURCES=0u", f"-I{SOURCES}"]
        subprocess.run([*command, *flags, *sources, "-lm", "-o", part], check=True)
        os.replace(part, program)
    except BaseException:
        os.unlink(lock)  # who waits need not wait on
        raise
    return program


OWN = loader.load().library
"""The library of this process."""


class Remote:
    """The library in another process: the same functions, the same tasks. See `native_driver.c`."""

    def __init__(self, program: list[str]) -> None:
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        code = self._process.wait()
        assert code == 0, f"the driver ended with code {code}: a sanitizer's report is on standard error"
        self._process.stdout.close()

    def rarely_descend(self, task):
        return self._train(0, task)

    def rarely_curvature(self, task):
        return self._train(1, task)

    def rarely_cross(self, task):
        count = 2 * task.layers
        sizes = (ctypes.c_ssize_t * count).from_address(task.sizes)
        lanes = 8 * task.width * task.blocks or task.blocks
        self._write(2, task.width, task.blocks, task.past, task.layers, task.threads, *sizes)
        for pointers, rows in ((task.old_factors, task.past), (task.new_factors, lanes)):
            self._write_all(pointers, [8 * rows * size for size in sizes])
        return self._answer((task.out, 8 * task.past * lanes))

    def rarely_solve(self, task):
        lanes, panels = 8 * task.width * task.blocks or task.blocks, -(-task.rows // 128)
        self._write(3, task.width, task.blocks, task.done, task.rows, task.threads)
        # The driver reads whole panels, of which the last may have no more rows than it needs.
        rows = [min(128, task.rows - 128 * i) for i in range(panels)]
        for pointers, widths in ((task.left, range(0, 128 * panels, 128)), (task.inverse, [128] * panels)):
            for place, count, width in zip(_pointers(pointers, panels), rows, widths, strict=True):
                self._write_memory(place, 8 * count * width)
                self._process.stdin.write(bytes(8 * (128 - count) * width))
        solution = (task.solution, 8 * task.rows * lanes)
        self._write_memory(*solution)
        return self._answer(solution)

    def rarely_factor(self, order, matrix):
        self._write(4, order)
        self._write_memory(matrix, 8 * order * order)
        return self._answer((matrix, 8 * order * order))

    def rarely_invert(self, order, lower, inverse):
        self._write(5, order)
        self._write_memory(lower, 8 * order * order)
        self._write_memory(inverse, 8 * order * order)
        self._answer((inverse, 8 * order * order))

    def rarely_step(self, task):
        if task.dual:  # its arrays lie behind two structs; the kernels that it calls are run remotely by themselves
            return OWN.rarely_step(task)
        n, arms, d, p = task.rounds, task.arms, task.dim, task.parameters
        shown = arms if task.slots else n * arms
        there = sum(ctypes.string_at(task.present, shown)) if task.present else shown
        rows, square, all_ = task.row + n, 8 * p * p, 8 * n * arms
        sizes = {
            "center": 8 * d,
            "spread": 8 * d,
            "theta": 8 * p,
            "scoring": square,
            "factor": square,
            "matrix": square,
        }
        sizes |= {
            "rows": 8 * there * d,
            "gains": 8 * there,
            "costs": 8 * there,
            "present": n * arms,
            "scores": 3 * all_,
            "work": 8 * (6 * arms + bool(task.slots) * (arms + 15) * (p + 5)),
            "spends": 8 * there,
            "curve": 16 * task.points,
        }
        sizes |= {"normal": 8 * (2 * 9217 + 32), "held_out": n, "chosen": 8 * rows * d}
        sizes |= dict.fromkeys(("uniforms", "shares", "given", "log_dets"), 8 * n)
        return self._call(8, task, sizes | dict.fromkeys(("known", "numbers"), 24 * rows))

    def rarely_kernel(self, task):
        sizes = {"out": 8 * (1 + (task.left_count - 1) * task.row_step + (task.right_count - 1) * task.column_step)}
        for side in ("left", "right"):
            count = 8 * getattr(task, f"{side}_count")
            widths = {
                "raw": task.raw,
                "centred": task.centred,
                "learned": task.learned,
                "columns": task.columns,
                "clocks": 2,
            }
            widths |= {"raw_lengths": 1, "lengths": 3, "learned_lengths": 1}
            sizes |= {f"{side}_{name}": count * width for name, width in widths.items()}
        return self._call(10, task, sizes)

    def rarely_regress(self, order, dim, count, rows, rewards, block):
        self._write(11, order, dim, count)
        for place, size in ((rows, count * dim), (rewards, count), (block, 2 * (order + 1) * order)):
            self._write_memory(place, 8 * size)
        return self._answer((block, 16 * (order + 1) * order))

    def _call(self, call, task, sizes):
        """Call with any struct: its numbers of 8 bytes as they are, and the arrays behind its pointers."""
        places = [getattr(task, name) if name in sizes else None for name, _ in task._fields_]
        places = [
            (place, sizes[name]) if place else None for place, (name, _) in zip(places, task._fields_, strict=True)
        ]
        self._write(call, len(places))
        for i, place in enumerate(places):
            self._write(-1 if place is None else place[1])
            self._process.stdin.write(bytes(task)[8 * i : 8 * i + 8] if place is None else ctypes.string_at(*place))
        status = self._answer()
        for i, place in enumerate(places):
            address, size = (ctypes.addressof(task) + 8 * i, 8) if place is None else place
            ctypes.memmove(address, self._read(size), size)
        return status

    def rarely_highest(self, count, means, deviations, tolerance, lowest, tables, out):
        self._write(9, count, int(lowest))
        self._process.stdin.write(struct.pack("<d", tolerance))
        for place, size in ((means, 8 * count), (deviations, 8 * count), (tables, 8 * (2 * 9217 + 32))):
            self._write_memory(place, size)
        return self._answer((out, 8 * count))

    def rarely_form(self):
        self._write(6)
        self._answer()
        return self._read(16).rstrip(b"\0")

    def rarely_use_form(self, name):
        self._write(7)
        self._process.stdin.write(name.ljust(16, b"\0"))
        return self._answer()

    def _train(self, call, task):
        counts = (task.samples, task.dim, task.units, task.hidden_layers, task.threads, task.taken, task.steps)
        self._write(call, task.number_bytes, *counts, int(task.previous is not None))
        self._process.stdin.write(struct.pack("<4d", task.skip, task.ridge, task.step_size, task.hopeless))
        of_context = task.dim * task.number_bytes
        self._write_memory(task.contexts, task.samples * of_context)
        self._write_memory(task.targets, task.samples * task.number_bytes)
        units = task.units * task.number_bytes
        layers = [units * (task.units if layer else task.dim) for layer in range(task.hidden_layers)]
        layers.append(units + (of_context if task.skip >= 0 else 0))
        networks = [task.weights, *([task.previous] if task.previous else [])]
        for pointers in (task.initial, *networks):
            self._write_all(pointers, layers)
        self._write(task.groups)
        if task.groups:
            self._write(task.shared)
            groups, each = 8 * task.groups, ((task.sample_order, task.samples), (task.column_order, task.dim))
            for place, count in each:
                self._write_memory(place, 8 * count)
            for place in (task.group_samples, task.group_columns):
                self._write_memory(place, groups)
        status = self._answer()
        (task.result,) = struct.unpack("<d", self._read(8))
        for pointers in networks:
            for place, size in zip(_pointers(pointers, len(layers)), layers, strict=True):
                ctypes.memmove(place, self._read(size), size)
        return status

    def _write(self, *numbers):
        self._process.stdin.write(struct.pack(f"<{len(numbers)}q", *numbers))

    def _write_memory(self, place, size):
        if size:
            self._process.stdin.write(ctypes.string_at(place, size))

    def _write_all(self, pointers, sizes):
        for place, size in zip(_pointers(pointers, len(sizes)), sizes, strict=True):
            self._write_memory(place, size)

    def _answer(self, *places):
        self._process.stdin.flush()
        (status,) = struct.unpack("<q", self._read(8))
        for place, size in places:
            ctypes.memmove(place, self._read(size), size)
        return status

    def _read(self, size):
        read = self._process.stdout.read(size)
        assert len(read) == size, "the driver ended: see its report on standard error"
        return read


def _pointers(address, count):
    return (ctypes.c_void_p * count).from_address(address) if count else ()
