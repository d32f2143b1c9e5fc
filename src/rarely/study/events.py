"""The append-only record of a study: events, each with the hash of the one before it, and what is gone from it.

    hash = SHA-256(previous hash, [study, seq, kind, time, actor, reason, ref, key, why], body, data)

The last hash vouches for everything before it: whoever notes it elsewhere can tell later whether the end of the record
was cut off. `Position` is the state that follows from the record up to an event, except for the policy itself. Two
kinds of events say what is not on record any more:

    erase    the rows of a person's decisions and rewards keep what counts, kind, arm, probabilities and reward, and
             lose contexts, ids and texts. Their hashes stay in the chain; the event has the hash of what is left of
             each row, so nothing else can be taken from them unseen, and the snapshots that may hold the contexts
    prune    decisions and rewards up to an event are not there; the event has the last hash, and a hash of those kept
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate, chain
from operator import lt
from typing import Any, Literal, get_args

import numpy as np

from rarely.extend import Array
from rarely.extend.checks import is_whole, shown
from rarely.extend.provisional import plain
from rarely.study.errors import BrokenStudy, InvalidId, InvalidStudy

SpecialKind = Literal[
    "create", "rejected", "candidate", "dismissed", "version", "rollback", "pin", "unpin", "clock", "look", "close",
    "erase", "prune", "retire", "activate", "add",
]  # fmt: skip
EventKind = Literal["decide", "reward", "late reward", "quarantine", "cut"] | SpecialKind
SPECIALS: tuple[SpecialKind, ...] = get_args(SpecialKind)  # the rare kinds: all except decisions, rewards and cuts
PUBLISHING: tuple[EventKind, ...] = ("create", "version")  # kinds that publish a version
GENESIS = "0" * 64  # the hash before the first event
SETTERS: tuple[EventKind, ...] = ("create", "rejected", "version", "rollback", "erase")
"""Kinds after which the policy continues from another snapshot, or makes the rounds since its own again."""
MAX_ID_LENGTH = 200
MAX_REASON_LENGTH = 2000
MAX_ARMS_OF_A_DECISION = 2**20
LARGEST_COUNT, LARGEST_NUMBER = 2**53, 1e300
ERASED = '"erased":true'  # how the body of a row says that it was erased
_NOBODY = " erased {}"  # what an id, or a user, becomes; it begins with a space, as no id of a caller does
_KEPT = (
    "arm", "arms", "block", "cost", "decided", "gain", "held_out", "limits", "outcomes", "present", "price",
    "probability", "reward", "round", "shape", "stage", "unseen", "version", "worth",
)  # fmt: skip
"""What is left of a body: nothing that a person brought, and everything that others' decisions and counts rest on."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain)


# --- texts that callers give


def check_id(value: Any, what: str = "a decision id", longest: int = MAX_ID_LENGTH) -> str:
    """Return a text that every database keeps unchanged and a person can read in a log; refuse any other.

    >>> check_id("visit 17/é")
    'visit 17/é'
    >>> check_id("two\\nlines")
    Traceback (most recent call last):
        ...
    rarely.study.errors.InvalidId: a decision id must be 1 to 200 printable characters without spaces at its ends; \
got 'two\\nlines'.
    """
    fits = isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() and value == value.strip()
    if not fits:
        raise InvalidId(
            f"{what} must be 1 to {longest} printable characters without spaces at its ends; got {shown(value)}."
        )
    return str(value)


def check_text(value: Any, what: str) -> str:
    """Return an actor or a reason, which may be empty; refuse what `check_id` refuses."""
    return "" if isinstance(value, str) and not value else check_id(value, what, MAX_REASON_LENGTH)


def check_signature(actor: str, reason: str) -> dict[str, str]:
    """Return who does something and why, checked, as fields of an event."""
    return {"actor": check_text(actor, "actor"), "reason": check_text(reason, "reason")}


def new_id() -> str:
    """Return a new random id."""
    return secrets.token_hex(16)


def day(time: int) -> str:
    """Return the day of a time in microseconds since 1970 (UTC).

    >>> day(10**15)
    '2001-09-09'
    """
    return f"{datetime.fromtimestamp(time / 1e6, UTC):%Y-%m-%d}"


def read_moment(value: Any, name: str, last: int | None = None, *, end: bool = False) -> int | datetime:
    """Return an event by its number, up to `last`, or a day or a moment (UTC), all also as text; refuse any other.

    A day is the moment at which it begins, or its `end`.

    >>> read_moment("17", "before"), read_moment("20261118", "before").isoformat()
    (17, '2026-11-18T00:00:00+00:00')
    """
    if isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    digits = isinstance(value, str) and value.isdecimal() and len(value) < 20
    number = int(value) if digits and len(value) != len("20261118") else value
    if is_whole(number) and 1 <= number <= (last or number):
        return int(number)
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidStudy(
            f"{name} must be a day or a moment such as '2026-11-18' (UTC), or an event from 1 "
            f"{'on' if last is None else f'to {last}'}; got {shown(value)}."
        ) from None
    if end and isinstance(value, str) and len(value) <= len("2026-11-18"):
        moment += timedelta(days=1, microseconds=-1)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- canonical bytes


def canonical(value: Any) -> str:
    """Return the value as JSON with sorted names and no spaces; floats as `repr` writes them.

    >>> canonical({"b": 0.1, "a": [1, None, "é"]})
    '{"a":[1,null,"é"],"b":0.1}'
    """
    return _ENCODER.encode(value)


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 of the parts in order, each preceded by its length.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    data = [part.encode() if isinstance(part, str) else part for part in parts]
    return hashlib.sha256(b"".join(piece for part in data for piece in (b"%d:" % len(part), part))).hexdigest()


def packed(*arrays: Any) -> bytes:
    """Return the numbers of all arrays as little-endian float64, one array after another."""
    return b"".join(np.ascontiguousarray(array, "<f8").tobytes() for array in arrays)


def unpacked(data: bytes, *sizes: int) -> list[Array]:
    """Return the arrays of these sizes that `packed` was given; ValueError if the sizes do not fit.

    >>> [array.tolist() for array in unpacked(packed([1.0, 2.0], [3.0]), 2, 1)]
    [[1.0, 2.0], [3.0]]
    """
    values = np.frombuffer(data, "<f8").astype(np.float64)
    if len(values) != sum(sizes):
        raise ValueError(f"expected {sum(sizes)} numbers, got {len(values)}")
    ends = [*accumulate(sizes)]
    return [values[end - size : end] for size, end in zip(sizes, ends, strict=True)]


class Body(dict[str, Any]):
    """The body of an event; a name that it lacks is damage to the record."""

    def __missing__(self, name: str) -> Any:
        raise BrokenStudy(f"an event of the record has no {name!r}, so it is damaged. Use a backup.")


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST_NUMBER <= value <= LARGEST_NUMBER


def _effects(value: Any) -> bool:
    """Return whether these are rows of a look, by the names of effects."""
    return isinstance(value, dict) and all(
        isinstance(row, dict)
        and all(row.get(name, "") is None or _number(row.get(name)) for name in LOOKED)
        and (row["boundary"] is None or 1e-3 <= row["boundary"] <= 1e3)
        and isinstance(summary := row.get("summary"), list)
        and len(summary) == 8
        and all(each is None or (_number(each) and (each >= 0 or i in SIGNED)) for i, each in enumerate(summary))
        and (summary[6] is None or summary[6] <= 0)
        and isinstance(row.get("fell"), bool)
        for row in value.values()
    )


SIGNED = (1, 5, 6, 7)  # numbers of a summary that may be below 0: the estimate, and its parabola, which bends down
LOOKED = ("estimate", "low", "high", "boundary")  # numbers of an effect at a look, None where JSON has none
COUNTS = ("block", "cut", "dim", "decided", "last", "lost", "number", "round", "snapshot", "token", "version")
TEXTS = ("fingerprint", "head", "holder", "kept", "name", "policy", "request", "sha256", "stage")
_KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(COUNTS, _whole),
    **dict.fromkeys(TEXTS, lambda value: isinstance(value, str)),
    **dict.fromkeys(["record", "sent", "settings", "study"], lambda value: isinstance(value, dict)),
    "arm": lambda value: value is None or _whole(value),
    "arms": lambda value: _whole(value) and value <= MAX_ARMS_OF_A_DECISION,
    "environment": lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
    "effects": _effects,
    "fraction": lambda value: _number(value) and 0 <= value <= 1,
    **dict.fromkeys(["erased", "final", "force"], lambda value: isinstance(value, bool)),
    "digests": lambda value: isinstance(value, dict) and all(map(str.isdecimal, value)),
    "snapshots": lambda value: isinstance(value, list) and all(map(_whole, value)),
    "held_out": lambda value: value is None or isinstance(value, bool),
    "offset": lambda value: type(value) is int and abs(value) <= LARGEST_COUNT,
    "outcomes": lambda value: isinstance(value, dict) and all(map(_number, value.values())),
    "parent": lambda value: value is None or _whole(value),
    "present": lambda value: (
        value is None or (isinstance(value, list) and all(map(_whole, value)) and all(map(lt, value, value[1:])))
    ),
    "probability": lambda value: _number(value) and 0 <= value <= 1,
    **dict.fromkeys(["reward", "gain", "cost"], _number),
    "unseen": lambda value: isinstance(value, dict) and all(map(_whole, value.values())),
    "worth": lambda value: isinstance(value, list) and {*value} <= {"gain", "cost", "spends"},
    **dict.fromkeys(["limits", "user"], lambda value: isinstance(value, str)),
    "price": lambda value: _number(value) and value >= 0,
    "slot": lambda value: isinstance(value, list) and [*map(type, value)] == [str, int, int],
    "shape": lambda value: isinstance(value, list) and 0 < len(value) <= 2 and all(map(_whole, value)),
}
"""What bodies of events hold, by name: whoever can write a record can compute its hashes, too."""
_QUARANTINED = _KINDS | {"reward": lambda value: type(value) in (int, float) and abs(value) <= sys.float_info.max}


def read_body(text: Any, *, quarantined: bool = False) -> Body:
    """Return a body that `canonical` wrote; a reward that was `quarantined` may be any finite number."""
    try:
        body = Body(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise BrokenStudy(f"an event of the record cannot be read ({error}). Use a backup.") from error
    return checked(body, _QUARANTINED if quarantined else _KINDS)


def checked(body: Body, kinds: dict[str, Callable[[Any], bool]] = _KINDS) -> Body:
    """Return a body whose values are of the kinds that belong to their names."""
    for name, value in body.items():
        fits = kinds.get(name)
        if fits is not None and not fits(value):
            raise BrokenStudy(f"an event of the record has {shown(value)} as {name!r}, so it is damaged. Use a backup.")
    return body


def arrays_in(event: Event) -> list[Array]:
    """Return a decision's contexts, means, bonuses, probabilities and worths, each of the arms that were available."""
    content = event.content
    there = content["arms"] if content["present"] is None else len(content["present"])
    return unpacked(event.data, math.prod(content["shape"]), *[there] * (3 + len(content.get("worth", []))))


# --- events


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the record.

    Examples
    --------
    >>> event = next_event("colours", (3, GENESIS, 0), "pin", 0, {"version": 2}, actor="ann")
    >>> event.seq, event.content["version"]
    (4, 2)
    """

    seq: int  #: 1, 2, … without gaps.
    kind: EventKind
    time: int  #: Microseconds since 1970 (UTC); never less than the time of the previous event.
    actor: str
    reason: str
    ref: str | None  #: The decision id that the event is about, if any.
    key: str | None  #: Which delivery of a reward it is; None for other kinds.
    why: str  #: Why a reward is in quarantine; "" for everything else.
    body: str  #: Canonical JSON.
    data: bytes  #: Arrays as little-endian float64; `body` says which.
    previous: str  #: The hash of the previous event.
    hash: str
    _content: Body | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content(self) -> Body:
        """The body as a dict, parsed once."""
        if self._content is None:
            object.__setattr__(self, "_content", read_body(self.body, quarantined=self.kind == "quarantine"))
        assert self._content is not None
        return self._content


def next_event(
    study: str,
    last: tuple[int, str, int],
    kind: EventKind,
    time: int,
    content: dict[str, Any],
    *,
    actor: str,
    reason: str = "",
    ref: str | None = None,
    key: str | None = None,
    why: str = "",
    data: bytes = b"",
    plain: bool = False,
) -> Event:
    """Return the event after `last`, which is given by (seq, hash, time).

    Of a `plain` content JSON makes the same again, so it is not read back from there.
    """
    seq, previous, earlier = last[0] + 1, last[1], last[2]
    # A clock may be set back, but the record's times may not: waiting windows are measured in them.
    event = Event(
        seq, kind, max(time, earlier), actor, reason, ref, key, why, canonical(content), data, previous, hash=""
    )
    # Nobody has seen it yet: `replace` would make it twice, for every decision and reward.
    object.__setattr__(event, "hash", hash_of(study, event))
    if plain:
        object.__setattr__(event, "_content", checked(Body(content)))
    return event


def hash_of(study: str, event: Event) -> str:
    """Return the hash that the event must have."""
    names = [event.actor, event.reason, event.ref, event.key, event.why]
    head = canonical([study, event.seq, event.kind, event.time, *names])
    return digest(event.previous, head, event.body, event.data)


def flaw_of(study: str, event: Event, seq: int, previous: str, left: str | None = None) -> str:
    """Return why the event cannot be number `seq` of the record; "" if it can.

    Of an event that was erased, `left` is the hash of what an erasure left of it; its own hash stays in the chain.
    """
    if event.seq != seq:
        return f"event {seq} is missing; event {event.seq} comes next"
    if event.previous != previous:
        return f"event {seq} does not continue the chain: its previous hash is not that of event {seq - 1}"
    with suppress(TypeError, AttributeError):  # of a column that holds another kind of value
        if hash_of(study, event) == (event.hash if left is None else left):
            return ""
    return f"event {seq} ({event.kind}) was altered: its content does not have its hash"


def summed(*parts: Iterable[tuple[str, str, int]]) -> tuple[tuple[str, str, int], ...]:
    """Return counts of rewards by kind and cause, in order, of several parts of a record."""
    counts = Counter[tuple[str, str]]()
    for kind, why, count in chain(*parts):
        counts[kind, why] += count
    return tuple((*cause, counts[cause]) for cause in sorted(counts))


@dataclass(frozen=True, slots=True)
class Position:
    """What follows from the record up to an event, except for the policy itself."""

    seq: int = 0
    head: str = GENESIS  # the hash of the last event
    time: int = 0
    version: int = 0  # the version in use
    versions: int = 0  # published versions
    rounds: int = 0
    base: int = 0  # the event with the snapshot from which the policy in use continues
    cut: int = 0  # the last event that the snapshot knows
    learned: int = 0  # the latest cut that was trained on, successfully or not
    deliveries: tuple[tuple[str, str, int], ...] = ()
    """Kind and cause of rewards, and how many were received, each counted once; in order."""
    unseen: tuple[tuple[str, int], ...] = ()
    """Columns, and how many decisions had a value or a gap there that the encoder's sample did not have; in order."""
    pinned: bool = False
    candidate: int | None = None  # the event of the version that awaits approval
    offset: int = 0  # microseconds by which the record's times are ahead of the clock since `Study.repair_clock`
    closed: tuple[int, ...] = ()  # arms that get no further patients
    enrolling: bool = True
    retired: tuple[int, ...] = ()  # arms that get no decisions until they are activated

    @property
    def shut(self) -> tuple[int, ...]:
        """Arms that get no decisions now."""
        return tuple(sorted({*self.closed, *self.retired}))

    def opens_only(self, arm: int, arms: Sequence[str] | None) -> bool:
        """Return whether all other arms get no decisions now."""
        return len({*self.shut, arm}) >= len(arms or ())

    @property
    def last(self) -> tuple[int, str, int]:
        """The argument `last` of `next_event`."""
        return self.seq, self.head, self.time

    def after(self, *events: Event) -> Position:
        """Return the position after the next events."""
        position, delivered, decided = self, list[tuple[str, str, int]](), None
        for event in events:
            if event.kind == "decide":
                decided = event
            elif event.key is not None:
                delivered.append((event.kind, event.why, 1))
            elif event.kind != "cut":
                position = replace(position, **position._change(event))
        change: dict[str, Any] = {"seq": events[-1].seq, "head": events[-1].hash, "time": events[-1].time}
        if delivered:
            change["deliveries"] = summed(self.deliveries, delivered)
        if decided is not None:
            content = decided.content
            change |= {"rounds": content["round"], "unseen": tuple(sorted(content.get("unseen", {}).items()))}
        return replace(position, **change)

    def _change(self, event: Event) -> dict[str, Any]:
        """Return what a special event changes."""
        kind, content = event.kind, event.content
        if kind in SETTERS:
            change = {"base": content["snapshot"], "cut": content["cut"]}
            change |= {} if kind == "rejected" else {"version": content["number"]}
            change |= {} if kind in ("rollback", "erase") else {"learned": max(self.learned, content["cut"])}
            if kind == "erase" and self.candidate in content["snapshots"]:
                change["candidate"] = None
            published = kind in ("create", "version")
            return change | ({"versions": content["number"] + 1, "candidate": None} if published else {})
        if kind == "candidate":
            return {"candidate": event.seq}
        if kind == "dismissed":
            return {"candidate": None}
        if kind == "retire":
            return {"retired": (*self.retired, content["arm"])}
        if kind in ("activate", "add"):
            return {"retired": tuple(arm for arm in self.retired if arm != content["arm"])}
        if kind == "close":
            arm = content["arm"]
            return {"enrolling": False} if arm is None else {"closed": (*self.closed, arm)}
        if kind in ("look", "prune"):
            return {}
        return {"offset": content["offset"]} if kind == "clock" else {"pinned": kind == "pin"}


# --- what is gone


@dataclass(frozen=True, slots=True)
class Gone:
    """What all erasures and prunings of a record took."""

    left: dict[int, str]  # events that were erased, and the hash of what is left of each
    rounds: frozenset[int]  # rounds whose contexts were erased
    snapshots: frozenset[int]  # snapshots that were dropped, or will be as soon as they are not in use
    erased: int  # the last erasure; 0 for none
    last: int  # the last event that was pruned; 0 for none
    pruned: dict[str, Any]  # what the last pruning said
    said: tuple[str, ...]  # when, by whom and why, in a sentence each

    @property
    def begin(self) -> Position:
        """Where the chain goes on behind what was pruned: its beginning, if nothing was."""
        return Position(seq=self.last, head=self.pruned["head"]) if self.last else Position()


def gone_of(specials: Iterable[Event]) -> Gone:
    """Return what special events say is gone."""
    acts = [event for event in specials if event.kind in ("erase", "prune")]
    erasures = [event for event in acts if event.kind == "erase"]
    pruned = next((event.content for event in reversed(acts) if event.kind == "prune"), None)
    return Gone(
        {int(seq): left for event in erasures for seq, left in event.content["digests"].items()},
        frozenset(round for event in erasures for round in event.content["rounds"]),
        frozenset(seq for event in acts for seq in event.content["snapshots"]),
        erasures[-1].seq if erasures else 0,
        pruned["last"] if pruned else 0,
        pruned or {},
        tuple(map(_sentence, acts)),
    )


def _sentence(event: Event) -> str:
    content = event.content
    if event.kind == "erase":
        what = f"{len(content['rounds'])} decisions of a person, and {len(content['digests']) - len(content['rounds'])}"
        what = f"erased {what} rewards"
    else:
        what = f"pruned {content['events']} decisions and rewards up to event {content['last']}"
    return f"event {event.seq} of {day(event.time)}: {event.actor!r} {what}: {event.reason or 'no reason given'}"


def blanked(event: Event, decision: int | None = None) -> Event:
    """Return what an erasure leaves of a decision, or of a reward of event `decision`.

    Contexts, means and bonuses are zeros: the policy can still count the round, and learns nothing of it.
    """
    kept = {name: event.content[name] for name in _KEPT if name in event.content}
    ref = _NOBODY.format(event.seq if decision is None else decision)
    changed: dict[str, Any] = {"ref": ref, "actor": "", "reason": "erased"}
    if event.kind == "decide":
        if "slot" in event.content:
            kept["slot"] = [ref, *event.content["slot"][1:]]
        contexts, means, bonuses, *others = arrays_in(event)
        changed["data"] = packed(*(array * 0.0 for array in (contexts, means, bonuses)), *others)
        kept |= {"request": ""} | ({"user": ref} if "user" in event.content else {})
    else:
        changed["key"] = f"#{event.seq}"
    return replace(event, body=canonical(kept | {"erased": True}), **changed)


def kept_hash(specials: Iterable[Event], last: int) -> str:
    """Return a hash of the special events up to `last`, which a pruning keeps."""
    return digest(*(event.hash for event in specials if event.seq <= last))
