"""Rounds decided under a frozen version: the state before them, the state after them, and their decision.

    contexts → means and factors → bonuses under the frozen or the running Z → arms
    chosen factors → log det → due? → running Z

Where bonuses come from the running Z, rounds of a block are still measured together (*sequential bonuses*):

    v    (N,)    φᵀZ⁻¹φ of all arms of n rounds, Z running before the first of them
    c    (N,)    φᵀZ⁻¹φ' with the feature φ' that the latest round chose

A round adds φ'φ'ᵀ to Z, so later arms are known better:  v ← v − c²/(1 + v'). One solve for all arms reads the factor
of Z once, where n single rounds would read it n times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely._core.choice.gaussian_argmax import LARGE_BONUSES
from rarely._core.choice.random_stream import UniformStream
from rarely._core.choice.rules import ROUNDED, ArmScores, ChoiceRule, held_out, sample_arms, tolerances
from rarely._core.covariance import CANCELLED, RECENT, Candidates, CovarianceFactory, prior_variances
from rarely._core.errors import InvalidContexts, InvalidInput, InvalidWorth, UpdateDue
from rarely._core.growable_array import all_finite, all_true, changed
from rarely._core.inputs.contexts import ContextReader, Part, RoundContexts
from rarely._core.inputs.worth import Worth
from rarely._core.policies.covariance_change import adapted, rebuilt_for_scale, record_form_change
from rarely._core.policies.state import PolicyState, Version
from rarely._core.types import Array, BoolArray, Decision, IntArray

MEASURED_TOGETHER = 64
"""Candidates of sequential bonuses that are measured together, however few rounds there have been."""


MODEL, NO_MODEL = "model", "none"
"""What scores are those of, where no `ScoreOverride` decides."""


LARGE_FEATURES = "contexts must be small enough for the features' squared norms to be finite."
LARGE_WORTH = "gain and cost of a worth must be so small that scores are finite numbers."
LARGE_VARIANCES = "contexts must be small enough for the features' variances to be finite."


class Scores(NamedTuple):
    """What a frozen policy thinks of each arm, in reward units; NaN for an absent arm.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> means, bonuses = LinUCB(dim=1, intercept=False).score([[1.0], [3.0]])
    >>> means, bonuses
    (array([0., 0.]), array([1., 3.]))
    """

    means: Array
    bonuses: Array


@dataclass(slots=True, eq=False)
class ScoredArms:
    """The arms of some rounds as a version sees them, (n, K) each, and their measured features, block by block."""

    means: Array
    bonuses: Array
    variances: Array
    """φᵀZ⁻¹φ, and ‖φ‖²/λ before any data."""
    priors: Array
    rounding_scale: Array
    """What v was subtracted from, to which the rounding of bonuses is relative; v itself if it is not a difference."""
    unit: float
    """ω, and β·ω, by which √v is multiplied."""
    per_deviation: float
    reward_spread: float
    candidates: list[Candidates]
    block: int
    source: str = MODEL
    """What the scores are those of: `Decision.source`."""
    worth: Worth | None = None
    """What outcomes are worth, (n, K)."""

    def probabilities(self, rule: ChoiceRule) -> Array:
        """Return the probability of every arm."""
        largest = self.per_deviation * np.sqrt(self.rounding_scale)
        joint = self._joint if rule.joint else None
        if self.worth is not None:
            return rule.probabilities(self._in_worth(self.worth, largest, joint))
        tolerance = tolerances(self.means + self.bonuses, largest, self.reward_spread)
        return rule.probabilities(ArmScores(self.means, self.bonuses, tolerance, joint))

    def _in_worth(self, worth: Worth, largest: Array, joint: Array | None) -> ArmScores:
        """Return u·mean − v and |u|·bonus of every arm, and when they tie."""
        there = ~np.isnan(self.means)
        gain, size, cost = worth.gain, np.abs(worth.gain), np.where(there, worth.cost_apart(there), 0.0)
        means, bonuses = gain * self.means - cost, size * self.bonuses
        if not all_finite((means + bonuses)[there]):
            raise InvalidWorth(LARGE_WORTH)
        tolerance = tolerances(means + bonuses, size * largest, self.reward_spread * size.max(axis=1))
        # Where a cost takes a gain away, the difference keeps the rounding of both.
        tolerance += ROUNDED * cost.max(axis=1)
        return ArmScores(means, bonuses, tolerance, None if joint is None else gain[:, :, None] * joint)

    @property
    def _joint(self) -> Array:
        """β·ω·φ of every arm, (n, K, p), NaN for absent arms; see `ArmScores`."""
        features = np.concatenate([each.factors.inputs[0] for each in self.candidates])
        out = np.full((*self.means.shape, features.shape[1]), np.nan)
        out[~np.isnan(self.means)] = self.per_deviation * features
        return out

    def round(self, i: int, bonuses: Array) -> ScoredArms:
        """Return round i alone, with these bonuses, (1, K)."""
        one = slice(i, i + 1)
        worth = None if self.worth is None else self.worth[one]
        scale = self.rounding_scale[one]
        return replace(self, means=self.means[one], bonuses=bonuses, rounding_scale=scale, worth=worth)

    def chosen(self, rows: IntArray, current: Version) -> Candidates:
        """Return the chosen rows as candidates; those of several blocks are measured again, together."""
        if len(self.candidates) == 1:
            return self.candidates[0][rows]
        parts = [self.candidates[row // self.block].factors[[row % self.block]] for row in rows]
        factors = parts[0].joined(parts)
        return current.covariance.measure(factors, running=current.uses_running)


def score(current: Version, part: Part, *, keep: bool = False) -> ScoredArms:
    """Return means, bonuses and measured features of a part's arms, in blocks where one round has very many.

    Of several blocks what was solved for features is dropped, unless `keep`.
    """
    block, count = current.covariance.block(), len(part.rows)
    if not current.learner.predicts:
        zeros = part.padded(np.zeros(count))
        return ScoredArms(zeros, zeros.copy(), zeros, zeros, zeros, 1.0, 0.0, 1.0, [], block, NO_MODEL, part.worth)
    if count <= block:
        means, priors, candidates = _measure(current, part.rows)
        variances, scale, measured = candidates.variances, candidates.rounding_scale, [candidates]
    else:
        pieces = [_measure(current, part.rows[start : start + block]) for start in range(0, count, block)]
        means, priors = (np.concatenate(arrays) for arrays in list(zip(*pieces, strict=True))[:2])
        # Of several blocks only the features are kept: what was solved would fill t numbers an arm.
        measured = [each if keep else replace(each, solved=None) for _, _, each in pieces]
        variances = np.concatenate([each.variances for each in measured])
        scale = np.concatenate([each.rounding_scale for each in measured])
    unit, per_deviation = current.unit, current.radius * current.unit
    bonuses = per_deviation * np.sqrt(variances)
    if not (math.isfinite(np.add.reduce(means + bonuses)) or all_finite(means + bonuses)):
        raise InvalidInput(LARGE_BONUSES)
    override, source = current.override, MODEL
    if override is not None and override.decides:
        means, bonuses = override.override_scores(part.rows, means, bonuses, explores=current.radius > 0)
        source = override.source
    means, bonuses, variances, priors, scale = map(part.padded, (means, bonuses, variances, priors, scale))
    units = unit, per_deviation, current.learner.reward_spread
    return ScoredArms(means, bonuses, variances, priors, scale, *units, measured, block, source, part.worth)


def scores_of(current: Version, rounds: RoundContexts, *, chances: bool) -> Array:
    """Return mean and bonus of every arm, and with `chances` its probability: (2 or 3, n, K)."""
    parts = []
    for part in rounds.parts(lambda: rounds_at_once(current, rounds.arms)):
        arms = score(prepared(current, part), part)
        parts.append((arms.means, arms.bonuses, *([arms.probabilities(current.rule)] if chances else ())))
    return np.concatenate([np.array(part) for part in parts], axis=1)


def _measure(current: Version, rows: Array) -> tuple[Array, Array, Candidates]:
    covariance = current.covariance
    means, factors = current.learner.assess(rows)
    prior = prior_variances(factors, covariance.ridge)
    finite = math.isfinite(means.dot(prior))  # then all of them are finite; otherwise the product may be too large
    if not finite and not (all_finite(means) and all_finite(prior)):
        raise InvalidContexts(LARGE_FEATURES)
    candidates = covariance.measure(factors, running=current.within_batch == "running")
    if not math.isfinite(np.add.reduce(candidates.variances)):
        raise InvalidContexts(LARGE_VARIANCES)
    return means, prior, candidates


def prepared(current: Version, part: Part) -> Version:
    """Return the version that decides the first round of a part; see `Learner.prepare_scale`."""
    if not current.learner.follows:
        return current
    return current.with_learner(current.learner.prepare_scale(part.rows_until(1)))


class Choices(NamedTuple):
    """The arms of some consecutive rounds, and every arm's variance, bonus and probability when they were chosen."""

    arms: IntArray
    variances: Array
    """(n, K), NaN for absent arms."""
    bonuses: Array
    probabilities: Array
    held_out: BoolArray | None = None
    """(n,): see `rules.held_out`."""


class Chosen(NamedTuple):
    """Some consecutive rounds as they were decided."""

    means: Array
    bonuses: Array
    probabilities: Array
    arms: IntArray
    contexts: Array
    """(n, d): those of the chosen arms."""
    held_out: BoolArray | None
    known: Array
    """(n, 3): probability, mean and bonus of the chosen arms."""
    source: str


def require_open(state: PolicyState) -> None:
    """Raise UpdateDue if the batch has ended."""
    if state.clock.due:
        raise UpdateDue(
            f"until_due asks for rounds of an open batch, but version {state.clock.version}'s batch has ended; "
            "call update() first, or select without until_due to continue under the frozen version."
        )


def decide(
    state: PolicyState,
    rounds: RoundContexts,
    reader: ContextReader,
    factory: CovarianceFactory,
    generator: np.random.Generator,
    *,
    life: str,
    until_due: bool,
    draws: UniformStream | None = None,
) -> tuple[PolicyState, Decision]:
    """Return the state after these rounds, and their decision; `generator` is scratch, and `draws` replaces it."""
    batch = OpenBatch(state, rounds, factory, generator, until_due=until_due, draws=draws)
    done = 0
    while done < len(rounds):
        done += batch.play(rounds.part(done, batch.rounds_at_once))
        if until_due and batch.clock.due:
            break
    return batch.finished(reader, life)


class OpenBatch:
    """Rounds in progress: what `decide` has worked out so far, on a fork of the state's Z."""

    def __init__(
        self,
        state: PolicyState,
        rounds: RoundContexts,
        factory: CovarianceFactory,
        generator: np.random.Generator,
        *,
        until_due: bool,
        draws: UniformStream | None,
    ) -> None:
        self.state, self.rounds, self.factory, self.until_due = state, rounds, factory, until_due
        self.most_arms = max(state.most_arms, rounds.arms)
        self.clock, self.stats = state.clock, state.arm_stats
        self.done: list[Chosen] = []
        self.round = self.changed = state.history.rounds
        """Rounds decided so far, and when Z last changed its form."""
        self.current = state.current.fork()
        # With no more arms than in earlier rounds, the form of Z has been right since the last call.
        self.may_change = self._adapt() if self.most_arms > state.most_arms else self._next_change()
        """The round after which Z may change its form again."""
        self.draws = (draws or UniformStream(generator, state.random)) if self.current.rule.draws else None

    def rounds_at_once(self) -> int:
        """Return how many rounds the next part should have."""
        if self.current.learner.follows:
            return 1
        most = rounds_at_once(self.current, self.rounds.arms)
        # A form that changes does so after the same round, whether rounds come one by one or in blocks.
        most = min(most, self.may_change - self.round)
        if not self.until_due:
            return most
        return min(most, self.clock.lookahead(self.round, self.current.covariance.log_det))

    def play(self, part: Part) -> int:
        """Decide the rounds of a part, and return how many: fewer if the batch ends or bonuses would lose digits."""
        follows = self.current.learner.follows
        self.current = current = prepared(self.current, part) if follows else self.current
        scored = score(current, part)
        arms, variances, bonuses, probabilities, lot = self._choose(scored, part)
        rows = part.row_of(arms)  # those of as many rounds as could be chosen together
        chosen = part.rows[rows]
        if follows:
            keep, end = 1, self._rebuild(part, chosen)
        elif current.learner.predicts:
            keep, end = self._grow(scored, part, rows)
        else:
            keep, end = self._count(len(rows))
        if current.override is not None:
            self.current = self.current.with_override(current.override.after(part.rows, int(rows[0])))
        if end is not None:
            self.clock = self.clock.ended(self.round + end + 1)
        if self.draws is not None:
            self.draws.keep(keep)
        packed = current.learner.sparse is not None
        disjoint = current.learner.predicts and self.stats.disjoint and part.disjoint(keep, packed=packed)
        means = scored.means
        if keep < len(part):
            variances, scored.priors = variances[:keep], scored.priors[:keep]
            means, bonuses, probabilities = means[:keep], bonuses[:keep], probabilities[:keep]
            lot, arms, chosen = None if lot is None else lot[:keep], arms[:keep], chosen[:keep]
        known = np.array((probabilities, means, bonuses))[:, np.arange(keep), arms].T
        played = Chosen(means, bonuses, probabilities, arms, chosen, lot, known, scored.source)
        if current.learner.predicts:
            self.stats = self.stats.merge(variances, scored.priors, played.arms, disjoint=disjoint, unit=scored.unit)
        self.done.append(played)
        self.round += keep
        if self.round >= self.may_change:
            self.may_change = self._adapt()
        return keep

    def _choose(self, scored: ScoredArms, part: Part) -> Choices:
        current, count = self.current, len(part.present)
        uniforms = None if self.draws is None else self.draws.peek(count)
        if count > 1 and current.uses_running and not current.rule.ignore_running_bonuses:
            found = sequential_choices(scored, part, current, uniforms)
        else:
            probabilities = scored.probabilities(current.rule)
            arms = probabilities.argmax(axis=1) if uniforms is None else sample_arms(probabilities, uniforms)
            found = Choices(arms, scored.variances, scored.bonuses, probabilities)
        if uniforms is None:
            return found
        done = slice(len(found.arms))
        lot = held_out(current.rule, part.present[done], found.probabilities, found.arms, uniforms[done])
        return found if lot is None else found._replace(held_out=lot)

    def _grow(self, scored: ScoredArms, part: Part, rows: IntArray) -> tuple[int, int | None]:
        """Add the chosen rounds to the running Z; return how many, and the index of the one that ends the batch."""
        current, covariance = self.current, self.current.covariance
        proposal = covariance.propose(scored.chosen(rows, current))
        end = self.clock.first_due(self.round, proposal.log_dets)
        keep = len(rows) if end is None or not self.until_due else end + 1
        covariance.accept(proposal, keep)
        self.current = current.with_learner(current.learner.observe_contexts(part.rows_until(keep), keep))
        return keep, end

    def _count(self, rounds: int) -> tuple[int, int | None]:
        """Do what `_grow` does for a policy without a model, whose Z does not grow."""
        end = self.clock.first_due(self.round, np.zeros(rounds))
        keep = rounds if end is None or not self.until_due else end + 1
        self.current.covariance.rounds += keep
        return keep, end

    def _rebuild(self, part: Part, chosen: Array) -> int | None:
        """Rebuild Z after one round on a scale that follows contexts; return 0 if that round ends the batch."""
        contexts = np.concatenate([self.state.history.contexts, *(each.contexts for each in self.done), chosen])
        current = self.current.with_learner(self.current.learner.observe_contexts(part.rows, 1))
        self.current = rebuilt_for_scale(current, self.factory, self.most_arms, contexts)
        return self.clock.first_due(self.round, np.array([self.current.covariance.log_det]))

    def _adapt(self) -> int:
        """Let Z change its form, where its size asks for that; return the round after which it may do so again."""
        covariance = self.factory.adapted(self.current.covariance, self.most_arms)
        if covariance is not self.current.covariance:
            chosen = [self.state.history.contexts[-RECENT:], *(each.contexts for each in self.done)]
            recent = np.concatenate(chosen)[-RECENT:]
            self.current, self.clock = adapted(self.current, covariance, self.clock, self.factory, recent)
            self.changed = self.round
        return self._next_change()

    def _next_change(self) -> int:
        return self.round + self.factory.rounds_until_change(self.current.covariance, self.most_arms)

    def finished(self, reader: ContextReader, life: str) -> tuple[PolicyState, Decision]:
        """Return the state after all rounds, and their decision."""
        state, version = self.state, self.clock.version
        means, bonuses, probabilities, arms, chosen, lot, known, source = _in_order(self.done)
        history = state.history.with_rounds(chosen, arms, version, known, life)
        place = state.random if self.draws is None else self.draws.place
        after = changed(state, current=self.current, clock=self.clock, history=history, random=place, reader=reader)
        after.__dict__.update(arm_stats=self.stats, most_arms=self.most_arms)
        decided: Any
        last, worth = history.rounds, self.rounds.worth
        if self.rounds.single:
            one, worth = None if lot is None else bool(lot[0]), None if worth is None else worth[0]
            decided = (int(arms[0]), means[0], bonuses[0], version, last, probabilities[0], life, one, source, worth)
        else:
            versions, numbered = np.full(len(arms), version), np.arange(last - len(arms) + 1, last + 1)
            sources, worth = _sources(self.done), None if worth is None else worth[: len(arms)]
            decided = (arms, means, bonuses, versions, numbered, probabilities, life, lot, sources, worth)
        decision = Decision(*decided)
        if state.current.covariance.exact != self.current.covariance.exact:
            after = record_form_change(state, after, self.factory, self.changed)
        return after, decision


def _sources(done: list[Chosen]) -> NDArray[np.str_]:
    """Return what decided each of the rounds, (n,)."""
    counts, last = [len(each.arms) for each in done], done[-1].source
    if all(each.source == last for each in done):
        return np.broadcast_to(np.array(last), (sum(counts),))
    return np.repeat([each.source for each in done], counts)


def rounds_at_once(current: Version, arms: int) -> int:
    """Return how many rounds of that many arms are well scored at a time."""
    if current.override is not None:
        return 1  # it judges an arm by the others of its round
    most = max(1, current.covariance.block() // arms)
    if not current.uses_running:
        return most
    # A joint rule reads the features of its own round alone.
    if not current.covariance.additive or current.rule.joint:
        return 1
    # One reading of Z's factor for n rounds, t² numbers, against t·nK for each of them.
    return min(most, max(1, math.isqrt(2 * current.covariance.rounds // arms), MEASURED_TOGETHER // arms))


def sequential_choices(scored: ScoredArms, part: Part, current: Version, uniforms: Array | None) -> Choices:
    """Choose the arms of consecutive rounds, each with the bonuses that the rounds before it leave.

    They end before a round whose variances would keep too few digits of those that were measured.
    """
    candidates, covariance, per_deviation = scored.candidates[0], current.covariance, scored.per_deviation
    variances = candidates.variances.copy()
    ends = np.cumsum(part.present.sum(axis=1))
    arms = np.empty(len(part), np.int64)
    known, probabilities = scored.variances.copy(), np.zeros(scored.means.shape)
    steps = np.empty((len(part), len(variances)))
    count = len(part)
    for i, end in enumerate(ends):
        here, present = slice(end - int(part.present[i].sum()), end), part.present[i]
        if not all_true(variances[here] >= CANCELLED * candidates.variances[here]):
            count = i
            break
        known[i, present] = variances[here]
        one = scored.round(i, per_deviation * np.sqrt(known[[i]])).probabilities(current.rule)
        probabilities[i] = one[0]
        arms[i] = (one.argmax(axis=1) if uniforms is None else sample_arms(one, uniforms[[i]]))[0]
        if i + 1 == len(part):
            break
        row = here.start + int(present[: arms[i]].sum())
        later = slice(end, len(variances))
        inner = covariance.cross(candidates[[row]], candidates[later])
        # The rounds of this block before this one have changed Z as well.
        inner = inner - steps[:i, row] @ steps[:i, later]
        steps[i, later] = inner / np.sqrt(1 + variances[row])
        variances[later] -= np.square(steps[i, later])
    known = known[:count]
    return Choices(arms[:count], known, per_deviation * np.sqrt(known), probabilities[:count])


def _in_order(done: list[Chosen]) -> Chosen:
    """Return all rounds of a call in order."""
    if len(done) == 1:
        return done[0]
    *columns, sources = zip(*done, strict=True)
    joined: list[Any] = [None if each[0] is None else np.concatenate(each) for each in columns]
    joined.append(sources[-1])
    return Chosen(*joined)
