"""Records in one small file, to be kept beside code: all that a report needs, and a digest of each original.

    records.json.gz    {"format", "code", "worlds", "environments", "records", "digest"}

A regret curve is thinned to the points that figures show, with the digest of the whole curve, so that equal runs are
still told to be equal. log det Z is thinned likewise, and kept only at its end for all but the first run of a
configuration, which is the one that figures show. A report from the file is the report from the folder, letter by
letter.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rarely.core.errors import InvalidInput
from rarely.experiments.config import identity
from rarely.experiments.records import Record
from rarely.simulation.json_object import JsonObject
from rarely.simulation.sealed_json import DIGEST, Malformed, check_digest, read_json, sealed
from rarely.simulation.writing import writing

FORMAT = "rarely records 1"
PLAIN = ("id", "identity", "regret", "reward", "right", "seconds", "wall", "peak_memory")
"""Fields that are kept as they are."""


def publish(records: Sequence[Record], path: Path) -> int:
    """Write the records of one report into one file; returns its size in bytes."""
    if not records:
        raise InvalidInput("there are no records to publish.")
    shared = _Shared([], [])
    first: dict[str, int] = {}
    for record in records:
        name = record.id.rpartition("/")[0]
        first[name] = min(record.seed, first.get(name, record.seed))
    content = {
        "format": FORMAT,
        "code": records[0].data["code"],
        "records": [_compact(r, shared, r.seed == first[r.id.rpartition("/")[0]]) for r in records],
        "worlds": shared.worlds,
        "environments": shared.environments,
    }
    text = gzip.compress(json.dumps(sealed(content), separators=(",", ":")).encode(), 9, mtime=0)
    part = path.with_name(f"{path.name}.part")
    with writing(path):
        try:
            part.write_bytes(text)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return len(text)


def read_published(path: Path) -> list[Record]:
    """The records of such a file, as a report reads them; refused if it was changed after it was written."""
    try:
        content = read_json(path)
        JsonObject(content).one_of("format", (FORMAT,))
        check_digest(content)
        return [_expanded(record, content) for record in content["records"]]
    except Malformed as error:
        raise InvalidInput(f"{path} is refused: {error}. Publish the records again, with rarely report.") from error
    except (KeyError, IndexError, TypeError) as error:
        raise InvalidInput(f"{path} is refused: it is no file of published records ({error!r}).") from error


class _Shared:
    """What many records have in common, told once."""

    def __init__(self, worlds: list[Any], environments: list[Any]) -> None:
        self.worlds, self.environments = worlds, environments

    @staticmethod
    def place(value: Any, among: list[Any]) -> int:
        """Where a value is in a list, added at its end if it is not."""
        if value not in among:
            among.append(value)
        return among.index(value)


def _compact(record: Record, shared: _Shared, first: bool) -> dict[str, Any]:
    data, updates = record.data, record.data["updates"]
    asked = data["asked"]
    world = {
        "problem": asked["problem"],
        "world": asked["world"],
        "reading": asked["reading"],
        "rounds": asked["rounds"],
    }
    at = updates["rounds"]
    every = at == list(range(1, len(at) + 1))
    return {name: data[name] for name in PLAIN} | {
        "world": shared.place(world, shared.worlds),
        "environment": shared.place(data["environment"], shared.environments),
        "configuration": asked["configuration"],
        "seed": asked["seed"],
        "original": data.get(DIGEST, ""),
        "curve": record.curve_points[1].tolist(),
        "curve_digest": record.curve_digest,
        "updates": updates | {"rounds": len(at) if every else at, "log_det": updates["log_det"] if first else []},
        "log_det": record.log_det_points.tolist() if first else [data["log_det"][0], data["log_det"][-1]],
    }


def _expanded(kept: dict[str, Any], content: dict[str, Any]) -> Record:
    asked = content["worlds"][kept["world"]] | {"configuration": kept["configuration"], "seed": kept["seed"]}
    if kept["identity"] != identity(asked):
        raise Malformed(f"the identity of {kept['id']} is not that of what was asked")
    rounds = kept["updates"]["rounds"]
    updates = kept["updates"] | {"rounds": list(range(1, rounds + 1)) if isinstance(rounds, int) else rounds}
    data = {name: kept[name] for name in PLAIN} | {
        "code": content["code"],
        "asked": asked,
        "environment": content["environments"][kept["environment"]],
        "curve_points": kept["curve"],
        "curve_digest": kept["curve_digest"],
        "updates": updates,
        "log_det": kept["log_det"],
    }
    return Record(data | ({DIGEST: kept["original"]} if kept["original"] else {}))
