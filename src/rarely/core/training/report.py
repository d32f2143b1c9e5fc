"""How a training went: written by the trainers, kept in records."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The numbers of one training; `UpdateRecord` has the same names."""

    step_size: float | None = None
    """η of the last attempt, in the paper's units; None where there was no training."""
    attempts: int = 0
    initial_loss: float | None = None
    final_loss: float | None = None
    """Both are ℒ/m of the last attempt."""
    steps: int | None = None
    """J, or the steps that were taken where a budget of seconds ended the training early."""
    skip: float | None = None
    """The strength s of the skip path."""
    tuning: str = ""
    """Why these, where the policy chose them itself."""
    loops: str = ""
    """Those that trained, as `Objective.loops` names them."""
    trained: int | None = None
    """Samples that the network was trained on; None where it was all of them."""
    early: str = ""
    """What a budget of seconds left undone."""


NO_TRAINING = TrainingReport()
"""Of a model that is solved for, or where nothing was learned."""

TRAINING_NUMBERS = tuple(field.name for field in fields(TrainingReport))
