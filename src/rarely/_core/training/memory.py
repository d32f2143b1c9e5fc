"""How much of the past to learn from: do old rounds still predict the newest rewards?

A policy that tunes itself asks at every update. The newest rewards, those of the batch that has ended, are predicted
from what came before them: from everything, and from the last n rounds alone. If the world stands still, everything
predicts best; if it moves, a window does, and the best n shows how fast it moves.

    f   the mean of the version in use        x   the scaled context        u = (1, f/s_f, x)

    r̂ = f + cᵀu,   c = argmin Σ (r − f − cᵀu)² + κ|c|²      over the rounds of the window

corrects f by what the window says, and costs next to nothing. It proposes; the network decides. It is trained on the
proposed rounds before the newest, and the proposal is taken if it predicts the newest rewards better than the version
in use did: where the policy moves to other contexts a straight line bends, and would be taken for another world.

To forget what is bad costs more than to remember what has changed a little, so a shorter memory must be better beyond
doubt, and by more than next to nothing; a longer one need only be better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rarely._core.inputs.forgetting import Forgetting, Window
from rarely._core.inputs.history import Samples
from rarely._core.types import Array, IntArray

FEWEST_NEW, FEWEST_BEFORE = 20, 40
"""Rewards to be predicted, at least, and rewards before them."""
SHORTEST = 25
"""Rounds of the shortest window; the next ones are √2 times as long each, up to half of the past."""
DOUBTS, DOUBTS_BACK = 3.0, 1.0
"""Standard errors by which a shorter memory must be better, and a longer one."""
PART_OF_VARIANCE, PART_OF_LOSS = 0.02, 0.1
"""Parts of the rewards' largest variance, and of the loss in use, by which a shorter memory must be better."""
RIDGE = 1.0
"""κ."""
MOST_COLUMNS = 300
"""Columns of a context up to which the correction uses them; beyond, u is (1, f/s_f) alone."""

Fit = Callable[[Samples, Array], Array | None]
"""Trains on samples, and returns what it predicts for contexts; None where the training fails."""


class Recall(NamedTuple):
    """What to remember, and why where that changes."""

    forgetting: Forgetting | None
    why: str = ""


@dataclass(frozen=True)
class Newest:
    """All samples in row order, divided into the newest, which are predicted, and those before."""

    samples: Samples
    predicted: Array
    """(n,): the means of the version in use."""
    scaled: Array
    """(n, d): contexts as the network sees them."""
    new: int
    """How many of the last ones the version in use was not trained on."""

    @property
    def cut(self) -> int:
        """The first of the newest samples."""
        return len(self.predicted) - max(self.new, FEWEST_NEW)

    @cached_property
    def regressors(self) -> Array:
        """(n, ·): u."""
        x = self.scaled if self.scaled.shape[1] <= MOST_COLUMNS else self.scaled[:, :0]
        spread = float(np.std(self.predicted)) or 1.0
        return np.column_stack((np.ones(len(x)), self.predicted / spread, x))

    def before(self, memory: Forgetting | None) -> IntArray:
        """Return which of the earlier samples a memory holds when the newest begin."""
        rows = self.samples.rows
        if memory is None:
            return np.arange(self.cut)
        return np.flatnonzero(memory.weights((rows[self.cut] - 1 - rows[: self.cut]).astype(np.float64)) > 0)

    def corrected(self, memory: Forgetting | None) -> Array:
        """Return squared errors of the newest rewards under f, corrected by what a memory holds."""
        u, left, inside = self.regressors, self.samples.rewards - self.predicted, self.before(memory)
        matrix = u[inside].T @ u[inside] + RIDGE * np.eye(u.shape[1])
        coefficients = np.linalg.solve(matrix, u[inside].T @ left[inside])
        return np.asarray(np.square(left[self.cut :] - u[self.cut :] @ coefficients))

    def forecast(self, memory: Forgetting | None, fit: Fit) -> Array | None:
        """Return squared errors of the newest rewards under a network trained on what a memory holds."""
        ahead = fit(self.samples.some(self.before(memory)), self.samples.contexts[self.cut :])
        return None if ahead is None else np.square(self.samples.rewards[self.cut :] - ahead)


def recall(newest: Newest, current: Forgetting | None, largest_variance: float, fit: Fit) -> Recall:
    """Return what to learn from next; `current` is what the version in use learned from."""
    if newest.cut < FEWEST_BEFORE:
        return Recall(current)

    def better(before: Array, after: Array, memory: Forgetting | None) -> bool:
        gains = before - after
        error, gain = float(gains.std()) / math.sqrt(len(gains)), float(gains.mean())
        if not _shorter(memory, current):
            return gain > DOUBTS_BACK * error
        return gain > max(DOUBTS * error, PART_OF_VARIANCE * largest_variance, PART_OF_LOSS * float(before.mean()))

    rows = newest.samples.rows
    errors = {memory: newest.corrected(memory) for memory in _candidates(int(rows[newest.cut] - rows[0]), current)}
    found = [memory for memory in errors if better(errors[current], errors[memory], memory)]
    if not found:
        return Recall(current)
    proposed = min(found, key=lambda memory: float(errors[memory].mean()))
    own = np.square(newest.samples.rewards - newest.predicted)[newest.cut :]
    # A version that has seen some of the newest rewards predicts them too well to be compared with.
    before = own if newest.new >= FEWEST_NEW else newest.forecast(current, fit)
    after = newest.forecast(proposed, fit)
    if before is None or after is None or not better(before, after, proposed):
        return Recall(current)
    return Recall(
        proposed,
        f"{_named(proposed)} predict the newest {len(after)} rewards with a mean squared error of "
        f"{after.mean():.3g}, {_named(current)} with {before.mean():.3g}",
    )


def _candidates(length: int, current: Forgetting | None) -> list[Forgetting | None]:
    """Return everything, windows up to half of `length` rounds, and what is in use.

    >>> _candidates(100, None)
    [None, Window(rounds=25), Window(rounds=35), Window(rounds=50)]
    """
    found: list[Forgetting | None] = [None]
    while (rounds := round(SHORTEST * 2 ** ((len(found) - 1) / 2))) <= length / 2:
        found.append(Window(rounds))
    return found if current in found else [*found, current]


def _shorter(memory: Forgetting | None, current: Forgetting | None) -> bool:
    return isinstance(memory, Window) and not (isinstance(current, Window) and current.rounds <= memory.rounds)


def _named(memory: Forgetting | None) -> str:
    return f"the last {memory.rounds} rounds" if isinstance(memory, Window) else "all rounds"
