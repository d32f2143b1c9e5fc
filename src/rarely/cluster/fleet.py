"""A fleet: many processes decide with copies of one version, and nothing is in the way of a decision.

    store   the versions, one of which is in use: `rarely.cluster.store`
    log     one file of each decider: `rarely.cluster.decision_lines`
    wave    a folder of decisions, as of a campaign, from what is new in all logs

A decider adds its own choices to its own copy of Z, so that its rounds spread over the arms, and knows nothing of the
others' until the next version. A line is written before its decision is returned, so what was answered is in the log.
Version, id and contexts in the log are enough to make a decision again.
"""

from __future__ import annotations

import json
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from rarely import Decision, InvalidInput
from rarely.cluster.campaign import BLOCK, DECIDED, MANIFEST, Campaign, Url, decision_table, key_of, uniforms
from rarely.cluster.decision_lines import Log, packed, records_of
from rarely.cluster.files import Folder, as_parquet
from rarely.cluster.store import names_used, read_published
from rarely.extend import Array
from rarely.extend.provisional import ArmStats, LiveCopy, OfferedArms
from rarely.logs.tables import pyarrow


class StaleVersionWarning(UserWarning):
    """A decider cannot read its store, and goes on with the version that it has."""


class OpenVersion(LiveCopy):
    """A published version that this process decides with."""

    def __init__(self, store: Folder, name: str) -> None:
        super().__init__(read_published(store, name))
        self.name, self._key = name, key_of(self.policy)

    def draw(self, id: str) -> Array:
        """Return the random number of a decision, which depends on the version and the id alone."""
        return uniforms(self._key, [id])


def thought_of(decision: Decision, arm: int) -> dict[str, float]:
    """Return what a record says of an arm."""
    return {
        "probability": float(decision.probabilities[arm]),
        "mean": float(decision.means[arm]),
        "bonus": float(decision.bonuses[arm]),
    }


class Decider:
    """Decides in the caller's process with the version that a store has in use, and never waits for the store.

    Parameters
    ----------
    url
        The store, which `publish` writes to.
    log
        The path of this decider's own log, or a function that is called with each record before it is answered. Raises
        `LogBusy` if another decider has the log, in this process or another; after a fork, make a decider in each.
    poll
        Seconds between two looks at the store, in a thread of its own. If the store cannot be read, a
        `StaleVersionWarning` says so once, and the version stays.
    sync
        Whether each line of the log must be on the disk, so that it also survives a power failure.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import Decider, publish
    >>> store, records = tempfile.mkdtemp(), []
    >>> _ = publish(LinUCB(dim=2, schedule=OnDemand(), seed=0), store)
    >>> with Decider(store, log=records.append) as decider:
    ...     decider.decide("visit 7", [[1.0, 0.0], [0.0, 2.0]]).arm
    1
    >>> records[0]["id"], records[0]["version"], records[0]["arm"]
    ('visit 7', 0, 1)
    """

    def __init__(
        self,
        url: Url,
        log: str | os.PathLike[str] | Callable[[dict[str, Any]], None],
        *,
        poll: float = 10.0,
        sync: bool = False,
    ) -> None:
        self._store, self._poll = Folder.at(url), poll
        self._version = OpenVersion(self._store, names_used(self._store)[-1])
        self._log: Log | None = None
        self._record: Callable[[dict[str, Any]], None]
        if callable(log):
            self._record = log
        else:
            self._log = Log(log, sync=sync)
            self._record = self._log.append
        self._lock, self._end, self._away = threading.Lock(), threading.Event(), False
        self._thread = threading.Thread(target=self._follow, name="rarely.Decider", daemon=True)
        self._thread.start()

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The version in use."""
        return self._version.policy.version

    def decide(self, id: str, contexts: Any, mask: Any = None) -> Decision:
        """Decide one round, log it and return it."""
        if not isinstance(id, str):  # one log with a number would keep `join` from making a column of all
            raise InvalidInput(f"id must be text that names this decision alone; got {id!r}.")
        with self._lock:
            version = self._version
            made = version.decide(contexts, mask, version.draw(id))
            arm = int(made.decision.arm)
            record = {"id": id, "version": version.policy.version, "arm": arm, **thought_of(made.decision, arm)}
            record |= {"policy": version.name, "before": version.decided, "stats": made.stats.describe()}
            record |= {"present": made.present.tolist(), "row": made.row, **packed(made.rows)}
            self._record(record)
            version.accept(made)
        return made.decision

    def _follow(self) -> None:
        while not self._end.wait(self._poll):
            try:
                name = names_used(self._store)[-1]
                if name != self._version.name:
                    self._version = OpenVersion(self._store, name)
                self._away = False
            except Exception as error:
                if not self._away:
                    warnings.warn(
                        f"the store {self._store.path} cannot be read; version {self.version} stays in use: {error}",
                        StaleVersionWarning,
                        stacklevel=1,
                    )
                self._away = True

    def close(self) -> None:
        """Stop looking at the store, and close the log."""
        self._end.set()
        self._thread.join()
        if self._log is not None:
            self._log.close()


def audit(url: Url, logs: str | os.PathLike[str]) -> dict[str, float]:
    """Make every logged decision of a fleet again, from its version in the store, its id and its contexts.

    Returns the ids whose decision differs, and by how much its probability, mean or bonus does; ∞ is another arm. In
    another environment last digits differ. Raises `InvalidInput` if there is no decision, or one is missing.

    Parameters
    ----------
    url, logs
        The store; a local folder of logs, one of each decider.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import publish
    >>> store, logs = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> _ = publish(LinUCB(dim=1, schedule=OnDemand(), seed=0), store)
    >>> with Decider(store, log=f"{logs}/1.log") as decider:
    ...     _ = decider.decide("visit 7", [[1.0], [2.0]])
    >>> audit(store, logs)
    {}
    """
    store, version, differences = Folder.at(url), None, dict[str, float]()
    for path in sorted(Path(logs).iterdir()):
        for _, record in records_of(path):
            if record["before"] == 0:
                version = OpenVersion(store, record["policy"])
            if version is None or (version.name, version.decided) != (record["policy"], record["before"]):
                raise InvalidInput(
                    f"{path} must have all decisions since a decider opened its version; the one before "
                    f"{record['id']!r} is missing."
                )
            if difference := _made_again(version, record):
                differences[record["id"]] = difference
    if version is None:
        raise InvalidInput(f"{os.fspath(logs)} must have a log with decisions; there is none.")
    return differences


def _made_again(version: OpenVersion, record: dict[str, Any]) -> float:
    """Return by how much a decision differs from that on record, and continue with the arm on record."""
    rows, draw = record["contexts"], version.draw(record["id"])
    made = version.decide_again(rows, np.array(record["present"]), draw)
    if int(made.decision.arm) != record["arm"]:
        version.accept(version.decide_again(rows[[record["row"]]], np.ones(1, np.bool_), draw))
        return math.inf
    version.accept(made)
    thoughts = thought_of(made.decision, record["arm"])
    return max(abs(value - float(record[name])) for name, value in thoughts.items())


def join(logs: str | os.PathLike[str], out: Url) -> list[str]:
    """Gather what the logs of deciders hold beyond earlier calls into a folder of decisions, for `update`.

    Returns the paths of all folders so far. A call that is repeated after a crash makes the same folder again.

    Parameters
    ----------
    logs, out
        A local folder of logs; the folder in which each call makes at most one more, wave-000001 and so on.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import publish
    >>> store, logs, waves = tempfile.mkdtemp(), tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> _ = publish(LinUCB(dim=1, schedule=OnDemand(), seed=0), store)
    >>> with Decider(store, log=f"{logs}/1.log") as decider:
    ...     _ = decider.decide("visit 7", [[1.0], [2.0]])
    >>> len(join(logs, waves)), len(join(logs, waves))
    (1, 1)
    """
    place, waves, ends = Folder.at(out), list[str](), dict[str, int]()
    while MANIFEST in (wave := replace(place, path=f"{place.path}/wave-{len(waves) + 1:06d}")).names():
        ends = json.loads(wave.read("_read.json"))
        waves.append(wave.path)
    new, rounds, newest = _new_records(Path(logs), ends), 0, 0
    for b in count():
        table = _wave_block(islice(new, BLOCK), b, rounds)
        if table is None:
            break
        wave.commit(wave.started(as_parquet(table)), f"block-{b:08d}.parquet")
        rounds, dim = rounds + len(table), table.schema.field("context").type.list_size
        newest = max(newest, *table.column("version").to_pylist())
    if rounds:
        wave.write("_read.json", json.dumps(ends).encode())
        wave.write(MANIFEST, json.dumps(asdict(Campaign(newest, rounds, BLOCK, dim, ""))).encode())
        waves.append(wave.path)
    return waves


def _new_records(logs: Path, ends: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the records of all logs from their ends on, and move these."""
    for path in sorted(logs.iterdir()):
        for end, record in records_of(path, ends.get(path.name, 0)):
            ends[path.name] = end
            yield record


def _wave_block(records: Iterable[dict[str, Any]], block: int, start: int) -> Any:
    """Return the table of a block of a wave; None where there are no records."""
    columns, contexts = {name: list[Any]() for name in ("id", *DECIDED)}, list[Array]()
    offered = OfferedArms.start(None)
    for record in records:
        for name, values in columns.items():
            values.append(record[name])
        rows, stats = record["contexts"], ArmStats(**record["stats"])
        offered = offered if contexts else OfferedArms.start(rows.shape[1])
        offered.add(rows, 1, stats.arms, offered.stats.plus(stats))
        contexts.append(rows[record["row"]])
    if not contexts:
        return None
    ids, decided = pyarrow().array(columns.pop("id")), {name: np.array(values) for name, values in columns.items()}
    return decision_table(ids, start, block, decided, np.array(contexts), offered)
