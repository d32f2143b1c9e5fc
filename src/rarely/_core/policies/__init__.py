"""Policies: what they share, and each kind."""

from rarely._core.policies.composed import ComposedPolicy
from rarely._core.policies.learner import FitResult, Learner
from rarely._core.policies.linear import LinTS, LinUCB
from rarely._core.policies.neural import BatchNeuralUCB, NeuralEpsilonGreedy, NeuralLinear, NeuralTS, NeuralUCB
from rarely._core.policies.options import Limits, Preset, PresetName, Training
from rarely._core.policies.policy import Policy
from rarely._core.policies.saving import load
from rarely._core.policies.select import Scores
from rarely._core.policies.state import PolicyEvent, UpdateRecord
from rarely._core.policies.uniform import Uniform
from rarely._core.policies.update import UpdateJob, UpdateResult
