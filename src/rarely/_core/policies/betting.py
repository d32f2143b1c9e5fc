"""A test by betting: do the errors of the newest predictions say what the next error will be?

    f   (n,)  what the version in use predicted         e = r − f     r within the rewards so far
    g   (n,)  what the errors before each one, in a window, predict of it: a Gaussian process on errors
    d = e² − (e − g)²     what the correction g would have gained        c   the largest |d| that was possible, given g

In a world that stands still no correction helps: E(d) ≤ 0 given the past, so 1 + κd/c is a fair bet for each κ < 1.

    E = mean over κ of Π(1 + κd/c)              of the newest batch, at most AT_ONCE rewards at a time
    S ← (S + mass)·E                            one for each window; the masses of a life sum to 1
    alarm when the mean of S is 1/LEVEL

S plus the mass that is left is a supermartingale from 1, so that an alarm is raised in a part LEVEL of all lives at
most, however long they are (Ville's inequality), with all windows and all beginnings of a change paid for: an
e-detector (Shin, Ramdas and Rinaldo, 2022). Nothing is assumed of how rewards spread around their means.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rarely._core.covariance.cholesky import cholesky, lower_inverse
from rarely._core.types import Array

LEVEL = 0.05
WINDOWS = (0, 64, 192)  # how many errors before those of the newest batch a correction may be learned from
AT_ONCE, LATEST = 512, 2048
"""Rewards that are predicted together, a cubic cost, and of a batch the latest ones that bets are made on."""
STAKES = np.array([0.1, 0.3, 0.9])  # κ
HEAVY, CLIP = 8.0, 3.0
"""Robust standard deviations beyond which errors have heavy tails, and at which these are clipped."""


class Bets(NamedTuple):
    """What was won so far, in each window, and between which rewards bets are made."""

    won: tuple[float, ...] = (0.0,) * len(WINDOWS)
    low: float = math.inf
    high: float = -math.inf

    def seen(self, rewards: Array) -> Bets:
        """Return the bets after rewards, which bound those to come."""
        return self._replace(low=min(self.low, float(rewards.min())), high=max(self.high, float(rewards.max())))

    def settled(self, rewards: Array, means: Array, gram: Array, new: int, learned: int) -> tuple[Bets, bool]:
        """Return the bets after the last `new` of these predicted rewards, and whether an alarm is raised.

        `gram` is the covariance of errors, the noise included, in any unit; `learned` rewards came before the new ones.
        """
        rest = np.clip(rewards, self.low, self.high) - means
        low, high = self.low - means, self.high - means
        size = 1.4826 * float(np.median(np.abs(rest)))
        if 0 < HEAVY * size < np.abs(rest).max() and len(np.unique(rewards)) > 2:
            low, high = np.full(len(rest), -CLIP * size), np.full(len(rest), CLIP * size)
            rest = np.clip(rest, low, high)
        mass = 1 / math.log2(2 + learned) - 1 / math.log2(2 + learned + new)
        won = []
        for before, earlier in zip(self.won, WINDOWS, strict=True):
            part = slice(max(len(rest) - new - earlier, 0), len(rest))
            gains = _gains(rest[part], gram[part, part], low[part], high[part])[-new:]
            won.append((before + mass) * float(np.exp(np.log1p(STAKES[:, None] * gains).sum(axis=1)).mean()))
        if np.mean(won) >= 1 / LEVEL:
            return self._replace(won=(0.0,) * len(WINDOWS)), True
        return self._replace(won=tuple(won)), False


def _gains(errors: Array, gram: Array, low: Array, high: Array) -> Array:
    """Return d/c; with LLᵀ the covariance, L⁻¹e are errors less what those before predict, over their deviations."""
    lower = cholesky(gram)[0]
    guess = errors - lower.diagonal() * (lower_inverse(lower) @ errors)
    guess[0] = 0.0
    guess = np.clip(guess, low, high)
    most = np.abs(guess) * np.maximum(np.abs(2 * high - guess), np.abs(2 * low - guess))
    gains = guess * (2 * errors - guess)
    return np.asarray(np.divide(gains, most, out=np.zeros(len(guess)), where=most > 0))
