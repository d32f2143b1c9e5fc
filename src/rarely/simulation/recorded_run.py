"""What the records of experiments and of comparisons have in common, and the files that are refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RecordedRun:
    """A finished run, as its file has it."""

    data: dict[str, Any]

    @property
    def id(self) -> str:
        """The cell's readable name."""
        return str(self.data["id"])

    @property
    def problem(self) -> str:
        """The problem's name."""
        return str(self.data["asked"]["problem"]["name"])

    @property
    def seed(self) -> int:
        """The run."""
        return int(self.data["asked"]["seed"])

    @property
    def rounds(self) -> int:
        """T."""
        return int(self.data["asked"]["rounds"])

    @property
    def regret(self) -> float:
        """Total pseudo-regret."""
        return float(self.data["regret"])


@dataclass(frozen=True)
class Refusal:
    """A file or a folder that is not used, why, and what to do."""

    path: Path
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}. {self.advice}."
