"""A session on file, and how another one compares with it.

A figure has moved when one of the two is more than 1 + tolerance times the other: machines are noisy by tens
of per cent, even in ratios.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rarely.bench.measure import Figure
from rarely.bench.session import Session
from rarely.core.errors import RarelyError

FORMAT = 1
TOLERANCE = 0.25
Verdict = Literal["worse", "better", "same", "new", "not measured"]
MATTERS = {"machine": "machine", "system": "system", "python": "Python", "numpy": "NumPy"}
MATTERS |= {"passes": "kind of passes", "threads": "number of threads"}
"""Where figures may differ though the library is the same."""


class BrokenBaseline(RarelyError):
    """A baseline cannot be read."""


@dataclass(frozen=True)
class Change:
    """A figure now and then."""

    name: str
    now: Figure | None
    then: Figure | None
    verdict: Verdict

    @property
    def growth(self) -> float | None:
        """By what part of the baseline the value grew, for better or worse; None where there are not two."""
        if self.now is None or self.then is None or self.verdict == "new":
            return None
        return self.now.value / self.then.value - 1


def compare(now: Sequence[Figure], then: Sequence[Figure], tolerance: float = TOLERANCE) -> list[Change]:
    """Every figure of either, those of now first."""
    before = {figure.name: figure for figure in then}
    changes = [_change(figure, before.pop(figure.name, None), tolerance) for figure in now]
    return changes + [Change(name, None, figure, "not measured") for name, figure in before.items()]


def _change(now: Figure, then: Figure | None, tolerance: float) -> Change:
    # A figure in another unit is another figure, whatever its name.
    if then is None or (now.unit, now.better) != (then.unit, then.better) or then.value <= 0:
        return Change(now.name, now, then, "new")
    small, large = sorted((now.value, then.value))
    if large <= small * (1 + tolerance):
        return Change(now.name, now, then, "same")
    return Change(now.name, now, then, "better" if (now.value == large) == (now.better == "higher") else "worse")


def differences(now: Session, then: Session) -> list[str]:
    """In what the baseline was made elsewhere, in words."""
    return [
        f"the baseline is of another {words}: {then.made.get(name)} there, {now.made.get(name)} here"
        for name, words in MATTERS.items()
        if then.made.get(name) != now.made.get(name)
    ]


def write(path: Path, session: Session, changes: Sequence[Change] = ()) -> None:
    """Keep a session, whole or not at all; with changes, what they came to."""
    document = {"format": FORMAT, **asdict(session)}
    if changes:
        document["changes"] = [
            {
                "name": change.name,
                "verdict": change.verdict,
                "now": change.now.value if change.now else None,
                "then": change.then.value if change.then else None,
            }
            for change in changes
        ]
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path) -> Session:
    """The inverse of `write`, changes aside."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"]
        if found == FORMAT:
            figures = [Figure(**figure) for figure in document["figures"]]
            return Session(document["made"], document["rates"], figures, document["skipped"], document["failed"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenBaseline(
            f"{path} is no baseline that can be read ({type(error).__name__}: {error}). "
            f"Make another: rarely bench --save {path}"
        ) from error
    raise BrokenBaseline(
        f"{path} has format {found}; this version reads {FORMAT}. Make another: rarely bench --save {path}"
    )
