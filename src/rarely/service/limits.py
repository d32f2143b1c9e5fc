"""How much a service takes at once."""

from __future__ import annotations

from dataclasses import dataclass

from rarely.core.errors import check_positive, check_whole


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a service takes at once.

    Parameters
    ----------
    body
        Bytes of a request's body.
    items
        Decisions or rewards in one request.
    arms
        Contexts in one decision.
    waiting
        Decisions and rewards of one study that wait for the writer. What comes beyond is refused with 429.
    group
        Decisions and rewards in one commit.
    gather
        Seconds that the writer waits for others before it begins a commit.
    grace
        Seconds that a stopping service gives to requests under way.

    Examples
    --------
    >>> Limits(waiting=100).group
    256
    """

    body: int = 1 << 20
    items: int = 1000
    arms: int = 1000
    waiting: int = 2000
    group: int = 256
    gather: float = 0.001
    grace: float = 30.0

    def __post_init__(self) -> None:
        for name in ("body", "items", "arms", "waiting", "group"):
            check_whole(name, getattr(self, name), 1)
        check_positive("gather", self.gather, "the seconds that the writer waits for others")
        check_positive("grace", self.grace, "the seconds that requests under way are given")
