"""Rewards: received at least once, in effect exactly once.

    received = used + pending + late + quarantined

A delivery is a decision id and a key. The same delivery again changes nothing. What becomes of a new one depends on
the record alone, and so does which rewards a version may learn from: the cut is a place of the record, and a waiting
window has closed when the time of the event at the cut lies behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from rarely.core.errors import InvalidReward
from rarely.core.inputs.rewards import read_rewards
from rarely.study.errors import StudyConflict
from rarely.study.events import Event, Kind
from rarely.study.position import Position
from rarely.study.reward_rule import RewardRule
from rarely.study.storage import Tables
from rarely.study.texts import check_id, check_text

Status = Literal["accepted", "duplicate", "late", "quarantined", "spooled"]
_STATUS: dict[str, Status] = {"reward": "accepted", "late reward": "late", "quarantine": "quarantined"}
UNKNOWN, OUT_OF_RANGE, SECOND = "unknown decision", "out of range", "already rewarded"


class Tell(NamedTuple):
    """One reward that is told; see `Study.tell`.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-tells", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> from rarely.study import Tell
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> [receipt.status for receipt in study.tell_many([Tell("visit-1", 1.0), Tell("visit-2", 0.0)])]
    ['accepted', 'quarantined']
    """

    id: str
    reward: Any
    key: str | None = None
    actor: str = ""
    """Who tells; where it is empty, the actor of the call."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a reward.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-receipt", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> receipt = study.tell("unknown", 1.0)
    >>> receipt.status
    'quarantined'
    """

    id: str
    status: Status
    reason: str
    """Why it is late or in the quarantine."""
    seq: int
    """Its place in the record; of a duplicate, the place of the first."""

    def describe(self) -> dict[str, Any]:
        """The receipt as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A reward that was checked."""

    id: str
    value: float
    key: str
    actor: str = ""


def read_tell(tell: Tell) -> Delivery:
    """Check a reward. Without a key of its own, a delivery is known by its value."""
    id = check_id(tell.id)
    if isinstance(tell.reward, list | tuple):
        raise InvalidReward(f"reward must be one finite number; got {tell.reward!r}.")
    value = float(read_rewards(tell.reward, 1)[0]) + 0.0  # −0 is 0
    key = f"={value!r}" if tell.key is None else f"#{check_id(tell.key, 'a key')}"
    return Delivery(id, value, key, check_text(tell.actor, "actor"))


def judge(
    rule: RewardRule, delivery: Delivery, decision: Event | None, earlier: Sequence[Event], now: int
) -> Receipt | tuple[Kind, str, dict[str, Any]]:
    """The receipt of a delivery that is on record, or kind, reason and body of the event that a new one becomes.

    `decision` is the one that the delivery is about, if it is on record, and `earlier` are the deliveries for it.
    """
    for event in earlier:
        if event.key == delivery.key:
            known = event.content["reward"]
            if known != delivery.value:
                raise StudyConflict(
                    f"key {delivery.key[1:]!r} of decision {delivery.id!r} was told with reward {known}, and now came "
                    f"{delivery.value}. Give another reward another key."
                )
            return Receipt(delivery.id, "duplicate", event.why, event.seq)
    body: dict[str, Any] = {"reward": delivery.value}
    if decision is None:
        return "quarantine", UNKNOWN, body
    body |= {"decided": decision.seq, "round": decision.content["round"]}
    if not rule.contains(delivery.value):
        return "quarantine", OUT_OF_RANGE, body
    if rule.window is not None and now > decision.time + rule.window:
        return "late reward", "", body
    if rule.aggregation == "first" and any(event.kind == "reward" for event in earlier):
        return "quarantine", SECOND, body
    return "reward", "", body


def receipt_of(event: Event) -> Receipt:
    """The receipt of a delivery that was just recorded."""
    assert event.ref is not None
    return Receipt(event.ref, _STATUS[event.kind], event.why, event.seq)


def closed_until(tables: Tables, study: int, rule: RewardRule, cut: int) -> int:
    """The last event whose waiting window has closed at the cut."""
    event = tables.event(study, cut)
    if rule.window is None or event is None:
        return 0
    return tables.last_until(study, event.time - rule.window - 1, cut)


class Span(NamedTuple):
    """A stretch of the record, and what is read from any part of it."""

    first: int
    """After this event,"""
    last: int
    """up to and including this one."""
    read: Callable[[Tables, int, RewardRule, int, int], list[tuple[int, float]]]
    """(round, reward) of a part, given tables, study, rule and the ends of the part."""


def spans_of(tables: Tables, study: int, rule: RewardRule, start: int, cut: int) -> list[Span]:
    """Where the rewards stand that a policy of one cut has yet to learn from at a later one."""
    before, closed = (closed_until(tables, study, rule, at) for at in (start, cut))
    spans = [Span(start, cut, _first_rewards) if rule.aggregation == "first" else Span(before, closed, _joined_rewards)]
    return spans + ([] if rule.default is None else [Span(before, closed, _default_rewards)])


def settled(tables: Tables, study: int, rule: RewardRule, start: int, cut: int) -> list[tuple[int, float]]:
    """(round, reward) of the decisions that a policy of one cut has yet to learn from at a later one."""
    spans = spans_of(tables, study, rule, start, cut)
    return [pair for span in spans for pair in span.read(tables, study, rule, span.first, span.last)]


def _first_rewards(tables: Tables, study: int, rule: RewardRule, first: int, last: int) -> list[tuple[int, float]]:
    contents = (event.content for event in tables.of_kind(study, "reward", first, last))
    return [(content["round"], content["reward"]) for content in contents]


def _joined_rewards(tables: Tables, study: int, rule: RewardRule, first: int, last: int) -> list[tuple[int, float]]:
    found = tables.rewards_of(study, first, last)
    return [(round, rewards[-1] if rule.aggregation == "last" else sum(rewards)) for round, rewards in found]


def _default_rewards(tables: Tables, study: int, rule: RewardRule, first: int, last: int) -> list[tuple[int, float]]:
    assert rule.default is not None
    return [(round, float(rule.default)) for round in tables.unrewarded(study, first, last)]


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where all rewards are.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-accounts", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> _ = study.tell("visit-1", 1.0)
    >>> accounts = study.status().rewards
    >>> accounts.received, accounts.pending, accounts.balanced
    (1, 1, True)
    """

    received: int
    used: int
    """Counted in a training."""
    pending: int
    """Accepted, and waiting for the next training or the end of their window."""
    late: int
    quarantined: int
    quarantine: dict[str, int]
    """How many of them for which reason."""

    @property
    def balanced(self) -> bool:
        """Whether received = used + pending + late + quarantined."""
        return self.received == self.used + self.pending + self.late + self.quarantined


def used_by(tables: Tables, study: int, rule: RewardRule, learned: int) -> int:
    """How many rewards a training up to this cut has counted; it never changes later."""
    if rule.aggregation == "first":
        return tables.rewards_until(study, learned)
    return tables.rewards_decided_until(study, closed_until(tables, study, rule, learned))


def accounts_of(position: Position, used: int) -> Accounts:
    """Where all rewards are at a position of the record."""
    quarantine = dict(position.quarantine)
    return Accounts(
        received=position.received,
        used=used,
        pending=position.accepted - used,
        late=position.late,
        quarantined=sum(quarantine.values()),
        quarantine=quarantine,
    )
