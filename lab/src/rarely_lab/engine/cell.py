"""A cell: one run that is played, recorded and resumed; and what comes of it.

Whoever uses the engine defines two classes. A `Cell` says what is asked for and how it is played. A `Record`, in
`rarely_lab.engine.record`, says what is kept and which source files decide its numbers.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

from rarely.extend.checks import RarelyError
from rarely_lab.engine.record import Record


class Cell(ABC):
    """One run to play.

    A cell is pickled and played in another process, perhaps on another machine, so it should be a frozen dataclass of
    plain values.
    """

    record_type: ClassVar[type[Record]]
    """The record that it leaves."""
    shared_field: ClassVar[str] = ""
    """A large field that many cells have in common, which a cluster is sent only once; empty where there is none."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The readable name, `a/b/seed3`, which is also its record's path."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return, as JSON, everything but the code that the result depends on."""

    @abstractmethod
    def play(self) -> dict[str, Any]:
        """Play it, and return the content of its record as JSON."""

    @property
    def together(self) -> tuple[str, Any]:
        """What plays it with others on a GPU, and what they have in common; "" is a processor, which plays it alone."""
        return "", None

    def work(self) -> float:
        """Predict how long it takes, relative to other cells."""
        return 1.0

    def portable(self) -> Any:
        """Return its shared field in a form that needs no file of this machine."""
        return getattr(self, self.shared_field) if self.shared_field else None

    def with_shared(self, value: Any) -> Any:
        return replace(cast(Any, self), **{self.shared_field: value}) if self.shared_field else self


@dataclass(frozen=True)
class Result:
    """What came of a cell: its record, or why there is none. It names the cell, and does not carry its data."""

    id: str
    record: Record | None
    error: str = ""


def play_cell(cell: Cell) -> Result:
    """Play one cell in this process; an error becomes part of the result and stops no other cell."""
    try:
        return Result(cell.id, cell.record_type.of(cell.id, cell.describe(), cell.play()))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, RarelyError):  # which say what to do; others, of a user's policy perhaps, say where
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text += f" ({Path(frame.filename).name}, line {frame.lineno})"
        return Result(cell.id, None, text)
