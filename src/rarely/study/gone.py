"""What is not on record any more, as its own events say: contexts that were erased, and events that were pruned.

erase    the rows of a person's decisions and rewards keep what counts, kind, arm, probabilities and reward, and lose
         contexts, ids and texts. Their hashes stay in the chain; the event has the hash of what is left of each row,
         so nothing else can be taken from them unseen, and the snapshots that may hold the contexts
prune    decisions and rewards up to an event are not there; the event has the last hash, and a hash of those kept
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rarely.study.events import Event, Position, arrays_in, canonical, day, digest, packed

ERASED = '"erased":true'  # how the body of a row says that it was erased
_NOBODY = " erased {}"  # what an id, or a user, becomes; it begins with a space, as no id of a caller does
_KEPT = (
    "arm", "arms", "block", "cost", "decided", "gain", "held_out", "limits", "outcomes", "present", "price",
    "probability", "reward", "round", "shape", "stage", "unseen", "version", "worth",
)  # fmt: skip
"""What is left of a body: nothing that a person brought, and everything that others' decisions and counts rest on."""


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
