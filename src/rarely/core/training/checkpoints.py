"""One descent with momentum whose weights are noted at several numbers of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rarely.core.model.network import Network, Weights
from rarely.core.training import deadline
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
    cut: MomentumState | None = None
    """The point of the lowest loss after the last rung reached, where a budget of seconds ended the descent there."""

    def outcome(self, network: Network, steps: int, tuning: str = "") -> TrainingOutcome:
        """As a training of its own, of so many steps or those before it was cut; `tuning` explains the choice."""
        scale = network.output_scale**2
        weights = self.reached[-1] if self.reached else self.initial
        if self.cut is not None:
            weights = self.cut.weights
        numbers = (self.step / scale, self.initial_loss, self.final_loss)
        report = TrainingReport(
            step_size=self.step / scale,
            attempts=self.attempts,
            initial_loss=self.initial_loss,
            final_loss=self.final_loss,
            steps=steps if self.cut is None else self.cut.steps,
            skip=network.skip,
            tuning=tuning,
            loops=self.loops,
        )
        reason = "" if self.reached or self.cut is not None else refusal(self.attempts, *numbers)
        return TrainingOutcome(tuple(w.astype(np.float64) for w in weights), reason, report)


def descend_to(objective: Objective, rungs: tuple[int, ...], share: float = 1.0) -> Checkpoints:
    """Descend with momentum from θ_0, and note the weights at the rungs.

    A descent whose loss at a rung is above the initial one is tried again with a smaller step, and given up in the end.
    Where a budget of seconds is used up, or `share` of it, the descent ends before its last rung.
    """
    curvature = objective.top_curvature(None)[0]
    step, first = STABLE / (curvature + objective.ridge), objective.loss(objective.initial)
    allowed = allowed_loss(objective, first, curvature)
    for attempt in range(1, ATTEMPTS + 1):
        at, reached, loss = MomentumState.at_rest(objective.initial), [], first
        cut: MomentumState | None = None
        for rung in rungs:
            with np.errstate(over="ignore", invalid="ignore"):
                at, loss = _advanced(objective, at, step, rung, HOPELESS * allowed, share)
            if not loss <= allowed:
                break
            if at.steps == rung:
                step_done()
                reached.append(at.weights)
            if at.steps < rungs[-1] and deadline.over(share):
                cut = at
                ended = "the training" if share == 1 else "a trial of candidates"
                deadline.leave_undone(f"{ended} ended after {at.steps} of {rungs[-1]} steps")
                break
        if len(reached) == len(rungs) or cut is not None:
            break
        if deadline.over(share):
            deadline.leave_undone("smaller steps were not tried")
            break
        step *= SHRINK if attempt < ATTEMPTS else 1.0
    reached = reached if len(reached) == len(rungs) or cut is not None else []
    return Checkpoints(reached, step, attempt, first, loss, objective.initial, objective.loops, cut)


def _advanced(
    objective: Objective, start: MomentumState, step: float, rung: int, hopeless: float, share: float
) -> tuple[MomentumState, float]:
    """The descent at a rung or, where the time is over before, at the point of the lowest loss since the last one."""
    at, best = start, None
    for count in deadline.stretches(rung - start.steps):
        at, loss = objective.descend_with_momentum(at, step, count, hopeless)
        if not loss <= hopeless:
            return at, loss
        best = (at, loss) if best is None or loss <= best[1] else best
        if at.steps < rung and deadline.over(share):
            return best
    return at, loss
