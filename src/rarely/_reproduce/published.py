"""Records in one small file, to be kept beside code: all that a report needs, and a digest of each original.

    records.json.gz    {"format", "code", "worlds", "environments", "records", "digest"}

A regret curve is thinned to the points that figures show, with the digest of the whole curve, so that equal runs are
still known to be equal. log det Z is kept at its end alone. A report from the file is the report from the folder,
letter by letter.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rarely._core.errors import InvalidInput
from rarely._reproduce.records import Record, Store
from rarely._runs.record import FORMAT as RECORD_FORMAT
from rarely._runs.record import MixedRecords, identity
from rarely._runs.sealed_json import DIGEST, Malformed, check_digest, read_json, sealed_text
from rarely._runs.writing import write_file

FORMAT = "rarely records 1"
OPTIONAL = {"near_ties"}
PLAIN = ("id", "regret", "reward", "right", "seconds", "wall", "peak_memory")
"""Fields that are kept as they are, the optional ones where they are there."""
SHORT = 16
"""Digits of a digest that are kept: enough to know a record again."""


def publish(records: Sequence[Record], path: Path) -> int:
    """Write the records of one report into one file, and return its size in bytes."""
    if not records:
        raise InvalidInput("there are no records to publish.")
    worlds, environments = list[Any](), list[Any]()
    content = {
        "format": FORMAT,
        "code": records[0].data["code"],
        "records": [_compact(r, worlds, environments) for r in records],
        "worlds": worlds,
        "environments": environments,
    }
    packed = gzip.compress(sealed_text(content).encode(), 9, mtime=0)
    write_file(path, packed)
    return len(packed)


def unpack(path: Path, out: Path) -> int:
    """Copy published records into a folder, to be continued there, and return how many were not there yet.

    Raises MixedRecords, before anything is written, if another version of the code made them.
    """
    records, store = read_published(path), Store(out)
    if records and records[0].code != (code := Record.fingerprint()):
        raise MixedRecords(
            f"{path} was made by code {records[0].code}, and this is {code}, whose numbers may differ. Continue it "
            "with the version that made it, or play all of it anew without --from."
        )
    new = [record for record in records if not store.path(record.id).exists()]
    for record in new:
        data = {"format": RECORD_FORMAT, "kind": Record.kind, "original": record.data[DIGEST]} | record.data
        store.write(Record({name: value for name, value in data.items() if name != DIGEST}))
    return len(new)


def read_published(path: Path) -> list[Record]:
    """Return the records of such a file, as a report reads them; raise InvalidInput if it was changed."""
    try:
        content = read_json(path)
        if content.get("format") != FORMAT:
            raise Malformed(f"format must be {FORMAT}; it is {content.get('format')!r}")
        check_digest(content)
        return [_expanded(record, content) for record in content["records"]]
    except Malformed as error:
        raise InvalidInput(f"{path} is refused: {error}. Publish the records again, with rarely report.") from error


def _place(value: Any, among: list[Any]) -> int:
    """Return where a value is in a list, and add it at the end if it is not there."""
    if value not in among:
        among.append(value)
    return among.index(value)


def _compact(record: Record, worlds: list[Any], environments: list[Any]) -> dict[str, Any]:
    data, updates = record.data, record.data["updates"]
    asked = data["asked"]
    world = {name: asked[name] for name in ("problem", "world", "reading", "rounds")}
    at = updates["rounds"]
    every = at == list(range(1, len(at) + 1))
    return {name: data[name] for name in (*PLAIN, *OPTIONAL) if name in data} | {
        "world": _place(world, worlds),
        "environment": _place(data["environment"], environments),
        "configuration": asked["configuration"],
        "seed": asked["seed"],
        "original": data.get("original", data[DIGEST])[:SHORT],
        "curve": record.curve_points[1].tolist(),
        "curve_digest": record.curve_digest,
        "updates": updates | {"rounds": len(at) if every else at, "log_det": []},
        "log_det": [data["log_det"][0], data["log_det"][-1]],
    }


def _expanded(kept: dict[str, Any], content: dict[str, Any]) -> Record:
    asked = content["worlds"][kept["world"]] | {"configuration": kept["configuration"], "seed": kept["seed"]}
    rounds = kept["updates"]["rounds"]
    updates = kept["updates"] | {"rounds": list(range(1, rounds + 1)) if isinstance(rounds, int) else rounds}
    data = {name: kept[name] for name in (*PLAIN, *(OPTIONAL & kept.keys()))} | {
        "identity": identity(asked),
        "code": content["code"],
        "asked": asked,
        "environment": content["environments"][kept["environment"]],
        "curve_points": kept["curve"],
        "curve_digest": kept["curve_digest"],
        "updates": updates,
        "log_det": kept["log_det"],
        DIGEST: kept["original"],
    }
    return Record(data)
