"""What a policy learns with: a frozen model of rewards, of which each update makes the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from rarely.core.choice.confidence_radius import VersionStats
from rarely.core.covariance import Covariance, Widths
from rarely.core.growable_array import changed
from rarely.core.inputs.history import History
from rarely.core.inputs.scaling import ContextScale, RewardScale
from rarely.core.model.features import Factors
from rarely.core.policies.linear_part import LinearPart
from rarely.core.saving.fields import Fields
from rarely.core.training.report import NO_TRAINING, TrainingReport
from rarely.core.training.sampling import training_rows
from rarely.core.types import Array, Arrays, BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class FitResult:
    """What a learner made of the rewards; `reason` says why it must not be used, if so."""

    learner: Learner
    reason: str = ""
    basis: Learner | None = None
    """With whose features Z is to be built again, from all rounds so far; None where their features stand."""
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

    @classmethod
    def of(
        cls,
        history: History,
        contexts: ContextScale,
        *,
        rewards: bool,
        most: int | None = None,
        linear: LinearPart | None = None,
    ) -> TrainingSet:
        """The history's samples, at most so many; the scale of rewards is fitted, or left alone."""
        samples = history.samples()
        if most is not None and len(samples.rows) > most:
            samples = samples.some(training_rows(samples.rows, most))
        offsets = None if linear is None else linear(samples.contexts)
        values = samples.rewards if offsets is None else samples.rewards - offsets
        scale = RewardScale.fit(values, samples.weights) if rewards else RewardScale()
        with np.errstate(over="ignore", invalid="ignore"):
            values = (values - scale.center) / scale.spread
        return cls(samples.rows, contexts(samples.contexts), values, samples.weights, scale, offsets)

    def weighted(self) -> tuple[Array, Array]:
        """Contexts and rewards, scaled where samples have weights.

        Without biases u(cx) = c·u(x) for c > 0: scaled samples are weighted ones.
        """
        if self.weights is None:
            return self.contexts, self.rewards
        root = np.sqrt(self.weights)
        return self.contexts * root[:, None], self.rewards * root

    @property
    def overflow(self) -> str:
        """Why they cannot be learned from, if so."""
        if np.isfinite(self.scale.spread):
            return ""
        return "the rewards are so large that their standard deviation overflows"


class Learner(Protocol):
    """A frozen model of rewards: a value, of which `learn` makes the next."""

    @property
    def noise(self) -> float | None:
        """Standard deviation of rewards around its predictions, in reward units; None where it has no estimate."""

    @property
    def dim(self) -> int:
        """Numbers in a context."""

    @property
    def fits_scale(self) -> bool:
        """Whether it fits a scale to the contexts that it sees."""

    @property
    def widths(self) -> Widths:
        """(out_l, in_l) of its features' layers."""

    @property
    def rebuilds(self) -> bool:
        """Whether an update may ask for Z to be built again, from all rounds."""

    @property
    def reward_spread(self) -> float:
        """The scale of its predictions, for what counts as a tie."""

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        """Means in reward units, (n,), and features."""

    def features(self, contexts: Array) -> Factors:
        """Features alone."""

    @property
    def follows(self) -> bool:
        """Whether contexts that it sees change its features, so that Z must be built again."""

    def facing(self, contexts: Array) -> Learner:
        """The learner that decides a round of these contexts: before the first one its scale is fitted to them."""

    def seen(self, contexts: Array, rounds: int) -> Learner:
        """The learner after it saw the contexts of all arms of so many rounds, without rewards."""

    def scaled(self) -> Learner:
        """The learner with its scale of contexts fitted, as `learn` would fit it."""

    def learn(self, history: History) -> FitResult:
        """The next version, from all rewards that are in."""

    def caught_up(self, other: Learner) -> Learner:
        """The learner after it saw all contexts that `other` saw, the version that it replaces."""

    def needs(self, history: History) -> BoolArray | None:
        """(rows,): which rows it will learn from again; None for all. Open rounds need not be named."""

    def without_rows(self, rows: IntArray) -> Learner:
        """The learner after these rows of the history were dropped."""

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        """What the radius β may depend on, for a version that decides from `round` on."""

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays from which `restored` makes the same value, bit for bit."""

    def restored(self, saved: Fields, history: History, *, trained: bool) -> Learner:
        """The saved value, in the place of this one, which knows nothing yet.

        `history` is the restored one; `trained` says whether an update or a log made the version in use.
        """


class ScaledLearner(ABC):
    """What learners share whose scale of contexts is given, or fitted to all that they see."""

    scale: ContextScale
    rewards: RewardScale
    rebuilds: ClassVar[bool] = True

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

    @abstractmethod
    def assess(self, contexts: Array) -> tuple[Array, Factors]: ...

    def features(self, contexts: Array) -> Factors:
        return self.assess(contexts)[1]

    def facing(self, contexts: Array) -> Self:
        return self._with_scale(self.scale.facing(contexts))

    def seen(self, contexts: Array, rounds: int) -> Self:
        return self._with_scale(self.scale.seen(contexts, rounds))

    def scaled(self) -> Self:
        return self._with_scale(self.scale.fitted())

    def caught_up(self, other: Learner) -> Self:
        assert isinstance(other, ScaledLearner)
        return self._with_scale(self.scale.with_moments_of(other.scale))

    def needs(self, history: History) -> BoolArray | None:
        return None

    def without_rows(self, rows: IntArray) -> Self:
        return self

    def at_scale_of(self, other: ScaledLearner) -> Self:
        """The same with the other's scale of contexts."""
        return self._with_scale(other.scale)

    def _with_scale(self, scale: ContextScale) -> Self:
        return self if scale is self.scale else changed(self, scale=scale)
