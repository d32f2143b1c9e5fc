"""Builds the compiled loops where there is a compiler for them; without one the package is whole all the same."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/rarely/core/native")
# No -ffast-math: a loss that is no number must be seen. Sums may be reordered.
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-w"]
FLAGS += ["-shared", "-fPIC", "-pthread"]


class CompiledLoops(BuildHookInterface):
    """Runs the compiler, and goes on without it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.name == "nt":
            return
        folder = Path(self.root) / NATIVE
        if complaint := self._compile(folder, folder / "_native.so"):
            self.app.display_warning(f"without compiled loops, NumPy does their work: {complaint}")
            return
        build_data["artifacts"].append(f"/{NATIVE.as_posix()}/_native.so")
        build_data["pure_python"] = False
        # Called through ctypes, so it is the processor that matters, and not the version of Python.
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def _compile(self, folder: Path, target: Path) -> str:
        """What went wrong, if something did."""
        target.unlink(missing_ok=True)
        sources = sorted(folder.glob("*.[ch]"))
        checksum = zlib.crc32(b"".join(path.read_bytes() for path in sources))  # native.checksum() asks for it
        command = shlex.split(os.environ.get("CC", "")) or ["gcc"]
        command += [*FLAGS, f"-DSOURCES={checksum}u", *(str(s) for s in sources if s.suffix == ".c"), "-o", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, text=True)
        except OSError as error:
            return str(error)
        return done.stderr[-500:] or "the compiler failed" if done.returncode else ""
