"""Several arms in one round: slots are filled in turn, each a round of its own.

    a_j   the arm of slot j      a_<j   what stands above it: taken, and counted in the running Z

The record has p(a_j | a_<j) of each slot, so the probability of the ordered slate is their product. All slots of a
slate are decided by one version. `plain_slate` measures every slot anew and is the oracle; `slate_at_once` does it
from one measurement of the arms where a choice changes nothing but variances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rarely._core.covariance import CovarianceFactory
from rarely._core.errors import InvalidReward, InvalidSlate, check_whole, is_whole, shown
from rarely._core.growable_array import changed
from rarely._core.inputs.contexts import ContextReader, RoundContexts
from rarely._core.policies.select import DecideOne, OpenBatch, restricted
from rarely._core.policies.state import PolicyState
from rarely._core.types import Decision

Offer = Callable[[int, list[int]], RoundContexts]
"""Slot, counted from 0, and the arms above it → what may be chosen there."""


def check_slots(slots: Any, until_due: bool) -> int:
    """Return the number of slots; refuse what is none."""
    check_whole("slots", slots, 1, InvalidSlate)
    if until_due:
        raise InvalidSlate("slots and until_due do not go together: a slate is decided whole, by one version.")
    return int(slots)


def without(rounds: RoundContexts, taken: list[int]) -> RoundContexts:
    """Return one round without some of its arms."""
    left = rounds.present[0].copy()
    left[taken] = False
    return restricted(rounds, left)


def require_arms(rounds: RoundContexts, slots: int) -> None:
    """Refuse a slate with more slots than arms."""
    if (there := int(rounds.present.sum())) < slots:
        raise InvalidSlate(f"a slate must have at most as many slots as arms that are there, {there}; got {slots}.")


def plain_slate(state: PolicyState, offer: Offer, slots: int, decide: DecideOne) -> tuple[PolicyState, Decision]:
    """Return the state after a slate, and its decision: slots one by one."""
    decisions, above = list[Decision](), list[int]()
    for slot in range(slots):
        rounds = offer(slot, list(above))
        if slot == 0:
            require_arms(rounds, slots)
        state, decision = decide(state, without(rounds, above) if above else rounds)
        decisions.append(decision)
        above.append(int(decision.arm))
    return state, Decision.joined(decisions, slate=np.full(slots, decisions[0].round))


def slot_rewards(decision: Decision | None, rewards: Any, seen: Any) -> tuple[Decision | None, Any]:
    """Return the slots of a slate that have a reward, and their rewards; anything else as it came.

    One number for a whole slate is shared equally by its slots; of a cascade the first `seen` slots have rewards.
    """
    slate = decision.slate if isinstance(decision, Decision) and not decision.single else None
    if seen is None and (slate is None or np.ndim(rewards) != 0 or rewards is None):
        return decision, rewards
    if decision is None or slate is None:
        raise InvalidSlate("seen needs the decision of a slate, as select(contexts, slots=…) gave it.")
    slots = len(decision)
    if np.any(np.asarray(slate) != decision.rounds[0]) or decision.rounds[-1] - decision.rounds[0] != slots - 1:
        raise InvalidSlate("one number, or seen=, is for one whole slate; got slots of several, or a part of one.")
    if seen is None:
        return decision, np.full(slots, rewards / slots)
    if not is_whole(seen) or not 0 <= seen <= slots:
        raise InvalidSlate(f"seen must be a slot of the slate, 0 for none to {slots} for all; got {shown(seen)}.")
    if np.ndim(rewards) != 1 or len(rewards) not in (seen, slots):
        raise InvalidReward(f"a cascade has a reward for each of the {seen} slots seen; got {shown(rewards)}.")
    return decision[:seen], rewards[:seen]


def slate_at_once(
    state: PolicyState,
    rounds: RoundContexts,
    reader: ContextReader,
    factory: CovarianceFactory,
    generator: np.random.Generator,
    life: str,
    slots: int,
) -> tuple[PolicyState, Decision] | None:
    """Return what `plain_slate` returns, from as few measurements as digits allow; None where each slot needs one."""
    worth, above = rounds.worth and rounds.worth[np.zeros(slots, np.int64)], list[int]()
    several = replace(rounds, single=False, worth=worth)
    with np.errstate(all="ignore"):
        batch = OpenBatch(state, several, factory, generator)
        if batch.slots_at_once(slots) == 1:
            return None
        while len(above) < slots:
            left = without(rounds, above) if above else rounds
            batch.play(left.part(0, lambda: 1), batch.slots_at_once(slots - len(above)))
            above += batch.done[-1].arms.tolist()
        after, decision = batch.finished(reader, life)
    return after, changed(decision, slate=np.full(slots, decision.rounds[0]))
