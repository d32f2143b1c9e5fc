"""Contextual bandits that decide often and retrain rarely."""

from rarely.core.assessed import Scores
from rarely.core.blocks import ArmBlocks
from rarely.core.build_info import BuildInfo, build_info
from rarely.core.choice import Mixture
from rarely.core.covariance import ErrorBound, Price, Sketch, prices
from rarely.core.errors import (
    BudgetSpent,
    ConflictingReward,
    ContextsWarning,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    InvalidSchedule,
    JitterWarning,
    NotCompiled,
    NothingToLearn,
    NothingToLearnWarning,
    NotPositiveDefinite,
    PolicyBusy,
    RarelyError,
    RosterFull,
    RoundingWarning,
    ScheduleWarning,
    SnapshotError,
    SnapshotWarning,
    TooExpensive,
    TrainingRejected,
    UnknownArm,
    UnknownRound,
    UpdateDue,
    WrongDecision,
)
from rarely.core.forgetting import Discount, Window
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
from rarely.core.policy import Policy
from rarely.core.radius import NoiseRadius, TheoremRadius
from rarely.core.records import UpdateRecord
from rarely.core.roster import Offer, Roster
from rarely.core.scaling import Affine
from rarely.core.schedules import (
    AtRounds,
    Budget,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    Paced,
    Schedule,
)
from rarely.core.snapshot import load
from rarely.core.tuning import Validation
from rarely.core.types import Decision
from rarely.core.version import __version__ as __version__
from rarely.theory.kernel_ucb import KernelUCB

__all__ = [
    "Affine",
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
    "ErrorBound",
    "EveryRound",
    "FixedGrid",
    "GeometricGrid",
    "InvalidContexts",
    "InvalidInput",
    "InvalidReward",
    "InvalidSchedule",
    "JitterWarning",
    "KernelUCB",
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
    "Paced",
    "Policy",
    "PolicyBusy",
    "Price",
    "RarelyError",
    "Roster",
    "RosterFull",
    "RoundingWarning",
    "Schedule",
    "ScheduleWarning",
    "Scores",
    "Sketch",
    "SnapshotError",
    "SnapshotWarning",
    "TheoremRadius",
    "TooExpensive",
    "TrainingRejected",
    "Uniform",
    "UnknownArm",
    "UnknownRound",
    "UpdateDue",
    "UpdateRecord",
    "Validation",
    "Window",
    "WrongDecision",
    "build_info",
    "load",
    "prices",
]
