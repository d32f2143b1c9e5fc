"""What the default adds to the paper's algorithm, to be taken apart: provisional, any version may change it."""

from rarely._core.policies.additions import (
    LinearPart,
    ReturningArms,
    SelfTunedLearner,
    Tuning,
    Validation,
)
from rarely._core.policies.options import TUNED_ROWS

__all__ = ["TUNED_ROWS", "LinearPart", "ReturningArms", "SelfTunedLearner", "Tuning", "Validation"]
