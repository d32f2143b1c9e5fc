"""All that a policy knows at one moment, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rarely.core.clock import BatchClock
from rarely.core.contexts import ContextReader
from rarely.core.frozen import FrozenPolicy
from rarely.core.history import History
from rarely.core.offered import Offered
from rarely.core.records import UpdateRecord


@dataclass(frozen=True, slots=True)
class PolicyState:
    """All that a policy knows at one moment."""

    frozen: FrozenPolicy
    clock: BatchClock
    history: History
    random: Any
    """The place of the policy's generator in its stream."""
    reader: ContextReader
    """What contexts have looked like so far."""
    updates: tuple[UpdateRecord, ...] = ()
    offered: Offered = field(default_factory=Offered)
    learned: int = 0
    """Rewards that were in at the last accepted update."""
