"""Work in a process of its own, so that its peak memory is its own.

The process runs `python -m rarely.bench.alone MODULE:FUNCTION ARGUMENTS` and answers in lines of JSON: what it
tells on the way, and in the end its result. Any other line is a complaint.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import Any

from rarely.bench.measure import BenchmarkFailed, Tell


def alone(work: str, tell: Tell, **arguments: Any) -> Any:
    """What `rarely.bench.MODULE.FUNCTION(tell, **arguments)` gives, for work = "MODULE:FUNCTION"."""
    command = [sys.executable, "-m", "rarely.bench.alone", work, json.dumps(arguments)]
    last, result = "it said nothing", None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                answer = _read(line)
                if answer is None:
                    last = line.strip() or last
                elif "told" in answer:
                    tell(answer["told"])
                else:
                    result = answer["result"]
        except BaseException:
            process.kill()
            raise
    if process.returncode or result is None:
        raise BenchmarkFailed(f"{work} ended with code {process.returncode}: {last}.")
    return result


def _read(line: str) -> dict[str, Any] | None:
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and answer.keys() & {"told", "result"} else None


def _answer(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(work: str, arguments: str) -> None:
    """The process' own side."""
    module, name = work.split(":")
    function = getattr(importlib.import_module(f"rarely.bench.{module}"), name)
    _answer(result=function(lambda text: _answer(told=text), **json.loads(arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
