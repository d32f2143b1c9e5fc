"""Rewards to receipts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rarely.core.errors import RarelyError
from rarely.study.deliveries import Delivery, Receipt, judge, receipt_of
from rarely.study.session import Session
from rarely.study.storage import Tables


def receive(session: Session, tables: Tables, deliveries: Sequence[Any], fields: dict[str, str]) -> list[Any]:
    """A receipt, or an error, for each delivery; an error that came as a delivery stays where it is."""
    return [
        delivery if isinstance(delivery, RarelyError) else _received(session, tables, delivery, fields)
        for delivery in deliveries
    ]


def _received(session: Session, tables: Tables, delivery: Delivery, fields: dict[str, str]) -> Receipt | RarelyError:
    try:
        found = judge(tables, session.row.study, session.settings.rewards, delivery, session.now())
    except RarelyError as error:
        return error
    if isinstance(found, Receipt):
        return found
    kind, why, body = found
    signed = fields | {"actor": delivery.actor or fields["actor"]}
    event = session.append(tables, kind, body, ref=delivery.id, key=delivery.key, why=why, **signed)
    return receipt_of(event)
