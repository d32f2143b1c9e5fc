"""Checks for policies, schedules, rules of choice, learners and forms of Z that are written elsewhere.

Each function checks the promises that the package makes for its own, and raises an `AssertionError` that names the
broken promise and the input. They need no test framework.
"""

from rarely.testing.covariances import COVARIANCE_PROMISES, check_covariance
from rarely.testing.learners import LEARNER_PROMISES, check_learner
from rarely.testing.policies import POLICY_PROMISES, check_policy
from rarely.testing.rules import RULE_PROMISES, check_rule
from rarely.testing.schedules import SCHEDULE_PROMISES, check_schedule

__all__ = [
    "COVARIANCE_PROMISES", "LEARNER_PROMISES", "POLICY_PROMISES", "RULE_PROMISES", "SCHEDULE_PROMISES",
    "check_covariance", "check_learner", "check_policy", "check_rule", "check_schedule",
]  # fmt: skip
