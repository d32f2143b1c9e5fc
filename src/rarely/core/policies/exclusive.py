"""One call at a time: a second call that changes the same policy is refused."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rarely.core.errors import PolicyBusy

Calls = Callable[[], Sequence[Callable[..., Any]]]
"""Gives the functions that change an owner; they are asked for only where two calls may collide."""


@contextmanager
def alone(owner: object, caller: dict[str, list[int]], calls: Calls) -> Iterator[None]:
    """One of the owner's `calls`, refused at once while another one is under way; `caller` is where it is noted."""
    # Waiting would be correct too, but would hide that threads share a policy. `setdefault` is one step for all
    # threads. An interrupt between the end of a call and `pop` leaves an entry of this thread that is no call.
    own = [threading.get_ident()]
    entry = caller.setdefault("call", own)
    if entry is not own and (entry != own or _under_way(owner, calls) > 1):
        raise PolicyBusy(
            "select, observe, update and other calls that change a policy must come from one thread at a time; another "
            "one is under way. Put a lock around the policy, or give every thread a policy of its own."
        )
    try:
        yield
    finally:
        caller.pop("call", None)


def _under_way(owner: object, calls: Calls) -> int:
    """How many of the calls this thread is in, the one that asks included."""
    codes = {call.__code__ for call in calls()}
    frames = (frame for frame, _ in traceback.walk_stack(None))
    return sum(frame.f_code in codes and frame.f_locals.get("self") is owner for frame in frames)
