"""A study: decisions, rewards and versions on record before they are answered, and a policy that follows from them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, Self

from rarely.core.errors import InvalidInput, RarelyError, check_choice, check_positive
from rarely.core.inputs.arm_blocks import ArmBlocks
from rarely.core.policies.base import Policy
from rarely.core.saving.fields import shortened
from rarely.study import publishing, steering
from rarely.study.creating import only_name, write_first
from rarely.study.deciding import decide
from rarely.study.decisions import Answer
from rarely.study.deliveries import Delivery, Receipt, Tell, read_tell
from rarely.study.errors import InvalidStudy
from rarely.study.inspecting import Inspection
from rarely.study.publishing import LEASE, holder_name
from rarely.study.receiving import receive
from rarely.study.requests import Question, Request, read_request
from rarely.study.reward_rule import RewardRule
from rarely.study.session import Clock, Session
from rarely.study.settings import StudySettings, read_arms
from rarely.study.storage import open_storage
from rarely.study.texts import check_id, check_text
from rarely.study.training import Job, Trained, train
from rarely.study.trial import Stage


class Study(Inspection):
    """A bandit whose decisions, rewards and versions are in a database before they are answered.

    `Study.create` makes one and `Study.open` opens it again, in any process. All methods may be called from any
    thread; calls on one study take turns.

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
    >>> study.status().version
    1
    """

    # --- making and opening

    @classmethod
    def create(
        cls,
        storage: str,
        name: str,
        *,
        policy: Policy,
        arms: Sequence[str] | int | None = None,
        blocks: ArmBlocks | None = None,
        rewards: RewardRule | None = None,
        stages: Sequence[Stage] | None = None,
        control: str | None = None,
        actor: str = "",
        reason: str = "",
        clock: Clock = time.time,
    ) -> Self:
        """Make a new study; the same call again opens it.

        Parameters
        ----------
        storage
            "sqlite:///trial.db", "postgresql://user@host/name" or "memory://".
        name
            Of the study; a database may hold several.
        policy
            A policy that has decided nothing yet; the study keeps a copy. Its schedule says how many versions there
            may be.
        arms
            Names of the arms, or how many there are. None lets every request bring its own number of contexts.
        blocks
            `ArmBlocks`, where requests bring one row and not a context for each arm.
        rewards
            A `RewardRule`; by default the first reward of each decision counts, whenever it comes.
        stages
            `Stage` values for a trial; by default one stage without limits.
        control
            The arm that `contrasts` compares the others with.
        actor, reason
            Who made it, and why; both are on record.

        Raises
        ------
        StudyExists
            If there is a study of that name with other settings.
        """
        settings = StudySettings(
            read_arms(arms),
            blocks,
            RewardRule() if rewards is None else rewards,
            (Stage("main"),) if stages is None else tuple(stages),
            control,
        )
        check_id(name, "the name of a study")
        fields = _signed(actor, reason)
        database = open_storage(storage, new=True)
        try:
            database.create()
            write_first(database, name, policy, settings, clock=clock, **fields)
            return cls(Session(database, name, clock))
        except BaseException:
            database.close()
            raise

    @classmethod
    def open(cls, storage: str, name: str | None = None, *, lazy: bool = False, clock: Clock = time.time) -> Self:
        """Open a study; its name may be left out where the database holds one alone.

        The policy is built from the record now, so that a damaged one is refused here. With `lazy` the first call that
        needs the policy does it: `verify` and `log` need none.
        """
        database = open_storage(storage)
        try:
            database.check()
            study = cls(Session(database, only_name(database) if name is None else name, clock))
            if not lazy:
                with study._session.writing():
                    pass  # the policy stands at the end of the record
            return study
        except BaseException:
            database.close()
            raise

    # --- the four verbs

    def ask(
        self, contexts: Any, id: str | None = None, *, available: Any = None, actor: str = "", reason: str = ""
    ) -> Answer:
        """Decide, once for each id.

        Parameters
        ----------
        contexts
            (K, d), a context for each arm; a dict from names of arms to contexts; or one row where the study has
            `blocks`.
        id
            Any text that the caller can repeat. The same id with the same contexts gets the same answer for the life
            of the study; None makes a new id, which the answer tells.
        available
            Names (or places) of the arms that are there; None for all.

        Raises
        ------
        StudyConflict
            If the id was decided for other contexts.
        """
        answer: Answer = self.ask_many([Request(contexts, id, available)], actor=actor, reason=reason)[0]
        return answer

    def ask_many(
        self,
        requests: Iterable[Request | tuple[Any, ...]],
        *,
        actor: str = "",
        reason: str = "",
        errors: Literal["raise", "return"] = "raise",
    ) -> list[Any]:
        """Decide many requests in one commit; each is decided as if it had been asked alone.

        With `errors="return"` the place of a bad request holds its error, and the others are decided; else the
        first error is raised, and none is.
        """
        answers, _ = self.ask_and_tell(requests, (), actor=actor, reason=reason, errors=errors)
        return answers

    def tell(self, id: str, reward: Any, *, key: str | None = None, actor: str = "", reason: str = "") -> Receipt:
        """Tell a reward: now, late, or again.

        Parameters
        ----------
        id
            Of the decision.
        reward
            A finite number.
        key
            Which of several rewards of the decision it is. The same id and key again is a duplicate and changes
            nothing. Without a key the value takes its place, so that equal rewards that are to be summed need keys.

        Returns
        -------
        Receipt
            Its status is "accepted", "duplicate", "late" or "quarantined".
        """
        receipt: Receipt = self.tell_many([Tell(id, reward, key)], actor=actor, reason=reason)[0]
        return receipt

    def tell_many(
        self,
        tells: Iterable[Tell | tuple[Any, ...]],
        *,
        actor: str = "",
        reason: str = "",
        errors: Literal["raise", "return"] = "raise",
    ) -> list[Any]:
        """Tell many rewards in one commit; `errors` as in `ask_many`."""
        _, receipts = self.ask_and_tell((), tells, actor=actor, reason=reason, errors=errors)
        return receipts

    def ask_and_tell(
        self,
        requests: Iterable[Request | tuple[Any, ...]],
        tells: Iterable[Tell | tuple[Any, ...]],
        *,
        actor: str = "",
        reason: str = "",
        errors: Literal["raise", "return"] = "raise",
    ) -> tuple[list[Any], list[Any]]:
        """`ask_many` and `tell_many` in one commit: what a service gathers in a millisecond."""
        check_choice("errors", errors, Literal["raise", "return"])
        fields, session = _signed(actor, reason), self._session
        questions = [_attempt(_read_question, request, session) for request in requests]
        deliveries = [_attempt(_read_delivery, tell) for tell in tells]
        if errors == "raise":
            _raise_first([*questions, *deliveries])
        if all(isinstance(each, RarelyError) for each in (*questions, *deliveries)):
            return questions, deliveries
        with session.writing() as tables:
            answers = decide(session, tables, questions, fields) if questions else []
            receipts = receive(session, tables, deliveries, fields)
            if errors == "raise":
                _raise_first([*answers, *receipts])
        return answers, receipts

    def update(self, *, force: bool = False, lease: float = LEASE, actor: str = "", reason: str = "") -> str:
        """Train the next version on the rewards that are settled, and publish it.

        Decisions of other threads and processes go on under the old version meanwhile.

        Returns
        -------
        str
            "version" if it decides from now on, "candidate" if a person must approve it first, "rejected" if the
            training did not lower the loss and the old version goes on.

        Raises
        ------
        StudyFull
            If the study has all its versions.
        StudyBusy
            If another trainer is at work.
        """
        job = self.begin_update(force=force, lease=lease, actor=actor, reason=reason)
        try:
            return self.finish_update(train(job), actor=actor, reason=reason)
        except BaseException:
            with suppress(RarelyError):  # the error of the training matters more
                publishing.release(self._session, job.token)
            raise

    def begin_update(
        self, *, force: bool = False, lease: float = LEASE, holder: str = "", actor: str = "", reason: str = ""
    ) -> Job:
        """The first part of `update`: cut the record, for `train` in this process or in another one."""
        check_positive("lease", lease, "the seconds that a training may take")
        return publishing.begin(
            self._session,
            force=force,
            lease=lease,
            holder=holder or holder_name(),
            **_signed(actor, reason),
        )

    def finish_update(self, trained: Trained, *, actor: str = "", reason: str = "") -> str:
        """The last part of `update`: record what `train` made."""
        if not isinstance(trained, Trained):
            raise InvalidInput(f"finish_update takes what train(job) returned; got {type(trained).__name__}.")
        if trained.study != self.name:
            raise InvalidStudy(f"this is study {self.name!r}; the version was trained for {trained.study!r}.")
        return publishing.finish(self._session, trained, **_signed(actor, reason))

    def give_up_update(self, job: Job | Trained) -> None:
        """Give the lease of a training back that will not be finished."""
        publishing.release(self._session, job.token)

    # --- what people decide

    def approve(self, *, actor: str, reason: str = "") -> int:
        """Publish the candidate, where a stage asks for approval; the number of its version."""
        return steering.approve(self._session, **_signed(actor, reason))

    def dismiss(self, *, actor: str, reason: str = "") -> None:
        """Drop the candidate; the version in use goes on, and no version is spent."""
        steering.dismiss(self._session, **_signed(actor, reason))

    def rollback(self, version: int, *, actor: str = "", reason: str = "") -> None:
        """Let an earlier version decide again. It keeps its number; the next update continues from it."""
        steering.roll_back(self._session, version, **_signed(actor, reason))

    def pin(self, *, actor: str = "", reason: str = "") -> None:
        """Keep the version in use: updates are refused until `unpin`."""
        steering.pin(self._session, True, **_signed(actor, reason))

    def unpin(self, *, actor: str = "", reason: str = "") -> None:
        """Allow updates again."""
        steering.pin(self._session, False, **_signed(actor, reason))

    def shadow(self, version: int | Literal["candidate"] | None, *, actor: str = "", reason: str = "") -> None:
        """Score the candidate, or a version, beside the one in use.

        Its probabilities are logged with every decision, for off-policy estimates, and never affect an answer.
        None ends it.
        """
        steering.set_shadow(self._session, version, **_signed(actor, reason))


def _signed(actor: str, reason: str) -> dict[str, str]:
    return {"actor": check_text(actor, "actor"), "reason": check_text(reason, "reason")}


def _attempt(read: Any, *arguments: Any) -> Any:
    """What `read` gives, or the error that it raises."""
    try:
        return read(*arguments)
    except RarelyError as error:
        return error


def _read_question(request: Any, session: Session) -> Question:
    return read_request(_as(Request, request), session.settings, session.dim)


def _read_delivery(tell: Any) -> Delivery:
    return read_tell(_as(Tell, tell))


def _as(kind: Any, given: Any) -> Any:
    """A request or a tell, also from a plain tuple."""
    if isinstance(given, kind):
        return given
    least = len(kind._fields) - len(kind._field_defaults)
    if not isinstance(given, tuple | list) or not least <= len(given) <= len(kind._fields):
        raise InvalidInput(f"a {kind.__name__} is ({', '.join(kind._fields)}); got {shortened(given)}.")
    return kind(*given)


def _raise_first(found: list[Any]) -> None:
    for each in found:
        if isinstance(each, RarelyError):
            raise each
