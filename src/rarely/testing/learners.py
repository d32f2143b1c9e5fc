"""What every learner promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rarely.extend import Array, CovarianceFactory, Factors, FitResult, History, Learner
from rarely.testing.policies import Draw
from rarely.testing.promises import check_all, ensure, ensure_close, ensure_equal, names_of, rewards_of, through_json

ROUNDS = 24


def check_learner(
    make: Callable[[], Learner], *, contexts: Draw | None = None, seed: int = 0, only: str | None = None
) -> None:
    """Check that a learner keeps its promises; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns a learner that has learned nothing yet, the same at every call.
    contexts
        Draws contexts as those of `check_policy`; else Gaussian.
    seed, only
        From which contexts and rewards are drawn, and one of `LEARNER_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.extend.provisional import state_of
    >>> from rarely.testing import check_learner
    >>> check_learner(lambda: state_of(LinUCB(2)).current.learner)
    """
    check_all(_Promises(make, seed, contexts), type(make()).__name__, only, f" (seed={seed})")


_State = tuple[str, dict[str, Array]]


def _state(learner: Learner) -> _State:
    """Return what a learner saves, as it is now."""
    numbers, arrays = learner.state()
    return json.dumps(numbers, sort_keys=True), {name: array.copy() for name, array in arrays.items()}


def _same_state(learner: Learner, expected: _State, what: str) -> None:
    """Raise `AssertionError` unless a learner saves these numbers and arrays."""
    numbers, arrays = _state(learner)
    ensure_equal(numbers, expected[0], f"the numbers of {what}")
    ensure_equal(arrays.keys(), expected[1].keys(), f"the arrays of {what}")
    for name, array in arrays.items():
        ensure_equal(array, expected[1][name], f"{name} of {what}")


@dataclass(frozen=True)
class _Promises:
    """A way to make a learner, and a seed for contexts and rewards."""

    make: Callable[[], Learner]
    seed: int
    draw: Draw | None

    def _contexts(self, count: int = ROUNDS, stream: int = 0) -> Array:
        rng = np.random.default_rng((self.seed, stream))
        return rng.normal(size=(count, self.make().dim)) if self.draw is None else self.draw(rng, count, 1)[:, 0]

    def _history(self, missing: tuple[int, ...] = (3, 8), rounds: int = ROUNDS) -> History:
        """Return a history in which the rewards of some rounds are missing."""
        contexts = self._contexts(rounds)
        scores = np.column_stack((np.ones(rounds), np.zeros(rounds), np.ones(rounds)))
        history = History(contexts.shape[1]).with_rounds(contexts, np.zeros(rounds, np.int64), 0, scores, "life")
        rewarded = np.array([t for t in range(rounds) if t not in missing])
        return history.with_rewards(rewarded + 1, rewards_of(contexts)[rewarded]) if len(rewarded) else history

    def _seen(self) -> Learner:
        """Return a learner that has seen the contexts of the history's rounds."""
        contexts = self._contexts()
        return self.make().prepare_scale(contexts[:1]).observe_contexts(contexts, len(contexts))

    def _learned(self) -> Learner:
        return self._seen().learn(self._history()).learner

    def make_gives_the_same_learner(self) -> None:
        """`make` gives a `Learner`, the same at every call."""
        ensure(isinstance(self.make(), Learner), f"make() returned {self.make()!r}")
        ensure(self.make().dim >= 1, f"dim is {self.make().dim}")
        _same_state(self.make(), _state(self.make()), "a second make()")

    def assess_gives_a_mean_and_a_feature_for_each_context(self) -> None:
        """`assess` gives n finite means and n features with the layers that `widths` says."""
        for learner, when in ((self._seen(), "before learning"), (self._learned(), "after learning")):
            for count in (1, 7):
                means, factors = learner.assess(self._contexts(count, 1))
                ensure_equal(means.shape, (count,), f"the shape of the means of {count} contexts {when}")
                ensure(np.isfinite(means), f"means must be finite {when}; got {means}")
                ensure(isinstance(factors, Factors), f"features must be Factors; got {type(factors).__name__}")
                ensure_equal(len(factors), count, f"the number of features {when}")
                ensure_equal(factors.widths, tuple(learner.widths), f"the widths of the features {when}")
                ensure(np.isfinite(factors.vectors()), f"features must be finite {when}")

    def features_are_those_of_assess(self) -> None:
        """`features` gives the features that `assess` gives."""
        learner, contexts = self._learned(), self._contexts(5, 1)
        ensure_close(learner.features(contexts).vectors(), learner.assess(contexts)[1].vectors(), "features")

    def a_slice_is_assessed_as_in_the_whole(self) -> None:
        """Means and features of some contexts do not depend on those they are assessed with."""
        learner, contexts = self._learned(), self._contexts(8, 1)
        means, factors = learner.assess(contexts)
        for part in (slice(0, 1), slice(2, 5), slice(7, 8)):
            some, features = learner.assess(contexts[part])
            ensure_close(some, means[part], f"means of {part}", atol=1e-12)
            ensure_close(features.vectors(), factors.vectors()[part], f"features of {part}", atol=1e-12)

    def assess_is_pure(self) -> None:
        """`assess` changes neither the learner nor the contexts, and gives the same answer again."""
        learner, contexts = self._learned(), self._contexts(5, 1)
        before, original = _state(learner), contexts.copy()
        means = learner.assess(contexts)[0].copy()
        ensure_equal(learner.assess(contexts)[0], means, "the means of a second call")
        ensure_equal(contexts, original, "the contexts that were given")
        _same_state(learner, before, "the learner after assess")

    def learn_is_pure(self) -> None:
        """`learn` returns the next learner, the same at every call, and changes neither this one nor the history."""
        learner, history = self._seen(), self._history()
        before, rewards = _state(learner), history.rewards.copy()
        results = [learner.learn(history) for _ in range(2)]
        ensure(isinstance(results[0], FitResult), f"learn must return a FitResult; got {results[0]!r}")
        ensure_equal(results[0].reason, "", "the reason of an ordinary learning")
        ensure_equal(results[0].learner.dim, learner.dim, "dim of the next learner")
        _same_state(results[1].learner, _state(results[0].learner), "a second learn")
        _same_state(learner, before, "the learner after learn")
        ensure_equal(history.rewards, rewards, "the rewards of the history")

    def learn_follows_the_rewards(self) -> None:
        """Other rewards give other means, and rounds without a reward are not learned from."""
        history, contexts = self._history(), self._contexts(6, 1)
        means = self._learned().assess(contexts)[0]
        ensure(not np.array_equal(means, self._seen().assess(contexts)[0]), "learning changed no mean")
        more = history.with_rewards([4], [3.0])
        others = self._seen().learn(more).learner.assess(contexts)[0]
        ensure(not np.array_equal(others, means), "one more reward, of round 4, changed no mean")

    def learning_from_nothing_is_ordinary(self) -> None:
        """A history without rounds, or without rewards, gives a learner with finite means, or a reason."""
        for rounds in (0, 5):
            history = self._history(tuple(range(rounds)), rounds)
            result = self.make().prepare_scale(self._contexts(1)).learn(history)
            means = result.learner.assess(self._contexts(4, 1))[0]
            ensure(result.reason or np.isfinite(means).all(), f"means after {rounds} rounds are {means}")

    def a_restored_learner_is_the_same(self) -> None:
        """`restored` of what `state` gave, through JSON, assesses and learns as the original, bit for bit."""
        contexts, more = self._contexts(6, 1), self._history(missing=(8,))
        for learner, when in ((self._seen(), "before learning"), (self._learned(), "after learning")):
            with through_json(learner, "learner") as saved:
                again = self.make().restored(saved)
            _same_state(again, _state(learner), f"the restored learner {when}")
            ensure_equal(again.assess(contexts)[0], learner.assess(contexts)[0], f"means {when}")
            vectors = again.features(contexts).vectors()
            ensure_equal(vectors, learner.features(contexts).vectors(), f"features {when}")
            _same_state(again.learn(more).learner, _state(learner.learn(more).learner), f"what it learns {when}")

    def rows_that_it_does_not_need_may_be_dropped(self) -> None:
        """After rows that `needs` leaves out are dropped, the learner decides and learns as with them."""
        learner, history = self._learned(), self._history()
        needs = learner.needs(history)
        if needs is None:
            return
        ensure_equal((needs.shape, needs.dtype.name), ((len(history),), "bool"), "shape and dtype of needs")
        gone = ~needs & ~np.isnan(history.rewards)
        rows = history.rows[gone]
        fewer, kept = learner.without_rows(rows), history.without(gone)
        contexts, late = self._contexts(6, 1), ([4, 9], [0.5, -0.5])
        ensure_equal(fewer.assess(contexts)[0], learner.assess(contexts)[0], f"means without {len(rows)} rows")
        means = fewer.learn(kept.with_rewards(*late)).learner.assess(contexts)[0]
        truth = learner.learn(history.with_rewards(*late)).learner.assess(contexts)[0]
        ensure_close(means, truth, f"means of the next version without {len(rows)} rows", atol=1e-12)

    def a_scale_is_followed_without_changing_the_learner(self) -> None:
        """The methods that follow a scale of contexts return learners of the same kind and change nothing."""
        learner, contexts = self.make(), self._contexts()
        before = _state(learner)
        seen = learner.prepare_scale(contexts[:1]).observe_contexts(contexts, len(contexts))
        for other in (seen, seen.with_fitted_scale(), learner.merge_scale(seen)):
            ensure(isinstance(other, type(learner)), f"got {type(other).__name__} from a {type(learner).__name__}")
            ensure_equal((other.dim, other.widths), (learner.dim, learner.widths), "dim and widths")
        _same_state(learner, before, "the learner after methods of its scale")
        ensure(learner.fits_scale or not learner.follows, "follows must be False where fits_scale is")

    def its_numbers_are_in_range(self) -> None:
        """`noise` is None or at least 0, `reward_spread` is positive, and `version_stats` describes the version."""
        for learner in (self.make(), self._learned()):
            ensure(learner.noise is None or learner.noise >= 0, f"noise is {learner.noise}")
            ensure(learner.reward_spread > 0, f"reward_spread is {learner.reward_spread}")
            empty = CovarianceFactory("primal", 0.5, 2**30, None).empty(learner.widths)
            ensure_equal(learner.version_stats(7, empty).round, 7, "round of version_stats(7, …)")


LEARNER_PROMISES = names_of(_Promises)
"""The names of the promises that `check_learner` checks."""
