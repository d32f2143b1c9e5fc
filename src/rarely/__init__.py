"""Contextual bandits that decide often and retrain rarely."""

from rarely._core import errors as _errors
from rarely._core.choice.confidence_radius import NoiseRadius, TheoremRadius
from rarely._core.choice.rules import Mixture
from rarely._core.covariance import Price, prices
from rarely._core.errors import *
from rarely._core.inputs.arm_blocks import ArmBlocks
from rarely._core.inputs.forgetting import Discount, Window
from rarely._core.inputs.roster import Offer, Roster
from rarely._core.inputs.scaling import Affine
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.native.build_info import BuildInfo, build_info
from rarely._core.policies import (
    Additions,
    BatchNeuralUCB,
    ComposedPolicy,
    Limits,
    LinTS,
    LinUCB,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
    NeuralUCB,
    Policy,
    PolicyEvent,
    Preset,
    Scores,
    Training,
    Uniform,
    UpdateJob,
    UpdateRecord,
    UpdateResult,
    load,
)
from rarely._core.schedules import (
    AtRounds,
    Budget,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    LogLogGrid,
    OnDemand,
    Paced,
    Schedule,
)
from rarely._core.types import Decision
from rarely._core.version import __version__ as __version__
from rarely.ensembles import EnsemblePolicy
from rarely.frames.encoder import FrameEncoder
from rarely.frames.policy import ColumnEffect, FramePolicy
from rarely.pages.plots import plot_policy
from rarely.theory.kernel_ucb import KernelUCB

__all__ = [
    "Additions", "Affine", "ArmBlocks", "AtRounds", "BatchNeuralUCB", "Budget", "BuildInfo", "ColumnEffect",
    "ComposedPolicy", "Decision", "DeterminantTrigger", "Discount", "EnsemblePolicy", "EveryRound", "FixedGrid",
    "FrameEncoder", "FramePolicy", "GeometricGrid", "KernelUCB", "Limits", "LinTS", "LinUCB", "LogLogGrid", "Mixture",
    "NeuralEpsilonGreedy", "NeuralLinear", "NeuralTS", "NeuralUCB", "NoiseRadius", "Offer", "OnDemand", "Paced",
    "Policy", "PolicyEvent", "Preset", "Price", "Roster", "Schedule", "Scores", "SparseRows", "TheoremRadius",
    "Training", "Uniform", "UpdateJob", "UpdateRecord", "UpdateResult", "Window", "build_info", "load", "prices",
]  # fmt: skip
__all__ += _errors.__all__

# A traceback names what users import and catch. Other classes keep their module, by which their sources are found.
for _name in _errors.__all__:
    globals()[_name].__module__ = __name__
Policy._plotter = plot_policy
