"""Contextual bandits that decide often and retrain rarely.

Errors and warnings are in `rarely.errors`; `rarely.study`, `rarely.logs` and other packages are imported when they are
first named, and with them `rarely.advise`, `rarely.FramePolicy` and other policies that not everybody needs.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from rarely import errors as errors
from rarely._core.choice.confidence_radius import NoiseRadius, TheoremRadius
from rarely._core.choice.rules import Mixture
from rarely._core.covariance import Price, prices
from rarely._core.inputs.arm_blocks import ArmBlocks
from rarely._core.inputs.doses import Interval
from rarely._core.inputs.forgetting import Discount, Window
from rarely._core.inputs.roster import Offer, Roster
from rarely._core.inputs.scaling import Affine
from rarely._core.inputs.sparse_rows import SparseRows
from rarely._core.inputs.worth import Worth
from rarely._core.policies import (
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
from rarely._core.policies.ceilings import Ceiling, Shares
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
from rarely.pages.plots import plot_policy

__all__ = [
    "Affine", "ArmBlocks", "AtRounds", "BatchNeuralUCB", "Budget", "BuildInfo", "Ceiling",
    "ColumnEffect", "ComposedPolicy", "Decision", "DeterminantTrigger", "Discount", "EnsemblePolicy", "EveryRound",
    "FixedGrid", "FrameEncoder", "FramePolicy", "GeometricGrid", "Interval", "KernelUCB", "Limits", "LinTS", "LinUCB",
    "LogLogGrid", "Mixture", "NeuralEpsilonGreedy", "NeuralLinear", "NeuralTS", "NeuralUCB", "NoiseRadius", "Offer",
    "OnDemand", "Paced", "Policy", "PolicyEvent", "Preset", "Price", "Roster", "Schedule", "Scores", "Shares",
    "SparseRows", "TheoremRadius", "Training", "Uniform", "UpdateJob", "UpdateRecord", "UpdateResult", "Window",
    "Worth", "build_info", "load", "prices",
]  # fmt: skip
_PACKAGES = (
    "cluster", "ensembles", "extend", "frames", "logs", "offpolicy", "planning", "service", "study", "testing",
    "theory", "torch", "worlds",
)  # fmt: skip
_LATER = {
    "BuildInfo": "_core.native.build_info", "build_info": "_core.native.build_info",
    "ColumnEffect": "frames.policy", "EnsemblePolicy": "ensembles", "FrameEncoder": "frames.encoder",
    "FramePolicy": "frames.policy", "KernelUCB": "theory.kernel_ucb",
}  # fmt: skip
"""Names of this one whose modules are imported when they are first named."""
Policy._plotter = plot_policy

if TYPE_CHECKING:
    from rarely._core.native.build_info import BuildInfo, build_info
    from rarely.ensembles import EnsemblePolicy
    from rarely.errors import *
    from rarely.frames.encoder import FrameEncoder
    from rarely.frames.policy import ColumnEffect, FramePolicy
    from rarely.theory.kernel_ucb import KernelUCB


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        globals()[name] = value = getattr(_import_module(f"rarely.{_LATER[name]}"), name)
        return value
    if name in errors.__all__:  # of which a program names one or two, and a list of names should show none
        return getattr(errors, name)
    if name in _PACKAGES:
        return _import_module(f"rarely.{name}")
    if name == "advise":
        return _import_module("rarely.planning").advise
    raise AttributeError(f"module 'rarely' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES, "advise", "errors"])
