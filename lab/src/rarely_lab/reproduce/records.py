"""One recorded run of an experiment: everything that tables, figures and claims are made of; and many in one file.

    records.json.gz    {"format", "code", "worlds", "environments", "records", "digest"}

`code` is that of all records, as in 0.3, or that of each golden family.

The file is small, to be kept beside code: it has all that a report needs, and a digest of each original. A regret curve
is thinned to the points that figures show, with the digest of the whole curve, so that equal runs are still known to be
equal. log det Z is kept at its end alone. A report from the file is the report from the folder, letter by letter.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from rarely import InvalidInput
from rarely.extend import Array
from rarely.runs.provenance import describe, peak_memory
from rarely.runs.sealed_json import DIGEST, Malformed, check_digest, read_json, sealed_text
from rarely.runs.writing import write_file
from rarely_lab.engine import store
from rarely_lab.engine.play import Played
from rarely_lab.engine.record import FORMAT, MixedRecords, PolicyRecord, Stored, identity
from rarely_lab.reproduce.config import Configuration
from rarely_lab.reproduce.golden import FAMILIES, family_of

CURVE_POINTS = 40
"""Of a curve that figures show."""
PER_VIEW = ("dim", "view", "constant", "context_scale")
"""What differs between the views of one world."""
PUBLISHED = "rarely records 1"
PLAIN = ("id", "regret", "reward", "right", "seconds", "wall", "peak_memory", "near_ties")
"""Fields that are kept as they are; the last, where they are there, are of runs in lockstep."""
SHORT = 16
"""Digits of a digest that are kept: enough to know a record again."""
Found = store.Found["Record"]


class Record(PolicyRecord):
    """What is known of a finished cell."""

    kind: ClassVar[str] = "reproduction"
    golden: ClassVar = FAMILIES
    advice: ClassVar[str] = "Run reproduce again to play its cell anew, or remove the file"

    @classmethod
    def golden_family(cls, asked: dict[str, Any]) -> str:
        return family_of(asked["reading"], asked["configuration"]["kind"])

    @classmethod
    def check_together(cls, records: Sequence[Self], planned: Iterable[dict[str, Any]]) -> None:
        """Raise MixedRecords if two codes made a family, two problems have one name, or two engines are compared."""
        planned = list(planned)
        codes = defaultdict[str, set[str]](set)
        for record in records:
            codes[cls.golden_family(record.asked)].add(record.numerics)
        for asked in planned:
            codes[cls.golden_family(asked)].add(cls.fingerprint(asked))
        for family, made in codes.items():
            if len(made) > 1:
                raise MixedRecords(
                    f"it holds, or would hold, records of {len(made)} versions of the code in family {family} "
                    f"({', '.join(sorted(made))}), whose numbers differ. Ask for all of its cells with --replace, or "
                    "use another --out."
                )
        check_engines((record.series, record.engine) for record in records if not record.configuration.same_everywhere)
        known: dict[str, tuple[Any, ...]] = {}
        for asked in (*(record.asked for record in records), *planned):
            world = {name: value for name, value in asked["world"].items() if name not in PER_VIEW}
            own = (asked["problem"], world, asked["rounds"])
            name = asked["problem"]["name"]
            if known.setdefault(name, own) != own:
                raise MixedRecords(
                    f"it would hold two problems called {name}: other data, settings or lengths "
                    f"(T = {known[name][2]} and {asked['rounds']}). Keep them in folders of their own."
                )

    base = Stored(str, "asked", "problem", "base")
    """The problem of the paper that it is or varies."""
    reading = Stored(str, "asked", "reading")
    """A preset, or for a linear configuration a view."""
    form = Stored(str, "environment", "form")
    """Which loops decided and trained."""

    @property
    def engine(self) -> str:
        """What played it: "cpu", or "gpu" in lockstep."""
        return str(self.data["environment"].get("engine", "cpu"))

    @property
    def series(self) -> str:
        """Its problem and reading."""
        return "/".join(self.id.split("/")[:2])

    updates = Stored(list[int], "updates", "rounds")
    """The rounds after which a new version came into use."""

    @cached_property
    def configuration(self) -> Configuration:
        return Configuration(**self.asked["configuration"])

    @cached_property
    def curve(self) -> Array:
        """Cumulative pseudo-regret after each round, (T,)."""
        return np.array(self.data["curve"], np.float64)

    @cached_property
    def curve_points(self) -> tuple[Array, Array]:
        """About CURVE_POINTS rounds, and the cumulative pseudo-regret at each: as much as a figure shows."""
        at = np.unique(np.linspace(1, self.rounds, CURVE_POINTS).astype(int))
        kept = self.data.get("curve_points")
        return at, np.array(kept, np.float64) if kept is not None else self.curve[at - 1].round(2)

    @cached_property
    def curve_digest(self) -> str:
        """A hash of the whole curve: runs with the same one chose alike."""
        known = self.data.get("curve_digest")
        return known or hashlib.sha256(json.dumps(self.data["curve"]).encode()).hexdigest()[:16]

    @property
    def versions(self) -> int:
        """The number of versions that decided: one more than there were updates."""
        return len(self.updates) + 1

    @property
    def log_det(self) -> float:
        """log det Z − log det λI after the last round."""
        return float(self.data["log_det"][-1][1])


def check_engines(played: Iterable[tuple[str, str]]) -> None:
    """Raise MixedRecords if networks of one problem in one reading were played, or will be, by two engines."""
    known: dict[str, str] = {}
    for series, engine in played:
        if known.setdefault(series, engine) != engine:
            raise MixedRecords(
                f"networks of {series} would be of two engines, {known[series]} and {engine}, which round differently. "
                f"Continue them with the engine that began, or in another --out."
            )


Store = partial(store.Store[Record], record_type=Record)
"""The records of one folder of experiments."""


def content_of(played: Played, cause: str, wall: float) -> dict[str, Any]:
    """Return the content of a record; `cause` is why updates came when they came, `wall` the cell's seconds."""
    updates = played.updates
    return {
        "regret": float(played.regrets.sum()),
        "curve": np.round(np.cumsum(played.regrets), 4).tolist(),
        "reward": played.reward,
        "right": played.right,
        "updates": {
            "cause": cause,
            "rounds": [u.round for u in updates if u.accepted],
            "log_det": np.round([u.log_det for u in updates if u.accepted], 4).tolist(),
            "attempts": sum(u.attempts for u in updates),
            "rejected": [[u.round, u.reason] for u in updates if not u.accepted],
        },
        "log_det": [[t, round(value, 4)] for t, value in played.log_dets],
        "seconds": _few_digits(selecting=played.selecting.seconds, training=played.training.seconds),
        "wall": _few_digits(selecting=played.selecting.wall, training=played.training.wall, cell=wall),
        "peak_memory": peak_memory(),
        "environment": describe(),
    }


def _few_digits(**seconds: float) -> dict[str, float]:
    """Return four digits of each: more say nothing, and take space."""
    return {name: float(f"{value:.4g}") for name, value in seconds.items()}


# --- published in one file


def codes_of(records: Sequence[Record]) -> str | dict[str, str]:
    """Return the code that made the records: one for all, or that of each family."""
    if len(codes := {record.code for record in records}) == 1:
        return codes.pop()
    return {Record.golden_family(record.asked): record.numerics for record in records}


def publish(records: Sequence[Record], path: Path) -> int:
    """Write the records of one report into one file, and return its size in bytes."""
    if not records:
        raise InvalidInput("there are no records to publish.")
    worlds, environments = list[Any](), list[Any]()
    content = {
        "format": PUBLISHED,
        "code": codes_of(records),
        "records": [_compact(r, worlds, environments) for r in records],
        "worlds": worlds,
        "environments": environments,
    }
    packed = gzip.compress(sealed_text(content).encode(), 9, mtime=0)
    write_file(path, packed)
    return len(packed)


def unpack(path: Path, out: Path, configurations: Container[str], progress: Callable[[int, int], None]) -> int:
    """Copy published records into a folder, to be continued there, and return how many were not there yet.

    `configurations` are those whose runs are copied, as in `read_published`; `progress` receives how many records of
    how many are copied. Raises MixedRecords, before anything is written, if a version of the code with other numbers
    made some of them.
    """
    records, store = read_published(path, configurations), Store(out)
    if others := [record for record in records if record.numerics != Record.fingerprint(record.asked)]:
        family, code = Record.golden_family(others[0].asked), Record.fingerprint(others[0].asked)
        raise MixedRecords(
            f"{family} in {path} was made by code {others[0].made_by or others[0].code}, and this is {code}, whose "
            "numbers differ. Continue it with the version that made it, or play all of it anew without --from."
        )
    new = [record for record in records if not store.path(record.id).exists()]
    for done, record in enumerate(new, 1):
        data = {"format": FORMAT, "kind": Record.kind, "original": record.data[DIGEST]} | record.data
        store.write(Record({name: value for name, value in data.items() if name != DIGEST}), durable=False)
        progress(done, len(new))
    return len(new)


def read_published(path: Path, configurations: Container[str] | None = None) -> list[Record]:
    """Return the records of such a file, as a report reads them; raise InvalidInput if it was changed.

    `configurations` are those whose runs are returned, as `mushroom/paper/fixed-B40`; by default all.
    """
    try:
        content = read_json(path)
        if content.get("format") != PUBLISHED:
            raise Malformed(f"format must be {PUBLISHED}; it is {content.get('format')!r}")
        check_digest(content)
        kept = (r for r in content["records"] if configurations is None or r["id"].rpartition("/")[0] in configurations)
        return [_expanded(record, content) for record in kept]
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
    return {name: data[name] for name in PLAIN if name in data} | {
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


_every_round = cache(lambda rounds: list(range(1, rounds + 1)))
"""One list for all records: most update every round, and copies would take gigabytes."""


def _expanded(kept: dict[str, Any], content: dict[str, Any]) -> Record:
    asked = content["worlds"][kept["world"]] | {"configuration": kept["configuration"], "seed": kept["seed"]}
    rounds = kept["updates"]["rounds"]
    updates = kept["updates"] | {"rounds": _every_round(rounds) if isinstance(rounds, int) else rounds}
    data = {name: kept[name] for name in PLAIN if name in kept} | {
        "identity": identity(asked),
        "code": code if isinstance(code := content["code"], str) else code[Record.golden_family(asked)],
        "asked": asked,
        "environment": content["environments"][kept["environment"]],
        "curve_points": kept["curve"],
        "curve_digest": kept["curve_digest"],
        "updates": updates,
        "log_det": kept["log_det"],
        DIGEST: kept["original"],
    }
    return Record(data)
