"""Which policy, how many updates, and how many patients of a trial: asked before the first round."""

from rarely.planning.advice import Advice, advise
from rarely.planning.planner import NothingClose, Plan, plan
from rarely.planning.trial import TrialPlan, TrialPoint, plan_trial

__all__ = ["Advice", "NothingClose", "Plan", "TrialPlan", "TrialPoint", "advise", "plan", "plan_trial"]
