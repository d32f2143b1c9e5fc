"""What an open study says about itself: status, verification, replay, logs, tables and backup.

Nothing here writes to the record of an open study.
"""

from __future__ import annotations

import copy
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from rarely import Decision, Policy
from rarely.errors import InvalidContexts
from rarely.extend import Described
from rarely.extend.provisional import Worth, content_at, forget
from rarely.logs import DecisionLog
from rarely.logs.files import NOTES, columns_of, names_of, write_table
from rarely.study.decision import DecisionRecord, block_of, record_of
from rarely.study.errors import BrokenStudy, Erased, ErasedWarning, InvalidStorage, InvalidStudy, StudyError
from rarely.study.events import GENESIS, PUBLISHING, SETTERS, Event, Position, canonical, flaw_of, gone_of, kept_hash
from rarely.study.session import LivePolicy, Session, segments
from rarely.study.settings import StudySettings, stage_at
from rarely.study.storage import CHUNK, open_storage
from rarely.study.storage.database import CHECKPOINTS, TABLES
from rarely.study.storage.sqlite import copy_checkpoints, make_private, take_checkpoints
from rarely.study.tell import OVERRIDE, Accounts, accounts_of, closed_until, rewards_of_range, rewards_to_learn
from rarely.study.versions import OUTCOMES, Job, differing, environment, lessons, train, versions_in

# --- status


@dataclass(frozen=True, slots=True)
class Status(Described):
    """The state of a study, as `Study.status` returns it.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-status", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> status = study.status()
    >>> status.decisions, status.version, status.due
    (1, 0, True)
    """

    name: str
    events: int
    head: str  #: The hash of the last event: note it elsewhere, and `verify` can tell whether the end was cut off.
    time: int  #: The time of the last event, in microseconds since 1970 (UTC).
    ahead: float  #: Seconds by which that is ahead of the machine's clock; so long waiting windows stand still.
    decisions: int
    version: int  #: The version in use.
    versions: int  #: Published versions.
    budget: int  #: The maximal number of versions.
    due: bool  #: Whether the schedule has ended the batch.
    log_det: float
    stage: str
    pinned: bool
    candidate: int | None  #: The event of a version that awaits approval.
    trainer: str  #: Who holds the lease for training; "" for nobody.
    rewards: Accounts
    unseen: dict[str, int]
    """Columns with values or gaps that the sample of the encoder did not have, and in how many decisions."""
    alarms: dict[str, int]  #: How often each alarm was raised in the life of the policy in use.
    raised: tuple[str, ...]  #: The alarms that have not returned to normal; see `UpdateRecord.alarms`.
    spent: float | None = None  #: What was spent of the policy's `Ceiling` in its period; None without one.
    price: float | None = None  #: The worth of a unit of it in the next decision.


def status_of(session: Session) -> Status:
    """Return the state of the record and of the policy."""
    with session.writing() as tables:
        position, policy = session.position, session.live.policy
        lease = tables.lease()
        names = ("head", "time", "version", "versions", "pinned", "candidate")
        return Status(
            name=session.name,
            **{name: getattr(position, name) for name in names},
            events=position.seq,
            decisions=position.rounds,
            budget=session.row.budget,
            due=policy.due,
            log_det=policy.log_det,
            ahead=max(position.time - position.offset - session.wall_clock(), 0) / 1e6,
            stage=session.settings.stages[stage_at(session.settings.stages, position.rounds + 1)[0]].name,
            trainer=lease.holder if lease is not None and lease.expires > session.lease_time() else "",
            rewards=accounts_of(session, tables),
            unseen=dict(position.unseen),
            alarms=dict(Counter(event.detail.partition(":")[0] for event in policy.events if event.kind == "alarm")),
            raised=policy.updates[-1].alarms if policy.updates else (),
            spent=policy.spent,
            price=policy.price,
        )


# --- verification


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `Study.verify`.

    Examples
    --------
    >>> Verification(events=3, head="5f2c", bad=4, flaw="event 4 is missing").whole
    False
    """

    events: int  #: Events that were checked, beginning with the first.
    head: str  #: The hash of the last of them.
    bad: int | None  #: The first wrong event; None if the record is intact.
    flaw: str  #: What is wrong with it; "" if nothing is.
    gone: tuple[str, ...] = ()  #: What was erased and pruned, when, by whom and why, in a sentence each.

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.flaw


def verify(
    session: Session, head: str | None = None, seq: int | None = None, heads: str | os.PathLike[str] | None = None
) -> Verification:
    """Check every row; with `head` or a file of `heads`, also that events with these hashes are still on record."""
    with session.reading() as tables:
        last, specials = tables.last_seq(), tables.specials()
        gone, in_use = gone_of(specials), Position().after(*specials).base
        held, _ = tables.size(gone.last)
    noted = {} if heads is None else read_heads(session, heads)
    noted |= {} if head is None else {last if seq is None else seq: head}
    previous, checked, lost = GENESIS, 0, False
    published: list[Event] = []
    for event in session.events(0, last):
        if event.seq <= gone.last:  # an act among what was pruned: `kept_hash` vouches for its place
            checked, previous = event.seq - 1, event.previous
        elif gone.last and checked <= gone.last:
            checked, previous = gone.begin.seq, gone.begin.head
            lost |= noted.pop(checked, previous) != previous
        flaw = flaw_of(session.name, event, checked + 1, previous, gone.left.get(event.seq))
        if not flaw and (event.seq == 1) != (event.kind == "create"):
            flaw = f"event {event.seq} is a {event.kind!r}, but only the first is a 'create'"
        if not flaw and event.kind == "decide" and session.settings.tables is not None and event.seq not in gone.left:
            flaw = _encoder_flaw(session, record_of(event, session.settings.arms))
        if not flaw and event.kind in ("create", *OUTCOMES):
            with session.reading() as tables:
                try:
                    session.snapshot(tables, event)
                except Erased as error:
                    flaw = f"it is in use: {error}" if event.content["snapshot"] == in_use else ""
                except BrokenStudy as error:
                    flaw = str(error)
        if flaw:
            return Verification(checked, previous, checked + 1, flaw, gone.said)
        if event.kind in PUBLISHING:
            published.append(event)
        previous, checked = event.hash, event.seq
        lost |= noted.pop(event.seq, event.hash) != event.hash
    if checked < last or not checked:
        return Verification(checked, previous, checked + 1, f"event {checked + 1} is missing", gone.said)
    if gone.last and (kept_hash(specials, gone.last) != gone.pruned["kept"] or held):
        flaw = f"of the events up to {gone.last}, which were pruned, others are there than were kept"
        return Verification(checked, previous, gone.last, flaw, gone.said)
    noted = {seq: each for seq, each in noted.items() if seq > gone.last}  # of a pruned event no hash is there
    try:
        versions_in(published)
    except BrokenStudy as error:
        flaw = str(error)
    if not flaw and (lost or noted):
        flaw = "a noted hash is not on record any more: the end of the record was cut off or rewritten"
    return Verification(checked, previous, checked + 1 if flaw else None, flaw, gone.said)


def _encoder_flaw(session: Session, record: DecisionRecord) -> str:
    """Return how the numbers of a decision contradict the columns that it was asked by; "" if they do not."""
    tables, asked = session.settings.tables, record.question.table
    if tables is None:
        return ""
    try:
        fits = asked is not None and tables.fits(asked.sent, record.question.numbers)
    except InvalidContexts:
        fits = False
    return "" if fits else f"the numbers of event {record.answer.seq} are not what its columns are encoded as"


def read_heads(session: Session, path: str | os.PathLike[str]) -> dict[int, str]:
    """Return the hashes of a study in lines of `Status` by event; a last line that was cut off is left out."""
    hashes: dict[int, str] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                fields = json.loads(line)
                if fields["name"] == session.name:
                    hashes[int(fields["events"])] = str(fields["head"])
            except (ValueError, KeyError, TypeError) as error:
                if line.endswith("\n"):
                    raise InvalidStudy(f"line {number} of {path} is not a status of a study ({error!r}).") from None
    return hashes


# --- replay


@dataclass(frozen=True, slots=True)
class Training:
    """A version, or a rejected or dismissed attempt, that was trained again.

    Examples
    --------
    >>> Training(seq=9, kind="version", fingerprint="5f2c", recorded="5f2c").equal
    True
    """

    seq: int
    kind: str
    fingerprint: str  #: The fingerprint of the policy that the replay made.
    recorded: str  #: The fingerprint of the policy on record.
    differs: tuple[str, ...] = ()
    """What is not as where it was trained, such as the "threads" of BLAS: the last digits depend on it."""

    @property
    def equal(self) -> bool:
        """Whether the replay made the same policy."""
        return self.fingerprint == self.recorded


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of `Study.replay`.

    Examples
    --------
    >>> Replay(decisions=20, other_arms=(12,), largest_difference=0.5, trainings=()).equal
    False
    """

    decisions: int
    other_arms: tuple[int, ...]  #: Events of decisions for which the replay chose another arm.
    largest_difference: float  #: The largest difference between a recorded and a repeated probability.
    trainings: tuple[Training, ...]
    checkpoints: tuple[int, ...] = ()  #: Events of checkpoints that are not what follows from the record.
    since: int = 1  #: The event where it began: what is before cannot be repeated after an erasure or a pruning.

    @property
    def equal(self) -> bool:
        """Whether versions of this environment have equal hashes, decisions the same arms, and checkpoints hold."""
        hashes = all(training.equal for training in self.trainings if not training.differs)
        return hashes and not self.other_arms and not self.checkpoints


def replay(session: Session) -> Replay:
    """Train every version and make every decision again, from version 0 on.

    Within one environment hashes must be equal. In another one the last digits differ, so the arms must be equal
    except for ties, and the differences of probabilities say how close it was.
    """
    setter, begin = _beginning(session)
    player = _Player(session, setter, begin.seq)
    events = session.checked(session.events(begin.seq, session.last_seq()), Position(seq=begin.seq, head=begin.hash))
    # Decisions that were made together are one block, and every other event is alone.
    keyed = ((event.content["block"] if event.kind == "decide" else -event.seq, event) for event in events)
    for _, group in groupby(keyed, lambda pair: pair[0]):
        player.play([event for _, event in group])
    wrong = tuple(_wrong_checkpoints(session))
    found = player.decisions, tuple(player.other), player.largest, tuple(player.trainings)
    return Replay(*found, wrong, begin.seq)


def _beginning(session: Session) -> tuple[Event, Event]:
    """Return the event that set the policy with which a replay begins, and the first event from which it is whole.

    That is the first event of the record, or else the last erasure or pruning, or what replaced its snapshot.
    """
    specials = session.specials()
    with session.reading() as tables:
        there = tables.snapshots()
    last = max((event.seq for event in specials if event.kind in ("erase", "prune")), default=1)
    setter = specials[0]
    for event in specials:
        setter = event if event.kind in SETTERS else setter
        if event.seq >= last and setter.content["snapshot"] in there:
            return setter, event
    raise BrokenStudy(f"the snapshot in use of study {session.name!r} is missing. Use a backup.")


def _wrong_checkpoints(session: Session) -> Iterator[int]:
    """Yield the events of checkpoints other than the policy, and the position, after every decision since its cut."""
    specials = session.specials()
    cuts = {event.content["snapshot"]: event.content["cut"] for event in specials if event.kind in SETTERS}
    with session.reading() as tables:
        there = tables.snapshots()
    for base, cut in cuts.items():
        saved = session.read_checkpoint(base) if base in there else None
        if saved is None:
            continue
        live = session.at_cut(base, cut, specials)
        live.follow(session.events(cut, saved.position.seq), segments(base, specials))
        one, other = (content_at(each.policy, each.mark[0])[1] for each in (live, saved))
        # In another environment the last digits differ.
        same = all(np.allclose(one[name], other[name], 1e-6, 1e-9, equal_nan=True) for name in one)
        if live.position != saved.position or not same:
            yield saved.position.seq


class _Player:
    """A replay in progress, and what it has found so far."""

    def __init__(self, session: Session, setter: Event, begin: int) -> None:
        self._session, self._specials = session, session.specials()
        self._gone = gone_of(self._specials)
        self._set(setter, begin)
        self._here = environment(self._live.policy)
        self._cuts = {event.content["cut"] for event in self._specials if event.kind in OUTCOMES}
        self._jobs: dict[int, tuple[Policy, int]] = {}
        self.decisions, self.largest = 0, 0.0
        self.other: list[int] = []
        self.trainings: list[Training] = []

    def play(self, block: list[Event]) -> None:
        first = block[0]
        self._live.charge(first)
        if first.kind == "decide":
            self._decide([record_of(event, self._session.settings.arms) for event in block])
        elif first.kind == "cut" and first.seq in self._cuts:
            # A training knows the policy as of its cut, and the rewards that could be learned by then.
            self._jobs[first.seq] = (copy.deepcopy(self._live.bare()), self._origin)
        elif first.kind in OUTCOMES and first.content["snapshot"] == first.seq and first.content["cut"] in self._jobs:
            self._train(first)
        if first.kind in ("version", "rejected", "rollback"):  # the snapshot on record was compared with the replay's
            self._set(first, first.seq - 1)

    def _set(self, setter: Event, last: int) -> None:
        """Continue from a snapshot, as of event `last`."""
        session, base, self._origin = self._session, setter.content["snapshot"], setter.content["cut"]
        with session.reading() as tables:
            self._live = LivePolicy(session.load(tables, base), session.settings, Position(self._origin))
        self._live.follow(session.events(self._origin, last), segments(base, self._specials))

    def _decide(self, records: list[DecisionRecord]) -> None:
        """Decide a block again, compare, and continue with the arms on record."""
        live, mark = self._live, self._live.mark
        stage, questions = next(live.blocks([record.question for record in records]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so have the original decisions
            decision = live.decide(stage, questions)
        live.return_to(mark)
        live.follow_records(records)
        for i, record in enumerate(records):
            made = decision.probabilities[i, : len(record.present)][record.present]
            self.largest = max(self.largest, float(np.abs(made - record.probabilities).max()))
            if int(decision.arms[i]) != record.answer.index or _encoder_flaw(self._session, record):
                self.other.append(record.answer.seq)
        self.decisions += len(records)

    def _train(self, event: Event) -> None:
        content, session = event.content, self._session
        policy, start = self._jobs.pop(content["cut"])
        forget(policy, self._gone.rounds)
        rewards = lessons(session, start, content["cut"], self._gone)
        learned = (policy, tuple(rewards), tuple(rewards.values()), content["force"])
        job = Job(session.name, content["token"], 0, content["cut"], *learned)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the original training has warned already
            fingerprint = train(job).body["fingerprint"]
        differs = differing(self._here, content["environment"])
        self.trainings.append(Training(event.seq, event.kind, fingerprint, content["fingerprint"], differs))


# --- logs


def records(session: Session, last: int | None = None, first: int = 0) -> Iterator[DecisionRecord]:
    """Yield the decisions of a part of the record, as far as it is there; `BrokenStudy` at the first altered event."""
    with session.reading() as tables:
        position = gone_of(tables.specials()).begin
        if first > position.seq:
            position = Position(seq=first, head=session.event(tables, first).hash)
    end = session.last_seq() if last is None else last
    for event in session.checked(session.events(position.seq, end), position):
        if event.kind == "decide":
            yield record_of(event, session.settings.arms)


def whole_records(session: Session, last: int, first: int = 0) -> Iterator[DecisionRecord]:
    """Yield the decisions whose contexts are on record; warn if there were others."""
    gone = session.gone()
    if any(first < seq <= last for seq in (*gone.left, gone.last)):
        acts = "; ".join(gone.said)
        warnings.warn(f"decisions of study {session.name!r} are left out: {acts}.", ErasedWarning, stacklevel=3)
    return (record for record in records(session, last, first) if not record.erased)


def recorded(
    records: Sequence[DecisionRecord], settings: StudySettings, width: int = 0, log: DecisionLog | None = None
) -> DecisionLog:
    """Return a log with these decisions added, of at least so many arms."""
    log = DecisionLog() if log is None else log
    questions = [record.question for record in records]
    contexts = np.asarray(block_of(questions, settings)[0])
    width = max(width, contexts.shape[1])
    contexts = np.pad(contexts, ((0, 0), (0, width - contexts.shape[1]), (0, 0)))
    means, bonuses, chances = scores = np.full((3, len(records), width), np.nan)
    for i, record in enumerate(records):
        scores[:, i, np.flatnonzero(record.present)] = record.means, record.bonuses, record.probabilities
    arms, versions, rounds = np.array([(a.index, a.version, a.round) for a in (each.answer for each in records)]).T
    lots = [record.held_out for record in records]
    held_out = None if all(each is None for each in lots) else np.array(lots, np.bool_)
    decision = Decision(arms, means, bonuses, versions, rounds, np.nan_to_num(chances), "", held_out)
    worth = Worth.joined([each.worth for each in questions], [len(each.present) for each in questions], width)
    marks = [0 if each.slot is None else each.slot[1] - 1 for each in questions]
    several = any(each.slot is not None for each in questions)
    decision = replace(decision, worth=worth, slate=rounds - marks if several else None)
    shared = None if settings.blocks is None else np.stack([question.numbers for question in questions])
    log.record(contexts, decision, rows=shared)
    return log


def log_of(session: Session, last: int, first: int = 0) -> DecisionLog:
    """Return contexts, arms, probabilities, versions and rewards of decisions after `first`, as of event `last`."""
    log, rest = DecisionLog(), whole_records(session, last, first)
    log.arm_names = session.settings.arms or ()
    while part := list(islice(rest, CHUNK)):
        recorded(part, session.settings, log=log)
    rounds = set(log.rounds.tolist())
    rewards = {round: reward for round, reward in rewards_to_learn(session, first, last).items() if round in rounds}
    if rewards:
        log.observe(rounds=list(rewards), rewards=list(rewards.values()))
    rule = session.settings.rewards
    with session.reading() as tables:
        for event in tables.of_kind("reward", first, last) if rule.outcomes else ():
            round, told = event.content["round"], event.content["outcomes"]
            if round in rewards:
                before = log.outcomes.get(round, {}) if rule.aggregation == "sum" else {}
                log.outcomes[round] = before | {name: before.get(name, 0.0) + value for name, value in told.items()}
        for event in tables.of_kind("quarantine", first, last):
            if event.why == OVERRIDE and "arm" in event.content and event.content["round"] in rounds:
                log.override(rounds=[event.content["round"]], reason=event.reason)
    return log


# --- the log as a table


class Exported(NamedTuple):
    """What `Study.export` has written."""

    decisions: int
    missing: int  # decisions without a reward


def parts(session: Session) -> Iterator[tuple[dict[str, Any], Exported]]:
    """Yield columns of the next decisions, as of the last event now, and how many they are; at least one part."""
    last, settings, first = session.last_seq(), session.settings, 0
    rest = whole_records(session, last)
    with session.reading() as tables:
        closed = closed_until(tables, settings.rewards, last)
        width = len(settings.arms) if settings.arms else tables.most_arms()
        more = {"slates": tables.has_decisions_with("slot"), "worth": tables.has_decisions_with("worth")}
    while part := list(islice(rest, CHUNK)):
        until = part[-1].answer.seq
        log, rewards = recorded(part, settings, width), rewards_of_range(session, first, until, closed)
        there = {*log.rounds.tolist()}
        if rewards := {round: reward for round, reward in rewards.items() if round in there}:
            log.observe(rounds=list(rewards), rewards=list(rewards.values()))
        yield _notes(part, settings) | columns_of(log, **more), Exported(len(log), log.missing)
        first = until
    if not first:
        names = names_of(width, 0 if settings.blocks is None else settings.shared, session.dim)
        yield _notes([], settings) | {name: [] for name in names}, Exported(0, 0)


def _notes(part: Sequence[DecisionRecord], settings: StudySettings) -> dict[str, list[Any]]:
    """Return the columns `NOTES` of decisions: by columns also the arm's name, and what came, as JSON."""
    notes: dict[str, list[Any]] = {name: [getattr(each.answer, name) for each in part] for name in NOTES[:3]}
    notes["actor"] = [each.actor for each in part]
    if settings.tables is not None:
        notes["name"] = [str(each.answer.arm) for each in part]
        notes["sent"] = [canonical(each.question.table and each.question.table.sent) for each in part]
    return notes


def export(session: Session, path: str | os.PathLike[str]) -> Exported:
    """Write the table to a file, as Parquet if its name ends in .parquet, else as CSV."""
    counts: list[Exported] = []

    def written() -> Iterator[dict[str, Any]]:
        for columns, some in parts(session):
            if not counts:
                make_private(os.fspath(path))
            counts.append(some)
            yield columns

    write_table(path, written())
    return Exported(sum(each.decisions for each in counts), sum(each.missing for each in counts))


# --- backup


def back_up(session: Session, path: str) -> None:
    """Copy the database to a new SQLite file, and check that the copy has all events of the study."""
    session.check()
    if os.path.lexists(path):
        raise InvalidStorage(f"{path} exists already; a backup needs a new name, such as one with the date.")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise InvalidStorage(f"the folder of {path} does not exist. Create it first.")
    seq = session.last_seq()
    with session.reading() as tables:
        last = session.event(tables, seq)
    temporary, beside = f"{path}.part", f"{path}.part-checkpoints"
    try:
        with suppress(StudyError):  # without them a restored study repeats its decisions
            copy_checkpoints(session.storage, beside)  # before the record, which then has the event of each
        session.storage.backup(temporary)
        take_checkpoints(temporary, beside)
        with closing(open_storage(f"sqlite:///{temporary}?shared=1")) as copied, copied.reading() as tables:
            if tables.of(session.row).event(last.seq) != last:
                raise StudyError(f"the backup {path} lacks events of study {session.name!r}; it was removed.")
        os.rename(temporary, path)
    finally:
        for part in (temporary, beside):
            with suppress(FileNotFoundError):
                os.unlink(part)


def restore(backup: str, storage: str) -> list[str]:
    """Check all studies of a backup, copy them into an empty database, and return their names."""
    with closing(open_storage(f"sqlite:///{backup}", reading=True)) as source:
        source.check()
        with source.reading() as kept:
            rows = kept.studies()
        for row in rows:
            checked = verify(Session(source, row.name))
            if not checked.whole:
                raise BrokenStudy(f"study {row.name!r} of {backup} is damaged: {checked.flaw}. Use another backup.")
        with closing(open_storage(storage, new=True)) as target:
            target.create()
            with source.reading() as kept, target.writing("") as tables:
                if tables.studies() or tables.run("SELECT 1 FROM rarely_erasures"):
                    raise InvalidStorage(f"{target.url} holds studies already; restore into an empty database.")
                target.take(source.stream, {name: order for name, order in TABLES.items() if name != "rarely_schema"})
                if source.has_checkpoints:
                    target.create_checkpoints()
                    target.take(source.stream, CHECKPOINTS)
                for row in rows:
                    copied, original = tables.of(row), kept.of(row)
                    last = original.last_seq()
                    if copied.event(last) != original.event(last):
                        raise StudyError(f"{target.url} lacks events of study {row.name!r}; nothing was restored.")
    return [row.name for row in rows]
