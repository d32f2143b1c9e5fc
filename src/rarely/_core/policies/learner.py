"""What a policy learns with: a frozen model of rewards, of which each update makes the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np

from rarely._core.choice.confidence_radius import VersionStats
from rarely._core.covariance import Covariance, Widths
from rarely._core.growable_array import changed
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import ContextScale, RewardScale
from rarely._core.model.features import Factors
from rarely._core.saving.fields import Fields
from rarely._core.training.gradient_descent import NO_TRAINING, TrainingReport
from rarely._core.training.tuning import Recall, training_rows
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class FitResult:
    """What a learner made of the rewards; `reason` says why it must not be used, where that is so."""

    learner: Learner
    reason: str = ""
    basis: Learner | None = None
    """The learner whose features Z must be rebuilt with; None if no rebuild is needed."""
    rescaled: tuple[int, ...] = ()
    """The columns of contexts whose scale was fitted anew."""
    report: TrainingReport = NO_TRAINING


class TrainingSet(NamedTuple):
    """What there is to learn from, on the scales that are learned on."""

    rows: IntArray
    """(n,): where the samples stand in the history."""
    contexts: Array
    rewards: Array
    weights: Array | None
    """(n,), or None where nothing is forgotten."""
    scale: RewardScale
    offsets: Array | None = None
    """(n,): what a linear part predicts, in reward units; `rewards` are what it leaves."""
    clipped: int | None = None
    """Rewards that were clipped, where some may be."""

    @classmethod
    def of(
        cls,
        history: History,
        contexts: ContextScale,
        *,
        rewards: bool,
        most: int | None = None,
        linear: Callable[[Array], Array] | None = None,
        clip: tuple[float, float] | None = None,
    ) -> TrainingSet:
        """Return the history's samples, at most `most`, clipped; with `rewards` their scale is fitted."""
        samples = came = history.samples()
        if most is not None and len(samples.rows) > most:
            samples = came = samples.some(training_rows(samples.rows, most))
        samples = samples.clipped(clip)
        offsets = None if linear is None else linear(samples.contexts)
        values = samples.rewards if offsets is None else samples.rewards - offsets
        scale = RewardScale.fit(values, samples.weights) if rewards else RewardScale()
        with np.errstate(over="ignore", invalid="ignore"):
            values = (values - scale.center) / scale.spread
        clipped = None if clip is None else int(np.count_nonzero(samples.rewards != came.rewards))
        return cls(samples.rows, contexts(samples.contexts), values, samples.weights, scale, offsets, clipped)

    def weighted(self) -> tuple[Array, Array]:
        """Return contexts and rewards, scaled where samples have weights.

        Without biases u(cx) = c·u(x) for c > 0: scaled samples are weighted ones.
        """
        if self.weights is None:
            return self.contexts, self.rewards
        root = np.sqrt(self.weights)
        return self.contexts * root[:, None], self.rewards * root

    @property
    def overflow(self) -> str:
        """Why they cannot be learned from; "" where they can."""
        if np.isfinite(self.scale.spread):
            return ""
        return "the rewards are so large that their standard deviation overflows"


class Learner(ABC):
    """A frozen model of rewards: a value, of which `learn` makes the next.

    Four members make a learner: `dim`, `widths`, `assess` and `learn`. The others are capabilities with defaults: a
    scale of contexts that is fitted, rows that are dropped, an estimate of the noise, saving.
    `rarely.testing.check_learner` checks the promises.
    """

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

    takes_missing: bool = False
    """Whether a context may have NaN for a missing number."""

    def features(self, contexts: Array) -> Factors:
        """Return features alone."""
        return self.assess(contexts)[1]

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
    def fits_scale(self) -> bool:
        """Whether it fits a scale to the contexts that it sees."""
        return False

    @property
    def follows(self) -> bool:
        """Whether the contexts of every round change its features, so that Z must be rebuilt."""
        return False

    def prepare_scale(self, contexts: Array) -> Self:
        """Return the learner that decides a round of these contexts: the first one's scale is fitted to them."""
        return self

    def observe_contexts(self, contexts: Array, rounds: int) -> Self:
        """Return the learner after it saw the contexts of all arms of `rounds` rounds, without rewards."""
        return self

    def with_fitted_scale(self) -> Self:
        """Return the learner with its scale of contexts fitted, as `learn` would fit it."""
        return self

    def merge_scale(self, other: Learner) -> Self:
        """Return the learner after it saw all contexts that `other` saw, the version that it replaces."""
        return self

    # --- rows of the history

    chooses_memory: bool = False
    """Whether `recall` may choose; rows that are forgotten now may then count again."""

    def recall(self, history: History, new: int) -> Recall:
        """Return what of the history to learn from next; the last `new` rewards arrived since the last update."""
        return Recall(history.forgetting)

    @property
    def rebuilds(self) -> bool:
        """Whether an update may ask for Z to be rebuilt from all rounds."""
        return True

    def needs(self, history: History) -> BoolArray | None:
        """Return which rows it will learn from again, (rows,); None for all. Open rounds need not be named."""
        return None

    def without_rows(self, rows: IntArray) -> Self:
        """Return the learner after these rows of the history were dropped."""
        return self

    # --- saving

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays from which `restored` makes the same value, bit for bit.

        Unless a learner says otherwise, these are the fields of its dataclass that are numbers, texts or arrays.
        """
        values = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        numbers = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
        return numbers, arrays

    def restored(self, saved: Fields) -> Self:
        """Return the saved value, in the place of this one, which knows nothing yet."""
        numbers, arrays = self.state()
        with saved:
            values = {name: saved.value(name) for name in numbers}
            values |= {
                name: saved.array(name, (None,) * array.ndim, missing=self.takes_missing)
                for name, array in arrays.items()
            }
            return cast(Self, replace(cast(Any, self), **values))


class ScaledLearner(Learner):
    """What learners share whose scale of contexts is given, or fitted to all that they see."""

    scale: ContextScale
    rewards: RewardScale

    @property
    def dim(self) -> int:
        return self.scale.affine.dim

    @property
    def fits_scale(self) -> bool:
        return self.scale.fits

    @property
    def follows(self) -> bool:
        return self.scale.follows

    @property
    def reward_spread(self) -> float:
        return self.rewards.spread

    def prepare_scale(self, contexts: Array) -> Self:
        return self.with_scale(self.scale.prepared(contexts))

    def observe_contexts(self, contexts: Array, rounds: int) -> Self:
        return self.with_scale(self.scale.after(contexts, rounds))

    def with_fitted_scale(self) -> Self:
        return self.with_scale(self.scale.fitted())

    def merge_scale(self, other: Learner) -> Self:
        assert isinstance(other, ScaledLearner)
        return self.with_scale(self.scale.with_moments_of(other.scale))

    def with_scale(self, scale: ContextScale) -> Self:
        """Return the same learner with another scale of contexts."""
        return self if scale is self.scale else changed(self, scale=scale)
