"""Parts of one's own: a schedule, a learner, a form of Z and a rule, with public imports alone.

A definition registers a class. Policies that use it can then be saved, loaded and put into a study by any program that
imports this module; `rarely.testing` checks what each part promises.

    python examples/own_parts.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rarely import ComposedPolicy, LinUCB, Price, Schedule, load
from rarely.extend import (
    UNWATCHED,
    ArmScores,
    Array,
    Arrays,
    Candidates,
    ChoiceRule,
    Covariance,
    Factors,
    Fields,
    FitResult,
    History,
    Learner,
    Limit,
    Proposal,
    RowCost,
    Watch,
    Widths,
)


@dataclass(frozen=True)
class Doubling(Schedule):
    """Updates after rounds 1, 2, 4, 8, …."""

    horizon: int
    batches: int

    def first_due(self, round: int, growth: Array) -> int | None:
        ahead = self._next(round) - round
        return ahead - 1 if ahead <= len(growth) else None

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self._next(round) - round

    def _next(self, round: int) -> int:
        return 1 << round.bit_length()


@dataclass(frozen=True)
class LeastSquares(Learner):
    """A ridge regression of rewards on contexts: rewards that are linear without a constant."""

    coefficients: Array
    """(d,): zeros before the first update."""
    ridge: float = 1.0

    @property
    def dim(self) -> int:
        return len(self.coefficients)

    @property
    def widths(self) -> Widths:
        return ((1, self.dim),)

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        return contexts @ self.coefficients, Factors((contexts,), (np.ones((len(contexts), 1)),))

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        _, x, rewards, weights = history.samples()
        weighed = x if weights is None else x * weights[:, None]
        with np.errstate(all="ignore"):
            solved = np.linalg.solve(self.ridge * np.eye(self.dim) + weighed.T @ x, weighed.T @ rewards)
        if not np.isfinite(solved).all():
            return FitResult(self, "the estimate overflows: the rewards are too large")
        return FitResult(replace(self, coefficients=np.asarray(solved, np.float64)))


class DenseInverse(Covariance):
    """Z⁻¹ written out, p×p, and changed by the formula of Sherman and Morrison."""

    kind = "dense_inverse"
    exact = True

    @classmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        p = sum(o * i for o, i in widths)
        return Price(cls.kind, True, 16 * p * p, p * p)

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        super().__init__(widths, ridge, limit)
        limit.check_rounds(self.kind, 0)
        self.running = self.frozen = np.eye(sum(o * i for o, i in widths)) / ridge

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        inverse, features = self.running if running else self.frozen, factors.vectors()
        return Candidates(factors, np.einsum("np,pq,nq->n", features, inverse, features))

    def propose(self, chosen: Candidates) -> Proposal:
        inverses, log_dets, log_det = [self.running], [], self.log_det
        for feature in chosen.factors.vectors():
            solved = inverses[-1] @ feature
            grown = float(feature @ solved)
            log_det += float(np.log1p(grown))
            inverses.append(inverses[-1] - np.outer(solved, solved) / (1 + grown))
            log_dets.append(log_det)
        return Proposal(chosen.factors, np.array(log_dets), inverses)

    def accept(self, proposal: Proposal, count: int) -> None:
        if count:
            self.running, self.log_det = proposal.kept[count], float(proposal.log_dets[count - 1])
            self.rounds += count

    def freeze(self) -> None:
        super().freeze()
        self.frozen = self.running

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers = {"rounds": self.rounds, "log_det": self.log_det, "frozen_log_det": self.frozen_log_det}
        return numbers, {"running": self.running, "frozen": self.frozen}

    def read(self, saved: Fields) -> None:
        shape = self.running.shape
        self.running, self.frozen = saved.array("running", shape), saved.array("frozen", shape)
        self.rounds = saved.whole("rounds")
        self.log_det, self.frozen_log_det = saved.number("log_det"), saved.number("frozen_log_det")


@dataclass(frozen=True)
class Softmax(ChoiceRule):
    """Each arm in proportion to exp(score/temperature), the score being mean + bonus."""

    temperature: float = field(default=0.1)

    def probabilities(self, scores: ArmScores) -> Array:
        values = (scores.means + scores.bonuses) / self.temperature
        weights = np.nan_to_num(np.exp(values - np.nanmax(values, axis=1, keepdims=True)))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def policies() -> Sequence[LinUCB | ComposedPolicy]:
    """Return a policy of the package with three of these parts, and one that is composed of all four."""
    schedule, rule = Doubling(horizon=500, batches=10), Softmax(0.05)
    return (
        LinUCB(3, schedule, covariance="dense_inverse", exploration=rule, seed=0),
        ComposedPolicy(LeastSquares(np.zeros(3)), schedule, covariance="dense_inverse", exploration=rule, seed=0),
    )


def main() -> None:
    """Play both policies, save and load them in the middle, and print what they missed."""
    truth = np.array([0.5, -0.2, 0.8])
    for policy in policies():
        rng, missed = np.random.default_rng(0), 0.0
        for t in range(500):
            contexts = rng.normal(size=(4, 3))
            decision = policy.select(contexts)
            expected = contexts @ truth
            missed += float(expected.max() - expected[decision.arms[0]])
            policy.observe(decision, expected[decision.arms[0]] + 0.1 * rng.normal())
            if policy.due and policy.versions_left:
                policy.update()
            if t == 250:
                path = Path(tempfile.mkdtemp()) / "policy.rarely"
                policy.save(path)
                policy = load(path)
        print(f"{type(policy).__name__}, Z as {policy.covariance}: {missed:.1f} missed, {policy.version} updates")


if __name__ == "__main__":
    main()
