"""Many trials of arms without covariates at once, patient by patient for all of them: LinTS, and rules to compare with.

    R, n, K   trials, patients, arms        p   (R, K)   probabilities, which change when the policy is updated

LinTS is decided as `rarely.LinTS` decides with a constant and a column for each arm: the same posterior, rule, random
numbers and limits, so a trial replayed through a `Study` is the same. The others have the same limits and updates:

    equal          every arm alike, always: the randomised trial
    thall-wathen   P(best)^(t/2n) of the posterior, after t of n patients (Thall and Wathen, 2007)
    square-root    √q̂ of binary rewards, q̂ the arm's share of successes (Rosenberger et al., 2001)

A reward comes after later patients, or never; a look and an update know those that have come. Where the plan names an
effect, an arm that a look finds futile gets no further patients, as one that a study closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from rarely.extend import ArmScores, Array, BoolArray, FixedShares, IntArray, Thompson
from rarely.extend.provisional import sample_arms
from rarely.offpolicy.estimates import stages
from rarely.study.effects import stable_weights, summarise
from rarely.study.looks import Cut, is_futile, share_of
from rarely.study.plan import AnalysisPlan

Rule = Literal["LinTS", "equal", "thall-wathen", "square-root"]


class Trials(NamedTuple):
    """What happened in many trials."""

    arms: IntArray  # (R, n)
    rewards: Array  # (R, n), also those that never came
    chances: Array  # (R, n, K)
    came: Array  # (R, n): the number of patients when the reward came; infinite if it never did
    within: tuple[float, float] | None

    @property
    def ended(self) -> IntArray:
        """(R,): the patients of each trial before its last arm but the control arm was closed; n if one stayed open."""
        return np.asarray((self.chances[:, :, 1:] > 0).any(axis=2).sum(axis=1))


def play(
    rule: Rule,
    rewards: Array,
    burn_in: int,
    least: float,
    updates: Sequence[int],
    seeds: Sequence[int],
    came: Array | None = None,
    plan: AnalysisPlan | None = None,
) -> Trials:
    """Play trials on (R, n, K) rewards of all arms; `seeds` are those of the policies, `came` as in `Trials`.

    With a plan that names an effect its looks, which must be among the updates, close arms for futility.
    """
    runs, n, count = rewards.shape
    uniforms = np.stack([np.random.default_rng(seed).random(n) for seed in seeds])
    arms, chances = np.zeros((runs, n), np.int64), np.full((runs, n, count), 1 / count)
    came = np.broadcast_to(np.arange(1.0, n + 1), (runs, n)) if came is None else came
    told, open_ = np.zeros((runs, n)), np.ones((runs, count), np.bool_)
    within = (0.0, 1.0) if ((rewards == 0) | (rewards == 1)).all() else None
    for start, end in pairwise([0, *(update for update in updates if update < n), n]):
        if plan is not None and plan.effect is not None and start in plan.at:
            before = Trials(arms[:, :start], told[:, :start], chances[:, :start], came[:, :start], within)
            open_ &= ~_futile(before, plan, open_)
        p = open_ / open_.sum(axis=1, keepdims=True)
        if start >= burn_in and rule != "equal":
            known = came[:, :start] <= start
            p = _chances(rule, arms[:, :start], told[:, :start], known, open_, least, start / n)
        chances[:, start:end] = p[:, None]
        flat = chances[:, start:end].reshape(-1, count)
        arms[:, start:end] = sample_arms(flat, uniforms[:, start:end].ravel()).reshape(runs, end - start)
        told[:, start:end] = np.take_along_axis(rewards[:, start:end], arms[:, start:end, None], axis=2)[..., 0]
    return Trials(arms, told, chances, came, within)


def _chances(
    rule: Rule, arms: IntArray, told: Array, known: BoolArray, open_: BoolArray, least: float, share: float
) -> Array:
    """Return (R, K) probabilities of the next patients, given those before, and which arms are open."""
    one = arms[..., None] == np.arange(open_.shape[1])
    counts, heard = one.sum(axis=1).astype(float), (one & known[..., None]).sum(axis=1).astype(float)
    sums = np.where(one & known[..., None], told[..., None], 0.0).sum(axis=1)
    if rule == "square-root":
        free = np.sqrt((sums + 0.5) / (heard + 1)) * open_
    else:
        means, deviations = _posterior(counts, heard, sums)
        scores = ArmScores(np.where(open_, means, np.nan), deviations)
        if rule == "LinTS":
            return FixedShares(Thompson(), least).probabilities(scores)
        free = Thompson().probabilities(scores) ** (share / 2)
    floors = least * open_
    left = 1 - floors.sum(axis=1, keepdims=True)
    return np.asarray(floors + left * free / free.sum(axis=1, keepdims=True))


def _posterior(counts: Array, heard: Array, sums: Array) -> tuple[Array, Array]:
    """Return means and deviations of the arms by ridge regression on a column for each arm, and a constant."""
    count = counts.shape[1]
    x = np.column_stack([np.eye(count), np.ones(count)])

    def matrix(weights: Array) -> Array:
        return np.asarray(np.eye(count + 1) + np.einsum("rk,ki,kj->rij", weights, x, x))

    theta = np.linalg.solve(matrix(heard), (sums @ x)[..., None])[..., 0]
    spread = np.einsum("ki,rij,kj->rk", x, np.linalg.inv(matrix(counts)), x)
    return theta @ x.T, np.sqrt(spread)


# --- what was known at each look


def _futile(trials: Trials, plan: AnalysisPlan, open_: BoolArray) -> BoolArray:
    """Return (R, K): which of the open arms the last of the looks so far finds futile."""
    cuts, found = cuts_of(trials, plan), np.zeros(open_.shape, np.bool_)
    for run, arm in np.argwhere(open_[:, 1:]):
        found[run, arm + 1] = is_futile(cuts[run][arm], plan, share_of(plan, len(cuts[run])))
    return found


def cuts_of(trials: Trials, plan: AnalysisPlan) -> list[list[list[Cut]]]:
    """Return, for each trial and each comparison with arm 0, what was known at the looks that have come.

    An arm that was closed has the share of its own outcomes, as in `Study.analysis`.
    """
    runs, n, count = trials.chances.shape
    out: list[list[list[Cut]]] = [[[] for _ in range(count - 1)] for _ in range(runs)]
    for at in (at for at in plan.at if at <= n):
        known = trials.came[:, :at] <= (at if at < plan.rounds else np.finfo(float).max)
        share = known.sum(axis=1) / plan.rounds if at < plan.rounds else np.ones(runs)
        arms, rewards, chances = trials.arms[:, :at], trials.rewards[:, :at], trials.chances[:, :at]
        q = _predictions(arms, rewards, known, count, trials.within)
        for arm in range(1, count):
            pair = [arm, 0]
            both = known & (chances[..., pair] > 0).all(axis=2)
            inverse = 1 / np.where(both[..., None], chances[..., pair], 1.0)
            chosen = (arms[..., None] == pair) * inverse
            x = (q[..., pair] + chosen * (rewards[..., None] - q[..., pair])) @ np.array([1.0, -1.0])
            h = both * stable_weights(inverse.sum(axis=2), 2.0 * count, both)
            found = summarise(x, h, np.moveaxis(h[..., None] * chosen, 2, 0), rewards, trials.within)
            closed = chances[:, -1, arm] == 0
            for run, summary in enumerate(found):
                own = min(share[run], summary.rounds / plan.rounds) if closed[run] else share[run]
                out[run][arm - 1].append(Cut(at, float(own), summary))
    return out


def _predictions(arms: IntArray, rewards: Array, known: BoolArray, count: int, within: Any) -> Array:
    """Return q (R, n, K): of each arm the mean of its earlier rewards, of all arms if it has none."""
    runs, n = arms.shape
    q = np.full((runs, n, count), 0.0 if within is None else sum(within) / 2)
    for start, end in stages(n):
        heard = known[:, :start, None] & (arms[:, :start, None] == np.arange(count))
        told = np.where(heard, rewards[:, :start, None], 0.0).sum(axis=1)
        counts, total = heard.sum(axis=1), known[:, :start].sum(axis=1)
        level = np.where(total > 0, told.sum(axis=1) / np.maximum(total, 1), q[0, 0, 0])
        q[:, start:end] = np.where(counts > 0, told / np.maximum(counts, 1), level[:, None])[:, None]
    return q if within is None else np.clip(q, *within)
