"""What a version was made on: bits are promised within one environment."""

from __future__ import annotations

from rarely.core.native.build_info import build_info


def describe() -> dict[str, str]:
    """The versions and the code paths on which the last digits depend."""
    info = build_info()
    return {
        "rarely": info.rarely,
        "python": info.python,
        "numpy": info.numpy,
        "platform": info.platform,
        "machine": info.machine,
        "loops": info.form,
        "blas": f"{info.blas.name} {info.blas.version} {info.blas.kernel}".strip(),
    }


def same(one: dict[str, str], other: dict[str, str]) -> bool:
    """Whether both promise the same bits: all but the version of Python and of the system."""
    decisive = ("rarely", "numpy", "machine", "loops", "blas")
    return all(one.get(name) == other.get(name) for name in decisive)
