"""Rewards: delivered at least once, counted exactly once.

    received = used + pending + late + quarantined

A delivery is identified by a decision id and a key; repeating it changes nothing. What becomes of a new delivery
depends on the record alone, and so does which rewards a version may learn from: the cut is an event of the record, and
a waiting window has closed if it ended before the time of the event at the cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rarely.errors import InvalidInput, InvalidReward, RarelyError
from rarely.extend import Described
from rarely.extend.checks import InvalidSlate, is_whole, read_rewards, shown
from rarely.study.decision import Slate, slate_ids, slot_id
from rarely.study.errors import BrokenStudy, StudyConflict
from rarely.study.events import Event, EventKind, canonical, check_id, check_text, gone_of
from rarely.study.session import Session
from rarely.study.settings import RewardRule, StudySettings
from rarely.study.storage import CHUNK, Tables

Status = Literal["accepted", "duplicate", "late", "quarantined", "spooled"]
OVERRIDE = "override"  # why a reward is in quarantine whose arm a person gave instead of the one decided
FALLBACK = "fallback:"  # how the reason of an override begins whose arm a client gave while the service was away
_STATUS: dict[str, Status] = {"reward": "accepted", "late reward": "late", "quarantine": "quarantined"}


class Tell(NamedTuple):
    """A reward to be recorded; see `Study.tell`.

    Examples
    --------
    >>> Tell("visit-1", 1.0, key="click", actor="shop").reward
    1.0
    """

    id: str
    reward: Any
    key: str | None = None
    actor: str = ""  #: Who reports the reward; if empty, the actor of the call.
    arm: Any = None
    """The arm that a person gave instead of the one decided: the reward is recorded and never learned from."""
    reason: str = ""  #: Why; if empty, the reason of the call. An override must have one.
    seen: int | None = None
    """Of a slate, whose rewards are a list: the last slot that was seen, counted from 1; None for all."""


Tells = Iterable[Tell | tuple[Any, ...]]


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
    reason: str  #: Why it is late or in quarantine.
    seq: int  #: The number of its event; for a duplicate, that of the first delivery.


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
    """The rewards of a study, counted by what became of them.

    Examples
    --------
    >>> Accounts(received=4, used=2, pending=1, late=0, quarantined=1, quarantine={"out of range": 1}).balanced
    True
    """

    received: int
    used: int  #: Counted in a training.
    pending: int  #: Accepted, and waiting for the next training or the end of their window.
    late: int
    quarantined: int
    quarantine: dict[str, int]  #: Quarantined rewards by reason.

    @property
    def balanced(self) -> bool:
        """Whether received = used + pending + late + quarantined."""
        return self.received == self.used + self.pending + self.late + self.quarantined


# --- receiving


def slots_of(tell: Tell, rule: RewardRule | None = None) -> Any:
    """Return the rewards of a slate's slots, one by one; any other reward as it came.

    A `rule` that gives a default reward would give it to slots that nobody saw, too, so these are refused.
    """
    if not isinstance(tell.reward, list | tuple):
        if tell.seen is not None:
            raise InvalidSlate(f"seen is for a slate, whose rewards are a list; got {shown(tell.reward)}.")
        return tell
    slots = len(tell.reward)
    seen = slots if tell.seen is None else tell.seen
    if not is_whole(seen) or not 0 <= seen <= slots:
        raise InvalidSlate(f"seen must be a slot of the {slots} with a reward, 0 for none; got {shown(seen)}.")
    if seen < slots and rule is not None and rule.default is not None:
        raise InvalidSlate(
            f"seen must be all {slots} slots in a study with a default reward, which those that nobody saw would get; "
            f"got {seen}. Use RewardRule(default=None)."
        )
    rewards = enumerate(tell.reward[:seen], 1)
    return Slate(tell._replace(id=slot_id(tell.id, slot), reward=reward, seen=None) for slot, reward in rewards)


def read_tell(tell: Tell, rule: RewardRule) -> Delivery:
    """Check a reward; a delivery without a key is identified by its value."""
    id = check_id(tell.id)
    reward, outcomes = rule.combined(tell.reward)
    if isinstance(reward, list | tuple):
        raise InvalidReward(f"reward must be one finite number; got {reward!r}.")
    value = float(read_rewards(reward, 1)[0]) + 0.0  # −0 is 0
    if not (tell.arm is None or isinstance(tell.arm, str) or is_whole(tell.arm)):
        raise InvalidInput(f"arm must be a name or a number, or None for the arm decided; got {shown(tell.arm)}.")
    key = _unnamed(value, outcomes) if tell.key is None else f"#{check_id(tell.key, 'a key')}"
    actor, reason = check_text(tell.actor, "actor"), check_text(tell.reason, "reason")
    return Delivery(id, value, key, actor, tell.arm, reason, outcomes)


def _unnamed(value: float, outcomes: dict[str, float] | None) -> str:
    """Return the key of a delivery that came without one."""
    return f"={value!r}" if outcomes is None else f"={canonical(outcomes)}"


def _shares(each: Delivery, first: Event) -> Slate:
    """Return a reward of a whole slate, given its first slot, as one for each slot: an equal share of it."""
    _, *ids = slate_ids(first.content)
    value, outcomes = each.value / len(ids), each.outcomes
    outcomes = None if outcomes is None else {name: outcome / len(ids) for name, outcome in outcomes.items()}
    key = _unnamed(value, outcomes) if each.key.startswith("=") else each.key
    shared = replace(each, value=value, outcomes=outcomes, key=key)
    return Slate(replace(shared, id=id) for id in ids)


def receive(session: Session, tables: Tables, deliveries: Sequence[Any], signature: dict[str, str]) -> list[Any]:
    """Return a receipt or an error for each delivery, also in a `Slate` of them; an error given as one keeps its place.

    One number for a slate is shared equally by its slots, has a `Slate` of receipts, and is recorded whole or not at
    all.
    """
    names = session.settings.arms
    listed = [one for each in deliveries if isinstance(each, Slate) for one in each]
    slates = {one.id: one.id.rpartition("#")[0] for one in listed if isinstance(one, Delivery)}
    ids = dict.fromkeys(each.id for each in [*listed, *deliveries] if isinstance(each, Delivery))
    decisions = tables.decisions([*ids, *slates.values()])
    firsts = tables.decisions([f"{id}#1" for id in ids if id not in decisions and id not in slates])
    wholes = {first.content["slot"][0]: first for first in firsts.values() if "slot" in first.content}
    slots = [slot for first in wholes.values() for slot in slate_ids(first.content)[1:]]
    decisions |= tables.decisions(slots)
    earlier = tables.deliveries([*dict.fromkeys([*ids, *slots])])
    events: list[Event] = []

    def judged(each: Any) -> Any:
        if not isinstance(each, Delivery):
            return each
        if each.id not in decisions and slates.get(each.id) in decisions:
            return InvalidReward(f"reward must be one finite number, as {slates[each.id]!r} is no slate; got a list.")
        named = names or item_names(session.settings, decisions.get(each.id))
        arm = named.index(each.arm) if named and each.arm in named else each.arm
        given = replace(each, arm=arm, reason=each.reason or signature["reason"])
        return judge(session.settings.rewards, given, decisions.get(each.id), earlier[each.id], session.now())

    def recorded(each: Any, result: Any) -> Any:
        if not isinstance(result, tuple):
            return result
        kind, why, body = result
        signed = {"actor": each.actor or signature["actor"], "reason": each.reason or signature["reason"]}
        event = session.next_event(kind, body, ref=each.id, key=each.key, why=why, **signed)
        events.append(event)
        earlier[each.id].append(event)
        session.live.charge(event)
        return Receipt(each.id, _STATUS[kind], why, event.seq)

    def received(each: Any) -> Any:
        if isinstance(each, Slate):
            return Slate(map(received, each))
        if not isinstance(each, Delivery) or each.id not in wholes:
            return recorded(each, judged(each))
        part = _shares(each, wholes[each.id])
        found = [judged(share) for share in part]
        wrong = next((result for result in found if isinstance(result, RarelyError)), None)
        return wrong or Slate(map(recorded, part, found))

    results = [received(each) for each in deliveries]
    tables.append(*events)
    return results


def item_names(settings: StudySettings, decision: Event | None) -> list[Any]:
    """Return the names of the items of a decision that was asked by columns, where they have some."""
    key = None if settings.tables is None else settings.tables.key
    try:
        return [] if key is None or decision is None else [row[key] for row in decision.content["sent"]["items"]]
    except (KeyError, TypeError) as error:
        raise BrokenStudy(f"the items of decision {decision and decision.ref!r} are damaged. Use a backup.") from error


def judge(
    rule: RewardRule, delivery: Delivery, decision: Event | None, earlier: Sequence[Event], now: int
) -> Receipt | StudyConflict | InvalidInput | tuple[EventKind, str, dict[str, Any]]:
    """Return the receipt of a recorded delivery, or kind, reason and body of the event that a new one becomes.

    `decision` is the decision that the delivery is about, if it is on record, and `earlier` its earlier deliveries. A
    conflict is returned if the key was used for another reward, an error for an override without an arm or a reason.
    """
    for event in earlier:
        if event.key == delivery.key:
            reward = event.content["reward"]
            if reward == delivery.value and event.content.get("outcomes") == delivery.outcomes:
                return Receipt(delivery.id, "duplicate", event.why, event.seq)
            return StudyConflict(
                f"key {delivery.key[1:]!r} of decision {delivery.id!r} was used for reward {reward}; got "
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


def closed_until(tables: Tables, rule: RewardRule, cut: int) -> int:
    """Return the last event whose waiting window has closed at the cut."""
    event = tables.event(cut)
    if rule.window is None or event is None:
        return 0
    return tables.last_until(event.time - rule.window - 1, cut)


def rewards_to_learn(session: Session, start: int, cut: int) -> dict[int, float]:
    """Return, by round, the rewards that a policy with the cut `start` must learn to reach the cut `cut`.

    They come from short reads between which others may decide: what a cut lets a version learn never changes.
    """
    rule = session.settings.rewards
    with session.reading() as tables:
        before, closed = (closed_until(tables, rule, at) for at in (start, cut))
    rewards: dict[int, float] = {}
    for first, last in _chunks(*((start, cut) if rule.aggregation == "first" else (before, closed))):
        with session.reading() as tables:
            if rule.aggregation == "first":
                contents = [event.content for event in tables.of_kind("reward", first, last)]
                rewards |= {content["round"]: content["reward"] for content in contents}
            else:
                for round, told in tables.rewards_of(first, last):
                    rewards[round] = told[-1] if rule.aggregation == "last" else sum(told)
    for first, last in _chunks(before, closed) if rule.default is not None else ():
        with session.reading() as tables:
            rewards |= dict.fromkeys(tables.unrewarded(first, last), float(rule.default or 0.0))
    return rewards


def rewards_of_range(session: Session, first: int, last: int, closed: int) -> dict[int, float]:
    """Return, by round, what the decisions after event `first` up to and including `last` have earned.

    `closed` is the last event whose waiting window has closed: later ones have no reward yet, unless the first counts.
    """
    rule = session.settings.rewards
    end = last if rule.aggregation == "first" else min(last, closed)
    with session.reading() as tables:
        told = tables.rewards_of(first, end)
        silent = [] if rule.default is None else tables.unrewarded(first, min(last, closed))
    rewards = dict.fromkeys(silent, float(rule.default or 0.0))
    combine = {"first": lambda each: each[0], "last": lambda each: each[-1], "sum": sum}[rule.aggregation]
    return rewards | {round: float(combine(each)) for round, each in told}


def _chunks(first: int, last: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + CHUNK, last)) for at in range(first, last, CHUNK))


def used_until(session: Session, tables: Tables) -> int:
    """Count the rewards on record that were learned from, successfully or not."""
    rule, learned = session.settings.rewards, session.position.learned
    first = rule.aggregation == "first"
    return tables.rewards_until(learned if first else closed_until(tables, rule, learned), decided=not first)


def accounts_of(session: Session, tables: Tables) -> Accounts:
    """Count all rewards at the session's position."""
    position = session.position
    if session.used is None or session.used[0] != position.learned:
        pruned = gone_of(tables.specials()).pruned.get("lost", 0)
        session.used = (position.learned, used_until(session, tables) + pruned)
    counts = {(kind, why): count for kind, why, count in position.deliveries}
    quarantine = {why: count for (kind, why), count in counts.items() if kind == "quarantine"}
    used, late, held = session.used[1], counts.get(("late reward", ""), 0), sum(quarantine.values())
    pending = counts.get(("reward", ""), 0) - used
    return Accounts(sum(counts.values()), used, pending, late, held, quarantine)
