"""Where records are kept, and how they come there: cells in, records out.

    DIR/records/ID.json.gz    a file for each, where ID is the cell's readable name, a/b/seed3
    records.jsonl.gz          many in one file, to be published or submitted: a sealed record in each line

A record is written whole or not at all. One that was changed or damaged is refused, and only its own cell is lost. A
run can be stopped at any moment, by Ctrl-C or by a kill: the same call continues with the cells that are missing.

A reproduction of version 0.3 was published as one JSON object instead; `Record.of_object` reads it.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rarely.errors import InvalidInput
from rarely.runs.files import (
    LARGEST_FILE,
    Malformed,
    lock_folder,
    make_folder,
    read_json,
    reason_of,
    sealed_text,
    write_file,
    writing,
)
from rarely_lab.engine.cell import Cell, Result
from rarely_lab.engine.executors import Executor
from rarely_lab.engine.record import MixedRecords, Record, Refusal, check_id, identity

SUFFIX = ".json.gz"
COMPRESSION = 4
"""Gzip's level: the best takes four times as long for a tenth fewer bytes."""
ASIDE = ".refused"
"""The suffix of a refused record once its cell is played again."""

AnyRecord = TypeVar("AnyRecord", bound=Record)
AnyCell = TypeVar("AnyCell", bound=Cell)


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
                stored.records.append(self._read(path))
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
        stored, code_of = self.find(), self.record_type.fingerprint
        fitting, misfits = list[AnyRecord](), list[AnyRecord]()
        for record in stored.records:
            _, description = asked.get(record.id, (None, None))
            same = description is None or (
                record.data["identity"] == identity(description) and record.numerics == code_of(description)
            )
            (fitting if same else misfits).append(record)
        if misfits and not replace:
            first = misfits[0]
            raise MixedRecords(
                f"{self.folder} holds {len(misfits)} records made by other code or with other settings; {first.id}: "
                f"{_difference(first, asked[first.id][1])}. Use another --out, or --replace to play them "
                "again."
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

    def _read(self, path: Path) -> AnyRecord:
        record = self.record_type.read(read_json(path))
        if path != self.path(record.id):
            raise Malformed(f"it is the record of {record.id}, which belongs at {self.path(record.id)}")
        return record


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
    write_file(path, gzip.compress(lines.encode(), 9, mtime=0))


def read_packed(path: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of a packed file; a damaged line is refused, and the others are read."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise Malformed(f"it holds more than {LARGEST_FILE} characters; pack fewer records in each")
        if (whole := record_type.of_object(text)) is not None:
            return Found(whole, [])
    except (OSError, EOFError, ValueError, zlib.error) as error:
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


def read_records(source: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return the records of a folder or of a packed file, and what is refused; raise MixedRecords as they ask."""
    stored = find_records(source, record_type)
    check_together(source, record_type, stored.records)
    return stored


def find_records(source: Path, record_type: type[AnyRecord]) -> Found[AnyRecord]:
    """Return what `read_records` does, whether or not the records belong together."""
    return read_packed(source, record_type) if source.is_file() else Store(source, record_type).find()


def copy_records(records: Sequence[AnyRecord], store: Store[AnyRecord], progress: Callable[[int, int], None]) -> int:
    """Copy the records that a folder does not have yet, and return how many; `progress` hears how many are done."""
    new = [record for record in records if not store.path(record.id).exists()]
    for done, record in enumerate(new, 1):
        store.write(record, durable=False)
        progress(done, len(new))
    return len(new)


def run_cells(
    cells: Sequence[AnyCell],
    store: Store[Any],
    executor: Executor,
    *,
    replace: bool = False,
    started: Callable[[Sequence[AnyCell], Sequence[Refusal]], None] = lambda todo, refused: None,
    finished: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Play every cell that has no record in the store, and return the results of those that failed.

    `replace` removes records of these cells that other code made or that answer another question; without it, mixed
    records raise MixedRecords before anything is changed. One process at a time may write to a folder: the others get
    FolderBusy. `started` is called with the cells to be played and the files that are not records or were changed,
    `finished` with the result of each.
    """
    failures, folder = list[Result](), store.folder.parent
    make_folder(folder)
    with lock_folder(folder):
        todo, refused = store.missing(cells, replace=replace)
        started(todo, refused)
        for result in executor(todo) if todo else ():
            if result.record is not None and result.record.code != result.record.fingerprint(result.record.asked):
                # A machine of a cluster may have another version installed.
                reason = "it was played by another version of the code; install the same everywhere"
                result = Result(result.id, None, reason)
            if result.record is None:
                failures.append(result)
            else:
                store.write(result.record)
            finished(result)
    return failures


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
