"""What the packages around the core use besides `rarely.extend`: provisional, so any version may change it."""

from rarely._core import errors, native
from rarely._core.choice.confidence_radius import FUNCTION
from rarely._core.choice.gaussian_argmax import distribution
from rarely._core.choice.rules import ROUNDED, TIE, sample_arms
from rarely._core.covariance.cholesky import GrowingCholesky, announce_rounding, cholesky, ridge_solution
from rarely._core.growable_array import GrowableArray, all_finite
from rarely._core.inputs.arm_blocks import Crossed, Layout
from rarely._core.inputs.contexts import OpenContexts, RoundContexts, read_rounds
from rarely._core.inputs.history import LOGGED, RewardSums, new_values
from rarely._core.inputs.scaling import CLIP
from rarely._core.inputs.worth import Worth, with_worth, worth_from
from rarely._core.model.network import Network, Weights
from rarely._core.model.tangent_kernel import NTK, Directions, KernelKind, read_contexts
from rarely._core.policies.decided_elsewhere import (
    DecidedRounds,
    FeatureTask,
    LiveCopy,
    OfferedArms,
    UpdateFromSums,
    VersionFunction,
)
from rarely._core.policies.learner import RewardTask, saved_fields, split_mix
from rarely._core.policies.monitor import ALARM_KINDS, t_quantile
from rarely._core.policies.policy import facts_table
from rarely._core.policies.replay import (
    alike,
    content_at,
    follow,
    forget,
    put_back,
    rule_of,
    set_life,
    set_rule,
    state_of,
    warn_of_present,
)
from rarely._core.policies.saving import MODELS, POLICIES, WRAPPERS, restore
from rarely._core.policies.slates import slot_rewards
from rarely._core.policies.state import ArmStats, BatchClock, PolicyState
from rarely._core.saving import archive
from rarely._core.saving.fields import plain
from rarely._core.saving.files import cache_folder, lock, path_of, replacing
from rarely._core.saving.files import write as write_file
from rarely._core.training.gradient_descent import ATTEMPTS, SHRINK, STABLE, TrainingPlan, refusal
from rarely._core.training.objective import CONVERGED, MAX_ITERATIONS, MomentumState, Objective
from rarely._core.types import forwarded
