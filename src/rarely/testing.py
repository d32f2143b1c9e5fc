"""Checks for policies, schedules, rules of choice, learners and forms of Z that are written elsewhere.

Each function checks the promises that the package makes for its own, and raises an `AssertionError` that names the
broken promise and the input. They need no test framework. A promise is a method whose docstring states it.

Forms of Z are compared with the dense matrix:

    φ   vectors   (n, q)  features written out, or the part of them that the form holds
    Z   matrix    (q, q)  λI + Σφφᵀ, or what an approximation puts in its place
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np

import rarely
from rarely import AtRounds, Budget, DeterminantTrigger, EveryRound, FixedGrid, LinUCB, OnDemand, Policy, Schedule
from rarely.errors import BudgetSpent, InvalidInput, StaleUpdate
from rarely.extend import (
    ArmScores,
    Array,
    ChoiceRule,
    Covariance,
    CovarianceFactory,
    Decision,
    Factors,
    Fields,
    FitResult,
    History,
    IntArray,
    Learner,
    Widths,
    schedule_from,
)
from rarely.extend.checks import shown
from rarely.extend.provisional import FUNCTION, state_of

__all__ = [
    "COVARIANCE_PROMISES", "LEARNER_PROMISES", "POLICY_PROMISES", "RULE_PROMISES", "SCHEDULE_PROMISES",
    "check_covariance", "check_learner", "check_policy", "check_rule", "check_schedule",
]  # fmt: skip
HORIZON, ARMS = 24, 3  # rounds of a life, and arms of a round
DRAWS = 1000  # draws by which probabilities are compared with frequencies
CHANCE = 1e-4  # how seldom a fair sample may be called unfair
Draw = Callable[[np.random.Generator, int, int], Array]  # draws the contexts of n rounds with K arms, (n, K, d)
MANY_ROUNDS = 150  # rounds over which a schedule is followed
ROUNDS = 24  # rounds of a history
Make = Callable[[Widths, float], Covariance]
Vectors = Callable[[Factors], Array]
Matrix = Callable[[Array, float], Array]
T = TypeVar("T")


def names_of(promises: type) -> tuple[str, ...]:
    """Return the names of a class's promises, which are all its own methods."""
    return tuple(name for name in vars(promises) if not name.startswith("_"))


def check_all(case: Any, subject: str, only: str | None, where: str) -> None:
    """Check every promise, or one of them; `where` says how to repeat the check.

    >>> class OfNumbers(int):
    ...     def is_small(self):
    ...         '''A number is below 10.'''
    ...         ensure(self < 10, f"got {self}")
    >>> check_all(OfNumbers(12), "the number", None, "")
    Traceback (most recent call last):
    AssertionError: the number breaks the promise is_small: A number is below 10. In this check: got 12.
    """
    names = names_of(type(case))
    if only is not None and only not in names:
        raise InvalidInput(f"only must be one of {', '.join(names)}; got {only!r}.")
    for name in names if only is None else (only,):
        check = getattr(case, name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # promises are about results, and small problems warn
                check()
        except Exception as error:
            reason = error if isinstance(error, AssertionError) else f"{type(error).__name__} was raised: {error}"
            sentence = f"{subject} breaks the promise {name}: {' '.join((check.__doc__ or '').split())}"
            raise AssertionError(f"{sentence} In this check: {reason}{where}.") from error


def ensure(holds: Any, otherwise: str) -> None:
    """Raise `AssertionError` with this sentence unless all of it holds; `python -O` does not leave it out."""
    if not np.all(holds):
        raise AssertionError(otherwise)


def ensure_equal(actual: Any, expected: Any, what: str) -> None:
    """Raise `AssertionError` unless both are equal, arrays number by number, NaN to NaN."""
    arrays = isinstance(actual, np.ndarray) or isinstance(expected, np.ndarray)
    same = np.array_equal(actual, expected, equal_nan=True) if arrays else bool(actual == expected)
    ensure(same, f"{what} must be {_in_full(expected)}; got {_in_full(actual)}")


def ensure_close(actual: Any, expected: Any, what: str, *, rtol: float = 1e-9, atol: float = 0.0) -> None:
    """Raise `AssertionError` unless both are equal but for rounding, NaN to NaN."""
    same = np.shape(actual) == np.shape(expected) and np.allclose(actual, expected, rtol, atol, equal_nan=True)
    ensure(same, f"{what} must be {_in_full(expected)}, to a relative {rtol:g}; got {_in_full(actual)}")


@contextmanager
def ensure_raises(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise `AssertionError` unless the block raises this error."""
    raised = "nothing"
    try:
        yield
    except kind:
        return
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    raise AssertionError(f"{what} must raise {kind.__name__}; it raised {raised}")


def _in_full(value: Any) -> str:
    """Return a value as a message shows it, an array by its numbers."""
    return shown(value.tolist() if isinstance(value, np.ndarray) else value, length=200)


def rewards_of(contexts: Array) -> Array:
    """Return the rewards of chosen contexts, (n, d): a fixed function, with a little noise that is one, too."""
    return np.asarray(np.sin(contexts.sum(axis=1)) + 0.1 * np.cos(100 * contexts[:, 0]))


def through_json(one: Any, what: str) -> Fields:
    """Return what something saves, as it is read from a file."""
    numbers, arrays = one.state()
    return Fields(what, json.loads(json.dumps(numbers)), {name: array.copy() for name, array in arrays.items()})


@dataclass(frozen=True)
class _Part(Generic[T]):
    """What makes a policy or a part, the same at every call, and a seed for what it is asked."""

    make: Callable[..., T]
    seed: int

    def _generator(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *stream))


def _check_values(promises: Callable[..., Any], make: Any, seed: int, examples: int, only: str | None) -> None:
    """Check values, which are as they are shown, on some examples."""
    for example in range(seed, seed + examples):
        check_all(promises(make, example), repr(make()), only, f" (seed={example})")


# --- policies


def _play(policy: Policy, contexts: Array, block: int | None = None) -> list[int]:
    """Decide all rounds, one by one or in blocks, with an update whenever one is due, and return the arms."""
    arms: list[int] = []
    while len(arms) < len(contexts):
        t = len(arms)
        decision = policy.select(contexts[t] if block is None else contexts[t : t + block], until_due=block is not None)
        rows = contexts[t + np.arange(len(decision.arms)), decision.arms]
        policy.observe(decision, rewards_of(rows)[0] if block is None else rewards_of(rows))
        arms += decision.arms.tolist()
        if policy.due:
            policy.update()
    return arms


def _same_decision(decision: Decision, expected: Decision, when: str, rtol: float = 0.0) -> None:
    """Raise `AssertionError` unless both decisions are alike; with rtol 0, bit for bit."""
    ensure_equal(decision.arms, expected.arms, f"the arms {when}")
    for name in ("means", "bonuses", "probabilities"):
        ensure_close(getattr(decision, name), getattr(expected, name), f"{name} {when}", rtol=rtol, atol=rtol)


def _same_future(future: Array, one: Policy, others: dict[str, Policy]) -> None:
    """Raise `AssertionError` unless all policies decide and learn as one does in these rounds, bit for bit."""
    for t in range(len(future)):
        expected = one.select(future[t])
        told = rewards_of(future[t, expected.arms])[0]
        for when, each in others.items():
            decision = each.select(future[t])
            _same_decision(decision, expected, f"{when}, {t} rounds later")
            each.observe(decision, told)
        one.observe(expected, told)
        for each in (one, *others.values()):
            if each.due:
                each.update()
    for when, each in others.items():
        ensure_equal(each.fingerprint(), one.fingerprint(), f"the fingerprint {when}, {len(future)} rounds later")


def check_policy(
    make: Callable[[Schedule], Policy], *, contexts: Draw | None = None, seed: int = 0, only: str | None = None
) -> None:
    """Check that a policy keeps its promises; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns a new policy under the schedule that it is given, the same at every call: give it a seed.
    contexts
        Draws contexts from a generator, n and K, (n, K, d), such as packed ones or arms that return; else Gaussian.
    seed, only
        From which contexts are drawn, and one of `POLICY_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.testing import check_policy
    >>> check_policy(lambda schedule: LinUCB(dim=2, schedule=schedule, seed=0), only="score_is_pure")
    """
    policy = make(OnDemand())
    check_all(_PolicyPromises(make, seed, policy.dim, contexts), type(policy).__name__, only, f" (seed={seed})")


@dataclass(frozen=True)
class _PolicyPromises(_Part[Policy]):
    dim: int
    draw: Draw | None

    def _policy(self, schedule: Schedule | None = None) -> Policy:
        return self.make(FixedGrid(HORIZON, 4) if schedule is None else schedule)

    def _lived(self, rounds: int = 9, schedule: Schedule | None = None) -> Policy:
        """Return a policy that has decided some rounds, with every update made at once."""
        policy = self._policy(schedule)
        _play(policy, self._contexts()[:rounds])
        return policy

    def _contexts(self, stream: int = 0, rounds: int = HORIZON, arms: int = ARMS) -> Array:
        """Return contexts, (rounds, arms, d); each stream has its own."""
        rng = self._generator(stream)
        return rng.normal(size=(rounds, arms, self.dim)) if self.draw is None else self.draw(rng, rounds, arms)

    def make_gives_the_same_policy(self) -> None:
        """`make` gives a `Policy` with the schedule it was given, the same at every call."""
        policy = self._policy()
        ensure(isinstance(policy, Policy), f"make(schedule) returned {policy!r}")
        ensure_equal(policy.schedule.horizon, HORIZON, "the schedule's horizon")
        ensure_equal(self._policy().fingerprint(), policy.fingerprint(), "the fingerprint of a second make(schedule)")

    def a_decision_says_what_was_weighed(self) -> None:
        """A decision has arm, means, bonuses, version and round, with a leading axis where rounds have one."""
        policy, contexts = self._policy(), self._contexts()
        one, many = policy.select(contexts[0]), policy.select(contexts[1:4])
        ensure(isinstance(one.arm, int), f"the arm of one round is {one.arm!r}")
        ensure_equal((one.means.shape, one.bonuses.shape), ((ARMS,), (ARMS,)), "shapes of means and bonuses")
        ensure_equal((one.version, one.round), (0, 1), "version and round of the first decision")
        shapes = many.means.shape, many.bonuses.shape, np.shape(many.arm), np.shape(many.version)
        ensure_equal(shapes, ((3, ARMS), (3, ARMS), (3,), (3,)), "shapes of means, bonuses, arms and versions")
        ensure_equal(many.rounds.tolist(), [2, 3, 4], "the rounds of a block")
        ensure_equal(policy.round, 4, "policy.round")

    def score_is_pure(self) -> None:
        """`score` and `probabilities` change nothing."""
        policy, contexts = self._lived(), self._contexts()
        before = policy.fingerprint()
        policy.score(contexts[3])
        policy.score(contexts)
        policy.probabilities(contexts[3])
        ensure_equal(policy.fingerprint(), before, "the fingerprint after score and probabilities")

    def score_is_what_select_reports(self) -> None:
        """`score` gives the means and bonuses of the decision that follows."""
        policy, contexts = self._lived(), self._contexts()
        scores, decision = policy.score(contexts[10]), policy.select(contexts[10])
        ensure_equal(scores.means, decision.means, "means")
        ensure_equal(scores.bonuses, decision.bonuses, "bonuses")

    def select_twice_gives_the_same_arms(self) -> None:
        """Inside a batch the same contexts get the same means, and the same arm and bonuses where these are frozen."""
        policy, contexts = self._lived(5, AtRounds([5, 20])), self._contexts()[7]
        ensure_equal(policy.version, 1, "the version after the update of round 5")
        decisions, version = [policy.select(contexts) for _ in range(4)], state_of(policy).current
        for i, (before, after) in enumerate(pairwise(decisions)):
            ensure_equal(after.means, before.means, f"means of call {i + 2}")
            if version.uses_running:
                fallen = before.bonuses[before.arm], after.bonuses[before.arm]
                # A version that does not explore has no bonus that could fall.
                ensure(fallen[1] < fallen[0] or fallen == (0, 0), f"the bonus of a chosen arm must fall; got {fallen}")
                continue
            ensure_equal(after.bonuses, before.bonuses, f"bonuses of call {i + 2}")
            ensure_equal(after.probabilities, before.probabilities, f"probabilities of call {i + 2}")
            same = version.rule.draws or after.arm == before.arm
            ensure(same, f"call {i + 2} chose arm {after.arm} after {before.arm}")
        ensure_equal([decision.round for decision in decisions], [6, 7, 8, 9], "the rounds")

    def blocks_are_single_rounds(self) -> None:
        """n rounds in one call are decided and learned from as n calls do, but for rounding."""
        contexts = self._contexts(2)
        singly, together = self._policy(), self._policy()
        ensure_equal(_play(together, contexts, block=7), _play(singly, contexts), "the arms of rounds in blocks")
        ensure_equal(together.version, singly.version, "the version")
        ensure_close(together.log_det, singly.log_det, "log_det", rtol=1e-8)
        means, bonuses = together.score(contexts[0])
        ensure_close(means, singly.score(contexts[0]).means, "means", rtol=1e-6, atol=1e-6)
        ensure_close(bonuses, singly.score(contexts[0]).bonuses, "bonuses", rtol=1e-6, atol=1e-9)

    def only_available_arms_are_chosen(self) -> None:
        """An arm that the mask leaves out is not chosen, and has NaN for mean and bonus."""
        policy, mask = self._policy(), np.array([[False, True, False], [True, False, True]])
        decision = policy.select(self._contexts()[:2], mask)
        ensure(mask[[0, 1], decision.arms], f"arms {decision.arms} were chosen with the mask {mask.tolist()}")
        ensure(np.isnan(decision.means[~mask]) & np.isnan(decision.bonuses[~mask]), "absent arms must have NaN")
        ensure(np.isfinite(decision.means[mask]), "available arms must have finite means")
        ensure_equal(decision.probabilities[~mask], np.zeros(3), "the probabilities of absent arms")

    def one_arm_is_ordinary(self) -> None:
        """Rounds with one arm choose it, and are learned from."""
        policy = self._policy()
        ensure_equal(_play(policy, self._contexts(arms=1)), [0] * HORIZON, "the arms")
        ensure(policy.version > 0, "no update was made in 24 rounds of one arm")

    def probabilities_are_those_of_the_decision(self) -> None:
        """`probabilities` gives what the arm of the next decision is drawn from; they sum to 1."""
        policy, contexts = self._lived(), self._contexts()
        rounds = 1 if state_of(policy).current.uses_running else 4
        chances = policy.probabilities(contexts[10 : 10 + rounds])
        decision = policy.select(contexts[10 : 10 + rounds])
        ensure_equal(decision.probabilities, chances, "the decision's probabilities")
        ensure_close(chances.sum(axis=1), np.ones(rounds), "the sum of the probabilities", rtol=1e-12)
        ensure(np.asarray(decision.propensity) > 0, f"an arm of probability 0 was chosen: {decision.propensity}")
        one = policy.probabilities(contexts[14], mask=[True, False, True])
        ensure_equal((one.shape, float(one[1])), ((ARMS,), 0.0), "shape, and the probability of an absent arm")
        ensure_close(one.sum(), 1.0, "the sum of the probabilities under a mask")

    def arms_come_as_often_as_they_should(self) -> None:
        """Arms are drawn with the probabilities of the decision, one draw after another; or one arm has all of it."""
        policy = self._lived(9, AtRounds([4, 8, 10**6]))
        version = state_of(policy).current
        if not version.rule.draws:
            decision = policy.select(self._contexts(7))
            ensure_equal(np.asarray(decision.propensity), np.ones(HORIZON), "the probabilities of the chosen arms")
            return
        decision = policy.select(np.repeat(self._contexts(7)[:1], DRAWS, axis=0))
        chances = decision.probabilities
        means, spread = chances.sum(axis=0), np.sqrt((chances * (1 - chances)).sum(axis=0))
        counts = np.bincount(decision.arms, minlength=ARMS)
        # A Gaussian lies beyond 4.5 deviations with probability 7e-6.
        ensure(np.abs(counts - means) <= 4.5 * spread + 1e-9, f"arms came {counts} times in {DRAWS} draws, not {means}")
        if not version.uses_running:
            statistic, bound = unfairness(decision.arms, chances[0])
            ensure(statistic <= bound, f"χ² of {DRAWS} draws with the probabilities {chances[0]} is {statistic:.1f}")

    def nothing_is_learned_inside_a_batch(self) -> None:
        """Rewards change nothing until `update`, and neither do rounds, but for bonuses that follow them."""
        policy, contexts = self._lived(4, AtRounds([4, 20])), self._contexts()
        before = policy.score(contexts[8])
        policy.observe(policy.select(contexts[4:14]), 100.0 + np.arange(10.0))
        after = policy.score(contexts[8])
        ensure_equal(after.means, before.means, "means inside the batch")
        if state_of(policy).current.uses_running:
            ensure(after.bonuses <= before.bonuses * (1 + 1e-9), "bonuses must not grow inside a batch")
        else:
            ensure_equal(after.bonuses, before.bonuses, "bonuses inside the batch")
        policy.update()
        learned = policy.score(contexts[8]).means
        ensure(not np.array_equal(learned, before.means), "an update with ten rewards changed no mean")

    def rewards_may_come_in_any_order(self) -> None:
        """Rewards that come late, partly, out of order, by decision, by id or by round give the same policy."""
        contexts = self._contexts()
        policies = [self._policy(AtRounds([6])) for _ in range(4)]
        decisions = [policy.select(contexts[:6]) for policy in policies]
        values, keep = rewards_of(contexts[np.arange(6), decisions[0].arms]), np.array([0, 2, 3, 5])
        policies[0].observe(decisions[0][keep], values[keep])
        for i in (5, 0, 3, 2):
            policies[1].observe(decisions[1][i], values[i])
        policies[2].observe(rounds=[4, 1], rewards=values[[3, 0]])
        policies[2].observe(rounds=np.array([3, 6]), rewards=values[[2, 5]])
        policies[3].observe(ids=[decisions[3][int(i)].id for i in keep[::-1]], rewards=values[keep[::-1]])
        for policy in policies:
            ensure_equal(policy.missing, 2, "missing")
            record = policy.update()
            ensure_equal((record.samples, record.missing), (4, 2), "samples and missing of the record")
        means = policies[0].score(contexts).means
        for policy, how in zip(policies[1:], ("one by one", "by round", "by id"), strict=True):
            ensure_equal(policy.score(contexts).means, means, f"means with rewards {how}")

    def the_budget_is_kept(self) -> None:
        """Under a schedule of B batches there are at most B − 1 updates; one more is refused and changes nothing."""
        kinds: tuple[Callable[[int], Schedule], ...] = (
            partial(FixedGrid, 8),
            lambda batches: DeterminantTrigger(8, batches, 0.01),
            partial(Budget, EveryRound()),
        )
        for kind, batches in (*product(kinds, (1, 3)), (kinds[0], 40)):  # the last: more batches than rounds
            policy = self._policy(schedule := kind(batches))
            _play(policy, self._contexts()[:8], block=8)
            counts = f"{policy.version} versions and {len(policy.updates)} updates under {schedule}"
            ensure(policy.version < batches and len(policy.updates) < batches, counts)
            if policy.version == batches - 1:
                ensure(not policy.due, f"an update must not be due when the budget is spent: {schedule}")
                _refused(policy, BudgetSpent, policy.update)

    def log_det_grows_with_every_round(self) -> None:
        """`log_det` is larger after every round, unless its feature is 0 or it changed the scale of contexts."""
        policy, contexts = self._policy(), self._contexts()
        for t in range(8):
            before, learner = policy.log_det, state_of(policy).current.learner
            decision = policy.select(contexts[t])
            policy.observe(decision, float(t))
            grown = policy.log_det > before or state_of(policy).current.learner.follows
            # No unit of a small network may be active at a context: its feature is then 0, and Z stays as it is.
            grown = grown or not learner.features(contexts[t, decision.arms]).vectors().any()
            ensure(grown, f"log_det was {before} before round {t + 1} and is {policy.log_det}")
            if policy.due:
                policy.update()

    def an_update_elsewhere_is_an_update_at_once(self) -> None:
        """A job that is prepared, pickled, run and adopted makes the policy that `update` makes, once."""
        elsewhere, at_once = (self._lived(9, OnDemand(batches=4)) for _ in range(2))
        before = elsewhere.fingerprint()
        job = pickle.loads(pickle.dumps(elsewhere.prepare_update()))
        ensure_equal(elsewhere.fingerprint(), before, "the fingerprint after prepare_update")
        result = pickle.loads(pickle.dumps(job.run()))
        record, expected = elsewhere.adopt(result), at_once.update()
        ensure_equal((record.version, record.samples), (expected.version, expected.samples), "version and samples")
        ensure_equal(elsewhere.fingerprint(), at_once.fingerprint(), "the fingerprint after adopt")
        _refused(elsewhere, StaleUpdate, elsewhere.adopt, result)
        _same_future(self._contexts(7)[:3], at_once, {"after adopt": elsewhere})

    def compaction_changes_no_decision(self) -> None:
        """`compact` changes no score, and no decision or update afterwards, but for rounding."""
        whole, compacted = (self._lived(15, OnDemand()) for _ in range(2))
        for policy in (whole, compacted):
            policy.update()
            policy.observe(policy.select(self._contexts(3)[:3]), [0.1, 0.2, 0.3])
        dropped = compacted.compact()
        ensure_equal(len(compacted.history), len(whole.history) - dropped, "rows left after compact")
        ensure_equal(compacted.round, whole.round, "round")
        contexts = self._contexts(4)
        for part in (slice(0, 4), slice(4, 8)):
            decisions = [policy.select(contexts[part]) for policy in (whole, compacted)]
            _same_decision(decisions[1], decisions[0], f"after {dropped} rounds were dropped", rtol=1e-8)
            for policy, decision in zip((whole, compacted), decisions, strict=True):
                policy.observe(decision, rewards_of(contexts[part][np.arange(4), decision.arms]))
                policy.update()
        expected = whole.score(contexts[9]).means
        ensure_close(compacted.score(contexts[9]).means, expected, "means after two more updates", rtol=1e-8, atol=1e-8)

    def settings_rebuild_it(self) -> None:
        """`type(policy)(**policy.settings())` makes the policy as it began."""
        policy = self._policy()
        settings, make = policy.settings() | _function(policy), cast(Any, type(policy))
        ensure_equal(make(**settings).fingerprint(), policy.fingerprint(), "the fingerprint of a policy made anew")
        _play(policy, self._contexts()[:7])
        ensure_equal(policy.settings(), self._policy().settings(), "settings() after seven rounds")

    def files_and_copies_resume_bit_for_bit(self) -> None:
        """A policy that is saved and loaded, copied or pickled in mid-batch has the same future, bit for bit."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.rarely"

            def saved_and_loaded(policy: Policy) -> Any:
                policy.save(path)
                return rarely.load(path, **_function(policy))

            ways: dict[str, Callable[[Policy], Policy]] = {
                "save and load": saved_and_loaded,
                "copy.copy": copy.copy,
                "copy.deepcopy": copy.deepcopy,
                "pickle": lambda one: pickle.loads(pickle.dumps(one)),
            }
            policy, contexts = self._policy(), self._contexts()
            for rounds in (3, 6, 15):
                _play(policy, contexts[policy.round : rounds])
                one, before, copies = copy.deepcopy(policy), policy.fingerprint(), dict[str, Policy]()
                for how, way in ways.items() if rounds == 15 else [*ways.items()][:1]:
                    again, when = way(policy), f"after {how} in round {rounds}"
                    ensure(type(again) is type(policy), f"{how} made a {type(again).__name__}")
                    ensure_equal(again.fingerprint(), before, f"the fingerprint {when}")
                    ensure_equal((again.updates, again.schedule), (policy.updates, policy.schedule), f"records {when}")
                    copies[when] = again
                _same_future(self._contexts(7)[:5], one, copies)
                ensure_equal(policy.fingerprint(), before, f"the original's fingerprint five rounds after {rounds}")


def unfairness(arms: IntArray, chances: Array) -> tuple[float, float]:
    """Return χ² of drawn arms, and the bound that a fair sample exceeds with probability `CHANCE` at most."""
    possible = np.flatnonzero(chances > 0)
    expected = len(arms) * chances[possible]
    counts = np.bincount(arms, minlength=len(chances))
    ensure(counts.sum() == counts[possible].sum(), "an arm of probability 0 was drawn")
    statistic = float(np.sum(np.square(counts[possible] - expected) / expected))
    freedom, x = len(possible) - 1, -math.log(CHANCE)
    # Laurent and Massart (2000): P(χ² ≥ d + 2√(dx) + 2x) ≤ exp(−x).
    return statistic, freedom + 2 * math.sqrt(freedom * x) + 2 * x if freedom else 1e-9


def _refused(policy: Policy, error: type[Exception], call: Callable[..., Any], *args: Any, **named: Any) -> None:
    """Raise `AssertionError` unless the call raises this error and leaves the policy as it was."""
    arguments, before = shown((*args, named), length=200), policy.fingerprint()
    what = f"{call.__name__} of {arguments} in round {policy.round}"
    with ensure_raises(error, what):
        call(*args, **named)
    ensure_equal(policy.fingerprint(), before, f"the fingerprint after {what}")


def _function(policy: Policy) -> dict[str, Any]:
    """Return the beta of a policy that was made with a function, which neither JSON nor a file can hold."""
    return {"beta": policy._beta} if policy.settings().get("beta") == FUNCTION else {}


# --- schedules


def check_schedule(make: Callable[[], Schedule], *, seed: int = 0, examples: int = 5, only: str | None = None) -> None:
    """Check that a schedule keeps its promises; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns the schedule, the same at every call.
    seed, examples, only
        From which the rounds are drawn, how often, and one of `SCHEDULE_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely import Paced
    >>> from rarely.testing import check_schedule
    >>> check_schedule(lambda: Paced(horizon=100, batches=7))
    """
    _check_values(_SchedulePromises, make, seed, examples, only)


class _SchedulePromises(_Part[Schedule]):
    def _blocks(self) -> list[tuple[int, Array]]:
        """Return rounds before a block, and growth inside it."""
        rng = self._generator()
        return [
            (int(rng.integers(0, 120)), np.cumsum(rng.uniform(0, scale, int(rng.integers(1, 31)))))
            for scale in (0.0, 0.01, 0.1, 0.5, 2.0)
        ]

    def is_a_value(self) -> None:
        """A schedule is a value: what it is asked changes nothing, and equal schedules give equal answers."""
        one, other = self.make(), self.make()
        ensure(isinstance(one, Schedule), f"make() must return a Schedule; got {one!r}")
        ensure_equal(one, other, "a second make()")
        for round, growth in self._blocks():
            answers = [(each.first_due(round, growth), each.lookahead(round, 0.5, 3)) for each in (one, one, other)]
            ensure(answers[0] == answers[1] == answers[2], f"round {round}: three answers differ, {answers}")
        ensure_equal(one, other, "the schedule after it was asked")

    def batches_and_horizon_are_counts(self) -> None:
        """`batches` and `horizon` are positive whole numbers, or None."""
        schedule = self.make()
        for name in ("batches", "horizon"):
            count = getattr(schedule, name)
            ensure(count is None or (isinstance(count, int) and count >= 1), f"{name} is {count!r}")

    def describe_rebuilds_it(self) -> None:
        """`describe` gives JSON from which an equal schedule can be made."""
        schedule = self.make()
        described = json.loads(json.dumps(schedule.describe()))
        ensure_equal(schedule_from(described), schedule, "the schedule made of describe()")

    def no_rounds_end_no_batch(self) -> None:
        """`first_due` of no rounds is None."""
        for round, _ in self._blocks():
            ensure_equal(self.make().first_due(round, np.empty(0)), None, f"first_due({round}, no rounds)")

    def first_due_is_one_of_the_rounds(self) -> None:
        """`first_due` is the index of one of the rounds it was asked about, or None, and leaves their growth alone."""
        for round, growth in self._blocks():
            before = growth.copy()
            end = self.make().first_due(round, growth)
            inside = end is None or (isinstance(end, int) and 0 <= end < len(growth))
            ensure(inside, f"first_due({round}, {len(growth)} rounds) is {end!r}")
            ensure_equal(growth, before, "the growth that was given")

    def blocks_are_cut_where_single_rounds_are(self) -> None:
        """A block of rounds ends a batch with the same round as one round after another does."""
        schedule = self.make()
        for round, growth in self._blocks():
            singly = [schedule.first_due(round + i, growth[i : i + 1]) is not None for i in range(len(growth))]
            expected = singly.index(True) if any(singly) else None
            ensure_equal(schedule.first_due(round, growth), expected, f"first_due({round}, {growth.round(3).tolist()})")

    def looks_at_least_one_round_ahead(self) -> None:
        """`lookahead` is a whole number of at least 1."""
        rng = self._generator()
        for _ in range(20):
            asked = int(rng.integers(0, 151)), float(rng.uniform(0, 3)), int(rng.integers(0, 51))
            ahead = self.make().lookahead(*asked)
            ensure(isinstance(ahead, int) and ahead >= 1, f"lookahead{asked} is {ahead!r}")

    def lookahead_is_exact_where_growth_does_not_matter(self) -> None:
        """Where a batch ends with a round that is known beforehand, `lookahead` leads to that round."""
        schedule, asked = self.make(), range(0, 121, 7)
        growths = [np.full(MANY_ROUNDS, growth) for growth in (*range(0, 60, 4), 1e300)]
        ends = {round: {schedule.first_due(round, growth) for growth in growths} for round in asked}
        if any(len(rounds) > 1 for rounds in ends.values()):
            return  # growth matters
        for round, (end,) in ends.items():
            if end is not None:
                ensure_equal(schedule.lookahead(round, 0.0, 1), end + 1, f"lookahead({round}, 0.0, 1)")

    def a_batch_played_by_lookahead_ends_with_the_same_round(self) -> None:
        """Rounds that are asked about in pieces of `lookahead` end the batch with the same round as all at once."""
        log_dets = np.cumsum(self._generator().exponential(0.3, MANY_ROUNDS))
        schedule = self.make().in_batch(0, 0, 0.0)
        whole, start, end = schedule.first_due(0, log_dets), 0, None
        while start < MANY_ROUNDS and end is None:
            ahead = schedule.lookahead(start, float(log_dets[start - 1]) if start else 0.0, start)
            piece = schedule.first_due(start, log_dets[start : start + ahead])
            end, start = (None if piece is None else start + piece), start + ahead
        ensure_equal(end, whole, "the end of the first batch")

    def the_budget_is_kept(self) -> None:
        """A policy that makes every update at once never has more than `batches` versions."""
        budget, rng = Budget.around(self.make()), self._generator()
        for scale in (0.0, 0.05, 1.0, 20.0):
            log_dets = np.cumsum(rng.exponential(scale, MANY_ROUNDS)) if scale else np.zeros(MANY_ROUNDS)
            version, base, began = 0, 0.0, 0
            for round in range(MANY_ROUNDS):
                batch = budget.in_batch(version, began, base)
                growth = log_dets[round : round + 1] - base
                if not budget.spent(version) and batch.first_due(round, growth) is not None:
                    version, base, began = version + 1, float(log_dets[round]), round + 1
            most = budget.batches
            ensure(most is None or version < most, f"{version + 1} versions with a budget of {most}")

    def explains_itself_in_words(self) -> None:
        """`explain` and `ahead` give text, and `in_batch` and `rescued` give schedules."""
        schedule = self.make()
        ensure(isinstance(schedule.explain(5, 1.0), str) and schedule.explain(5, 1.0), "explain(5, 1.0) says nothing")
        ensure(isinstance(schedule.ahead(5), str), f"ahead(5) is {schedule.ahead(5)!r}")
        for batch in (schedule.in_batch(1, 5, 2.0), schedule.rescued()):
            ensure(isinstance(batch, Schedule), f"a batch's schedule is {batch!r}")


# --- rules of choice


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
    _check_values(_RulePromises, make, seed, examples, only)


class _RulePromises(_Part[ChoiceRule]):
    def _scores(self, rounds: Any = slice(None), arms: Any = slice(None), scale: float = 1.0) -> ArmScores:
        """Return scores of six rounds with four arms, the first of which is always there, or of some of them."""
        rng = self._generator()
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
            ensure_close(self._chances(scores), chances, "the probabilities with a mean 1e-10 larger", atol=1e-6)

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


# --- learners


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
    check_all(_LearnerPromises(make, seed, contexts), type(make()).__name__, only, f" (seed={seed})")


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
class _LearnerPromises(_Part[Learner]):
    draw: Draw | None

    def _contexts(self, count: int = ROUNDS, stream: int = 0) -> Array:
        rng = self._generator(stream)
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


# --- forms of Z


def _whole_matrix(vectors: Array, ridge: float) -> Array:
    return np.asarray(ridge * np.eye(vectors.shape[1]) + vectors.T @ vectors)


def check_covariance(
    make: Make,
    *,
    vectors: Vectors = Factors.vectors,
    matrix: Matrix = _whole_matrix,
    seed: int = 0,
    examples: int = 5,
    only: str | None = None,
) -> None:
    """Check that a form of Z keeps its promises, against the dense matrix; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns an empty form, given the widths of the features' layers, (out, in) each, and λ.
    vectors
        Of an approximation: the part of n features that it holds, as an array (n, q). Else all of them.
    matrix
        Of an approximation: the (q, q) matrix that it stands for, given (t, q) features and λ. Else λI + Σφφᵀ.
    seed, examples, only
        From which widths, λ and rounds are drawn, how often, and one of `COVARIANCE_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely.extend import Dual, Limit
    >>> from rarely.testing import check_covariance
    >>> check_covariance(lambda widths, ridge: Dual(widths, ridge, Limit(widths)), examples=1)
    """
    for example in range(seed, seed + examples):
        rng = np.random.default_rng(example)
        hidden, dim, layers = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
        middle = tuple((hidden, hidden) for _ in range(layers - 2))
        widths = ((1, dim),) if layers == 1 else ((hidden, dim), *middle, (1, hidden))
        case = _CovariancePromises(make, example, vectors, matrix, widths, float(10 ** rng.uniform(-3, 1)))
        where = f" (widths={widths}, ridge={case.ridge:.3g}, seed={example})"
        check_all(case, type(case._form()).__name__, only, where)


class _Beside:
    """A form, the features that it holds, and a generator of more."""

    def __init__(self, case: _CovariancePromises) -> None:
        self.case, self.form, self.frozen = case, case._form(), 0
        self.rng = case._generator(1)
        self.past = case.vectors(self.draw(1))[:0]

    def draw(self, count: int) -> Factors:
        """Return features as a network might have them: one layer is often silent."""
        widths, rng = self.case.widths, self.rng
        inputs = tuple(rng.normal(size=(count, i)) / np.sqrt(i) for _, i in widths)
        signals = tuple(rng.normal(size=(count, o)) * (rng.random((count, o)) < 0.7) for o, _ in widths)
        return Factors(inputs, signals)

    def accept(self, rounds: int | Factors, keep: int | None = None, when: str = "") -> None:
        """Accept rounds, all or the first of them, and compare the log det after each."""
        factors = self.draw(rounds) if isinstance(rounds, int) else rounds
        keep, start = len(factors) if keep is None else keep, len(self.past)
        proposal = self.form.propose(self.form.measure(factors))
        self.form.accept(proposal, keep)
        self.past = np.vstack((self.past, self.case.vectors(factors[:keep])))
        truth = np.array([self.log_det(start + i + 1) for i in range(keep)])
        ensure_close(proposal.log_dets[:keep], truth, f"log_dets {when}", rtol=1e-8, atol=1e-8)

    def freeze(self) -> None:
        self.form.freeze()
        self.frozen = len(self.past)

    def cross(self, one: Factors, others: Factors, rounds: int) -> Array:
        """Return φᵀZ⁻¹φ' of n features with n' others after that many rounds, (n, n')."""
        z, vectors = self.case.matrix(self.past[:rounds], self.case.ridge), self.case.vectors
        return np.asarray(vectors(one) @ np.linalg.solve(z, vectors(others).T))

    def log_det(self, rounds: int) -> float:
        """Return log det Z − log det λI after that many rounds."""
        z = self.case.matrix(self.past[:rounds], self.case.ridge)
        return float(np.linalg.slogdet(z)[1] - len(z) * np.log(self.case.ridge))

    def compare(self, when: str) -> None:
        """Compare both matrices with the dense ones."""
        candidates, counts = self.draw(4), (self.frozen, len(self.past))
        truth = [np.diagonal(self.cross(candidates, candidates, rounds)) for rounds in counts]
        variances, atol = _variances(self.form, candidates), 1e-9 / self.case.ridge
        ensure_close(variances, np.array(truth), f"φᵀZ⁻¹φ under both matrices {when}", rtol=1e-6, atol=atol)
        log_dets = self.form.frozen_log_det, self.form.log_det
        ensure_close(log_dets, tuple(map(self.log_det, counts)), f"both log dets {when}", rtol=1e-8, atol=1e-8)
        ensure_equal(self.form.rounds, len(self.past), f"rounds {when}")


def _accepted(form: Covariance, factors: Factors) -> Array:
    """Let a form accept rounds, and return log det after each."""
    proposal = form.propose(form.measure(factors))
    form.accept(proposal, len(factors))
    return proposal.log_dets


def _variances(form: Covariance, factors: Factors) -> Array:
    """Return φᵀZ⁻¹φ of n features under the frozen matrix and the running one, (2, n)."""
    return np.array([form.measure(factors, running=running).variances for running in (False, True)])


@dataclass(frozen=True)
class _CovariancePromises(_Part[Covariance]):
    vectors: Vectors
    matrix: Matrix
    widths: Widths
    ridge: float

    def _form(self) -> Covariance:
        return self.make(self.widths, self.ridge)

    def _lived(self, *counts: int, running: int = 0) -> _Beside:
        """Return a form that has accepted blocks of rounds, was frozen, and has accepted another one."""
        lived = _Beside(self)
        for count in counts:
            lived.accept(count)
        lived.freeze()
        lived.accept(running)
        return lived

    def starts_as_the_prior(self) -> None:
        """Before any data, φᵀZ⁻¹φ is ‖φ‖²/λ, log det is 0 and the unit of bonuses is 1."""
        form, factors = self._form(), _Beside(self).draw(4)
        truth = np.square(self.vectors(factors)).sum(axis=1) / self.ridge
        ensure_close(_variances(form, factors), np.array([truth, truth]), "φᵀZ⁻¹φ under both matrices")
        ensure_equal((form.frozen_unit, form.running_unit), (1.0, 1.0), "units")
        ensure_equal((form.rounds, form.log_det, form.frozen_log_det), (0, 0.0, 0.0), "rounds and log dets")

    def is_the_dense_matrix_batch_after_batch(self) -> None:
        """Both matrices are the dense ones, for blocks of any size of which any number of rounds is kept."""
        one = _Beside(self)
        for batch in range(int(one.rng.integers(1, 5))):
            for block in range(int(one.rng.integers(0, 4))):
                count = int(one.rng.integers(1, 8))
                keep = int(one.rng.integers(0, count + 1))
                when = f"after block {block} of batch {batch}, {keep} of {count} rounds kept"
                one.accept(count, keep, when)
                one.compare(when)
            one.freeze()
            one.compare(f"frozen after batch {batch}")
            ensure_equal(one.form.frozen_log_det, one.form.log_det, "frozen_log_det after freeze")

    def is_the_dense_matrix_after_many_rounds(self) -> None:
        """Both matrices are the dense ones with more rounds than parameters, too."""
        self._lived(60, 1, 100, running=30).compare("after 191 rounds")

    def accepting_leaves_the_frozen_matrix_alone(self) -> None:
        """Accepted rounds change nothing under the frozen matrix until `freeze`, and lower φᵀZ⁻¹φ afterwards."""
        one = self._lived(5)
        form, candidates = one.form, one.draw(3)
        before, log_det = form.measure(candidates).variances.copy(), form.frozen_log_det
        for block in range(12):
            one.accept(3)
            ensure_equal(form.measure(candidates).variances, before, f"φᵀZ⁻¹φ under the frozen matrix, block {block}")
            ensure_equal(form.frozen_log_det, log_det, f"frozen_log_det, block {block}")
        form.freeze()
        after = form.measure(candidates).variances
        some = np.square(self.vectors(candidates)).sum(axis=1) > 0
        ensure(after[some] < before[some], f"φᵀZ⁻¹φ must fall with 36 more rounds; it was {before} and is {after}")

    def rounds_added_at_once_are_those_proposed(self) -> None:
        """`add` makes the matrices that `propose` and `accept` make."""
        one = _Beside(self)
        for count in (5, 30):
            one.form.add(factors := one.draw(count))
            one.past = np.vstack((one.past, self.vectors(factors)))
            one.freeze()
            one.accept(1)
            one.compare(f"after {count} rounds were added at once, and one accepted")

    def proposing_changes_nothing(self) -> None:
        """Rounds that are proposed and not accepted, or none of which is accepted, leave both matrices as they were."""
        one = self._lived(2, running=2)
        form, candidates = one.form, one.draw(3)
        before, numbers = _variances(form, candidates), (form.rounds, form.frozen_log_det, form.log_det)
        form.propose(form.measure(one.draw(5)))
        form.accept(form.propose(form.measure(one.draw(2))), 0)
        after = _variances(form, candidates)
        ensure_equal(after[0], before[0], "φᵀZ⁻¹φ under the frozen matrix")
        # A form may tidy up its running matrix, which changes the last digits.
        ensure_close(after[1], before[1], "φᵀZ⁻¹φ under the running matrix")
        ensure_close(form.log_det, numbers[2], "log_det")
        ensure_equal((form.rounds, form.frozen_log_det), numbers[:2], "rounds and frozen_log_det")
        one.accept(3, when="of later rounds")

    def a_dropped_fork_leaves_the_original_alone(self) -> None:
        """What happens to a fork changes nothing in the original, which has the future it had without the fork."""
        one = self._lived(5)
        form, candidates = one.form, one.draw(3)
        before, log_det, fork = form.measure(candidates).variances.copy(), form.log_det, form.fork()
        for _ in range(6):
            _accepted(fork, one.draw(4))
            fork.freeze()
        ensure_equal(form.measure(candidates).variances, before, "φᵀZ⁻¹φ of the original")
        ensure_equal((form.log_det, form.rounds), (log_det, 5), "log_det and rounds of the original")
        one.accept(2, when="of the original's next rounds")
        one.compare("of the original afterwards")

    def a_fork_is_the_original(self) -> None:
        """A fork has the matrices of the original, and grows as the original would."""
        one = self._lived(6, running=2)
        form, later, fork = one.form, one.draw(3), one.form.fork()
        ensure_equal(_accepted(fork, later), _accepted(form.fork(), later), "log_dets of two forks")
        one.accept(later)
        candidates = one.draw(3)
        ensure_close(_variances(fork, candidates), _variances(form, candidates), "φᵀZ⁻¹φ under both matrices")

    def a_restored_form_has_the_same_future(self) -> None:
        """`read` of what `state` gave makes the same form, bit for bit, now and after further rounds."""
        one, again = self._lived(5, 40, running=3), self._form()
        form, candidates, later = one.form, one.draw(3), one.draw(30)
        with through_json(form, "covariance") as saved:
            again.read(saved)
        for when in ("at once", "after 30 more rounds"):
            for name in ("rounds", "log_det", "frozen_log_det", "jitters"):
                ensure_equal(getattr(again, name), getattr(form, name), f"{name} {when}")
            ensure_equal(_variances(again, candidates), _variances(form, candidates), f"φᵀZ⁻¹φ {when}")
            for each in (form, again):
                _accepted(each, later)
                each.freeze()

    def candidates_are_measured_one_by_one(self) -> None:
        """φᵀZ⁻¹φ of a candidate does not depend on those it is measured with, and `block` is at least 1."""
        one = self._lived(9, running=2)
        form, candidates = one.form, one.draw(5)
        singly = np.hstack([_variances(form, candidates[[i]]) for i in range(5)])
        ensure_close(singly, _variances(form, candidates), "φᵀZ⁻¹φ one by one")
        ensure(singly >= 0, f"φᵀZ⁻¹φ must not be negative; got {singly}")
        for running in (False, True):
            together = form.measure(candidates, running=running)
            ensure_equal(together[[3, 1]].variances, together.variances[[3, 1]], "variances of a slice")
        ensure(form.block() >= 1, f"block() is {form.block()}")

    def cross_terms_exist_exactly_where_rounds_add_their_features(self) -> None:
        """`cross` is φᵀZ⁻¹φ' under the running matrix where `additive` is set, and refused elsewhere."""
        one = self._lived(3, running=2)
        form, candidates = one.form, one.draw(5)
        measured = form.measure(candidates, running=True)
        if form.additive:
            truth = one.cross(candidates[[0]], candidates[1:], 5)[0]
            ensure_close(form.cross(measured[[0]], measured[1:]), truth, "cross", rtol=1e-6, atol=1e-9 / self.ridge)
        else:
            with ensure_raises(InvalidInput, "cross of a form that is not additive"):
                form.cross(measured[[0]], measured[1:])

    def sums_of_rounds_are_rounds_added(self) -> None:
        """With `takes_sums`, sums that are made of parts elsewhere make the matrices that `add` makes; else none do."""
        one = self._lived(3, running=2)
        parts = [one.draw(count) for count in (4, 1, 7)]
        if not one.form.takes_sums:
            with ensure_raises(InvalidInput, "contribution of a form that takes no sums"):
                one.form.contribution(parts[0])
            return
        total = np.sum([self._form().contribution(part) for part in parts], axis=0)
        one.form = one.form.with_contributions(total, 12)
        one.past = np.vstack((one.past, *map(self.vectors, parts)))
        one.compare("after sums of 12 rounds")


POLICY_PROMISES, SCHEDULE_PROMISES = names_of(_PolicyPromises), names_of(_SchedulePromises)
RULE_PROMISES, LEARNER_PROMISES = names_of(_RulePromises), names_of(_LearnerPromises)
COVARIANCE_PROMISES = names_of(_CovariancePromises)
"""The names of the promises that each function checks."""
