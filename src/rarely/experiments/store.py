"""The records of one folder, a file for each finished cell.

    DIR/records/PROBLEM/READING/CONFIGURATION/seedN.json.gz

A record is written under another name and then renamed, so it is whole or not there. A record that was changed or
damaged is refused, and only its own cell is lost.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rarely.experiments.catalogue import world_of
from rarely.experiments.config import Cell, identity
from rarely.experiments.record_checks import check_record
from rarely.experiments.records import ADVICE, FORMAT, WITHOUT_DIGEST, BrokenRecord, MixedRecords, Record
from rarely.simulation.json_object import JsonObject
from rarely.simulation.provenance import code_fingerprint
from rarely.simulation.recorded_run import Refusal
from rarely.simulation.sealed_json import DIGEST, Malformed, check_digest, read_json, reason_of, sealed
from rarely.simulation.writing import writing

SUFFIX = ".json.gz"
PART = ".part"
"""What a file is called while it is written."""
ASIDE = ".refused"
"""The suffix of a refused record once its cell is played again."""
PER_VIEW = ("dim", "view", "constant", "context_scale")
"""What differs between the views of one world."""


@dataclass(frozen=True)
class Found:
    """The records of a folder, and the files that are refused."""

    records: list[Record]
    refused: list[Refusal]


class Store:
    """The records of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "records"

    def path(self, cell_id: str) -> Path:
        """Where a cell's record is, or will be."""
        return self.folder / f"{cell_id}{SUFFIX}"

    def write(self, record: Record) -> None:
        """Keep a record with its digest, whole or not at all."""
        path = self.path(record.id)
        text = json.dumps(sealed(record.data | {"format": FORMAT}), separators=(",", ":"))
        part = path.with_name(f"{path.name}{PART}")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(part, "wb") as file:
                    file.write(gzip.compress(text.encode(), mtime=0))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)  # there only if Ctrl-C came, or the disk is full

    def examine(self) -> Found:
        """All records in the order of their names, and the files that are refused; the records must belong together."""
        found = self._found()
        codes = {record.data["code"] for record in found.records}
        if len(codes) > 1:
            raise MixedRecords(
                f"{self.folder} holds records of {len(codes)} versions of the code ({', '.join(sorted(codes))}), "
                "whose numbers may differ. Run reproduce with --replace, or keep them in folders of their own."
            )
        self._check_together(record.data["asked"] for record in found.records)
        return found

    def read(self) -> list[Record]:
        """All records, as `examine` has them; one that is refused is an error here."""
        found = self.examine()
        if found.refused:
            raise BrokenRecord(str(found.refused[0]))
        return found.records

    def missing(
        self,
        cells: Iterable[Cell],
        *,
        replace: bool = False,
        refused: Callable[[Sequence[Refusal]], None] = lambda files: None,
    ) -> list[Cell]:
        """The cells without a record; refused, before anything is played, where records would be mixed.

        With `replace` the records of these cells that come from other code or answer another question are
        removed, and their cells are missing. A file of one of these cells that is no record, or a changed one, is put
        aside under another name, and its cell is missing; `refused` hears of such files, also those of other cells,
        which are never touched.
        """
        asked = {cell.id: (cell, cell.describe(world_of(cell))) for cell in cells}
        fitting, misfits, found = list[Record](), list[Record](), self._found()
        for record in found.records:
            same = record.data["code"] == code_fingerprint()
            if record.id in asked:
                same = same and record.data["identity"] == identity(asked[record.id][1])
            (fitting if same else misfits).append(record)
        others = [record.id for record in misfits if record.id not in asked]
        if others:
            raise MixedRecords(
                f"{self.folder} holds {len(others)} records of other cells that were made by other code, {others[0]} "
                "among them. Use another --out, or ask for those cells too, with --replace."
            )
        if misfits and not replace:
            first = misfits[0]
            raise MixedRecords(
                f"{self.folder} holds {len(misfits)} records made by other code or with other settings; {first.id}: "
                f"{_difference(first.data, asked[first.id][1])}. Use another --out, or --replace to play them again."
            )
        self._check_together([*(r.data["asked"] for r in fitting), *(description for _, description in asked.values())])
        if found.refused:
            refused(found.refused)
        places = {self.path(name) for name in asked}
        for file in found.refused:
            if file.path in places:
                _put_aside(file.path)
        for record in misfits:
            self.path(record.id).unlink()
        for part in self.folder.glob(f"**/*{PART}"):
            part.unlink()  # left behind by a run that was killed
        done = {record.id for record in fitting}
        return [cell for name, (cell, _) in asked.items() if name not in done]

    def _check_together(self, asked: Iterable[dict[str, Any]]) -> None:
        """Under one problem's name there must be one problem, of one length."""
        known: dict[str, tuple[Any, ...]] = {}
        for one in asked:
            world = {name: value for name, value in one["world"].items() if name not in PER_VIEW}
            own = (one["problem"], world, one["rounds"])
            name = one["problem"]["name"]
            if known.setdefault(name, own) != own:
                raise MixedRecords(
                    f"{self.folder} would hold two problems called {name}: other data, settings or lengths "
                    f"(T = {known[name][2]} and {one['rounds']}). Keep them in folders of their own."
                )

    def _found(self) -> Found:
        paths, folders = self._files()
        found = Found([], folders)
        for path in paths:
            try:
                found.records.append(self._read(path))
            except Malformed as error:
                found.refused.append(Refusal(path, str(error), ADVICE))
        return found

    def _files(self) -> tuple[list[Path], list[Refusal]]:
        """The files that should be records, and the folders that cannot be looked into."""
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

    def _read(self, path: Path) -> Record:
        data = read_json(path)
        if JsonObject(data).one_of("format", (WITHOUT_DIGEST, FORMAT)) == FORMAT or DIGEST in data:
            check_digest(data)
        check_record(data)
        if path != self.path(data["id"]):
            raise Malformed(f"it is the record of {data['id']}, which belongs at {self.path(data['id'])}")
        return Record(data)


def _put_aside(path: Path) -> None:
    """Rename a refused file to a free name: somebody may still want it."""
    number, aside = 1, path.with_name(f"{path.name}{ASIDE}")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}{ASIDE}{number}")
    path.rename(aside)


def _difference(data: dict[str, Any], asked: dict[str, Any]) -> str:
    """In what a record differs from what is asked for."""
    on_record, wanted = _flat(data["asked"]), _flat(asked)
    for name in sorted(on_record.keys() | wanted.keys()):
        if on_record.get(name) != wanted.get(name):
            return f"{name} is {on_record.get(name)} on record, {wanted.get(name)} is asked for"
    return f"code {data['code']} made it, this is {code_fingerprint()}"


def _flat(nested: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        inner = {f"{name} {key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
        flat |= inner
    return flat
