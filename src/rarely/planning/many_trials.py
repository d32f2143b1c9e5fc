"""Many trials of arms without covariates at once, patient by patient for all of them: LinTS, and rules to compare with.

    R, n, K   trials, patients, arms        p   (R, K)   probabilities, which change when the policy is updated

LinTS is decided as `rarely.LinTS` decides with a constant and a column for each arm: the same posterior, rule, random
numbers and limits, so a trial replayed through a `Study` is the same. The others have the same limits and updates:

    equal          every arm alike, always: the randomised trial
    thall-wathen   P(best)^(t/2n) of the posterior, after t of n patients (Thall and Wathen, 2007)
    square-root    √q̂ of binary rewards, q̂ the arm's share of successes (Rosenberger et al., 2001)

A reward comes after later patients, or never; a look and an update know those that have come.
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
from rarely.study.looks import Cut
from rarely.study.plan import AnalysisPlan

Rule = Literal["LinTS", "equal", "thall-wathen", "square-root"]


class Trials(NamedTuple):
    """What happened in many trials."""

    arms: IntArray  # (R, n)
    rewards: Array  # (R, n), also those that never came
    chances: Array  # (R, n, K)
    came: Array  # (R, n): the number of patients when the reward came; infinite if it never did
    within: tuple[float, float] | None


def play(
    rule: Rule,
    rewards: Array,
    burn_in: int,
    least: float,
    updates: Sequence[int],
    seeds: Sequence[int],
    came: Array | None = None,
) -> Trials:
    """Play trials on (R, n, K) rewards of all arms; `seeds` are those of the policies, `came` as in `Trials`."""
    runs, n, count = rewards.shape
    uniforms = np.stack([np.random.default_rng(seed).random(n) for seed in seeds])
    arms, chances = np.zeros((runs, n), np.int64), np.full((runs, n, count), 1 / count)
    came = np.broadcast_to(np.arange(1.0, n + 1), (runs, n)) if came is None else came
    told = np.zeros((runs, n))
    for start, end in pairwise([0, *(update for update in updates if update < n), n]):
        if start >= burn_in and rule != "equal":
            known = came[:, :start] <= start
            p = _chances(rule, arms[:, :start], told[:, :start], known, count, least, start / n)
            chances[:, start:end] = p[:, None]
        flat = chances[:, start:end].reshape(-1, count)
        arms[:, start:end] = sample_arms(flat, uniforms[:, start:end].ravel()).reshape(runs, end - start)
        told[:, start:end] = np.take_along_axis(rewards[:, start:end], arms[:, start:end, None], axis=2)[..., 0]
    within = (0.0, 1.0) if ((rewards == 0) | (rewards == 1)).all() else None
    return Trials(arms, told, chances, came, within)


def _chances(
    rule: Rule, arms: IntArray, told: Array, known: BoolArray, count: int, least: float, share: float
) -> Array:
    """Return (R, K) probabilities of the next patients, given those before."""
    one = arms[..., None] == np.arange(count)
    counts, heard = one.sum(axis=1).astype(float), (one & known[..., None]).sum(axis=1).astype(float)
    sums = np.where(one & known[..., None], told[..., None], 0.0).sum(axis=1)
    if rule == "square-root":
        free = np.sqrt((sums + 0.5) / (heard + 1))
    else:
        scores = ArmScores(*_posterior(counts, heard, sums))
        if rule == "LinTS":
            return FixedShares(Thompson(), least).probabilities(scores)
        free = Thompson().probabilities(scores) ** (share / 2)
    return np.asarray(least + (1 - least * count) * free / free.sum(axis=1, keepdims=True))


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


def cuts_of(trials: Trials, plan: AnalysisPlan) -> list[list[list[Cut]]]:
    """Return, for each trial and each comparison with arm 0, what was known at the looks of the plan."""
    runs, _, count = trials.chances.shape
    out: list[list[list[Cut]]] = [[[] for _ in range(count - 1)] for _ in range(runs)]
    for at in plan.at:
        known = trials.came[:, :at] <= (at if at < plan.rounds else np.finfo(float).max)
        share = known.sum(axis=1) / plan.rounds if at < plan.rounds else np.ones(runs)
        arms, rewards, chances = trials.arms[:, :at], trials.rewards[:, :at], trials.chances[:, :at]
        q = _predictions(arms, rewards, known, count, trials.within)
        for arm in range(1, count):
            pair = [arm, 0]
            inverse = 1 / chances[..., pair]
            chosen = (arms[..., None] == pair) * inverse
            x = (q[..., pair] + chosen * (rewards[..., None] - q[..., pair])) @ np.array([1.0, -1.0])
            h = known * stable_weights(inverse.sum(axis=2), 2.0 * count, known)
            found = summarise(x, h, np.moveaxis(h[..., None] * chosen, 2, 0), rewards, trials.within)
            for run, summary in enumerate(found):
                out[run][arm - 1].append(Cut(at, float(share[run]), summary))
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
