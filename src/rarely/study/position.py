"""Where a study stands after some event: a value that every event changes to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rarely.study.events import GENESIS, Event


@dataclass(frozen=True, slots=True)
class Position:
    """What follows from the record up to an event, but for the policy itself."""

    seq: int = 0
    head: str = GENESIS
    """The hash of the last event."""
    time: int = 0
    version: int = 0
    """The version in use."""
    versions: int = 0
    """How many were published."""
    rounds: int = 0
    draws: int = 0
    """Uniform numbers that the policy's generator has given."""
    base: int = 0
    """The event from whose snapshot the policy in use goes on,"""
    cut: int = 0
    """and the last event that the snapshot knows."""
    learned: int = 0
    """The latest cut whose rewards were learned, or tried to be."""
    received: int = 0
    """Rewards that came, each counted once:"""
    accepted: int = 0
    late: int = 0
    quarantine: tuple[tuple[str, int], ...] = ()
    """and how many of them for which reason."""
    pinned: bool = False
    candidate: int | None = None
    """The event of the version that waits for approval."""
    shadow: int | None = None
    """The event of the version that is scored beside the one in use."""

    @property
    def last(self) -> tuple[int, str, int]:
        """For `next_event`."""
        return self.seq, self.head, self.time

    def after(self, event: Event, content: dict[str, Any] | None = None) -> Position:
        """The position after the next event; `content` is the event's, where it is at hand."""
        if event.key is not None:
            counted = self._count(event.kind, event.why)
            return replace(self, seq=event.seq, head=event.hash, time=event.time, received=self.received + 1, **counted)
        if event.kind == "cut":
            return replace(self, seq=event.seq, head=event.hash, time=event.time)
        content = event.content if content is None else content
        return replace(self, seq=event.seq, head=event.hash, time=event.time, **self._change(event, content))

    def decided(self, event: Event, rounds: int, draws: int) -> Position:
        """The position after the last decision of a block; so many rounds and uniform numbers there were till then."""
        return replace(self, seq=event.seq, head=event.hash, time=event.time, rounds=rounds, draws=draws)

    def _count(self, kind: str, why: str) -> dict[str, Any]:
        if kind != "quarantine":
            return {"accepted": self.accepted + 1} if kind == "reward" else {"late": self.late + 1}
        known = dict(self.quarantine)
        return {"quarantine": tuple(sorted((known | {why: known.get(why, 0) + 1}).items()))}

    def counting(self, deliveries: Iterable[tuple[str, str, int]]) -> Position:
        """The position with so many rewards of each kind and reason."""
        known = list(deliveries)
        return replace(
            self,
            received=sum(count for _, _, count in known),
            accepted=sum(count for kind, _, count in known if kind == "reward"),
            late=sum(count for kind, _, count in known if kind == "late reward"),
            quarantine=tuple(sorted((why, count) for kind, why, count in known if kind == "quarantine")),
        )

    def _change(self, event: Event, content: dict[str, Any]) -> dict[str, Any]:
        kind = event.kind
        if kind == "decide":
            return {"rounds": content["round"], "draws": content["draws"] + content["drew"]}
        if kind in ("create", "version"):
            return {
                "version": content["number"],
                "versions": content["number"] + 1,
                "base": content["snapshot"],
                "cut": content["cut"],
                "learned": max(self.learned, content["cut"]),
                "candidate": None,
                "shadow": None if self.shadow == content["snapshot"] else self.shadow,
            }
        if kind == "rejected":
            learned = max(self.learned, content["cut"])
            return {"base": content["snapshot"], "cut": content["cut"], "learned": learned}
        if kind == "rollback":
            return {"version": content["number"], "base": content["snapshot"], "cut": content["cut"]}
        if kind == "candidate":
            return {"candidate": event.seq}
        if kind == "dismissed":
            return {"candidate": None, "shadow": None if self.shadow == self.candidate else self.shadow}
        if kind == "shadow":
            return {"shadow": content["snapshot"]}
        return {"pinned": kind == "pin"}
