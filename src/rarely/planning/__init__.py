"""How many updates, and how many patients of a trial: asked before the first round, answered by simulation."""

from rarely.planning.plan import NothingClose, Plan
from rarely.planning.planner import plan
from rarely.planning.trial import TrialPlan, TrialPoint, plan_trial

__all__ = ["NothingClose", "Plan", "TrialPlan", "TrialPoint", "plan", "plan_trial"]
