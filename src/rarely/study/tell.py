"""Rewards: delivered at least once, counted exactly once.

    received = used + pending + late + quarantined

A delivery is identified by a decision id and a key; repeating it changes nothing. What becomes of a new delivery
depends on the record alone, and so does which rewards a version may learn from: the cut is an event of the record, and
a waiting window has closed if it ended before the time of the event at the cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rarely import InvalidInput, InvalidReward
from rarely.extend import Described
from rarely.extend.checks import is_whole, read_rewards, shown
from rarely.study.errors import StudyConflict
from rarely.study.events import Event, Kind, canonical, check_id, check_text
from rarely.study.session import Session
from rarely.study.settings import RewardRule
from rarely.study.storage import CHUNK, Tables

Status = Literal["accepted", "duplicate", "late", "quarantined", "spooled"]
OVERRIDE = "override"
"""Why a reward is in quarantine whose arm a person gave instead of the one decided."""
FALLBACK = "fallback:"
"""How the reason of an override begins whose arm a client gave while the service was away."""
_STATUS: dict[str, Status] = {"reward": "accepted", "late reward": "late", "quarantine": "quarantined"}


class Tell(NamedTuple):
    """A reward to be recorded; see `Study.tell`.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study, Tell
    >>> study = Study.create("memory://example-tells", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> [receipt.status for receipt in study.tell_many([Tell("visit-1", 1.0), Tell("visit-2", 0.0)])]
    ['accepted', 'quarantined']
    """

    id: str
    reward: Any
    key: str | None = None
    actor: str = ""
    """Who reports the reward; if empty, the actor of the call."""
    arm: Any = None
    """The arm that a person gave instead of the one decided: the reward is recorded and never learned from."""
    reason: str = ""
    """Why; if empty, the reason of the call. An override must have one."""


@dataclass(frozen=True, slots=True)
class Receipt(Described):
    """What became of a reward.

    Examples
    --------
    >>> Receipt("visit-9", "quarantined", "unknown decision", seq=7).describe()
    {'id': 'visit-9', 'status': 'quarantined', 'reason': 'unknown decision', 'seq': 7}
    """

    id: str
    status: Status
    reason: str
    """Why it is late or in quarantine."""
    seq: int
    """The number of its event; for a duplicate, that of the first delivery."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A reward that was checked."""

    id: str
    value: float
    key: str
    actor: str = ""
    arm: Any = None
    reason: str = ""
    outcomes: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where all rewards are.

    Examples
    --------
    >>> Accounts(received=4, used=2, pending=1, late=0, quarantined=1, quarantine={"out of range": 1}).balanced
    True
    """

    received: int
    used: int
    """Counted in a training."""
    pending: int
    """Accepted, and waiting for the next training or the end of their window."""
    late: int
    quarantined: int
    quarantine: dict[str, int]
    """Quarantined rewards by reason."""

    @property
    def balanced(self) -> bool:
        """Whether received = used + pending + late + quarantined."""
        return self.received == self.used + self.pending + self.late + self.quarantined


# --- receiving


def read_tell(tell: Tell, rule: RewardRule) -> Delivery:
    """Check a reward; a delivery without a key is identified by its value."""
    id = check_id(tell.id)
    reward, outcomes = rule.combined(tell.reward)
    if isinstance(reward, list | tuple):
        raise InvalidReward(f"reward must be one finite number; got {reward!r}.")
    value = float(read_rewards(reward, 1)[0]) + 0.0  # −0 is 0
    if not (tell.arm is None or isinstance(tell.arm, str) or is_whole(tell.arm)):
        raise InvalidInput(f"arm must be a name or a number, or None for the arm decided; got {shown(tell.arm)}.")
    told = repr(value) if outcomes is None else canonical(outcomes)
    key = f"={told}" if tell.key is None else f"#{check_id(tell.key, 'a key')}"
    actor, reason = check_text(tell.actor, "actor"), check_text(tell.reason, "reason")
    return Delivery(id, value, key, actor, tell.arm, reason, outcomes)


def receive(session: Session, tables: Tables, deliveries: Sequence[Any], fields: dict[str, str]) -> list[Any]:
    """Return a receipt or an error for each delivery; an error given as a delivery keeps its place."""
    study, rule, names = session.row.study, session.settings.rewards, session.settings.arms
    ids = list(dict.fromkeys(each.id for each in deliveries if isinstance(each, Delivery)))
    decisions, earlier = tables.decisions(study, ids), tables.deliveries(study, ids)
    events: list[Event] = []
    found: list[Any] = []
    for each in deliveries:
        judged = each
        if isinstance(each, Delivery):
            arm = names.index(each.arm) if names and each.arm in names else each.arm
            each = replace(each, arm=arm, reason=each.reason or fields["reason"])
            judged = judge(rule, each, decisions.get(each.id), earlier[each.id], session.now())
        if isinstance(judged, tuple):
            kind, why, body = judged
            signed = fields | {"actor": each.actor or fields["actor"], "reason": each.reason}
            event = session.next_event(kind, body, ref=each.id, key=each.key, why=why, **signed)
            events.append(event)
            earlier[each.id].append(event)
            judged = Receipt(each.id, _STATUS[kind], why, event.seq)
        found.append(judged)
    tables.append(study, events)
    return found


def judge(
    rule: RewardRule, delivery: Delivery, decision: Event | None, earlier: Sequence[Event], now: int
) -> Receipt | StudyConflict | InvalidInput | tuple[Kind, str, dict[str, Any]]:
    """Return the receipt of a recorded delivery, or kind, reason and body of the event that a new one becomes.

    `decision` is the decision that the delivery is about, if it is on record, and `earlier` its earlier deliveries. A
    conflict is returned if the key was used for another reward, an error for an override without an arm or a reason.
    """
    for event in earlier:
        if event.key == delivery.key:
            known = event.content["reward"]
            if known == delivery.value and event.content.get("outcomes") == delivery.outcomes:
                return Receipt(delivery.id, "duplicate", event.why, event.seq)
            return StudyConflict(
                f"key {delivery.key[1:]!r} of decision {delivery.id!r} was used for reward {known}; got "
                f"{delivery.value}. Use another key for another reward."
            )
    body: dict[str, Any] = {"reward": delivery.value}
    body |= {} if delivery.outcomes is None else {"outcomes": delivery.outcomes}
    if decision is None:
        return "quarantine", "unknown decision", body
    content, arm = decision.content, delivery.arm
    body |= {"decided": decision.seq, "round": content["round"]}
    # A fallback's arm was not drawn, also if the study, asked later, drew the same.
    if arm is not None and (arm != content["arm"] or delivery.reason.startswith(FALLBACK)):
        if not (is_whole(arm) and 0 <= arm < content["arms"] and delivery.reason):
            return InvalidInput(f"an override needs an arm and a reason; got {shown(arm)} and {delivery.reason!r}.")
        body["arm"] = int(arm)
    if not rule.contains(delivery.value):
        return "quarantine", "out of range", body
    if rule.window is not None and now > decision.time + rule.window:
        return "late reward", "", body
    if "arm" in body or any(event.why == OVERRIDE for event in earlier):
        return "quarantine", OVERRIDE, body
    if rule.aggregation == "first" and any(event.kind == "reward" for event in earlier):
        return "quarantine", "already rewarded", body
    return "reward", "", body


# --- rewards that a training may use


def closed_until(tables: Tables, study: int, rule: RewardRule, cut: int) -> int:
    """Return the last event whose waiting window has closed at the cut."""
    event = tables.event(study, cut)
    if rule.window is None or event is None:
        return 0
    return tables.last_until(study, event.time - rule.window - 1, cut)


def settled(session: Session, start: int, cut: int) -> list[tuple[int, float]]:
    """Return the (round, reward) pairs that a policy with the cut `start` must learn to reach the cut `cut`.

    They come from short reads between which others may decide: what a cut has settled never changes.
    """
    study, rule = session.row.study, session.settings.rewards
    with session.reading() as tables:
        before, closed = (closed_until(tables, study, rule, at) for at in (start, cut))
    spans: list[tuple[str, int, int]]
    spans = [("first", start, cut) if rule.aggregation == "first" else (rule.aggregation, before, closed)]
    spans += [] if rule.default is None else [("none", before, closed)]
    found: list[tuple[int, float]] = []
    for which, begin, end in spans:
        for first in range(begin, end, CHUNK):
            last = min(first + CHUNK, end)
            with session.reading() as tables:
                if which == "none":
                    found += [(round, float(rule.default or 0.0)) for round in tables.unrewarded(study, first, last)]
                elif which == "first":
                    contents = [event.content for event in tables.of_kind(study, "reward", first, last)]
                    found += [(content["round"], content["reward"]) for content in contents]
                else:
                    joined = tables.rewards_of(study, first, last)
                    found += [(round, told[-1] if which == "last" else sum(told)) for round, told in joined]
    return found


def accounts_of(session: Session, tables: Tables) -> Accounts:
    """Count all rewards at the session's position."""
    position, rule, study = session.position, session.settings.rewards, session.row.study
    learned = position.learned
    if session.used is None or session.used[0] != learned:
        if rule.aggregation == "first":
            count = tables.rewards_until(study, learned)
        else:
            count = tables.rewards_decided_until(study, closed_until(tables, study, rule, learned))
        session.used = (learned, count)
    used, counts = session.used[1], {(kind, why): count for kind, why, count in position.deliveries}
    quarantine = {why: count for (kind, why), count in counts.items() if kind == "quarantine"}
    late, held = counts.get(("late reward", ""), 0), sum(quarantine.values())
    pending = counts.get(("reward", ""), 0) - used
    return Accounts(sum(counts.values()), used, pending, late, held, quarantine)
