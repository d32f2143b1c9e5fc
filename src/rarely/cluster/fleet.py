"""A fleet: many processes decide with copies of one version, and nothing is in the way of a decision.

    store   a folder of published versions, policy-000003-SHA256.rarely, and used.json, whose last name is in use
    log     the file of a decider, and those that it wrote before: `rarely.cluster.decider_logs`
    wave    what is new in all logs, for an update

A published file never changes, and its name says what is in it. A decider adds its own choices to its own copy of Z, so
that its rounds spread over the arms, and knows nothing of the others' until the next version. A line is written before
its decision is returned, so what was answered is in the log. Version, id and contexts in the log are enough to make a
decision again.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rarely import Decision, FramePolicy, Policy
from rarely.cluster.campaign import Url, key_of, lineage, parts_of, uniforms
from rarely.cluster.decider_logs import Log, Logged, LostDecisions, damaged, lines_of, logs_in, predecessor
from rarely.cluster.files import Folder
from rarely.errors import InvalidInput, InvalidSlate, RarelyError
from rarely.extend import Array, schedule_from
from rarely.extend.provisional import LiveCopy, Worth, archive, content_at, forwarded, restore, state_of

USED = "used.json"
PUBLISHED = re.compile(r"policy-\d{6}-[0-9a-f]{64}\.rarely")


def publish(policy: Policy | FramePolicy, url: Url) -> str:
    """Write the policy's version to a store, make it the one in use, and return the name of its file.

    A file that is there already and damaged is mended. Of two calls at once one raises `FolderBusy`.

    Parameters
    ----------
    policy, url
        What deciders will use, by columns if it is a `FramePolicy`; a folder, or a URL of a file system that pyarrow
        knows.

    Examples
    --------
    >>> import tempfile
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import publish
    >>> publish(LinUCB(dim=2, schedule=OnDemand(), seed=0), tempfile.mkdtemp())[:14]
    'policy-000000-'
    """
    schedule_from(policy.schedule.describe())  # a schedule that `load` does not know is refused now
    whole: Any = policy
    store, content = Folder.at(url), archive.to_bytes(*content_at(whole, state_of(whole)))
    name = f"policy-{policy.version:06d}-{hashlib.sha256(content).hexdigest()}.rarely"
    with store.alone():
        names = store.names()
        used = names_used(store) if USED in names else []
        if name not in names or store.read(name) != content:
            store.write(name, content)
        if used[-1:] != [name]:
            store.write_json(USED, [*used, name])
    return name


def rollback(url: Url) -> str:
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
    with store.alone():
        *used, _ = names_used(store)
        if not used:
            raise InvalidInput(f"{store.path} has had one version in use, so there is none to return to.")
        store.write_json(USED, used)
    return used[-1]


def names_used(store: Folder) -> list[str]:
    """Return the files that have been in use and not been left by `rollback`; the last is in use."""
    if USED not in store.names():
        raise InvalidInput(f"{store.path} must be a store with a published version; it has no {USED}.")
    names = store.read_json(USED)
    if not names or not isinstance(names, list) or not all(PUBLISHED.fullmatch(str(name)) for name in names):
        raise InvalidInput(
            f"{store.path}/{USED} is damaged: it must list versions. Remove it, and publish the one to use."
        )
    return names


def read_published(store: Folder, name: str, model: Any = None) -> Policy | FramePolicy:
    """Return what was published; refuse a file that its name does not fit."""
    content = store.read(name)
    if hashlib.sha256(content).hexdigest() != name[14:78]:
        raise RarelyError(f"{store.path}/{name} has not the SHA-256 of its name; publish the version again.")
    policy: Policy | FramePolicy = restore(archive.parse(io.BytesIO(content), name), name, model=model)
    return policy


class StaleVersionWarning(UserWarning):
    """A decider cannot read its store, and goes on with the version that it has."""


class OpenVersion(LiveCopy):
    """A published version that this process decides with."""

    def __init__(self, store: Folder, name: str, model: Any = None) -> None:
        policy, self.tables = parts_of(read_published(store, name, model))
        super().__init__(policy)
        self.name, self.policy_hash, self.origin = name, name[14:30], lineage(self.policy, 1)
        self._key = key_of(self.policy)

    def draw(self, id: str) -> Array:
        """Return the random number of a decision, which depends on the version and the id alone."""
        return uniforms(self._key, [id])

    def logged(self, id: str, made: Any) -> Logged:
        """Return the line of a decision that this version has made."""
        decision, arm, worth = made.decision, int(made.decision.arm), made.decision.worth
        columns = () if worth is None else (worth.gain, worth.cost)
        return Logged(
            id=id,
            version=self.policy.version,
            policy=self.policy_hash,
            origin=self.origin,
            before=self.decided,
            arm=arm,
            arms=len(made.present),
            absent=tuple(np.flatnonzero(~made.present).tolist()),
            probability=float(decision.probabilities[arm]),
            mean=float(decision.means[arm]),
            bonus=float(decision.bonuses[arm]),
            stats=tuple(made.stats.describe().values()),
            contexts=made.rows,
            worth=tuple(tuple(column[made.present].tolist()) for column in columns),
        )


class Decider:
    """Decides in the caller's process with the version that a store has in use, and never waits for the store.

    Parameters
    ----------
    url
        The store, which `publish` writes to.
    log
        The path of this decider's own log, or a function that is called with each record before it is answered. Raises
        `LogBusy` if another decider has the log, in this process or another; after a fork, make a decider in each. If
        the file is renamed, a log of its own follows under its name. Raises `LostDecisions` if a line is damaged.
    poll
        Seconds between two looks at the store, in a thread of its own. If the store cannot be read, a
        `StaleVersionWarning` says so once, and the version stays.
    sync
        Whether each line of the log must be on the disk, so that it also survives a power failure.
    model
        As in `rarely.load`, for policies that were made with a model of yours.

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
        model: Any = None,
    ) -> None:
        self._store, self._poll, self._model = Folder.at(url), poll, model
        self._version = OpenVersion(self._store, names_used(self._store)[-1], model)
        self._log = log if callable(log) else Log(log, sync=sync)
        self._lock, self._end, self._away = threading.Lock(), threading.Event(), False
        self.unseen: Counter[str] = Counter()
        """Columns with values or gaps that the sample of the encoder did not have, and in how many decisions."""
        self._thread = threading.Thread(target=self._follow, name="rarely.Decider", daemon=True)
        self._thread.start()

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    version: int = forwarded("_version.policy.version", "The version in use.")

    def decide(
        self, id: str, contexts: Any, mask: Any = None, *, worth: Any = None, slots: int | None = None
    ) -> Decision:
        """Decide one round, log it and return it; contexts, mask and worth are those of `Policy.select`.

        A published `FramePolicy` is asked as its `Study` is: {"user": a row, "items": a table}, or one of both, and a
        worth may name columns of items. Slates are refused: `slots` raises `InvalidSlate`.
        """
        if slots is not None:
            raise InvalidSlate(
                "a fleet decides one arm a round, because a line of its log is made again alone and does not know what "
                "stands above it; let one process, or a Study, fill slots."
            )
        if not isinstance(id, str):  # one log with a number would keep `join` from making a column of all
            raise InvalidInput(f"id must be text that names this decision alone; got {id!r}.")
        with self._lock:
            version, unseen = self._version, tuple[str, ...]()
            if version.tables is not None and isinstance(contexts, Mapping):
                asked = version.tables.asked(contexts)
                worth = None if worth is None else version.tables.worth(worth, asked.sent.get("items"))
                contexts, unseen = version.tables.round_contexts(asked.numbers, asked.arms), asked.unseen
            made = version.decide(contexts, mask, version.draw(id), worth)
            logged = version.logged(id, made)
            if isinstance(self._log, Log):
                self._log.append(logged)
            else:
                self._log(logged.fields() | {"contexts": logged.contexts.tolist()})
            version.accept(made)
            self.unseen.update(unseen)
        return made.decision

    def _follow(self) -> None:
        while not self._end.wait(self._poll):
            try:
                name = names_used(self._store)[-1]
                if name != self._version.name:
                    self._version = OpenVersion(self._store, name, self._model)
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
        if isinstance(self._log, Log):
            self._log.close()


def audit(url: Url, logs: Url, *, accept_losses: bool = False, model: Any = None) -> dict[str, float]:
    """Make every logged decision of a fleet again, from its version in the store, its id and its contexts.

    Returns the ids whose decision differs, and by how much its probability, mean or bonus does; ∞ is another arm. In
    another environment last digits differ. Raises `LostDecisions` if a line is damaged or decisions are missing, and
    `InvalidInput` if there is none at all.

    Parameters
    ----------
    url, logs
        The store; a local folder of logs.
    accept_losses
        Whether to go on behind what is damaged or missing. What cannot be made again for its lack is NaN in the result,
        a damaged line by its file and number.
    model
        As in `Decider`.

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
    store, differences, none = Folder.at(url), dict[str, float](), True
    for chain in _chains(logs_in(logs)):
        version: OpenVersion | None = None
        for path in chain:
            for mark, said in lines_of(path):
                if isinstance(said, dict):
                    continue
                none = False
                if said is not None and said.before == 0:
                    name = next((name for name in store.names("policy-") if name[14:].startswith(said.policy)), None)
                    if name is None:
                        lacks = f"the version whose SHA-256 begins with {said.policy}; publish it again."
                        raise InvalidInput(f"{store.path} must have {lacks}")
                    version = OpenVersion(store, name, model)
                if said is None or (version is not None and said.contexts.shape[1] != version.policy.dim):
                    difference, version, about = math.nan, None, f"{path}, line {mark.line}"
                    loss = damaged(path, mark)
                else:
                    about, difference = said.id, _made_again(version, said)
                    loss = LostDecisions(
                        f"{logs} must have all decisions since a decider opened its version; the one before "
                        f"{said.id!r} in {path}, line {mark.line}, is missing."
                    )
                if math.isnan(difference) and not accept_losses:
                    raise loss
                if difference:
                    differences[about] = difference
    if none:
        raise InvalidInput(f"{os.fspath(logs)} must have a log with decisions; there is none.")
    return differences


def _chains(logs: dict[str, Path]) -> Iterator[list[Path]]:
    """Yield the logs of each decider in the order in which it wrote them."""
    before = {log: (predecessor(path) or ("", 0))[0] for log, path in logs.items()}
    after = {first: log for log, first in before.items()}
    for log in (log for log, first in before.items() if first not in logs or after[first] != log):
        chain = [log]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        yield [logs[each] for each in chain]


def _made_again(version: OpenVersion | None, logged: Logged) -> float:
    """Return by how much a decision differs from that on record, and continue with the arm on record."""
    if version is None or (version.policy_hash, version.decided) != (logged.policy, logged.before):
        return math.nan
    present = np.isin(np.arange(logged.arms), logged.absent, invert=True)
    columns = np.zeros((2, 1, len(present)))
    columns[:, :, present] = np.array(logged.worth or ((0.0,), (0.0,)))[:, None]
    worth, draw = Worth(*columns) if logged.worth else None, version.draw(logged.id)
    made = version.decide_again(logged.contexts, present, draw, worth)
    again = version.logged(logged.id, made)
    if again.arm != logged.arm:
        version.accept(version.decide_again(logged.contexts[[logged.row]], np.ones(1, np.bool_), draw))
        return math.inf
    version.accept(made)
    one, other = (np.array([each.probability, each.mean, each.bonus]) for each in (logged, again))
    return float(np.abs(one - other).max())
