"""Rounds decided under a frozen version: the state before them, the state after them, and their decision.

contexts → means and factors → bonuses under the frozen Z → arms; chosen factors → running Z → log det → due?
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rarely.core.choice.random_stream import UniformStream
from rarely.core.choice.rules import sample_arms
from rarely.core.covariance import Auto, Deferred
from rarely.core.errors import UpdateDue
from rarely.core.inputs.contexts import ContextReader, RoundContexts
from rarely.core.policies.form_change import RECENT, noted, rebased, with_unit
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.policies.scored_arms import most_likely_arm
from rarely.core.policies.state import PolicyState
from rarely.core.policies.turns import in_turn
from rarely.core.types import Array, Decision, IntArray

SOME_TURNS = 64
"""Candidates that are measured together, however few rounds there have been."""


class Chosen(NamedTuple):
    """Some consecutive rounds as they were decided."""

    means: Array
    bonuses: Array
    probabilities: Array
    arms: IntArray
    contexts: Array
    """(n, d): those of the chosen arms."""


def decide(
    state: PolicyState,
    rounds: RoundContexts,
    reader: ContextReader,
    maker: CovarianceMaker,
    generator: np.random.Generator,
    *,
    life: str,
    until_due: bool,
) -> tuple[PolicyState, Decision]:
    """The state after these rounds, and their decision; `generator` is scratch."""
    if until_due and state.clock.due:
        raise UpdateDue(
            f"until_due asks for rounds of an open batch, but version {state.clock.version}'s batch has ended; "
            "call update() first, or select without until_due to go on under the frozen version."
        )
    frozen, clock, history, offered = state.frozen.fork(), state.clock, state.history, state.offered
    if isinstance(frozen.covariance, Auto):
        frozen.covariance.expect(rounds.arms)
        form = state.frozen.covariance.kind, state.frozen.covariance.frozen_log_det
        clock = rebased(clock, form, frozen.covariance)
        frozen = with_unit(frozen, state.frozen, history.contexts[-RECENT:])
    draws = UniformStream(generator, state.random) if frozen.rule.draws else None
    done: list[Chosen] = []
    now = changed = history.rounds

    def at_once() -> int:
        most = 1 if frozen.learner.follows else rounds_at_once(frozen, rounds)
        return min(most, clock.lookahead(now, frozen.covariance.log_det)) if until_due else most

    for part in rounds.parts(at_once):
        frozen = frozen.facing(part)
        assessed, covariance = frozen.assess(part), frozen.covariance
        uniforms = None if draws is None else draws.peek(len(part))
        per_deviation, unit = frozen.bonus_per_deviation, frozen.unit
        if frozen.running and len(part) > 1:
            arms, variances, probabilities = in_turn(assessed, part, covariance, per_deviation, frozen.rule, uniforms)
        else:
            variances, probabilities = assessed.variances, assessed.probabilities(frozen.rule)
            arms = most_likely_arm(probabilities) if uniforms is None else sample_arms(probabilities, uniforms)
        rows = part.row_of(arms)
        if frozen.learner.follows:
            chosen = np.concatenate([history.contexts, *(each.contexts for each in done), part.rows[rows]])
            frozen = _following(frozen.with_learner(frozen.learner.seen(part.rows, 1)), maker, chosen)
            keep, end = 1, clock.first_due(now, np.array([frozen.covariance.log_det]))
        else:
            proposal = covariance.propose(assessed.chosen(rows, covariance))
            # Where rounds wait to be recorded, log det is not known yet, and `deferral` asks the schedule later.
            waits = isinstance(covariance, Deferred)
            end = None if waits else clock.first_due(now, proposal.log_dets)
            keep = len(part) if end is None or not until_due else end + 1
            form = covariance.kind, covariance.frozen_log_det
            inner = covariance.inner if isinstance(covariance, Auto) else covariance
            covariance.accept(proposal, keep)
            clock = rebased(clock, form, covariance)
            if covariance.kind != form[0]:
                latest = [history.contexts[-RECENT:], *(each.contexts for each in done), part.rows[rows[:keep]]]
                frozen = with_unit(frozen, frozen.with_covariance(inner), np.concatenate(latest)[-RECENT:])
            changed = changed if covariance.kind == form[0] else now + keep
            frozen = frozen.with_learner(frozen.learner.seen(part.rows_until(keep), keep))
        if end is not None:
            clock = clock.ended()
        if draws is not None:
            draws.keep(keep)
        disjoint = offered.disjoint and part.disjoint(keep)
        offered = offered.also(variances[:keep], assessed.priors[:keep], arms[:keep], disjoint=disjoint, unit=unit)
        scores = assessed.means[:keep], per_deviation * np.sqrt(variances[:keep]), probabilities[:keep]
        done.append(Chosen(*scores, arms[:keep], part.rows[rows[:keep]]))
        now += keep
        if until_due and clock.due:
            break

    means, bonuses, probabilities, arms, chosen = _joined(done)
    scored, each = np.empty((len(arms), 3)), np.arange(len(arms))
    for column, array in enumerate((probabilities, means, bonuses)):
        scored[:, column] = array[each, arms]
    history = history.with_rounds(chosen, arms, clock.version, scored, life)
    random = state.random if draws is None else draws.state
    after = PolicyState(
        frozen, clock, history, random, reader, state.updates, offered, state.learned, state.events, state.lost
    )
    after = noted(state, after, changed)
    start = now - len(arms) + 1
    return after, Decision(
        arm=int(arms[0]) if rounds.single else arms,
        means=means[0] if rounds.single else means,
        bonuses=bonuses[0] if rounds.single else bonuses,
        version=clock.version if rounds.single else np.full(len(arms), clock.version),
        round=start if rounds.single else np.arange(start, start + len(arms)),
        probabilities=probabilities[0] if rounds.single else probabilities,
        life=life,
    )


def rounds_at_once(frozen: FrozenPolicy, rounds: RoundContexts) -> int:
    """Rounds that are well decided at a time."""
    # A form that changes does so after the same round, whether rounds come one by one or in blocks.
    most = min(max(1, frozen.covariance.block() // rounds.arms), frozen.covariance.lasts)
    if not frozen.running:
        return most
    if not frozen.covariance.additive:
        return 1
    # One reading of Z's factor for n rounds, t² numbers, against t·nK for each of them.
    return min(most, max(1, math.isqrt(2 * frozen.covariance.rounds // rounds.arms), SOME_TURNS // rounds.arms))


def _following(frozen: FrozenPolicy, maker: CovarianceMaker, contexts: Array) -> FrozenPolicy:
    """The version whose scale has changed, with Z built again from all rounds so far."""
    learner = frozen.learner
    covariance = maker.like(frozen.covariance).of(learner.features, learner.widths, contexts)
    return with_unit(frozen.with_covariance(covariance), frozen, contexts[-RECENT:])


def _joined(done: list[Chosen]) -> Chosen:
    """All rounds of a call in order."""
    return done[0] if len(done) == 1 else Chosen(*(np.concatenate(arrays) for arrays in zip(*done, strict=True)))
