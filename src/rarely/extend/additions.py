"""What a policy that tunes itself is made of, to be taken apart: provisional, any version may change it."""

from rarely._core.policies.evidence import EvidenceLearner
from rarely._core.policies.returning_arms import ReturningArms
from rarely._core.policies.tuned_network import TunedNetwork

__all__ = ["EvidenceLearner", "ReturningArms", "TunedNetwork"]
