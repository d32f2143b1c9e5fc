"""Policies, all of one flow."""

from rarely.core.policies.baselines import Uniform
from rarely.core.policies.greedy import NeuralEpsilonGreedy
from rarely.core.policies.linear import LinUCB
from rarely.core.policies.neural import BatchNeuralUCB, NeuralUCB
from rarely.core.policies.neural_linear import NeuralLinear
from rarely.core.policies.thompson import LinTS, NeuralTS

__all__ = [
    "BatchNeuralUCB",
    "LinTS",
    "LinUCB",
    "NeuralEpsilonGreedy",
    "NeuralLinear",
    "NeuralTS",
    "NeuralUCB",
    "Uniform",
]
