"""Policies, all of one flow."""

from rarely.core.policies.baselines import Uniform
from rarely.core.policies.linear import LinUCB
from rarely.core.policies.neural import BatchNeuralUCB, NeuralUCB

__all__ = ["BatchNeuralUCB", "LinUCB", "NeuralUCB", "Uniform"]
