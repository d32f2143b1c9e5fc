"""How linear, and how long to train: judged at every update by rewards that training has not seen.

One descent with momentum passes through a whole family of models. Beside a strong linear path its first steps fit a
linear model, and the later ones bend it; without that path it bends from the start. So two things are chosen,

    s   SKIP_GRID   the strength of the skip path        J_1 < J_2 < …   STEP_GRID   where to stop

by cross-validation, a part at a time: each update holds out one fold of the samples, descends one path on the
others, and notes every held-out sample's prediction at every rung. While samples are few, and so descents cheap, it
does so for every fold and path. And while the paths cannot be compared yet, as at the first training, also that of a
log, the same update goes on to the other path, so that a policy of two or three versions has tried both.

    p_ic   predictions   the latest of sample i under candidate c = (s, J), always held out; NaN before its turn
    e_ic   errors        (r_i − a_c − b_c·p_ic)², a_c and b_c ≥ 0 as fits candidate c best

Which mean is highest does not change when all are shifted and stretched, so a candidate is not judged by that: a long
descent often orders the arms well although it exaggerates. The candidate in use is left only for one whose mean error,
over the samples that both were tried on and are fitted to, is lower by z of its standard errors: with few samples 1/2,
with many what bounds the chance of a change for no reason by 5 %, all 23 rivals taken together. The cost is a
descent on 4/5 of the samples, and one on all of them to the chosen rung; at a first training it is two on 4/5 of them,
and never more than three (`MOST`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from rarely.core.errors import SnapshotWarning
from rarely.core.inputs.history import History
from rarely.core.inputs.scaling import RewardScale
from rarely.core.model.network import Network, Weights
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.training import deadline
from rarely.core.training.checkpoints import descend_to
from rarely.core.training.gradient_descent import TrainingOutcome, TrainingPlan, objective_of
from rarely.core.training.row_hash import split_mix
from rarely.core.types import Array, Arrays, BoolArray, IntArray

SKIP_GRID = (3.0, 0.0)
STEP_GRID = (4, 6, 9, 13, 20, 30, 45, 70, 100, 150, 220, 330)
FIRST = (0, 7)
"""Path and rung of the candidate in use while samples are too few to judge by."""
FOLDS = 5
FEW = 150
"""Samples up to which every candidate is tried at every update."""
MOST = 2 * len(SKIP_GRID) - 1
"""Descents that an update beyond `FEW` samples may try: so many turns hold one fold with every path."""
FEWEST = 10
"""Samples that two candidates must have been tried on before they are compared, and before any are tried."""
DOUBT = 0.5
"""Standard errors by which another candidate must be better, up to `SOME` held-out samples."""
SOME, MANY = 500, 2000
LEVEL = 0.05
"""The chance that the candidate in use is left for one of many that are no better, from `MANY` held-out samples on."""
RECENT = 40_000  # the latest samples, whose predictions are kept: enough to judge by, and bounded
SAME = 1e-12
"""Rewards that differ by less than this part of them do not differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """How the candidates fare on held-out rewards, in squared reward units; NaN where one has not been tried.

    Candidates are tried on the same rewards, so their losses rise and fall together: `errors` say how well a loss
    is known, `difference_errors` how well two are told apart, and by these the choice is made.

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
    """Where the candidate in use stands in `skips` and `steps`."""
    rewards: IntArray
    """(S, J): rewards that a loss is the mean of."""
    losses: Array
    """(S, J): mean squared errors of predictions shifted and stretched as fits best, and their standard errors."""
    errors: Array
    differences: Array
    """(S, J): losses less that of the candidate in use, on the rewards that both were tried on; standard errors."""
    difference_errors: Array


@dataclass(frozen=True)
class Tuning:
    """What all updates so far say about the candidates: a value, of which `tune` makes the next."""

    path: int = FIRST[0]
    rung: int = FIRST[1]
    turn: int = 0
    """Which path and fold are next, counted on and on."""
    first: int = 0
    """The history's row that the first of `predictions` belongs to."""
    predictions: Array = field(default_factory=lambda: np.empty((0, len(SKIP_GRID), len(STEP_GRID))))
    """(rows, paths, rungs), in reward units, each made without its own reward."""
    rewards: Array = field(default_factory=lambda: np.empty(0))
    """(rows,): what came; NaN where nothing was predicted."""
    weights: Array = field(default_factory=lambda: np.empty(0))
    """(rows,): how much each counts, 0 where it is forgotten."""

    @property
    def skip(self) -> float:
        """The strength s in use: none before the first training, when Z had better spread over all directions alike."""
        return SKIP_GRID[self.path] if self.turn else 0.0

    @property
    def next_path(self) -> int:
        """The path that is tried next."""
        return self.turn % len(SKIP_GRID)

    def held_out(self, rows: IntArray) -> BoolArray:
        """Which of the history's rows are held out next."""
        return np.asarray(split_mix(rows) % np.uint64(FOLDS) == self.turn // len(SKIP_GRID) % FOLDS, np.bool_)

    def with_rows(self, rows: IntArray, weights: Array | None) -> Tuning:
        """With room for these rows of the history, and with them alone counting: so much, or in full."""
        before = self.first + len(self.rewards)
        end = max(before, int(rows[-1]) + 1) if len(rows) else before
        first = max(self.first, end - RECENT)
        gone, new = first - self.first, end - before
        counted, inside = np.zeros(end - first), rows >= first
        counted[rows[inside] - first] = 1.0 if weights is None else weights[inside]
        return replace(
            self,
            first=first,
            predictions=np.pad(self.predictions, ((0, new), (0, 0), (0, 0)), constant_values=np.nan)[gone:],
            rewards=np.pad(self.rewards, (0, new), constant_values=np.nan)[gone:],
            weights=counted,
        )

    def with_predictions(self, rows: IntArray, predictions: Array, rewards: Array) -> Tuning:
        """With what was predicted, (n, rungs), and came on the path whose turn it was, and the choice that follows.

        Rungs that were not reached keep their earlier predictions.
        """
        noted, came, inside = self.predictions.copy(), self.rewards.copy(), rows >= self.first
        noted[rows[inside] - self.first, self.next_path, : predictions.shape[1]] = predictions[inside]
        came[rows[inside] - self.first] = rewards[inside]
        after = replace(self, predictions=noted, rewards=came).advance()
        path, rung = after._choice()
        return replace(after, path=path, rung=rung)

    def errors(self, predictions: Array) -> Array:
        """Squared errors of predictions (rows, paths, rungs), each candidate's shifted and stretched as fits best."""
        rewards = np.where(np.isnan(predictions), np.nan, self.rewards[:, None, None])
        came, ahead = rewards - self._means(rewards)[1], predictions - self._means(predictions)[1]
        alike, squares = self._means(came * ahead)[1], self._means(np.square(ahead))[1]
        stretch = np.maximum(alike, 0) / np.maximum(squares, np.finfo(np.float64).tiny)
        errors: Array = np.square(came - stretch * ahead)
        return errors

    @cached_property
    def gains(self) -> Array:
        """(rows, paths, rungs): by how much errors are below those of the one in use, both fitted to shared rows."""
        own = np.where(np.isnan(self.predictions), np.nan, self.predictions[:, [self.path]][..., [self.rung]])
        return self.errors(own) - self.errors(np.where(np.isnan(own), np.nan, self.predictions))

    def advance(self) -> Tuning:
        """With the next path or fold at its turn."""
        return replace(self, turn=self.turn + 1)

    def _choice(self) -> tuple[int, int]:
        """The best of those that are better beyond doubt, or the one in use."""
        gain, doubt = self.compared()
        sure = np.where(gain > demanded(self._means(self.gains)[0]) * doubt, gain, 0.0)
        path, rung = np.unravel_index(int(np.argmax(sure)), sure.shape)
        return (int(path), int(rung)) if sure[path, rung] > 0 else (self.path, self.rung)

    @property
    def comparable(self) -> bool:
        """Whether every path has been tried on enough of the rewards that the path in use was tried on."""
        tried = ~np.isnan(self.predictions[:, :, 0]) & (self.weights > 0)[:, None]
        return bool(((tried & tried[:, [self.path]]).sum(axis=0) >= FEWEST).all())

    def compared(self) -> tuple[Array, Array]:
        """By how much each candidate's mean error is below that of the one in use, and the standard errors; (s, J)."""
        count, gain, doubt = self._means(self.gains)
        enough = count >= FEWEST
        return np.where(enough, gain, 0.0), np.where(enough, doubt, np.inf)

    def _means(self, values: Array) -> tuple[IntArray, Array, Array]:
        """Over the rows that count and are not NaN: how many, their mean and its standard error; NaN without any."""
        weights = self.weights[:, None, None] * ~np.isnan(values)
        count, total = (weights > 0).sum(axis=0), weights.sum(axis=0)
        among = np.where(count == 0, np.nan, np.maximum(total, np.finfo(np.float64).tiny))
        mean = (weights * np.nan_to_num(values)).sum(axis=0) / among
        squares = np.square(weights * np.nan_to_num(values - mean)).sum(axis=0)
        return count, mean, np.sqrt(squares) / among

    @property
    def noise(self) -> float | None:
        """The root mean square error of what the candidate in use predicts for held-out rewards.

        None until `FEWEST` held-out rewards exist, and while all rewards are equal: treating that as zero noise would
        set β = 0 and stop exploration.
        """
        count, mean, _ = self._means(np.square(self.predictions - self.rewards[:, None, None]))
        own, came = (self.path, self.rung), self.rewards[(self.weights > 0) & ~np.isnan(self.rewards)]
        if count[own] < FEWEST or np.ptp(came) <= SAME * np.abs(came).max():
            return None
        return float(np.sqrt(mean[own]))

    def validation(self) -> Validation:
        """All losses, and how they compare with that of the candidate in use."""
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

    def explain(self) -> str:
        """The choice in one line."""
        chosen = f"J = {STEP_GRID[self.rung]}, s = {SKIP_GRID[self.path]:g}"
        count, mean, error = (of_all[self.path, self.rung] for of_all in self._means(self.errors(self.predictions)))
        if count < FEWEST:
            return f"{chosen}: the start, because too few rewards have been held out to compare"
        gain, doubt = self.compared()
        gain[self.path, self.rung] = -np.inf
        gain[np.isinf(doubt)] = -np.inf
        path, rung = np.unravel_index(int(np.argmax(gain)), gain.shape)
        return (
            f"{chosen}: validation loss {mean:.4g} ± {error:.2g} on {count} rewards, "
            f"against {mean - gain[path, rung]:.4g} with J = {STEP_GRID[rung]}, s = {SKIP_GRID[path]:g} "
            f"(difference {-gain[path, rung]:.2g} ± {doubt[path, rung]:.2g})"
        )

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays, for `restored`."""
        numbers = {"path": self.path, "rung": self.rung, "turn": self.turn, "first": self.first}
        return numbers, {"predictions": self.predictions, "rewards": self.rewards, "weights": self.weights}

    @classmethod
    def restored(cls, saved: Fields, history: History, *, trained: bool) -> tuple[Tuning, bool]:
        """The saved value, and whether it is from before predictions were kept: then without what was held out."""
        old = "errors" in saved and not saved.since(2, "predictions")
        with saved:
            values = saved.array(
                "errors" if old else "predictions", (None, len(SKIP_GRID), len(STEP_GRID)), missing=True
            )
            rows = len(values)
            rewards = np.full(rows, np.nan) if old else saved.array("rewards", (rows,), missing=True)
            tuning = cls(
                path=saved.whole("path", most=len(SKIP_GRID) - 1),
                rung=saved.whole("rung", most=len(STEP_GRID) - 1),
                turn=saved.whole("turn"),
                first=saved.whole("first"),
                predictions=np.full(values.shape, np.nan) if old else values,
                rewards=rewards,
                weights=saved.array("weights", (rows,), least=0, most=1),
            )
            saved.require(rows <= RECENT, f"at most {RECENT} rows may be kept; there are {rows}")
            turned = tuning.turn > 0
            saved.require(turned == trained, "turn must be above 0 where something was learned, and only there")
            saved.require(turned or not rows, "rows may be kept from the first turn on alone")
            inside = tuning.first + rows <= len(history)
            saved.require(inside, f"rows must be among the {len(history)} of the history")
            told = history.rewards[tuning.first : tuning.first + rows]
            predicted = ~np.isnan(tuning.predictions).all(axis=(1, 2))
            # They stood on the scale of rewards in between, so they are the same but for rounding.
            near = np.abs(rewards - told) <= CLOSE * np.max(np.abs(told[~np.isnan(told)]), initial=0.0)
            fits = np.where(predicted, near, np.isnan(rewards)).all()
            saved.require(bool(fits), "rewards must be those of the rows with a prediction, and NaN in the others")
        if old and not np.isnan(values).all():
            warnings.warn(
                "the snapshot was written before self-tuning kept its held-out predictions, so their errors are "
                "dropped. The policy decides as it did; its next updates judge the candidates anew.",
                SnapshotWarning,
                stacklevel=2,
            )
        return tuning, old


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
) -> tuple[TrainingOutcome, Tuning]:
    """A training whose path and length are chosen; `rows` say where the samples stand in the history.

    Predictions are noted in reward units, in which the rewards stand on `scale`. Samples that count `weights` times
    come scaled, (√w·x, √w·y). Where another model predicts `offsets`, in reward units, the rewards are what it leaves.
    """
    scale = scale or RewardScale()
    tuning = tuning.with_rows(rows, weights)
    few = len(rows) <= FEW
    for trial in range(len(SKIP_GRID) * FOLDS if few else MOST):
        if trial and not few and tuning.comparable:
            break
        if trial and deadline.over(deadline.TRIALS):
            deadline.leave_undone("further candidates were not tried")
            break
        held = tuning.held_out(rows)
        if len(rows) < FEWEST or not held.any() or held.all():
            tuning = tuning.advance()
            continue
        tried = replace(network, skip=SKIP_GRID[tuning.next_path])
        objective = objective_of(tried, initial, contexts[~held], rewards[~held], plan)
        checkpoints = descend_to(objective, STEP_GRID, deadline.TRIALS)
        if not checkpoints.reached:
            tuning = tuning.advance()
            continue
        unit = scale.spread / (1.0 if weights is None else np.sqrt(weights[held]))
        center = scale.center if offsets is None else scale.center + offsets[held]
        ahead = [center + unit * tried.values(w, contexts[held]) for w in checkpoints.reached]
        tuning = tuning.with_predictions(rows[held], np.stack(ahead, axis=1), center + unit * rewards[held])
    chosen = replace(network, skip=tuning.skip)
    steps = STEP_GRID[tuning.rung]
    checkpoints = descend_to(objective_of(chosen, initial, contexts, rewards, plan), (steps,))
    return checkpoints.outcome(chosen, steps, tuning.explain()), tuning


def demanded(samples: IntArray) -> Array:
    """z: standard errors by which a rival must be better that was compared on so many samples.

    >>> demanded(np.array([100, 1000, 2000, 50_000])).round(2).tolist()
    [0.5, 1.68, 2.85, 2.85]
    """
    sure = NormalDist().inv_cdf(1 - LEVEL / (len(SKIP_GRID) * len(STEP_GRID) - 1))
    part = np.log(np.clip(samples, SOME, MANY) / SOME) / np.log(MANY / SOME)
    return np.asarray(DOUBT + part * (sure - DOUBT))
