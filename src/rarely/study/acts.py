"""What people do in a trial, each an event of the record: looks, arms that are closed, and the end of enrolment.

A look is frozen when it is taken. Its event has the last event that it knows, the share of the planned information that
it uses, and of every effect the sums, the interval and the boundary. What comes later changes none of it.
"""

from __future__ import annotations

from typing import Any

from rarely.extend.checks import shown
from rarely.runs.sealed_json import plain_json
from rarely.study.analysis import Analysis, analyse, examine
from rarely.study.errors import ApprovalNeeded, InvalidStudy
from rarely.study.events import check_text
from rarely.study.plan import AnalysisPlan
from rarely.study.reports import advice_of
from rarely.study.session import Session


def take_look(session: Session, signed: dict[str, str]) -> Analysis:
    """Record the next planned look, with what is known now; see `Study.look`."""
    plan = session.settings.plan
    if plan is None:
        raise InvalidStudy("a look needs a plan: Study.create(plan=AnalysisPlan(…)); `analysis` needs none.")
    with session.writing():
        position, last = session.position, session.position.seq
    taken = [event for event in session.specials() if event.kind == "look"]
    number = _next_number(plan, taken[-1].content if taken else None, position.rounds, enrolling=position.enrolling)
    whole = number >= len(plan.at) and position.rounds >= plan.rounds
    # All error is left to the look after all planned patients: a stop before must not choose where it is spent.
    fraction = 1.0 if whole else min(analyse(session, as_of=last).rewards / plan.rounds, 1.0)
    made, cuts = examine(session, last, taking=fraction)
    rows = {}
    for effect in (*made.means, *made.contrasts):
        look, known = effect.looks[-1], [cut.summary.information for cut in cuts[effect.name]]
        row = {name: getattr(look, name) for name in ("estimate", "low", "high", "boundary")}
        row |= {"summary": list(cuts[effect.name][-1].summary), "fell": len(known) > 1 and known[-1] < known[-2]}
        rows[effect.name] = row | ({} if effect.outlook is None else {"outlook": effect.outlook})
    body: dict[str, Any] = {"number": number, "round": made.decisions, "fraction": fraction}
    body |= {"final": whole or not position.enrolling}
    body |= {"cut": last, "rewards": made.rewards, "plan": plan.hash, "effects": rows, "advice": advice_of(made)}
    with session.writing() as tables:
        if [event.seq for event in tables.specials() if event.kind == "look"] != [event.seq for event in taken]:
            raise InvalidStudy("another look was taken at the same time; call again for the next one.")
        event = session.append(tables, "look", dict(plain_json(body)), **signed)
    return analyse(session, as_of=event.seq)


def _next_number(plan: AnalysisPlan, last: dict[str, Any] | None, decisions: int, *, enrolling: bool) -> int:
    """Return the number of the look that is due, or refuse one out of order."""
    before = 0 if last is None else int(last["number"])
    if last is not None and last["final"]:
        raise InvalidStudy("the last look was taken; outcomes that came later are shown beside it in the analysis.")
    due = sum(at <= decisions for at in plan.at)
    if enrolling and due <= before:
        raise InvalidStudy(
            f"look {before + 1} comes after decision {plan.at[before]}, and there are {decisions}: wait for it, or "
            "close enrolment, after which the final look may be taken."
        )
    return max(due, min(before + 1, len(plan.at)))


def close(session: Session, arm: str | None, approved_by: str, signed: dict[str, str]) -> None:
    """Record that an arm, or with None the trial, gets no further patients; see `Study.close_arm`."""
    names = session.settings.arms or ()
    if arm is not None and arm not in names:
        raise InvalidStudy(f"arm must be one of {', '.join(names) or 'the named arms'}; got {shown(arm)}.")
    if not check_text(approved_by, "approved_by") or approved_by.casefold() == signed["actor"].casefold():
        raise ApprovalNeeded(
            f"closing needs a second person: approved_by must name somebody other than {signed['actor']!r}."
        )
    with session.writing() as tables:
        position = session.position
        index = None if arm is None else names.index(arm)
        if not position.enrolling or index in position.closed:
            raise InvalidStudy(f"{'enrolment' if not position.enrolling else arm} is closed already.")
        if index is not None and len(position.closed) + 1 >= len(names):
            raise InvalidStudy(f"{arm} is the last open arm; close enrolment instead: study.close_enrolment.")
        body = {"arm": index, "approved_by": approved_by, "round": position.rounds}
        session.append(tables, "close", body, **signed)
