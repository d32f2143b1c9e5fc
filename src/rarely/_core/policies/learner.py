"""What a policy learns with: a frozen model of rewards, of which each update makes the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance, Widths
from rarely._core.growable_array import changed
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import Affine, ContextScale, Moments, RewardScale
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.model.features import Factors
from rarely._core.model.kernels import KernelForm
from rarely._core.parts import READERS, Part, Registry, as_json, fields_of, from_json
from rarely._core.saving.fields import Fields
from rarely._core.training.gradient_descent import NO_TRAINING, TrainingReport
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, IntArray, forwarded

RIDGES = np.array([1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300])  # λ on trial, in units of the signal
SAMPLE_SALT = 0x5DEECE66D  # makes the sample of rows independent of the folds, which hash rows too


@dataclass(slots=True)
class FitResult:
    """What a learner made of the rewards; `reason` says why it must not be used, where that is so."""

    learner: Learner
    reason: str = ""
    basis: Learner | None = None
    """The learner whose features Z must be rebuilt with; None if no rebuild is needed."""
    rescaled: tuple[int, ...] = ()
    """The columns of contexts whose scale was fitted anew."""
    report: TrainingReport = NO_TRAINING
    memory: str = ""
    """What it remembers from now on, where that changes."""


class Recall(NamedTuple):
    """What to remember, and why where that changes."""

    forgetting: Forgetting | None
    why: str = ""


class TrainingSet(NamedTuple):
    """What there is to learn from, on the scales that are learned on."""

    rows: IntArray  # (n,): where the samples stand in the history
    contexts: Array
    rewards: Array
    weights: Array | None  # (n,), or None where nothing is forgotten
    scale: RewardScale
    clipped: int | None = None  # rewards that were clipped, where some may be

    @classmethod
    def of(
        cls,
        history: History,
        contexts: ContextScale,
        *,
        rewards: bool,
        most: int | None = None,
        clip: tuple[float, float] | None = None,
    ) -> TrainingSet:
        """Return the history's samples, at most `most`, clipped; with `rewards` their scale is fitted."""
        samples = history.samples()
        if most is not None and len(samples.rows) > most:
            samples = samples.some(training_rows(samples.rows, most))
        unclipped, samples = samples, samples.clipped(clip)
        scale = RewardScale.fit(samples.rewards, samples.weights) if rewards else RewardScale()
        with np.errstate(over="ignore", invalid="ignore"):
            values = (samples.rewards - scale.center) / scale.spread
        clipped = None if clip is None else int(np.count_nonzero(samples.rewards != unclipped.rewards))
        return cls(samples.rows, contexts(samples.contexts), values, samples.weights, scale, clipped)

    def weighted(self) -> tuple[Array, Array]:
        """Return contexts and rewards; without biases u(cx) = c·u(x) for c > 0, so scaled samples are weighted ones."""
        root = np.ones(1) if self.weights is None else np.sqrt(self.weights)
        return self.contexts * root[:, None], self.rewards * root

    @property
    def overflow(self) -> str:
        """Why they cannot be learned from; "" where they can."""
        if np.isfinite((self.scale.center, self.scale.spread)).all():
            return ""
        return "the rewards are so large that their standard deviation overflows"


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


def likely_ridge(lost: Array) -> float:
    """Return the geometric mean of RIDGES, weighted by likelihood, given minus its logarithm, (…, ridges)."""
    share = np.exp(lost.min() - lost).reshape(-1, len(RIDGES)).sum(axis=0)
    return float(np.exp(share @ np.log(RIDGES) / share.sum()))


def split_mix(rows: IntArray) -> NDArray[np.uint64]:
    """Return SplitMix64 hashes of rows, by which folds and samples are drawn: the same in every process.

    Each bit depends on all bits of the row. A product alone would leave rows of some periods mostly in one fold, so
    that the hours of a day would decide what is held out.
    """
    state = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return state ^ state >> np.uint64(31)


LEARNERS: Registry[Learner] = Registry("a learner")  # every learner by its name, the package's and the user's


@dataclass(frozen=True)
class RewardTask:
    """What workers make of rewards that a policy never sees one by one: sums, and the choice of rows that it keeps."""

    scale: Callable[[Array], Array] | None  # to the x of a linear estimate, (n, d); None where there is none
    most: int  # rows that an update trains on, at most
    latest: int  # the latest rows, which are kept in any case
    logged: int  # the row of the history that the policy's first round has

    def sums(self, contexts: Array, rewards: Array) -> Array:
        """Return XᵀX, Xᵀr and rᵀr in one row of d² + d + 1 numbers, which add up in any number of parts."""
        x = contexts[:, :0] if self.scale is None else self.scale(contexts)
        with np.errstate(all="ignore"):
            return np.concatenate([(x.T @ x).ravel(), x.T @ rewards, [rewards @ rewards]])

    @staticmethod
    def parts(total: Array) -> tuple[Array, Array, float]:
        """Return XᵀX, Xᵀr and rᵀr of a sum."""
        d = int(np.sqrt(len(total)))
        return total[: d**2].reshape(d, d), total[d**2 : -1], float(total[-1])

    def kept(self, rows: IntArray) -> IntArray:
        """Return which of these rising rows an update may ask for.

        What it keeps of the parts contains what it keeps of the whole.
        """
        return np.union1d(training_rows(rows, self.most), np.arange(max(0, len(rows) - self.latest), len(rows)))


class Learner(Part):
    """A frozen model of rewards: a value, of which `learn` makes the next.

    Four members make a learner: `dim`, `widths`, `assess` and `learn`. The others are capabilities with defaults: a
    scale of contexts that is fitted, rows that are dropped, an estimate of the noise, saving. A learner of your own is
    a frozen dataclass; its definition registers it, and `ComposedPolicy` decides with it.
    `rarely.testing.check_learner` checks the promises.
    """

    registry = LEARNERS

    # --- required

    @property
    @abstractmethod
    def dim(self) -> int:
        """Numbers in a context."""

    @property
    @abstractmethod
    def widths(self) -> Widths:
        """(out_l, in_l) of its features' layers."""

    @abstractmethod
    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        """Return means in reward units, (n,), and features."""

    @abstractmethod
    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        """Return the next version, from all rewards that are in; `watch` hears of the progress and limits the time."""

    # --- predictions

    @property
    def linear_form(self) -> tuple[Affine, Array] | None:
        """A map and θ, where means are θ·map(x) and features the map itself, for `CompiledStep`; else None."""
        return None

    def with_few_rewards(self, history: History) -> Learner | None:
        """Return what `learn` makes of some new rewards, where a few steps do that and nothing else changes."""
        return None

    @property
    def kernel_form(self) -> KernelForm | None:
        """What a mean by kernels is made of, for `CompiledStep`; else None."""
        return None

    @property
    def sparse(self) -> SparseRows | None:
        """How contexts are packed, if they are sparse."""
        return None

    takes_missing: bool = False
    """Whether a context may have NaN for a missing number."""

    def features(self, contexts: Array) -> Factors:
        """Return features alone."""
        return self.assess(contexts)[1]

    def features_of(self, history: History) -> Callable[[Array], Factors]:
        """Return what makes the features of `history.remembered()`, which it is given part by part, in order."""
        return self.features

    reads_predictions: bool = False
    """Whether it learns from what was predicted of each reward, too."""

    def for_blocks(self) -> Self:
        """Return the learner whose next version is made of sums over many blocks, with features of a fixed size."""
        return self

    predicts: bool = True
    """Whether there is a model at all; without one means and bonuses are 0, and Z does not grow."""

    @property
    def noise(self) -> float | None:
        """Standard deviation of rewards around its predictions, in reward units; None where it has no estimate."""
        return None

    @property
    def reward_spread(self) -> float:
        """The scale of its predictions, for what counts as a tie."""
        return 1.0

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        """Return what the radius β may depend on, for a version that decides from `round` on."""
        return VersionStats(round, covariance.rounds, covariance.frozen_log_det, covariance.ridge, exact=True)

    # --- a scale of contexts

    @property
    def context_scale(self) -> ContextScale | None:
        """The scale that it puts contexts on; None if it takes them as they come."""
        return None

    def with_scale(self, scale: ContextScale) -> Self:
        """Return the same learner with another scale of contexts."""
        return self

    def _rescaled(self, change: Callable[[ContextScale], ContextScale]) -> Self:
        scale = self.context_scale
        return self if scale is None else self.with_scale(change(scale))

    @property
    def fits_scale(self) -> bool:
        """Whether it fits a scale to the contexts that it sees."""
        return self.context_scale is not None and self.context_scale.fits

    @property
    def follows(self) -> bool:
        """Whether the contexts of every round change its features, so that Z must be rebuilt."""
        return self.context_scale is not None and self.context_scale.follows

    @property
    def moments(self) -> Moments | None:
        """Those of the contexts that it has seen; None if it fits no scale to them."""
        return None if self.context_scale is None else self.context_scale.moments

    def with_moments(self, moments: Moments) -> Self:
        """Return the learner after contexts with these moments, its own included."""
        return self._rescaled(lambda scale: changed(scale, moments=moments))

    def prepare_scale(self, contexts: Array) -> Self:
        """Return the learner that decides a round of these contexts: the first one's scale is fitted to them."""
        return self._rescaled(lambda scale: scale.prepared(contexts))

    def observe_contexts(self, contexts: Array, rounds: int) -> Self:
        """Return the learner after it saw the contexts of all arms of `rounds` rounds, without rewards."""
        return self._rescaled(lambda scale: scale.after(contexts, rounds))

    def with_fitted_scale(self) -> Self:
        """Return the learner with its scale of contexts fitted, as `learn` would fit it."""
        return self._rescaled(ContextScale.fitted)

    def merge_scale(self, other: Learner) -> Self:
        """Return the learner after it saw all contexts that `other` saw, the version that it replaces."""
        seen = other.moments
        return self if seen is None else self.with_moments(seen)

    # --- rows of the history

    @property
    def chooses_memory(self) -> bool:
        """Whether `recall` may choose; rows that are forgotten now may then count again."""
        return False

    def recall(self, history: History, new: int) -> Recall:
        """Return what of the history to learn from next; the last `new` rewards arrived since the last update."""
        return Recall(history.forgetting)

    rebuilds: bool = True
    """Whether an update may ask for Z to be rebuilt from all rounds."""

    def needs(self, history: History) -> BoolArray | None:
        """Return which rows it will learn from again, (rows,); None for all. Open rounds need not be named."""
        return None

    def without_rows(self, rows: IntArray) -> Self:
        """Return the learner after these rows of the history were dropped."""
        return self

    # --- rounds that others have decided, of which it sees sums and a sample

    def reward_task(self, history: History, new: int) -> RewardTask | None:
        """Return what workers make of `new` rewards, of rounds after these; None if it must see every round itself."""
        return None

    def with_reward_sums(self, total: Array, history: History, arrived: int) -> Self:
        """Return the learner with the sum of its `RewardTask`, which `learn` then solves.

        `history` is that before the new rounds, and `arrived` counts the rewards of both.
        """
        return self

    def shares_features(self, other: Learner) -> bool:
        """Return whether the features of another version go well with its own in one Z."""
        return True

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays from which `restored` makes the same value, bit for bit.

        Unless a learner says otherwise, these are the fields of its dataclass.
        """
        values = fields_of(self)
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        numbers = {name: value for name, value in values.items() if name not in arrays}
        return {name: as_json(f"{type(self).__name__}.{name}", value) for name, value in numbers.items()}, arrays

    def restored(self, saved: Fields) -> Self:
        """Return the saved value, in the place of this one, which knows nothing yet."""
        with saved:
            (numbers, arrays), missing = self.state(), self.takes_missing
            usual = {name: getattr(self, name) for name in numbers | arrays}
            values = {name: _restored(saved, name, value, missing=missing) for name, value in usual.items()}
            return cast(Self, replace(cast(Any, self), **values))


def _restored(saved: Fields, name: str, usual: Any, *, missing: bool) -> Any:
    """Return a saved field in the place of `usual`, which it had before any reward and which says of what kind it is.

    Of what shape arrays are, and what stands where None was, its author alone knows.
    """
    if isinstance(usual, np.ndarray) or saved.is_array(name):
        return saved.array(name, None, None, missing=missing)
    usual = usual.item() if isinstance(usual, np.generic) else usual
    if isinstance(usual, bool | int | float | str):
        return saved.alike(name, usual)
    return from_json(saved.value(name))


def saved_fields(value: Any, *settings: str) -> tuple[dict[str, Any], Arrays]:
    """Return the fields of a dataclass that are numbers or texts, and those that are arrays, without its `settings`."""
    values = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in settings}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}, arrays


def learner_from(description: dict[str, Any]) -> Learner:
    """Return the learner that `describe` described."""
    return LEARNERS.made(description)


READERS["Learner"] = learner_from


class ScaledLearner(Learner):
    """What learners share whose scale of contexts is given, or fitted to all that they see."""

    scale: ContextScale
    rewards: RewardScale

    dim, context_scale, reward_spread = forwarded("scale.map.dim"), forwarded("scale"), forwarded("rewards.spread")

    def with_scale(self, scale: ContextScale) -> Self:
        return self if scale is self.scale else changed(self, scale=scale)


class ScoreOverride(ABC):
    """A second opinion on arms, which replaces the model's scores while it `decides`: a value, as a learner is."""

    source: ClassVar[str]
    """What `Decision.source` says of a round that it has decided."""

    @property
    @abstractmethod
    def decides(self) -> bool:
        """Whether it replaces scores."""

    @abstractmethod
    def override_scores(self, rows: Array, means: Array, bonuses: Array, *, explores: bool) -> tuple[Array, Array]:
        """Return means and bonuses of n contexts, those of the model replaced; bonuses are 0 unless it `explores`."""

    @abstractmethod
    def after(self, rows: Array, arm: int) -> ScoreOverride | None:
        """Return the value after a round that offered these contexts and chose one; None if it has come to an end."""

    @abstractmethod
    def after_update(
        self, contexts: Array, rewards: Array, predicted: Array, *, spread: float, horizon: int, disjoint: bool
    ) -> ScoreOverride:
        """Return the value after an update on new rewards, which the model of the version before `predicted`."""

    @abstractmethod
    def recounted(self, chosen: Array, contexts: Array, rewards: Array) -> ScoreOverride:
        """Return the value for a policy that remembers only these choices and rewards."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays, for `restored`."""

    @abstractmethod
    def restored(self, saved: Fields) -> ScoreOverride:
        """Return the saved value, in the place of this one, which knows nothing yet."""
