"""What every policy promises."""

from __future__ import annotations

import copy
import math
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from rarely import AtRounds, Budget, DeterminantTrigger, EveryRound, FixedGrid, OnDemand, Policy, Schedule, load
from rarely.extend import Array, Decision, IntArray
from rarely.extend.checks import shown
from rarely.extend.provisional import FUNCTION, errors, state_of
from rarely.testing.promises import check_all, ensure, ensure_close, ensure_equal, ensure_raises, names_of, rewards_of

HORIZON, ARMS = 24, 3
"""Rounds of a life, and arms of a round."""
DRAWS = 1000
"""Draws by which probabilities are compared with frequencies."""
CHANCE = 1e-4
"""How seldom a fair sample may be called unfair."""
Draw = Callable[[np.random.Generator, int, int], Array]
"""Draws the contexts of n rounds with K arms, (n, K, d)."""


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


def _runs(policy: Policy) -> bool:
    """Return whether bonuses follow every round of a batch."""
    return state_of(policy).current.uses_running


def _draws(policy: Policy) -> bool:
    """Return whether arms are drawn."""
    return state_of(policy).current.rule.draws


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
    check_all(_Promises(make, seed, policy.dim, contexts), type(policy).__name__, only, f" (seed={seed})")


@dataclass(frozen=True)
class _Promises:
    """A way to make a policy under any schedule, and a seed for contexts."""

    make: Callable[[Schedule], Policy]
    seed: int
    dim: int
    draw: Draw | None

    def _policy(self, schedule: Schedule | None = None) -> Policy:
        return self.make(FixedGrid(HORIZON, 4) if schedule is None else schedule)

    def _lived(self, rounds: int = 9, schedule: Schedule | None = None) -> Policy:
        """Return a policy that has decided some rounds, with every update made at once."""
        policy = self._policy(schedule)
        if rounds:
            _play(policy, self._contexts()[:rounds])
        return policy

    def _contexts(self, stream: int = 0, rounds: int = HORIZON, arms: int = ARMS) -> Array:
        """Return contexts, (rounds, arms, d); each stream has its own."""
        rng = np.random.default_rng((self.seed, stream))
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
        decisions = [policy.select(contexts) for _ in range(4)]
        for i, (before, after) in enumerate(pairwise(decisions)):
            ensure_equal(after.means, before.means, f"means of call {i + 2}")
            if _runs(policy):
                fallen = before.bonuses[before.arm], after.bonuses[before.arm]
                # A version that does not explore has no bonus that could fall.
                ensure(fallen[1] < fallen[0] or fallen == (0, 0), f"the bonus of a chosen arm must fall; got {fallen}")
                continue
            ensure_equal(after.bonuses, before.bonuses, f"bonuses of call {i + 2}")
            ensure_equal(after.probabilities, before.probabilities, f"probabilities of call {i + 2}")
            ensure(_draws(policy) or after.arm == before.arm, f"call {i + 2} chose arm {after.arm} after {before.arm}")
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
        rounds = 1 if _runs(policy) else 4
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
        if not _draws(policy):
            decision = policy.select(self._contexts(7))
            ensure_equal(np.asarray(decision.propensity), np.ones(HORIZON), "the probabilities of the chosen arms")
            return
        decision = policy.select(np.repeat(self._contexts(7)[:1], DRAWS, axis=0))
        chances = decision.probabilities
        means, spread = chances.sum(axis=0), np.sqrt((chances * (1 - chances)).sum(axis=0))
        counts = np.bincount(decision.arms, minlength=ARMS)
        # A Gaussian lies beyond 4.5 deviations with probability 7e-6.
        ensure(np.abs(counts - means) <= 4.5 * spread + 1e-9, f"arms came {counts} times in {DRAWS} draws, not {means}")
        if not _runs(policy):
            statistic, bound = unfairness(decision.arms, chances[0])
            ensure(statistic <= bound, f"χ² of {DRAWS} draws with the probabilities {chances[0]} is {statistic:.1f}")

    def nothing_is_learned_inside_a_batch(self) -> None:
        """Rewards change nothing until `update`, and neither do rounds, but for bonuses that follow them."""
        policy, contexts = self._lived(4, AtRounds([4, 20])), self._contexts()
        before = policy.score(contexts[8])
        policy.observe(policy.select(contexts[4:14]), 100.0 + np.arange(10.0))
        after = policy.score(contexts[8])
        ensure_equal(after.means, before.means, "means inside the batch")
        if _runs(policy):
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
            partial(FixedGrid, 12),
            lambda batches: DeterminantTrigger(12, batches, 0.01),
            partial(Budget, EveryRound()),
        )
        for kind, batches in (*product(kinds, (1, 5)), (kinds[0], 40)):  # the last: more batches than rounds
            policy = self._policy(schedule := kind(batches))
            _play(policy, self._contexts()[:12], block=12)
            counts = f"{policy.version} versions and {len(policy.updates)} updates under {schedule}"
            ensure(policy.version < batches and len(policy.updates) < batches, counts)
            if policy.version == batches - 1:
                ensure(not policy.due, f"an update must not be due when the budget is spent: {schedule}")
                _refused(policy, errors.BudgetSpent, policy.update)

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
        _refused(elsewhere, errors.StaleUpdate, elsewhere.adopt, result)
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
        policy, kind = self._policy(), type(self._policy())
        settings: dict[str, Any] = policy.settings() | _function(policy)
        make: Any = kind
        ensure_equal(make(**settings).fingerprint(), policy.fingerprint(), "the fingerprint of a policy made anew")
        _play(policy, self._contexts()[:7])
        ensure_equal(policy.settings(), self._policy().settings(), "settings() after seven rounds")

    def files_and_copies_resume_bit_for_bit(self) -> None:
        """A policy that is saved and loaded, copied or pickled in mid-batch has the same future, bit for bit."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.rarely"
            ways: dict[str, Callable[[Policy], Policy]] = {
                "save and load": lambda one: _saved_and_loaded(one, path),
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
    """Return χ² of drawn arms, and the bound that a fair sample exceeds with probability `CHANCE` at most.

    >>> unfairness(np.array([0, 0, 1, 1]), np.array([0.5, 0.5, 0.0]))[0]
    0.0
    """
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


def _saved_and_loaded(policy: Policy, path: Path) -> Policy:
    policy.save(path)
    loaded: Policy = load(path, **_function(policy))
    return loaded


def _function(policy: Policy) -> dict[str, Any]:
    """Return the beta of a policy that was made with a function, which neither JSON nor a file can hold."""
    return {"beta": policy._beta} if policy.settings().get("beta") == FUNCTION else {}


POLICY_PROMISES = names_of(_Promises)
"""The names of the promises that `check_policy` checks."""
