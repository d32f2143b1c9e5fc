"""How linear, how long to train, and on which past: judged at every update by rewards that training has not seen.

One descent with momentum passes through a whole family of models. Beside a strong linear path its first steps fit a
linear model, and the later ones bend it; without that path it bends from the start. So two things are chosen,

    s   SKIP_GRID   the strength of the skip path        J_1 < J_2 < …   STEP_GRID   where to stop

by cross-validation, a part at a time: each update holds out one fold of the samples, descends one path on the
others, and keeps every held-out sample's prediction at every rung. While samples are few, and so descents cheap, it
does so for every fold and path. And while the paths cannot be compared yet, as at the first training, the same update
also tries the other path, so that a policy of two or three versions has tried both.

    p_ic   predictions   the latest of sample i under candidate c = (s, J), always held out; NaN before its turn
    e_ic   errors        (r_i − a_c − b_c·p_ic)², a_c and b_c ≥ 0 those that fit candidate c best

Which mean is highest does not change when all are shifted and stretched, so a candidate is not judged by that: a long
descent often orders the arms well although it exaggerates. The candidate in use is left only for one whose mean error,
over the samples that both were tried on and are fitted to, is lower by z of its standard errors: with few samples 1/2,
with many the z that bounds the chance of an unjustified change by 5 %, over all 23 rivals together. The cost is a
descent on 4/5 of the samples, and one on all of them to the chosen rung; at a first training it is two on 4/5 of them,
and never more than three (`MAX_TRIALS`).

The same policy asks at every update how much of the past to learn from: do old rounds still predict the newest
rewards? These, of the batch that has ended, are predicted from what came before them: from everything, and from the
last n rounds alone. If the world stands still, everything predicts best; if it moves, a window does, and the best n
shows how fast it moves.

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely._core.inputs.forgetting import Forgetting, Window
from rarely._core.inputs.history import Samples
from rarely._core.inputs.scaling import RewardScale
from rarely._core.model.network import SKIP_GRID, Network, Weights
from rarely._core.saving.fields import Fields
from rarely._core.training.gradient_descent import TrainingOutcome, TrainingPlan, descend_to, objective_of
from rarely._core.training.watch import TRIAL_SHARE, UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, IntArray

STEP_GRID = (4, 6, 9, 13, 20, 30, 45, 70, 100, 150, 220, 330)
FIRST = (0, 7)
"""Path and rung of the candidate in use while samples are too few to judge by."""
FOLDS = 5
EXHAUSTIVE_SAMPLES = 150
"""Up to this many samples every candidate is tried at every update."""
MAX_TRIALS = 2 * len(SKIP_GRID) - 1
"""Descents that an update with more samples may try: enough turns to hold one fold with every path."""
MIN_COMPARED = 10
"""Samples that two candidates must have been tried on before they are compared, and before any are tried."""
DOUBT = 0.5
"""Standard errors by which another candidate must be better, up to `FEW_HELD_OUT` held-out samples."""
FEW_HELD_OUT, MANY_HELD_OUT = 500, 2000
LEVEL = 0.05
"""The chance to leave the candidate in use although no other is better, from `MANY_HELD_OUT` samples on."""
KEPT_ROWS = 40_000
"""The latest rows whose predictions are kept: enough to judge by, and bounded."""
EQUAL_REWARDS = 1e-12
"""Rewards whose relative difference is below this count as equal."""
SAMPLE_SALT = 0x5DEECE66D
"""Makes the sample of rows independent of the folds, which hash rows too."""

FEWEST_NEW, FEWEST_BEFORE, FEWEST_FOR_NOISE = 20, 40, 100
"""Rewards to be predicted, at least, rewards before them, and rounds of a window that tells their noise."""
SHORTEST = 25
"""Rounds of the shortest window; the next ones are √2 times as long each, up to half of the past."""
SHORTER_DOUBTS, LONGER_DOUBTS = 3.0, 1.0
"""Standard errors by which a shorter memory must be better, and a longer one."""
PART_OF_VARIANCE, PART_OF_LOSS = 0.02, 0.1
"""Parts of the rewards' largest variance, and of the loss in use, by which a shorter memory must be better."""
MEMORY_RIDGE = 1.0
"""κ."""
MOST_COLUMNS = 300
"""Columns of a context up to which the correction uses them; beyond, u is (1, f/s_f) alone."""

Fit = Callable[[Samples, Array], Array | None]
"""Trains on samples, and returns what it predicts for contexts; None where the training fails."""


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """The candidates' errors on held-out rewards, in squared reward units; NaN for one that has not been tried.

    Candidates are tried on the same rewards, so their losses rise and fall together: `errors` say how well a loss
    is known, `difference_errors` how well two are distinguished, and these decide the choice.

    Examples
    --------
    >>> from rarely import BatchNeuralUCB, OnDemand
    >>> validation = BatchNeuralUCB(dim=1, hidden=8, schedule=OnDemand(), seed=0).tuning
    >>> validation.losses.shape == (len(validation.skips), len(validation.steps))
    True
    """

    skips: Array
    """(S,): the strengths s of the skip path."""
    steps: IntArray
    """(J,): the numbers of steps."""
    chosen: tuple[int, int]
    """The index of the candidate in use in `skips` and `steps`."""
    rewards: IntArray
    """(S, J): the number of rewards that a loss is the mean of."""
    losses: Array
    """(S, J): mean squared errors of predictions after the best shift and stretch, and their standard errors."""
    errors: Array
    differences: Array
    """(S, J): losses minus that of the candidate in use, on the rewards that both were tried on; standard errors."""
    difference_errors: Array


@dataclass(frozen=True)
class Tuning:
    """The evidence of all updates so far about the candidates: a value, from which `tune` makes the next."""

    path: int = FIRST[0]
    rung: int = FIRST[1]
    turn: int = 0
    """Counts trials; it determines which path and fold are next."""
    first: int = 0
    """The row of the history that the first of `predictions` belongs to."""
    predictions: Array = field(default_factory=lambda: np.empty((0, len(SKIP_GRID), len(STEP_GRID))))
    """(rows, paths, rungs), in reward units, each made without its own reward."""
    rewards: Array = field(default_factory=lambda: np.empty(0))
    """(rows,): the observed rewards; NaN where nothing was predicted."""
    weights: Array = field(default_factory=lambda: np.empty(0))
    """(rows,): how much each counts; 0 if it is forgotten."""

    @property
    def path_in_use(self) -> int | None:
        """The path in use; None before the first training, when Z should weigh all directions alike."""
        return self.path if self.turn else None

    @property
    def next_path(self) -> int:
        """The path that is tried next."""
        return self.turn % len(SKIP_GRID)

    def held_out(self, rows: IntArray) -> BoolArray:
        """Return which of these rows are held out next."""
        return np.asarray(split_mix(rows) % np.uint64(FOLDS) == self.turn // len(SKIP_GRID) % FOLDS, np.bool_)

    def with_rows(self, rows: IntArray, weights: Array | None) -> Tuning:
        """Return the value with room for these rows, which alone count: by their weights, or in full."""
        before = self.first + len(self.rewards)
        end = max(before, int(rows[-1]) + 1) if len(rows) else before
        first = max(self.first, end - KEPT_ROWS)
        gone = first - self.first
        new = end - max(first, before)  # of millions of rows at once only the last are kept
        counted, inside = np.zeros(end - first), rows >= first
        counted[rows[inside] - first] = 1.0 if weights is None else weights[inside]
        return replace(
            self,
            first=first,
            predictions=np.pad(self.predictions[gone:], ((0, new), (0, 0), (0, 0)), constant_values=np.nan),
            rewards=np.pad(self.rewards[gone:], (0, new), constant_values=np.nan),
            weights=counted,
        )

    def with_predictions(self, rows: IntArray, predictions: Array, rewards: Array) -> Tuning:
        """Return the value with (n, rungs) predictions and rewards of the path on trial, and the choice that follows.

        Rungs that were not reached keep their earlier predictions.
        """
        noted, came, inside = self.predictions.copy(), self.rewards.copy(), rows >= self.first
        noted[rows[inside] - self.first, self.next_path, : predictions.shape[1]] = predictions[inside]
        came[rows[inside] - self.first] = rewards[inside]
        after = replace(self, predictions=noted, rewards=came).advance()
        path, rung = after._choice()
        return replace(after, path=path, rung=rung)

    def errors(self, predictions: Array) -> Array:
        """Return squared errors of (rows, paths, rungs) predictions, each candidate's best shifted and stretched."""
        rewards = np.where(np.isnan(predictions), np.nan, self.rewards[:, None, None])
        came, ahead = rewards - self._means(rewards)[1], predictions - self._means(predictions)[1]
        alike, squares = self._means(came * ahead)[1], self._means(np.square(ahead))[1]
        stretch = np.maximum(alike, 0) / np.maximum(squares, np.finfo(np.float64).tiny)
        errors: Array = np.square(came - stretch * ahead)
        return errors

    @cached_property
    def gains(self) -> Array:
        """(rows, paths, rungs): how far errors are below those of the one in use, both fitted to shared rows."""
        own = np.where(np.isnan(self.predictions), np.nan, self.predictions[:, [self.path]][..., [self.rung]])
        return self.errors(own) - self.errors(np.where(np.isnan(own), np.nan, self.predictions))

    def advance(self) -> Tuning:
        """Return the value with the next path or fold on trial."""
        return replace(self, turn=self.turn + 1)

    def _choice(self) -> tuple[int, int]:
        """Return the best candidate that is significantly better than the one in use, or the one in use."""
        gain, doubt = self.compared()
        sure = np.where(gain > demanded(self._means(self.gains)[0]) * doubt, gain, 0.0)
        path, rung = np.unravel_index(int(np.argmax(sure)), sure.shape)
        return (int(path), int(rung)) if sure[path, rung] > 0 else (self.path, self.rung)

    @property
    def comparable(self) -> bool:
        """Whether every path has been tried on enough of the rewards that the path in use was tried on."""
        tried = ~np.isnan(self.predictions[:, :, 0]) & (self.weights > 0)[:, None]
        return bool(((tried & tried[:, [self.path]]).sum(axis=0) >= MIN_COMPARED).all())

    def compared(self) -> tuple[Array, Array]:
        """Return how far each candidate's mean error is below that of the one in use, and standard errors; (s, J)."""
        count, gain, doubt = self._means(self.gains)
        enough = count >= MIN_COMPARED
        return np.where(enough, gain, 0.0), np.where(enough, doubt, np.inf)

    def _means(self, values: Array) -> tuple[IntArray, Array, Array]:
        """Return count, mean and standard error over the rows that count and are not NaN; NaN without any."""
        weights = self.weights[:, None, None] * ~np.isnan(values)
        count, total = (weights > 0).sum(axis=0), weights.sum(axis=0)
        among = np.where(count == 0, np.nan, np.maximum(total, np.finfo(np.float64).tiny))
        mean = (weights * np.nan_to_num(values)).sum(axis=0) / among
        squares = np.square(weights * np.nan_to_num(values - mean)).sum(axis=0)
        return count, mean, np.sqrt(squares) / among

    @property
    def noise(self) -> float | None:
        """The root mean square error of what the candidate in use predicts for held-out rewards.

        None until `MIN_COMPARED` held-out rewards exist, and while all rewards are equal: treating that as zero noise
        would set β = 0 and stop exploration.
        """
        count, mean, _ = self._means(np.square(self.predictions - self.rewards[:, None, None]))
        own, came = (self.path, self.rung), self.rewards[(self.weights > 0) & ~np.isnan(self.rewards)]
        if count[own] < MIN_COMPARED or np.ptp(came) <= EQUAL_REWARDS * np.abs(came).max():
            return None
        return float(np.sqrt(mean[own]))

    def validation(self) -> Validation:
        """Return all losses, and how they compare with that of the candidate in use."""
        counts, losses, errors = self._means(self.errors(self.predictions))
        _, differences, difference_errors = self._means(-self.gains)
        return Validation(
            np.array(SKIP_GRID),
            np.array(STEP_GRID),
            (self.path, self.rung),
            counts,
            losses,
            errors,
            differences,
            difference_errors,
        )

    def explain(self, network: Network) -> str:
        """Return the choice in one line."""
        chosen = f"J = {STEP_GRID[self.rung]}, {network.path_name(self.path)}"
        count, mean, error = (of_all[self.path, self.rung] for of_all in self._means(self.errors(self.predictions)))
        if count < MIN_COMPARED:
            return f"{chosen}: the start, because too few rewards have been held out to compare"
        gain, doubt = self.compared()
        gain[self.path, self.rung] = -np.inf
        gain[np.isinf(doubt)] = -np.inf
        path, rung = np.unravel_index(int(np.argmax(gain)), gain.shape)
        return (
            f"{chosen}: validation loss {mean:.4g} ± {error:.2g} on {count} rewards, "
            f"against {mean - gain[path, rung]:.4g} with J = {STEP_GRID[rung]}, {network.path_name(int(path))} "
            f"(difference {-gain[path, rung]:.2g} ± {doubt[path, rung]:.2g})"
        )

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""
        numbers = {"path": self.path, "rung": self.rung, "turn": self.turn, "first": self.first}
        return numbers, {"predictions": self.predictions, "rewards": self.rewards, "weights": self.weights}

    @classmethod
    def restored(cls, saved: Fields) -> Tuning:
        """Return the saved value."""
        with saved:
            shape = (None, len(SKIP_GRID), len(STEP_GRID))
            predictions = saved.array("predictions", shape, missing=True)
            return cls(
                path=saved.whole("path"),
                rung=saved.whole("rung"),
                turn=saved.whole("turn"),
                first=saved.whole("first"),
                predictions=predictions,
                rewards=saved.array("rewards", (len(predictions),), missing=True),
                weights=saved.array("weights", (len(predictions),)),
            )


def tune(
    network: Network,
    initial: Weights,
    contexts: Array,
    rewards: Array,
    rows: IntArray,
    plan: TrainingPlan,
    tuning: Tuning,
    scale: RewardScale | None = None,
    weights: Array | None = None,
    offsets: Array | None = None,
    watch: Watch = UNWATCHED,
) -> tuple[TrainingOutcome, Tuning]:
    """Train with the path and length that held-out rewards choose; `rows` are the samples' rows in the history.

    Predictions are kept in reward units; `scale` is the scale that the rewards are given on. Samples that count
    `weights` times are given scaled, (√w·x, √w·y). If another model predicts `offsets`, in reward units, the rewards
    are its residuals.
    """
    scale = scale or RewardScale()
    tuning = tuning.with_rows(rows, weights)
    few = len(rows) <= EXHAUSTIVE_SAMPLES
    for trial in range(network.most_trials or (len(SKIP_GRID) * FOLDS if few else MAX_TRIALS)):
        if trial and not few and tuning.comparable:
            break
        if trial and watch.over(TRIAL_SHARE):
            watch.leave_undone("further candidates were not tried")
            break
        held = tuning.held_out(rows)
        if len(rows) < MIN_COMPARED or not held.any() or held.all():
            tuning = tuning.advance()
            continue
        tried = network.on_path(tuning.next_path)
        objective = objective_of(tried, initial, contexts[~held], rewards[~held], plan)
        checkpoints = descend_to(objective, STEP_GRID, TRIAL_SHARE, watch)
        if not checkpoints.reached:
            tuning = tuning.advance()
            continue
        unit = scale.spread / (1.0 if weights is None else np.sqrt(weights[held]))
        center = scale.center if offsets is None else scale.center + offsets[held]
        ahead = [center + unit * tried.values(w, contexts[held]) for w in checkpoints.reached]
        tuning = tuning.with_predictions(rows[held], np.stack(ahead, axis=1), center + unit * rewards[held])
    chosen = network.on_path(tuning.path_in_use)
    steps = STEP_GRID[tuning.rung]
    checkpoints = descend_to(objective_of(chosen, initial, contexts, rewards, plan), (steps,), watch=watch)
    return checkpoints.outcome(chosen, steps, tuning.explain(chosen)), tuning


def demanded(samples: IntArray) -> Array:
    """Return z, the standard errors by which a rival that was compared on that many samples must be better.

    >>> demanded(np.array([100, 1000, 2000, 50_000])).round(2).tolist()
    [0.5, 1.68, 2.85, 2.85]
    """
    sure = NormalDist().inv_cdf(1 - LEVEL / (len(SKIP_GRID) * len(STEP_GRID) - 1))
    part = np.log(np.clip(samples, FEW_HELD_OUT, MANY_HELD_OUT) / FEW_HELD_OUT) / np.log(MANY_HELD_OUT / FEW_HELD_OUT)
    return np.asarray(DOUBT + part * (sure - DOUBT))


def training_rows(rows: IntArray, most: int | None) -> IntArray:
    """Return which of these rising rows of a history to train on: the positions of all, or of `most` of them.

    The latest half of `most` is used, and as many of the others: those with the smallest hashes of their rows, which is
    a uniform sample (bottom-k; Cohen and Kaplan, 2007). A row that falls out of it never returns, since later rows only
    lower the bar, so a history may drop it.

    >>> training_rows(np.arange(3), most=4)
    array([0, 1, 2])
    >>> training_rows(np.arange(10), most=4)
    array([3, 7, 8, 9])
    """
    count = len(rows)
    if most is None or count <= most:
        return np.arange(count)
    recent = count - (most - most // 2)
    hashes = split_mix(rows[:recent] ^ SAMPLE_SALT)
    older = np.argpartition(hashes, most // 2)[: most // 2]
    return np.concatenate((np.sort(older), np.arange(recent, count)))


def split_mix(rows: IntArray) -> NDArray[np.uint64]:
    """Return SplitMix64 hashes of rows, by which folds and samples are drawn: the same in every process.

    Each bit depends on all bits of the row. A product alone would leave rows of some periods mostly in one fold, so
    that the hours of a day would decide what is held out.
    """
    state = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return state ^ state >> np.uint64(31)


# --- what to remember


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

    def corrected(self, memory: Forgetting | None) -> tuple[Array, float]:
        """Return predictions of the newest rewards, f corrected by what a memory holds, and the variance it leaves."""
        u, left, inside = self.regressors, self.samples.rewards - self.predicted, self.before(memory)
        matrix = u[inside].T @ u[inside] + MEMORY_RIDGE * np.eye(u.shape[1])
        coefficients = np.linalg.solve(matrix, u[inside].T @ left[inside])
        unexplained = float(np.square(left[inside] - u[inside] @ coefficients).mean()) if len(inside) else math.inf
        return self.predicted[self.cut :] + u[self.cut :] @ coefficients, unexplained

    def forecast(self, memory: Forgetting | None, fit: Fit) -> Array | None:
        """Return predictions of the newest rewards by a network trained on what a memory holds."""
        return fit(self.samples.some(self.before(memory)), self.samples.contexts[self.cut :])


def recall(newest: Newest, current: Forgetting | None, largest_variance: float, fit: Fit) -> Recall:
    """Return what to learn from next; `current` is what the version in use learned from."""
    if newest.cut < FEWEST_BEFORE:
        return Recall(current)
    rows, came = newest.samples.rows, newest.samples.rewards[newest.cut :]
    ahead = {memory: newest.corrected(memory) for memory in _candidates(int(rows[newest.cut] - rows[0]), current)}
    # In a short batch rare rewards may not come at all: their noise is that of a hundred earlier rounds or more.
    noise = min(left for memory, (_, left) in ahead.items() if memory is None or _rounds(memory) >= FEWEST_FOR_NOISE)

    def loss(predicted: Array) -> float:
        return float(np.square(came - predicted).mean())

    def better(before: Array, after: Array, memory: Forgetting | None) -> bool:
        gains = np.square(came - before) - np.square(came - after)
        variance = max(float(gains.var()), 4 * noise * float(np.square(after - before).mean()))
        error, gain = math.sqrt(variance / len(gains)), float(gains.mean())
        if _rounds(memory) >= _rounds(current):
            return gain > LONGER_DOUBTS * error
        return gain > max(SHORTER_DOUBTS * error, PART_OF_VARIANCE * largest_variance, PART_OF_LOSS * loss(before))

    found = [memory for memory, (each, _) in ahead.items() if better(ahead[current][0], each, memory)]
    if not found:
        return Recall(current)
    proposed = min(found, key=lambda memory: loss(ahead[memory][0]))
    # A version that has seen some of the newest rewards predicts them too well to be compared with.
    before = newest.predicted[newest.cut :] if newest.new >= FEWEST_NEW else newest.forecast(current, fit)
    after = newest.forecast(proposed, fit)
    if before is None or after is None or not better(before, after, proposed):
        return Recall(current)
    return Recall(
        proposed,
        f"{_named(proposed)} predict the newest {len(came)} rewards with a mean squared error of {loss(after):.3g}, "
        f"{_named(current)} with {loss(before):.3g}",
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


def _rounds(memory: Forgetting | None) -> float:
    return memory.rounds if isinstance(memory, Window) else math.inf


def _named(memory: Forgetting | None) -> str:
    return f"the last {memory.rounds} rounds" if isinstance(memory, Window) else "all rounds"
