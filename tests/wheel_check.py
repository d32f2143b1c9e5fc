"""What `make wheel-test` runs in an environment that has the wheel, NumPy and nothing else.

python tests/wheel_check.py dist     every wheel has the library of its platform; the installed one is in use
"""

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np

from rarely import BatchNeuralUCB, FixedGrid
from rarely._core import native
from rarely._core.native import loader

SYSTEMS = {"manylinux": "Linux", "musllinux": "Linux", "macosx": "macOS", "win": "Windows"}
OLDEST_GLIBC = (2, 17)
MACHINES = {
    62: "x86_64",
    183: "aarch64",
    0x01000007: "x86_64",
    0x0100000C: "aarch64",
    0x8664: "x86_64",
    0xAA64: "aarch64",
}


def target(header: bytes) -> tuple[str, str]:
    """The system and processor that a library is for, by its first bytes."""

    def number(start: int, size: int) -> int:
        return int.from_bytes(header[start : start + size], "little")

    if header.startswith(b"\x7fELF"):
        return "Linux", MACHINES[number(18, 2)]
    if header.startswith(b"\xcf\xfa\xed\xfe"):
        return "macOS", MACHINES[number(4, 4)]
    assert header.startswith(b"MZ"), "no library"
    return "Windows", MACHINES[number(number(0x3C, 4) + 4, 2)]


def check_wheel(path: Path) -> str:
    """The library in a wheel is for the system and processor that its name promises."""
    platform = path.stem.split("-")[-1].split(".")[-1]
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if re.search(r"native/_native\.(so|dylib|dll)$", name)]
        assert len(names) == 1, f"{path.name} has {names or 'no library'}"
        library = wheel.read(names[0])
        record = json.loads(wheel.read("rarely/_core/native/_native_build.json"))
    kind, machine = target(library[:4096])
    assert platform.startswith(tuple(tag for tag, system in SYSTEMS.items() if system == kind)), (platform, kind)
    processor = "aarch64" if platform.endswith(("aarch64", "arm64")) else "x86_64"
    assert machine == processor, (platform, machine)
    assert record["failure"] == "", record
    assert platform in record["platform"], (platform, record)
    if "manylinux" in platform:
        versions = [tuple(map(int, v.split(b"."))) for v in re.findall(rb"GLIBC_(\d+\.\d+)", library)]
        assert versions, "no version of glibc is asked for"
        assert max(versions) <= OLDEST_GLIBC, f"{path.name} asks for glibc {max(versions)}"
    return f"{path.name}: {kind} on {machine}, {len(library) // 1000} kB, by {record['compiler']}"


def check_lab(path: Path) -> str:
    """The laboratory's wheel serves every platform, and has its commands and what its pages are made of."""
    assert path.stem.endswith("-py3-none-any"), path.name
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        entries = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "[rarely.commands]" in entries, entries
    for ending in (".cu", "paper_claims.toml", "boards.toml", "report.html", "leaderboard.html", "py.typed"):
        assert any(name.endswith(ending) for name in names), ending
    return f"{path.name}: {len(names)} files"


def check_policy() -> None:
    """A policy decides, is trained and decides again."""
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(5, FixedGrid(400, 2), hidden=50, seed=0)
    for rounds in (200, 100):
        contexts = rng.normal(size=(rounds, 4, 5))
        decision = policy.select(contexts)
        policy.observe(decision, contexts[np.arange(rounds), decision.arm, 0])
        if policy.due:
            policy.update()
    assert policy.version == 1


def main(folder: str) -> None:
    """Everything, with a line for each thing that holds."""
    found = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    assert not found, f"there must be no compiler on the PATH; found {found}"
    assert "site-packages" in str(loader.LIBRARY), f"not the installed package: {loader.LIBRARY}"
    for path in sorted(Path(folder).glob("rarely-*.whl")):
        print(check_wheel(path))
    [lab] = Path(folder).glob("rarely_lab-*.whl")
    print(check_lab(lab))
    check_policy()
    assert native.available(), native.missing()
    print(f"in use without a compiler: {native.form()}, built by {native.build()['compiler']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
