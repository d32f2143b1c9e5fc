"""The versions of a study: created, trained, published, approved, rolled back.

    begin    under a lease with a fencing token: the cut, the policy as of the cut, the rewards that it may learn from
    train    anywhere, also in another process; needs no database
    finish   repeats what was decided since the cut, and publishes in one transaction

The lease keeps two trainers from doing the same work. It is short, `renewed` while the training is alive, and names its
holder by machine, process and a random mark, so that nobody waits long for a trainer that has died. It is not what
keeps versions apart: a trainer whose lease has expired may still be training. Every lease has a higher token than the
one before it, and a version is published only with the highest, by the transaction that also writes its row.
"""

from __future__ import annotations

import copy
import os
import pickle
import secrets
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rarely import Policy, build_info
from rarely.errors import RarelyError, SnapshotError
from rarely.extend import Described, Progress
from rarely.extend.checks import shown
from rarely.extend.provisional import forget, state_of
from rarely.golden import family_of
from rarely.runs.machine import end_with
from rarely.study import errors
from rarely.study.errors import BrokenStudy, InvalidStudy, StaleTrainer, StudyBusy, StudyError
from rarely.study.events import PUBLISHING, Event, EventKind, Gone, Position, canonical, gone_of, next_event
from rarely.study.session import LOG, Clock, LivePolicy, Session, from_bytes, sha256_of, to_bytes
from rarely.study.settings import StudySettings, check_updates, stage_at
from rarely.study.storage import Lease, Storage, Tables
from rarely.study.tell import rewards_to_learn

UNLIMITED = 2**31 - 1  # the budget of a policy whose schedule has no limit
LEASE = 30.0  # seconds for which a lease is valid without being renewed
_ACTIVE: dict[tuple[str, str, int], str] = {}
"""Holders of leases by database, study and token: the trainings that this process has begun and not ended."""
MOST_ROUNDS = 10_000
"""With more rounds than these, a version drops those that nothing needs: memory and snapshots would grow for ever."""
NICENESS = 10  # added to the niceness of a training process, so that decisions come first
_VERSION = ("number", "parent", "cut", "snapshot", "sha256", "fingerprint", "settings", "environment")
"""What a version takes from its event."""
OUTCOMES = ("version", "rejected", "candidate")  # kinds of events that hold the result of a training
_DECISIVE = ("rarely", "code", "bits", "numpy", "machine", "loops", "blas", "threads")
"""What the last digits depend on; the versions of Python and of the system do not matter."""


def environment(policy: Policy) -> dict[str, str]:
    """Return the versions and the numerics that compute here: bits are promised within one environment.

    `code` is the golden digest of the policy's family, which arms depend on, and `bits` is that of its golden numbers
    to the last bit. A policy of the user's own has the family of the class that it is made from; one without a family,
    such as a network of torch, has the name of its class, and the version of the package stands for its code.
    """
    info = build_info()
    here = {name: str(getattr(info, name)) for name in ("rarely", "python", "numpy", "platform", "machine")}
    blas = f"{info.blas.name} {info.blas.version} {info.blas.kernel}".strip()
    family = family_of(policy)
    code, bits = (type(policy).__name__, "") if family is None else (family.golden.digest, family.golden.bits)
    return here | {"code": code, "bits": bits, "loops": info.form, "blas": blas, "threads": str(info.blas.threads)}


def differing(one: dict[str, str], other: dict[str, str]) -> tuple[str, ...]:
    """Return in what two environments differ that the last digits depend on; nothing, if they promise the same bits."""
    return tuple(name for name in _DECISIVE if one.get(name) != other.get(name))


# --- version 0


def create(
    storage: Storage, name: str, policy: Policy, settings: StudySettings, *, actor: str, reason: str, clock: Clock
) -> None:
    """Write the first event and version 0 of a new study, unless the same study exists."""
    content, snapshot = _first_content(name, policy, settings)
    ledger = state_of(policy).ledger
    learned, spends = ledger is not None and ledger.costs is not None, settings.rewards.spends
    if learned != (spends is not None):
        raise errors.InvalidStudy(
            f"Ceiling(costs='learned') and RewardRule(outcomes=…, spends=…) must come together: the outcome says what "
            f"was spent; got spends={spends!r}. Costs that are known come with each request: worth={{'spends': …}}."
        )
    with storage.writing(name) as tables:
        row = tables.study(name)
        if row is not None:
            first = tables.of(row).event(1)
            if first is None or (others := _differing(first.content, content)):
                which = "" if first is None else f": {', '.join(others)}"
                drawn = " A policy without a seed draws one; name it to create the same again." * which.endswith("seed")
                raise errors.StudyExists(
                    f"{storage.url} already has a study called {name!r}, with other settings{which}. Open it with "
                    f"Study.open, or choose another name.{drawn}"
                )
            return
        batches: int | None = getattr(policy.schedule, "batches", None)
        tables = tables.of(tables.add_study(name, UNLIMITED if batches is None else batches))
        now = round(clock() * 1e6)
        tables.append(next_event(name, Position().last, "create", now, content, actor=actor, reason=reason))
        tables.add_snapshot(1, content["sha256"], snapshot)


def _first_content(name: str, policy: Any, settings: StudySettings) -> tuple[dict[str, Any], bytes]:
    """Return the body of the first event, and the snapshot of version 0."""
    if not isinstance(policy, Policy):
        raise InvalidStudy(f"policy must be a policy of rarely, such as BatchNeuralUCB(…); got {shown(policy)}.")
    if policy.round or policy.version:
        raise InvalidStudy(
            f"policy must have decided nothing yet; this one has made {policy.round} rounds. Make a new one, with "
            "from_log if there are earlier data."
        )
    if settings.blocks is not None and settings.blocks.dim != policy.dim:
        raise InvalidStudy(
            f"blocks make contexts of {settings.blocks.dim} numbers, but the policy takes {policy.dim}. Make the "
            "policy with **blocks.settings, or dim=blocks.dim."
        )
    check_updates(policy.schedule, settings.stages)
    try:
        snapshot = to_bytes(policy)
        kept = from_bytes(name, snapshot, getattr(policy, "model", None))
    except RarelyError as error:
        raise InvalidStudy(
            f"the policy of a study must be one that can be saved and loaded: {error.__cause__ or error} A class of "
            "your own must be defined in a module, under the base class of rarely.extend that it is a kind of."
        ) from error
    content: dict[str, Any] = {"policy": type(policy).__name__, "settings": policy.settings()}
    content |= {"study": settings.describe(), "dim": policy.dim, "environment": environment(policy)}
    content |= {"cut": 1, "number": 0, "parent": None, "snapshot": 1}
    return content | {"fingerprint": kept.fingerprint(), "sha256": sha256_of(snapshot)}, snapshot


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of what must be equal for two calls of `create` to mean the same study, and is not."""
    if one["policy"] != other["policy"]:
        return ["policy"]
    parts = [(a, b) for a, b in ((one[name], other[name]) for name in ("study", "settings"))]
    names = [(name, a, b) for a, b in parts for name in sorted(a.keys() | b.keys())]
    return [name for name, a, b in names if canonical({"": a.get(name)}) != canonical({"": b.get(name)})]


@dataclass(frozen=True, slots=True)
class PublishedVersion(Described):
    """A published version, as its event has it.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-versions", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> version = study.versions()[0]
    >>> version.number, version.parent, version.seq
    (0, None, 1)
    """

    number: int
    parent: int | None
    cut: int  #: The last event that it learned from: the end of its log range.
    snapshot: int  #: The event that holds its snapshot.
    sha256: str  #: The hash of the snapshot's bytes.
    fingerprint: str  #: The fingerprint of the policy: equal for equal policies, whatever file holds them.
    settings: dict[str, Any]
    environment: dict[str, str]
    seq: int  #: The event that published it.
    first: int  #: The first event after the parent's cut.


def versions_in(specials: Iterable[Event]) -> list[PublishedVersion]:
    """Return the versions that special events have published."""
    versions: list[PublishedVersion] = []
    for event in specials:
        if event.kind in PUBLISHING:
            number, parent = event.content["number"], event.content["parent"]
            if number != len(versions) or (parent is None) != (number == 0) or (parent or 0) > number:
                raise BrokenStudy(f"event {event.seq} publishes version {number} after {len(versions)}. Use a backup.")
            read = {name: event.content[name] for name in _VERSION}
            first = 1 if parent is None else versions[parent].cut + 1
            versions.append(PublishedVersion(**read, seq=event.seq, first=first))
    return versions


# --- training


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a training needs; it can be pickled.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> Job("colours", 1, parent=0, cut=4, policy=LinUCB(dim=1), rounds=(1,), rewards=(0.5,), force=False).token
    1
    """

    study: str
    token: int  #: The fencing token of the lease.
    parent: int  #: The version in use at the cut.
    cut: int  #: The last event that the version knows.
    policy: Policy
    rounds: tuple[int, ...]
    rewards: tuple[float, ...]
    force: bool  #: Whether it is trained even if no reward came since the last update.


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a training; it can be pickled.

    Examples
    --------
    >>> Trained("colours", 1, accepted=False, snapshot=b"", body={"parent": 0, "cut": 4}).accepted
    False
    """

    study: str
    token: int
    accepted: bool
    snapshot: bytes
    body: dict[str, Any]
    """What its event will say: parent and cut, and the policy's `UpdateRecord`, settings and fingerprint."""


def train(job: Job, progress: Progress = None) -> Trained:
    """Train the next version. The job's policy is used up.

    Raises `NothingToLearn` if no reward came since the last update, none is due and `force` is not set.

    Parameters
    ----------
    job
        The value that `Study.begin_update` returned.
    progress
        As in `Policy.update`.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study, train
    >>> study = Study.create("memory://example-train", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.tell(study.ask([[1.0], [2.0]]).id, 1.0)
    >>> trained = train(study.begin_update())  # in another process, say: both can be pickled
    >>> trained.accepted, trained.body["record"]["samples"], study.finish_update(trained)
    (True, 1, 'version')
    """
    policy = job.policy
    if job.rounds:
        policy.observe(rounds=np.array(job.rounds), rewards=np.array(job.rewards))
    record = policy.update(force=job.force, progress=progress)
    if len(policy.history) > MOST_ROUNDS:
        policy.compact()
    body = {name: getattr(job, name) for name in ("cut", "force", "parent", "token")} | {"record": record.describe()}
    body |= {"environment": environment(policy), "fingerprint": policy.fingerprint(), "settings": policy.settings()}
    return Trained(job.study, job.token, record.accepted, to_bytes(policy), body)


def train_process(parent: int) -> None:
    """Train in a process of its own, for a parent: read a pickled job from stdin, write the pickled result to stdout.

    Unpickling runs code, so only the process that made the job may start this one.
    """
    end_with(parent)
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)
    result: Trained | RarelyError
    try:
        result = train(pickle.load(sys.stdin.buffer))
    except RarelyError as error:
        result = error
    pickle.dump(result, sys.stdout.buffer, protocol=5)
    sys.stdout.buffer.flush()


# --- leases


def holder_name() -> str:
    """Return a name for the holder of a lease: machine, process and a random mark."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def _has_died(holder: str) -> bool:
    """Return whether a holder was a training of this machine that has ended; False if in doubt.

    Taking over the lease of a living process would do no harm: its token would no longer be the latest.
    """
    host, number, *_ = [*holder.split("/"), ""]
    if os.name != "posix" or host != socket.gethostname() or not number.isdecimal():
        return False
    if int(number) == os.getpid():  # of an earlier process 1 of this container, or of a training that was given up
        return holder not in _ACTIVE.values()
    with suppress(PermissionError, OverflowError):
        try:
            os.kill(int(number), 0)  # signal 0 only checks that the process exists
        except ProcessLookupError:
            return True
    return False


@contextmanager
def renewed(session: Session, job: Job) -> Iterator[None]:
    """Renew the lease of a job in another thread until the block ends."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE / 3):
            try:
                with session.storage.writing(session.name) as every:
                    tables, now = every.of(session.row), session.lease_time()
                    lease, expires = tables.lease(), now + round(LEASE * 1e6)
                    if lease is not None and lease.token == job.token and lease.expires < expires:
                        tables.add_lease(replace(lease, taken=now, expires=expires))
            except Exception as error:  # another one may succeed, and a version is published only with its token
                LOG.warning("the lease of a training of study %r was not renewed: %s", session.name, error)

    thread = threading.Thread(target=renew, name="rarely-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def release(session: Session, token: int) -> None:
    """End the lease early, if it is still the latest."""
    _ACTIVE.pop((session.storage.url, session.name, token), None)
    with session.writing() as tables:
        lease = tables.lease()
        if lease is not None and lease.token == token and lease.expires > session.lease_time():
            _end_lease(session, tables, token)


def _end_lease(session: Session, tables: Tables, token: int) -> None:
    tables.add_lease(Lease(token + 1, "", session.lease_time(), session.lease_time()))


# --- updates


def begin(session: Session, *, force: bool, actor: str, reason: str) -> Job:
    """Take the lease, and cut the record here."""
    holder = holder_name()
    with session.writing() as tables:
        position = session.position
        check_open(session)
        lease, now = tables.lease(), session.lease_time()
        if lease is not None and lease.expires > now and not _has_died(lease.holder):
            raise StudyBusy(
                f"{lease.holder} is training the next version; its lease ends in {(lease.expires - now) / 1e6:.0f} "
                "seconds, unless it is renewed. Wait for it."
            )
        token = 1 if lease is None else lease.token + 1
        tables.add_lease(Lease(token, holder, now, now + round(LEASE * 1e6)))
        _ACTIVE[session.storage.url, session.name, token] = holder
        cut = session.append(tables, "cut", {"token": token, "holder": holder}, actor=actor, reason=reason).seq
        policy, gone = copy.deepcopy(session.live.bare()), gone_of(tables.specials())
        forget(policy, gone.rounds)
    try:
        rewards = lessons(session, position.cut, cut, gone)
    except BaseException:
        release(session, token)
        raise
    return Job(session.name, token, position.version, cut, policy, tuple(rewards), tuple(rewards.values()), force)


def lessons(session: Session, start: int, cut: int, gone: Gone) -> dict[int, float]:
    """Return what a policy with the cut `start` must learn, by round, of rounds whose contexts are there."""
    told = rewards_to_learn(session, start, cut)
    return {round: reward for round, reward in told.items() if round not in gone.rounds}


def finish(session: Session, trained: Trained, *, actor: str, reason: str) -> str:
    """Record a trained version, and return its kind: "version", "candidate" or "rejected"."""
    try:
        policy = from_bytes(session.name, trained.snapshot, session.model)
    except SnapshotError as error:
        raise StudyError(f"the trained version cannot be loaded, so it is not published: {error}") from error
    live = LivePolicy(policy, session.settings, Position(trained.body["cut"]))
    session.approach(live)
    try:
        kind = _publish(session, trained, live, actor=actor, reason=reason)
        _ACTIVE.pop((session.storage.url, session.name, trained.token), None)
        return kind
    except StaleTrainer:
        release(session, trained.token)  # it can never be finished, and must not keep others from training
        raise


def _publish(session: Session, trained: Trained, live: LivePolicy, *, actor: str, reason: str) -> str:
    """Write the event and the snapshot of a trained version that no other training and no rollback has overtaken."""
    with session.writing() as tables:
        for event in tables.specials(trained.body["cut"]):
            if event.kind in OUTCOMES and event.content["token"] == trained.token:
                return event.kind  # it was published by a commit that was not confirmed
        session.check_fresh(gone_of(tables.specials()), trained.body["cut"])
        check_open(session)
        lease = tables.lease()
        if lease is None or lease.token != trained.token:
            raise StaleTrainer(
                f"the lease of this training (token {trained.token}) was taken over by {lease and lease.holder!r} "
                f"(token {lease and lease.token}), so its version is not published. Begin a new update."
            )
        if session.position.version != trained.body["parent"]:
            raise StaleTrainer(
                f"this training began from version {trained.body['parent']}, but version {session.position.version} "
                "is in use now. Begin a new update."
            )
        last, stages = session.position.seq, session.settings.stages
        stage = stages[stage_at(stages, session.position.rounds + 1)[0]]
        kind: EventKind = "rejected" if not trained.accepted else "candidate" if stage.approval else "version"
        content = trained.body | {"sha256": sha256_of(trained.snapshot), "snapshot": last + 1}
        if kind == "version":
            content["number"] = session.position.versions
        event = session.append(tables, kind, content, actor=actor, reason=reason)
        tables.add_snapshot(event.seq, content["sha256"], trained.snapshot)
        if kind != "candidate":
            session.install(tables, live)
        _end_lease(session, tables, trained.token)
    return kind


def check_open(session: Session, *, approving: bool = False) -> None:
    """Refuse an update, or the approval of a candidate, while no version may be published."""
    position, budget = session.position, session.row.budget
    if position.pinned:
        raise errors.StudyPinned(f"version {position.version} of study {session.name!r} is pinned; call unpin first.")
    if position.candidate is not None and not approving:
        raise errors.ApprovalNeeded(f"the candidate of event {position.candidate} waits: approve or dismiss it.")
    if position.versions >= budget:
        raise errors.StudyFull(
            f"study {session.name!r} has published all {budget} versions of its budget; version {position.version} "
            "keeps deciding."
        )


def candidate_of(session: Session, tables: Tables) -> Event:
    """Return the event of the version that awaits approval."""
    event = tables.event(session.position.candidate or 0)
    if event is None:
        raise errors.ApprovalNeeded(f"study {session.name!r} has no candidate that awaits approval; call update first.")
    return event
