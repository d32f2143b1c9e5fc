"""KernelUCB with the neural tangent kernel: what BatchNeuralUCB becomes when its network is infinitely wide.

    k(x, x')   H̃^(L), the limit of ⟨g, g'⟩/m       K  (n, n)  among the rounds whose rewards are in
    α          (λI + K)⁻¹ r̃                         mean  Σ_i k(x, x_i) α_i
    bonus      β·√((k(x, x) − kᵀ(λI + K_t)⁻¹k)/λ)   over all rounds before the version

A network that wide is linear in its weights, so its J gradient steps are α ← α − η((λI + K)α − r̃) from α = 0.
Nothing is random, and nothing is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from rarely.extend import (
    UNWATCHED,
    Array,
    Arrays,
    Beta,
    ChoiceRule,
    ContextMap,
    ContextScale,
    Covariance,
    DualFactory,
    EveryRound,
    Factors,
    Fields,
    FitResult,
    Forgetting,
    History,
    Limits,
    Mixture,
    Policy,
    RewardScale,
    ScaledLearner,
    Schedule,
    Seed,
    Ties,
    TrainingReport,
    TrainingSet,
    UpperConfidence,
    VersionStats,
    Watch,
    Widths,
    WithinBatch,
    limits_from,
)
from rarely.extend.checks import check_choice, check_flag, check_whole
from rarely.extend.provisional import CONVERGED, MAX_ITERATIONS, NTK, STABLE, KernelKind, forwarded, ridge_solution


def inner_products(kernel: NTK, left: Factors, right: Factors) -> Array:
    """Return the kernel of factors that are contexts, in the place of their inner products.

    k(x, x) is gain·‖x‖²: so √gain for a signal gives a factor its norm, and more or less of it is a weight.
    """
    product = kernel.cross(left.inputs[0], right.inputs[0])
    product *= left.signals[0] / kernel.gain
    product *= right.signals[0].T
    return product


@dataclass(frozen=True, eq=False)
class KernelLearner(ScaledLearner):
    """A kernel estimate: points and their coefficients."""

    kernel: NTK
    ridge: float
    steps: int | None
    standardise_rewards: bool
    scale: ContextScale
    points: Array  # (n, ·): scaled contexts of the rounds learned from
    coefficients: Array  # α, (n,)
    rewards: RewardScale = field(default_factory=RewardScale)
    used_step: float | None = None

    @property
    def widths(self) -> Widths:
        return ((1, self.scale.map.scaled_dim),)

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        x = self.scale(contexts)
        values = self.kernel.cross(x, self.points) @ self.coefficients if len(self.points) else np.zeros(len(x))
        factors = Factors((x,), (np.full((len(x), 1), np.sqrt(self.kernel.gain)),))
        return self.rewards.center + self.rewards.spread * values, factors

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        ready = self.with_fitted_scale()
        samples = TrainingSet.of(history, ready.scale, rewards=self.standardise_rewards)
        if samples.overflow:
            return FitResult(self, samples.overflow)
        x, y, weights, scale = samples.contexts, samples.rewards, samples.weights, samples.scale
        rescaled = self.scale.changed_columns(ready.scale)
        if not len(y):
            return FitResult(ready, basis=ready if rescaled else None, rescaled=rescaled)
        matrix = self.kernel.matrix(x)
        root = np.ones(len(y)) if weights is None else np.sqrt(weights)
        matrix *= root
        matrix *= root[:, None]
        matrix.flat[:: len(y) + 1] += self.ridge
        with np.errstate(over="ignore", invalid="ignore"):
            solution, step, taken = self._solve(matrix, root * y, watch)
        reason = "" if np.isfinite(solution).all() else "the estimate overflows: the rewards are too large"
        learner = replace(ready, points=x, coefficients=root * solution, rewards=scale, used_step=step)
        basis = learner if rescaled else None
        return FitResult(learner, reason, basis, rescaled, TrainingReport(step_size=step, steps=taken))

    def _solve(self, matrix: Array, targets: Array, watch: Watch) -> tuple[Array, float | None, int | None]:
        """Return (λI + K)⁻¹ r̃ or, with steps, where they lead; their size, and how many were taken."""
        if self.steps is None:
            return ridge_solution(matrix, targets), None, None
        step, taken = STABLE / _top_eigenvalue(matrix), 0
        solution = np.zeros(len(targets))
        for stretch in watch.stretches(self.steps):
            for _ in range(stretch):
                solution -= step * (matrix @ solution - targets)
            taken += stretch
            if taken < self.steps and watch.over():
                watch.leave_undone(f"the training ended after {taken} of {self.steps} steps")
                break
        return solution, step, taken

    def version_stats(self, round: int, covariance: Covariance) -> VersionStats:
        facts = (round, covariance.rounds, covariance.frozen_log_det, self.ridge, self.kernel.depth)
        return VersionStats(*facts, steps=self.steps or 0, step=self.used_step, exact=self.steps is None)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self.scale.state()
        numbers |= {"reward_center": self.rewards.center, "reward_spread": self.rewards.spread, "step": self.used_step}
        return numbers, arrays | {"points": self.points, "coefficients": self.coefficients}

    def restored(self, saved: Fields) -> KernelLearner:
        with saved:
            scale, rewards = self.scale.restored(saved), RewardScale.restored(saved)
            points = saved.array("points", (None, scale.map.scaled_dim))
            coefficients = saved.array("coefficients", (len(points),))
            step = None if saved.is_null("step") else saved.number("step")
            learned: dict[str, Any] = {"points": points, "coefficients": coefficients, "used_step": step}
            return replace(self, scale=scale, rewards=rewards, **learned)


def _top_eigenvalue(matrix: Array) -> float:
    """Return it by power iteration, to the accuracy of a network's training."""
    vector, value = 1 + 0.1 * np.cos(np.arange(len(matrix))), 0.0
    for _ in range(MAX_ITERATIONS):
        image = matrix @ vector
        previous, value = value, float(image @ image / (vector @ image))
        vector = image / np.linalg.norm(image)
        if abs(value - previous) <= CONVERGED * value:
            break
    return value


class KernelUCB(Policy):
    """KernelUCB (Valko et al., 2013) with the neural tangent kernel, under any schedule.

    Memory grows with the square of the rounds, and an update with their cube.

    Parameters
    ----------
    dim, schedule
        d, numbers in a context; when updates are due. Without a schedule they are due after every round.
    depth, kind
        L of the networks whose limit it is; "network" is their own kernel H̃^(L), "definition" is H.
    ridge, beta
        λ of the regression and of Z_1 = λI; β in the bonus.
    steps
        J gradient steps, as a network of infinite width would take them. None is the limit that they approach.
    context_scale
        An `Affine`; None fits one to the contexts, as `BatchNeuralUCB` does.
    standardise_rewards, within_batch
        Whether rewards are learned less their mean, over their spread; "frozen" or "running", as in `BatchNeuralUCB`.
    exploration, forgetting, ties, seed
        As in `BatchNeuralUCB`.
    limits
        Memory alone, as in `Limits`.

    Examples
    --------
    >>> from rarely import FixedGrid, KernelUCB
    >>> policy = KernelUCB(dim=2, schedule=FixedGrid(horizon=20, batches=2))
    >>> decision = policy.select(np.random.default_rng(0).random((10, 3, 2)))
    >>> policy.observe(decision, np.linspace(0, 1, 10))
    >>> policy.due, policy.update().accepted, policy.version
    (True, True, 1)
    """

    def __init__(
        self,
        dim: int,
        schedule: Schedule | None = None,
        *,
        depth: int = 2,
        kind: KernelKind = "network",
        ridge: float = 1.0,
        beta: Beta = 0.1,
        steps: int | None = None,
        context_scale: ContextMap | None = None,
        standardise_rewards: bool = True,
        exploration: Mixture | ChoiceRule | None = None,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch = "frozen",
        ties: Ties = "lowest",
        seed: Seed = None,
        limits: Limits | None = None,
    ) -> None:
        check_choice("ties", ties, Ties)
        check_flag("standardise_rewards", standardise_rewards)
        check_whole("steps", steps, 1, besides=(None,))
        scale = ContextScale.start(dim, context_scale, constant=True, fitted=True)
        self._kernel = NTK(depth, kind)
        none = np.empty((0, scale.map.scaled_dim))
        settings = {
            "dim": scale.map.dim, "schedule": EveryRound() if schedule is None else schedule, "depth": depth,
            "kind": kind, "ridge": ridge, "beta": beta, "steps": steps, "context_scale": context_scale,
            "standardise_rewards": standardise_rewards, "exploration": exploration, "forgetting": forgetting,
            "within_batch": within_batch, "ties": ties,
        }  # fmt: skip
        super().__init__(
            KernelLearner(self._kernel, ridge, steps, standardise_rewards, scale, none, np.empty(0)),
            settings,
            UpperConfidence(draws=ties == "random"),
            limits=limits_from(limits, self, ("history", "operations", "arms")),
            seed=seed,
            covariance="dual",
            factory=partial(DualFactory, inner=partial(inner_products, self._kernel)),
        )

    context_scale = forwarded("_learner.scale.map", "The map from contexts to what the kernel sees.")
