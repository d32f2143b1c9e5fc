"""What every rule of choice promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rarely import LinUCB
from rarely.extend import ArmScores, Array, ChoiceRule
from rarely.testing.policies import check_policy
from rarely.testing.promises import check_all, ensure, ensure_close, ensure_equal, names_of


def check_rule(make: Callable[[], ChoiceRule], *, seed: int = 0, examples: int = 5, only: str | None = None) -> None:
    """Check that a rule of choice keeps its promises; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns the rule, the same at every call.
    seed, examples, only
        From which scores are drawn, how often, and one of `RULE_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely.extend import UpperConfidence
    >>> from rarely.testing import check_rule
    >>> check_rule(UpperConfidence)
    """
    for example in range(seed, seed + examples):
        check_all(_Promises(make, example), repr(make()), only, f" (seed={example})")


@dataclass(frozen=True)
class _Promises:
    """A way to make a rule, and a seed for scores."""

    make: Callable[[], ChoiceRule]
    seed: int

    def _scores(self, rounds: Any = slice(None), arms: Any = slice(None), scale: float = 1.0) -> ArmScores:
        """Return scores of six rounds with four arms, the first of which is always there, or of some of them."""
        rng = np.random.default_rng(self.seed)
        means, joint = rng.normal(size=(6, 4)), scale * rng.normal(size=(6, 4, 3))
        absent = (rng.random((6, 4)) < 0.3) & (np.arange(4) > 0)
        means[absent] = joint[absent] = np.nan
        means, joint = means[rounds][:, arms], joint[rounds][:, arms]
        return ArmScores(means, np.linalg.norm(joint, axis=2), np.full(len(means), 1e-9), joint)

    def _chances(self, scores: ArmScores) -> Array:
        return self.make().probabilities(scores)

    def is_a_value(self) -> None:
        """A rule is a value: what it is asked changes nothing, and equal rules give equal answers."""
        rule, scores, before = self.make(), self._scores(), self._scores()
        ensure(isinstance(rule, ChoiceRule), f"make() must return a ChoiceRule; got {rule!r}")
        ensure_equal(rule.probabilities(scores), self._chances(scores), "the answers of two equal rules")
        ensure_equal(rule, self.make(), "the rule after it was asked")
        ensure_equal(scores.means + scores.bonuses, before.means + before.bonuses, "the scores that were given")

    def probabilities_sum_to_1_and_absent_arms_have_none(self) -> None:
        """Each round's probabilities sum to 1, absent arms have 0, and one arm has 1 where nothing is drawn."""
        scores, chances = self._scores(), self._chances(self._scores())
        ensure_equal(chances.shape, scores.means.shape, "the shape of the probabilities")
        ensure(chances >= 0, f"probabilities must not be negative; got {chances.tolist()}")
        ensure_close(chances.sum(axis=1), np.ones(6), "the sum of the probabilities", rtol=1e-12)
        ensure(chances[np.isnan(scores.means)] == 0, "an absent arm has a probability above 0")
        ensure(self.make().draws or chances.max(axis=1) == 1, f"draws is False; got {chances.tolist()}")

    def rounds_are_judged_one_by_one(self) -> None:
        """The probabilities of a round do not depend on the rounds that it is asked about with."""
        singly = np.vstack([self._chances(self._scores(rounds=[i])) for i in range(6)])
        ensure_close(singly, self._chances(self._scores()), "the probabilities of single rounds", atol=1e-12)

    def permuted_arms_permute_the_answer(self) -> None:
        """Arms in another order have the same probabilities, where none ties."""
        order = [2, 0, 3, 1]
        expected = self._chances(self._scores())[:, order]
        ensure_close(self._chances(self._scores(arms=order)), expected, "the probabilities of permuted arms", atol=1e-9)

    def ties_are_shared_or_go_to_the_lowest(self) -> None:
        """Arms whose means differ by less than the tolerance are equal: they share alike, or the lowest has more."""
        for scale in (1.0, 0.0):
            scores = self._scores(arms=[0, 0, 1, 2, 3], scale=scale)
            chances = self._chances(scores)
            ensure(chances[:, 1] <= chances[:, 0] + 1e-9, f"two equal arms have {chances[:, :2].tolist()}")
            scores.means[:, 1] += 1e-10
            ensure_close(
                self._chances(scores), chances, "the probabilities with a mean that is 1e-10 larger", atol=1e-6
            )

    def members_say_what_it_looks_at(self) -> None:
        """Unless `joint`, it needs no features; what ignores running bonuses needs none; a lot has a part of each p."""
        rule, scores = self.make(), self._scores()
        chances, share = self._chances(scores), rule.exploration_share(~np.isnan(scores.means))
        unseen: dict[str, Any] = {} if rule.joint else {"joint": None}
        unseen |= {"bonuses": 2 * scores.bonuses} if rule.ignore_running_bonuses else {}
        ensure_equal(self._chances(replace(scores, **unseen)), chances, f"the probabilities with other {[*unseen]}")
        ensure(share is None or ((share >= 0) & (share <= chances)).all(), f"exploration_share is {share}")

    def a_policy_draws_by_it_and_is_saved_with_it(self) -> None:
        """A policy that is given the rule draws arms as often as it says, and resumes from a file bit for bit."""
        settings: dict[str, Any] = {"exploration": self.make(), "within_batch": "frozen", "seed": self.seed}
        for promise in ("arms_come_as_often_as_they_should", "files_and_copies_resume_bit_for_bit"):
            check_policy(lambda schedule: LinUCB(2, schedule, **settings), seed=self.seed, only=promise)


RULE_PROMISES = names_of(_Promises)
"""The names of the promises that `check_rule` checks."""
