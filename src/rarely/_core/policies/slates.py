"""Several arms in one round: slots are filled in turn, each a round of its own.

    a_j   the arm of slot j      a_<j   what stands above it: taken, and counted in the running Z

The record has p(a_j | a_<j) of each slot, so the probability of the ordered slate is their product. All slots of a
slate are decided by one version. `plain_slate` measures every slot anew and is the oracle; `slate_at_once` does it
from one measurement of the arms, because a choice changes only variances:  v ← v − c²/(1 + v'), with c = φᵀZ⁻¹φ'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rarely._core.choice.rules import held_out, sample_arms
from rarely._core.covariance import CANCELLED, CovarianceFactory
from rarely._core.errors import InvalidReward, InvalidSlate, check_whole, is_whole, shown
from rarely._core.growable_array import all_true
from rarely._core.inputs.contexts import Part, RoundContexts
from rarely._core.policies.select import Choices, Chosen, OpenBatch, ScoredArms, score
from rarely._core.policies.state import PolicyState, Version
from rarely._core.types import Array, Decision

MEASURED = 16
"""Blocks of candidates whose solved features one measurement of a slate may keep."""
DecideOne = Callable[[PolicyState, RoundContexts], tuple[PolicyState, Decision]]
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
    left = rounds.present.copy()
    left[0, taken] = False
    rows = rounds.rows(0, 1)[left[rounds.present]]
    return replace(rounds, given=[rows], present=left, complete=False)


def same(rounds: RoundContexts) -> Offer:
    """Return the offer of the same arms to every slot."""
    return lambda slot, above: rounds


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
    return state, stacked(decisions, slate=True)


def stacked(decisions: list[Decision], *, slate: bool = False) -> Decision:
    """Return single decisions as one, of a `slate` with its mark."""
    first = decisions[0]
    names = ("arm", "means", "bonuses", "version", "round", "probabilities")
    columns: dict[str, Any] = {name: np.array([getattr(each, name) for each in decisions]) for name in names}
    lot = None if first.held_out is None else np.array([bool(each.held_out) for each in decisions])
    if first.worth is not None:
        worths = [each.worth for each in decisions]
        columns["worth"] = type(first.worth)(*(_stack([getattr(w, n) for w in worths]) for n in first.worth.__slots__))
    source = np.array([str(each.source) for each in decisions])
    columns["slate"] = np.full(len(decisions), first.round) if slate else None
    columns["price"] = _stack([each.price for each in decisions])
    columns["reason"] = np.array([str(each.reason) for each in decisions])
    return Decision(**columns, life=first.life, held_out=lot, source=source)


def _stack(columns: list[Any]) -> Any:
    return None if columns[0] is None else np.array(columns)


def joined(slates: list[Decision]) -> Decision:
    """Return the decisions of several slates as one."""
    if len(slates) == 1:
        return slates[0]
    names = ("arm", "means", "bonuses", "version", "round", "probabilities", "source", "slate", "reason")
    columns: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in slates]) for name in names}
    first = slates[0]
    lot = None if first.held_out is None else np.concatenate([np.asarray(each.held_out) for each in slates])
    if first.worth is not None:
        of = {name: [getattr(each.worth, name) for each in slates] for name in first.worth.__slots__}
        parts = (None if column[0] is None else np.concatenate(column) for column in of.values())
        columns["worth"] = type(first.worth)(*parts)
    columns["price"] = _joined_prices(slates)
    return Decision(**columns, life=first.life, held_out=lot)


def _joined_prices(slates: list[Decision]) -> Any:
    return None if slates[0].price is None else np.concatenate([np.asarray(each.price) for each in slates])


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


# --- all slots from one measurement


def slate_at_once(
    state: PolicyState,
    rounds: RoundContexts,
    factory: CovarianceFactory,
    generator: np.random.Generator,
    slots: int,
    life: str,
) -> tuple[PolicyState, Decision] | None:
    """Return what `plain_slate` returns, from one measurement of a round's arms; None where it takes several."""
    worth = rounds.worth and rounds.worth[np.zeros(slots, np.int64)]
    several = replace(rounds, single=False, worth=worth)
    batch = OpenBatch(state, several, factory, generator, until_due=False, draws=None)
    if not _measures_once(batch, slots) or not _play(batch, rounds.part(0, lambda: 1), slots):
        return None
    after, decision = batch.finished(state.reader, life)
    none = np.full(slots, "")
    return after, replace(decision, slate=np.full(slots, decision.rounds[0]), reason=none)


def _measures_once(batch: OpenBatch, slots: int) -> bool:
    """Return whether nothing but variances changes between the slots."""
    current, learner = batch.current, batch.current.learner
    additive = current.covariance.additive or not current.uses_running
    small = batch.rounds.arms <= MEASURED * current.covariance.block()
    simple = learner.predicts and not learner.follows and not learner.fits_scale and not current.rule.joint
    unchanged = current.override is None and batch.round + slots <= batch.may_change
    return slots > 1 and simple and additive and small and unchanged


def _play(batch: OpenBatch, part: Part, slots: int) -> bool:
    """Decide the slots of one round from one measurement; False, and nothing is done, if digits would be lost."""
    current = batch.current
    scored = score(current, part, keep=current.uses_running)
    uniforms = None if batch.draws is None else batch.draws.peek(slots)
    choices = _choose(scored, part, current, uniforms, slots)
    if choices is None:
        return False
    arms, there = choices.arms, choices.probabilities.shape
    absent = np.isnan(choices.variances)
    means = np.where(absent, np.nan, np.broadcast_to(scored.means, there))
    priors = np.where(absent, np.nan, np.broadcast_to(scored.priors, there))
    rows = np.concatenate([part.row_of(arms[[j]]) for j in range(slots)])
    proposal = current.covariance.propose(scored.chosen(rows, current))
    if (end := batch.clock.first_due(batch.round, proposal.log_dets)) is not None:
        batch.clock = batch.clock.ended(batch.round + end + 1)
    current.covariance.accept(proposal, slots)
    if batch.draws is not None:
        batch.draws.keep(slots)
    disjoint = batch.stats.disjoint and part.disjoint(1, packed=current.learner.sparse is not None)
    batch.stats = batch.stats.merge(choices.variances, priors, arms, disjoint=disjoint, unit=scored.unit)
    known = np.array((choices.probabilities, means, choices.bonuses))[:, np.arange(slots), arms].T
    contexts = part.rows[rows]
    found = (means, choices.bonuses, choices.probabilities, arms, contexts, choices.held_out, known, scored.source)
    batch.done.append(Chosen(*found))
    batch.round += slots
    return True


def _choose(scored: ScoredArms, part: Part, current: Version, uniforms: Array | None, slots: int) -> Choices | None:
    """Choose the arms of all slots; None if a variance would keep too few digits of what was measured."""
    present = part.present[0].copy()
    variances, measured = scored.variances[0].copy(), scored.variances[0]
    shape, follows = (slots, len(present)), current.uses_running and not current.rule.ignore_running_bonuses
    known, bonuses, chances = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape)
    arms, offered = np.empty(slots, np.int64), np.empty(shape, np.bool_)
    steps: list[Array] = []
    for j in range(slots):
        offered[j] = present
        known[j, present] = variances[present]
        bonuses[j] = scored.per_deviation * np.sqrt(known[j])
        means = np.where(present, scored.means[0], np.nan)[None]
        one = replace(scored, means=means, bonuses=bonuses[[j]], rounding_scale=scored.rounding_scale[[0]])
        chances[[j]] = one.probabilities(current.rule)
        drawn = chances[[j]].argmax(axis=1) if uniforms is None else sample_arms(chances[[j]], uniforms[[j]])
        arm = arms[j] = drawn[0]
        present[arm] = False
        if not follows or j + 1 == slots:
            continue
        inner = _cross(scored, part, current, int(arm))
        # The slots above have changed Z as well.
        for step in steps:
            inner = inner - step[arm] * step
        step = inner / np.sqrt(1 + variances[arm])
        steps.append(step)
        variances -= np.square(step)
        if not all_true(variances[present] >= CANCELLED * measured[present]):
            return None
    lot = None if uniforms is None else held_out(current.rule, offered, chances, arms, uniforms)
    return Choices(arms, known, bonuses, chances, lot)


def _cross(scored: ScoredArms, part: Part, current: Version, arm: int) -> Array:
    """Return φᵀZ⁻¹φ' of all arms with one of them, (K,)."""
    row, blocks = int(part.row_of(np.array([arm]))[0]), scored.candidates
    one = blocks[row // scored.block if len(blocks) > 1 else 0][[row % scored.block if len(blocks) > 1 else row]]
    inner = np.concatenate([current.covariance.cross(one, each) for each in blocks])
    crossed: Array = part.padded(inner)[0]
    return crossed
