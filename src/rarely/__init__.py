"""Contextual bandits that decide often and retrain rarely."""

from rarely.core.choice.confidence_radius import NoiseRadius, TheoremRadius
from rarely.core.choice.rules import Mixture
from rarely.core.covariance import ErrorBound, Price, Sketch, prices
from rarely.core.errors import (
    ApproximationWarning,
    BudgetSpent,
    ConflictingReward,
    ContextsWarning,
    DroppedRound,
    ForgettingWarning,
    HistoryDropped,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    InvalidSchedule,
    JitterWarning,
    NotCompiled,
    NothingToLearn,
    NothingToLearnWarning,
    NotPositiveDefinite,
    OutlierWarning,
    PolicyBusy,
    RarelyError,
    RejectedWarning,
    RosterFull,
    RoundingWarning,
    ScheduleWarning,
    SnapshotError,
    SnapshotWarning,
    StaleUpdate,
    TooExpensive,
    TrainingRejected,
    UnknownArm,
    UnknownRound,
    UpdateDue,
    WrongDecision,
    WrongUpdate,
)
from rarely.core.inputs.arm_blocks import ArmBlocks
from rarely.core.inputs.forgetting import Discount, Window
from rarely.core.inputs.roster import Offer, Roster
from rarely.core.inputs.scaling import Affine
from rarely.core.native.build_info import BuildInfo, build_info
from rarely.core.policies import (
    BatchNeuralUCB,
    LinTS,
    LinUCB,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
    NeuralUCB,
    Uniform,
)
from rarely.core.policies.base import Policy
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.life_cost import LifeCost
from rarely.core.policies.limits import Limits
from rarely.core.policies.presets import Preset, Training
from rarely.core.policies.scored_arms import Scores
from rarely.core.policies.snapshot import load
from rarely.core.policies.update_job import UpdateJob, UpdateResult
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.schedules import (
    AtRounds,
    Budget,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    OnDemand,
    Paced,
    Schedule,
)
from rarely.core.training.tuning import Validation
from rarely.core.types import Decision
from rarely.core.version import __version__ as __version__
from rarely.theory.kernel_ucb import KernelUCB

__all__ = [
    "Affine",
    "ApproximationWarning",
    "ArmBlocks",
    "AtRounds",
    "BatchNeuralUCB",
    "Budget",
    "BudgetSpent",
    "BuildInfo",
    "ConflictingReward",
    "ContextsWarning",
    "Decision",
    "DeterminantTrigger",
    "Discount",
    "DroppedRound",
    "ErrorBound",
    "EveryRound",
    "FixedGrid",
    "ForgettingWarning",
    "GeometricGrid",
    "HistoryDropped",
    "InvalidContexts",
    "InvalidInput",
    "InvalidReward",
    "InvalidSchedule",
    "JitterWarning",
    "KernelUCB",
    "LifeCost",
    "Limits",
    "LinTS",
    "LinUCB",
    "Mixture",
    "NeuralEpsilonGreedy",
    "NeuralLinear",
    "NeuralTS",
    "NeuralUCB",
    "NoiseRadius",
    "NotCompiled",
    "NotPositiveDefinite",
    "NothingToLearn",
    "NothingToLearnWarning",
    "Offer",
    "OnDemand",
    "OutlierWarning",
    "Paced",
    "Policy",
    "PolicyBusy",
    "PolicyEvent",
    "Preset",
    "Price",
    "RarelyError",
    "RejectedWarning",
    "Roster",
    "RosterFull",
    "RoundingWarning",
    "Schedule",
    "ScheduleWarning",
    "Scores",
    "Sketch",
    "SnapshotError",
    "SnapshotWarning",
    "StaleUpdate",
    "TheoremRadius",
    "TooExpensive",
    "Training",
    "TrainingRejected",
    "Uniform",
    "UnknownArm",
    "UnknownRound",
    "UpdateDue",
    "UpdateJob",
    "UpdateRecord",
    "UpdateResult",
    "Validation",
    "Window",
    "WrongDecision",
    "WrongUpdate",
    "build_info",
    "load",
    "prices",
]
