"""Records, the sealed results of finished cells, and where they are kept.

    format     1
    kind       what sort of run it is: "reproduction", "comparison" …
    id         the cell's readable name, and the record's place in its folder
    asked      what was asked for; `identity` is its hash
    code       the numerics of the code that made it: the golden digest of its family
    …          what the run left
    digest     of all of that, so that damage and edits show

    DIR/records/ID.json.gz    a file for each, where ID is the cell's readable name, a/b/seed3
    records.jsonl.gz          many in one file, to be published or submitted: a sealed record in each line

A record is written whole or not at all. One that was changed or damaged is refused, and only its own cell is lost. A
reproduction of version 0.3 was published as one JSON object instead; `Record.of_object` reads it.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from rarely.extend import __version__
from rarely.extend.checks import InvalidInput, RarelyError
from rarely.golden import Families
from rarely.runs.files import (
    LARGEST_FILE,
    Malformed,
    check_digest,
    digest_of,
    read_json,
    reason_of,
    sealed_text,
    write_file,
    writing,
)

if TYPE_CHECKING:
    from rarely_lab.engine.cell import AnyCell

Value = TypeVar("Value")
AnyRecord = TypeVar("AnyRecord", bound="Record")
FORMAT = 1
SAFE_PART = re.compile(r"[^/\\:\0]+")
"""A part of a record's id, which becomes a path: a record from elsewhere must not lead out of the folder."""
SUFFIX = ".json.gz"
PACKED = (".gz", ".xz")  # endings of files of many records; .xz takes twice as long to write, and a third less space
COMPRESSION = 4  # gzip's level: the best takes four times as long for a tenth fewer bytes
ASIDE = ".refused"  # the suffix of a refused record once its cell is played again


class MixedRecords(RarelyError):
    """Records that do not belong together."""


class NothingOnRecord(RarelyError):
    """There are no records, or none of which anything can be said."""


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

    kind: ClassVar[str]  # its name, on file
    golden: ClassVar[Families]  # where there is a `golden_family`
    advice: ClassVar[str] = "Run the same command again to play its cell anew, or remove the file"  # if it is refused

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
        """Return the name of the golden family of what was asked for; None if the version stands for the numbers."""
        return None

    @classmethod
    def fingerprint(cls, asked: dict[str, Any]) -> str:
        """Return the numerics of this code for what is asked: a golden digest, or else the package's version."""
        name = cls.golden_family(asked)
        return cls.golden[name].golden.digest if name else f"rarely {__version__}"

    @property
    def numerics(self) -> str:
        """The golden digest that its code stands for: records with the same one belong together."""
        name = self.golden_family(self.asked)
        return self.golden.numerics(name, self.code) if name else self.code

    @property
    def fits(self) -> bool:
        """Whether this code would give its numbers again."""
        return self.numerics == self.fingerprint(self.asked)

    def answers(self, asked: dict[str, Any]) -> bool:
        """Return whether it is what playing a cell with this description would give."""
        return self.data["identity"] == identity(asked) and self.fits

    @property
    def made_by(self) -> str:
        """The release that made it, if this code gives other numbers than that one; "" elsewhere."""
        name = self.golden_family(self.asked)
        return self.golden.made_by(name, self.code) if name else ""

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

    id = Stored(str, "id")  # the cell's readable name
    asked = Stored(dict[str, Any], "asked")
    code = Stored(str, "code")
    """The golden digest of the code that made it; of records of 0.3 a hash of source files, now in `environment`."""
    problem = Stored(str, "asked", "problem", "name")
    seed = Stored(int, "asked", "seed")
    rounds = Stored(int, "asked", "rounds")
    regret = Stored(float, "regret")  # the total pseudo-regret of its run
    machine = Stored(str, "environment", "machine")

    @property
    def seconds(self) -> float:
        """Processor time of the policy: selecting and training."""
        return float(self.data["seconds"]["selecting"] + self.data["seconds"]["training"])


def describe_records(records: Sequence[Record], each: str) -> str:
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


def at_odds(pairs: Iterable[tuple[Any, Any]]) -> tuple[Any, Any, Any] | None:
    """Return a name that comes with two values, and both; None where each has one.

    >>> at_odds([("a", 1), ("b", 2), ("a", 1)]), at_odds([("a", 1), ("a", 2)])
    (None, ('a', 1, 2))
    """
    first: dict[Any, Any] = {}
    return next(((name, first[name], other) for name, other in pairs if first.setdefault(name, other) != other), None)


def check_id(cell_id: str) -> None:
    """Refuse an id that is not a path inside a folder."""
    if not all(SAFE_PART.fullmatch(part) and part.strip(". ") for part in str(cell_id).split("/")):
        raise Malformed(f"its id must be names with '/' between them, not a path; it is {cell_id!r}")


def group_of(cell_id: str) -> str:
    """Return the name of a cell without its run: what it has in common with other runs of its kind."""
    return cell_id.rpartition("/")[0]


def identity(description: dict[str, Any]) -> str:
    """Return a hash of canonical JSON."""
    return digest_of(description)[:16]


# --- where they are kept


@dataclass(frozen=True)
class Found(Generic[AnyRecord]):
    """The records of a folder, and the files that are refused."""

    records: list[AnyRecord]
    refused: list[Refusal]

    def warnings(self, out: Path, page: str) -> list[str]:
        """Say how many files are refused, which and why, if any: what a page from the records in `out` must show."""
        if not self.refused:
            return []
        each = "; ".join(f"{file.path.relative_to(out).as_posix()} ({file.reason})" for file in self.refused)
        were, it = ("1 file was", "it") if len(self.refused) == 1 else (f"{len(self.refused)} files were", "them")
        return [f"{were} refused, and this {page} leaves {it} out: {each}."]


class Store(Generic[AnyRecord]):
    """The records of one folder, all of one type."""

    def __init__(self, folder: Path, record_type: type[AnyRecord]) -> None:
        self.folder, self.record_type = folder / "records", record_type

    def path(self, cell_id: str) -> Path:
        """Return where a cell's record is, or will be."""
        check_id(cell_id)
        return self.folder / f"{cell_id}{SUFFIX}"

    def write(self, record: Record, *, durable: bool = True) -> None:
        """Keep a record with its digest, whole or not at all; a copy need not be durable, for it can be made again."""
        path, content = self.path(record.id), gzip.compress(sealed_text(record.data).encode(), COMPRESSION, mtime=0)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if durable:
                write_file(path, content)
            else:
                path.with_name(f"{path.name}.part").write_bytes(content)
                path.with_name(f"{path.name}.part").replace(path)

    def find(self) -> Found[AnyRecord]:
        """Return all records in the order of their names, and the files that are refused."""
        paths, folders = self._files()
        stored = Found[AnyRecord]([], folders)
        for path in paths:
            try:
                record = self.record_type.read(read_json(path))
                if path != self.path(record.id):
                    raise Malformed(f"it is the record of {record.id}, which belongs at {self.path(record.id)}")
                stored.records.append(record)
            except Malformed as error:
                stored.refused.append(Refusal(path, str(error), self.record_type.advice))
        return stored

    def missing(self, cells: Iterable[AnyCell], *, replace: bool = False) -> tuple[list[AnyCell], list[Refusal]]:
        """Return the cells without a record, and all refused files; raise MixedRecords before anything is changed.

        With `replace`, records of these cells that other code made or that answer another question are removed, and
        their cells are missing. A refused file of one of these cells is put aside under another name, and its cell is
        missing; those of other cells are never touched.
        """
        asked = {cell.id: (cell, cell.describe()) for cell in cells}
        stored, fitting, misfits = self.find(), list[AnyRecord](), list[AnyRecord]()
        for record in stored.records:
            same = record.id not in asked or record.answers(asked[record.id][1])
            (fitting if same else misfits).append(record)
        if misfits and not replace:
            first = misfits[0]
            raise MixedRecords(
                f"{self.folder} holds {len(misfits)} records made by other code or with other settings; {first.id}: "
                f"{_difference(first, asked[first.id][1])}. Use another --out, or --replace to play them again."
            )
        check_together(self.folder, self.record_type, fitting, [description for _, description in asked.values()])
        places = {self.path(name) for name in asked}
        for file in stored.refused:
            if file.path in places:
                _put_aside(file.path)
        for record in misfits:
            self.path(record.id).unlink()
        done = {record.id for record in fitting}
        return [cell for name, (cell, _) in asked.items() if name not in done], stored.refused

    def _files(self) -> tuple[list[Path], list[Refusal]]:
        """Return the files that should be records, and the folders that cannot be looked into."""
        paths, refused = list[Path](), list[Refusal]()

        def refuse(error: OSError) -> None:
            advice = "Allow its reading, or remove the folder"
            refused.append(Refusal(Path(error.filename), f"it cannot be read ({reason_of(error)})", advice))

        for folder, folders, files in os.walk(self.folder, onerror=refuse if self.folder.exists() else None):
            paths += [Path(folder, name) for name in (*folders, *files) if name.endswith(SUFFIX)]
            for path in (Path(folder, name) for name in folders if not name.endswith(SUFFIX)):
                if path.is_symlink():
                    advice = "Move the folder to where the link is, or remove the link"
                    refused.append(Refusal(path, "it is a link to a folder, which is not followed", advice))
        return sorted(paths), refused


def check_together(
    place: Path, kind: type[AnyRecord], records: Sequence[AnyRecord], planned: Sequence[dict[str, Any]] = ()
) -> None:
    """Raise MixedRecords, which names the place, if records there do not belong together."""
    try:
        kind.check_together(records, planned)
    except MixedRecords as error:
        raise MixedRecords(f"{place}: {error}") from None


def pack(records: Sequence[AnyRecord], path: Path) -> None:
    """Write records into one file."""
    lines = "".join(sealed_text(record.packed()) + "\n" for record in records)
    small = path.suffix == PACKED[1]
    write_file(path, lzma.compress(lines.encode()) if small else gzip.compress(lines.encode(), 9, mtime=0))


def read_packed(path: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of a packed file, or of a folder of such files; a damaged line is refused, others are read."""
    if path.is_dir():
        return _read_pieces(path, record_type)
    try:
        with (lzma if path.suffix == PACKED[1] else gzip).open(path, "rt", encoding="utf-8") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise Malformed(f"it holds more than {LARGEST_FILE} characters; pack fewer records in each")
        if (whole := record_type.of_object(text)) is not None:
            return Found(whole, [])
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInput(f"{path} is not a file of packed records: {reason_of(error)}.") from error
    records, refused, shared = list[AnyRecord](), list[Refusal](), dict[str, Any]()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            data = json.loads(line)
            if not isinstance(data, dict):
                raise Malformed("it is not a JSON object")
            record = record_type.read(data, line)
        except (ValueError, RecursionError) as error:
            refused.append(Refusal(path / f"line {number}", reason_of(error), record_type.advice))
            continue
        for parts in (data, data["asked"]):  # what most records have in common is kept once
            parts |= {name: shared.setdefault(repr(part), part) for name, part in parts.items() if type(part) is dict}
        records.append(record)
    return Found(records, refused)


def is_packed(path: Path) -> bool:
    """Return whether it is a file, which may have any name and holds packed records, or a folder of such files."""
    if not path.is_dir() or (path / "records").is_dir():
        return path.is_file()
    return any(piece.suffix in PACKED for piece in path.iterdir())


def _read_pieces(folder: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of all packed files in the order of their names, of which a later one replaces an earlier.

    So does its code: where two made records of one family, those of the earlier code are left out. A policy without a
    family is one of the user's own, whose records say nothing about those of others.
    """

    def made(record: AnyRecord) -> str:
        return record.golden_family(record.asked) or group_of(record.id)

    pieces = [read_packed(piece, record_type) for piece in sorted(folder.iterdir()) if piece.suffix in PACKED]
    latest, records = dict[str, str](), dict[str, AnyRecord]()
    for piece in pieces:
        latest |= {made(record): record.numerics for record in piece.records}
        records |= {record.id: record for record in piece.records}
    current = [record for record in records.values() if record.numerics == latest[made(record)]]
    return Found(current, [refusal for piece in pieces for refusal in piece.refused])


def read_records(source: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of a folder or of a packed file, and what is refused; raise MixedRecords as they ask."""
    stored = find_records(source, record_type)
    check_together(source, record_type, stored.records)
    return stored


def find_records(source: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return what `read_records` does, whether or not the records belong together."""
    return read_packed(source, record_type) if is_packed(source) else Store(source, record_type).find()


def copy_records(records: Sequence[AnyRecord], store: Store[AnyRecord], progress: Callable[[int, int], None]) -> int:
    """Copy the records that a folder does not have yet, and return how many; `progress` hears how many are done."""
    new = [record for record in records if not store.path(record.id).exists()]
    for done, record in enumerate(new, 1):
        store.write(record, durable=False)
        progress(done, len(new))
    return len(new)


def _put_aside(path: Path) -> None:
    """Rename a refused file to a free name: somebody may still want it."""
    number, aside = 1, path.with_name(f"{path.name}{ASIDE}")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}{ASIDE}{number}")
    path.rename(aside)


def _difference(record: Record, asked: dict[str, Any]) -> str:
    on_record, wanted = _flat(record.asked), _flat(asked)
    for name in sorted(on_record.keys() | wanted.keys()):
        if on_record.get(name) != wanted.get(name):
            return f"{name} is {on_record.get(name)} on record, {wanted.get(name)} is asked for"
    family = record.golden_family(asked)
    return f"code {record.code} made it, this is {record.fingerprint(asked)}{f' in family {family}' if family else ''}"


def _flat(nested: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= {f"{name} {key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    return flat
