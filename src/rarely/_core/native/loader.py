"""The compiled library: its file, its functions, and the reason where it cannot be used."""

from __future__ import annotations

import ctypes
import json
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LIBRARY = Path(__file__).with_name({"win32": "_native.dll", "darwin": "_native.dylib"}.get(sys.platform, "_native.so"))
RECORD = Path(__file__).with_name("_native_build.json")
"""What the build recorded about itself, also if it failed."""
SOURCE_TREE = RECORD.parents[4]
"""Of an editable install; else a folder without `hatch_build.py`."""
_SIZE, _REAL, _ADDRESS = ctypes.c_ssize_t, ctypes.c_double, ctypes.c_void_p


class TrainingTask(ctypes.Structure):
    """`struct rarely_training_task` of `rarely_native.h`."""

    _fields_ = (
        *((name, _SIZE) for name in ("number_bytes", "samples", "dim", "units", "hidden_layers", "threads")),
        *((name, _ADDRESS) for name in ("contexts", "targets", "initial", "weights", "previous")),
        *((name, _SIZE) for name in ("taken", "steps")),
        *((name, _REAL) for name in ("skip", "ridge", "step_size", "hopeless", "result")),
        *((name, _SIZE) for name in ("groups", "shared")),
        *((name, _ADDRESS) for name in ("sample_order", "column_order", "group_samples", "group_columns")),
    )


class CrossTask(ctypes.Structure):
    """`struct rarely_cross_task`."""

    _fields_ = (
        *((name, _SIZE) for name in ("width", "blocks", "past", "layers", "threads")),
        *((name, _ADDRESS) for name in ("sizes", "old_factors", "new_factors", "out")),
    )


class SolveTask(ctypes.Structure):
    """`struct rarely_solve_task`."""

    _fields_ = (
        *((name, _SIZE) for name in ("width", "blocks", "done", "rows", "threads")),
        *((name, _ADDRESS) for name in ("left", "inverse", "solution")),
    )


class StepTask(ctypes.Structure):
    """`struct rarely_step_task`."""

    _fields_ = (
        *((name, _SIZE) for name in ("rounds", "arms", "dim", "parameters", "rule", "advances", "disjoint", "offered")),
        *((name, _SIZE) for name in ("version", "row", "arm")),
        *((name, _REAL) for name in ("epsilon", "per_deviation", "ridge", "reward_spread", "log_det", "unexplored")),
        *((name, _REAL) for name in ("picked", "least_known")),
        *((name, _ADDRESS) for name in ("center", "spread", "theta", "scoring", "factor", "matrix", "rows", "dual")),
        *((name, _ADDRESS) for name in ("gains", "costs", "present", "uniforms", "shares", "normal", "given")),
        *((name, _ADDRESS) for name in ("scores", "log_dets", "held_out", "chosen", "known", "numbers")),
    )


_SIDE = ("x", "u", "z", "clocks", "x_lengths", "u_lengths", "z_lengths")


def _sides(*sides: str) -> tuple[tuple[str, Any], ...]:
    """Return the fields of `struct rarely_kernel_side`, for each of these."""
    return tuple(
        (f"{side}_{name}", _ADDRESS if name in _SIDE else _SIZE) for side in sides for name in ("count", *_SIDE)
    )


class DualTask(ctypes.Structure):
    """`struct rarely_dual_task`."""

    _fields_ = (
        *((name, _SIZE) for name in ("raw", "centred", "learned", "width", "blocks", "predicted")),
        *_sides("past", "points"),
        *((name, _REAL) for name in ("most", "reward_center", "reward_scale", "time", "side")),
        *((name, _ADDRESS) for name in ("center", "rates", "sizes", "metric", "roots", "coefficients", "left")),
        *((name, _ADDRESS) for name in ("inverse", *_SIDE, "norms", "solution", "k")),
    )


class KernelTask(ctypes.Structure):
    """`struct rarely_kernel_task`."""

    _fields_ = (
        *((name, _SIZE) for name in ("raw", "centred", "learned")),
        *_sides("left", "right"),
        *((name, _SIZE) for name in ("row_step", "column_step")),
        ("out", _ADDRESS),
    )


class State(NamedTuple):
    """The library, or the reason why it cannot be used."""

    library: Any
    """With the types of its functions; None if it cannot be used."""
    reason: str
    """Why it cannot be used, and what to do; "" if it can."""
    stale: bool = False
    """Whether it was built from other sources than those of this version."""


@cache
def load() -> State:
    """Load the library, once in a process."""
    if not LIBRARY.exists():
        return State(None, _why_not_built())
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return State(None, f"{LIBRARY.name} cannot be loaded: {error}. {_advice()}")
    try:
        _declare(loaded)
        stale = loaded.rarely_sources() != checksum()
    except AttributeError:
        stale = True  # built before these functions existed
    if stale:
        return State(None, f"{LIBRARY.name} was built from other sources than this version's. {_advice()}", stale=True)
    return State(loaded, "")


def _declare(loaded: Any) -> None:
    loaded.rarely_descend.argtypes = loaded.rarely_curvature.argtypes = [ctypes.POINTER(TrainingTask)]
    loaded.rarely_cross.argtypes = [ctypes.POINTER(CrossTask)]
    loaded.rarely_solve.argtypes = [ctypes.POINTER(SolveTask)]
    loaded.rarely_step.argtypes = [ctypes.POINTER(StepTask)]
    loaded.rarely_kernel.argtypes = [ctypes.POINTER(KernelTask)]
    loaded.rarely_regress.argtypes = [_SIZE, _SIZE, _SIZE, *3 * [_ADDRESS]]
    loaded.rarely_highest.argtypes = [_SIZE, _ADDRESS, _ADDRESS, _REAL, ctypes.c_int, _ADDRESS, _ADDRESS]
    loaded.rarely_factor.argtypes, loaded.rarely_invert.argtypes = [_SIZE, _ADDRESS], [_SIZE, _ADDRESS, _ADDRESS]
    loaded.rarely_invert.restype = None
    loaded.rarely_form.argtypes, loaded.rarely_form.restype = [], ctypes.c_char_p
    loaded.rarely_use_form.argtypes = [ctypes.c_char_p]
    loaded.rarely_sources.argtypes, loaded.rarely_sources.restype = [], ctypes.c_uint


def record() -> dict[str, Any]:
    """Return what the build recorded about itself; empty without a readable record."""
    try:
        recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) else {}


def checksum() -> int:
    """Return the checksum of the sources, as the build computes it."""
    sources = sorted(RECORD.parent.glob("*.[ch]"), key=lambda path: path.name)
    # A checkout may have other line ends on Windows.
    return zlib.crc32(b"".join(path.read_bytes().replace(b"\r\n", b"\n") for path in sources))


def _why_not_built() -> str:
    if failure := record().get("failure"):
        return f"The package was built without compiled loops: {failure}. {_advice()}"
    return f"The compiled loops were not built: {LIBRARY.name} is missing. {_advice()}"


def _advice() -> str:
    # pip keeps a wheel that it once built without a compiler.
    command = "pip install --force-reinstall --no-cache-dir --no-deps rarely"
    if (SOURCE_TREE / "hatch_build.py").exists():
        command = f"pip install -e . in {SOURCE_TREE}"
    return f"Install the package again ({command}), with GCC or Clang on the PATH."
