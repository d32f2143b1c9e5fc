"""One file for each finished cell: everything that tables, figures and claims are made of.

    DIR/records/PROBLEM/READING/CONFIGURATION/seedN.json.gz

A record is written under another name and then renamed, so it is whole or not there. It carries the
identity of what was asked for and the fingerprint of the code that answered.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rarely.core.errors import RarelyError
from rarely.core.types import Array
from rarely.lab.catalogue import world_of
from rarely.lab.config import Cell, Configuration, identity
from rarely.lab.environment import code_fingerprint, describe, peak_memory
from rarely.lab.play import Played

FORMAT = 1
CAUSES = {"fixed": "grid", "adaptive": "determinant"}


class MixedRecords(RarelyError):
    """A folder holds records that do not belong together."""


class BrokenRecord(RarelyError):
    """A record cannot be read."""


@dataclass(frozen=True)
class Record:
    """What is known of a finished cell."""

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
    def base(self) -> str:
        """The problem of the paper that it is or varies."""
        return str(self.data["asked"]["problem"]["base"])

    @property
    def reading(self) -> str:
        """A preset, or for a linear configuration a view."""
        return str(self.data["asked"]["reading"])

    @cached_property
    def configuration(self) -> Configuration:
        """The policy."""
        return Configuration(**self.data["asked"]["configuration"])

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

    @cached_property
    def curve(self) -> Array:
        """Pseudo-regret so far after each round, (T,)."""
        return np.array(self.data["curve"], np.float64)

    @property
    def updates(self) -> list[int]:
        """The rounds after which a new version came into use."""
        return [int(t) for t in self.data["updates"]["rounds"]]

    @property
    def seconds(self) -> float:
        """Processor time of the policy: selecting and training."""
        return float(self.data["seconds"]["selecting"] + self.data["seconds"]["training"])

    @property
    def log_dets(self) -> Array:
        """(round, log det Z − log det λI) in rows."""
        return np.array(self.data["log_det"], np.float64)

    @property
    def machine(self) -> str:
        """Where it was played."""
        return str(self.data["environment"]["machine"])


def make_record(cell: Cell, played: Played, wall: float) -> Record:
    """The record of a cell that was just played in this process."""
    asked = cell.describe(world_of(cell))
    updates = played.policy.updates
    data = {
        "format": FORMAT,
        "id": cell.id,
        "identity": identity(asked),
        "code": code_fingerprint(),
        "asked": asked,
        "regret": float(played.regrets.sum()),
        "curve": [round(float(r), 4) for r in np.cumsum(played.regrets)],
        "reward": played.reward,
        "right": played.right,
        "updates": {
            "cause": CAUSES.get(cell.configuration.kind, "every round"),
            "rounds": [u.round for u in updates if u.accepted],
            "log_det": [round(u.log_det, 4) for u in updates if u.accepted],
            "attempts": sum(u.attempts for u in updates),
            "rejected": [[u.round, u.reason] for u in updates if not u.accepted],
        },
        "log_det": [[t, round(value, 4)] for t, value in played.log_dets],
        "seconds": {"selecting": played.selecting.seconds, "training": played.training.seconds},
        "wall": {"selecting": played.selecting.wall, "training": played.training.wall, "cell": wall},
        "peak_memory": peak_memory(),
        "environment": describe(),
    }
    return Record(data)


class Store:
    """The records of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "records"

    def path(self, cell_id: str) -> Path:
        """Where a cell's record is, or will be."""
        return self.folder / f"{cell_id}.json.gz"

    def write(self, record: Record) -> None:
        """Keep a record, whole or not at all."""
        path = self.path(record.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = gzip.compress(json.dumps(record.data, separators=(",", ":")).encode(), mtime=0)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)

    def read(self) -> list[Record]:
        """All records, in the order of their names; they must come from one code."""
        records = list(self._each())
        codes = {record.data["code"] for record in records}
        if len(codes) > 1:
            raise MixedRecords(
                f"{self.folder} holds records of {len(codes)} versions of the code ({', '.join(sorted(codes))}), "
                "whose numbers may differ. Run reproduce with --replace, or keep them in folders of their own."
            )
        lengths = {(record.problem, record.rounds) for record in records}
        if len(lengths) > len({problem for problem, _ in lengths}):
            raise MixedRecords(
                f"{self.folder} holds runs of different lengths of one problem: {sorted(lengths)}. "
                "Keep them in folders of their own."
            )
        return records

    def missing(self, cells: Iterable[Cell], *, replace: bool = False) -> list[Cell]:
        """The cells without a record; refused where a record answers another question or comes from other code.

        With `replace` records that do not fit are removed, and their cells are missing.
        """
        asked = {cell.id: cell for cell in cells}
        misfits, done = [], set()
        for record in self._each():
            cell = asked.get(record.id)
            same_code = record.data["code"] == code_fingerprint()
            if same_code and (cell is None or record.data["identity"] == identity(cell.describe(world_of(cell)))):
                done.add(record.id)
            else:
                misfits.append(record.id)
        if misfits and not replace:
            raise MixedRecords(
                f"{self.folder} holds {len(misfits)} records made by other code or with other settings, "
                f"{misfits[0]} among them. Use another --out, or --replace to remove them and play those cells again."
            )
        for name in misfits:
            self.path(name).unlink()
        return [cell for name, cell in asked.items() if name not in done]

    def _each(self) -> Iterator[Record]:
        for path in sorted(self.folder.glob("**/*.json.gz")):
            try:
                data = json.loads(gzip.decompress(path.read_bytes()))
                ours = data["format"] == FORMAT
            except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
                raise BrokenRecord(
                    f"{path} cannot be read ({error}); remove it, and its cell is played again."
                ) from error
            if not ours:
                raise BrokenRecord(f"{path} has format {data['format']}; this version reads {FORMAT}.")
            yield Record(data)
