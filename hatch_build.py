"""Compiles the hot loops where there is GCC or Clang; without them the package is complete all the same, and slower.

    RARELY_CC         the compiler, as a command; without it $CC, cc, gcc and clang are tried in turn, on Windows $CC,
                      `python -m ziglang cc`, clang and gcc
    RARELY_TARGET     the wheel's platform tag, where RARELY_CC compiles for another platform
    RARELY_URL        the address of the repository, of which a release makes `project.urls`
    RARELY_COMPILED   "1": a build without compiled loops fails; "0": they are not built

What happened is written to `_native_build.json`, which the installed package reads: `rarely._core.native.missing()`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NATIVE = Path("src/rarely/_core/native")
RECORD = "_native_build.json"
PAPER = "https://arxiv.org/abs/2102.13028"
# No -ffast-math: a loss that is not a number must be seen. No -fassociative-math: sums are written in the order in
# which they are to be added, and reordered they are slower. Clang has to be asked to join products and sums.
# No -Werror: a new compiler's new warning must not cost a user the compiled loops. The tests have it.
FLAGS = ["-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"]
FLAGS += ["-fvisibility=hidden", "-shared"]
POSIX_FLAGS = ["-fPIC", "-pthread"]
LAST_LINES = 5
"""Of a compiler's complaint, which go on record."""


class Addresses(MetadataHookInterface):
    """Fills `project.urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what follows from the address of the repository, where it is given."""
        metadata["urls"] = {"Paper": PAPER}
        if home := os.environ.get("RARELY_URL", "").rstrip("/"):
            pages = {"Source": "", "Issues": "/issues", "Documentation": "/tree/main/docs"}
            pages["Changelog"] = "/blob/main/CHANGELOG.md"
            metadata["urls"] |= {name: home + page for name, page in pages.items()}


class CompiledLoops(BuildHookInterface):
    """Runs the compiler, records what it said, and goes on without it."""

    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """For an editable install the library lies beside its sources, else in the wheel alone."""
        if self.target_name != "wheel":
            return
        sources = Path(self.root).resolve() / NATIVE
        target = os.environ.get("RARELY_TARGET") or own_platform()
        self._folder = None if version == "editable" else tempfile.mkdtemp()
        folder = sources if self._folder is None else Path(self._folder)
        record = build_library(sources, folder / library_name(target), target)
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        included = [RECORD]
        if record["failure"]:
            if os.environ.get("RARELY_COMPILED") == "1":
                raise RuntimeError(f"RARELY_COMPILED=1, and the loops were not compiled: {record['failure']}")
            self.app.display_warning(f"NumPy takes the place of the compiled loops: {record['failure']}")
        else:
            included.append(library_name(target))
            build_data["pure_python"] = False
            # Called through ctypes: the processor and the system matter, the version of Python does not.
            build_data["tag"] = f"py3-none-{target}"
        if self._folder is not None:
            for name in included:
                build_data["force_include"][str(folder / name)] = f"rarely/_core/native/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def own_platform() -> str:
    """The platform tag of this machine."""
    if sys.platform == "darwin":  # sysconfig's may be of both processors, and the library is of one
        return f"macosx_{_macos().replace('.', '_')}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def library_name(target: str) -> str:
    """The library's file on a platform, as `native/loader.py` looks for it."""
    return "_native.dll" if target.startswith("win") else "_native.dylib" if target.startswith("mac") else "_native.so"


def build_library(sources: Path, library: Path, target: str) -> dict[str, Any]:
    """Compile with the first compiler that can, and say what happened; `failure` is empty where one could."""
    sources, library = sources.resolve(), library.resolve()  # the compiler runs in a folder of its own
    library.unlink(missing_ok=True)
    record: dict[str, Any] = {"platform": target, "sources": checksum(sources), "compiler": "", "flags": []}
    if os.environ.get("RARELY_COMPILED") == "0":
        return record | {"failure": "RARELY_COMPILED=0 when the package was built"}
    commands, wanted = compilers()
    failures = []
    for command in commands:
        flags = [*FLAGS, *([] if target.startswith("win") else POSIX_FLAGS)]
        if complaint := compile_library([*command, *flags], sources, library):
            failures.append(f"{shlex.join(command)} failed: {complaint}")
            continue
        return record | {"compiler": version_of(command), "flags": flags, "failure": ""}
    return record | {"failure": "; ".join(failures) or f"no compiler found (looked for {', '.join(wanted)})"}


def compilers() -> tuple[list[list[str]], list[str]]:
    """Commands of the compilers that are here, best first, and what was looked for."""
    if chosen := os.environ.get("RARELY_CC"):
        return [shlex.split(chosen)], ["$RARELY_CC"]
    commands = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else []
    names = ["clang", "gcc"] if os.name == "nt" else ["cc", "gcc", "clang"]
    wanted = ["$CC", *names]
    if os.name == "nt":
        wanted.insert(1, "python -m ziglang cc")
        if importlib.util.find_spec("ziglang"):
            # Without a target it would compile for this very processor.
            commands.append([sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"])
    seen = set()
    for name in names:
        path = shutil.which(name)
        if path and os.path.realpath(path) not in seen:  # cc is often gcc
            seen.add(os.path.realpath(path))
            commands.append([name])
    return commands, wanted


def compile_library(command: list[str], sources: Path, library: Path) -> str:
    """Why it failed, in the compiler's last words; "" where it did not. Both paths are absolute."""
    if sys.platform == "darwin":
        command = [*command, *shlex.split(os.environ.get("ARCHFLAGS", ""))]
    command = [*command, f"-DRARELY_SOURCES={checksum(sources)}u"]
    try:
        with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
            files = {str(path): f"{scratch}/{path.stem}.o" for path in sorted(sources.glob("*.c"))}
            # An object is not shared yet, and Clang warns of a flag that it does not use.
            to_object = [flag for flag in command if flag != "-shared"]
            steps = [[*to_object, "-c", path, "-o", made] for path, made in files.items()]
            failed = [done for done in pool.map(partial(_compiler_run, scratch), steps) if done.returncode]
            done = (
                failed[0] if failed else _compiler_run(scratch, [*command, *files.values(), "-lm", "-o", str(library)])
            )
    except OSError as error:
        return str(error)
    if not done.returncode:
        return "" if library.exists() else "it made no library"
    complaint = (done.stderr + done.stdout).replace(f"{sources}{os.sep}", "").strip().splitlines()
    errors = [line for line in complaint if "error" in line.lower()] or complaint
    return " | ".join(errors[-LAST_LINES:]) or f"it ended with code {done.returncode} and said nothing"


def _compiler_run(scratch: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"MACOSX_DEPLOYMENT_TARGET": _macos()} if sys.platform == "darwin" else {})
    said: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "check": False}
    return subprocess.run(command, cwd=scratch, env=environment, **said)  # zig leaves files where it runs


def checksum(sources: Path) -> int:
    """Of the sources; `native/loader.py` takes it in the same way."""
    paths = sorted(sources.glob("*.[ch]"), key=lambda path: path.name)
    return zlib.crc32(b"".join(path.read_bytes().replace(b"\r\n", b"\n") for path in paths))


def version_of(command: list[str]) -> str:
    """The first line in which a compiler tells its version."""
    done = subprocess.run([*command, "--version"], capture_output=True, check=False, text=True, errors="replace")
    return next(iter(done.stdout.splitlines()), command[0]).strip()


def _macos() -> str:
    return os.environ.get("MACOSX_DEPLOYMENT_TARGET", "11.0")
