"""A fleet: many processes decide with copies of one version, and nothing is in the way of a decision.

    store   a folder: policy-000003-SHA256.rarely, never changed, and used.json, whose last name is in use
    log     one file of each decider, one line a decision: the CRC-32 of the rest, and the decision as JSON
    wave    a folder of decisions, as of a campaign, from what is new in all logs

A decider adds its own choices to its own copy of Z, so that its rounds spread over the arms, and knows nothing of the
others' until the next version. A line is written before its decision is returned: what was answered is in the log,
also after kill -9. A line that was cut short is removed when the log is opened again. Version, id and contexts in the
log are enough to make a decision again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import tempfile
import threading
import warnings
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from rarely import Decision, InvalidInput, Policy, RarelyError, load
from rarely.cluster.campaign import BLOCK, MANIFEST, Campaign, decision_table, facts_of, key_of, uniforms
from rarely.cluster.files import Folder, as_parquet, pyarrow
from rarely.extend import Array
from rarely.extend.provisional import (
    ArmStats,
    ContextReader,
    GivenNumbers,
    Moments,
    PolicyState,
    RoundContexts,
    put_back,
    state_of,
)
from rarely.extend.provisional import decide as decide_rounds

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

USED = "used.json"


class LogBusy(RarelyError):
    """Another decider has the log open."""


class StaleVersionWarning(UserWarning):
    """A decider cannot read its store, and goes on with the version that it has."""


def publish(policy: Policy, url: str | os.PathLike[str]) -> str:
    """Write the policy's version to a store, make it the one in use, and return the name of its file.

    Parameters
    ----------
    policy, url
        What deciders will use; a folder, or a URL of a file system that pyarrow knows.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import publish
    >>> publish(LinUCB(dim=2, schedule=OnDemand(), seed=0), tempfile.mkdtemp())[:14]
    'policy-000000-'
    """
    store = Folder.at(url)
    with tempfile.TemporaryDirectory() as scratch:
        policy.save(Path(scratch) / "policy")
        content = (Path(scratch) / "policy").read_bytes()
    name = f"policy-{policy.version:06d}-{hashlib.sha256(content).hexdigest()}.rarely"
    names = store.names()
    if name not in names:
        store.write(name, content)
    used = _used(store) if USED in names else []
    if used[-1:] != [name]:
        store.write(USED, json.dumps([*used, name]).encode())
    return name


def rollback(url: str | os.PathLike[str]) -> str:
    """Let a store's deciders return to the file that was in use before, and return its name.

    Parameters
    ----------
    url
        The store.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> store = tempfile.mkdtemp()
    >>> names = [publish(LinUCB(dim=dim, schedule=OnDemand(), seed=0), store) for dim in (1, 2)]
    >>> rollback(store) == names[0]
    True
    """
    store = Folder.at(url)
    *used, _ = _used(store)
    if not used:
        raise InvalidInput(f"{store.path} has had one version in use, so there is none to return to.")
    store.write(USED, json.dumps(used).encode())
    return used[-1]


def _used(store: Folder) -> list[str]:
    """Return the files that have been in use and not been left by `rollback`; the last is in use."""
    if USED not in store.names():
        raise InvalidInput(f"{store.path} must be a store with a published version; it has no {USED}.")
    return list(json.loads(store.read(USED)))


class Log:
    """Lines that are in the file when `append` returns, whatever happens to the process then.

    The file is locked until it is closed or the process ends, however it ends.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = False) -> None:
        self._path, self._sync, self._owner = path, sync, os.getpid()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise self._busy() from None
        with open(path, "rb") as file:
            os.ftruncate(self._file, sum(map(len, whole_lines(file))))

    def _busy(self) -> LogBusy:
        return LogBusy(f"another decider writes to {os.fspath(self._path)}; close it, or give each a log of its own.")

    def append(self, record: dict[str, Any]) -> None:
        """Write a record in one call of the operating system; with `sync` it is on the disk too."""
        if os.getpid() != self._owner:  # a fork has the same file and the same lock
            raise self._busy()
        text = json.dumps(record).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        if (written := os.write(self._file, line)) < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(f"the log took {written} of {len(line)} bytes; is its disk full? Nothing was decided.")
        if self._sync:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def whole_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a log up to the first that is not whole."""
    for line in file:
        if line[-1:] != b"\n" or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
            return
        yield line


def records_of(path: Path, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of a log from a place in it on, with their contexts as rows, and the place behind each."""
    with open(path, "rb") as file:
        file.seek(start)
        for line in whole_lines(file):
            start, record = start + len(line), json.loads(line[9:])
            record["contexts"] = np.frombuffer(b64decode(record["contexts"])).reshape(-1, record.pop("dim"))
            yield start, record


def known_of(decision: Decision, arm: int) -> dict[str, float]:
    """Return what a record says of the chosen arm."""
    known = {"probability": decision.probabilities[arm], "mean": decision.means[arm], "bonus": decision.bonuses[arm]}
    return {name: float(value) for name, value in known.items()}


class Version:
    """A published policy and what this process has decided with it."""

    def __init__(self, store: Folder, name: str) -> None:
        content = store.read(name)
        if hashlib.sha256(content).hexdigest() != name[14:78]:
            raise RarelyError(f"{store.path}/{name} has not the SHA-256 of its name; publish the version again.")
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / "policy").write_bytes(content)
            self.policy: Policy = load(Path(scratch) / "policy")
        self.name, self.key, self.history = name, key_of(self.policy), state_of(self.policy).history
        self.decided = 0

    def next(self, id: str, rounds: RoundContexts, reader: ContextReader) -> tuple[PolicyState, Decision]:
        """Return the state after one more round, and its decision; what is drawn depends on version and id alone."""
        # What was decided is in the log; here only Z and the first rounds' history are kept.
        state = replace(state_of(self.policy), history=self.history, arm_stats=ArmStats())
        draws = GivenNumbers(uniforms(self.key, [id]), state.random)
        how: dict[str, Any] = {"life": "", "until_due": False, "draws": draws}
        return decide_rounds(state, rounds, reader, self.policy._factory, self.policy._scratch, **how)

    def take(self, state: PolicyState) -> None:
        """Continue after a round."""
        put_back(self.policy, state)
        self.decided += 1


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
        url: str | os.PathLike[str],
        log: str | os.PathLike[str] | Callable[[dict[str, Any]], None],
        *,
        poll: float = 10.0,
        sync: bool = False,
    ) -> None:
        self._store, self._poll = Folder.at(url), poll
        self._version = Version(self._store, _used(self._store)[-1])
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
        with self._lock, np.errstate(all="ignore"):
            version, reader = self._version, state_of(self._version.policy).reader
            rounds = reader.read(contexts, mask)
            after, decision = version.next(id, rounds, reader.after(contexts, rounds))
            arm, part = int(decision.arm), rounds.part(0, lambda: 1)
            record = {"id": id, "version": self.version, "arm": arm, **known_of(decision, arm)}
            record |= {"policy": version.name, "before": version.decided, "stats": asdict(after.arm_stats)}
            record |= {"present": part.present[0].tolist(), "row": int(part.row_of(np.array([arm]))[0])}
            record |= {"dim": part.rows.shape[1], "contexts": b64encode(part.rows.tobytes()).decode()}
            self._record(record)
            version.take(after)
        return decision

    def _follow(self) -> None:
        while not self._end.wait(self._poll):
            try:
                name = _used(self._store)[-1]
                if name != self._version.name:
                    self._version = Version(self._store, name)
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


def audit(url: str | os.PathLike[str], logs: str | os.PathLike[str]) -> dict[str, float]:
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
    >>> store, logs = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> _ = publish(LinUCB(dim=1, schedule=OnDemand(), seed=0), store)
    >>> with Decider(store, log=f"{logs}/1.log") as decider:
    ...     _ = decider.decide("visit 7", [[1.0], [2.0]])
    >>> audit(store, logs)
    {}
    """
    store, version, found = Folder.at(url), None, dict[str, float]()
    for path in sorted(Path(logs).iterdir()):
        for _, record in records_of(path):
            if record["before"] == 0:
                version = Version(store, record["policy"])
            if version is None or (version.name, version.decided) != (record["policy"], record["before"]):
                raise InvalidInput(
                    f"{path} must have all decisions since a decider opened its version; the one before "
                    f"{record['id']!r} is missing."
                )
            if difference := _made_again(version, record):
                found[record["id"]] = difference
    if version is None:
        raise InvalidInput(f"{os.fspath(logs)} must have a log with decisions; there is none.")
    return found


def _made_again(version: Version, record: dict[str, Any]) -> float:
    """Return by how much a decision differs from that on record, and continue with the arm on record."""
    rows, present, reader = record["contexts"], record["present"], state_of(version.policy).reader
    offered = RoundContexts(rows[None], np.array([present]), len(present), True, all(present), True)
    with np.errstate(all="ignore"):
        after, decision = version.next(record["id"], offered, reader)
        same, known = int(decision.arm) == record["arm"], known_of(decision, record["arm"])
        if not same:
            alone = RoundContexts(rows[[record["row"]]][None], np.ones((1, 1), np.bool_), 1, True, True, True)
            after, _ = version.next(record["id"], alone, reader)
    version.take(after)
    return max(abs(value - record[name]) for name, value in known.items()) if same else math.inf


def join(logs: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[str]:
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
    columns: dict[str, list[Any]] = {"id": [], "version": [], "arm": [], "probability": [], "mean": [], "bonus": []}
    contexts, stats, arms, moments = list[Array](), ArmStats(), 0, Moments(0)
    for record in records:
        for name, values in columns.items():
            values.append(record[name])
        rows, own = record["contexts"], ArmStats(**record["stats"])
        stats, arms = stats.plus(own), max(arms, own.arms)
        moments = moments if contexts else Moments(rows.shape[1])
        moments.add(rows, 1)
        contexts.append(rows[record["row"]])
    if not contexts:
        return None
    ids, numbers = pyarrow().array(columns.pop("id")), {name: np.array(values) for name, values in columns.items()}
    return decision_table(ids, start, block, numbers, np.array(contexts), facts_of(stats, arms, moments))
