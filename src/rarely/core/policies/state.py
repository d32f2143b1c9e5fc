"""All that a policy knows at one moment, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rarely.core.inputs.contexts import ContextReader
from rarely.core.inputs.history import History
from rarely.core.policies.clock import BatchClock
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.offered import Offered
from rarely.core.policies.update_record import UpdateRecord


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
    """Rewards that were in at the last accepted update, or when it was prepared."""
    events: tuple[PolicyEvent, ...] = ()
    lost: int = 0
    """Rounds that are not in Z: forgotten, or dropped before it was built again."""

    # `dataclasses.replace` takes longer than the rest of what happens to the state in a round.

    def with_history(self, history: History) -> PolicyState:
        """The state with other rewards."""
        return PolicyState(
            *(self.frozen, self.clock, history, self.random, self.reader, self.updates, self.offered, self.learned),
            *(self.events, self.lost),
        )

    def with_update(self, record: UpdateRecord) -> PolicyState:
        """The state with one more update on record."""
        updates = (*self.updates, record)
        return PolicyState(
            *(self.frozen, self.clock, self.history, self.random, self.reader, updates, self.offered, self.learned),
            *(self.events, self.lost),
        )
