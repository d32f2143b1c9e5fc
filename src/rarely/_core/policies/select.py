"""Rounds decided under a frozen version: the state before them, the state after them, and their decision.

    contexts → means and factors → bonuses under the frozen or the running Z → arms
    chosen factors → log det → due? → running Z

Where bonuses come from the running Z, rounds of a block are still measured together (*sequential bonuses*):

    v    (N,)    φᵀZ⁻¹φ of all arms of n rounds, Z running before the first of them
    c    (N,)    φᵀZ⁻¹φ' with the feature φ' that the latest round chose

A round adds φ'φ'ᵀ to Z, so later arms are known better:  v ← v − c²/(1 + v'). One solve for all arms reads the factor
of Z once, where n single rounds would read it n times. So it is with the slots of a slate, rounds among the same arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rarely._core.choice.gaussian_argmax import LARGE_BONUSES
from rarely._core.choice.rules import ROUNDED, ArmScores, ChoiceRule, held_out, sample_arms, tolerances
from rarely._core.covariance import CANCELLED, RECENT, Candidates, CovarianceFactory, prior_variances
from rarely._core.errors import InvalidContexts, InvalidInput, InvalidWorth, UpdateDue
from rarely._core.growable_array import all_finite, all_true, changed
from rarely._core.inputs.contexts import ContextReader, Part, RoundContexts
from rarely._core.inputs.worth import Worth
from rarely._core.policies.covariance_change import adapted, record_form_change, reformed
from rarely._core.policies.state import PolicyState, Version
from rarely._core.types import Array, BoolArray, Decision, IntArray

MEASURED_TOGETHER = 64
"""Candidates of sequential bonuses that are measured together, however few rounds there have been."""
MEASURED_BLOCKS = 16  # blocks of candidates whose solved features one measurement of a slate may keep
MODEL, NO_MODEL = "model", "none"  # what scores are those of, where no `ScoreOverride` decides
LARGE_FEATURES = "contexts must be small enough for the features' squared norms to be finite."
LARGE_WORTH = "gain and cost of a worth must be so small that scores are finite numbers."
LARGE_VARIANCES = "contexts must be small enough for the features' variances to be finite."


DecideOne = Callable[[PolicyState, RoundContexts], tuple[PolicyState, Decision]]


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
    variances: Array  # φᵀZ⁻¹φ
    priors: Array  # ‖φ‖²/λ, before any data
    rounding_scale: Array
    """What v was subtracted from, to which the rounding of bonuses is relative; v itself if it is not a difference."""
    unit: float  # ω
    per_deviation: float  # β·ω, by which √v is multiplied
    reward_spread: float
    candidates: list[Candidates]
    block: int
    source: str = MODEL  # what the scores are those of: `Decision.source`
    worth: Worth | None = None  # what outcomes are worth

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

    def turn(self, i: int, present: BoolArray, variances: Array) -> ScoredArms:
        """Return round i alone, of whose arms those `present` are left, with these variances, (K,)."""
        one, means = slice(i, i + 1), np.where(present, self.means[i], np.nan)[None]
        bonuses = self.per_deviation * np.sqrt(variances)[None]
        worth = None if self.worth is None else self.worth[one]
        return replace(self, means=means, bonuses=bonuses, rounding_scale=self.rounding_scale[one], worth=worth)

    def cross(self, row: int, others: slice, current: Version) -> Array:
        """Return φᵀZ⁻¹φ' of other rows with one of them; those of several blocks are all rows."""
        if len(self.candidates) == 1:
            return current.covariance.cross(self.candidates[0][[row]], self.candidates[0][others])
        one = self.candidates[row // self.block][[row % self.block]]
        return np.concatenate([current.covariance.cross(one, each) for each in self.candidates])

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
    return changed(current, learner=current.learner.prepare_scale(part.rows_until(1)))


class Chosen(NamedTuple):
    """Some consecutive rounds as they were decided."""

    scores: Array  # (3, n, K): mean, bonus and probability of every arm
    source: str
    arms: IntArray
    rows: IntArray  # (n,): which of the part's rows were chosen
    contexts: Array  # (n, d): those of the chosen arms
    variances: Array  # (n, K), NaN for absent arms
    held_out: BoolArray | None  # (n,): see `rules.held_out`

    def first(self, keep: int) -> Chosen:
        """Return the first rounds alone."""
        if keep == len(self.arms):
            return self
        fields: Any = (None if each is None else each[:keep] for each in self[2:])
        return Chosen(self.scores[:, :keep], self.source, *fields)


def restricted(rounds: RoundContexts, present: BoolArray) -> RoundContexts:
    """Return a round alone with no other arms than these of its own, (K,)."""
    rows = rounds.rows(0, 1)[present[rounds.present[0]]]
    return replace(rounds, given=[rows], present=present[None], complete=False)


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
    life: str,
    *,
    until_due: bool = False,
) -> tuple[PolicyState, Decision]:
    """Return the state after these rounds, and their decision; `generator` is scratch."""
    done = 0
    with np.errstate(all="ignore"):  # what is not finite is refused
        batch = OpenBatch(state, rounds, factory, generator, until_due=until_due)
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
        until_due: bool = False,
    ) -> None:
        self.state, self.rounds, self.factory, self.until_due = state, rounds, factory, until_due
        self.most_arms = max(state.most_arms, rounds.arms)
        self.clock, self.stats = state.clock, state.arm_stats
        self.done: list[Chosen] = []
        self.round = self.changed = state.history.rounds  # rounds decided so far, and when Z last changed its form
        self.current = state.current.fork()
        # With no more arms than in earlier rounds, the form of Z has been right since the last call.
        self.may_change = self._adapt() if self.most_arms > state.most_arms else self._next_change()
        self.place, self.generator = state.random, generator

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

    def slots_at_once(self, slots: int) -> int:
        """Return how many slots of a slate are chosen from one measurement: one, unless variances alone change."""
        current, learner = self.current, self.current.learner
        additive = current.covariance.additive or not current.uses_running
        small = self.rounds.arms <= MEASURED_BLOCKS * current.covariance.block()
        simple = learner.predicts and not learner.follows and not learner.fits_scale and not current.rule.joint
        together = additive and small and simple and current.override is None
        return max(1, min(slots, self.may_change - self.round)) if together else 1

    def play(self, part: Part, slots: int = 1) -> int:
        """Decide the rounds of a part, or several slots of its only round, and return how many.

        These are fewer if the batch ends or bonuses would lose digits.
        """
        follows = self.current.learner.follows
        self.current = current = prepared(self.current, part) if follows else self.current
        learner, scored = current.learner, score(current, part, keep=slots > 1)
        chosen = self._choose(scored, part, slots)
        keep, end = (1, self._rebuild(part, chosen)) if follows else self._grow(scored, part, chosen.rows)
        if current.override is not None:
            self.current = changed(self.current, override=current.override.after(part.rows, int(chosen.rows[0])))
        if end is not None:
            self.clock = self.clock.ended(self.round + end + 1)
        if current.rule.draws:
            self.place = self.place.after(keep)
        chosen = chosen.first(keep)
        if learner.predicts:
            rounds, packed = min(keep, len(part)), learner.sparse is not None
            disjoint = self.stats.disjoint and part.disjoint(rounds, packed=packed)
            known = chosen.variances, scored.priors[:rounds], chosen.arms
            self.stats = self.stats.merge(*known, disjoint=disjoint, unit=scored.unit)
        self.done.append(chosen)
        self.round += keep
        if self.round >= self.may_change:
            self.may_change = self._adapt()
        return keep

    def _choose(self, scored: ScoredArms, part: Part, slots: int) -> Chosen:
        rule, count = self.current.rule, max(slots, len(part))
        uniforms = None
        if rule.draws:
            self.place = self.place.ahead(self.generator, count)
            uniforms = self.place.next(count)
        learns = self.current.uses_running and not rule.ignore_running_bonuses
        if slots > 1 or (learns and count > 1):
            scores, arms, rows, variances = choose_in_turn(scored, part, self.current, uniforms, slots, learns=learns)
        else:
            scores, variances = np.array((scored.means, scored.bonuses, scored.probabilities(rule))), scored.variances
            arms = scores[2].argmax(axis=1) if uniforms is None else sample_arms(scores[2], uniforms)
            rows = part.row_of(arms)
        lot = None
        if uniforms is not None:
            present = part.present[: len(arms)] if slots == 1 else ~np.isnan(variances)
            lot = held_out(rule, present, scores[2], arms, uniforms[: len(arms)])
        return Chosen(scores, scored.source, arms, rows, part.rows[rows], variances, lot)

    def _grow(self, scored: ScoredArms, part: Part, rows: IntArray) -> tuple[int, int | None]:
        """Add the chosen rounds to the running Z; return how many, and the index of the one that ends the batch."""
        current, covariance = self.current, self.current.covariance
        proposal = covariance.propose(scored.chosen(rows, current)) if current.learner.predicts else None
        end = self.clock.first_due(self.round, np.zeros(len(rows)) if proposal is None else proposal.log_dets)
        keep = len(rows) if end is None or not self.until_due else end + 1
        if proposal is None:
            covariance.rounds += keep  # without a model Z does not grow
        else:
            covariance.accept(proposal, keep)
            self.current = changed(current, learner=current.learner.observe_contexts(part.rows_until(keep), keep))
        return keep, end

    def _rebuild(self, part: Part, chosen: Chosen) -> int | None:
        """Rebuild Z after one round on a scale that follows contexts; return 0 if that round ends the batch."""
        contexts = np.concatenate([self.state.history.contexts, *(each.contexts for each in (*self.done, chosen))])
        learner = self.current.learner.observe_contexts(part.rows, 1)
        covariance = self.factory.build(learner.features, learner.widths, contexts, arms=self.most_arms)
        self.current = reformed(changed(self.current, learner=learner), covariance, self.factory, contexts)
        return self.clock.first_due(self.round, np.array([covariance.log_det]))

    def _adapt(self) -> int:
        """Let Z change its form, where its size asks for that; return the round after which it may do so again."""
        covariance = self.factory.adapted(self.current.covariance, self.most_arms)
        if covariance is not self.current.covariance:
            chosen = [self.state.history.contexts[-RECENT:], *(each.contexts for each in self.done)]
            recent = np.concatenate(chosen)
            self.current, self.clock = adapted(self.current, covariance, self.clock, self.factory, recent)
            self.changed = self.round
        return self._next_change()

    def _next_change(self) -> int:
        return self.round + self.factory.rounds_until_change(self.current.covariance, self.most_arms)

    def finished(self, reader: ContextReader, life: str) -> tuple[PolicyState, Decision]:
        """Return the state after all rounds, and their decision."""
        state, done = self.state, self.done
        scores, source, arms, _, chosen, _, lot = done[0] if len(done) == 1 else _in_order(done)
        known = scores[:, np.arange(len(arms)), arms][[2, 0, 1]].T
        history = state.history.with_rounds(chosen, arms, self.clock.version, known, life)
        parts = {"current": self.current, "clock": self.clock, "history": history, "random": self.place}
        after = changed(state, **parts, reader=reader)
        after.__dict__.update(arm_stats=self.stats, most_arms=self.most_arms)
        worth, single = self.rounds.worth_of(len(arms)), self.rounds.single
        decision = decision_of(scores, arms, after, life, lot, source, worth, single=single)
        if state.current.covariance.exact != self.current.covariance.exact:
            after = record_form_change(state, after, self.factory, self.changed)
        return after, decision


def _in_order(done: list[Chosen]) -> Any:
    """Return the fields of all rounds of a call, `source` for each round."""
    scores, sources, *others = zip(*done, strict=True)
    columns = [None if each[0] is None else np.concatenate(each) for each in others]
    return np.concatenate(scores, axis=1), np.repeat(sources, [len(each.arms) for each in done]), *columns


def decision_of(
    scores: Array, arms: Any, after: PolicyState, life: str, lot: Any, source: Any, worth: Worth | None, *, single: bool
) -> Decision:
    """Return the decision of the last rounds before a state, of scores as `Chosen` has them."""
    last, version, count = after.history.rounds, after.clock.version, len(arms)
    fields: dict[str, Any] = {"life": life, "worth": worth, "held_out": lot}
    if single:
        fields |= {"arm": int(arms[0]), "version": version, "round": last, "source": source, "_scores": scores[:, 0]}
        fields["held_out"] = None if lot is None else bool(lot[0])
    else:
        fields |= {"arm": arms, "version": np.full(count, version), "round": np.arange(last - count + 1, last + 1)}
        fields |= {"source": np.broadcast_to(np.array(source), (count,)), "_scores": scores}
    decision = object.__new__(Decision)  # every decision comes through here: `__init__` takes three times as long
    decision.__dict__.update(fields)
    return decision


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


def choose_in_turn(
    scored: ScoredArms, part: Part, current: Version, uniforms: Array | None, slots: int, *, learns: bool
) -> tuple[Array, IntArray, IntArray, Array]:
    """Choose the arms of consecutive rounds, or of several slots of one round; return scores, arms, rows and variances.

    With `learns` each has the bonuses that those before it leave; they end before one whose variances would keep too
    few digits of those that were measured.
    """
    present = part.present if slots == 1 else np.repeat(part.present, slots, axis=0)
    row_of = (np.cumsum(part.present) - 1).reshape(part.present.shape)
    measured = scored.variances[part.present]
    variances, count = measured.copy(), len(present)
    known, scores = np.full(present.shape, np.nan), np.empty((3, *present.shape))
    arms, rows = np.empty((2, count), np.int64)
    steps = np.empty((count if learns else 0, len(variances)))
    for i in range(count):
        at, there = (i, present[i]) if slots == 1 else (0, present[i])
        here = row_of[at, there]
        if not all_true(variances[here] >= CANCELLED * measured[here]):
            count = i
            break
        known[i, there] = variances[here]
        one = scored.turn(at, there, known[i])
        chances = one.probabilities(current.rule)
        scores[:, i] = one.means[0], one.bonuses[0], chances[0]
        arm = arms[i] = (chances.argmax(axis=1) if uniforms is None else sample_arms(chances, uniforms[[i]]))[0]
        row = rows[i] = row_of[at, arm]
        if slots > 1:
            present[i + 1 :, arm] = False
        if learns and i + 1 < len(present):
            later = slice(0 if slots > 1 else int(here[-1]) + 1, None)
            # Those before this one have changed Z as well.
            inner = scored.cross(row, later, current) - steps[:i, row] @ steps[:i, later]
            steps[i, later] = inner / np.sqrt(1 + variances[row])
            variances[later] -= np.square(steps[i, later])
    return scores[:, :count], arms[:count], rows[:count], known[:count]
