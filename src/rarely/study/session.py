"""One open study: the record in a database, and the policy in memory that follows from it.

A call runs in one transaction. First the policy catches up with what other processes have recorded, before the
transaction if that is more than a little; then it decides, the events are written and committed, and only then is
anything answered. If the call fails, policy and position are restored. If it is unknown whether the commit succeeded,
the next call asks the record.

A policy repeats decisions of its own in the blocks in which they were made, unless C decides, whose bits do not depend
on blocks, and those that were made while another snapshot was in use in groups of `GROUP` rounds. Both follow from the
record alone, so every process and every replay arrives at the same bits.

A checkpoint is the policy as of an event, beside the record, so that a study opens without repeating every decision:

    base      the snapshot that the policy continues from; its history has n₀ rows
    history   rows of chosen contexts, arms, versions, propensities, means and bonuses since the previous checkpoint
    state     everything else that the policy knows, and the `Position`; the latest checkpoint of a base has it
    sha256    of the checkpoint before (of the snapshot, for the first one) and of `history`

The rows of all checkpoints of a base are joined, so a checkpoint costs what has happened since the last one, and a
million decisions are read back as one array. A checkpoint is not part of the record, and nothing depends on it: it is
used only if every hash fits and the record still has its event, `Study.replay` compares it with what follows from
the record, and without it the decisions are repeated.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import threading
import time
import warnings
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from rarely import Decision, Policy
from rarely.errors import InvalidReward, RarelyError, SnapshotError
from rarely.extend import Array, Arrays, ChoiceRule, provisional
from rarely.extend.provisional import archive
from rarely.study import errors
from rarely.study.decision import (
    Answer,
    DecisionRecord,
    Question,
    Slate,
    answer_of,
    asked_of,
    block_events,
    record_of,
    slot_id,
)
from rarely.study.errors import BrokenStudy, StudyBusy, StudyError
from rarely.study.events import (
    ERASED,
    SETTERS,
    Event,
    EventKind,
    Gone,
    Position,
    digest,
    flaw_of,
    gone_of,
    next_event,
    packed,
    summed,
)
from rarely.study.settings import MAX_ARMS, StudySettings, rule_of_stage, stage_at
from rarely.study.storage import CHUNK, Storage, StudyRow, Tables

LOG = logging.getLogger("rarely.study")
logging.getLogger("rarely").addHandler(logging.NullHandler())  # a library logs nothing unless the program asks for it
Clock = Callable[[], float]
Mark = tuple[provisional.PolicyState, Position]
"""What a `LivePolicy` knows at a moment: a value, which later calls leave as it is."""
Segment = Callable[[int], int | None]  # what `segments` returns

MAX_LEAP = 30 * 86400.0
"""Seconds by which the clock may be ahead of the last event, where the database has no clock of its own."""
MAX_SKEW = 300.0  # seconds by which the clock may be ahead of the database's
CHECKPOINT_WORK = 0.5
"""Seconds of processor time in transactions after which a checkpoint is made: about what it takes to repeat them."""
REPEAT_WORK = 5.0
"""Seconds of processor time after which a study that is being opened says how far it is, and writes a checkpoint."""
STANDBY_PAUSE = 9.0
"""While others decide, the version kept ready for a rollback rests this many times as long as it works."""
BUSY = 1.0  # seconds since the last transaction in which others count as deciding
CHECKPOINT_SHARE = 10  # a checkpoint is made after no less than this many times its own cost
GROUP = 256  # rounds that are repeated together if another snapshot was in use
FEW_EVENTS = 2 * GROUP  # a policy may take in this many events while others wait; the rest it takes in before
MAX_CATCH_UPS = 20  # how often it catches up with current events before the others must wait
CLOSE_WAIT = 10.0
"""Seconds that `close` waits for a checkpoint; a database that hangs must not keep a service from ending."""
CHECKPOINT_WAIT = 0.5
"""Seconds that a process gives another one, which has just changed the version, to write its checkpoint."""
_COLUMNS = ("arms", "versions", "propensities", "means", "bonuses")
_PREFIX = "history."


# --- policies as bytes


def to_bytes(policy: Policy) -> bytes:
    """Return the bytes that `policy.save` writes."""
    return archive.to_bytes(*provisional.content_at(policy, provisional.state_of(policy)))


def from_bytes(study: str, data: bytes, model: Any = None) -> Policy:
    """Return the policy that `to_bytes` was given, as one that decides for a study; `model` is as in `load`."""
    return _of_study(study, archive.parse(io.BytesIO(data), "it"), model)


def _of_study(study: str, saved: archive.Archive, model: Any) -> Policy:
    policy: Policy = provisional.restore(saved, "it", model=model)
    provisional.set_life(policy, digest("life", study)[:16])  # of all processes of a study; see `Decision.life`
    return policy


def sha256_of(data: bytes) -> str:
    """Return the hash of a snapshot's bytes."""
    return hashlib.sha256(data).hexdigest()


class LivePolicy:
    """A policy under the rules of a study's stages: decides new rounds, and repeats recorded ones.

    `position` is how far it has followed the record, `base` the event with the snapshot that it continues from, 0
    before there is one, and `rows` the number of rows in the snapshot's history.
    """

    def __init__(
        self, policy: Policy, settings: StudySettings, position: Position, base: int = 0, rows: int | None = None
    ) -> None:
        self.policy, self.position, self.base, self._settings = policy, position, base, settings
        self.rows = len(policy.history) if rows is None else rows
        self.began = position.seq  # the last event when it began: what was erased later, it may know
        self._policys_rule = provisional.rule_of(policy)
        self._rules: dict[int, ChoiceRule] = {}  # of the stages so far
        self._alike: dict[int, bool] = {}  # stages, and whether rounds one by one and in a block have the same bits

    @property
    def mark(self) -> Mark:
        """What it knows now, for `return_to`."""
        return provisional.state_of(self.policy), self.position

    def return_to(self, mark: Mark) -> None:
        """Forget what came after a mark."""
        state, self.position = mark
        provisional.put_back(self.policy, state)

    def bare(self) -> Policy:
        """Return the policy with its own rule, as it is trained and saved."""
        provisional.set_rule(self.policy, self._policys_rule)
        return self.policy

    def blocks(self, questions: Sequence[Question]) -> Iterator[tuple[int, list[Question]]]:
        """Yield the questions in parts that belong to one stage each, with the index of the stage."""
        rest, round = list(questions), self.policy.round + 1
        while rest:
            stage, left = stage_at(self._settings.stages, round)
            part = rest if left is None else rest[:left]
            yield stage, part
            rest, round = rest[len(part) :], round + len(part)

    def decide(self, stage: int, questions: Sequence[Question]) -> Decision:
        """Decide rounds of one stage."""
        self._enter(stage)
        return self.policy.select(**asked_of(questions, self._settings))

    def follow(self, events: Iterable[Event], segment: Segment = lambda seq: None) -> None:
        """Take in the next events of the record, and repeat the decisions among them."""
        for _ in self.following(events, segment):
            pass

    def following(
        self, events: Iterable[Event], segment: Segment = lambda seq: None, *, whole: bool = False
    ) -> Iterator[None]:
        """Do what `follow` does in parts, after each of which the caller may pause; leave out what is not `whole`.

        A part ends with what later decisions depend on: what was spent by one before.
        """
        part: list[Event] = []
        now: tuple[int, ...] = ()
        for event in events:
            if event.kind == "decide":
                group = self._group(event, segment)
                if part and now and group != now:
                    self._take_in(part, now)
                    part = []
                    yield
                now = group
            part.append(event)
            if self._cost_in(event) is not None:
                self._take_in(part, now)
                part, now = [], ()
                yield
        if part and not (whole and now):
            self._take_in(part, now)

    def _group(self, event: Event, segment: Segment) -> tuple[int, ...]:
        """Return what decisions have in common that are repeated together; it begins with 0 and more for foreign ones.

        Those of the policy's own go by the block in which they were made, unless its bits do not depend on that.
        """
        round, place = event.content["round"], segment(event.seq)
        stage, _ = stage_at(self._settings.stages, round)
        if place is not None:
            return place, (round - 1) // GROUP, stage
        if round > GROUP and stage not in self._alike:
            # Another number of arms may change the form of Z, and so who decides.
            fixed = self._settings.arms is not None
            self._alike[stage] = fixed and provisional.alike(self.policy, self._rule_of(stage))
        if round > GROUP and self._alike[stage]:
            return -1, (round - 1) // GROUP, stage
        return -1, event.content["block"]

    def _take_in(self, part: list[Event], group: tuple[int, ...]) -> None:
        """Repeat the decisions of a part, which are of one group, and move on behind it."""
        if records := [record_of(event, self._settings.arms) for event in part if event.kind == "decide"]:
            self.follow_records(records, together=group[0] >= 0)
        self.charge(part[-1])
        self.position = self.position.after(*part)

    def _cost_in(self, event: Event) -> float | None:
        """Return what a reward says that its decision took of the ceiling."""
        spends = self._settings.rewards.spends
        told = spends is not None and event.kind in ("reward", "late reward")
        return event.content["outcomes"].get(spends) if told else None

    def charge(self, event: Event) -> None:
        """Tell the policy what a decision took of its ceiling, if an event says so."""
        cost = self._cost_in(event)
        if cost is not None:
            with suppress(InvalidReward):  # it was told before, or a version has dropped the round
                self.policy.observe(rounds=[event.content["round"]], costs=[cost])

    def follow_records(self, block: list[DecisionRecord], *, together: bool = False) -> None:
        """Repeat decisions of one stage."""
        first = block[0].answer
        if first.round != self.policy.round + 1:
            raise BrokenStudy(
                f"event {first.seq} is round {first.round}, but the policy has made {self.policy.round} rounds: "
                "the snapshot does not belong to this record. Use a backup."
            )
        self._enter(stage_at(self._settings.stages, first.round)[0])
        asked = asked_of([record.question for record in block], self._settings)
        arms = np.array([record.answer.index for record in block], np.int64)
        chances = np.array([record.answer.probability for record in block])
        provisional.follow(self.policy, arms=arms, propensities=chances, **asked, ignore_running_bonuses=together)

    def _enter(self, stage: int) -> None:
        rule, now = self._rule_of(stage), provisional.rule_of(self.policy)
        if now is not rule and now != rule:
            provisional.set_rule(self.policy, rule)

    def _rule_of(self, stage: int) -> ChoiceRule:
        if stage not in self._rules:
            settings = self._settings
            self._rules[stage] = rule_of_stage(settings.stages[stage], self._policys_rule, settings.arms)
        return self._rules[stage]


def segments(base: int, specials: Iterable[Event]) -> Segment:
    """Return a function that says which of the snapshots in use, one after another, decided at an event.

    It returns None if that was the snapshot `base`. `specials` are all special events so far.
    """
    setters = [(event.seq, event.content["snapshot"]) for event in specials if event.kind in SETTERS]
    seqs = [seq for seq, _ in setters]

    def segment(seq: int) -> int | None:
        place = bisect(seqs, seq) - 1
        return None if setters[place][1] == base else place

    return segment


class StoppedSlate(Exception):
    """A slot of a slate cannot be filled, which is decided whole or not at all: the transaction must end."""

    def __init__(self, question: Question, error: RarelyError) -> None:
        super().__init__(str(error))
        self.question, self.error = question, error


class Session:
    """The record of a study and its policy in memory; any number of threads may call, one at a time."""

    def __init__(self, storage: Storage, name: str, clock: Clock = time.time, model: Any = None) -> None:
        self.storage, self.name, self._clock, self.model = storage, name, clock, model
        self._lock = threading.RLock()
        self._closed, self._stopping = False, False
        self._live: LivePolicy | None = None
        self._doubt: Mark | None = None  # what the policy knew before a commit that was not confirmed
        self._work, self._patience = 0.0, CHECKPOINT_WORK
        self._checkpoint: threading.Thread | None = None
        self._decided = -math.inf  # when the last transaction ended
        self.saved = 0  # the last event of the latest checkpoint; see `Study.saved`
        self._standby: LivePolicy | None = None  # the version in use before, to which a rollback is most likely
        self._overtaken = False  # whether another process has changed the version in use
        self.used: tuple[int, int] | None = None  # a cut and the rewards used up to it, which never change
        with storage.reading() as tables:
            row = tables.study(name)
            if row is None:
                names = ", ".join(repr(each.name) for each in tables.studies()) or "none"
                raise errors.UnknownStudy(
                    f"{storage.url} has no study called {name!r}; its studies are: {names}.{tables.erased(name)}"
                )
            first = tables.of(row).event(1)
            if first is None or flaw_of(name, first, 1, Position().head):
                raise BrokenStudy(f"the first event of study {name!r} is missing or was altered. Use a backup.")
        self.row: StudyRow = row
        self.settings = StudySettings.from_description(first.content["study"])
        self.dim = int(first.content["dim"])
        self.learn_names()

    @property
    def live(self) -> LivePolicy:
        assert self._live is not None  # inside of `writing`
        return self._live

    @property
    def position(self) -> Position:
        """How far the policy in memory has followed the record."""
        return Position() if self._live is None else self._live.position

    @property
    def due(self) -> bool:
        """Whether the schedule has ended the batch, according to the policy in memory, without a transaction."""
        return self._live is not None and self._live.policy.due

    def wall_clock(self) -> int:
        return round(self._clock() * 1e6)

    def now(self) -> int:
        """Return the time in microseconds, but never less than that of the last event."""
        return max(self.wall_clock() + self.position.offset, self.position.time)

    def lease_time(self) -> int:
        """Return the time by which leases end: the database's, where machines may differ, else `now`."""
        return self.now() if self.storage.time is None else round(self.storage.time * 1e6)

    def stamp(self, *, repairing: bool = False) -> int:
        """Return the time of a new event; raise `ClockAhead` if the clock has leapt."""
        ahead, most = self.now() - self.position.time, MAX_LEAP * 1e6
        what = f"the last event of study {self.name!r}"
        if self.storage.time is not None:
            ahead, most = self.wall_clock() - round(self.storage.time * 1e6), MAX_SKEW * 1e6
            what = "the clock of the database"
        elif repairing:
            ahead = 0
        if ahead > most:
            raise errors.ClockAhead(
                f"this machine's clock is {ahead / 1e6:.0f} s ahead of {what}; at most {most / 1e6:.0f} s are allowed. "
                "Correct the clock; if it is right, an administrator confirms it: rarely study repair-clock."
            )
        return self.now()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._stopping = True
                if self._checkpoint is not None:
                    self._checkpoint.join(CLOSE_WAIT)
                self._closed, self._live = True, None
                self.storage.close()

    def check(self) -> None:
        if self._closed:
            raise errors.StudyClosed(f"study {self.name!r} was closed. Open it again: Study.open.")

    def reconnect(self) -> None:
        """Connect again after a lost connection; the policy stays if the record does."""
        with self._lock:
            self.storage.reconnect()

    # --- transactions

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        self.check()
        with self.storage.reading() as tables:
            yield tables.of(self.row)

    def learn_names(self, events: Iterable[Event] | None = None) -> bool:
        """Name arms that were added, by these events or by all on record; return whether there were new names."""
        before = self.settings
        if events is None:
            with self.reading() as tables:
                events = reversed(list(self.checked(tables.latest("add", MAX_ARMS))))
        for content in (event.content for event in events if event.kind == "add"):
            if (self.settings.arms or ())[content["arm"]] != content["name"]:
                self.settings = self.settings.with_name(content["arm"], content["name"])
        return self.settings is not before

    def last_seq(self) -> int:
        """Return the last event, up to which arms then have their names: another process may have added some."""
        with self.reading() as tables:
            last = tables.last_seq()
            self._check_there(tables, last, 1)
        self.learn_names()
        return last

    def specials(self) -> list[Event]:
        """Return all events except decisions, rewards and cuts."""
        with self.reading() as tables:
            return list(self.checked(tables.specials()))

    def gone(self) -> Gone:
        """Return what was erased and pruned."""
        return gone_of(self.specials())

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Yield the events after `first` up to and including `last`, in short reads between which others may write."""
        while first < last:
            with self.reading() as tables:
                events = tables.after(first, min(CHUNK, last - first))
            if not events:
                return
            yield from events
            first = events[-1].seq

    @contextmanager
    def writing(self) -> Iterator[Tables]:
        """Open a transaction in which the policy is up to date with the record; restore the policy if it fails."""
        with self._lock:
            self.check()
            before: tuple[LivePolicy, Mark] | None = None
            done, began = False, 0.0
            try:
                with self._current() as tables:
                    before, began = (self.live, self.live.mark), time.thread_time()
                    yield tables
                    done = True
            except BaseException:
                if done and before is not None and before[0] is self._live:
                    self._doubt = before[1]
                elif done:
                    self._live = None
                elif before is not None:
                    self._live = before[0]
                    self._live.return_to(before[1])
                raise
            self._work += time.thread_time() - began
            self._decided = time.monotonic()
            if self._work > self._patience:
                self._begin_checkpoint()

    @contextmanager
    def _current(self) -> Iterator[Tables]:
        """Open a transaction whose policy is up to date; whatever takes long is done before it."""
        last = 0
        for attempt in range(MAX_CATCH_UPS + 1):
            if self._live is None:
                self._live = self._restored()
            elif attempt:
                self._catch_up(self.events(self.position.seq, last))
            with ExitStack() as stack:
                tables = stack.enter_context(self.storage.writing(self.name)).of(self.row)
                last = self._last(tables)
                near = last - self.position.seq <= FEW_EVENTS or attempt == MAX_CATCH_UPS
                if self._live is not None and near:
                    if last > self.position.seq:
                        self._catch_up(tables.after(self.position.seq, last - self.position.seq))
                    opened = stack.pop_all()
                    break
        else:
            raise StudyBusy(f"the version of study {self.name!r} changes too often to follow. Repeat the request.")
        with opened:
            yield tables

    def _last(self, tables: Tables) -> int:
        """Return the last event on record, and drop a policy that is not in use any more."""
        last, live = tables.last_seq(), self.live
        if self._doubt is not None:
            event = tables.event(live.position.seq)
            if event is None or event.hash != live.position.head:
                live.return_to(self._doubt)
            self._doubt = None
        self._check_there(tables, last, live.position.seq)
        later = tables.specials(live.position.seq) if last > live.position.seq else []
        if any(event.kind in SETTERS for event in later):
            self._live, self._overtaken = None, True
        self.learn_names(later)
        return last

    def _check_there(self, tables: Tables, last: int, least: int) -> None:
        """Refuse a record that ends before an event that it had."""
        if last < least:
            if erased := tables.erased(self.name):
                raise errors.UnknownStudy(f"study {self.name!r} is not on record any more:{erased}")
            raise BrokenStudy(f"the record of study {self.name!r} has lost events; it was altered. Use a backup.")

    def append(self, tables: Tables, kind: EventKind, content: dict[str, Any], **fields: Any) -> Event:
        event = self.next_event(kind, content, **fields)
        tables.append(event)
        return event

    def next_event(self, kind: EventKind, content: dict[str, Any], **fields: Any) -> Event:
        """Return the next event, which the caller must write, and move the position to it."""
        now = self.stamp(repairing=kind == "clock")
        event = next_event(self.name, self.position.last, kind, now, content, **fields)
        self.live.position = self.position.after(event)
        return event

    def install(self, tables: Tables, live: LivePolicy) -> None:
        """Let another policy take in the last events and decide from now on."""
        live.base, done, gone = self.position.base, live.position.seq, gone_of(tables.specials())
        self.check_fresh(gone, live.began)
        live.follow(tables.after(done, self.position.seq - done), segments(live.base, tables.specials()))
        live.position = self.position
        self._live = live
        if self.position.seq - self.position.cut > FEW_EVENTS:
            self._work = math.inf  # other processes need a checkpoint soon
        replaced = gone.snapshots & tables.snapshots() - {live.base} if gone.snapshots else None
        if replaced:
            with self.storage.altering("rarely_snapshots"):
                tables.drop_snapshots(replaced)
            self._work = math.inf  # and with the next checkpoint theirs go

    def check_fresh(self, gone: Gone, began: int) -> None:
        """Refuse a policy that may know what was erased since it was read."""
        if gone.erased > began:
            raise errors.StaleTrainer(
                f"contexts of study {self.name!r} were erased meanwhile (event {gone.erased}), and this version may "
                "know them. Repeat the call."
            )

    # --- deciding

    def decide(self, tables: Tables, questions: Sequence[Any], signature: dict[str, str]) -> list[Any]:
        """Return an answer or an error for each question; an error given as a question keeps its place.

        Questions that are on record are answered as before, and new ones are decided together.
        """
        slates = [isinstance(each, Question) and each.slots > 0 for each in questions]
        if any(slates):
            rest = [each for each, slate in zip(questions, slates, strict=True) if not slate]
            found = iter(self.decide(tables, rest, signature) if rest else [])
            pairs = zip(questions, slates, strict=True)
            return [self._decide_slate(tables, each, signature) if slate else next(found) for each, slate in pairs]
        asked = [question for question in questions if isinstance(question, Question)]
        recorded = tables.decisions(list(dict.fromkeys(question.id for question in asked)))
        hashes = {id: event.content["request"] for id, event in recorded.items()}
        answers: dict[str, Answer | RarelyError]
        answers = {id: answer_of(event, self.settings.arms) for id, event in recorded.items()}
        new: list[Question] = []
        for question in asked:
            if question.id not in hashes:
                hashes[question.id], opened = question.hash, self._opened(question)
                if isinstance(opened, Question):
                    new.append(opened)
                else:
                    answers[question.id] = opened
        events: list[Event] = []
        answers |= self._decide_new(new, signature, events)
        tables.append(*events)
        results: list[Any] = []
        for question in questions:
            if isinstance(question, RarelyError):
                results.append(question)
            elif hashes[question.id] == question.hash:
                results.append(answers[question.id])
            elif isinstance(answers[question.id], RarelyError):
                # An id whose question was refused is still free, also for another question of the same group.
                results += self.decide(tables, [question], signature)
            else:
                conflict = f"decision {question.id!r} was requested before with other contexts or other arms. The same "
                advice = "request gets the same answer; a new request needs a new id."
                results.append(errors.StudyConflict(conflict + advice))
        return results

    def _opened(self, question: Question) -> Question | errors.EnrolmentClosed:
        """Return a new question without the arms that get no further patients, or why it cannot be decided."""
        position, names = self.position, self.settings.arms or ()
        if not position.enrolling:
            return errors.EnrolmentClosed(f"study {self.name!r} takes no further patients: its enrolment was closed.")
        if not position.shut:
            return question
        left = question.without(position.shut)
        if not left.present.any():
            shut = ", ".join(names[arm] for arm in position.shut)
            return errors.EnrolmentClosed(f"no arm of this request is open; closed are: {shut}.")
        return left

    def _decide_slate(self, tables: Tables, question: Question, signature: dict[str, str]) -> Any:
        """Return the answers to the slots of a slate, each decided below those above it, or an error."""
        there = question.without(self.position.shut).present.sum()
        if there < question.slots and not tables.decisions([slot_id(question.id, 1)]):
            return errors.EnrolmentClosed(f"fewer arms are open than the {question.slots} slots of {question.id!r}.")
        answers: list[Answer] = []
        for slot in range(1, question.slots + 1):
            asked = question.at(slot, [answer.index for answer in answers])
            answer = self.decide(tables, [asked], signature)[0]
            if isinstance(answer, RarelyError):
                if slot == 1:
                    return answer
                raise StoppedSlate(question, answer)
            answers.append(answer)
        return Slate(answers)

    def _decide_new(
        self, questions: list[Question], signature: dict[str, str], events: list[Event]
    ) -> dict[str, Answer | RarelyError]:
        """Add the events of new decisions to `events`; return answers, or why the policy refuses, by id."""
        answers: dict[str, Answer | RarelyError] = {}
        for stage, part in self.live.blocks(questions):
            try:
                decision = self.live.decide(stage, part)
            except RarelyError as error:
                if len(questions) == 1:
                    return {part[0].id: error}
                # A question that the policy refuses must not affect the others, nor the rounds at which stages change.
                for question in questions[len(events) :]:
                    answers |= self._decide_new([question], signature, events)
                return answers
            shared = {"stage": self.settings.stages[stage].name, "version": self.position.version}
            unseen, at = dict(self.position.unseen), (self.position.last, self.stamp())
            block = block_events(self.name, *at, part, decision, shared, signature, unseen)
            answers |= {str(event.ref): answer_of(event, self.settings.arms) for event in block}
            self.live.position = self.position.after(block[-1])
            events += block
        return answers

    # --- from the record to the policy

    def _catch_up(self, events: Iterable[Event]) -> None:
        """Let the policy follow decisions that others have made with it; it stays as it was if that fails."""
        live, mark = self.live, self.live.mark
        try:
            live.follow(self.checked(events, live.position))
        except BaseException:
            live.return_to(mark)
            raise

    def checked(self, events: Iterable[Event], position: Position | None = None) -> Iterator[Event]:
        """Yield the events after a position, each checked against the chain; without one each against its own hash."""
        last = None if position is None else (position.seq, position.head)
        for event in events:
            seq, previous = (event.seq - 1, event.previous) if last is None else last
            left = None
            if ERASED in event.body:
                with self.reading() as tables:
                    left = gone_of(tables.specials()).left.get(event.seq)
            flaw = flaw_of(self.name, event, seq + 1, previous, left)
            if not flaw and event.kind in ("close", "retire", "activate", "add"):
                arm = event.content["arm"] or 0  # None closes enrolment
                if arm >= len(self.settings.arms or ()) and event.content["arm"] is not None:
                    flaw = f"event {event.seq} closes or opens arm {arm}, which the study does not have"
            if flaw:
                raise BrokenStudy(f"the record of study {self.name!r} is damaged: {flaw}. Use a backup.")
            yield event
            last = None if position is None else (event.seq, event.hash)

    def _restored(self) -> LivePolicy:
        """Return the policy in use, from a checkpoint or its cut on, in short reads that keep nobody waiting."""
        with self.reading() as tables:
            last, specials = tables.last_seq(), list(self.checked(tables.specials()))
        position = Position().after(*specials)
        setter = max(event.seq for event in specials if event.kind in SETTERS)
        far, deadline = setter - position.cut > FEW_EVENTS, time.monotonic() + CHECKPOINT_WAIT
        live = self.read_checkpoint(position.base)
        # A process that changes the version writes a checkpoint of it at once.
        while live is None and self._overtaken and far and time.monotonic() < deadline:
            time.sleep(0.05)
            live = self.read_checkpoint(position.base)
        self._overtaken = False
        live = live or self.at_cut(position.base, position.cut, specials)
        began = time.thread_time()
        first, saved = live.position.seq, began
        for _ in live.following(self.checked(self.events(first, last), live.position), segments(live.base, specials)):
            if time.thread_time() > saved + REPEAT_WORK:  # with checkpoints on the way for a process that is killed
                LOG.info("study %r repeats its record: event %d of %d", self.name, live.position.seq, last)
                with suppress(StudyError):  # without it, what follows takes longer if this process is killed
                    self.save_checkpoint(live, live.mark)
                saved = time.thread_time()
        if live.policy.round != live.position.rounds:
            raise BrokenStudy(
                f"study {self.name!r} has {live.position.rounds} decisions on record, but its policy has made "
                f"{live.policy.round}. Use a backup."
            )
        self._work += time.thread_time() - began
        provisional.warn_of_present(live.policy)
        return live

    def at_cut(self, base: int, cut: int, specials: list[Event]) -> LivePolicy:
        """Return the policy of a snapshot, at its cut."""
        position = Position()
        with self.reading() as tables:
            policy, end = self.load(tables, base), self.event(tables, cut)
            decision, delivered = tables.last_decision(cut), tables.delivered(cut)
            began, pruned = tables.last_seq(), gone_of(tables.specials()).pruned
        if pruned:
            position = replace(position, rounds=pruned["round"], unseen=tuple(sorted(pruned["unseen"].items())))
        known = [event for event in specials if event.seq <= cut]
        position = position.after(*known, *([] if decision is None else [decision]))
        told = summed(delivered, pruned.get("deliveries", ()))
        position = replace(position, seq=cut, head=end.hash, time=end.time, deliveries=told)
        live = LivePolicy(policy, self.settings, position, base)
        live.began = began
        return live

    def ready(self, base: int, cut: int) -> LivePolicy:
        """Return the policy of a snapshot; see `approach`."""
        live = self.read_checkpoint(base) or self.at_cut(base, cut, self.specials())
        self.approach(live)
        return live

    def approach(self, live: LivePolicy, pause: Callable[[], bool] = lambda: False) -> None:
        """Let a policy that is not in use follow whole groups while others decide.

        `install` takes in what is missing in the end. It ends early if `pause` says so.
        """
        for _ in range(MAX_CATCH_UPS):
            with self.reading() as tables:
                last, specials = tables.last_seq(), tables.specials()
            segment, before = segments(live.base, specials), live.position.seq
            for _ in live.following(self.events(before, last), segment, whole=True):
                if pause():
                    return
            if last - live.position.seq <= FEW_EVENTS or live.position.seq == before:
                return

    def load(self, tables: Tables, seq: int) -> Policy:
        """Return the policy whose snapshot an event holds."""
        data = self.snapshot(tables, self.event(tables, seq))
        try:
            return from_bytes(self.name, data, self.model)
        except SnapshotError as error:  # the snapshot is intact: its SHA-256 is the one on record
            raise errors.UnknownPart(
                f"the policy of study {self.name!r} is intact, but cannot be made here: {error.__cause__ or error} "
                "Import the modules of your own classes before the study is opened; commands take --import MODULE, or "
                "RARELY_IMPORT."
            ) from error

    def event(self, tables: Tables, seq: int) -> Event:
        """Return an event that must be on record."""
        event = tables.event(seq)
        if event is None:
            raise BrokenStudy(f"event {seq} of study {self.name!r} is missing. Use a backup.")
        return event

    def snapshot(self, tables: Tables, event: Event) -> bytes:
        """Return the snapshot that an event names, if it is the one on record."""
        row = tables.snapshot(event.content["snapshot"])
        what = f"the snapshot of event {event.seq} ({event.kind}) of study {self.name!r}"
        if row is None:
            if event.content["snapshot"] in gone_of(tables.specials()).snapshots:
                raise errors.Erased(f"{what} was erased or pruned; `verify` says by whom. Use a later version.")
            raise BrokenStudy(f"{what} is missing. Use a backup.")
        sha256, data = row
        if not sha256 == sha256_of(data) == event.content["sha256"]:
            raise BrokenStudy(
                f"{what} was altered or damaged: its SHA-256 is not the one on record. Use a backup, or roll back to "
                "another version."
            )
        return data

    # --- checkpoints

    @contextmanager
    def checkpoints(self) -> Iterator[Tables]:
        with self.storage.checkpoints() as tables:
            yield tables.of(self.row)

    def read_checkpoint(self, base: int) -> LivePolicy | None:
        """Return the policy of a snapshot as of its latest checkpoint.

        Returns None if there is none, and also, with a warning, if it is unusable.
        """
        try:
            with self.checkpoints() as tables:
                rows = tables.checkpoints(base)
        except (StudyError, TypeError) as error:  # of a damaged file beside the database
            problem: Exception = error
        else:
            if not rows:
                return None
            try:
                return self._from_checkpoints(base, rows)
            except StudyError:  # of the record itself
                raise
            except (SnapshotError, KeyError, TypeError, ValueError) as error:
                with self.reading() as tables:
                    self.load(tables, base)  # raises if a class is unknown, which is no flaw of the checkpoint
                problem = error
        if not isinstance(problem, StudyBusy):
            with suppress(StudyError), self.checkpoints() as tables:
                tables.drop_checkpoints(base)
        said = f"a checkpoint of study {self.name!r} cannot be used ({problem})"
        warnings.warn(f"{said}: decisions are repeated from the record.", errors.CheckpointWarning, stacklevel=2)
        return None

    def _from_checkpoints(self, base: int, rows: list[tuple[int, int, str, bytes, bytes]]) -> LivePolicy:
        with self.reading() as tables:
            event = self.event(tables, base)
            snapshot = archive.parse(io.BytesIO(self.snapshot(tables, event)), "the snapshot")
        sha256 = event.content["sha256"]
        for _, _, chained, history, _ in rows:
            sha256 = _chained(sha256, history)
            if sha256 != chained:
                raise ValueError("its rows were altered or damaged")
        saved = archive.parse(io.BytesIO(rows[-1][4]), "its state")
        mark = saved.header.pop("checkpoint")
        known = mark["position"]
        lists = {name: tuple(map(tuple, known[name])) for name in ("deliveries", "unseen")}
        position = Position(**known | lists | {name: tuple(known.get(name, ())) for name in ("closed", "retired")})
        with self.reading() as tables:
            last = tables.event(position.seq)
        if self._erasure() > position.seq:
            raise ValueError("it was written before an erasure")
        if mark["sha256"] != sha256 or rows[-1][1] != position.seq or last is None or last.hash != position.head:
            raise ValueError("it belongs to another record")
        joined = _joined(snapshot.arrays, np.frombuffer(b"".join(history for *_, history, _ in rows), "<f8"))
        policy = _of_study(self.name, saved._replace(arrays=saved.arrays | joined), self.model)
        self.saved = max(self.saved, position.seq)
        return LivePolicy(policy, self.settings, position, base, rows=rows[0][0])

    def save_checkpoint(self, live: LivePolicy, mark: Mark) -> None:
        """Write a checkpoint of a policy, unless there is a later one of its snapshot."""
        (state, position), base = mark, live.base
        with self.reading() as tables:
            event, gone, there = self.event(tables, base), gone_of(tables.specials()), tables.snapshots()
        if gone.erased > min(live.began, position.seq):  # it may know what is gone, or would pass for one that does
            return
        header, arrays = provisional.content_at(live.policy, state)
        rows = {name.removeprefix(_PREFIX): arrays.pop(name) for name in list(arrays) if name.startswith(_PREFIX)}
        with self.checkpoints() as tables:
            tables.drop_checkpoints_of(gone.erased, gone.snapshots - there)
            last = tables.last_checkpoint(base)
            if last is not None and last[2] >= position.seq:
                return
            width = rows["contexts"].shape[1] + len(_COLUMNS)
            start = live.rows if last is None else last[0] + last[1] // (8 * width)
            history = packed(np.column_stack([rows[name][start:] for name in ("contexts", *_COLUMNS)]))
            sha256 = _chained(event.content["sha256"] if last is None else last[3], history)
            header["checkpoint"] = {"position": asdict(position), "sha256": sha256}
            tables.add_checkpoint(base, start, position.seq, sha256, history, archive.to_bytes(header, arrays))
        if self._erasure() > live.began:  # it came while this was written, and did not find it
            with self.checkpoints() as tables:
                tables.drop_checkpoints(base)

    def _erasure(self) -> int:
        """Return the last erasure; 0 for none."""
        with self.reading() as tables:
            return max((event.seq for event in tables.latest("erase", 1)), default=0)

    def _begin_checkpoint(self) -> None:
        """Write a checkpoint in another thread, unless one is being written: a mark is a value."""
        if self._checkpoint is None or not self._checkpoint.is_alive():
            self._work, given = 0.0, (self.live, self.live.mark)
            self._checkpoint = threading.Thread(target=self._write_checkpoint, args=given, daemon=True)
            self._checkpoint.start()

    def _write_checkpoint(self, live: LivePolicy, mark: Mark) -> None:
        began = time.thread_time()
        try:
            self.save_checkpoint(live, mark)
            self._patience = max(CHECKPOINT_WORK, CHECKPOINT_SHARE * (time.thread_time() - began))
            self.saved = mark[1].seq
            self._follow_standby(mark[1].version)
        except Exception as error:  # the record is whole without it
            self._patience *= 2  # so that the log is not full of it
            if not self._stopping:
                LOG.warning("study %r goes without a checkpoint: %s", self.name, error)

    def _follow_standby(self, version: int) -> None:
        """Keep a checkpoint of the version that was in use before this one."""
        with self.reading() as tables:
            specials = tables.specials()
        begun = [event.content for event in specials if event.kind in SETTERS and event.kind != "rejected"]
        gone = gone_of(specials)
        others = [each for each in begun if each["number"] != version and each["snapshot"] not in gone.snapshots]
        if not others:
            return
        base, cut = others[-1]["snapshot"], others[-1]["cut"]
        standby, self._standby = self._standby, None  # unless it gets through
        if standby is None or standby.base != base or standby.began < gone.erased:
            used = [event.content["snapshot"] for event in specials if event.kind in SETTERS]
            with self.checkpoints() as tables:  # a network's take 19 MB, and a study may have 1000 versions
                tables.drop_checkpoints(used[-1], base, which="NOT IN")
            standby = self.read_checkpoint(base) or self.at_cut(base, cut, specials)
        began = time.thread_time()

        def pause() -> bool:
            """Rest while others decide; the version in use comes first: the next checkpoint of it must not wait."""
            nonlocal began
            if time.monotonic() < self._decided + BUSY:
                time.sleep(min(STANDBY_PAUSE * (time.thread_time() - began), BUSY))
            began = time.thread_time()
            return self._stopping or self._work > self._patience

        self.approach(standby, pause)
        self.save_checkpoint(standby, standby.mark)
        self._standby = standby


def _chained(sha256: str, history: bytes) -> str:
    return digest(sha256, history) if history else sha256  # a checkpoint without rows is replaced by the next one


def _joined(snapshot: Arrays, added: Array) -> Arrays:
    """Return the arrays of a history, given those of the snapshot and the rows since."""
    rows = {name: array for name, array in snapshot.items() if name.startswith(_PREFIX)}
    dim = rows[f"{_PREFIX}contexts"].shape[1]
    added = added.reshape(-1, dim + len(_COLUMNS))
    columns: dict[str, Any] = {name: added[:, dim + i] for i, name in enumerate(_COLUMNS)}
    columns |= {"contexts": added[:, :dim], "rewards": np.full(len(added), np.nan)}
    new = {f"{_PREFIX}{name}": values for name, values in columns.items()}
    return rows | {name: np.concatenate([rows[name], values.astype(rows[name].dtype)]) for name, values in new.items()}
