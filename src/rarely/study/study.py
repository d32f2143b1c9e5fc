"""A study: decisions, rewards and versions on record before they are answered, and a policy that follows from them."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from typing import Any, Literal, Self

from rarely import ArmBlocks, FramePolicy, Interval, Policy
from rarely.errors import InvalidInput, RarelyError
from rarely.extend import Progress, provisional
from rarely.extend.checks import check_choice, is_whole, shown
from rarely.extend.provisional import facts_table, forwarded
from rarely.logs import DecisionLog
from rarely.logs.files import csv_of
from rarely.study import audit, erasure, versions
from rarely.study.analysis import Analysis, analyse, take_look
from rarely.study.audit import Exported, Replay, Status, Verification
from rarely.study.decision import DecisionRecord, Request, Requests, Slate, read_request, record_of
from rarely.study.erasure import Erasure, Pruning
from rarely.study.errors import ApprovalNeeded, InvalidId, InvalidStudy, UnknownDecision, UnknownStudy
from rarely.study.events import Event, check_id, check_signature, check_text
from rarely.study.plan import AnalysisPlan
from rarely.study.session import Clock, Session, StoppedSlate
from rarely.study.settings import RewardRule, Stage, StudySettings
from rarely.study.storage import open_storage
from rarely.study.tell import Tell, Tells, closed_until, read_tell, receive, slots_of
from rarely.study.versions import Job, PublishedVersion, Trained, candidate_of, check_open, train

OnError = Literal["raise", "return"]


class Study:
    """A bandit whose decisions, rewards and versions are in a database before they are answered.

    `Study.create` makes a new study and `Study.open` opens an existing one, in any process. All methods may be called
    from any thread; calls on one study run one after another. The arguments `actor` and `reason` of a method say who
    calls it, and why; both are recorded.

    Examples
    --------
    >>> from rarely import FixedGrid, LinUCB
    >>> policy = LinUCB(dim=2, schedule=FixedGrid(1000, 10), seed=0)
    >>> study = Study.create("memory://readme", "colours", policy=policy, arms=["red", "blue"])
    >>> answer = study.ask([[1.0, 0.0], [0.0, 1.0]], id="visit-1")
    >>> answer.arm, answer.version, answer.probability
    ('red', 0, 1.0)
    >>> study.tell("visit-1", 1.0).status
    'accepted'
    >>> study.update()
    'version'
    >>> study.ask([[1.0, 0.0], [0.0, 1.0]], id="visit-1") == answer
    True
    >>> study.rollback(0, actor="ann", reason="complaints")
    >>> study.status().version
    0
    >>> study.verify().whole, study.replay().equal
    (True, True)
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    # --- creating, opening and closing

    @classmethod
    def create(
        cls,
        storage: str,
        name: str,
        *,
        policy: Policy | FramePolicy,
        arms: Sequence[str] | int | None = None,
        blocks: ArmBlocks | Interval | None = None,
        rewards: RewardRule | None = None,
        stages: Sequence[Stage] | None = None,
        control: str | None = None,
        plan: AnalysisPlan | None = None,
        actor: str = "",
        reason: str = "",
        clock: Clock = time.time,
    ) -> Self:
        """Make a new study; the same call again opens it.

        Raises `StudyExists` if there is a study of that name with other settings.

        Parameters
        ----------
        storage
            "sqlite:///trial.db", "postgresql://user@host/name" or "memory://".
        name
            The name of the study; a database may hold several.
        policy
            A policy that has decided nothing yet; the study keeps a copy. Its schedule limits the number of versions.
            Of a `FramePolicy` requests come by columns, and its tables say what the arms are.
        arms
            Names of the arms, or their number. With None every request may bring another number of contexts.
        blocks
            `ArmBlocks`, if requests bring one row instead of a context for each arm; or an `Interval` of doses, which
            are the names of the arms.
        rewards
            A `RewardRule`; by default the first reward of each decision counts, whenever it comes.
        stages
            `Stage` values for a trial; by default one stage without limits. A policy with `AtRounds` must have the end
            of each stage among its rounds.
        control
            The arm with which `analysis` compares the others.
        plan
            An `AnalysisPlan`: when `analysis` looks at the trial, and how the error is spent on the looks.
        clock
            A function that returns the time in seconds since 1970.
        """
        arguments: dict[str, Any] = {"arms": arms, "blocks": blocks, "rewards": rewards, "stages": stages}
        arguments |= {"control": control, "plan": plan}
        if isinstance(policy, FramePolicy):
            policy, arguments["tables"] = policy.policy, policy.tables
        settings = StudySettings(**{name: value for name, value in arguments.items() if value is not None})
        settings.check_subgroups(getattr(policy, "dim", 0))
        if "/" in check_id(name, "the name of a study") or not name.strip("."):
            raise InvalidId(f"the name of a study is part of addresses: no / in it, and not only dots; got {name!r}.")
        fields = check_signature(actor, reason)
        database = open_storage(storage, new=True)
        try:
            database.create()
            versions.create(database, name, policy, settings, clock=clock, **fields)
            return cls(Session(database, name, clock, getattr(policy, "model", None)))
        except BaseException:
            database.close()
            raise

    @classmethod
    def open(
        cls,
        storage: str,
        name: str | None = None,
        *,
        model: Any = None,
        lazy: bool = False,
        clock: Clock = time.time,
    ) -> Self:
        """Open a study that was created before, in this process or in another one.

        Raises `InvalidStorage` if there is no such database, or it cannot be written to, `UnknownStudy` if the database
        has no study of that name, `BrokenStudy` if the record or the snapshot in use is damaged, and `StudyBusy` if
        another process uses the file.

        Parameters
        ----------
        storage, name
            The arguments of `create`; the name may be omitted if the database holds only one study.
        model
            What the policy was made with, if that is code, as in `rarely.load`: a torch module, or an estimator.
        lazy
            By default the policy is built from the record now, so that damage is detected here. With `lazy` the first
            call that needs the policy builds it; `verify` and `log` do not need it, and work on read-only media.
        clock
            A function that returns the time in seconds since 1970.
        """
        database = open_storage(storage, reading=lazy)
        try:
            database.check()
            if name is None:
                with database.reading() as tables:
                    names = [row.name for row in tables.studies()]
                if len(names) != 1:
                    listed = ", ".join(names)
                    raise UnknownStudy(f"{database.url} holds {len(names)} studies; name one of them: {listed}.")
                name = names[0]
            study = cls(Session(database, check_id(name, "the name of a study"), clock, model))
            if not lazy:
                with study._session.writing():
                    pass  # builds the policy
            return study
        except BaseException:
            database.close()
            raise

    def reconnect(self) -> None:
        """Connect to PostgreSQL again after `StudyFailed`: the policy in memory stays if the record has not changed.

        Raises `StudyFailed` for other databases, and `InvalidStorage` if the server cannot be reached.
        """
        self._session.reconnect()

    def close(self) -> None:
        """Release the database; the study can be opened again."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        position = self._session.position
        return f"<Study {self.name!r}: {position.rounds} decisions, version {position.version}, event {position.seq}>"

    def _repr_html_(self) -> str | None:
        try:
            status = self.status()
        except RarelyError:
            return None  # and `repr` is shown
        facts = [(name, str(getattr(status, name))) for name in ("version", "budget", "decisions", "stage", "due")]
        facts.append(("arms", ", ".join(self.settings.arms or ("those of each request",))))
        kinds = ("received", "used", "pending", "late", "quarantined")
        facts.append(("rewards", ", ".join(f"{getattr(status.rewards, kind)} {kind}" for kind in kinds)))
        return facts_table(f"study {self.name}", facts, self._session.live.policy.updates)

    def plot(self, figure: Any = None) -> Any:
        """Draw rewards, arms, calibration and the updates behind the version in use, as `Policy.plot` does."""
        session = self._session
        with session.writing():
            policy, cut, last = copy.copy(session.live.policy), session.position.cut, session.position.seq
        gone = session.gone()
        provisional.forget(policy, gone.rounds)
        if rewards := versions.lessons(session, cut, last, gone):  # as the next training would
            policy.observe(rounds=list(rewards), rewards=list(rewards.values()), late="count")
        return policy.plot(figure, arms=self.settings.arms or ())

    # --- decisions and rewards

    def ask(
        self,
        contexts: Any,
        id: str | None = None,
        *,
        available: Any = None,
        worth: Any = None,
        slots: int | None = None,
        user: str | None = None,
        actor: str = "",
        reason: str = "",
    ) -> Any:
        """Decide, once for each id.

        Raises `InvalidContexts` if the contexts are not finite numbers of the right shape, and `StudyConflict` if the
        id was decided for other contexts.

        Parameters
        ----------
        contexts
            (K, d), a context for each arm; a dict from names of arms to contexts; one row if the study has `blocks`;
            or {"user": a row, "items": a table}, by columns, if it was made with a `FramePolicy`.
        id
            Any text that the caller can repeat. The same id with the same contexts gets the same answer for the life
            of the study. None makes a new id, which is part of the answer.
        available
            Names (or indices) of the available arms; None for all.
        worth
            What outcomes are worth in this decision, as in `Policy.select` or `FramePolicy.select`; it is on record.
            Rewards stay outcomes: prices may change with every request, without a training.
        slots
            How many arms are shown, in order: the answer is then a `Slate` of as many answers, decisions of their own
            with the ids "id#1", "id#2", …
        user
            The id of the user, where the policy holds users out or lets them keep an arm; see `Policy.under`.
        """
        return self.ask_many(
            [Request(contexts, id, available, worth=worth, slots=slots, user=user)], actor=actor, reason=reason
        )[0]

    def ask_many(
        self, requests: Requests, *, actor: str = "", reason: str = "", errors: OnError = "raise"
    ) -> list[Any]:
        """Decide many requests in one commit; each is decided as if it had been asked alone.

        Returns an `Answer` for each request, or an error.

        Parameters
        ----------
        requests
            `Request` values, or tuples of contexts, id, available arms and actor.
        actor, reason
            Who asks, and why, for requests without an actor.
        errors
            With "raise" the first error is raised, and nothing is decided. With "return" the error takes the place of
            the answer of a bad request, and the others are decided.
        """
        return self.ask_and_tell(requests, (), actor=actor, reason=reason, errors=errors)[0]

    def request_schema(self) -> dict[str, Any]:
        """Return the JSON schema of what a request for one decision brings: contexts, or the columns of its tables."""
        return self.settings.request_schema(self._session.dim)

    def tell(
        self,
        id: str,
        reward: Any,
        *,
        key: str | None = None,
        arm: Any = None,
        seen: int | None = None,
        actor: str = "",
        reason: str = "",
    ) -> Any:
        """Record a reward, now or late; a repeated delivery changes nothing.

        The status of the receipt is "accepted", "duplicate", "late" or "quarantined". Raises `InvalidReward` if
        the reward is not a finite number, and `StudyConflict` if the key was used for another reward.

        Parameters
        ----------
        id, reward
            The id of the decision; a finite number, or a dict of outcomes if the study's `RewardRule` has them. For a
            slate one of these, which its slots share equally, or a list of them.
        key
            Which of several rewards of the decision it is. The same id and key again is a duplicate and changes
            nothing. Without a key the value identifies the delivery, so equal rewards that are to be summed need keys.
        arm
            The arm that a person gave instead of the one decided, with the `reason`. The reward goes to the quarantine
            as an override, so no version learns from it, and `log` marks the round, which estimates leave out.
        seen
            Of a slate, whose rewards are a list: the last slot that was seen, counted from 1. The receipts of a slate
            are a `Slate`.
        """
        return self.tell_many([Tell(id, reward, key, arm=arm, seen=seen)], actor=actor, reason=reason)[0]

    def tell_many(self, tells: Tells, *, actor: str = "", reason: str = "", errors: OnError = "raise") -> list[Any]:
        """Record many rewards in one commit; `errors` as in `ask_many`."""
        return self.ask_and_tell((), tells, actor=actor, reason=reason, errors=errors)[1]

    def ask_and_tell(
        self, requests: Requests, tells: Tells, *, actor: str = "", reason: str = "", errors: OnError = "raise"
    ) -> tuple[list[Any], list[Any]]:
        """Decide many requests and then record many rewards, of several callers, in one commit.

        Arguments are those of `ask_many` and `tell_many`, and so are the two lists that it returns.
        """
        check_choice("errors", errors, OnError)
        fields, session = check_signature(actor, reason), self._session
        try:
            requests, tells = list(requests), list(tells)
        except TypeError as error:
            raise InvalidInput(f"requests and tells must be lists; {error}.") from None
        questions = [_read(read_request, Request, request, session.settings, session.dim) for request in requests]
        if any(isinstance(each, RarelyError) for each in questions) and session.learn_names():
            questions = [_read(read_request, Request, request, session.settings, session.dim) for request in requests]
        deliveries = [_read_tell(_read(slots_of, Tell, tell, session.settings.rewards), session) for tell in tells]
        if errors == "raise":
            _raise_first([*questions, *deliveries])
        if all(isinstance(each, RarelyError) for each in _each_slot([*questions, *deliveries])):
            return questions, deliveries
        while True:
            try:
                with session.writing() as tables:
                    # Callers differ in what is recorded, not in how they are decided: one block for all of them.
                    answers = session.decide(tables, questions, fields) if questions else []
                    receipts = receive(session, tables, deliveries, fields)
                    if errors == "raise":
                        _raise_first([*answers, *receipts])
                return answers, receipts
            except StoppedSlate as stopped:  # nothing was recorded, so all others are decided once more
                if errors == "raise":
                    raise stopped.error from None
                questions = [stopped.error if each is stopped.question else each for each in questions]

    # --- versions

    def update(self, *, force: bool = False, progress: Progress = None, actor: str = "", reason: str = "") -> str:
        """Train the next version on the rewards so far, and publish it.

        Other threads and processes keep deciding with the old version meanwhile. Returns "version" if the new version
        decides from now on, "candidate" if a person must approve it first, "rejected" if the training did not lower the
        loss and the old version stays in use. Raises `StudyFull` if the study has published all its versions,
        `StudyBusy` if another trainer is at work, and `NothingToLearn` if no reward came since the last update, none is
        due and `force` is not set.

        Parameters
        ----------
        force
            Train even if no reward came since the last update.
        progress
            As in `Policy.update`.
        """
        job = self.begin_update(force=force, actor=actor, reason=reason)
        try:
            with self.renewed(job):
                trained = train(job, progress)
            return self.finish_update(trained, actor=actor, reason=reason)
        except BaseException:
            with suppress(RarelyError):  # the error of the training matters more
                self.give_up_update(job)
            raise

    def begin_update(self, *, force: bool = False, actor: str = "", reason: str = "") -> Job:
        """Begin an update: cut the record, and return a job for `train` in this or another process.

        Another trainer may begin after 30 seconds, unless the lease is `renewed`.
        """
        return versions.begin(self._session, force=force, **check_signature(actor, reason))

    def renewed(self, job: Job) -> AbstractContextManager[None]:
        """Return a context manager that renews the lease of a job until its block ends."""
        return versions.renewed(self._session, job)

    def finish_update(self, trained: Trained, *, actor: str = "", reason: str = "") -> str:
        """Finish an update: record what `train` returned, and return the outcome as `update` does."""
        if not isinstance(trained, Trained):
            raise InvalidInput(f"finish_update takes what train(job) returned; got {type(trained).__name__}.")
        if trained.study != self.name:
            raise InvalidStudy(f"this is study {self.name!r}; the version was trained for {trained.study!r}.")
        return versions.finish(self._session, trained, **check_signature(actor, reason))

    def give_up_update(self, job: Job | Trained) -> None:
        """End the lease of a training that will not be finished."""
        versions.release(self._session, job.token)

    def approve(self, *, actor: str, reason: str = "") -> int:
        """Publish the candidate, if a stage requires approval.

        The actor must not be empty. Returns the number of the version, which decides from now on. Raises
        `ApprovalNeeded` if there is no candidate, and `StudyFull` if the study has published all its versions.
        """
        session, fields = self._session, _signed_by_person(actor, reason)
        with session.writing() as tables:
            event = candidate_of(session, tables)
            check_open(session, approving=True)
        live = session.ready(event.seq, event.content["cut"])  # while others decide
        with session.writing() as tables:
            if event.seq != candidate_of(session, tables).seq:
                raise ApprovalNeeded(f"the candidate of event {event.seq} is not the current one any more.")
            check_open(session, approving=True)
            content = event.content | {"number": session.position.versions, "snapshot": event.seq}
            session.append(tables, "version", content, **fields)
            session.install(tables, live)
        return int(content["number"])

    def dismiss(self, *, actor: str, reason: str = "") -> None:
        """Drop the candidate; the version in use keeps deciding, and the budget is not charged.

        Raises `ApprovalNeeded` if there is no candidate.
        """
        session, fields = self._session, _signed_by_person(actor, reason)
        with session.writing() as tables:
            session.append(tables, "dismissed", {"candidate": candidate_of(session, tables).seq}, **fields)

    def rollback(self, version: int, *, actor: str = "", reason: str = "") -> None:
        """Let an earlier version decide again.

        It keeps its number, and the budget is not charged. Decisions and rewards since then stay on record, and the
        next update learns from all of them.
        """
        session, fields, row = self._session, check_signature(actor, reason), self._version(version)
        live = session.ready(row.snapshot, row.cut)  # while others decide
        with session.writing() as tables:
            content = {"cut": row.cut, "from": session.position.version, "number": version, "snapshot": row.snapshot}
            session.append(tables, "rollback", content, **fields)
            session.install(tables, live)

    def pin(self, *, actor: str = "", reason: str = "") -> None:
        """Keep the version in use: `update` raises `StudyPinned` until `unpin`."""
        self._set_pinned(True, check_signature(actor, reason))

    def unpin(self, *, actor: str = "", reason: str = "") -> None:
        """Allow updates again."""
        self._set_pinned(False, check_signature(actor, reason))

    def _set_pinned(self, pinned: bool, fields: dict[str, str]) -> None:
        with self._session.writing() as tables:
            position = self._session.position
            if position.pinned != pinned:
                content = {"version": position.version}
                self._session.append(tables, "pin" if pinned else "unpin", content, **fields)

    def repair_clock(self, *, actor: str, reason: str = "") -> int:
        """Let the record's time pass again after a run whose clock was wrong, and return its offset in microseconds.

        If the last event is ahead of the clock, time continues from there: waiting windows, which stood still, pass
        again, and all later times in the record are ahead of the clock by the offset. Otherwise the clock is confirmed,
        for example after a long pause. It is an event of the record; the actor must not be empty.
        """
        session, fields = self._session, _signed_by_person(actor, reason)
        with session.writing() as tables:
            clock = session.wall_clock()
            offset = max(session.position.time - clock, 0)
            session.append(tables, "clock", {"clock": clock, "offset": offset}, **fields)
        return offset

    # --- state

    name: str = forwarded("_session.name", "The name of the study.")
    settings: StudySettings = forwarded("_session.settings", "The settings that it was created with.")
    due: bool = forwarded(
        "_session.due", "Whether the schedule has ended the batch, as of the last call that this process made."
    )
    saved: int = forwarded(
        "_session.saved",
        "The last event of the latest checkpoint; later ones are repeated when the study is opened again.",
    )

    def status(self) -> Status:
        """Return the current state of the study."""
        return audit.status_of(self._session)

    def versions(self) -> list[PublishedVersion]:
        """Return the published versions."""
        return versions.versions_in(self._session.specials())

    def policy(self, version: int | Literal["candidate"]) -> Policy:
        """Return a copy of the policy that a version was published with, or of the candidate's.

        What it would have earned is an off-policy estimate: `snips(log, policy.probabilities(log.contexts))`.
        """
        session, seq = self._session, None if version == "candidate" else self._version(version).snapshot
        with session.writing() as tables:
            return session.load(tables, candidate_of(session, tables).seq if seq is None else seq)

    def _version(self, version: Any) -> PublishedVersion:
        rows = self.versions()
        if not is_whole(version) or not 0 <= version < len(rows):
            raise InvalidStudy(f"version must be one of 0 … {len(rows) - 1}; got {shown(version)}.")
        return rows[int(version)]

    # --- the record

    def decision(self, id: str) -> DecisionRecord:
        """Return everything on record about a decision; `UnknownDecision` if there is none with this id."""
        with self._session.reading() as tables:
            event = tables.decisions([check_id(id)]).get(id)
        if event is None:
            raise UnknownDecision(f"study {self.name!r} has no decision with id {id!r}.")
        self._session.learn_names()
        return record_of(event, self.settings.arms)

    def decisions(self) -> Iterator[DecisionRecord]:
        """Yield all recorded decisions in order."""
        return audit.records(self._session)

    def events(self, after: int = 0, last: int | None = None) -> Iterator[Event]:
        """Yield the events of the record after `after`, up to and including `last`."""
        return self._session.events(after, self.status().events if last is None else last)

    def acts(self) -> list[Event]:
        """Return all events but decisions, rewards and cuts: versions, approvals, rollbacks, looks and so on."""
        return self._session.specials()

    def quarantined(self, most: int = 100) -> list[Event]:
        """Return the latest rewards in quarantine, the last one first."""
        with self._session.reading() as tables:
            return tables.latest("quarantine", most)

    def earned(self, after: int, last: int, width: int) -> list[tuple[float, ...]]:
        """Return what spans of time, versions and arms earned in a part of the record; see `Tables.earned`."""
        rule, decided = self.settings.rewards, (after, last)
        with self._session.reading() as tables:
            first, end = (closed_until(tables, rule, at) for at in decided)
            told = decided if rule.aggregation == "first" else (first, end)
            return tables.earned(decided, told, width, rule.aggregation)

    def log(self, after: int = 0) -> DecisionLog:
        """Return decisions after an event, and their rewards, as a `rarely.logs.DecisionLog`, for estimates."""
        return audit.log_of(self._session, self._session.last_seq(), after)

    def export(self, path: str | os.PathLike[str]) -> Exported:
        """Write all decisions with id, time, stage and actor as .csv or .parquet, and return how many there are.

        Of a study by columns there are also the arm's `name` and what was `sent`, as JSON. `rarely.logs.read_log` reads
        the file. A chunk of rows is in memory at a time.
        """
        return audit.export(self._session, path)

    def csv_text(self) -> Iterator[str]:
        """Yield the same table as CSV, a part at a time."""
        return (csv_of(columns, head=not number) for number, (columns, _) in enumerate(audit.parts(self._session)))

    def analysis(self, *, plan: AnalysisPlan | None = None, control: str | None = None, as_of: Any = None) -> Analysis:
        """Analyse a trial: arm means and contrasts with intervals, stages, missing rewards, balance and deviations.

        Raises `InvalidStudy` if arms have no names, or an available arm had the probability 0 in some decision.

        Parameters
        ----------
        plan, control
            The looks and the arm to compare with; by default those that the study was created with. Others are listed
            among the deviations.
        as_of
            What was known then: a day or a moment such as "2026-11-18" (UTC), a `datetime`, or the number of an event.
        """
        return analyse(self._session, plan=plan, control=control, as_of=as_of)

    # --- acts of a trial

    def look(self, *, actor: str, reason: str = "") -> Analysis:
        """Take the next planned look with what is known now, record it, and return the analysis with it.

        Intervals, boundaries and the share of the error are frozen: later analyses show the look as it was, and what
        later outcomes would have made of it beside it. After the end of enrolment it is the final look, whose outcomes
        include those that came after the decision to stop (overrunning). Raises `InvalidStudy` if no look is due.
        """
        return take_look(self._session, _signed_by_person(actor, reason))

    def close_arm(self, arm: str, *, actor: str, approved_by: str, reason: str = "") -> None:
        """Give an arm no further patients; those that it has stay in the analysis.

        `approved_by` names a second person. Raises `ApprovalNeeded` without one, and `InvalidStudy` if the arm is
        unknown, closed already or the last one.
        """
        self._close(self._index(arm), approved_by, _signed_by_person(actor, reason))

    def retire_arm(self, arm: str, *, actor: str, reason: str = "") -> None:
        """Give an arm no decisions until `activate_arm`; rewards of those that it has are learned from.

        Raises `InvalidStudy` if the arm is unknown or the last one, or if the study is a trial with a plan, which
        closes arms instead. A study of items has no such arms: they come and go with each request.
        """
        self._set_retired(arm, True, _signed_by_person(actor, reason))

    def activate_arm(self, arm: str, *, actor: str, reason: str = "") -> None:
        """Give an arm that was retired decisions again."""
        self._set_retired(arm, False, _signed_by_person(actor, reason))

    def add_arm(self, name: str, *, actor: str, reason: str = "") -> None:
        """Give a new arm decisions by its name, in the place of a spare one that was retired before the first decision.

        A policy has a fixed number of arms, so one to which arms come later is made with as many more, under any names;
        retire these at once. Raises `InvalidStudy` if no spare arm is left, or the name is taken.
        """
        session, fields = self._session, _signed_by_person(actor, reason)
        with session.writing() as tables:
            if check_id(name, "the name of an arm") in (self.settings.arms or ()):
                raise InvalidStudy(f"the name of a new arm must be a new one; {name!r} is an arm of the study.")
            acts = [event.content for event in tables.specials() if event.kind == "retire"]
            retired = {content["arm"]: content["round"] for content in acts}
            spare = min((arm for arm in session.position.retired if retired[arm] == 0), default=None)
            if spare is None:
                raise InvalidStudy(
                    f"no spare arm is left for {name!r}: make the policy with more arms than it has at first, and call "
                    "retire_arm for those before the first decision."
                )
            self.settings.with_name(spare, name)  # refuses the control arm
            content = {"arm": spare, "name": name, "round": session.position.rounds}
            session.append(tables, "add", content, **fields)
        session.learn_names()

    def _set_retired(self, arm: str, retired: bool, fields: dict[str, str]) -> None:
        index = self._index(arm)
        if self.settings.plan is not None:
            raise InvalidStudy("a trial with a plan closes arms, as a second person approves; see Study.close_arm.")
        with self._session.writing() as tables:
            position = self._session.position
            if (index in position.retired) == retired:
                return
            if retired and position.opens_only(index, self.settings.arms):
                raise InvalidStudy(f"{arm} is the last open arm, without which nothing can be decided.")
            content = {"arm": index, "round": position.rounds}
            self._session.append(tables, "retire" if retired else "activate", content, **fields)

    def _index(self, arm: Any) -> int:
        names = self.settings.arms or ()
        if arm not in names:
            raise InvalidStudy(f"arm must be one of {', '.join(names) or 'the named arms'}; got {shown(arm)}.")
        return names.index(arm)

    def close_enrolment(self, *, actor: str, approved_by: str, reason: str = "") -> None:
        """Take no further patients: new decisions raise `EnrolmentClosed`, and the final look may be taken.

        Outcomes of those enrolled are still accepted. `approved_by` names a second person, as in `close_arm`.
        """
        self._close(None, approved_by, _signed_by_person(actor, reason))

    def _close(self, arm: int | None, approved_by: str, signed: dict[str, str]) -> None:
        if not check_text(approved_by, "approved_by") or approved_by.casefold() == signed["actor"].casefold():
            raise ApprovalNeeded(
                f"closing needs a second person: approved_by must name somebody other than {signed['actor']!r}."
            )
        with self._session.writing() as tables:
            position, name = self._session.position, "enrolment" if arm is None else (self.settings.arms or ())[arm]
            if not position.enrolling or arm in position.closed:
                raise InvalidStudy(f"{name if position.enrolling else 'enrolment'} is closed already.")
            if arm is not None and position.opens_only(arm, self.settings.arms):
                raise InvalidStudy(f"{name} is the last open arm; close enrolment instead: study.close_enrolment.")
            body = {"arm": arm, "approved_by": approved_by, "round": position.rounds}
            self._session.append(tables, "close", body, **signed)

    # --- audits

    def verify(
        self, head: str | None = None, seq: int | None = None, *, heads: str | os.PathLike[str] | None = None
    ) -> Verification:
        """Check the chain of all events, and the rows and snapshots that they name.

        With a hash that `status` returned earlier, `head`, and the number of events at that time, `seq`, or with a file
        of lines that `rarely study status` printed, `heads`, it also detects whether the record was cut off or
        rewritten since. With the hash of the first event and seq=1 it shows that nothing that was fixed at the
        beginning has changed. Of what it returns, `bad` is the first wrong event, and `flaw` says what is wrong.
        """
        return audit.verify(self._session, head, seq, heads)

    def replay(self) -> Replay:
        """Train every version and make every decision again from the record, without writing anything.

        `equal` of what it returns says whether hashes are equal in the environment of the study, and arms in any other,
        except for ties.
        """
        return audit.replay(self._session)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole database to a new SQLite file while others decide, and check the copy; see `restore`."""
        audit.back_up(self._session, os.fspath(path))

    @staticmethod
    def restore(backup: str | os.PathLike[str], storage: str) -> list[str]:
        """Copy all studies of a backup into an empty database, check them there, and return their names."""
        return audit.restore(os.fspath(backup), storage)

    def erase(self, ids: Any, *, by: str = "id", actor: str, reason: str = "") -> Erasure:
        """Erase contexts, ids and texts of persons' decisions and rewards; others may decide meanwhile.

        Hashes, arms, probabilities and rewards stay, and `verify` says what was erased, when, by whom and why. The next
        version is trained without these decisions, and versions that may have learned from them cannot be rolled back
        to. Repeating it changes nothing, and neither do ids that are not on record. `remains` of what it returns says
        what may still hold the contexts. The reason stays on record: name nobody in it.

        Parameters
        ----------
        ids
            One, or a list: 17, 17.0 and "17" are the same.
        by
            "id" if they are ids of decisions, slates or slots, with which the slate goes whole; "user" if they were
            given as `ask(user=…)`; or the column of the user's table that holds them, where requests come by columns,
            "user.id" for a column "id".
        """
        return erasure.erase(self._session, ids, by, _signed_by_person(actor, reason))

    def prune(self, before: Any, *, actor: str, reason: str = "", dry_run: bool = False) -> Pruning:
        """Drop decisions and rewards from before a day or a moment (UTC), or before an event.

        Those that the version in use continues from stay, and so do those to which rewards may come within their
        window; versions, rollbacks and other acts always stay. A reward of a pruned decision counts as unknown, its id
        is free again, versions from before cannot be rolled back to, and a trial's `analysis` is refused.

        Parameters
        ----------
        before
            A day or a moment such as "2026-11-18", a `datetime`, or the number of an event.
        dry_run
            Only say how many events and bytes would go.
        """
        return erasure.prune(self._session, before, _signed_by_person(actor, reason), dry_run=dry_run)

    @staticmethod
    def delete(storage: str, name: str, *, actor: str, reason: str = "") -> int:
        """Delete a study with its decisions, rewards, versions and checkpoints, and return how many events it had.

        That it was there, who deleted it and why stays on record. Backups and exports are not touched.
        """
        signed = _signed_by_person(actor, reason)
        with closing(open_storage(storage)) as database:
            database.check()
            return database.delete(check_id(name, "the name of a study"), **signed)

    @staticmethod
    def upgrade(storage: str, backup: str | os.PathLike[str] | None = None) -> list[str]:
        """Bring a database of an earlier version to the schema of this one, and return the steps.

        A backup is written first. Without a name for it nothing is changed: the steps are those that would be taken.
        """
        with closing(open_storage(storage)) as database:
            return database.upgrade(backup)


def _signed_by_person(actor: str, reason: str) -> dict[str, str]:
    if not actor:
        raise InvalidStudy("a person's act must say who decides: actor='name'.")
    return check_signature(actor, reason)


def _read(read: Any, kind: Any, fields: Any, *others: Any) -> Any:
    """Return what `read` makes of a request or a tell, which may be a plain tuple; or the error that it raises."""
    least = len(kind._fields) - len(kind._field_defaults)
    if isinstance(fields, RarelyError):
        return fields
    try:
        if not isinstance(fields, tuple | list) or not least <= len(fields) <= len(kind._fields):
            raise InvalidInput(f"a {kind.__name__} is ({', '.join(kind._fields)}); got {shown(fields)}.")
        return read(kind(*fields), *others)
    except RarelyError as error:
        return error


def _read_tell(tell: Any, session: Session) -> Any:
    if isinstance(tell, Slate):
        return Slate(_read_tell(slot, session) for slot in tell)
    return _read(read_tell, Tell, tell, session.settings.rewards)


def _each_slot(results: list[Any]) -> Iterator[Any]:
    for each in results:
        yield from each if isinstance(each, Slate) else [each]


def _raise_first(results: list[Any]) -> None:
    for each in _each_slot(results):
        if isinstance(each, RarelyError):
            raise each
