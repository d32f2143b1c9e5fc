"""Rounds that other processes decide: the arms of one process, and an update that is the one it would make."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from campaigns import ARMS, DIM, close, made, paid
from rarely import BatchNeuralUCB, ComposedPolicy, InvalidInput, LinUCB, OnDemand, Training, Uniform, Window
from rarely._core.covariance import FORMS
from rarely._core.covariance.primal import Primal
from rarely.extend import Factors, FitResult, History, Learner
from rarely.extend.provisional import LiveCopy, OfferedArms, RewardTask, UpdateFromSums, VersionFunction

ROUNDS = 90


def offered_contexts(seed: int, rounds: int = ROUNDS) -> Any:
    return np.random.default_rng(seed).normal(size=(rounds, ARMS, DIM))


@pytest.mark.parametrize("kind", ["linear", "thompson", "neural"])
def test_a_version_is_a_function_of_contexts_and_numbers(kind: str) -> None:
    policy, contexts = made(kind), offered_contexts(4)
    version = pickle.loads(pickle.dumps(VersionFunction.of(policy)))
    draws, offered = np.random.default_rng(0).random(ROUNDS), version.offered()
    whole = version.decide(contexts, draws, offered)
    half = [version.decide(contexts[part], draws[part], version.offered()) for part in (slice(45), slice(45, None))]
    for column, parts in zip(whole, zip(*half, strict=True), strict=True):
        close(column, np.concatenate(parts))
    close(whole.probabilities, policy.probabilities(contexts)[np.arange(ROUNDS), whole.arms])
    if kind != "thompson":
        np.testing.assert_array_equal(whole.arms, policy.select(contexts).arm)
    again = OfferedArms.from_description(offered.describe())
    assert again.describe() == offered.describe()


def test_a_live_copy_decides_as_the_policy_does_and_keeps_no_history() -> None:
    policy = made("linear", within_batch="running")
    live, rounds = LiveCopy(copy.deepcopy(policy)), policy.round
    for contexts in offered_contexts(3, 30):
        decided = live.decide(contexts, None, np.zeros(1))
        decision = policy.select(contexts)  # in one compiled step, whose last digits differ
        assert decided.decision.arm == decision.arm
        np.testing.assert_allclose(decided.decision.bonuses, decision.bonuses, rtol=1e-12)
        again = live.decide_again(decided.rows, decided.present, np.zeros(1))
        np.testing.assert_array_equal(again.decision.bonuses, decided.decision.bonuses)
        live.accept(decided)
    assert live.decided == 30
    assert len(live.policy.history) < rounds + 2


@dataclass(frozen=True)
class OwnRidge(Learner):
    """A ridge regression that is not the package's."""

    dim: int = DIM
    widths = ((1, DIM),)
    matrix: Any = field(default_factory=lambda: np.eye(DIM))
    moment: Any = field(default_factory=lambda: np.zeros(DIM))
    learned: int = 0

    def assess(self, contexts: Any) -> Any:
        means = contexts @ np.linalg.solve(self.matrix, self.moment)
        return means, Factors((contexts,), (np.ones((len(contexts), 1)),))

    def learn(self, history: History, watch: Any = None) -> FitResult:
        x, rewards = history.arrived_since(self.learned)
        sums = {"matrix": self.matrix + x.T @ x, "moment": self.moment + x.T @ rewards}
        return FitResult(replace(self, **sums, learned=self.learned + len(rewards)))

    def reward_task(self, history: History, new: int) -> RewardTask:
        return RewardTask(np.asarray, 8, 8, history.logged)

    def with_reward_sums(self, total: Any, history: History, arrived: int) -> Any:
        matrix, moment, _ = RewardTask.parts(total)
        return replace(self, matrix=self.matrix + matrix, moment=self.moment + moment, learned=arrived)


def after_pilot(kind: str) -> Any:
    if kind != "own":
        return made(kind, **({"training": Training(steps=20, rows=1000)} if kind == "neural" else {}))
    policy = ComposedPolicy(OwnRidge(), OnDemand(), covariance="primal", seed=0)
    contexts = offered_contexts(1, 60)
    decision = policy.select(contexts)
    policy.observe(decision, paid(contexts, decision.arm, np.random.default_rng(1)))
    policy.update()
    return policy


def test_a_form_that_takes_no_sums_is_refused_before_anything_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    class Whole(Primal, by_name=False):
        kind, takes_sums = "needs every round", False

    monkeypatch.setitem(FORMS, Whole.kind, Whole)
    policy = made("linear", covariance="needs every round")
    before = policy.fingerprint()
    with pytest.raises(InvalidInput, match=r"a sum over rounds.*got LinUCB with 'needs every round'"):
        UpdateFromSums(policy)
    assert policy.fingerprint() == before


@pytest.mark.parametrize("kind", ["linear", "neural", "own"])
@pytest.mark.parametrize("leaves", [1, 5])
def test_an_update_from_sums_is_that_of_one_process(kind: str, leaves: int) -> None:
    policy = after_pilot(kind)
    alone, contexts = copy.deepcopy(policy), offered_contexts(5)
    version, first = VersionFunction.of(policy), policy.round
    offered = [version.offered() for _ in range(leaves)]
    parts = np.array_split(np.arange(ROUNDS), leaves)
    decided = [version.decide(contexts[part], np.zeros(0), each) for part, each in zip(parts, offered, strict=True)]
    columns = [np.concatenate(column) for column in zip(*decided, strict=True)]
    arms, probabilities, means, bonuses, chosen = columns
    rewards = paid(contexts, arms, np.random.default_rng(6))
    with UpdateFromSums(policy) as coming:
        task = coming.expect(offered, ROUNDS, ROUNDS)
        totals = [task.sums(chosen[part], rewards[part]) for part in parts]
        rows = task.logged + first + np.arange(ROUNDS)
        kept = task.kept(rows)
        sample = (chosen, arms, np.full(ROUNDS, 1), probabilities, means, bonuses, rewards)
        dropped = [np.delete(rewards, kept)]
        total = None if task.scale is None else np.sum(totals, axis=0)
        features = coming.learn(rows[kept], tuple(column[kept] for column in sample), dropped, total)
        sums = [features.sums(chosen[part], first + int(part[0])) for part in parts]
        record = coming.adopt(np.sum([leaf for leaf, _ in sums], axis=0), sum(count for _, count in sums))
    alone.observe(alone.select(contexts), rewards)
    assert (record.round, record.samples, record.missing) == (first + ROUNDS, first + ROUNDS, 0)
    close(record.log_det, alone.update().log_det)
    for mine, theirs in zip(policy.score(contexts), alone.score(contexts), strict=True):
        close(mine, theirs)


def interrupted(policy: Any) -> None:
    version = VersionFunction.of(policy)
    with UpdateFromSums(policy) as coming:
        offered = version.offered()
        decided = version.decide(offered_contexts(1), np.zeros(0), offered)
        task = coming.expect([offered], ROUNDS, 1)
        columns = (decided.contexts, decided.arms, decided.arms, *decided[1:4], decided.means)
        one = tuple(column[:1] for column in columns)
        coming.learn(np.array([task.logged + 60]), one, [], task.sums(decided.contexts[:1], decided.means[:1]))
        assert policy.round > 60
        raise KeyboardInterrupt


def test_an_update_that_fails_leaves_the_policy_as_it_was() -> None:
    policy = made("linear")
    before = policy.fingerprint()
    with pytest.raises(KeyboardInterrupt):
        interrupted(policy)
    assert policy.fingerprint() == before


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Uniform(dim=DIM, schedule=OnDemand()), "got Uniform"),
        (
            BatchNeuralUCB(DIM, OnDemand(), hidden=6, covariance="dual", seed=0),
            "got BatchNeuralUCB with 'dual'",
        ),
        (LinUCB(DIM, OnDemand(), forgetting=Window(50)), "without forgetting"),
    ],
)
def test_a_policy_whose_update_needs_every_round_is_refused(policy: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        UpdateFromSums(policy)


def test_a_scale_that_follows_contexts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="scale of contexts is settled"):
        VersionFunction.of(BatchNeuralUCB(DIM, OnDemand(), seed=0))
