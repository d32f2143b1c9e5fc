"""The paper's theory as functions: its kernel, its dimension, its bounds, and the policy in its limit."""

from rarely.theory.bounds import (
    AdaptivePlan,
    adaptive_plan,
    adaptive_regret,
    adaptive_regret_order,
    fixed_batches,
    fixed_regret,
    fixed_regret_lower_order,
    fixed_regret_order,
    log_det_bound,
    radius,
    step_size,
    steps,
    switches_lower_order,
)
from rarely.theory.dimension import Dimension, effective_dimension, reward_norm
from rarely.theory.kernel_ucb import KernelUCB
from rarely.theory.ntk import NTK, network_ntk_matrix, ntk_cross, ntk_matrix

__all__ = [
    "NTK",
    "AdaptivePlan",
    "Dimension",
    "KernelUCB",
    "adaptive_plan",
    "adaptive_regret",
    "adaptive_regret_order",
    "effective_dimension",
    "fixed_batches",
    "fixed_regret",
    "fixed_regret_lower_order",
    "fixed_regret_order",
    "log_det_bound",
    "network_ntk_matrix",
    "ntk_cross",
    "ntk_matrix",
    "radius",
    "reward_norm",
    "step_size",
    "steps",
    "switches_lower_order",
]
