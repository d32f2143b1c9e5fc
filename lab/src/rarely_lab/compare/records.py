"""Recorded runs of a comparison, sealed, so that they can be packed, submitted and merged.

    DIR/records/PROBLEM/POLICY/B20/seed3.json.gz     as they are played
    records.jsonl.gz                                 packed for submission, a record in each line

A record says which rounds were played (a digest of what every arm would have paid), so that only records of the same
rounds are compared, whoever made them and with whatever version.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from rarely.runs.provenance import describe
from rarely.runs.sealed_json import LARGEST_FILE, Malformed, reason_of, sealed_text
from rarely.runs.writing import write_file
from rarely.worlds import Rounds
from rarely_lab.compare.contestant import Played
from rarely_lab.compare.golden import FAMILIES, family_of
from rarely_lab.engine import store
from rarely_lab.engine.record import MixedRecords, PolicyRecord, Refusal, Stored, identity

Found = store.Found["Record"]


class Record(PolicyRecord):
    """What is known of a finished cell.

    Examples
    --------
    >>> Record({"asked": {"policy": {"name": "linucb"}}}).policy
    'linucb'
    """

    kind: ClassVar[str] = "comparison"
    golden: ClassVar = FAMILIES
    advice: ClassVar[str] = "Run compare again to play its cell anew, or remove the file"

    @classmethod
    def golden_family(cls, asked: dict[str, Any]) -> str | None:
        return family_of(asked["policy"]["name"])

    @classmethod
    def check_together(cls, records: Sequence[Self], planned: Iterable[dict[str, Any]] = ()) -> None:
        """Raise MixedRecords unless one problem is one world of one length, and one policy one piece of code."""
        worlds: dict[str, tuple[int, str]] = {}
        codes: dict[str, tuple[str, str]] = {}
        questions = [(record.numerics, record.asked) for record in records]
        questions += [(cls.fingerprint(asked), asked) for asked in planned]
        for code, asked in questions:
            problem, policy = asked["problem"]["name"], asked["policy"]["name"]
            world = asked["rounds"], identity(asked["problem"])
            if worlds.setdefault(problem, world) != world:
                lengths = sorted({worlds[problem][0], asked["rounds"]})
                differs = (
                    f"T differs (T = {' and '.join(map(str, lengths))})" if lengths[1:] else "data or settings differ"
                )
                raise MixedRecords(
                    f"there would be two problems called {problem}, whose {differs}: their regrets do not compare. "
                    "Keep them in folders of their own."
                )
            own = code, asked["policy"]["text"]
            if codes.setdefault(policy, own) != own:
                family = cls.golden_family(asked)
                changed = f": the numbers of family {family} have changed" if family else ""
                whose = "the policy's own" if codes[policy][0] == code else f"rarely's{changed}"
                raise MixedRecords(
                    f"there would be records of {policy} made by two versions of the code ({whose}). Use another "
                    "folder, name one of them (--policy NAME=module:factory), or play them again with --replace."
                )
        played: dict[tuple[str, int], str] = {}
        for record in records:
            digest = record.data["rounds_digest"]
            if played.setdefault((record.problem, record.seed), digest) != digest:
                raise MixedRecords(
                    f"{record.id} was played on other rounds than another record of {record.problem}, seed "
                    f"{record.seed}; their regrets do not compare. Play both with one version of rarely."
                )

    family = Stored(str, "family")
    """The variant, or the set that the problem belongs to."""
    policy = Stored(str, "asked", "policy", "name")
    uniform = Stored(float, "uniform")
    """The expected regret of uniform play on the same rounds."""

    @property
    def batches(self) -> int | None:
        """B; None is T."""
        batches: int | None = self.asked["batches"]
        return batches


Store = partial(store.Store[Record], record_type=Record)
"""The records of one folder of a comparison."""


def content_of(family: str, rounds: Rounds, played: Played) -> dict[str, Any]:
    """Return the content of the record of a run."""
    return {
        "family": family,
        "rounds_digest": _digest_of_rounds(rounds),
        "regret": float(np.cumsum(played.regrets)[-1]),
        "uniform": float((rounds.means.max(axis=1) - rounds.means.mean(axis=1)).sum()),
        "updates": played.updates,
        "seconds": {"selecting": played.selecting.seconds, "training": played.training.seconds},
        "environment": describe(),
    }


def _digest_of_rounds(rounds: Rounds) -> str:
    """Return a hash of what was played, in single precision: the last bits of another machine do not matter."""
    parts = (rounds.contexts, rounds.means, rounds.rewards)
    return hashlib.sha256(b"".join((np.float32(part) + np.float32(0)).tobytes() for part in parts)).hexdigest()[:16]


def read_records(folder: str | Path) -> Found:
    """Return all records of a folder in the order of their names, and the files that are refused.

    Raises `MixedRecords` if records of one problem are of other rounds, or those of one policy of other code.

    Parameters
    ----------
    folder
        A folder that `rarely compare` wrote, or a file of packed records.

    Examples
    --------
    >>> import tempfile
    >>> found = read_records(tempfile.mkdtemp())  # an empty folder
    >>> found.records, found.refused
    ([], [])
    """
    found = _found(Path(folder))
    Record.check_together(found.records)
    return found


def _found(folder: Path) -> Found:
    return _unpacked(folder) if folder.is_file() else Store(folder).find()


def _unpacked(path: Path) -> Found:
    """Return the records of a packed file; a damaged line is refused, and the others are read."""
    found = Found([], [])
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise Malformed(f"it holds more than {LARGEST_FILE} characters; pack fewer records in each")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise MixedRecords(f"{path} is not a file of packed records: {reason_of(error)}.") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            data = json.loads(line)
            if not isinstance(data, dict):
                raise Malformed("it is not a JSON object")
            found.records.append(Record.read(data))
        except (ValueError, RecursionError) as error:
            found.refused.append(Refusal(path / f"line {number}", reason_of(error), Record.advice))
    return found


def pack(folder: Path, path: Path) -> int:
    """Write all records of a folder, if any, into one file for submission, and return how many there are."""
    records = read_records(folder).records
    lines = "".join(sealed_text(record.data) + "\n" for record in records)
    if records:
        write_file(path, gzip.compress(lines.encode(), mtime=0))
    return len(records)


def merge(
    folders: Sequence[str | Path], out: str | Path, progress: Callable[[int, int], None] = lambda done, of: None
) -> Found:
    """Copy the records of several folders into one, and return all that it then holds, and the files refused.

    Raises `MixedRecords`, and copies nothing, if two records of one cell differ, or records do not compare.

    Parameters
    ----------
    folders
        Folders that `rarely compare` wrote, on this machine or on others, or files of packed records.
    out
        The folder that gets a copy of every record; it may hold records already.
    progress
        Called with how many records of how many are copied.

    Examples
    --------
    >>> import tempfile
    >>> from rarely_lab.compare import Comparison, compare, merge
    >>> folder = tempfile.mkdtemp()
    >>> _ = compare(Comparison(["cosine"], ["linucb", "uniform"], [5], seeds=1, rounds=40), folder)
    >>> len(merge([folder], tempfile.mkdtemp()).records)
    2
    """
    out = Path(out)
    present = Store(out).find()
    every, refused = [*present.records], [*present.refused]
    for folder in map(Path, folders):
        if not (folder.is_file() or (folder / "records").is_dir()):
            lack = "has no records" if folder.exists() else "does not exist"
            raise MixedRecords(f"{folder} {lack}; name a folder or a packed file that rarely compare wrote.")
        found = _found(folder)
        every, refused = every + found.records, refused + found.refused
    Record.check_together(every)  # before regrets, for it says why they differ
    records: dict[str, Record] = {}
    for record in every:
        known = records.setdefault(record.id, record)
        if known.regret != record.regret:
            raise MixedRecords(
                f"two records of {record.id} differ (regret {known.regret:g} and {record.regret:g}); leave one folder "
                "out, or name the policies apart."
            )
    merged = Found(sorted(records.values(), key=lambda record: record.id), refused)
    with_record = {record.id for record in present.records}
    new = [record for record in merged.records if record.id not in with_record]
    for done, record in enumerate(new, 1):
        Store(out).write(record, durable=False)
        progress(done, len(new))
    return merged
