"""Builds the compiled loops where there is a C compiler; without one the package is whole all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
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
        compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "cc", "clang")), None)
        folder = Path(self.root) / NATIVE
        target = folder / "_native.so"
        if self.target_name != "wheel" or compiler is None or os.name == "nt":
            return
        command = [*compiler.split(), *FLAGS, *map(str, sorted(folder.glob("*.c"))), "-o", str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            target.unlink(missing_ok=True)
            return
        build_data["artifacts"].append(f"/{NATIVE.as_posix()}/_native.so")
        build_data["pure_python"] = False
        # Called through ctypes, so it is the processor that matters, and not the version of Python.
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
