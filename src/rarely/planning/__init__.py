"""How many updates, and how many patients of a trial: asked before the first round, answered by simulation."""

from rarely.planning.plan import BrokenPlan, NothingClose, Plan, SavedPlan, read_plan
from rarely.planning.planner import plan
from rarely.planning.trial import TrialPlan, TrialPoint, plan_trial

__all__ = [
    "BrokenPlan", "NothingClose", "Plan", "SavedPlan", "TrialPlan", "TrialPoint", "plan", "plan_trial", "read_plan",
]  # fmt: skip
