"""Records in a folder, a file for each finished cell, and folders merged into one.

    DIR/records/PROBLEM/POLICY/B20/seed3.json.gz     as they are played
    records.jsonl.gz                                 packed for submission, a record in each line

A record that was changed or damaged is refused, and only its own cell is lost.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rarely.comparison.cells import Cell, identity
from rarely.comparison.records import ADVICE, FORMAT, KIND, Record, check_record, code_fingerprint
from rarely.core.errors import RarelyError
from rarely.core.saving.files import replacing
from rarely.simulation.json_object import JsonObject
from rarely.simulation.recorded_run import Refusal
from rarely.simulation.sealed_json import LARGEST_FILE, Malformed, check_digest, read_json, reason_of, sealed
from rarely.simulation.writing import make_folder, writing

SUFFIX = ".json.gz"
ASIDE = ".refused"


class MixedRecords(RarelyError):
    """Records that do not belong together."""


@dataclass(frozen=True)
class Found:
    """The records of a folder, and the files that are refused."""

    records: list[Record]
    refused: list[Refusal]


def path_of(folder: Path, cell_id: str) -> Path:
    """Where a cell's record is, or will be."""
    return folder / "records" / f"{cell_id}{SUFFIX}"


def write(folder: Path, record: Record) -> None:
    """Keep a record with its digest, whole or not at all."""
    path = path_of(folder, record.id)
    make_folder(path.parent)
    with writing(path), replacing(path) as file:
        file.write(gzip.compress(json.dumps(sealed(record.data), separators=(",", ":")).encode(), mtime=0))


def read_records(folder: str | Path) -> Found:
    """All records of a folder that belong together, and the files that are refused.

    Parameters
    ----------
    folder
        A folder that `rarely compare` wrote, or a file of packed records.

    Returns
    -------
    Found
        `records` in the order of their names, and `refused` files with reasons.

    Raises
    ------
    MixedRecords
        If records of one problem are of other rounds, or those of one policy of other code.

    Examples
    --------
    >>> import tempfile
    >>> from rarely.comparison import Comparison, compare, read_records
    >>> folder = tempfile.mkdtemp()
    >>> _ = compare(Comparison(["cosine"], ["linucb", "uniform"], [5], seeds=1, rounds=40), folder)
    >>> found = read_records(folder)
    >>> [record.id for record in found.records], found.refused
    (['cosine/linucb/B5/seed0', 'cosine/uniform/B5/seed0'], [])
    """
    found = _found(Path(folder))
    check_together(found.records)
    return found


def _found(folder: Path) -> Found:
    if folder.is_file():
        return _unpacked(folder)
    found = Found([], [])
    for path in sorted((folder / "records").rglob(f"*{SUFFIX}")):
        try:
            data = read_json(path)
            _check(data)
            if path != path_of(folder, data["id"]):
                raise Malformed(f"it is the record of {data['id']}, which belongs at {path_of(folder, data['id'])}")
        except Malformed as error:
            found.refused.append(Refusal(path, str(error), ADVICE))
        else:
            found.records.append(Record(data))
    return found


def _check(data: dict[str, Any]) -> None:
    JsonObject(data).one_of("format", (FORMAT,))
    check_digest(data)
    check_record(data)


def _unpacked(path: Path) -> Found:
    """The records of a packed file; a damaged line is refused, and the others are read."""
    found = Found([], [])
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = file.read(LARGEST_FILE).splitlines()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise MixedRecords(f"{path} is no file of packed records: {reason_of(error)}.") from error
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if not isinstance(data, dict):
                raise Malformed("it is no JSON object")
            _check(data)
        except (ValueError, RecursionError) as error:
            found.refused.append(Refusal(path / f"line {number}", reason_of(error), ADVICE))
        else:
            found.records.append(Record(data))
    return found


def pack(folder: Path, path: Path) -> int:
    """Write all records of a folder into one file for submission; how many there are."""
    records = read_records(folder).records
    lines = "".join(json.dumps(sealed(record.data), separators=(",", ":")) + "\n" for record in records)
    with writing(path), replacing(path) as file:
        file.write(gzip.compress(lines.encode(), mtime=0))
    return len(records)


def check_together(records: Iterable[Record]) -> None:
    """Refuse records that do not compare: one problem is one world of one length, one policy is one piece of code."""
    worlds: dict[str, tuple[int, str]] = {}
    played: dict[tuple[str, int], str] = {}
    codes: dict[str, tuple[str, str]] = {}
    for record in records:
        world = record.rounds, identity(record.data["asked"]["problem"])
        if worlds.setdefault(record.problem, world) != world:
            lengths = sorted({worlds[record.problem][0], record.rounds})
            raise MixedRecords(
                f"there would be two problems called {record.problem}: other data or settings, or other lengths "
                f"(T = {' and '.join(map(str, lengths))}). Keep them in folders of their own."
            )
        digest = record.data["rounds_digest"]
        if played.setdefault((record.problem, record.seed), digest) != digest:
            raise MixedRecords(
                f"{record.id} was played on other rounds than another record of {record.problem}, seed {record.seed}; "
                "their regrets do not compare. Play both with one version of rarely."
            )
        if codes.setdefault(record.policy, record.code) != record.code:
            raise MixedRecords(
                f"there would be records of {record.policy} made by two versions of the code. Use another folder, name "
                "one of them (--policy NAME=module:factory), or play them again with --replace."
            )


def missing(folder: Path, cells: Sequence[Cell], *, replace: bool = False) -> tuple[list[Cell], list[Refusal]]:
    """The cells without a record, and the files that are refused; nothing is changed where records would be mixed.

    With `replace` records of these cells that other code made, or that answer another question, are removed. A refused
    file of one of these cells gets another name, and its cell is missing.
    """
    asked = {cell.id: cell for cell in cells}
    found = _found(folder)
    fitting, misfits = list[Record](), list[Record]()
    for record in found.records:
        cell = asked.get(record.id)
        same = cell is None or (
            record.data["code"] == code_fingerprint() and record.data["identity"] == identity(cell.describe())
        )
        (fitting if same else misfits).append(record)
    if misfits and not replace:
        raise MixedRecords(
            f"{folder / 'records'} holds {len(misfits)} records made by other code or of another question, "
            f"{misfits[0].id} among them. Use another --out, or --replace to play them again."
        )
    check_together(fitting)
    places = {path_of(folder, name) for name in asked}
    for file in found.refused:
        if file.path in places:
            file.path.replace(file.path.with_name(file.path.name + ASIDE))
    for record in misfits:
        path_of(folder, record.id).unlink()
    done = {record.id for record in fitting}
    return [cell for name, cell in asked.items() if name not in done], found.refused


def merge(folders: Sequence[str | Path], out: str | Path) -> Found:
    """Copy the records of several folders into one, if they belong together.

    Parameters
    ----------
    folders
        Folders that `rarely compare` wrote, on this machine or on others, or files of packed records.
    out
        The folder that gets a copy of every record; it may hold records already.

    Returns
    -------
    Found
        All records of `out` afterwards, and the files that were refused.

    Raises
    ------
    MixedRecords
        If two records of one cell differ, or records do not compare. Then nothing is copied.

    Examples
    --------
    >>> import tempfile
    >>> from rarely.comparison import Comparison, compare, merge
    >>> folder = tempfile.mkdtemp()
    >>> _ = compare(Comparison(["cosine"], ["linucb", "uniform"], [5], seeds=1, rounds=40), folder)
    >>> found = merge([folder], tempfile.mkdtemp())
    >>> len(found.records), found.refused
    (2, [])
    """
    out = Path(out)
    records: dict[str, Record] = {}
    refused: list[Refusal] = []
    for folder in (out, *map(Path, folders)):
        if folder != out and not (folder.is_file() or (folder / "records").is_dir()):
            raise MixedRecords(f"{folder} has no records; name a folder or a packed file that rarely compare wrote.")
        found = _found(folder)
        refused += found.refused
        for record in found.records:
            known = records.setdefault(record.id, record)
            if known.regret != record.regret:
                raise MixedRecords(
                    f"two records of {record.id} differ (regret {known.regret:g} and {record.regret:g}); leave one "
                    "folder out, or name the policies apart."
                )
    check_together(records.values())
    present = {record.id for record in _found(out).records}
    for record in records.values():
        if record.id not in present:
            write(out, record)
    return Found(sorted(records.values(), key=lambda record: record.id), refused)


def is_comparison(folder: Path) -> bool:
    """Whether a folder holds records of `rarely compare`."""
    for path in (folder / "records").rglob(f"*{SUFFIX}"):
        try:
            return read_json(path).get("kind") == KIND
        except Malformed:
            continue
    return False
