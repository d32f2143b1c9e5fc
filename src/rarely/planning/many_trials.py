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

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from rarely.extend import ArmScores, Array, BoolArray, FixedShares, IntArray, Thompson
from rarely.extend.provisional import sample_arms
from rarely.offpolicy.estimates import stages
from rarely.study.effects import MEMORY, NOTHING, Summary, parabola
from rarely.study.looks import Cut
from rarely.study.plan import AnalysisPlan

Rule = Literal["LinTS", "equal", "thall-wathen", "square-root"]


class Trials(NamedTuple):
    """What happened in many trials."""

    arms: IntArray
    """(R, n)."""
    rewards: Array
    """(R, n), also those that never came."""
    chances: Array
    """(R, n, K)."""
    came: Array
    """(R, n): the number of patients when the reward came; infinite if it never did."""
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
        free = Thompson().probabilities(ArmScores(*_posterior(counts, heard, sums)))
    if rule == "LinTS":
        return FixedShares(Thompson(), least).probabilities(ArmScores(*_posterior(counts, heard, sums)))
    free = free ** (share / 2) if rule == "thall-wathen" else free
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
        now = _until(trials, at)
        share = now.known.sum(axis=1) / plan.rounds if at < plan.rounds else np.ones(runs)
        q = _predictions(now, count)
        for arm in range(1, count):
            for run, summary in enumerate(_summaries(now, q, arm)):
                out[run][arm - 1].append(Cut(at, float(share[run]), summary))
    return out


class _Known(NamedTuple):
    arms: IntArray
    rewards: Array
    chances: Array
    known: BoolArray
    within: tuple[float, float] | None


def _until(trials: Trials, at: int) -> _Known:
    known = trials.came[:, :at] <= (at if at < trials.arms.shape[1] else np.finfo(float).max)
    return _Known(trials.arms[:, :at], trials.rewards[:, :at], trials.chances[:, :at], known, trials.within)


def _predictions(now: _Known, count: int) -> Array:
    """Return q (R, n, K): of each arm the mean of its earlier rewards, of all arms if it has none."""
    runs, n = now.arms.shape
    q = np.full((runs, n, count), 0.0 if now.within is None else sum(now.within) / 2)
    for start, end in stages(n):
        known, told = now.known[:, :start], np.where(now.known[:, :start], now.rewards[:, :start], 0.0)
        total = known.sum(axis=1)
        level = np.where(total > 0, told.sum(axis=1) / np.maximum(total, 1), q[0, 0, 0])
        for arm in range(count):
            mine = known & (now.arms[:, :start] == arm)
            heard = mine.sum(axis=1)
            mean = np.where(heard > 0, np.where(mine, told, 0.0).sum(axis=1) / np.maximum(heard, 1), level)
            q[:, start:end, arm] = mean[:, None]
    return q if now.within is None else np.clip(q, *now.within)


def _summaries(now: _Known, q: Array, arm: int) -> Iterator[Summary]:
    """Yield the sums of the difference between an arm and arm 0, as `Scores.until` makes them."""
    known = now.known
    inverse, chosen = 1 / now.chances[..., [arm, 0]], now.arms[..., None] == np.array([arm, 0])
    parts = q[..., [arm, 0]] + chosen * inverse * (now.rewards[..., None] - q[..., [arm, 0]])
    x, h = parts[..., 0] - parts[..., 1], known * _weights(inverse.sum(axis=2), known, 2.0 * now.chances.shape[2])
    total, m = h.sum(axis=1), known.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (h * x).sum(axis=1) / total
        squares = np.square(h * (x - mean[:, None]))
        v, fourth = squares.sum(axis=1), np.square(squares).sum(axis=1)
        centre = np.where(known, now.rewards, 0.0).sum(axis=1) / m
        spread = np.where(known, np.square(now.rewards - centre[:, None]), 0.0).sum(axis=1) / m
        effective = np.where(fourth > 0, v * v / fourth, np.inf)
        parts, none = [], np.zeros(len(m), np.bool_)
        for side in (0, 1):
            mine = known & chosen[..., side]
            count, share = mine.sum(axis=1), np.where(mine, h * inverse[..., side], 0.0)
            single, none = np.square(share).sum(axis=1) / count, none | (count == 0)
            if now.within is None:  # normal rewards are all unlike
                v, effective = v + spread * single, np.minimum(effective, count - 1)
                continue
            level = np.where(mine, share * now.rewards, 0.0).sum(axis=1) / share.sum(axis=1)
            added = (level**2 + (1 - level) ** 2) * single
            v = v + added
            parts.append((np.where(mine, squares, 0.0).sum(axis=1) + added, (count * level + 1) / (count + 2)))
        shapes = (np.broadcast_to(each, m.shape) for each in parabola(parts, mean, total, now.within))
        columns = (m, mean, np.sqrt(v) / total, v, effective, *shapes)
    for row, lacking in zip(zip(*(column.tolist() for column in columns), strict=True), none.tolist(), strict=True):
        yield NOTHING._replace(rounds=row[0], estimate=row[1] if row[0] else math.nan) if lacking else Summary(*row)


def _weights(inverse: Array, known: BoolArray, first: float) -> Array:
    """Return h of each patient, as `stable_weights` does with those whose rewards are known."""
    psi, mean = np.empty(inverse.shape), np.full(len(inverse), first)
    for t in range(inverse.shape[1]):
        psi[:, t] = mean
        mean = mean + known[:, t] * (inverse[:, t] - mean) / MEMORY
    return np.asarray(psi**-0.5)
