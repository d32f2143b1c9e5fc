"""One descent with momentum whose weights are noted at several numbers of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rarely.core.model.network import Network, Weights
from rarely.core.training.gradient_descent import ATTEMPTS, HOPELESS, TrainingOutcome, allowed_loss, refusal
from rarely.core.training.objective import MomentumState, Objective
from rarely.core.training.progress import step as step_done
from rarely.core.training.report import TrainingReport

STABLE = 1.0
"""A step with momentum is stable below 4/3 over the curvature."""
SHRINK = 0.5


@dataclass(frozen=True)
class Checkpoints:
    """Where a descent stood at its rungs."""

    reached: list[Weights]
    step: float
    attempts: int
    initial_loss: float
    final_loss: float
    initial: Weights
    loops: str

    def outcome(self, network: Network, steps: int, tuning: str = "") -> TrainingOutcome:
        """As a training of its own, of so many steps, which `tuning` explains."""
        scale = network.output_scale**2
        weights = self.reached[-1] if self.reached else self.initial
        numbers = (self.step / scale, self.initial_loss, self.final_loss)
        report = TrainingReport(
            step_size=self.step / scale,
            attempts=self.attempts,
            initial_loss=self.initial_loss,
            final_loss=self.final_loss,
            steps=steps,
            skip=network.skip,
            tuning=tuning,
            loops=self.loops,
        )
        reason = "" if self.reached else refusal(self.attempts, *numbers)
        return TrainingOutcome(tuple(w.astype(np.float64) for w in weights), reason, report)


def descend_to(objective: Objective, rungs: tuple[int, ...]) -> Checkpoints:
    """Descend with momentum from θ_0, and note the weights at the rungs.

    A descent whose loss at a rung is above the initial one is tried again with a smaller step, and given up in the end.
    """
    curvature = objective.top_curvature(None)[0]
    step, first = STABLE / (curvature + objective.ridge), objective.loss(objective.initial)
    allowed = allowed_loss(objective, first, curvature)
    for attempt in range(1, ATTEMPTS + 1):
        at, reached, loss = MomentumState.at_rest(objective.initial), [], first
        for rung in rungs:
            with np.errstate(over="ignore", invalid="ignore"):
                at, loss = objective.descend_with_momentum(at, step, rung - at.steps, HOPELESS * allowed)
            if not loss <= allowed:
                break
            step_done()
            reached.append(at.weights)
        if len(reached) == len(rungs):
            break
        step *= SHRINK if attempt < ATTEMPTS else 1.0
    reached = reached if len(reached) == len(rungs) else []
    return Checkpoints(reached, step, attempt, first, loss, objective.initial, objective.loops)
