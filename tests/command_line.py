"""The command `rarely` as tests call it: in this process, or in a fresh Python."""

import os
import re
import subprocess
import sys

from typer.testing import CliRunner

from rarely._cli import app


def call(*arguments, **environment):
    result = CliRunner().invoke(app, [str(a) for a in arguments], env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def told(result):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", result.output).split())


def python(code, **environment):
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


HIDDEN = (
    "from pathlib import Path; from rarely._core.native import loader; loader.LIBRARY = Path('nowhere.so'); "
    "loader.RECORD = Path('nowhere.json')\n"
    "from typer.testing import CliRunner; from rarely._cli import app\n"
    "{setup}\n"
    "result = CliRunner().invoke(app, {arguments!r}); print(result.exit_code); print(result.output)"
)
"""A command where the compiled loops are missing: its exit code, and what it says."""
