"""The parts of a policy that a researcher replaces, and what they are written with.

    Learner       a model of rewards        Covariance   a form of Z          Schedule   when an update is due
    ChoiceRule    from scores to arms       ContextMap   maps of contexts     Policy     all of them together

A subclass is registered by its definition: it can then be named, saved, loaded and used in a `Study`, and
`rarely.testing` checks its promises. `rarely.extend.checks` reads and refuses arguments. `rarely.extend.provisional`
has what the packages around the core and the laboratory use besides, and may change with any version.
"""

from rarely._core.choice.confidence_radius import Beta, VersionStats
from rarely._core.choice.random_stream import Seed, seeded
from rarely._core.choice.rules import (
    ArmScores,
    ChoiceRule,
    FixedShares,
    MixedRule,
    Mixture,
    Thompson,
    UniformChoice,
    UpperConfidence,
    rule_from,
)
from rarely._core.covariance import (
    Candidates,
    Covariance,
    CovarianceFactory,
    Dual,
    DualFactory,
    Limit,
    Proposal,
    RowCost,
    Widths,
    in_bytes,
    prices,
    prior_variances,
)
from rarely._core.inputs.arm_blocks import ArmBlocks
from rarely._core.inputs.doses import Interval
from rarely._core.inputs.forgetting import Discount, Forgetting
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import Affine, ContextMap, ContextScale, RewardScale, Standardising
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.model.features import FactorRows, Factors, gram
from rarely._core.policies import FitResult, Learner, Limits, Scores, Uniform
from rarely._core.policies.learner import ScaledLearner, ScoreOverride, TrainingSet
from rarely._core.policies.options import DEFAULT_HISTORY, PresetName, limits_from
from rarely._core.policies.policy import Policy, Ties
from rarely._core.policies.saving import decoded, encoded
from rarely._core.policies.state import WithinBatch
from rarely._core.policies.uniform import NoCovarianceFactory
from rarely._core.saving.fields import Fields
from rarely._core.schedules import DeterminantTrigger, EveryRound, Schedule, schedule_from
from rarely._core.training.gradient_descent import TrainingReport
from rarely._core.training.watch import UNWATCHED, Progress, Watch, read_progress
from rarely._core.types import Array, Arrays, BoolArray, Decision, Described, IntArray
from rarely._core.version import __version__

__all__ = [
    "DEFAULT_HISTORY", "UNWATCHED", "Affine", "ArmBlocks", "ArmScores", "Array", "Arrays", "Beta", "BoolArray",
    "Candidates", "ChoiceRule", "ContextMap", "ContextScale", "Covariance", "CovarianceFactory", "Decision",
    "Described", "DeterminantTrigger", "Discount", "Dual", "DualFactory", "EveryRound", "FactorRows", "Factors",
    "Fields", "FitResult", "FixedShares", "Forgetting", "History", "IntArray", "Interval", "Learner",
    "Limit", "Limits", "MixedRule", "Mixture", "NoCovarianceFactory", "Policy", "PresetName",
    "Progress", "Proposal", "RewardScale", "RowCost", "ScaledLearner", "Schedule", "ScoreOverride", "Scores",
    "Seed", "SparseRows", "Standardising", "Thompson", "Ties", "TrainingReport", "TrainingSet", "Uniform",
    "UniformChoice", "UpperConfidence", "VersionStats", "Watch", "Widths", "WithinBatch", "__version__", "decoded",
    "encoded", "gram", "in_bytes", "limits_from", "prices", "prior_variances", "read_progress", "rule_from",
    "schedule_from", "seeded",
]  # fmt: skip
