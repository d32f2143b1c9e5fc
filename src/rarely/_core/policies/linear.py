"""LinUCB and LinTS under any schedule: ridge regression, exactly, with upper confidence bounds or sampling.

    θ̂ = (λI + XᵀX)⁻¹ Xᵀr  over the rounds whose rewards are in

With many columns and fewer rewards than columns, the same θ̂ = Xᵀ(λI + XXᵀ)⁻¹ r = Wᵀy grows with them, at a cost of nd
a reward: W = L⁻¹X and y = L⁻¹r with LLᵀ = λI + XXᵀ, so nothing is d×d.

A linear model is a network of one layer without hidden units: its feature is x itself, so it shares the covariances.
With `DeterminantTrigger` and frozen bonuses it is the rarely switching OFUL of Abbasi-Yadkori et al. (2011).

With ridge="learned", λ and the noise are learned from the rewards:

    r = o + x·θ + ε      θ ~ N(0, s²I)      ε ~ N(0, s²λ)

λ, in mean squared lengths of contexts, is averaged over a grid by the likelihood of the rewards so far, as in
`rarely._core.policies.evidence`, and s² is in closed form. With the eigenvalues a of XᵀX and the squared projections q
of the rewards on XᵀX's image,

    −2 log p = n log s² + Σ log(a + λ) + (n − rank) log λ      s² = (Σ q/(a + λ) + (rᵀr − Σq)/λ + 1)/(n + 1)

in units in which rewards and contexts have mean square 1. So a bonus of β standard deviations of the noise is the same
in cents and in euros. The eigenvalues are computed when the rewards have grown by a tenth; between, an update costs
what a textbook's does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from rarely._core.choice.confidence_radius import Beta, NoiseRadius, VersionStats
from rarely._core.choice.random_stream import Seed
from rarely._core.choice.rules import ChoiceRule, Mixture, Thompson, UpperConfidence
from rarely._core.covariance import RECENT, Covariance, CovarianceFactory, DualFactory, Kind, Widths
from rarely._core.covariance.cholesky import PANEL, cholesky, lower_inverse, ridge_solution
from rarely._core.errors import InvalidInput, check_choice, check_flag
from rarely._core.growable_array import GrowableArray, all_finite, changed, place
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import Affine, ContextMap, ContextScale
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.model.features import Factors
from rarely._core.model.sparse_features import SparseFactors, sparse_gram, times, unpacked
from rarely._core.native import in_use, library
from rarely._core.policies.learner import RIDGES, FitResult, Learner, RewardTask, likely_ridge, saved_fields
from rarely._core.policies.options import DEFAULT_HISTORY, Limits, limits_from
from rarely._core.policies.policy import Policy, Ties
from rarely._core.policies.state import WithinBatch
from rarely._core.saving.fields import Fields
from rarely._core.schedules import EveryRound, Schedule
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, forwarded


@lru_cache(maxsize=64)
def unit_signals(count: int) -> Array:
    """Return the signals of that many contexts: a linear model has no weights above its only layer."""
    ones = np.ones((count, 1))
    ones.flags.writeable = False
    return ones


OVERFLOW = "the ridge estimate overflows: the rewards are too large"
WIDE = 256  # columns up to which d×d is next to nothing
MAX_ITERATIONS, CONVERGED = (
    1000,
    1e-15,
)  # of conjugate gradients, which stop at this relative residual: rounding
FEWEST, GROWTH = 8, 1.1  # rewards before which nothing is chosen, and by how much they have grown when it is again
WIDEST = 512  # rewards up to which λ is chosen where they are fewer than columns
STEPS, SETTLED = 4, 64
"""Values of the explored ridge in a factor of ten, and rewards after which it stays: Z is made anew when it changes."""


@dataclass(frozen=True)
class LinearLearner(Learner):
    """A ridge estimate; `scale` appends the constant where there is an intercept."""

    scale: ContextMap
    ridge: float
    coefficients: Array
    matrix: Array | None  # λI + XᵀX over the rewards learned from; None before any, and while `basis` stands for it
    moment: Array  # Xᵀr
    learned: int = 0  # how many of the rewards, in the order in which they came, are in both
    basis: GrowableArray | None = None  # W, (n, d), of many columns and fewer rewards
    rows: GrowableArray | None = None
    """X, where there is W: XᵀX is made of it in the end, when the history may have dropped its rows."""
    steps: Array | None = None
    """The inverse of the factor of `matrix`, and this, `moment` and θ, (2p + 2, p), which new rewards join one by one;
    None where it would have to be made."""

    @classmethod
    def start(cls, scale: ContextMap, ridge: float) -> LinearLearner:
        zero = np.zeros(scale.scaled_dim)
        return cls(scale, ridge, zero, None, zero)

    dim = forwarded("scale.dim")

    @property
    def widths(self) -> Widths:
        return ((1, self.scale.scaled_dim),)

    @property
    def linear_form(self) -> tuple[Affine, Array] | None:
        own = type(self) is LinearLearner and type(self.scale) is Affine
        return (self.scale, self.coefficients) if own and isinstance(self.scale, Affine) else None

    @property
    def _start(self) -> Array:
        """λI."""
        return np.diag(np.full(self.scale.scaled_dim, self.ridge))

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        x = self.scale(contexts)
        return x.dot(self.coefficients), Factors((x,), (unit_signals(len(x)),))

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        few = self.with_few_rewards(history)
        if few is not None:
            return FitResult(few)
        start, weights = self, None
        if history.forgetting is None:
            contexts, rewards = history.arrived_since(self.learned)
            x, learned = self.scale(contexts), self.learned + len(rewards)
            count, total = float(len(rewards)), learned
        else:  # weights change with every round, so earlier sums are of no use
            _, contexts, rewards, weights = history.samples()
            assert weights is not None
            x, rewards = self.scale(contexts) * np.sqrt(weights)[:, None], rewards * np.sqrt(weights)
            start, learned, count, total = self.emptied(), 0, float(weights.sum()), len(rewards)
        wide = start.matrix is None and WIDE < self.scale.scaled_dim > total
        with np.errstate(over="ignore", invalid="ignore"):
            learner = start.with_rewards(x, rewards, count, wide=wide)
        reason = "" if all_finite(learner.coefficients) else OVERFLOW
        if history.forgetting is not None:
            learner = changed(learner, basis=None, rows=None)
        return FitResult(changed(learner, learned=learned), reason)

    def emptied(self) -> LinearLearner:
        return self.start(self.scale, self.ridge)

    def with_rewards(self, x: Array, rewards: Array, count: float, *, wide: bool) -> LinearLearner:
        """Return the estimate with more samples, of this weight together."""
        return (self._grown if wide else self._summed)(x, rewards)

    @property
    def theta(self) -> Array:
        """θ̂, of which x·θ̂ is the mean."""
        return self.coefficients

    def _with_matrix(self) -> LinearLearner:
        """Return the estimate with XᵀX in the place of W and X."""
        if self.matrix is not None:
            return self
        return changed(self, matrix=self._start + self._x.T.dot(self._x), basis=None, rows=None)

    @property
    def _x(self) -> Array:
        """X, where W stands for XᵀX; without rows before any reward."""
        return np.empty((0, self.scale.scaled_dim)) if self.rows is None else self.rows.view

    def reward_task(self, history: History, new: int) -> RewardTask:
        return RewardTask(self.scale, RECENT, RECENT, history.logged)  # by the latest, forms of Z are compared

    def with_reward_sums(self, total: Array, history: History, arrived: int) -> LinearLearner:
        start, (matrix, moment, _) = self._with_matrix(), RewardTask.parts(total)
        sums = {"matrix": np.asarray(start.matrix) + matrix, "moment": self.moment + moment}
        return changed(start, **sums, learned=arrived, steps=None)

    def _summed(self, x: Array, rewards: Array) -> LinearLearner:
        """Return the estimate with more samples, from λI + XᵀX."""
        start = self._with_matrix()
        matrix, moment = np.asarray(start.matrix) + x.T.dot(x), self.moment + x.T.dot(rewards)
        sums = {"matrix": matrix, "moment": moment}
        return changed(start, coefficients=self._solution(matrix, moment), **sums, steps=None)

    def with_few_rewards(self, history: History) -> LinearLearner | None:
        """Return what `learn` does with some new rewards, as steps of rank one; None where another way is better."""
        p, count = len(self.moment), history.arrived - self.learned
        own = type(self) is LinearLearner and history.forgetting is None
        if not own or not 0 < count <= p <= PANEL or not in_use():
            return None
        contexts, rewards = history.arrived_since(self.learned)
        plain = isinstance(self.scale, Affine) and not self.scale.changes  # appends a constant at the most
        x, block = contexts if plain else self.scale(contexts), self._steps()
        if not library().rarely_regress(p, x.shape[1], count, place(x), place(rewards), place(block)):
            return None
        new = {"coefficients": block[-1], "moment": block[-2], "matrix": block[p:-2], "steps": block}
        return changed(self, learned=self.learned + count, **new)

    def _steps(self) -> Array:
        """Return `steps` of this estimate, which may be changed."""
        if self.steps is not None:
            return self.steps.copy()
        matrix = np.asarray(self._with_matrix().matrix)
        return np.vstack((lower_inverse(cholesky(matrix)[0]), matrix, self.moment, self.coefficients))

    def _solution(self, matrix: Array, moment: Array) -> Array:
        return ridge_solution(matrix, moment)

    def _grown(self, x: Array, rewards: Array) -> LinearLearner:
        """Return the estimate with more samples, from W: the rows of L for them are (xWᵀ, factor)."""
        basis = GrowableArray(x.shape[1]) if self.basis is None else self.basis.fork()
        held = GrowableArray(x.shape[1]) if self.rows is None else self.rows.fork()
        held.append(x)
        cross = basis.view @ x.T
        corner = x @ x.T
        corner.flat[:: len(x) + 1] += self.ridge
        inverse = lower_inverse(cholesky(corner - cross.T @ cross, corner.diagonal())[0])
        # θ̂ = Wᵀy, so known rows predict x·θ̂ of the new ones: y holds what is left of their rewards.
        y = inverse @ (rewards - x @ self.coefficients)
        rows = inverse @ (x - cross.T @ basis.view)
        basis.append(rows)
        coefficients, moment = self.coefficients + y @ rows, self.moment + x.T @ rewards
        return changed(self, coefficients=coefficients, moment=moment, basis=basis, rows=held)

    def needs(self, history: History) -> BoolArray | None:
        """Return the rows that its sums do not hold yet."""
        return history.came_after(self.learned) if self.learned else None

    rebuilds = False

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {"coefficients": self.coefficients, "moment": self.moment}
        if self.basis is not None and self.rows is not None:
            arrays |= {"basis": self.basis.view, "rows": self.rows.view}
        elif self.matrix is not None:
            arrays["matrix"] = self.matrix
        if self.steps is not None:
            arrays["inverse"] = self.steps[: self.scale.scaled_dim]
        return {"learned": self.learned}, arrays

    def restored(self, saved: Fields) -> LinearLearner:
        width, basis, rows, matrix = self.scale.scaled_dim, None, None, None
        with saved:
            learned = saved.whole("learned")
            if width > WIDE and "basis" in saved:
                basis, rows = GrowableArray(width), GrowableArray(width)
                basis.append(saved.array("basis", (learned, width)))
                rows.append(saved.array("rows", (learned, width)))
            elif learned or "matrix" in saved:
                matrix = saved.array("matrix", (width, width))
            sums: dict[str, Any] = {name: saved.array(name, (width,)) for name in ("coefficients", "moment")}
            if "inverse" in saved and matrix is not None:
                vectors = sums["moment"], sums["coefficients"]
                sums["steps"] = np.vstack((saved.array("inverse", (width, width)), matrix, *vectors))
            return replace(self, matrix=matrix, learned=learned, basis=basis, rows=rows, **sums)


@dataclass(frozen=True)
class LearnedLinear(LinearLearner):
    """A ridge estimate that learns λ, the noise, and where rewards lie."""

    origin: float = 0.0  # o, what `moment` and `squares` take from the rewards; 0 without a constant column
    squares: float = 0.0  # Σ(r − o)²
    lengths: float = 0.0  # Σ‖x‖²
    count: float = 0.0  # n, or the sum of weights
    chosen: int = 0  # rewards at the last choice
    deviation: float = 1.0  # √(s²λ), in the units of rewards
    explored: float = 1.0  # the ridge of Z, in the units of contexts: λ, but at most the mean squared length

    def emptied(self) -> LinearLearner:
        return replace(super().emptied(), **{name: getattr(self, name) for name in ("chosen", "deviation", "explored")})

    @property
    def _start(self) -> Array:
        """0: `matrix` is XᵀX alone, of which a λ in the units of large columns would leave no digits of small ones."""
        return np.zeros((self.scale.scaled_dim, self.scale.scaled_dim))

    def _solution(self, matrix: Array, moment: Array) -> Array:
        return super()._solution(matrix + self.ridge * np.eye(len(matrix)), moment)

    @property
    def theta(self) -> Array:
        theta = self.coefficients.copy()
        if self.scale.constant:
            theta[-1] += self.origin
        return theta

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        x = self.scale(contexts)
        return x.dot(self.theta), Factors((x / math.sqrt(self.explored),), (unit_signals(len(x)),))

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        return replace(super().version_stats(round, covariance), noise=self.deviation)

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        fit = super().learn(history, watch)
        learner = fit.learner
        assert isinstance(learner, LearnedLinear)
        if fit.reason or not learner.count:
            return fit
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if learner._asks(forgets=history.forgetting is not None):
                learner = learner._recentred()._with_choice()
        if not np.isfinite((learner.deviation, learner.squares, *learner.coefficients)).all():
            return FitResult(self, "the estimate overflows: rewards or contexts are too large")
        if self.chosen >= SETTLED or len(history) < history.total:  # Z is not made anew of rows that may be dropped
            learner = changed(learner, explored=self.explored)
        rebuilt = learner.explored != self.explored and history.forgetting is None
        return FitResult(learner, basis=learner if rebuilt else None)

    @property
    def rebuilds(self) -> bool:  # type: ignore[override]
        """Whether Z may be made anew, of all rounds."""
        return self.chosen < SETTLED

    def needs(self, history: History) -> BoolArray | None:
        return None if self.rebuilds else super().needs(history)

    def with_rewards(self, x: Array, rewards: Array, count: float, *, wide: bool) -> LinearLearner:
        start = self
        if self.scale.constant and len(x):
            constant = x[:, -1]
            if not self.count:
                start = replace(self, origin=float(constant @ rewards / (constant @ constant)))
            rewards = rewards - start.origin * constant
        learner = super(LearnedLinear, start).with_rewards(x, rewards, count, wide=wide)
        return changed(
            learner,
            squares=self.squares + float(rewards @ rewards),
            lengths=self.lengths + float(np.einsum("ij,ij->", x, x)),
            count=self.count + count,
        )

    def with_reward_sums(self, total: Array, history: History, arrived: int) -> Self:
        (matrix, moment, squares), o = RewardTask.parts(total), self.origin
        learner = super().with_reward_sums(total, history, arrived)
        if self.scale.constant:
            learner = changed(learner, moment=learner.moment - o * matrix[:, -1])
            squares += o * (o * float(matrix[-1, -1]) - 2 * float(moment[-1]))
        sums = {"squares": self.squares + squares, "lengths": self.lengths + float(np.trace(matrix))}
        return cast(Self, changed(learner, **sums, count=self.count + arrived - self.learned))

    # --- the choice

    def _asks(self, *, forgets: bool) -> bool:
        """Whether it is time to choose: at each update where rewards are forgotten, so that sums begin anew."""
        grown = forgets or self.learned >= GROWTH * self.chosen
        few = self.rows is not None and self.learned <= WIDEST
        return grown and self.lengths > 0 and (self.matrix is not None or few)

    def _gram(self) -> Array:
        """Return XᵀX, or XXᵀ where there are fewer rewards than columns."""
        return np.asarray(self._x @ self._x.T) if self.matrix is None else self.matrix

    def _recentred(self) -> LearnedLinear:
        """Return the same sums about the mean of the rewards; without a constant column they stay about 0."""
        if not self.scale.constant:
            return self
        column = self._x.T @ self._x[:, -1] if self.matrix is None else self.matrix[:, -1]
        shift = float(self.moment[-1] / column[-1])
        squares = max(self.squares - shift * shift * float(column[-1]), 0.0)
        return replace(self, origin=self.origin + shift, moment=self.moment - shift * column, squares=squares)

    def _with_choice(self) -> LearnedLinear:
        """Return the estimate with the λ that makes the rewards likely."""
        length, spread = self.lengths / self.count, self.squares / self.count or 1.0
        if not math.isfinite(length * spread):
            return replace(self, deviation=math.inf)
        ridge, deviation = 1.0, math.sqrt(spread)
        if self.count >= FEWEST:
            ridge, deviation = self._likely(length, spread)
        steps = round(STEPS * math.log10(min(ridge, 1.0) * length))
        chosen = replace(self, chosen=self.learned, deviation=deviation, explored=10 ** (steps / STEPS))
        return chosen._with_ridge(ridge * length)

    def _likely(self, length: float, spread: float) -> tuple[float, float]:
        """Return λ in units of `length`, averaged by likelihood, and the deviation of the noise."""
        values, vectors = np.linalg.eigh(self._gram())
        known = values > 1e-12 * values[-1]
        values, vectors = values[known], vectors[:, known]
        if self.matrix is None:
            images = np.square(vectors.T @ (self._x @ self.moment) / values)
        else:
            images = np.square(vectors.T @ self.moment) / values
        values, images = values / length, images / spread
        rest = max(self.squares / spread - float(images.sum()), 0.0)

        def variance(ridges: Array) -> Array:
            explained = (images / (values + ridges[:, None])).sum(axis=1)
            return np.asarray((explained + rest / ridges + 1) / (self.count + 1))

        lost = self.count * np.log(variance(RIDGES)) + np.log(values + RIDGES[:, None]).sum(axis=1)
        lost += (self.count - len(values)) * np.log(RIDGES)
        ridge = likely_ridge(lost / 2)
        return ridge, math.sqrt(spread * ridge * float(variance(np.array([ridge]))[0]))

    def _with_ridge(self, ridge: float) -> LearnedLinear:
        other = replace(self, ridge=ridge)
        if self.matrix is not None:
            return replace(other, coefficients=other._solution(self.matrix, self.moment))
        corner = self._gram()
        corner.flat[:: len(corner) + 1] += ridge
        rows = lower_inverse(cholesky(corner)[0]) @ self._x
        basis = GrowableArray(rows.shape[1])
        basis.append(rows)
        coefficients = (self.moment - rows.T @ (rows @ self.moment)) / ridge
        return replace(other, basis=basis, coefficients=coefficients)

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = super().state()
        names = ("ridge", "origin", "squares", "lengths", "count", "chosen", "deviation", "explored")
        return numbers | {name: getattr(self, name) for name in names}, arrays

    def restored(self, saved: Fields) -> Self:
        with saved:
            numbers: dict[str, Any] = {name: saved.number(name, 0.0) for name in ("squares", "lengths", "count")}
            numbers |= {name: saved.number(name, above=0.0) for name in ("ridge", "deviation", "explored")}
            numbers |= {"origin": saved.number("origin"), "chosen": saved.whole("chosen")}
            return cast(Self, super(LearnedLinear, replace(self, **numbers)).restored(saved))


@dataclass(frozen=True)
class SparseLinearLearner(Learner):
    """The same estimate from sparse contexts, by conjugate gradients on (λI + XᵀX)θ = Xᵀr: X is never written out."""

    scale: SparseRows
    ridge: float
    coefficients: Array

    @classmethod
    def start(cls, scale: SparseRows, ridge: float) -> SparseLinearLearner:
        return cls(scale, ridge, np.zeros(scale.scaled_dim))

    dim = forwarded("scale.dim")

    @property
    def widths(self) -> Widths:
        return ((1, self.scale.dim + 2 * self.scale.constant),)

    sparse = forwarded("scale")

    theta = forwarded("coefficients")

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        packed = self.scale.padded(contexts)
        factors = SparseFactors((packed,), (np.ones((len(packed), 1)),))
        return times(self.coefficients[None], packed)[:, 0], factors

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        _, contexts, rewards, weights = history.samples()
        columns, numbers = unpacked(self.scale.padded(contexts))
        weigh = np.ones(len(rewards)) if weights is None else weights

        def gathered(rows: Array, terms: Array) -> Array:
            terms = (rows[:, None] * terms).ravel()
            return np.asarray(np.bincount(columns.ravel(), terms, len(self.coefficients)), np.float64)

        def product(theta: Array) -> Array:
            fitted = np.einsum("ij,ij->i", theta[columns], numbers)
            return np.asarray(self.ridge * theta + gathered(weigh * fitted, numbers))

        with np.errstate(over="ignore", invalid="ignore"):
            moment = gathered(weigh * rewards, numbers)
            diagonal = self.ridge + gathered(weigh, np.square(numbers))
            estimate = conjugate_gradients(product, moment, diagonal, self.coefficients)
        return FitResult(self, OVERFLOW) if estimate is None else FitResult(changed(self, coefficients=estimate))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return saved_fields(self)

    def restored(self, saved: Fields) -> SparseLinearLearner:
        with saved:
            numbers = {name: saved.alike(name, number) for name, number in self.state()[0].items()}
            return replace(self, coefficients=saved.array("coefficients", self.coefficients.shape), **numbers)


def conjugate_gradients(
    product: Callable[[Array], Array], target: Array, diagonal: Array, start: Array
) -> Array | None:
    """Return A⁻¹ target from `product`, θ ↦ Aθ, preconditioned by A's diagonal; None if numbers are too large."""
    solution, scale = start, float(np.sqrt(target @ (target / diagonal)))
    residual = target - product(solution)
    direction, before = np.zeros_like(target), 1.0
    for _ in range(MAX_ITERATIONS):
        eased = residual / diagonal
        size = float(residual @ eased)
        if not np.isfinite(size):
            return None
        if np.sqrt(size) <= CONVERGED * scale:
            break
        direction = eased + size / before * direction
        image = product(direction)
        step = size / float(direction @ image)
        solution, residual, before = solution + step * direction, residual - step * image, size
    return solution


class LinUCB(Policy):
    """LinUCB (Li et al., 2010) with one shared linear model, with or without an intercept.

    Parameters
    ----------
    dim, schedule
        d, numbers in a context; when updates are due. Without a schedule they are due after every round.
    intercept
        Whether a constant is appended to contexts; a `context_scale` says so itself.
    ridge, beta
        λ of the ridge regression and of Z_1 = λI; β in bonus = β·√(xᵀZ⁻¹x), in the units of rewards. The defaults are
        the textbook's, and meant for rewards of mean near 0 and spread near 1: shift and scale others first, or take
        ridge="learned". Then λ and the noise come from the likelihood of the rewards, in any units, and a number β is
        in standard deviations of the noise (not with sparse contexts).
    within_batch
        "running": bonuses follow every decision, so that the rounds of a batch spread over the arms. "frozen": they
        stay as they were when the batch began. None is "running"; `LinTS` spreads by itself, and is "frozen".
    context_scale
        An `Affine` of contexts; `**blocks.settings` has it for contexts made of blocks.
    covariance, exploration, forgetting, ties, seed
        As in `BatchNeuralUCB`.
    limits
        Memory and history, as in `Limits`. Where `Limits.history` is reached, an update drops the rounds whose rewards
        its sums hold, which changes no decision; only then the oldest rounds without a reward.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> policy = LinUCB(dim=2, beta=0.0)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.observe(decision, 2.0)
    >>> policy.update().accepted, policy.coefficients.round(3)
    (True, array([0.667, 0.   , 0.667]))
    """

    def __init__(
        self,
        dim: int,
        schedule: Schedule | None = None,
        *,
        intercept: bool = True,
        context_scale: ContextMap | None = None,
        ridge: float | Literal["learned"] = 1.0,
        beta: Beta = 1.0,
        covariance: Kind = "auto",
        exploration: Mixture | ChoiceRule | None = None,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch | None = None,
        ties: Ties = "lowest",
        seed: Seed = None,
        limits: Limits | None = None,
    ) -> None:
        check_choice("ties", ties, Ties)
        check_flag("intercept", intercept)
        scale = ContextScale.start(dim, context_scale, constant=intercept, fitted=False).map
        settings = {
            "dim": scale.dim, "schedule": EveryRound() if schedule is None else schedule, "intercept": intercept,
            "context_scale": context_scale, "ridge": ridge, "beta": beta, "covariance": covariance,
            "exploration": exploration, "forgetting": forgetting, "ties": ties,
            "within_batch": self._usual_within_batch if within_batch is None else within_batch,
        }  # fmt: skip
        sparse = isinstance(scale, SparseRows)
        learner: Any = SparseLinearLearner if sparse else LinearLearner
        if isinstance(ridge, str) and ridge == "learned":
            if sparse:
                raise InvalidInput('ridge="learned" is for dense contexts; give a number with sparse ones.')
            learner, ridge = LearnedLinear, 1.0
            beta = beta if callable(beta) else NoiseRadius(beta)
        super().__init__(
            learner.start(scale, ridge),
            settings,
            self._rule(ties),
            limits=limits_from(limits, self, ("operations", "arms"), DEFAULT_HISTORY),
            seed=seed,
            ridge=ridge,
            beta=beta,
            factory=partial(DualFactory, inner=sparse_gram, columns=scale.scaled_dim) if sparse else CovarianceFactory,
        )

    _usual_within_batch: ClassVar[WithinBatch] = "running"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return UpperConfidence(draws=ties == "random")

    @property
    def coefficients(self) -> Array:
        """θ̂ of the version in use; the intercept, where there is one, is last."""
        assert isinstance(self._learner, LinearLearner | SparseLinearLearner)
        return self._learner.theta.copy()


class LinTS(LinUCB):
    """Linear Thompson sampling (Agrawal and Goyal, 2013) under any schedule.

    Their posterior N(θ̂, v²Z⁻¹) gives each arm the mean xᵀθ̂ and the deviation v√(xᵀZ⁻¹x), `beta` = v. Arms are
    sampled from these one by one, as in `NeuralTS`, and not through one draw of θ: with it the probability of an
    arm among several has no closed form. Its bonuses are frozen within a batch unless `within_batch` is "running".

    Examples
    --------
    >>> from rarely import LinTS
    >>> policy = LinTS(dim=1, intercept=False, seed=0)
    >>> policy.select([[1.0], [2.0], [0.0]]).probabilities.round(3)
    array([0.324, 0.426, 0.25 ])
    """

    _usual_within_batch = "frozen"

    def _rule(self, ties: Ties) -> ChoiceRule:
        return Thompson(lowest=ties == "lowest")
