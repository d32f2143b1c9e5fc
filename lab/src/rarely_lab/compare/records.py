"""Recorded runs of a comparison, sealed, so that they can be packed, submitted and merged.

    DIR/records/PROBLEM/POLICY/B20/seed3.json.gz     as they are played
    records.jsonl.gz                                 packed for submission, a record in each line

A record says which rounds were played (a digest of what every arm would have paid), so that only records of the same
rounds are compared, whoever made them and with whatever version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from rarely.runs.machine import describe
from rarely.worlds import Rounds
from rarely_lab.compare.golden import FAMILIES, family_of
from rarely_lab.engine import record as kept
from rarely_lab.engine.play import Played
from rarely_lab.engine.record import MixedRecords, PolicyRecord, Stored, identity

Found = kept.Found["Record"]
RENAMED = {"neuralucb": "default"}  # policies by their names in records of 0.3


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
    def read(cls, data: dict[str, Any], text: str = "") -> Self:
        """Return the record in a JSON object; the default, which 0.3 called neuralucb, has its name of today."""
        record = super().read(data, text)
        model, at, schedule = record.policy.partition("@")
        if model not in RENAMED:
            return record
        name, (problem, _, run) = f"{RENAMED[model]}{at}{schedule}", record.id.split("/", 2)
        asked = record.asked | {"policy": record.asked["policy"] | {"name": name}}
        return cls(data | {"id": f"{problem}/{name}/{run}", "asked": asked, "identity": identity(asked)})

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
    batches = Stored[int | None](lambda batches: batches, "asked", "batches")
    """The budget B; None is T."""
    uniform = Stored(float, "uniform")
    """The expected regret of uniform play on the same rounds."""


Store = partial(kept.Store[Record], record_type=Record)  # the records of one folder of a comparison


def content_of(family: str, played: Played) -> dict[str, Any]:
    """Return the content of the record of a run."""
    rounds = played.rounds
    near = {} if played.near_ties is None else {"near_ties": played.near_ties}
    return near | {
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
    >>> stored = read_records(tempfile.mkdtemp())  # an empty folder
    >>> stored.records, stored.refused
    ([], [])
    """
    return kept.read_records(Path(folder), Record)


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
    sources = [Path(out), *map(Path, folders)]
    for folder in sources[1:]:
        if not (folder.is_file() or (folder / "records").is_dir()):
            lack = "has no records" if folder.exists() else "does not exist"
            raise MixedRecords(f"{folder} {lack}; name a folder or a packed file that rarely compare wrote.")
    contents = [kept.find_records(source, Record) for source in sources]
    every = [record for one in contents for record in one.records]
    Record.check_together(every)  # before regrets, for it says why they differ
    records: dict[str, Record] = {}
    for record in every:
        first = records.setdefault(record.id, record)
        if first.regret != record.regret:
            raise MixedRecords(
                f"two records of {record.id} differ (regret {first.regret:g} and {record.regret:g}); leave one folder "
                "out, or name the policies apart."
            )
    merged = sorted(records.values(), key=lambda record: record.id)
    kept.copy_records(merged, Store(Path(out)), progress)
    return Found(merged, [file for one in contents for file in one.refused])
