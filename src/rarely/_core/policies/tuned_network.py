"""A network that chooses ridge, skip path, noise and memory by the likelihood of the rewards.

    K   ΦΦᵀ/d    kernel      Φ the features of rewards at the weights of the version in use, d the mean of ‖φ‖²
    λ   ridge    noise, in units of the signal; the penalty that the network is trained with is λd
    s   skip     strength of the linear path beside the network

Near its weights a network is linear in them, and so a Gaussian process with the kernel K (MacKay, *A practical Bayesian
framework for backpropagation networks*, 1992; Immer et al., *Scalable marginal likelihood estimation for model
selection in deep learning*, 2021). At each update its marginal likelihood chooses λ and s, one training with that
penalty makes the mean, and Z of the features over √(λd) makes the deviations. The network of the version in use stands
for the next one, so that every update trains once; as far as it has learned directions, they are those of K.

A memory is asked for only while the version in use predicts the newest rewards worse than held-out ones.
What is tried is everything, windows, and all that came since a change; each is judged by the density with which it
predicts each of the latest batches from what it holds before it, and the longest is taken of those within FORGETTING
nats of the best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance
from rarely._core.covariance.cholesky import cholesky, lower_inverse
from rarely._core.inputs.forgetting import Window
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import RewardScale
from rarely._core.model.features import Factors
from rarely._core.policies.evidence import CHANGES, FEWEST, FORGETTING, JUDGED, huber, sample_rows, tails
from rarely._core.policies.gaussian_process import misfits, solved
from rarely._core.policies.learner import (
    RIDGES,
    FitResult,
    Learner,
    Recall,
    RewardTask,
    TrainingSet,
    likely_ridge,
    split_mix,
    training_rows,
)
from rarely._core.policies.network_learner import LastLayerLearner, NetworkLearner, SparseTraining
from rarely._core.saving.fields import Fields
from rarely._core.training.watch import Watch
from rarely._core.types import Array, Arrays, BoolArray, IntArray, forwarded

STEPS = 330  # J: enough for momentum to come close to the minimiser
LEAST_TRUST, BEYOND = 1e-6, 3.0
"""What a reward counts at least, and robust standard deviations from which it counts less where tails are heavy."""
RECALLED = 400  # rewards by which memories are judged, at most: the latest half of them, and a sample of the others
BATCHES, SHORTEST = 8, 25  # batches that a memory predicts, and rounds of the shortest window
ALARM = 2.0  # standard errors by which the newest rewards must be predicted worse than held-out ones
JITTER = 1e-9


@dataclass(frozen=True)
class TunedNetwork(NetworkLearner):
    """The paper's learner, its penalty, skip path, noise and memory chosen by likelihood."""

    forgets: bool = True  # whether it may forget
    ridge: float = 1.0
    unit: float = 1.0  # d
    variance: float = 1.0  # s² of the process, in squared units of the scaled rewards
    held_out: float = math.inf  # mean squared error of leave-one-out predictions, in squared reward units
    learned: int = 0  # rewards that had arrived
    updates: tuple[int, ...] = ()  # rows at which versions began

    chooses_memory = forwarded("forgets")

    @property
    def noise(self) -> float | None:
        return self.rewards.spread * math.sqrt(self.variance * self.ridge) if self.learned else None

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        return replace(Learner.version_stats(self, round, covariance), noise=self.noise or self.rewards.spread)

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        means, factors = super().assess(contexts)
        if not self.learned:  # nothing was chosen, and a ridge as large as the features would leave short ones untried
            return means, factors
        # Z = rI + Σφφᵀ of these features is r/λd times that of the network's with the ridge λd. As for kernels, λ is at
        # most 1 here: a prior that has seen no signal must not say that there is nothing to explore.
        weight = self.plan.ridge / (min(self.ridge, 1.0) * self.unit)
        return means, factors.weighted(np.full(len(means), weight))

    # --- learning

    def learn_dense(self, history: History, watch: Watch) -> FitResult:
        ready = self.with_fitted_scale()
        samples = self.training_set(history, ready.scale)
        if samples.overflow:
            return FitResult(self, samples.overflow)
        counts, (samples, trust) = samples.weights, self._trusted(samples)
        choice, skip, said = self._chosen(samples, counts, trust)
        ready = replace(ready, network=self.network.tuned(skip), **choice)
        planned = replace(ready, plan=replace(self.plan, ridge=ready.ridge * ready.unit))
        outcome = planned.train(samples, watch)
        updates = (*self.updates, history.total)[-CHANGES:]
        learner = replace(ready.trained(outcome, samples.scale), learned=history.arrived, updates=updates)
        fit = self.fit_result(learner, outcome, samples, history)
        if fit.reason:
            return replace(fit, learner=self, basis=None)
        # Without the rounds that were dropped a new Z would be worse than features on two scales.
        whole = fit.rescaled or len(history) == history.total
        return replace(fit, basis=learner if whole else None, report=replace(fit.report, tuning=said))

    def _trusted(self, samples: TrainingSet) -> tuple[TrainingSet, Array]:
        """Return samples with Huber's weights, where rewards have heavy tails, and these weights."""
        rewards = samples.scale.center + samples.scale.spread * samples.rewards
        if len(rewards) <= FEWEST or len(np.unique(rewards)) == 2 or not tails(rewards)[2]:
            return samples, np.ones(len(rewards))
        trust = huber(np.abs(rewards - self._predicted(samples.contexts, rewards)), BEYOND)
        weights = trust if samples.weights is None else trust * samples.weights
        scale = RewardScale.fit(rewards, weights) if self.standardise_rewards else samples.scale
        scaled = (rewards - scale.center) / scale.spread
        return samples._replace(weights=weights, scale=scale, rewards=scaled), trust

    def _predicted(self, scaled: Array, rewards: Array) -> Array:
        """Return what the version in use predicts for contexts on its scale; the median before the first one."""
        if not self.learned:
            return np.full(len(rewards), tails(rewards)[0])
        return self.rewards.center + self.rewards.spread * self.network.values(self.weights, scaled)

    def _chosen(self, samples: TrainingSet, counts: Array | None, trust: Array) -> tuple[dict[str, Any], float, str]:
        """Return the fields that the likelihood of the rewards chooses, the skip path, and why.

        Of rewards that count `counts` times that part judges.
        """
        rows = samples.rows
        among = np.arange(len(rows)) if counts is None else np.flatnonzero(split_mix(rows) < counts * 2.0**64)
        at = among[sample_rows(rows[among].astype(np.float64), JUDGED)]
        if len(at) < FEWEST:
            return {}, self.network.skip or 0.0, "the start, because too few rewards are in"
        contexts, target, trust = samples.contexts[at], samples.rewards[at], np.maximum(trust[at], LEAST_TRUST)
        best, lost = np.empty((0, 0)), np.full(len(RIDGES), np.inf)
        skip, unit = self.network.skips[0], 1.0
        for tried in self.network.skips:
            gram = self.network.tuned(tried).kernel(self.weights, contexts)
            size = float(np.trace(gram)) / len(gram) or 1.0
            misfit = misfits(gram / size, trust, target, RIDGES)[0]
            if misfit.min() < lost.min():
                best, lost, skip, unit = gram / size, misfit, tried, size
        ridge = likely_ridge(lost)
        variance = float(misfits(best, trust, target, np.array([ridge]))[1][0])
        residuals = solved(best, target, ridge / trust)[1]
        held_out = float(np.square(residuals).mean()) * samples.scale.spread**2
        said = f"ridge {ridge:.2g}, log likelihood {-lost.min():.1f} on {len(target)} rewards"
        return {"ridge": ridge, "unit": unit, "variance": variance, "held_out": held_out}, skip, said

    def reward_task(self, history: History, new: int) -> RewardTask | None:
        return None  # its likelihood, and Z on the features of each update, need the rounds themselves

    def shares_features(self, other: Learner) -> bool:
        return False

    def needs(self, history: History) -> BoolArray | None:
        if self.training_rows is None or history.arrived <= self.training_rows:
            return None
        needed, there = np.zeros(len(history), np.bool_), np.flatnonzero(~np.isnan(history.rewards))
        needed[there[training_rows(history.rows[there], self.training_rows)]] = True
        return needed | history.came_after(self.learned)

    # --- memory

    def recall(self, history: History, new: int) -> Recall:
        before = history.forgetting
        if not self.forgets or not self.learned:
            return super().recall(history, new)
        if before is None and not self._alarmed(history):
            return Recall(None)
        samples = history.with_forgetting(None).samples().clipped(self.clip)
        if self.sparse is not None:
            return SparseTraining(self, samples.contexts).inside.recall(history, new)
        samples = samples.some(training_rows(samples.rows, RECALLED))
        contexts, scaled = self.scale(samples.contexts), self.rewards
        gram = self.variance / self.unit * self.network.kernel(self.weights, contexts)
        trust = np.ones(len(samples.rows))
        if tails(samples.rewards)[2]:
            trust = huber(np.abs(samples.rewards - self._predicted(contexts, samples.rewards)), BEYOND)
        target = (samples.rewards - scaled.center) / scaled.spread
        found = remembered(samples.rows, target, gram, self.variance * self.ridge / trust, self.updates)
        rounds = found.rounds(history.total)
        memory = Window(rounds) if rounds < history.total else None
        was = before.rounds if isinstance(before, Window) else self.updates[-1]
        if found.rounds(self.updates[-1]) == was:
            return Recall(memory)
        what = f"the last {rounds} rounds predict" if memory else "all rounds together predict"
        return Recall(memory, f"{what} the newest rewards better than another memory, by {found.gain:.1f} nats")

    def _alarmed(self, history: History) -> bool:
        """Return whether the version in use predicts the newest rewards worse than held-out ones, in the mean.

        What a column is worth in which nothing had varied, as that of an arm which has come, nobody could know: rewards
        that show it say nothing of the world so far, and are left out.
        """
        contexts, rewards = history.arrived_since(self.learned)
        errors = np.square(rewards - NetworkLearner.assess(self, contexts)[0])
        if not self._surprising(errors):
            return False
        before = history.last_arrivals(history.arrived)[1][: -len(rewards)]
        still = (before == before[:1]).all(axis=0) & (len(before) > 0)
        return self._surprising(errors[(contexts[:, still] == before[:1, still]).all(axis=1)])

    def _surprising(self, errors: Array) -> bool:
        """Return whether these squared errors are more than those of held-out rewards."""
        if len(errors) < 2:
            return False
        return bool(errors.mean() > self.held_out + ALARM * errors.std(ddof=1) / math.sqrt(len(errors)))

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = super().state()
        numbers |= {name: getattr(self, name) for name in ("ridge", "unit", "variance", "learned")}
        numbers |= {"skip": self.network.skip or 0.0, "held_out": None}
        numbers |= {} if math.isinf(self.held_out) else {"held_out": self.held_out}
        return numbers, arrays | {"updates": np.array(self.updates, np.int64)}

    def restored(self, saved: Fields) -> Self:
        skip = saved.number("skip")
        saved.check(skip in self.network.skips, f"a skip among {self.network.skips}")
        own: dict[str, Any] = {name: saved.number(name, above=0.0) for name in ("unit", "variance")}
        own |= {"ridge": saved.number("ridge", RIDGES[0] / 2), "learned": saved.whole("learned")}
        own["held_out"] = math.inf if saved.is_null("held_out") else saved.number("held_out", 0.0)
        own["updates"] = tuple(saved.array("updates", (None,), "int").tolist())
        return replace(super().restored(saved), network=self.network.tuned(skip), **own)


@dataclass(frozen=True)
class TunedLastLayer(LastLayerLearner, TunedNetwork):
    """NeuralLinear on such a network."""


TUNED: dict[type[Any], type[TunedNetwork]] = {NetworkLearner: TunedNetwork, LastLayerLearner: TunedLastLayer}
"""What tunes itself in the place of a learner whose training is named."""


class Remembered(NamedTuple):
    """A memory on trial: the latest `window` rounds, and of them what came since `change`."""

    window: float = math.inf
    change: int = 0
    gain: float = 0.0  # nats by which it predicts better than everything

    def first(self, row: int) -> int:
        """Return the first row that it holds when a batch begins with this row."""
        return int(max(self.change if row >= self.change else 0, row - self.window))

    def rounds(self, total: int) -> int:
        """Return how many of so many rounds are remembered."""
        return total - self.first(total)


def remembered(rows: IntArray, target: Array, gram: Array, noise: Array, begun: tuple[int, ...]) -> Remembered:
    """Return the memory with which a Gaussian process predicts the latest batches best.

    `rows` of the rewards rise, `gram` is their covariance, and `begun` are the rows at which batches began.
    """
    starts = [row for row in begun if FEWEST <= np.searchsorted(rows, row) <= len(rows) - FEWEST]
    if not starts:
        return Remembered()
    latest = starts[-BATCHES:]
    tried = [Remembered(change=row) for row in starts]
    window = float(SHORTEST)
    while window <= (rows[-1] + 1 - rows[0]) / 2:
        tried.append(Remembered(window=round(window)))
        window *= math.sqrt(2)
    ends = [*np.searchsorted(rows, latest[1:]), len(rows)]

    def density(memory: Remembered) -> float:
        parts = []
        for row, end in zip(latest, ends, strict=True):
            first, cut = np.searchsorted(rows, (memory.first(row), row))
            parts.append(_errors(target[first:end], gram[first:end, first:end], noise[first:end], int(cut - first)))
        errors, deviations = np.concatenate(parts, axis=1)
        # The unit of all deviations is put in, as in the choice of λ: what was thought to be without noise may not be.
        unit = (float(errors @ errors) + 1) / (len(errors) + 1)
        return float(-0.5 * len(errors) * math.log(unit) - np.log(deviations).sum())

    # What still holds is not forgotten for a little: of memories that predict about equally well, the longest.
    everything = density(Remembered())
    judged = [Remembered(), *(memory._replace(gain=density(memory) - everything) for memory in tried)]
    best = max(memory.gain for memory in judged)
    good, total = [memory for memory in judged if memory.gain > best - FORGETTING], int(rows[-1]) + 1
    return max(good, key=lambda memory: memory.rounds(total))


def _errors(target: Array, gram: Array, noise: Array, before: int) -> Array:
    """Return errors of predictions of the rewards from `before` on, one after the other, over their deviations; (2, n).

    Each is predicted from all rewards before it; the second row has the deviations.
    """
    matrix = gram.copy()
    matrix.flat[:: len(matrix) + 1] += noise + JITTER * np.trace(gram) / max(len(gram), 1)
    factor = cholesky(matrix)[0]
    return np.stack(((lower_inverse(factor) @ target)[before:], np.diag(factor)[before:]))
