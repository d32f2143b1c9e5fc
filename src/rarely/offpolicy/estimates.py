"""What another policy would have earned, from a log of decisions with their probabilities.

    n     rounds       ()      rounds of the log whose rewards are in
    p     logging      (n, K)  probabilities that the arms were drawn from
    π     target       (n, K)  probabilities of the policy to be judged
    w     weights      (n,)    π/p of the chosen arm
    r     rewards      (n,)
    q     q            (n, K)  rewards that a model expects, fitted on the rounds before each alone
    V̂     value        ()      estimate of the target's mean reward in a round
    ψ     influence    (n,)    what each round adds to n(V̂ − V); the error is √(Σψ²/n(n−1))

    ips     V̂ = mean of w·r                              ψ = w·r − V̂
    snips   V̂ = Σ w·r / Σ w                              ψ = w·(r − V̂)/w̄, by the delta method
    dr      V̂ = mean of Σ_a π(a)·q(a) + w·(r − q)        ψ = term − V̂

    difference of two targets: V̂_a − V̂_b, round by round ψ_a − ψ_b

ips and dr are unbiased if the log could choose every arm that the target would: p > 0 wherever π > 0. If p is 0 for
such an arm, or if the log never chose one, `NotIdentified` is raised; if the arm was hardly ever chosen, the estimate
lacks what it pays, and a note says so. A log of `from_arrays(propensities=…)` does not hold the probabilities of arms
that were not chosen: that these are above 0 is then the caller's word. `log.probabilities` is a target all the same,
the old rule: with π = p, q of the chosen arm is an unbiased draw of Σ_a π(a)·q(a), and dr's term is q + 1·(r − q) = r.

A policy that learns between batches decides on what it saw before, so rounds are not independent and make a
martingale. But a version is frozen while it decides and logs the probabilities that it draws from: they are exact,
and each term of ips and dr is unbiased given everything before its round. Normal intervals then rest on the central
limit theorem for martingales, which asks that no weight dominates and that the mean of the terms' conditional
variances settles: with a `Mixture(epsilon)` weights are at most K/ε. Rounds without rewards are left out, which does no
harm as long as whether a reward comes has nothing to do with what it is.

Where only the values of rewards are known, intervals are normal, and a note says when they may be too short: if few
rounds or few unlike rewards count, and of ips if its weights spread less than the probabilities let expect. Rewards
that are all 0 or 1, or that lie in a given `reward_range`, get the score interval of `intervals`, which holds the truth
as often as it says even if few rewards differ from 0.

Ordinary cross-fitting of q learns from later rounds too. Those of a learning policy depend on the reward they are to
predict, and a term would no longer be unbiased given the past; earlier rounds do it no harm.

A target must not have learned from the very rewards that judge it, or its estimate is too good. If the target is a
`Policy`, its history is compared with the log, and a note says how many rounds it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rarely.extend import Array
from rarely.extend.checks import InvalidInput, check_choice, check_positive, read_array, read_real, shown
from rarely.logs.decision_log import DecisionLog, check_log
from rarely.offpolicy import intervals
from rarely.offpolicy.intervals import Range, Span, cut, effective, normal
from rarely.offpolicy.sample import InvalidTarget, NotIdentified, Sample, Target, tied_to_rounds

Estimator = Literal["ips", "snips", "dr"]
MIN_EFFECTIVE_ROUNDS = 50  # effective rounds below which a normal interval may be too short
MIN_UNUSUAL_REWARDS = 40
"""Effective rewards other than the most common one below which a normal interval may be too short."""
MAX_DEVIATIONS = 4  # standard errors that the mean weight may lie from 1
MAX_IPS_DEVIATIONS = 2  # standard errors that it may lie from 1 in ips, whose value goes up and down with it
LEAST_SPREAD = 0.5
"""Variance of the weights, in units of what their probabilities let expect, that a normal interval of ips needs."""
LOGGED = "the log's own rule"
ROUNDING = 1e-9  # a gain within this part of the value is rounding, not a gain
Predict = Callable[[Array], Array]  # (M, d) contexts → (M,) expected rewards
Fit = Callable[[Array, Array], Predict]
"""(m, d) contexts of chosen arms and their (m,) rewards, m ≥ 1 → a prediction for any arm."""
MIN_FIT_ROUNDS = 16  # rounds before slopes are fitted: those of a handful say less than their mean


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean reward of a target in a round, or the difference of two, and how sure it is.

    Examples
    --------
    >>> past = {"arms": [0, 1] * 20, "rewards": [0.0, 10.0] * 20, "propensities": [0.5] * 40}
    >>> log = DecisionLog.from_arrays(np.arange(80.0).reshape(40, 2, 1), **past)
    >>> estimate = snips(log, target=[1] * 40)
    >>> estimate.value, estimate.rounds
    (10.0, 40)
    """

    value: float
    error: float  #: The standard error; infinite for a single round.
    low: float
    high: float  #: The interval of the level: the score interval if `reward_range` is known, the normal one otherwise.
    level: float
    rounds: int  #: Rounds that it is a mean of: those with a reward, for dr with a fitted model all but the first.
    effective_rounds: float
    """(Σw)²/Σw²: how many rounds of the target itself would say about as much. In a difference, w is `|w_a − w_b|`."""
    largest_weight: float
    note: str  #: What to know before trusting it; empty when there is nothing.
    reward_range: Range | None = None  #: Where rewards lie: as given, [0, 1] if all are 0 or 1, None if unknown.


def ips(log: DecisionLog, target: Target, *, level: float = 0.95, reward_range: Any = None) -> Estimate:
    """Estimate by inverse propensity scores: the mean of weighted rewards, wide where weights are large.

    It is unbiased if the log could choose every arm that the target would, and refuses targets of which the log says
    that it could not. Raises `NotIdentified` if the target would choose an arm that had the probability 0, or never the
    arm that was chosen.

    Parameters
    ----------
    log
        Decisions with probabilities and rewards. Whether or not the logging policy learned between batches, each term
        is unbiased given the past: see the module.
    target
        A `Policy` in its current state, (n, K) probabilities, or (n,) arms; or a dictionary of such rows or arms by the
        `ids` of the log's rounds, by their numbers where it has none. If rows of a table were dropped or put in another
        order when the log was read, only a policy or a dictionary says which rounds it means.
    level
        How often the interval is to hold the truth.
    reward_range
        (low, high) if rewards cannot lie elsewhere: the interval then stays inside, and holds with rare rewards, too.
        Rewards that are all 0 or 1 are taken to lie in (0, 1); give another range if they do not.

    Examples
    --------
    >>> past = {"arms": [1, 0, 0, 0], "rewards": [10.0, 0.0, 0.0, 0.0], "propensities": [0.5] * 4}
    >>> ips(DecisionLog.from_arrays(np.zeros((4, 2, 1)), **past), target=[1, 1, 1, 1]).value
    5.0
    """
    return _of_one("ips", log, Sample.of(log, target), None, level, reward_range)


def snips(log: DecisionLog, target: Target, *, level: float = 0.95, reward_range: Any = None) -> Estimate:
    """Estimate by self-normalised inverse propensity scores: inside the rewards' range, steady under a shift of them.

    Not unbiased but consistent: its bias is of the order of 1/n. Arguments and errors are those of `ips`.

    Parameters
    ----------
    log, target, level, reward_range
        As in `ips`.

    Examples
    --------
    >>> log = DecisionLog.from_arrays(np.zeros((2, 2, 1)), [1, 0], [10.0, 0.0], propensities=[0.5, 0.5])
    >>> snips(log, target=[1, 1]).value
    10.0
    """
    return _of_one("snips", log, Sample.of(log, target), None, level, reward_range)


def dr(
    log: DecisionLog, target: Target, *, model: Fit | Any = None, level: float = 0.95, reward_range: Any = None
) -> Estimate:
    """Estimate doubly robustly: a model's rewards under the target, and what it got wrong, weighed as in `ips`.

    With exact propensities, none of them 0 where the target is not, it is unbiased whatever the model; a good one makes
    it narrow. The errors are those of `ips`.

    Parameters
    ----------
    log, target, level, reward_range
        As in `ips`.
    model
        A function fit(contexts, rewards) → predict; `Ridge()`, the default, is one. The model of a round is fitted on
        earlier rounds alone, so each term stays unbiased given the past although the logging policy learned. The first
        round has no model and serves only to fit the next one: `rounds` is one less than that of `ips`. Or an (n, K)
        array: the rewards expected in every round of the log, from a source other than its rewards.

    Examples
    --------
    >>> contexts, arms = np.random.default_rng(0).normal(size=(400, 2, 1)), [0, 1] * 200
    >>> past = {"rewards": 100.0 + contexts[np.arange(400), arms, 0], "propensities": [0.5] * 400}
    >>> log, target = DecisionLog.from_arrays(contexts, arms, **past), contexts[..., 0].argmax(axis=1)
    >>> [round(estimate.error, 1) for estimate in (ips(log, target), snips(log, target), dr(log, target))]
    [5.0, 0.1, 0.0]
    """
    sample = Sample.of(log, target)
    return _of_one("dr", log, sample, rewards_expected(log, model), level, reward_range)


def difference(
    log: DecisionLog,
    a: Target,
    b: Target,
    *,
    estimator: Estimator = "dr",
    model: Fit | Any = None,
    level: float = 0.95,
    reward_range: Any = None,
) -> Estimate:
    """Estimate how much more target `a` would have earned in a round than target `b`.

    Both are estimated from the same rounds, and their terms are subtracted round by round. Noise that they share
    cancels, so the interval is narrower than the two intervals suggest; rounds in which both do the same add nothing.

    The errors are those of `ips`. If the range of rewards is known, the interval is the normal one with the larger of
    two errors, the usual one and `pooled_error`, cut to what a difference can be.

    Parameters
    ----------
    log, level, reward_range
        As in `ips`.
    a, b
        Two targets, each as in `ips`.
    estimator, model
        "ips", "snips" or "dr"; as in `dr`, for this estimator.

    Examples
    --------
    >>> contexts, arms = np.random.default_rng(0).normal(size=(400, 2, 1)), [0, 1] * 200
    >>> past = {"rewards": 3.0 * contexts[np.arange(400), arms, 0], "propensities": [0.5] * 400}
    >>> log = DecisionLog.from_arrays(contexts, arms, **past)
    >>> better = difference(log, contexts[..., 0].argmax(axis=1), log.probabilities)
    >>> better.low < 3 / np.pi**0.5 < better.high
    True
    """
    check_choice("estimator", estimator, Estimator)
    if model is not None and estimator != "dr":
        raise InvalidInput(f"model must be None with {estimator!r}, because only dr has one; got {shown(model)}.")
    samples = [Sample.of(log, a), Sample.of(log, b)]
    q = rewards_expected(log, model) if estimator == "dr" else None
    return _of_two(estimator, log, samples, q, level, reward_range)


def against_holdout(log: DecisionLog, *, level: float = 0.95) -> Estimate:
    """Estimate how much more a round earns that the policy decides than one that was left to a lot.

    It is the difference of two means, of the rounds that `log.held_out` marks and of the others, and needs no
    probabilities. `difference(log, log.probabilities, …)` uses all rounds for both, so its interval is shorter. Raises
    `NotIdentified` if fewer than two rounds with a reward were held out, or fewer than two were not.

    Parameters
    ----------
    log
        Decisions of a policy with `exploration=Mixture(…)`, and their rewards.
    level
        As in `ips`.

    Examples
    --------
    >>> from rarely import LinUCB, Mixture
    >>> contexts, log = np.tile([[[0.0], [1.0]]], (400, 1, 1)), DecisionLog()
    >>> decision = LinUCB(dim=1, exploration=Mixture(0.2), within_batch="frozen", seed=0).select(contexts)
    >>> log.record(contexts, decision)
    >>> log.observe(decision, 1.0 * decision.arm)
    >>> gain = against_holdout(log)  # the policy always takes arm 1, a lot every other time
    >>> gain.rounds, gain.low < 0.5 < gain.high
    (400, True)
    """
    rewarded = ~np.isnan(log.rewards)
    marked, rewards = np.isin(log.rounds[rewarded], list(log.held_out)), log.rewards[rewarded]
    decided, drawn = rewards[~marked], rewards[marked]
    if min(len(decided), len(drawn)) < 2:
        raise NotIdentified(
            f"two rounds with a reward must be held out, and two not; got {len(drawn)} and {len(decided)}. Decide with "
            "exploration=Mixture(0.1), and record the decisions themselves: a log read from a file has no marks."
        )
    value = float(decided.mean() - drawn.mean())
    error = math.sqrt(decided.var(ddof=1) / len(decided) + drawn.var(ddof=1) / len(drawn))
    weights = np.where(marked, 1 / len(drawn), 1 / len(decided)) * len(rewards)
    numbers = (value, error, normal(value, error, intervals.deviations(level)), level, None)
    return _estimate(numbers, weights, log)


def _of_one(
    estimator: Estimator, log: DecisionLog, sample: Sample, q: Array | None, level: float, reward_range: Any
) -> Estimate:
    within = intervals.read_range(reward_range, sample.rewards)
    terms = terms_of(estimator, sample, q)
    error, z = _error_of(terms.influence), intervals.deviations(level)
    span = None if within is None else _span_of(estimator, terms.weights, within)
    if within is None:
        interval = normal(terms.value, error, z)
    elif span is None:
        interval = cut(normal(cut((terms.value,) * 2, within)[0], error, z), within)
    else:
        # The terms of an old rule that is not fully known are rewards, whatever a model foresees of them.
        whole = np.isnan(sample.target).any()
        residuals = around_mean(terms.weights, terms.rewards) if whole else terms.residuals
        share = intervals.variance_share(terms.weights, terms.rewards, residuals, within)
        interval = intervals.score(terms.value, error, z, span, share, within)
    notes = [
        _note_on_target(sample, spread=span is None and estimator == "ips"),
        _note_on_rewards(terms.weights, terms.rewards, error, None if span is None else within),
        _note_on_value(terms.value, within),
        note_on_weights(terms.weights) if span is None else "",
    ]
    return _estimate((terms.value, error, interval, level, within), terms.weights, log, *notes)


def _of_two(
    estimator: Estimator, log: DecisionLog, samples: Sequence[Sample], q: Array | None, level: float, reward_range: Any
) -> Estimate:
    within = intervals.read_range(reward_range, samples[0].rewards)
    one, other = (terms_of(estimator, sample, q) for sample in samples)
    value, influence = one.value - other.value, one.influence - other.influence
    weights = one.weights / one.scale - other.weights / other.scale
    error, z = _error_of(influence), intervals.deviations(level)
    interval = normal(value, error, z)
    if within is not None:
        distance = within[1] - within[0]
        residuals = one.residuals if estimator == "dr" else around_mean(np.abs(weights), one.rewards)
        widest = max(error, intervals.pooled_error(weights, residuals, distance))
        interval = cut(normal(value, widest, z), (-distance, distance))
    spread = within is None and estimator == "ips"
    notes = [
        *(_note_on_target(sample, f"target {name}", spread=spread) for sample, name in zip(samples, "ab", strict=True)),
        _note_on_rewards(weights, one.rewards, error, within),
        note_on_weights(weights) if within is None else "",
    ]
    return _estimate((value, error, interval, level, within), np.abs(weights), log, *notes)


def _estimate(
    numbers: tuple[float, float, Range, float, Range | None], weights: Array, log: DecisionLog, *notes: str
) -> Estimate:
    value, error, (low, high), level, within = numbers
    why = f"; in {len(log.overrides)} of them a person gave another arm than the one decided" if log.overrides else ""
    missing = f"{log.missing} of {len(log)} rounds have no reward and are left out{why}." if log.missing else ""
    note = " ".join(filter(None, (missing, *notes)))
    rounds, largest = effective(weights), float(weights.max())
    return Estimate(value, error, low, high, level, len(weights), rounds, largest, note, within)


def _span_of(estimator: Estimator, weights: Array, within: Range) -> Span | None:
    """Return between which values the variance of the estimate vanishes; None for ips of rewards below 0.

    A term w·r of ips is 0 or more and on average at most (Σw²/Σw)·high where it counts, so its variance vanishes at 0
    and not at `high`: at all rewards 1 the weights still differ.
    """
    low, high = within
    if estimator != "ips":
        return Span(low, high, effective(weights))
    total = float(weights.sum())
    return Span(0.0, high * float(np.square(weights).sum()) / total, total) if low >= 0 else None


def _error_of(influence: Array) -> float:
    n = len(influence)
    return math.sqrt(float(np.square(influence).sum()) / (n * (n - 1))) if n > 1 else math.inf


# --- what each round adds to an estimate


class Terms(NamedTuple):
    """What an estimator makes of each round."""

    value: float
    influence: Array
    rewards: Array
    weights: Array
    scale: float  # what the estimator divides weights by, w̄ or 1
    residuals: Array  # rewards less what is expected of them: by the model of dr, by their weighted mean otherwise


def terms_of(estimator: Estimator, sample: Sample, q: Array | None) -> Terms:
    """Return the terms of a target; `q`, (rounds of the log, K), has the rewards expected of dr, and else is None."""
    if q is not None and np.isnan(q[sample.places[0]]).all():
        sample = sample.later()
    w, r = sample.weights, sample.rewards
    if estimator == "snips":
        scale, value = float(w.mean()), float((w * r).sum() / w.sum())
        return Terms(value, w * (r - value) / scale, r, w, scale, r - value)
    if q is None:
        terms, residuals = w * r, around_mean(w, r)
    else:
        q = q[sample.places]
        chosen, expected = q[np.arange(len(q)), sample.arms], (sample.target * q).sum(axis=1)
        residuals = r - chosen
        # The old rule of a log that knows the chosen arms' probabilities alone.
        terms = np.where(np.isnan(expected), chosen, expected) + w * residuals
    value = float(terms.mean())
    return Terms(value, terms - value, r, w, 1.0, residuals)


def around_mean(weights: Array, rewards: Array) -> Array:
    """Return the rewards less their weighted mean."""
    total = float(weights.sum())
    return rewards - (float(weights @ rewards) / total if total else 0.0)


def rewards_expected(log: DecisionLog, model: Any) -> Array:
    """Return q of a model that is fitted, or of rewards that are given; NaN in the first round, before any fit."""
    if model is None or callable(model):
        return reward_model(log, model)
    present = log.present
    wanted = f"model must be a function that fits, such as Ridge(), or finite rewards of shape {present.shape}"
    try:
        q = read_real(model, "rewards of a model", InvalidInput)
    except InvalidInput as error:
        raise InvalidInput(f"{wanted}, one for each arm of each round; {error}") from None
    if q.shape != present.shape or not np.isfinite(q[present]).all():
        raise InvalidInput(f"{wanted}, one for each arm of each round; got {type(model).__name__} of shape {q.shape}.")
    return np.where(present, q, 0.0)


# --- what to know before an estimate is trusted, in sentences
#
# A note is to mean something: it is rare where intervals hold the truth as often as they say, and frequent where they
# do not. `benchmarks/offpolicy_notes.py` measures both. The skewness of the terms says nothing: a log that met its
# largest terms has a wide interval, and one that did not looks even.


def _note_on_target(sample: Sample, name: str = "target", *, spread: bool = False) -> str:
    """Say if the target may have learned from the rounds that judge it, or if its weights do not average 1.

    `spread`: those of ips must spread as the probabilities let expect, too.
    """
    weights, off = sample.weights, sample.deviations
    said = []
    if sample.learned:
        said.append(
            f"The {name} had {sample.learned} of these {len(weights)} rounds when it was last updated: it may have "
            "learned from their rewards, and the estimate is then too good. Judge it by rounds that came later."
        )
    average = f"The weights of the {name} average {weights.mean():.2f} where 1 is expected, "
    unmet = "its largest were hardly met, and the interval of ips may be too short. snips and dr depend less on that."
    if abs(off) > MAX_DEVIATIONS:
        wrong = "the probabilities on record are too small for how often the arms were chosen."
        if off < 0:
            wrong = (
                "it wants arms that the log had next to no chance to choose, and what they pay is not in this "
                "estimate, or the probabilities on record are wrong. Log with an exploration, as Mixture(0.05)."
            )
        said.append(f"{average}{abs(off):.0f} standard errors away: {wrong}")
    elif spread and effective(weights) >= MIN_EFFECTIVE_ROUNDS:  # of fewer another note speaks
        if weights.var() < LEAST_SPREAD * sample.variance:
            expected = f"{math.sqrt(sample.variance):.3g} is expected of the probabilities"
            said.append(f"The weights of the {name} spread {weights.std():.3g} where {expected}: {unmet}")
        elif abs(off) > MAX_IPS_DEVIATIONS:
            said.append(f"{average}{abs(off):.1f} standard errors away: {unmet}")
    return " ".join(said)


def note_on_weights(weights: Array) -> str:
    """Say if the effective rounds are too few for a normal interval."""
    rounds = effective(np.abs(weights))
    if rounds >= MIN_EFFECTIVE_ROUNDS or not weights.any() or len(weights) == 1:  # one round has no finite interval
        return ""
    return f"The weights leave {rounds:.1f} effective rounds, so few that the interval may be too short."


def _note_on_rewards(weights: Array, rewards: Array, error: float, within: Range | None) -> str:
    """Say if the rewards that count are all the same or, with a normal interval, nearly all."""
    counted, sizes = rewards[weights != 0], np.abs(weights[weights != 0])
    if len(counted) < 2:
        return "A single reward counts, and it does not show how far others may lie from it." if len(counted) else ""
    values, times = np.unique(counted, return_counts=True)
    common = values[times.argmax()]
    others = int(len(counted) - times.max())
    unusual = sizes[counted != common]
    # Rare rewards that met small weights only look more even than the next ones will be.
    rare = min(effective(unusual), effective(sizes) * float(unusual.sum() / sizes.sum()))
    if rare >= MIN_UNUSUAL_REWARDS or 2 * others > len(counted) or (others and within is not None):
        return ""
    what = f"All {len(counted)} rewards that count are {common:g}"
    if others:
        what = f"Only {others} of {len(counted)} rewards that count differ from {common:g} ({rare:.1f} effective)"
    give = "give it as reward_range=(low, high)."
    if within is None:
        short = "has no width, which says nothing of rarer rewards" if error == 0 else "may be too short"
        return f"{what}: the interval {short}. If rewards have a range, {give}"
    alone = f"the interval rests on the range of rewards alone, [{within[0]:g}, {within[1]:g}]"
    return f"{what}: {alone}. If it is another, {give}"


def _note_on_value(value: float, within: Range | None) -> str:
    """Say if the value lies beyond the range of rewards."""
    if within is None or within[0] <= value <= within[1]:
        return ""
    return (
        f"The value lies outside the range of rewards, [{within[0]:g}, {within[1]:g}], because the weights of so few "
        "rounds do not average 1; the interval is cut to the range. The value of snips always lies inside."
    )


@dataclass(frozen=True)
class Ridge:
    """q(x) = r̄ + (x − x̄)ᵀθ, with ‖θ‖² weighed by `strength` times the mean variance of the columns.

    The intercept is free, so rewards and contexts may lie anywhere, on any common scale.

    Examples
    --------
    >>> x = np.arange(20.0)[:, None]
    >>> Ridge(strength=1e-9)(x, 7 + 2 * x[:, 0])(np.array([[100.0]])).round(3)
    array([207.])
    """

    strength: float = 1.0

    def __post_init__(self) -> None:
        check_positive("strength", self.strength, "because it makes the equations solvable")

    def __call__(self, contexts: Array, rewards: Array) -> Predict:
        center, level = contexts.mean(axis=0), float(rewards.mean())
        x = contexts - center
        gram = x.T @ x
        penalty = self.strength * float(np.trace(gram)) / x.size
        if len(x) < MIN_FIT_ROUNDS or penalty == 0.0:
            return lambda rows: np.full(len(rows), level)
        theta = np.linalg.solve(gram + penalty * np.eye(len(gram)), x.T @ (rewards - level))
        return lambda rows: np.asarray(level + (rows - center) @ theta)


def reward_model(log: DecisionLog, fit: Fit | None = None) -> Array:
    """Return q, fitted anew whenever the earlier rounds have grown by half; NaN in the first round, which has no model.

    Where all arms share a row, each arm has a model of its own; until its first reward, that of all arms. Of rounds
    without a reward nothing is predicted either.
    """
    places, out = log.observed, np.full((len(log), log.arm_count), np.nan)
    arms, rewards, rows, contexts = log.arms[places], log.rewards[places], log.rows, log.contexts[places]
    present = log.present[places]
    for start, end in stages(len(places)):
        here, there = places[start:end], present[start:end]
        if contexts.shape[2] or rows is None:
            chosen = contexts[np.arange(start), arms[:start]]
            values = np.zeros(there.shape)
            values[there] = _predicted(fit or Ridge(), chosen, rewards[:start], contexts[start:end][there])
            out[here] = values
            continue
        for arm in range(log.arm_count):
            mine = np.flatnonzero(arms[:start] == arm) if (arms[:start] == arm).any() else np.arange(start)
            out[here, arm] = _predicted(fit or Ridge(), rows[places[mine]], rewards[mine], rows[here])
    return out


def _predicted(fit: Fit, contexts: Array, rewards: Array, rows: Array) -> Array:
    try:
        predictions = fit(contexts, rewards)(rows)
    except TypeError as reason:
        raise InvalidInput(
            "model must be a function fit(contexts, rewards) that returns a function predict(contexts), such as "
            f"Ridge(); {reason}."
        ) from reason
    values = read_real(predictions, "predictions of a model", InvalidInput)
    if values.shape != (len(rows),) or not np.isfinite(values).all():
        raise InvalidInput(
            f"a model must predict one finite reward for each context; for {len(rows)} contexts it gave "
            f"{values.shape}{'' if np.isfinite(values).all() else ', not all finite'}."
        )
    return values


def stages(rounds: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of rounds, from … to, that share a model; the first round has none.

    >>> list(stages(11))
    [(1, 2), (2, 3), (3, 4), (4, 6), (6, 9), (9, 11)]
    """
    start = 1
    while start < rounds:
        end = min(rounds, start + max(1, start // 2))
        yield start, end
        start = end


class Judgement(NamedTuple):
    """What one estimator says of one target; `estimate` is None if the log says nothing of it, as `reason` explains."""

    target: str
    estimator: Estimator
    estimate: Estimate | None
    gain: Estimate | None = None  # how much more it would have earned than the rule that made the log
    reason: str = ""


class Evaluation(tuple[Judgement, ...]):
    """Judgements of several targets; as text a table with the notes.

    Examples
    --------
    >>> print(Evaluation([Judgement("always tea", "ips", None, reason="the log never chose it")]))
    target                     by        value               interval      gain over the log  effective rounds
    always tea                 ips   the log never chose it
    """

    def __str__(self) -> str:
        form = "{:26.26} {:5} {:>9}  {:>21}  {:>21}  {:>16}"
        lines = [form.format("target", "by", "value", "interval", "gain over the log", "effective rounds")]
        notes: dict[str, list[str]] = {}
        for target, by, estimate, gain, reason in self:
            if estimate is None:
                lines.append(f"{target:26.26} {by:5} {reason}")
                continue
            spans = ("" if each is None else f"{each.low:.4g} to {each.high:.4g}" for each in (estimate, gain))
            lines.append(form.format(target, by, f"{estimate.value:.4g}", *spans, f"{estimate.effective_rounds:.0f}"))
            notes.setdefault(estimate.note, []).append(f"{target}, {by}")
        for note, about in notes.items():
            who = "; ".join(about) if len(about) < 4 else f"{len(about)} estimates"
            lines += [f"note ({who}): {note}"] if note else []
        return "\n".join(lines)

    def describe(self) -> list[dict[str, Any]]:
        """Return the judgements as JSON."""
        return [{k: asdict(v) if isinstance(v, Estimate) else v for k, v in each._asdict().items()} for each in self]


def evaluate(
    log: DecisionLog,
    targets: Mapping[str, Target] | None = None,
    *,
    estimators: Sequence[Estimator] = get_args(Estimator),
    level: float = 0.95,
    reward_range: Any = None,
) -> Evaluation:
    """Judge several targets by one log, by several estimators, and against the rule that made the log.

    Parameters
    ----------
    log, level, reward_range
        As in `ips`.
    targets
        Your own by name, each as in `ips`; or the names of arms, one a round of the log; or a function that returns
        either, given the log's columns by their names. Besides them: the log's own rule, all arms alike, and each
        arm always, if it was available in every round. Rounds are in the log's order, which is that of `time`.
    estimators
        By default all three.

    Examples
    --------
    >>> frame = {"age": [20, 30, 40, 50], "offer": ["tea", "rum", "tea", "rum"], "paid": [1, 0, 1, 1], "p": [0.5] * 4}
    >>> log = DecisionLog.from_frame(frame, arm="offer", reward="paid", probability="p")
    >>> [(each.target, each.estimate.value) for each in evaluate(log, estimators=["snips"])]
    [("the log's own rule", 0.75), ('all arms alike', 0.75), ('always rum', 0.5), ('always tea', 1.0)]
    """
    check_log(log)
    for estimator in estimators:
        check_choice("estimators", estimator, Estimator)
    if not isinstance(targets, Mapping | None):
        raise InvalidTarget(
            f"targets must be a dictionary of targets by name, such as {{'new': …}}; got {shown(targets)}."
        )
    present, made = log.present, []
    alike = present / present.sum(axis=1, keepdims=True)
    every: dict[str, Target] = {LOGGED: log.probabilities, "all arms alike": alike}
    every |= {f"always {log.arm_name(k)}": [k] * len(log) for k in np.flatnonzero(present.all(axis=0)).tolist()}
    every |= {name: _read_target(log, target) for name, target in (targets or {}).items()}
    sample_of = cache(lambda name: Sample.of(log, every[name]))
    model = reward_model(log) if "dr" in estimators else None
    for name, estimator in product(every, estimators):
        q = model if estimator == "dr" else None
        try:
            estimate = _of_one(estimator, log, sample_of(name), q, level, reward_range)
            both = [sample_of(name), sample_of(LOGGED)]
            gain = None if name == LOGGED else _of_two(estimator, log, both, q, level, reward_range)
            least = ROUNDING * max(abs(estimate.value), 1e-300)
            if gain is not None and max(abs(gain.low), abs(gain.high)) < least:
                gain = replace(gain, value=0.0, low=0.0, high=0.0)
            made.append(Judgement(name, estimator, estimate, gain))
        except NotIdentified as error:
            made.append(Judgement(name, estimator, None, reason=str(error)))
    return Evaluation(made)


def _read_target(log: DecisionLog, target: Any) -> Target:
    """Return a target with the names of arms as numbers, and a function's answer for the log's rows."""
    tied = isinstance(target, Mapping)
    if tied:
        target = tied_to_rounds(target, log)
    elif callable(target) and not hasattr(target, "select"):
        if log.rows is None or not log.names:
            raise InvalidTarget("a target that is a function needs a log whose rows have named columns.")
        target, tied = target({name: log.rows[:, i] for i, name in enumerate(log.names)}), True
    names = read_array(target, "a target", InvalidTarget) if isinstance(target, Sequence | np.ndarray) else None
    if names is not None and names.dtype.kind in "UO" and log.arm_names:
        numbers = {name: number for number, name in enumerate(log.arm_names)}
        if unknown := sorted({str(name) for name in names.ravel().tolist()} - numbers.keys()):
            arms = ", ".join(map(repr, log.arm_names))
            raise InvalidTarget(f"a target must name arms of the log, {arms}; got {', '.join(map(repr, unknown))}.")
        target = [numbers[str(name)] for name in names.ravel().tolist()]
    fits = tied and np.shape(target)[:1] == (len(log),)
    return dict(zip(log.ids or log.rounds.tolist(), target, strict=True)) if fits else target
