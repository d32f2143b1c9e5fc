"""The default's learner: a Gaussian process whose kernels, noise and memory are chosen by one likelihood.

    r = μ + s·(f(x) + ε)      f ~ GP(0, s²Σ_c w_c k_c / d_c)      ε ~ N(0, s²λ)

    w   weights      of linear, network, products, constant, learned and columns (`rarely._core.model.kernels`)
    d   units        mean of k_c(x, x) over the chosen contexts
    λ   ridge        noise, in units of the signal           s²   variance      in closed form
    α   coefficients (K + λI)⁻¹ r̃ of the mean Σ α_i k(x, x_i)

Each update asks which w, λ and memory give the rewards so far the largest marginal likelihood. It is a product of
predictions, each made before its reward was seen, and it does not depend on why the contexts were chosen: a policy that
chose them by what it had learned may ask it all the same, while held-out errors would mislead it. So the same question
decides whether rewards are linear or bend, how noisy they are, and whether the world has changed.

    w   weights on a grid are climbed from the last choice, and averaged by their likelihood
    R   the metric of the learned kernel comes from the gradients of the last version; it must be worth a charge of
        CHARGE·½d·log n, in the spirit of BIC, because the rewards that judge it have made it
    t   a decay or a change point is asked for only where bets against the predictions of the versions in use have been
        won (`rarely._core.policies.betting`), and must be worth FORGETTING; nothing is ever deleted, so a world that
        returns is found

Up to EXACT rounds mean and Z are exact (t×t). Beyond, both live on the features of INDUCING of the contexts,
φ(x) = L⁻¹k(U, x) with K_UU = LLᵀ, so that a decision takes O(r²) however long the life (Quiñonero-Candela and
Rasmussen, *A unifying view of sparse approximate Gaussian process regression*, 2005).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any, NamedTuple, Self

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Candidates, Covariance, Dual, Primal, Proposal, Widths
from rarely._core.covariance.cholesky import cholesky, lower_inverse, ridge_solution
from rarely._core.covariance.factory import DualFactory
from rarely._core.errors import ApproximationWarning
from rarely._core.growable_array import changed
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import ContextScale, RewardScale
from rarely._core.model import kernels
from rarely._core.model.features import Factors
from rarely._core.model.kernels import COLUMNS, CONSTANT, LEARNED, LINEAR, NAMES, NETWORK, Memory, Units, Views
from rarely._core.policies.betting import AT_ONCE, LATEST, WINDOWS, Bets
from rarely._core.policies.gaussian_process import SPAN, misfits, solved
from rarely._core.policies.learner import (
    RIDGES,
    FitResult,
    Learner,
    RewardTask,
    ScaledLearner,
    likely_ridge,
    split_mix,
    training_rows,
)
from rarely._core.saving.fields import Fields, Shape
from rarely._core.training.gradient_descent import TrainingReport
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, IntArray

LEVELS, CLIMBS = 4, 4  # weights are multiples of 1/LEVELS; steps to a neighbour on their grid, at most, of one update
JUDGED = 300
"""Rewards by which weights are judged, at most: a likelihood of more would choose the same at many times the cost."""
STARTING_WEIGHTS = np.array([0.25, 0.25, 0.25, 0.25, 0.0, 0.0])
NEXT_TO_NOTHING, EXPLORED = 1e-3, 0.1
"""Weights below which a kernel is left out, and the least weight of the network over that of the constant."""
COUNTED = 1000  # contexts by which it is known which columns are mostly 0
FEWEST, FEWEST_FOR_METRIC, FEWEST_FOR_MEMORY = 8, 16, 30
"""Rewards before which nothing is chosen, no metric is learned, and no memory is asked for."""
BENT = 3.0
"""Nats that any kernel but linear and constant must be worth: few rewards would else be spread over all of them."""
CHARGE, STARTING_CHARGE = 0.5, 2.0  # nats that the learned metric must be worth: STARTING_CHARGE + CHARGE·½d·log n
METRIC_COLUMNS = 300
"""Columns up to which a metric is learned: of more it would cost more than all else, and could not pay its charge."""
BLEND, ITERATIONS = 0.1, 2  # part of the identity in the metric, and how often an update follows its own gradients
FORGETTING = 4.0  # nats that forgetting must be worth
DECAYS, CHANGES = (1 / 2000, 1 / 600, 1 / 200, 1 / 60), 14  # decays on trial, and change points: the latest updates
EARLIER = np.exp([-2.4, -1.2, 0.0, 1.2])  # factors of λ that are tried with each memory
HEAVY, HUBER, FARTHEST = 8.0, 1.345, 30.0
"""Robust standard deviations that call for Huber's weights, where these begin, and beyond which rewards are cut."""
PAYOFFS, ONE_SIDED, MISTAKEN = 8, 0.8, 1e4
"""Rewards beyond HEAVY, at least, that count in full, if so many more lie on one side, and none as far as MISTAKEN."""
JITTER = 1e-6
EXACT, INDUCING, LEARNED_FROM = 2048, 512, 20_000
"""Rounds up to which everything is exact, contexts that stand for more of them, and rewards that they learn from."""
COUNTED_IN_Z = 16_384
"""Rounds from which Z is made with inducing contexts: of more a sample stands for all, so that an update is bounded."""
MOST = 2 * EXACT  # rounds that the t×t form takes in, in a batch that goes on beyond EXACT


class Choice(NamedTuple):
    """What evidence chose."""

    weights: Array  # (kernels,): w, which sum to 1
    ridge: float
    variance: float  # s², in squared units of the scaled rewards
    memory: Memory
    point: tuple[int, ...] = ()  # the best point of the grid, in multiples of 1/LEVELS

    def __str__(self) -> str:
        """Name the kernels by their weights, the largest first.

        >>> print(Choice(np.array([0.7, 0.0, 0.3, 0.0, 0.0, 0.0]), 0.1, 1.0, Memory()))
        linear 0.70, products 0.30, ridge 0.1
        """
        order = np.argsort(-self.weights, kind="stable")
        parts = [f"{NAMES[i]} {self.weights[i]:.2f}" for i in order if self.weights[i] >= 0.005]
        return f"{', '.join(parts)}, ridge {self.ridge:.2g}"

    @classmethod
    def restored(cls, saved: Fields) -> Choice:
        weights, point = saved.array("choice.weights", (len(NAMES),)), saved.array("choice.point", (None,), "int")
        on_grid = len(point) in (0, len(NAMES)) and ((point >= 0) & (point <= LEVELS)).all()
        saved.check(on_grid, f"a part of 0 to {LEVELS} of each kernel in choice.point, or none,")
        memory = Memory(saved.number("decay", 0.0), saved.number("change", 0.0))
        ridge, variance = (saved.number(name, above=0.0) for name in ("ridge", "variance"))
        return cls(weights, ridge, variance, memory, tuple(point.tolist()))


@dataclass(frozen=True, eq=False)
class EvidenceLearner(ScaledLearner):
    """A mean and features from the kernels that evidence chose, and what the next choice starts from."""

    scale: ContextScale
    forgets: bool = True  # whether it may forget
    rewards: RewardScale = field(default_factory=RewardScale)
    units: Units | None = None  # None before the first contexts, and while the scale follows them
    zeros: Array = field(default_factory=lambda: np.zeros(0))
    """(d,): how often each column was 0 in the first COUNTED contexts; empty before any."""
    offered: int = 0  # how many contexts these were
    first_units: Units | None = None  # of the contexts of the first round, which it is decided with
    choice: Choice = field(default_factory=lambda: Choice(STARTING_WEIGHTS, 1.0, 1.0, Memory()))
    divisors: Array = field(default_factory=lambda: np.ones(len(NAMES)))  # d_c
    metric: Array | None = None  # R of the kernels in use
    next_metric: Array | None = None  # R that the next update will try
    contexts: Array = field(default_factory=lambda: np.empty((0, 0)))
    """(n, d): of the rewards learned from, or the inducing ones."""
    times: Array = field(default_factory=lambda: np.empty(0))
    coefficients: Array = field(default_factory=lambda: np.empty(0))
    inducing: bool = False
    sums: bool = False
    """Whether the next version is made of sums over blocks, and so on inducing contexts at any number of rounds."""
    now: float = 0.0  # the row of the history from which on this version decides
    learned: int = 0  # rewards that had arrived
    bets: Bets = field(default_factory=Bets)  # against the predictions of the versions so far
    updates: tuple[float, ...] = ()  # rows at which earlier versions began, the change points on trial

    # --- predictions

    @property
    def widths(self) -> Widths:
        if self.inducing:
            return ((1, len(self.contexts)),)
        return kernels.widths(self._mapped_dim, self.choice.weights)

    @property
    def _mapped_dim(self) -> int:
        return self.scale.map.dim if self.scale.fits else self.scale.map.scaled_dim

    @property
    def explored_ridge(self) -> float:
        """λ of bonuses: where evidence sees no signal yet, the prior must not say that there is nothing to explore."""
        return min(self.choice.ridge, 1.0)

    @cached_property
    def _scaled_weights(self) -> Array:
        return np.asarray(self.choice.weights / self.divisors / self.explored_ridge)

    @cached_property
    def _units(self) -> Units:
        return self._units_of(self.scale) if self.units is None else self.units

    def _units_of(self, scale: ContextScale) -> Units:
        moments = scale.moments
        if moments is None or not moments.count:
            return Units.given(self._mapped_dim) if self.first_units is None else self.first_units
        sparse = np.zeros(len(moments.mean), np.bool_)
        if self.offered:
            sparse = self.zeros > kernels.SPARSE * self.offered
        return Units.of(moments.mean, moments.squares / moments.count, sparse)

    def _units_for(self, chosen: Array) -> Units | None:
        """Return the units of a version that learns from these contexts."""
        if self.scale.fits or not len(chosen):
            return self._units_of(self.scale) if self.scale.fits else self.units
        mapped = self.scale.map(chosen)
        return Units.given(mapped.shape[1], float(np.sqrt(np.einsum("ij,ij->i", mapped, mapped).mean())) or 1.0)

    def kernel_features(self, contexts: Array, times: Array | float) -> Factors:
        """Return features whose `kernels.products` are the kernel over the explored ridge."""
        contexts = contexts if self.scale.fits else self.scale.map(contexts)
        views = Views.of(contexts, self._units, self.metric if self.choice.weights[LEARNED] > 0 else None)
        stamps = np.broadcast_to(np.asarray(times, np.float64), (len(contexts),))
        return views.features(self._scaled_weights, stamps, self.choice.memory)

    @cached_property
    def _points(self) -> Factors:
        return self.kernel_features(self.contexts, self.times)

    @cached_property
    def _whitening(self) -> Array:
        """L⁻¹ of the inducing contexts."""
        matrix = kernels.products(self._points, self._points)
        matrix.flat[:: len(matrix) + 1] += JITTER * np.trace(matrix) / len(matrix)
        return lower_inverse(cholesky(matrix)[0])

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        return self._assessed(contexts, self.now)

    def _assessed(self, contexts: Array, times: Array | float) -> tuple[Array, Factors]:
        factors = self.kernel_features(contexts, times)
        if not len(self.coefficients):
            return np.full(len(contexts), self.rewards.center), factors
        cross = kernels.products(self._points, factors)
        if self.inducing:
            factors = Factors(((self._whitening @ cross).T,), (np.ones((len(contexts), 1)),))
        return self.rewards.center + self.rewards.spread * (self.coefficients @ cross), factors

    @property
    def kernel_form(self) -> kernels.KernelForm | None:
        if type(self) is not EvidenceLearner or self.inducing or self.units is None or not self.scale.fits:
            return None
        memory, weights = self.choice.memory, self.choice.weights
        clock = (memory.decay * self.now, float(self.now >= memory.change))
        metric, points = self.metric if weights[LEARNED] > 0 else None, self._points if len(self.coefficients) else None
        model = (clock, self.coefficients, points, self.rewards.center, self.rewards.spread)
        return kernels.KernelForm(self.units, metric, np.sqrt(self._scaled_weights), *model)

    def features(self, contexts: Array) -> Factors:
        return self.assess(contexts)[1] if self.inducing else self.kernel_features(contexts, self.now)

    def features_of(self, history: History) -> Callable[[Array], Factors]:
        return _FeaturesInTime(self, history.remembered()[0].astype(np.float64) if self.choice.memory else None)

    @property
    def noise(self) -> float | None:
        return self.rewards.spread * math.sqrt(self.choice.variance * self.choice.ridge) if self.learned else None

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        return replace(super().version_stats(round, covariance), noise=self.noise or self.rewards.spread)

    # --- contexts

    def with_scale(self, scale: ContextScale) -> Self:
        # While units follow the scale, what was computed with them must not be kept.
        return super().with_scale(scale) if self.units is not None else replace(self, scale=scale)

    def prepare_scale(self, contexts: Array) -> Self:
        if not self.scale.follows or self.offered:
            return self
        sparse = _zeros(contexts) > kernels.SPARSE * len(contexts)
        return replace(self, first_units=Units.of(contexts.mean(axis=0), contexts.var(axis=0), sparse))

    def observe_contexts(self, contexts: Array, rounds: int) -> Self:
        after = super().observe_contexts(contexts, rounds)
        if self.offered >= COUNTED or not self.scale.fits or not len(contexts):
            return after
        zeros = _zeros(contexts) + (self.zeros if self.offered else 0.0)
        # Once units are fixed, what was computed with them holds.
        with_counts = replace if self.units is None else changed
        return with_counts(after, zeros=zeros, offered=self.offered + len(contexts))

    def merge_scale(self, other: Learner) -> Self:
        assert isinstance(other, EvidenceLearner)
        return replace(super().merge_scale(other), zeros=other.zeros, offered=other.offered)

    # --- learning

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        ready = self.with_fitted_scale()
        samples = history.samples()
        if len(samples.rows) > EXACT:
            samples = samples.some(training_rows(samples.rows, LEARNED_FROM))
        data = _Rewards.of(samples.rewards, samples.weights)
        if not math.isfinite(data.scale.spread):
            return FitResult(self, "the rewards are so large that their standard deviation overflows")
        fresh: EvidenceLearner = replace(
            ready, units=ready._units_for(samples.contexts), metric=self.next_metric, now=float(history.total),
            updates=(*self.updates, float(history.total)), learned=history.arrived, rewards=data.scale,
        )  # fmt: skip
        if not len(samples.rows):
            return FitResult(replace(fresh, learned=0), basis=replace(fresh, learned=0))
        bets, alarmed = self._settled(history) if self.forgets else (self.bets, False)
        fresh = replace(fresh, bets=bets)
        fit = _Fit(fresh, samples.contexts, samples.rows.astype(np.float64), data, alarmed)
        learner, report = fit.made(self)
        if not np.isfinite(learner.coefficients).all():
            return FitResult(self, "the estimate overflows: the rewards are too large")
        memory, before = learner.choice.memory, self.choice.memory
        said = "" if str(memory) == str(before) else f"{memory}, because that makes the rewards so far more likely"
        return FitResult(learner, "", learner, self.scale.changed_columns(learner.scale), report, said)

    def _settled(self, history: History) -> tuple[Bets, bool]:
        """Return the bets after the newest rewards, and whether they say that the world has changed."""
        new = len(history.predicted_since(self.learned)[0])
        rewards = history.arrived_since(self.learned)[1]
        bets, alarmed = self.bets, False
        if new and len(self.coefficients) and bets.low < bets.high:
            places, values = history.predicted_since(max(self.learned - WINDOWS[-1], 0))
            forecasts, count = (history.contexts[places], values, history.means[places]), len(places)
            for start in range(count - min(new, LATEST), count, AT_ONCE):
                block = slice(max(start - WINDOWS[-1], 0), start + AT_ONCE)
                contexts, predicted, means = (column[block] for column in forecasts)
                features = self.kernel_features(contexts, self.now)
                gram = kernels.products(features, features)
                gram.flat[:: len(gram) + 1] += (self.choice.ridge + JITTER) / self.explored_ridge
                settled = min(AT_ONCE, count - start), self.learned + new - (count - start)
                bets, alarm = bets.settled(predicted, means, gram, *settled)
                alarmed = alarmed or alarm
        return bets.seen(rewards) if len(rewards) else bets, alarmed

    reads_predictions = True

    def for_blocks(self) -> Self:
        return changed(self, sums=True)

    def reward_task(self, history: History, new: int) -> RewardTask | None:
        return RewardTask(None, LEARNED_FROM, LEARNED_FROM // 2, history.logged)

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.scale.state()
        choice, rewards, bets = self.choice, self.rewards, self.bets
        numbers |= {"reward_center": rewards.center, "reward_spread": rewards.spread}
        numbers |= {"ridge": choice.ridge, "variance": choice.variance} | vars(choice.memory)
        numbers |= {name: getattr(self, name) for name in ("inducing", "now", "offered", "learned")}
        arrays |= {"choice.weights": choice.weights, "choice.point": np.array(choice.point, np.int64)}
        own = ("divisors", "contexts", "times", "coefficients", "zeros", "metric", "next_metric")
        arrays |= {name: array for name in own if (array := getattr(self, name)) is not None}
        arrays["updates"] = np.array(self.updates)
        if bets.low <= bets.high:
            arrays["bets"] = np.array([*bets.won, bets.low, bets.high])
        if self.units is not None:
            numbers["units_clip"] = self.units.clips
            arrays |= {f"units.{name}": getattr(self.units, name) for name in ("center", "rates", "sizes")}
        return numbers, arrays

    def restored(self, saved: Fields) -> Self:
        with saved:
            dim, count = self._mapped_dim, len(NAMES)
            fields: dict[str, Any] = {"inducing": saved.flag("inducing"), "now": saved.number("now", 0.0)}
            fields |= {name: saved.whole(name) for name in ("offered", "learned")}
            contexts = saved.array("contexts", (None, None))
            shapes: dict[str, Shape] = {"divisors": (count,), "zeros": (dim if fields["offered"] else 0,)}
            shapes |= {name: (len(contexts),) for name in ("times", "coefficients")}
            metrics = [name for name in ("metric", "next_metric") if name in saved]
            shapes |= dict.fromkeys(metrics, (dim, dim))
            fields |= {name: saved.array(name, shape) for name, shape in shapes.items()}
            for name in metrics:  # R² has the trace of the identity
                saved.check(np.abs(fields[name]).max() <= dim, f"a {name} of numbers up to {dim}")
            if "units_clip" in saved:
                center, rates, sizes = (saved.array(f"units.{name}", (dim,)) for name in ("center", "rates", "sizes"))
                fields["units"] = Units(center, rates, sizes, saved.flag("units_clip"))
            if "bets" in saved:
                *won, low, high = saved.array("bets", (len(WINDOWS) + 2,)).tolist()
                saved.check(min(won) >= 0 and low <= high, "bets of at least 0, between rewards that rise,")
                fields["bets"] = Bets(tuple(won), low, high)
            return replace(
                self, scale=self.scale.restored(saved), rewards=RewardScale.restored(saved), contexts=contexts,
                choice=Choice.restored(saved), updates=tuple(saved.array("updates", (None,)).tolist()),
                **fields,
            )  # fmt: skip


@dataclass(slots=True)
class _FeaturesInTime:
    """Features of the contexts of a history, asked for in their order, each at its time."""

    learner: EvidenceLearner
    times: Array | None  # None where time does not matter
    done: int = 0

    def __call__(self, contexts: Array) -> Factors:
        if self.times is None:
            return self.learner.features(contexts)
        here = slice(self.done, self.done + len(contexts))
        self.done = here.stop
        return self.learner._assessed(contexts, self.times[here])[1]

    def some(self, rows: IntArray) -> _FeaturesInTime:
        """Return those of some of the contexts."""
        return replace(self, times=None if self.times is None else self.times[rows])


class _Rewards(NamedTuple):
    """Rewards on the scale that they are learned on, and how."""

    scaled: Array
    scale: RewardScale
    heavy: bool  # whether some lie so far out that Huber's weights are called for
    trust: Array  # (n,): how much each counts
    cut: int = 0  # how many count as FARTHEST robust deviations from the median

    @classmethod
    def of(cls, rewards: Array, weights: Array | None) -> _Rewards:
        trust = np.ones(len(rewards)) if weights is None else weights
        if not len(rewards):
            return cls(rewards, RewardScale(), False, trust)
        # In the unit of the largest, squares neither overflow nor vanish.
        unit = float(np.abs(rewards).max()) or 1.0
        mean, deviation = float((rewards / unit).mean()) * unit, float((rewards / unit).std()) * unit
        center = mean if abs(mean) > 5 * deviation else 0.0  # a large common part is no signal
        spread = math.sqrt(float(np.square(rewards / unit - center / unit).mean())) * unit
        heavy, cut = False, 0
        if len(rewards) > FEWEST and len(np.unique(rewards)) > 2:
            middle, robust, far, prizes = tails(rewards)
            heavy = far > 0 and not (prizes and far >= PAYOFFS)
            if heavy and not prizes:
                # Huber's weights are found from errors, which a first fit to numbers without a limit would all enlarge.
                near = np.clip(rewards, middle - FARTHEST * robust, middle + FARTHEST * robust)
                rewards, cut = near, int(np.count_nonzero(near != rewards))
            spread = max(robust, abs(middle - center)) if heavy else spread
        scale = RewardScale(center, spread if spread > 1e-12 * abs(center) else 1.0)
        return cls((rewards - scale.center) / scale.spread, scale, heavy, trust, cut)


class _Fit:
    """One update: the rewards that are in, and the learner that is to learn from them."""

    def __init__(self, fresh: EvidenceLearner, contexts: Array, times: Array, data: _Rewards, alarmed: bool) -> None:
        self.fresh, self.contexts, self.times, self.data, self.alarmed = fresh, contexts, times, data, alarmed
        self.judged = sample_rows(times, JUDGED)  # which rewards judge
        self.judging_times, self.target = times[self.judged], data.scaled[self.judged]
        self.mapped = contexts[self.judged] if fresh.scale.fits else fresh.scale.map(contexts[self.judged])
        assert fresh.units is not None
        self.units = fresh.units
        self.views = Views.of(self.mapped, fresh.units, fresh.metric)
        divisors = self.views.diagonals().mean(axis=1)
        self.divisors = np.where(divisors > 0, divisors, 1.0)

    def made(self, before: EvidenceLearner) -> tuple[EvidenceLearner, TrainingReport]:
        """Return the next version and what is said of it."""
        fresh, count = self.fresh, len(self.times)
        choice, said = before.choice, "the start, because too few rewards are in"
        if count >= FEWEST:
            choice, said = self._chosen(before)
        next_metric = fresh.metric
        if count >= FEWEST_FOR_METRIC and 1 < self.mapped.shape[1] <= METRIC_COLUMNS:
            next_metric = self._next_metric(choice)
        inducing = count > EXACT or fresh.sums
        learner = replace(fresh, choice=choice, divisors=self.divisors, next_metric=next_metric, sums=False)
        learner = self._induced(learner) if inducing else self._solved(learner)
        return learner, TrainingReport(tuning=f"{choice}: {said}", trained=len(self.judged) if inducing else None)

    def _chosen(self, before: EvidenceLearner) -> tuple[Choice, str]:
        """Return what evidence chooses, and how likely it was."""
        wanted = [kernel for kernel in range(len(NAMES)) if kernel != LEARNED or self.views.z is not None]
        target, trust, times = self.target, self._trust(before), self.judging_times
        grams = self.views.grams(wanted) / self.divisors[wanted, None, None]
        charge = STARTING_CHARGE + CHARGE * 0.5 * self.mapped.shape[1] * math.log(len(target))
        tried: dict[tuple[int, ...], Array] = {}
        near, lowest = int(np.argmin(np.abs(np.log(RIDGES / before.choice.ridge)))), math.inf

        def judge(weights: Array, memory: Memory, ridges: Array, *walk: Any) -> tuple[Array, Array]:
            gram = np.tensordot(weights[wanted], grams, 1)
            if memory:
                gram *= memory(times, times)
            return misfits(gram, trust, target, ridges, *walk)

        def misfit(point: tuple[int, ...]) -> float:
            nonlocal near, lowest
            if point not in tried:
                extra = BENT * (point[LINEAR] + point[CONSTANT] < LEVELS) + charge * (point[LEARNED] > 0)
                walk = near, lowest - extra
                tried[point] = judge(np.array(point) / LEVELS, before.choice.memory, RIDGES, *walk)[0] + extra
                if tried[point].min() < lowest:
                    near, lowest = int(np.argmin(tried[point])), float(tried[point].min())
            return float(tried[point].min())

        starts = [tuple(LEVELS * (i == kernel) for i in range(len(NAMES))) for kernel in wanted]
        best = min([before.choice.point, *starts] if before.choice.point else starts, key=misfit)
        for _ in range(CLIMBS):
            higher = min((best, *_neighbours(best, wanted)), key=misfit)
            if higher == best:
                break
            best = higher
        points, table = np.array(list(tried)) / LEVELS, np.array(list(tried.values()))
        table = np.where(table > lowest + SPAN, np.inf, table)
        share = np.exp(lowest - table).sum(axis=1)
        weights = with_exploration(share @ points / share.sum())
        memory, ridge = self._remembered(before, partial(judge, weights), likely_ridge(table))
        variance = float(judge(weights, memory, np.array([ridge]))[1][0])
        said = f"log likelihood {-lowest:.1f} on {len(target)} rewards"
        if self.fresh.forgets or memory:  # else what is remembered was given
            said += f"; {memory}"
        if self.data.cut:
            lie = "reward lies far out, and counts" if self.data.cut == 1 else "rewards lie far out, and count"
            said += f"; {self.data.cut} {lie} as {FARTHEST:.0f} robust deviations at most"
        return Choice(weights, ridge, variance, memory, best), said

    def _trust(self, before: EvidenceLearner) -> Array:
        """Return how much each judging reward counts: Huber's weights by what the version in use predicts."""
        trust = self.data.trust[self.judged]
        if not self.data.heavy or not len(before.coefficients):
            return trust
        predicted = before._assessed(self.contexts[self.judged], before.now)[0]
        rewards = self.data.scale.center + self.data.scale.spread * self.target
        return np.asarray(trust * huber(np.abs(rewards - predicted)))

    def _remembered(
        self, before: EvidenceLearner, judge: Callable[..., tuple[Array, Array]], ridge: float
    ) -> tuple[Memory, float]:
        """Return the memory that the rewards ask for, and λ with it; `judge` has the misfits of memories."""
        asked = self.fresh.forgets and len(self.times) >= FEWEST_FOR_MEMORY
        if not asked or not (before.choice.memory or self.alarmed):
            return Memory(), ridge
        earliest, latest = self.times[0] + 5, self.times[-1] - 5
        changes = [row for row in before.updates if earliest < row < latest][-CHANGES:]
        tried = []
        for memory in (Memory(), *map(Memory, DECAYS), *(Memory(change=row) for row in changes)):
            # All are judged with the best of the same λ, or a smaller one alone would be taken for a change.
            lost = judge(memory, ridge * EARLIER)[0] + FORGETTING * bool(memory)
            tried.append((float(lost.min()), memory, float(ridge * EARLIER[np.argmin(lost)]) if memory else ridge))
        return min(tried, key=lambda each: each[0])[1:]

    def _next_metric(self, choice: Choice) -> Array | None:
        """Return R after some steps along its own gradients."""
        metric, weights = self.fresh.metric, choice.weights.copy()
        weights[LEARNED] = max(weights[LEARNED], 0.5)
        for _ in range(ITERATIONS):
            scaled = weights / weights.sum() / self.divisors
            scaled[COLUMNS] = 0.0  # which has a step wherever another context lies, and so no slope to follow
            if metric is None:  # the network's kernel stands for the learned one
                scaled[NETWORK] += scaled[LEARNED]
                scaled[LEARNED] = 0.0
            views = Views.of(self.mapped, self.units, metric)
            points = views.features(scaled, self.judging_times, choice.memory)
            coefficients, _ = solved(kernels.products(points, points), self.target, choice.ridge + JITTER)
            gradients = views.gradients(views, coefficients, scaled, self.units, metric)
            root = kernels.metric_root(gradients.T @ gradients, BLEND)
            if root is None or not np.isfinite(root).all():
                break
            metric = root
        return metric

    def _solved(self, learner: EvidenceLearner) -> EvidenceLearner:
        """Return the version with the exact mean."""
        learner = replace(learner, contexts=self.contexts, times=self.times)
        gram = kernels.products(learner._points, learner._points) * learner.explored_ridge
        ridge, trust = learner.choice.ridge + JITTER, self.data.trust
        coefficients, residuals = solved(gram, self.data.scaled, ridge / trust)
        for _ in range(2 if self.data.heavy else 0):
            trust = self.data.trust * huber(np.abs(residuals))
            coefficients, residuals = solved(gram, self.data.scaled, ridge / trust)
        return replace(learner, coefficients=coefficients * learner.explored_ridge)

    def _induced(self, learner: EvidenceLearner) -> EvidenceLearner:
        """Return the version on the features of some contexts."""
        at = sample_rows(self.times, INDUCING)
        moment, matrix = np.zeros(len(at)), np.zeros((len(at), len(at)))
        matrix.flat[:: len(at) + 1] = (learner.choice.ridge + JITTER) / learner.explored_ridge
        learner = replace(learner, contexts=self.contexts[at], times=self.times[at], inducing=True, coefficients=moment)
        for start in range(0, len(self.times), EXACT):
            part = slice(start, start + EXACT)
            phi = learner._assessed(self.contexts[part], self.times[part])[1].inputs[0]
            trust = self.data.trust[part]
            matrix += (phi * trust[:, None]).T @ phi
            moment = moment + phi.T @ (trust * self.data.scaled[part])
        return replace(learner, coefficients=learner._whitening.T @ ridge_solution(matrix, moment))


class KernelDual(Dual, by_name=False):
    """The t×t form of kernels, which takes in MOST rounds at most: an update then goes on with inducing contexts."""

    def propose(self, chosen: Candidates) -> Proposal:
        if self.rounds < MOST:
            return super().propose(chosen)
        if not self._announced:
            warnings.warn(
                f"Z holds {self.rounds} rounds, and takes in no more before the next update: bonuses stay as they are "
                "until then. Update more often, or name a network (hidden=200), whose Z keeps to limits.operations.",
                ApproximationWarning,
                stacklevel=6,
            )
        self._announced = True
        return Proposal(chosen.factors, np.full(len(chosen.factors), self.log_det))

    _announced = False

    def accept(self, proposal: Proposal, count: int) -> None:
        if proposal.kept is not None:
            super().accept(proposal, count)


@dataclass(frozen=True, kw_only=True)
class EvidenceFactory(DualFactory):
    """Makes Z of kernels: t×t, or of the features of inducing contexts."""

    inner: Any = kernels.products

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon is not None:
            object.__setattr__(self, "horizon", min(self.horizon, MOST))

    def exact_rounds(self, covariance: Covariance, arms: int) -> int | None:
        return EXACT if isinstance(covariance, Dual) else 0

    def build(
        self, features: Any, widths: Widths, contexts: Array, weights: Array | None = None, **sizes: int
    ) -> Covariance:
        if len(widths) > 1:
            return super().build(features, widths, contexts, weights, **sizes)
        count, covariance = len(contexts), Primal(widths, self.ridge, self._limit(widths))
        rows = sample_rows(np.arange(count), COUNTED_IN_Z)
        features, counts = features.some(rows), np.full(len(rows), count / len(rows))
        counts = counts if weights is None else counts * weights[rows]
        total = np.zeros((covariance.parameters, covariance.parameters))
        for start in range(0, len(rows), EXACT):
            part = slice(start, start + EXACT)
            total += covariance.contribution(features(contexts[rows[part]]).weighted(counts[part]))
        return covariance.with_contributions(total, count)

    def _new(self, form: str, widths: Widths) -> Covariance:
        if len(widths) == 1:
            return Primal(widths, self.ridge, self._limit(widths))
        return KernelDual(widths, self.ridge, self._limit(widths), self.inner)


def with_exploration(weights: Array) -> Array:
    """Return weights of which the network has a tenth of the constant's at least.

    A model of a constant would explore nothing, and one of a constant and a line only what lies far out.

    >>> with_exploration(np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])).round(2).tolist()
    [0.0, 0.09, 0.0, 0.91, 0.0, 0.0]
    """
    weights = np.where(weights < NEXT_TO_NOTHING, 0.0, weights)
    weights[NETWORK] = max(weights[NETWORK], EXPLORED * weights[CONSTANT]) if weights.any() else 1.0
    return np.asarray(weights / weights.sum())


def tails(rewards: Array) -> tuple[float, float, int, bool]:
    """Return the median, a robust standard deviation, how many lie beyond HEAVY, and whether these look like prizes.

    Huber's weights keep the mean where noise has two heavy tails. What lies far out on one side is what one is paid
    for, unless it is so far that it must be a mistake:

    >>> crowd = np.linspace(-1, 1, 200)
    >>> [tails(np.append(crowd, far))[2:] for far in ([90, -90], [90, 90], [1e9, 90])]
    [(2, False), (2, True), (2, False)]
    """
    middle = float(np.median(rewards))
    robust = 1.4826 * float(np.median(np.abs(rewards - middle)))
    far = (rewards - middle)[np.abs(rewards - middle) > HEAVY * robust] if robust > 0 else rewards[:0]
    one_sided = abs(np.sign(far).sum()) >= ONE_SIDED * len(far)
    return middle, robust, len(far), bool(one_sided and np.abs(far).max(initial=0.0) < MISTAKEN * robust)


def huber(sizes: Array, begin: float = HUBER) -> Array:
    """Return Huber's weights of residuals of these sizes; all are 1 unless one lies far out."""
    size = 1.4826 * float(np.median(sizes))
    if not sizes.max(initial=0.0) > HEAVY * size:
        return np.ones(len(sizes))
    return np.minimum(begin * size / np.maximum(sizes, 1e-12 * max(size, 1e-300)), 1.0)


def _neighbours(point: tuple[int, ...], among: list[int]) -> list[tuple[int, ...]]:
    """Return the points that differ by one part, which goes from one kernel to another."""
    steps = np.eye(len(NAMES), dtype=int)
    return [tuple(steps[to] - steps[of] + point) for of, to in permutations(among, 2) if point[of]]


def sample_rows(times: Array | IntArray, most: int) -> IntArray:
    """Return which rows to take, at most so many: all, or those with the smallest hashes."""
    if len(times) <= most:
        return np.arange(len(times))
    return np.sort(np.argpartition(split_mix(times.astype(np.int64) ^ np.int64(len(times))), most)[:most])


def _zeros(contexts: Array) -> Array:
    """Return how often each column is 0."""
    return np.asarray((contexts == 0).sum(axis=0), np.float64)
