"""What the default adds to the paper's algorithm.

    tuned_training    chooses the steps J and the strength s of the skip path by held-out rewards
    memory            forgets old rounds where they mislead
    linear_part       learns from all rewards beside a network that trains on some of them
    returning_arms    judges arms that come back by their own rewards
    noise_radius      takes β from the noise, and 0 for the last version (`NoiseRadius`)
    floor             predicts no mean below the smallest reward
    running_bonuses   takes bonuses from Z with the rounds of the batch (`within_batch`)

These are the fields of `Additions`, by which each is switched off. The paper's learner, in `network_learner.py`, knows
nothing of this module: without it, every policy works that names its training. `SelfTunedLearner` goes around that
learner, and `ReturningArms` overrides scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance
from rarely._core.inputs.forgetting import Forgetting, Window
from rarely._core.inputs.history import History, Samples
from rarely._core.inputs.scaling import Affine, ContextScale, RewardScale
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.model.features import Factors
from rarely._core.model.network import SKIP_GRID, Network, Weights
from rarely._core.policies.learner import (
    FitResult,
    Learner,
    LearnerAround,
    Recall,
    RewardTask,
    ScoreOverride,
    split_mix,
    training_rows,
)
from rarely._core.policies.network_learner import NetworkLearner, SparseTraining
from rarely._core.policies.options import TUNED_ROWS, Additions
from rarely._core.saving.fields import Fields
from rarely._core.training.gradient_descent import TrainingOutcome, TrainingPlan, descend_to, objective_of
from rarely._core.training.watch import TRIAL_SHARE, UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, IntArray

# --- tuned training: how linear, and how long, judged by rewards that training has not seen
#
# One descent with momentum passes through a whole family of models. Beside a strong linear path its first steps fit a
# linear model, and the later ones bend it; without that path it bends from the start. So two things are chosen,
#
#     s   SKIP_GRID   the strength of the skip path        J_1 < J_2 < …   STEP_GRID   where to stop
#
# by cross-validation, a part at a time: each update holds out one fold of the samples, descends one path on the
# others, and keeps every held-out sample's prediction at every rung. While samples are few, and so descents cheap, it
# does so for every fold and path. And while the paths cannot be compared yet, as at the first training, the same update
# also tries the other path, so that a policy of two or three versions has tried both.
#
#     p_ic   predictions   the latest of sample i under candidate c = (s, J), always held out; NaN before its turn
#     e_ic   errors        (r_i − a_c − b_c·p_ic)², a_c and b_c ≥ 0 those that fit candidate c best
#
# Which mean is highest does not change when all are shifted and stretched, so a candidate is not judged by that: a
# long descent often orders the arms well although it exaggerates. The candidate in use is left only for one whose
# mean error, over the samples that both were tried on and are fitted to, is lower by z of its standard errors: with
# few samples 1/2, with many the z that bounds the chance of an unjustified change by 5 %, over all 23 rivals
# together. The cost is a descent on 4/5 of the samples, and one on all of them to the chosen rung; at a first
# training it is two on 4/5 of them, and never more than three (`MAX_TRIALS`).

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
        chosen = f"J = {STEP_GRID[self.rung]}, {network.candidate_name(self.path)}"
        count, mean, error = (of_all[self.path, self.rung] for of_all in self._means(self.errors(self.predictions)))
        if count < MIN_COMPARED:
            return f"{chosen}: the start, because too few rewards have been held out to compare"
        gain, doubt = self.compared()
        gain[self.path, self.rung] = -np.inf
        gain[np.isinf(doubt)] = -np.inf
        path, rung = np.unravel_index(int(np.argmax(gain)), gain.shape)
        return (
            f"{chosen}: validation loss {mean:.4g} ± {error:.2g} on {count} rewards, "
            f"against {mean - gain[path, rung]:.4g} with J = {STEP_GRID[rung]}, {network.candidate_name(int(path))} "
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
                path=saved.whole("path", most=len(SKIP_GRID) - 1),
                rung=saved.whole("rung", most=len(STEP_GRID) - 1),
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
        tried = network.candidate(tuning.next_path)
        objective = objective_of(tried, initial, contexts[~held], rewards[~held], plan)
        checkpoints = descend_to(objective, STEP_GRID, TRIAL_SHARE, watch)
        if not checkpoints.reached:
            tuning = tuning.advance()
            continue
        unit = scale.spread / (1.0 if weights is None else np.sqrt(weights[held]))
        center = scale.center if offsets is None else scale.center + offsets[held]
        ahead = [center + unit * tried.values(w, contexts[held]) for w in checkpoints.reached]
        tuning = tuning.with_predictions(rows[held], np.stack(ahead, axis=1), center + unit * rewards[held])
    chosen = network.candidate(tuning.path_in_use)
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


# --- memory: how much of the past to learn from
#
# The same policy asks at every update how much of the past to learn from: do old rounds still predict the newest
# rewards? These, of the batch that has ended, are predicted from what came before them: from everything, and from the
# last n rounds alone. If the world stands still, everything predicts best; if it moves, a window does, and the best n
# shows how fast it moves.
#
#     f   the mean of the version in use        x   the scaled context        u = (1, f/s_f, x)
#
#     r̂ = f + cᵀu,   c = argmin Σ (r − f − cᵀu)² + κ|c|²      over the rounds of the window
#
# corrects f by what the window says, and costs next to nothing. It proposes; the network decides. It is trained on the
# proposed rounds before the newest, and the proposal is taken if it predicts the newest rewards better than the version
# in use did: where the policy moves to other contexts a straight line bends, and would be taken for another world.
#
# To forget what is bad costs more than to remember what has changed a little, so a shorter memory must be better beyond
# doubt, and by more than next to nothing; a longer one need only be better.

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
MEMORY_COLUMNS = 300
"""Columns of a context up to which the correction uses them; beyond, u is (1, f/s_f) alone."""

Fit = Callable[[Samples, Array], Array | None]
"""Trains on samples, and returns what it predicts for contexts; None where the training fails."""


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
        x = self.scaled if self.scaled.shape[1] <= MEMORY_COLUMNS else self.scaled[:, :0]
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


# --- a linear part: what is linear in the context, learned from all rewards
#
# `LinearPart` is a ridge regression on all rewards ever seen, to which a network adds what it learns from some of them:
#
#     A   matrix   (d, d)   Σ x xᵀ over all rewards        n   learned   how many there are
#     b   moment   (d,)     Σ r x                          S   square    Σ r²
#     κ   ridge             c = (A + κI)⁻¹ b
#
# Sums take in a reward once, so their cost does not grow with the past, and none of it is lost: the part of rewards
# that is linear in the context is learned from all of them. κ is chosen at each update by generalised cross-
# validation (Golub, Heath and Wahba, 1979), which the sums alone decide: with A = U diag(a) Uᵀ and g = Uᵀb
#
#     residual(κ) = S − 2 Σ g²/(a + κ) + Σ a·g²/(a + κ)²        degrees(κ) = Σ a/(a + κ)
#
#     κ = argmin residual(κ)/(n − degrees(κ))²
#
# The network is trained on what this leaves, which may be noise alone. So its prediction f counts by the share b that
# held-out rewards ask for, less three standard errors: b = b̂ − 3√(Σ(e − b̂f)²f²)/Σ f² from 0 to 1, b̂ = Σ e·f/Σ f² and
# e = r − cᵀx. Three, because the same rewards chose f among 24 candidates.

LINEAR_COLUMNS = 2000
"""Numbers in a scaled context up to which the d² sums of a linear part are kept."""
RIDGES = np.geomspace(1e-2, 1e4, 25)
DOUBTS = 3.0
"""Standard errors that are taken off the network's share."""
SUMMED_AT_ONCE = 4096
"""Contexts that are summed at a time."""


@dataclass(frozen=True)
class LinearPart:
    """A ridge regression on all rewards: a value, of which each update makes the next."""

    scale: ContextScale
    """That of the contexts when the sums began; a later one changes the network alone."""
    matrix: Array
    moment: Array
    square: float
    learned: int
    ridge: float
    coefficients: Array
    share: float = 1.0
    """b: how much of the network's prediction counts."""

    @classmethod
    def start(cls, scale: ContextScale) -> LinearPart:
        """Return the part before any reward."""
        d = scale.map.scaled_dim
        fixed = ContextScale(scale.map, clips=scale.clips)
        return cls(fixed, np.zeros((d, d)), np.zeros(d), 0.0, 0, float(RIDGES[0]), np.zeros(d))

    def __call__(self, contexts: Array) -> Array:
        """Return its part of the mean rewards, (n,)."""
        return np.asarray(self.scale(contexts) @ self.coefficients)

    def learn(self, history: History) -> LinearPart | None:
        """Return the part with the rewards that came since; None where the sums overflow."""
        # Before the first sums, the history may have dropped some rewards to keep its limit.
        contexts, rewards = history.arrived_since(self.learned) if self.learned else history.observed()
        matrix, moment = self.matrix.copy(), self.moment.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rewards), SUMMED_AT_ONCE):
                x, r = self.scale(contexts[start : start + SUMMED_AT_ONCE]), rewards[start : start + SUMMED_AT_ONCE]
                matrix += x.T @ x
                moment += x.T @ r
            square = self.square + float(rewards @ rewards)
        if not (np.isfinite(square) and np.isfinite(matrix).all() and np.isfinite(moment).all()):
            return None
        after = replace(self, matrix=matrix, moment=moment, square=square, learned=history.arrived)
        return after._solved()

    def _solved(self) -> LinearPart:
        values, vectors = np.linalg.eigh(self.matrix)
        values, image = np.maximum(values, 0.0), vectors.T @ self.moment
        kept = values + RIDGES[:, None]
        residuals = self.square - 2 * (image**2 / kept).sum(axis=1) + (values * image**2 / kept**2).sum(axis=1)
        left = np.maximum(self.learned - (values / kept).sum(axis=1), 1.0)
        best = int(np.argmin(np.maximum(residuals, 0.0) / left**2))
        coefficients = vectors @ (image / kept[best])
        return replace(self, ridge=float(RIDGES[best]), coefficients=np.asarray(coefficients))

    def with_share(self, residuals: Array, predictions: Array) -> LinearPart:
        """Return the part with the network's share, given held-out e and f; 0 without any."""
        squares = float(predictions @ predictions)
        if not squares > 0:
            return replace(self, share=0.0)
        share = float(residuals @ predictions) / squares
        doubt = float(np.linalg.norm((residuals - share * predictions) * predictions)) / squares
        return replace(self, share=min(max(share - DOUBTS * doubt, 0.0), 1.0))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""
        numbers = {"square": self.square, "learned": self.learned, "ridge": self.ridge, "share": self.share}
        arrays = {"matrix": self.matrix, "moment": self.moment, "coefficients": self.coefficients}
        return numbers | {"clips": self.scale.clips}, arrays | self.scale.map.arrays()

    @classmethod
    def restored(cls, saved: Fields, scale: ContextScale) -> LinearPart:
        """Return the saved value; `scale` is that of the learner, which has the same shape."""
        fixed, d = scale.map, scale.map.scaled_dim
        with saved:
            parts = {name: saved.array(name, array.shape) for name, array in fixed.arrays().items()}
            if scale.fits:
                fixed = Affine(parts["center"], parts["spread"], fixed.constant)
            return cls(
                ContextScale(fixed, clips=saved.flag("clips")),
                saved.array("matrix", (d, d)),
                saved.array("moment", (d,)),
                saved.number("square"),
                saved.whole("learned"),
                saved.number("ridge"),
                saved.array("coefficients", (d,)),
                saved.number("share"),
            )


# --- the learner that has all of these


@dataclass(frozen=True)
class SelfTunedLearner(LearnerAround):
    """The paper's learner with steps, skip path, memory and a linear part that rewards choose, and a floor."""

    base: NetworkLearner
    tuning: Tuning = field(default_factory=Tuning)
    linear: LinearPart | None = None
    """Learned from all samples where there are more than train the network, which then learns what it leaves."""
    lowest: float | None = None
    """The smallest reward ever learned from: no mean is below it."""
    additions: Additions = field(default_factory=Additions)
    """Which of them it has: memory, linear part and floor."""

    @property
    def chooses_memory(self) -> bool:
        return self.additions.memory

    @property
    def noise(self) -> float | None:
        return self.tuning.noise

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        base, linear = self.base, self.linear
        if linear is None:
            means, factors = base.assess(contexts)
            return self.plausible(means), factors
        shared = base.shared_row(contexts)
        if shared is None:
            scaled = base.scale(contexts)
            values, factors = base.network.values_and_factors(base.weights, scaled)
        else:
            values, factors = base.network.values_of_shared(base.weights, shared)
        coefficients, own = linear.coefficients, linear.scale
        if own.map is not base.scale.map or own.clips != base.scale.clips:  # never where the scale was given
            part = linear(contexts)
        else:
            part = scaled @ coefficients if shared is None else shared.image(coefficients[None])[:, 0]
        return self.plausible(part + base.rewards.center + linear.share * base.rewards.spread * values), factors

    def plausible(self, means: Array) -> Array:
        # An arm that surely pays 0 would rule out one thought to pay −0.5.
        return means if self.lowest is None else np.maximum(means, self.lowest)

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        base = self.base
        if base.sparse is not None:
            training = SparseTraining.of(base, history.samples().contexts)
            fit = self.with_base(training.inside).learn(history, watch)
            return training.leave(fit, self, lambda tuned: tuned.with_base(training.outside(tuned.base)))
        ready = base.with_fitted_scale()
        linear = self._next_linear(history, ready.scale)
        samples = base.training_set(history, ready.scale, linear)
        if samples.overflow:
            return FitResult(self, samples.overflow)
        x, y = samples.weighted()
        known = samples.scale, samples.weights, samples.offsets
        outcome, tuning = tune(base.network, base.initial, x, y, samples.rows, base.plan, self.tuning, *known, watch)
        if linear is not None and samples.offsets is not None:
            held, predicted, rewards = _held_out(tuning, samples.rows)
            center = samples.scale.center + samples.offsets[held]
            linear = linear.with_share(rewards - center, predicted - center)
        network = base.network.candidate(tuning.path_in_use)
        trained = replace(ready.trained(outcome, samples.scale), network=network)
        # Earlier rounds were seen without the path that the first training chooses. Features of another path are other
        # directions: under the old Z all arms would look unknown again. Where rounds were dropped, a new Z would lose
        # them, which is worse.
        other_path = network.skip != base.network.skip and len(history) == history.total
        fit = base.fit_result(trained, outcome, samples, history, rebuild=not self.tuning.turn or other_path)
        lowest = self._next_lowest(history) if self.additions.floor else None
        tuned = replace(self, tuning=tuning, linear=linear, lowest=lowest)
        basis = None if fit.basis is None else tuned.with_base(fit.basis)
        return replace(fit, learner=replace(tuned, base=trained), basis=basis)

    def recall(self, history: History, new: int) -> Recall:
        base = self.base
        if not self.additions.memory or not self.tuning.turn:
            return super().recall(history, new)
        samples = history.with_forgetting(None).samples().clipped(base.clip)
        if base.sparse is not None:
            return self.with_base(SparseTraining.of(base, samples.contexts).inside).recall(history, new)
        if len(samples.rows) > TUNED_ROWS:
            samples = samples.some(np.arange(len(samples.rows) - TUNED_ROWS, len(samples.rows)))
        predicted = self.assess(samples.contexts)[0]
        newest = Newest(samples, predicted, base.scale(samples.contexts), new)
        return recall(newest, history.forgetting, history.largest_spread**2, self._forecast)

    def _forecast(self, samples: Samples, contexts: Array) -> Array | None:
        """Return what a network with this path and length predicts that is trained on these samples alone."""
        base = self.base
        scale = RewardScale.fit(samples.rewards) if base.standardise_rewards else RewardScale()
        rewards = (samples.rewards - scale.center) / scale.spread
        objective = objective_of(base.network, base.initial, base.scale(samples.contexts), rewards, base.plan)
        reached = descend_to(objective, (self._steps,)).reached
        if not reached:
            return None
        values = base.network.values(reached[-1], base.scale(contexts))
        return self.plausible(scale.center + scale.spread * values)

    def _next_linear(self, history: History, scale: ContextScale) -> LinearPart | None:
        """Return the linear part of the next version, where there are more samples than train the network."""
        if not self.has_linear(history.forgetting, scale, history.arrived):
            return None
        return (self.linear or LinearPart.start(scale)).learn(history)

    def has_linear(self, forgetting: Forgetting | None, scale: ContextScale, arrived: int) -> bool:
        """Return whether the next version has a linear part, on a new scale and after that many rewards."""
        base = self.base
        if base.training_rows is None or forgetting is not None or base.clip is not None:
            return False
        if not self.additions.linear_part:
            return False
        sparse = isinstance(scale.map, SparseRows)
        if scale.map.scaled_dim > LINEAR_COLUMNS or sparse or not base.network.linear_part:
            return False
        return self.linear is not None or arrived > base.training_rows

    def reward_task(self, history: History, new: int) -> RewardTask | None:
        task, linear = self.base.reward_task(history, new), None
        if self.has_linear(history.forgetting, self.base.with_fitted_scale().scale, history.arrived + new):
            linear = self._linear_so_far(history)
        return task if task is None or linear is None else replace(task, scale=linear.scale)

    def with_reward_sums(self, total: Array, history: History, arrived: int) -> Self:
        linear, (matrix, moment, square) = self._linear_so_far(history), RewardTask.parts(total)
        assert linear is not None  # or there were no sums
        matrix, moment, square = linear.matrix + matrix, linear.moment + moment, linear.square + square
        linear = replace(linear, matrix=matrix, moment=moment, square=square, learned=arrived)
        return replace(self, linear=linear)

    def _linear_so_far(self, history: History) -> LinearPart | None:
        return self.linear or LinearPart.start(self.base.with_fitted_scale().scale).learn(history)

    def shares_features(self, other: Learner) -> bool:
        return not isinstance(other, SelfTunedLearner) or other.base.network.skip == self.base.network.skip

    def _next_lowest(self, history: History) -> float | None:
        """Return the lowest of all rewards, dropped ones included; None while there are none."""
        smallest = min(history.smallest, math.inf if self.lowest is None else self.lowest)
        return smallest if math.isfinite(smallest) else None

    def needs(self, history: History) -> BoolArray | None:
        """Return the rows that train the network again, where the linear part holds all that it has learned from."""
        if self.linear is None:
            return None
        needed, there = np.zeros(len(history), np.bool_), np.flatnonzero(~np.isnan(history.rewards))
        needed[there[training_rows(history.rows[there], self.base.training_rows)]] = True
        return needed | history.came_after(self.linear.learned)

    def without_rows(self, rows: IntArray) -> Self:
        tuning = self.tuning
        places = rows - tuning.first
        places = places[(places >= 0) & (places < len(tuning.rewards))]
        predictions, rewards, weights = tuning.predictions.copy(), tuning.rewards.copy(), tuning.weights.copy()
        predictions[places], rewards[places], weights[places] = np.nan, np.nan, 0.0
        return replace(self, tuning=replace(tuning, predictions=predictions, rewards=rewards, weights=weights))

    @property
    def _steps(self) -> int:
        """J of the last training, or of the next one before any."""
        used = self.base.used_steps
        return STEP_GRID[self.tuning.rung] if used is None else used

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        # Until enough was held out, all that is known is the rewards' spread, of which noise is some part.
        noise = self.base.rewards.spread / 4 if self.noise is None else self.noise
        return replace(self.base.version_stats(round, covariance), steps=self._steps, noise=noise)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.base.state()
        chosen, tried = self.tuning.state()
        numbers |= {"tuning": chosen, "skip": self.base.network.skip}
        arrays |= {f"tuning.{name}": array for name, array in tried.items()}
        if self.lowest is not None:
            numbers |= {"lowest": self.lowest}
        if self.linear is not None:
            sums, parts = self.linear.state()
            numbers |= {"linear": sums}
            arrays |= {f"linear.{name}": array for name, array in parts.items()}
        return numbers, arrays

    def restored(self, saved: Fields) -> Self:
        with saved:
            tuning = Tuning.restored(saved.inner("tuning"))
            base = self.base.restored_from(saved)
            return replace(
                self,
                base=replace(base, network=replace(base.network, skip=saved.value("skip"))),
                tuning=tuning,
                lowest=saved.number("lowest") if "lowest" in saved else None,
                linear=LinearPart.restored(saved.inner("linear"), self.base.scale) if "linear" in saved else None,
            )


def _held_out(tuning: Tuning, rows: IntArray) -> tuple[IntArray, Array, Array]:
    """Return which of these rising rows the candidate in use predicted without their rewards, what, and the rewards."""
    first, end = np.searchsorted(rows, (tuning.first, tuning.first + len(tuning.rewards)))
    places = rows[first:end] - tuning.first
    predicted = tuning.predictions[places, tuning.path, tuning.rung]
    tried = ~np.isnan(predicted)
    return first + np.flatnonzero(tried), predicted[tried], tuning.rewards[places][tried]


# --- arms that return: where the same contexts are offered again and again, each arm has rewards of its own
#
#     K   places    contexts that were offered so far          n   chosen   rounds that chose the arm, with the batch's
#     r̄   mean      of the arm's rewards                       m   count    of its rewards that were learned from
#     s   spread    the largest that all rewards have had      T            the horizon
#
#     r̄ + σ·(1 + 30/(Km))·√(log⁺(T/(Kn))/n)          the index of MOSS (Audibert and Bubeck, 2009) with an estimated σ
#
# The noise of a prediction is not one number for all arms: an arm that always pays the same leaves no doubt of its own,
# and none of it should go over to an arm that was tried once and paid badly. σ² is that of the arm's own rewards, drawn
# by ten rewards' worth to the mean of the other arms, which is drawn by three arms' worth to s². Few rewards say little
# about their own spread: 1 + 30/(Km) widens the bound then, by about as many rounds in all whatever K.
#
# Of arms that share no column a model knows nothing but their own rewards, so these decide. Of other arms they do
# while they predict better than the model what arms with few rewards pay next; an arm without any is then tried.
# Contexts that do not return are never touched: more than half of a round's contexts being new ends the matter for
# good.

OWN_REWARDS, OTHER_ARMS = 10.0, 3.0
MAX_SPREAD = 1e150
"""Rewards' worth by which σ² is drawn to that of the other arms, and arms' worth by which theirs is drawn to s²."""
BOUND_WIDENING = 30.0
GAIN_LEFT = 0.7
"""What is left at each update of how much better earlier rewards were predicted."""
FEW_REWARDS, FEWEST_COMPARED = 3, 6
"""The most earlier rewards of an arm on which own means and the model are compared, and the fewest rewards compared."""
MOST_ARMS = 4096
"""More contexts than this are not looked up in every round."""


@dataclass(frozen=True, eq=False)
class ReturningArms(ScoreOverride):
    """What the rewards of each returning arm say about it alone: a value, of which every round makes the next."""

    source = "returning arms"

    contexts: Array
    """(K, d)."""
    chosen: IntArray
    count: Array
    mean: Array
    squares: Array
    """(K,): Σ(r − r̄)²."""
    places: Mapping[bytes, int] = field(default_factory=dict)
    spread: float = 0.0
    horizon: int = 0
    learned: int = 0
    """Rewards, in the order in which they came, that are in these sums."""
    gain: float = 0.0
    """By how much own means predicted new rewards better than the model, of arms with few rewards before."""
    compared: int = 0
    disjoint: bool = False
    """Whether the arms share no column."""

    @classmethod
    def start(cls, dim: int) -> ReturningArms:
        """Return the value before the first round."""
        none = np.zeros(0)
        return cls(np.zeros((0, dim)), none.astype(np.int64), none, none, none)

    @property
    def decides(self) -> bool:
        """Whether arms with rewards of their own are override_scores by them."""
        if self.disjoint:
            return self.learned > 0
        return self.compared >= FEWEST_COMPARED and self.gain > 0

    def after(self, rows: Array, arm: int) -> ReturningArms | None:
        """Return the value after a round that offered these contexts and chose one; None if contexts do not return."""
        found = self._found(rows)
        new = np.flatnonzero(found < 0)
        if len(self.places) and 2 * len(new) > len(rows):
            return None
        if not len(new):
            chosen = self.chosen.copy()
            chosen[found[arm]] += 1
            return replace(self, chosen=chosen)
        places = dict(self.places)
        for row in rows[new]:
            places.setdefault(row.tobytes(), len(places))
        more = len(places) - len(self.places)
        if len(places) > MOST_ARMS:
            return None
        contexts = np.array([np.frombuffer(key) for key in places]).reshape(len(places), -1)
        chosen = np.concatenate((self.chosen, np.zeros(more, np.int64)))
        count, mean, squares = (np.concatenate((old, np.zeros(more))) for old in (self.count, self.mean, self.squares))
        chosen[places[rows[arm].tobytes()]] += 1
        return replace(self, places=places, contexts=contexts, chosen=chosen, count=count, mean=mean, squares=squares)

    def after_update(
        self, contexts: Array, rewards: Array, predicted: Array, *, spread: float, horizon: int, disjoint: bool
    ) -> ReturningArms:
        """Return the value after an update on new rewards, which the model of the version before `predicted`."""
        found = self._found(contexts)
        rewards, predicted, found = rewards[found >= 0], predicted[found >= 0], found[found >= 0]
        total = self.count.sum()
        usual = float(self.count @ self.mean / total) if total else 0.0
        own = (self.count * self.mean + usual)[found] / (self.count + 1)[found]
        young = self.count[found] <= FEW_REWARDS
        gains = (np.square(rewards - predicted) - np.square(rewards - own))[young]
        next_ = replace(self._with_rewards(found, rewards), spread=spread, horizon=horizon, disjoint=disjoint)
        gain, compared = GAIN_LEFT * self.gain + float(gains.sum()), self.compared + len(gains)
        return replace(next_, learned=self.learned + len(rewards), gain=gain, compared=compared)

    def recounted(self, chosen: Array, contexts: Array, rewards: Array) -> ReturningArms:
        """Return the value for a policy that remembers only these choices and rewards."""
        arms = len(self.places)
        before, found = self._found(chosen), self._found(contexts)  # −1 for a context of a log
        counts = np.bincount(before[before >= 0], minlength=arms)
        empty = replace(self, chosen=counts, count=np.zeros(arms), mean=np.zeros(arms), squares=np.zeros(arms))
        return empty._with_rewards(found[found >= 0], rewards[found >= 0])

    def _with_rewards(self, found: IntArray, rewards: Array) -> ReturningArms:
        count, mean, squares = self.count.copy(), self.mean.copy(), self.squares.copy()
        for place, reward in zip(found, rewards, strict=True):
            count[place] += 1
            step = reward - mean[place]
            mean[place] += step / count[place]
            squares[place] += step * (reward - mean[place])
        return replace(self, count=count, mean=mean, squares=squares)

    def override_scores(self, rows: Array, means: Array, bonuses: Array, *, explores: bool) -> tuple[Array, Array]:
        """Return means and bonuses of these contexts, those of the model replaced for arms with their own rewards."""
        found = self._found(rows)
        known = (found >= 0) & (self.count[found] > 0)
        means, bonuses = means.copy(), bonuses.copy()
        means[known] = self.mean[found[known]]
        bonuses[known] = self._bonuses()[found[known]] if explores else 0.0
        if explores and known.any() and not known.all():  # nothing is known about the others
            untried = ~known & (self.chosen[found] * (found >= 0) == 0)
            highest = (means + bonuses)[known].max()
            bonuses[untried] = np.maximum(bonuses[untried], highest - means[untried] + self.spread)
        return means, bonuses

    def _bonuses(self) -> Array:
        count, chosen, arms = np.maximum(self.count, 1), np.maximum(self.chosen, 1), len(self.places)
        several = self.count > 1
        variances = np.where(several, self.squares / np.maximum(self.count - 1, 1), 0.0)
        others = (variances.sum() - variances + OTHER_ARMS * self.spread**2) / (several.sum() - several + OTHER_ARMS)
        noise = np.sqrt((self.squares + OWN_REWARDS * others) / (count - 1 + OWN_REWARDS))
        left = np.log(np.maximum(self.horizon / (arms * chosen), 1.0))
        return np.asarray(noise * (1 + BOUND_WIDENING / (arms * count)) * np.sqrt(left / chosen))

    def _found(self, rows: Array) -> IntArray:
        """Return the place of each context, −1 for one that was not offered yet."""
        get = self.places.get
        return np.array([get(row.tobytes(), -1) for row in np.ascontiguousarray(rows)], np.int64)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""
        names = ("spread", "horizon", "learned", "gain", "compared", "disjoint")
        arrays = ("contexts", "chosen", "count", "mean", "squares")
        return {name: getattr(self, name) for name in names}, {name: getattr(self, name) for name in arrays}

    def restored(self, saved: Fields) -> ReturningArms:
        with saved:
            contexts = saved.array("contexts", (None, self.contexts.shape[1]))
            chosen = saved.array("chosen", (len(contexts),), "int")
            found: dict[str, Any] = {"places": {row.tobytes(): i for i, row in enumerate(contexts)}}
            found |= {name: saved.array(name, (len(contexts),)) for name in ("count", "mean", "squares")}
            found["spread"] = saved.number("spread", 0.0)
            saved.check(found["spread"] <= MAX_SPREAD, f"a spread of at most {MAX_SPREAD:g}")
            return ReturningArms(contexts, chosen, **found, **saved.rest())
