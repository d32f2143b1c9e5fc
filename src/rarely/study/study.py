"""A study: decisions, rewards and versions on record before they are answered, and a policy that follows from them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

from rarely.core.errors import InvalidInput, RarelyError, check_choice
from rarely.core.inputs.arm_blocks import ArmBlocks
from rarely.core.policies.base import Policy
from rarely.core.saving.fields import shortened
from rarely.study.creating import only_name, write_first
from rarely.study.deciding import decide
from rarely.study.decisions import Answer
from rarely.study.deliveries import Delivery, Receipt, Tell, read_tell
from rarely.study.governing import Governance
from rarely.study.receiving import receive
from rarely.study.requests import Question, Request, read_request
from rarely.study.reward_rule import RewardRule
from rarely.study.session import Clock, Session
from rarely.study.settings import StudySettings, read_arms
from rarely.study.storage import open_storage
from rarely.study.texts import check_id, signed
from rarely.study.trial import Stage


class Study(Governance):
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
        fields = signed(actor, reason)
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
        """Open a study that was created before, in this process or in another one.

        Parameters
        ----------
        storage, name
            As `create` was given them; the name may be left out where the database holds one study alone.
        lazy
            By default the policy is built from the record now, so that a damaged one is refused here. With `lazy` the
            first call that needs the policy does it: `verify` and `log` need none.

        Raises
        ------
        InvalidStorage
            If there is no such database, or it cannot be written to.
        UnknownStudy
            If the database has no study of that name.
        BrokenStudy
            If the record or the snapshot in use is damaged.
        StudyBusy
            If another process has the file.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> with Study.create("memory://open", "colours", policy=LinUCB(dim=1), arms=2) as study:
        ...     answer = study.ask([[1.0], [2.0]], id="visit-1")
        >>> Study.open("memory://open", "colours")
        <Study 'colours': 1 decisions, version 0, event 2>
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
        InvalidContexts
            If the contexts are not finite numbers of the right shape.
        StudyConflict
            If the id was decided for other contexts.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> study = Study.create("memory://ask", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
        >>> study.ask([[1.0], [2.0]], id="visit-1").arm
        'blue'
        >>> study.ask({"red": [1.0]}, id="visit-2").arm
        'red'
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

        Parameters
        ----------
        requests
            `Request` values, or tuples of contexts, id, available arms and actor.
        errors
            "raise" raises the first error, and nothing is decided. With "return" the place of a bad request
            holds its error, and the others are decided.

        Returns
        -------
        list
            An `Answer` for each request, or an error.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> study = Study.create("memory://many", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
        >>> requests = [([[1.0], [2.0]], "visit-1"), ([[1.0], [float("nan")]], "visit-2")]
        >>> [type(found).__name__ for found in study.ask_many(requests, errors="return")]
        ['Answer', 'InvalidContexts']
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

        Raises
        ------
        InvalidReward
            If the reward is not a finite number.
        StudyConflict
            If the key was told with another reward.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> study = Study.create("memory://tell", "colours", policy=LinUCB(dim=1), arms=2)
        >>> answer = study.ask([[1.0], [2.0]], id="visit-1")
        >>> study.tell("visit-1", 1.0).status, study.tell("visit-1", 1.0).status
        ('accepted', 'duplicate')
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
        fields, session = signed(actor, reason), self._session
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
