"""A fleet: many processes decide with copies of one version, and nothing is in the way of a decision.

    store   a folder: policy-000003-SHA256.rarely, never changed, and current.json, which names the one in use
    log     one file of each decider, one line a decision: the CRC-32 of the rest, and the decision as JSON

A decider adds its own choices to its own copy of Z, so that its rounds spread over the arms, and knows nothing of the
others' until the next version. A line is written before its decision is returned: what was answered is in the log,
also after kill -9. A line that was cut short is removed when the log is opened again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from rarely._core.choice.random_stream import GivenNumbers
from rarely._core.errors import InvalidInput, RarelyError
from rarely._core.policies.policy import Policy
from rarely._core.policies.replay import put_back, state_of
from rarely._core.policies.saving import load
from rarely._core.policies.select import decide as decide_rounds
from rarely._core.policies.state import ArmStats
from rarely._core.types import Decision
from rarely.cluster.campaign import BLOCK, MANIFEST, Campaign, decision_table, key_of, uniforms
from rarely.cluster.files import Folder, pyarrow

CURRENT = "current.json"


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
    if name not in store.names():
        store.write(name, content)
    _set_current(store, name)
    return name


def rollback(url: str | os.PathLike[str], to: str | None = None) -> str:
    """Let a store's deciders return to the file that was in use before, or to another, and return its name.

    Parameters
    ----------
    url, to
        The store; the name of a file in it, or None for the one before.

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
    before = _current(store)["before"]
    if to is None and not before:
        raise InvalidInput(f"{store.path} has had one version in use, so there is none to return to.")
    name = before[-1] if to is None else to
    if name not in store.names():
        raise InvalidInput(f"{store.path} must have the file {name}; it has {', '.join(store.names('policy-'))}.")
    _set_current(store, name, before[:-1] if to is None else None)
    return name


def _current(store: Folder) -> dict[str, Any]:
    if CURRENT not in store.names():
        raise InvalidInput(f"{store.path} must be a store with a published version; it has no {CURRENT}.")
    found: dict[str, Any] = json.loads(store.read(CURRENT))
    return found


def _set_current(store: Folder, name: str, before: list[str] | None = None) -> None:
    """Name the file in use; `before` are those to return to, by default the present one and those before it."""
    known: dict[str, Any] = _current(store) if CURRENT in store.names() else {"name": name, "before": []}
    if before is None:
        before = known["before"] + ([known["name"]] if known["name"] != name else [])
    store.write(CURRENT, json.dumps({"name": name, "before": before}).encode())


def read_version(store: Folder, name: str) -> Policy:
    """Return a published policy; its file must have the SHA-256 of its name."""
    content = store.read(name)
    if hashlib.sha256(content).hexdigest() != name[14:78]:
        raise RarelyError(f"{store.path}/{name} has not the SHA-256 of its name; publish the version again.")
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "policy").write_bytes(content)
        policy: Policy = load(Path(scratch) / "policy")
    return policy


class Log:
    """Lines that are in the file when `append` returns, whatever happens to the process then."""

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = False) -> None:
        self._sync = sync
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, sum(len(line) for line, _ in lines_of(Path(path).read_bytes())))

    def append(self, record: dict[str, Any]) -> None:
        """Write a record in one call of the operating system; with `sync` it is on the disk too."""
        text = json.dumps(record).encode()
        os.write(self._file, b"%08x %s\n" % (zlib.crc32(text), text))
        if self._sync:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def lines_of(content: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the lines of a log and their records, up to the first that is not whole."""
    for line in content.splitlines(keepends=True):
        if line[-1:] != b"\n" or line[:8] != b"%08x" % zlib.crc32(line[9:-1]):
            return
        yield line, json.loads(line[9:-1])


class Decider:
    """Decides in the caller's process with the version that a store has in use, and never waits for the store.

    Parameters
    ----------
    url
        The store, which `publish` writes to.
    log
        The path of this decider's own log, or a function that is called with each record before it is answered.
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
        self._log = None if callable(log) else Log(log, sync=sync)
        self._record: Callable[[dict[str, Any]], None] = log if callable(log) else self._log.append  # type: ignore[union-attr]
        self._lock, self._end, self._away = threading.Lock(), threading.Event(), False
        self._open(_current(self._store)["name"])
        self._thread = threading.Thread(target=self._follow, name="rarely.Decider", daemon=True)
        self._thread.start()

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The version in use."""
        return self._version[0].version

    def _open(self, name: str) -> None:
        policy = read_version(self._store, name)
        self._version, self.name = (policy, key_of(policy), state_of(policy).history), name

    def decide(self, id: str, contexts: Any, mask: Any = None) -> Decision:
        """Decide one round, log it and return it; what is drawn depends on the version and the id alone."""
        policy, key, history = self._version
        with self._lock, np.errstate(all="ignore"):
            # What was decided is in the log; here only Z and the first rounds' history are kept.
            state = replace(state_of(policy), history=history, arm_stats=ArmStats())
            rounds = state.reader.read(contexts, mask)
            reader, draws = state.reader.after(contexts, rounds), GivenNumbers(uniforms(key, [id]), state.random)
            how: dict[str, Any] = {"life": "", "until_due": False, "draws": draws}
            after, decision = decide_rounds(state, rounds, reader, policy._factory, policy._scratch, **how)
            arm = int(decision.arm)
            known = {"probability": decision.propensity, "mean": decision.means[arm], "bonus": decision.bonuses[arm]}
            record = {"id": id, "version": policy.version, "arm": arm, **{name: float(v) for name, v in known.items()}}
            record |= {"context": after.history.contexts[-1].tolist(), "stats": asdict(after.arm_stats)}
            self._record(record)
            put_back(policy, after)
        return decision

    def _follow(self) -> None:
        while not self._end.wait(self._poll):
            try:
                name = _current(self._store)["name"]
                if name != self.name:
                    self._open(name)
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


def join(logs: str | os.PathLike[str], out: str | os.PathLike[str], *, block: int = BLOCK) -> list[str]:
    """Gather what the logs of deciders hold beyond earlier calls into a folder of decisions, for `update`.

    Returns the paths of all folders so far. A call that is repeated after a crash makes the same folder again.

    Parameters
    ----------
    logs, out
        A local folder of logs; the folder in which each call makes at most one more, wave-000001 and so on.
    block
        Decisions in a block.

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
    place, waves = Folder.at(out), list[str]()
    read: dict[str, int] = {}
    while MANIFEST in (wave := place.inside(f"wave-{len(waves) + 1:06d}")).names():
        read = json.loads(wave.read("_read.json"))
        waves.append(wave.path)
    records, ends = list[dict[str, Any]](), dict(read)
    for path in sorted(Path(logs).iterdir()):
        with open(path, "rb") as file:
            file.seek(read.get(path.name, 0))
            for line, record in lines_of(file.read()):
                records.append(record)
                ends[path.name] = ends.get(path.name, 0) + len(line)
    if records:
        _write_wave(wave, records, block)
        wave.write("_read.json", json.dumps(ends).encode())
        dim, newest = len(records[0]["context"]), max(record["version"] for record in records)
        wave.write(MANIFEST, json.dumps(asdict(Campaign(newest, len(records), block, dim, ""))).encode())
        waves.append(wave.path)
    return waves


def _write_wave(wave: Folder, records: Sequence[dict[str, Any]], block: int) -> None:
    """Write the blocks of a wave."""
    for b, start in enumerate(range(0, len(records), block)):
        part = records[start : start + block]
        columns = {name: [record[name] for record in part] for name in part[0]}
        stats = reduce(ArmStats.plus, (ArmStats(**each) for each in columns["stats"]))
        contexts = np.array(columns["context"], np.float64)
        # Only chosen contexts are in the log, which would be the wrong ones to fit a scale to: it stays as it is.
        facts = {"stats": asdict(stats), "arms": max(each["arms"] for each in columns["stats"]), "moments": {}}
        known = {name: np.array(columns[name]) for name in ("arm", "probability", "mean", "bonus")}
        versions = np.array(columns["version"])
        table = decision_table(pyarrow().array(columns["id"]), start, b, versions, known, contexts, facts)
        write = partial(pyarrow("parquet").write_table, table)
        wave.commit(wave.started(write), f"block-{b:08d}.parquet")
