"""What the packages around the core use besides `rarely.extend`: provisional, so any version may change it."""

from rarely._core import errors, native, policies
from rarely._core.choice.confidence_radius import FUNCTION
from rarely._core.choice.gaussian_argmax import distribution
from rarely._core.choice.random_stream import GivenNumbers
from rarely._core.choice.rules import GRID, TIE, sample_arms, summing_to_one
from rarely._core.covariance.cholesky import GrowingCholesky, announce_rounding, cholesky, ridge_solution
from rarely._core.covariance.diagonal import SparseDiagonal
from rarely._core.covariance.factory import UNLIMITED
from rarely._core.growable_array import GrowableArray, all_finite, changed
from rarely._core.inputs.arm_blocks import Crossed, Layout
from rarely._core.inputs.contexts import ContextReader, OpenContexts, RoundContexts, read_rounds
from rarely._core.inputs.history import LOGGED, RewardSums, new_values
from rarely._core.inputs.scaling import CLIP, OFF_CENTER, OFF_SPREAD, TRUSTED_ROUNDS, Moments
from rarely._core.model.network import Network, Weights
from rarely._core.policies.alarms import KINDS as ALARM_KINDS
from rarely._core.policies.alarms import t_quantile
from rarely._core.policies.covariance_change import adapted
from rarely._core.policies.learner import split_mix, training_rows
from rarely._core.policies.linear import LinearLearner
from rarely._core.policies.network_learner import NetworkLearner
from rarely._core.policies.policy import facts_table
from rarely._core.policies.replay import content_at, follow, put_back, rule_of, set_life, set_rule, state_of
from rarely._core.policies.saving import POLICIES, WRAPPERS, restore
from rarely._core.policies.select import decide, rounds_at_once, score
from rarely._core.policies.state import ArmStats, BatchClock, PolicyState, Version
from rarely._core.saving import archive
from rarely._core.saving.archive import plain
from rarely._core.saving.files import cache_folder, path_of, replacing
from rarely._core.saving.files import write as write_file
from rarely._core.training.gradient_descent import ATTEMPTS, SHRINK, STABLE, TrainingPlan, refusal
from rarely._core.training.objective import CONVERGED, MAX_ITERATIONS, MomentumState, Objective

__all__ = [
    "ALARM_KINDS",
    "ATTEMPTS",
    "CLIP",
    "CONVERGED",
    "FUNCTION",
    "GRID",
    "LOGGED",
    "MAX_ITERATIONS",
    "OFF_CENTER",
    "OFF_SPREAD",
    "POLICIES",
    "SHRINK",
    "STABLE",
    "TIE",
    "TRUSTED_ROUNDS",
    "UNLIMITED",
    "WRAPPERS",
    "ArmStats",
    "BatchClock",
    "ContextReader",
    "Crossed",
    "GivenNumbers",
    "GrowableArray",
    "GrowingCholesky",
    "Layout",
    "LinearLearner",
    "Moments",
    "MomentumState",
    "Network",
    "NetworkLearner",
    "Objective",
    "OpenContexts",
    "PolicyState",
    "RewardSums",
    "RoundContexts",
    "SparseDiagonal",
    "TrainingPlan",
    "Version",
    "Weights",
    "adapted",
    "all_finite",
    "announce_rounding",
    "archive",
    "cache_folder",
    "changed",
    "cholesky",
    "content_at",
    "decide",
    "distribution",
    "errors",
    "facts_table",
    "follow",
    "native",
    "new_values",
    "path_of",
    "plain",
    "policies",
    "put_back",
    "read_rounds",
    "refusal",
    "replacing",
    "restore",
    "ridge_solution",
    "rounds_at_once",
    "rule_of",
    "sample_arms",
    "score",
    "set_life",
    "set_rule",
    "split_mix",
    "state_of",
    "summing_to_one",
    "t_quantile",
    "training_rows",
    "write_file",
]  # fmt: skip
