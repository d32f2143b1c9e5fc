"""Copies of the tree from which modules are gone: what still passes in one does not need them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("tests", "docs", "examples", "benchmarks", "lab", "Makefile", "README.md", "pyproject.toml")
"""What a copy shares with the tree, because nothing writes to it."""


def copy_without(folder, *modules):
    """Copy the package into a folder, without these modules or packages, "_core/policies/evidence.py" for one."""
    # With the bytecode, which is as old as its source; files that another process is writing have longer names.
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
    for module in modules:
        path = folder / "src" / "rarely" / module
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def run_tests(folder, *selection):
    """Return what pytest says of some tests in a copy: `returncode` is 0 if all pass, and `stdout` has the report."""
    # The copy's modules come before those of an installation, and leave no bytecode beside the tests of the tree.
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("-q", "-c", str(folder / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *selection],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
