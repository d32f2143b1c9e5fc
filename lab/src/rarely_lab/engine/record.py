"""A record: the sealed result of one finished cell.

format     1
kind       what sort of run it is: "reproduction", "comparison" …
id         the cell's readable name, and the record's place in its folder
asked      what was asked for; `identity` is its hash
code       the numerics of the code that made it: the golden digest of its family
…          what the run left
digest     of all of that, so that damage and edits show
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from rarely.extend import __version__
from rarely.extend.checks import InvalidInput, RarelyError
from rarely.golden import Families
from rarely.runs.files import Malformed, check_digest, digest_of

Value = TypeVar("Value")
FORMAT = 1
SAFE_PART = re.compile(r"[^/\\:\0]+")
"""A part of a record's id, which becomes a path: a record from elsewhere must not lead out of the folder."""


class MixedRecords(RarelyError):
    """Records that do not belong together."""


@dataclass(frozen=True)
class Refusal:
    """A file or a folder that is not used, why, and what to do."""

    path: Path
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}. {self.advice}."


class Stored(Generic[Value]):
    """A value of a record's JSON as an attribute: `seed = Stored(int, "asked", "seed")`."""

    def __init__(self, kind: Callable[..., Value], *path: str) -> None:
        self._kind, self._path = kind, path

    def __get__(self, record: Record | None, owner: type[Record]) -> Value:
        if record is None:  # of the class itself
            return cast(Value, self)
        return self._kind(reduce(getitem, self._path, record.data))


@dataclass(frozen=True)
class Record:
    """What is known of a finished cell."""

    kind: ClassVar[str]
    """The name of its kind, on file."""
    golden: ClassVar[Families | None] = None
    """Its golden families; None where the version of the package stands for its numbers."""
    advice: ClassVar[str] = "Run the same command again to play its cell anew, or remove the file"
    """What to do about a file that is refused."""

    data: dict[str, Any]

    @classmethod
    def of(cls, cell_id: str, asked: dict[str, Any], content: dict[str, Any]) -> Self:
        """Return the record of a cell that was just played by this code."""
        for name, value in content.items():
            try:
                json.dumps(value, allow_nan=False)
            except ValueError:
                raise InvalidInput(f"{name} of a finished run must be finite; it is, or holds, NaN or ∞.") from None
        head = {"format": FORMAT, "kind": cls.kind, "id": cell_id, "identity": identity(asked)}
        return cls({**head, "code": cls.fingerprint(asked), "asked": asked, **content})

    @classmethod
    def read(cls, data: dict[str, Any], text: str = "") -> Self:
        """Return the record in a JSON object, or raise Malformed if it is of another kind or was changed.

        The text that it was read from, where it is known, makes that check quick.
        """
        if data.get("format") != FORMAT or data.get("kind") != cls.kind:
            raise Malformed(
                f"it must be a {cls.kind} record of format {FORMAT}: its kind is {data.get('kind')!r}, its format "
                f"{data.get('format')!r}"
            )
        check_digest(data, text)
        check_id(data.get("id", ""))
        return cls(data)

    @classmethod
    def golden_family(cls, asked: dict[str, Any]) -> str | None:
        """Return the name of the golden family of what was asked for; None if it has none."""
        return None

    @classmethod
    def fingerprint(cls, asked: dict[str, Any]) -> str:
        """Return the numerics of this code for what is asked: a golden digest, or else the package's version."""
        name = cls.golden_family(asked)
        return f"rarely {__version__}" if cls.golden is None or name is None else cls.golden[name].golden.digest

    @property
    def numerics(self) -> str:
        """The golden digest that its code stands for: records with the same one belong together."""
        name = self.golden_family(self.asked)
        return self.code if self.golden is None or name is None else self.golden.numerics(name, self.code)

    @property
    def made_by(self) -> str:
        """The release that made it, if this code gives other numbers than that one; "" elsewhere."""
        name = self.golden_family(self.asked)
        return "" if self.golden is None or name is None else self.golden.made_by(name, self.code)

    @classmethod
    def check_together(cls, records: Sequence[Self], planned: Iterable[dict[str, Any]]) -> None:
        """Raise MixedRecords if the records, and those of cells to be played, do not belong in one folder."""

    @classmethod
    def of_object(cls, text: str) -> list[Self] | None:
        """Return the records of a file that is one JSON object; None if it is not, as all files are today."""
        return None

    def packed(self) -> dict[str, Any]:
        """Return its JSON as a file of many records keeps it: whole, unless a kind knows what it can leave out."""
        return self.data

    id = Stored(str, "id")
    """The cell's readable name."""
    asked = Stored(dict[str, Any], "asked")
    """What was asked for."""
    code = Stored(str, "code")
    """The golden digest of the code that made it; of records of 0.3 a hash of source files, now in `environment`."""


class PolicyRecord(Record):
    """The record of a policy's run of T rounds in a world, with its total pseudo-regret and its machine."""

    problem = Stored(str, "asked", "problem", "name")
    seed = Stored(int, "asked", "seed")
    rounds = Stored(int, "asked", "rounds")
    regret = Stored(float, "regret")
    machine = Stored(str, "environment", "machine")

    @property
    def seconds(self) -> float:
        """Processor time of the policy: selecting and training."""
        return float(self.data["seconds"]["selecting"] + self.data["seconds"]["training"])


def describe_records(records: Sequence[PolicyRecord], each: str) -> str:
    """Say how much was played, where and by which versions; `each` says what a record is."""
    machines = Counter(record.machine for record in records)
    environments = (record.data["environment"] for record in records)
    versions = sorted({f"rarely {e['rarely']}, Python {e['python']}, NumPy {e['numpy']}" for e in environments})
    hours = sum(record.seconds for record in records) / 3600
    many = "" if len(machines) == 1 else " Seconds of different machines do not compare."
    where = "; ".join(f"{name} ({count})" for name, count in machines.items())
    return (
        f"{len(records)} records ({each}), {hours:.2g} hours of processor time of the policies, on {where}. "
        f"{'; '.join(versions)}. Code {', '.join(sorted({record.code for record in records}))}.{many}"
    )


def outdated(records: Sequence[Record]) -> list[str]:
    """Say of which golden families this code no longer gives the numbers on record, and which release made them."""
    counts = Counter((record.golden_family(record.asked), made_by) for record in records if (made_by := record.made_by))
    return [
        f"The {count} records of {family} are made by {release}: this version gives other numbers."
        for (family, release), count in sorted(counts.items(), key=str)
    ]


def check_id(cell_id: str) -> None:
    """Refuse an id that is not a path inside a folder."""
    if not all(SAFE_PART.fullmatch(part) and part.strip(". ") for part in str(cell_id).split("/")):
        raise Malformed(f"its id must be names with '/' between them, not a path; it is {cell_id!r}")


def identity(description: dict[str, Any]) -> str:
    """Return a hash of canonical JSON."""
    return digest_of(description)[:16]
