"""Simulated runs that are finished, kept in a file while a plan is made: a plan that was interrupted goes on.

The file has a line for each, and a first line that says of which plan they are. Another plan, another seed or other
code begins a new file; a line that was cut off by a kill counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from rarely.logs.planning_log import Log
from rarely.planning.simulate import worked
from rarely.simulation.provenance import PACKAGE, bare, code_fingerprint
from rarely.simulation.sealed_json import Malformed, check_digest, sealed
from rarely.simulation.writing import writing
from rarely.worlds.protocol import World

Item = TypeVar("Item")
Done = TypeVar("Done")


class FinishedTrials:
    """Results by name, in a file; without a path they are kept nowhere."""

    def __init__(self, path: Path | None = None, question: str = "") -> None:
        self.path, self._found = path, dict[str, Any]()
        if path is None:
            return
        head = {"plan": question}
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        first, *others = text.splitlines() or [""]
        if first == json.dumps(sealed(head)):
            self._found = dict(self._readable(others))
            if not text.endswith("\n"):  # a line was cut off: the next one starts anew
                self._append("\n")
            return
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(sealed(head)) + "\n", encoding="utf-8")

    def __len__(self) -> int:
        return len(self._found)

    def work(
        self,
        work: Callable[[Item], Done],
        items: Sequence[Item],
        jobs: int,
        codec: Codec[Item, Done],
    ) -> Iterator[Done]:
        """The work on each item; what is on file is read from there, and the rest is put there as it ends."""
        names = [codec.name(item) for item in items]
        todo = []
        for name, item in zip(names, items, strict=True):
            if name in self._found:
                yield codec.read(item, self._found[name])
            else:
                todo.append(item)
        for done in worked(work, todo, jobs) if todo else ():
            name, value = codec.written(done)
            self._keep(name, value)
            yield done

    def remove(self) -> None:
        """Forget the file: the plan is written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _keep(self, name: str, value: Any) -> None:
        if self.path is None:
            return
        self._append(json.dumps(sealed({"trial": name, "value": value})) + "\n")

    def _append(self, text: str) -> None:
        assert self.path is not None
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(text)

    @staticmethod
    def _readable(lines: Sequence[str]) -> Iterator[tuple[str, Any]]:
        for line in lines:
            try:
                content = json.loads(line)
                check_digest(content)
                yield content["trial"], content["value"]
            except (ValueError, Malformed, KeyError, TypeError):
                continue


class Codec(Generic[Item, Done]):
    """How a result is named and kept."""

    def __init__(
        self,
        name: Callable[[Item], str],
        written: Callable[[Done], tuple[str, Any]],
        read: Callable[[Item, Any], Done],
    ) -> None:
        self.name, self.written, self.read = name, written, read


def question_of(source: Log | World, asked: dict[str, Any]) -> str:
    """A hash of all that decides the simulated runs of a plan: data, settings, and code."""
    told = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode())
    told.update(code_fingerprint().encode())
    for file in sorted((PACKAGE / "planning").glob("*.py")):
        told.update(bare(file.read_bytes()).encode())
    if isinstance(source, Log):
        for array in (source.features, *source.known()):
            told.update(np.ascontiguousarray(array).tobytes())
    else:
        told.update(json.dumps(source.describe(), sort_keys=True, default=str).encode())
    return told.hexdigest()
