"""What was done to a policy on purpose, or by a limit, besides deciding and learning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from rarely.core.saving.fields import Fields

EventKind = Literal["budget", "covariance", "compaction", "limit"]


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """A change of a policy's budget, of the form of its Z, or of what it remembers; see `Policy.events`.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand(batches=1))
    >>> policy.extend_budget(2, reason="the trial goes on")
    >>> policy.events[0].kind, policy.events[0].round, policy.events[0].reason
    ('budget', 0, 'the trial goes on')
    """

    kind: str
    """"budget", "covariance", "compaction", or "limit" where `Limits.history` was reached."""
    round: int
    """Rounds decided by then."""
    version: int
    """The version in use."""
    detail: str
    """What changed, and what was lost."""
    reason: str = ""
    """Why, as the caller said."""

    def describe(self) -> dict[str, Any]:
        """The event as JSON."""
        return asdict(self)


def read_events(saved: Fields, rounds: int, version: int) -> tuple[PolicyEvent, ...]:
    """The saved events of a policy that stands at this round and version; formats 1 and 2 have none."""
    if not saved.since(3, "events"):
        return ()
    events: list[PolicyEvent] = []
    for i, row in enumerate(saved.listed("events")):
        with Fields(f"events.{i}", row, {}) as event:
            events.append(
                PolicyEvent(
                    event.choice("kind", get_args(EventKind)),
                    event.whole("round", least=events[-1].round if events else 0, most=rounds),
                    event.whole("version", least=events[-1].version if events else 0, most=version),
                    event.text("detail"),
                    event.text("reason"),
                )
            )
    return tuple(events)
