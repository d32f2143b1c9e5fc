"""Requests and rewards of several callers in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from rarely.core.errors import RarelyError
from rarely.study.deciding import decide
from rarely.study.deliveries import Delivery, Tell, read_tell
from rarely.study.inspecting import Inspection
from rarely.study.receiving import receive
from rarely.study.requests import Question, Request, read_request
from rarely.study.session import MustFollow, Session
from rarely.study.storage import Tables

Call = tuple[str, Request | Tell]
"""Who calls, and what is asked or told."""


MOST_BEHIND = 1024
"""Rounds that may wait to be recorded; a group that finds more records them first."""


def answer_many(study: Inspection, calls: Iterable[Call], *, deferring: bool = False) -> list[Any]:
    """Ask and tell for several callers in one commit, as a service does.

    Parameters
    ----------
    study
        An open study.
    calls
        Pairs of an actor and a `Request` or `Tell`.
    deferring
        Whether the running Z, log det and `due` may stay behind until `record_backlog`, where no decision depends on
        them. Every other call of the study brings them up to date first.

    Returns
    -------
    list
        The answer, the receipt or the error of each call. Requests are decided before rewards are received.

    Examples
    --------
    >>> from rarely import FixedGrid, LinUCB
    >>> from rarely.study import Study
    >>> policy = LinUCB(dim=2, schedule=FixedGrid(1000, 10), seed=0)
    >>> study = Study.create("memory://grouping", "colours", policy=policy, arms=["red", "blue"])
    >>> calls = [("web", Tell("visit-1", 1.0)), ("app", Request([[1.0, 0.0], [0.0, 1.0]], "visit-1"))]
    >>> [(type(found).__name__, found.seq) for found in answer_many(study, calls)]
    [('Receipt', 3), ('Answer', 2)]
    """
    session = study._session
    found = [_checked(session, *call) for call in calls]
    # Callers differ in what is recorded, not in how they are decided: one block for all of them.
    asked = [i for i, each in enumerate(found) if isinstance(each, Question)]
    told = [i for i, each in enumerate(found) if isinstance(each, Delivery)]
    if not asked and not told:
        return found
    fields = {"actor": "", "reason": ""}
    with _writing(session, [found[i] for i in asked] if deferring else None) as tables:
        for work, places in ((decide, asked), (receive, told)):
            for i, answer in zip(places, work(session, tables, [found[i] for i in places], fields), strict=True):
                found[i] = answer
    return found


@contextmanager
def _writing(session: Session, questions: Sequence[Question] | None) -> Iterator[Tables]:
    """A transaction; with questions, one in which the running Z stays behind if it may."""
    arms = None if questions is None else max((len(question.present) for question in questions), default=0)
    with ExitStack() as stack:
        if arms is None or not session.may_wait(arms):
            yield stack.enter_context(session.writing())
            return
        if session.backlog > MOST_BEHIND:
            session.record_backlog()
        try:
            tables = stack.enter_context(session.writing(waiting_arms=arms))
        except MustFollow:
            tables = stack.enter_context(session.writing())
        yield tables


def record_backlog(study: Inspection) -> None:
    """Bring the running Z, log det and `due` up to date, while other threads go on deciding.

    Parameters
    ----------
    study
        An open study for which `answer_many` was called with `deferring`.
    """
    study._session.record_backlog()


def _checked(session: Session, actor: str, call: Request | Tell) -> Any:
    """A question or a delivery, or what is wrong with it."""
    try:
        if isinstance(call, Tell):
            return read_tell(call._replace(actor=actor))
        return read_request(call._replace(actor=actor), session.settings, session.dim)
    except RarelyError as error:
        return error
