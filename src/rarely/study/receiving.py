"""Rewards to receipts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rarely.core.errors import RarelyError
from rarely.study.deliveries import Delivery, Receipt, judge, receipt_of
from rarely.study.events import Event
from rarely.study.session import Session
from rarely.study.storage import Tables


def receive(session: Session, tables: Tables, deliveries: Sequence[Any], fields: dict[str, str]) -> list[Any]:
    """A receipt, or an error, for each delivery; an error that came as a delivery stays where it is."""
    study = session.row.study
    ids = list(dict.fromkeys(each.id for each in deliveries if isinstance(each, Delivery)))
    decisions, earlier = tables.decisions(study, ids), tables.deliveries(study, ids)
    events: list[Event] = []
    found = [
        _received(session, delivery, decisions.get(delivery.id), earlier[delivery.id], fields, events)
        if isinstance(delivery, Delivery)
        else delivery
        for delivery in deliveries
    ]
    tables.append(study, events)
    return found


def _received(
    session: Session,
    delivery: Delivery,
    decision: Event | None,
    earlier: list[Event],
    fields: dict[str, str],
    events: list[Event],
) -> Receipt | RarelyError:
    """The receipt of a delivery, whose event is added to `events` and to the earlier deliveries of its decision."""
    try:
        found = judge(session.settings.rewards, delivery, decision, earlier, session.now())
    except RarelyError as error:
        return error
    if isinstance(found, Receipt):
        return found
    kind, why, body = found
    signed = fields | {"actor": delivery.actor or fields["actor"]}
    event = session.following(kind, body, ref=delivery.id, key=delivery.key, why=why, **signed)
    events.append(event)
    earlier.append(event)
    return receipt_of(event)
