"""How many updates, when, and what fewer of them cost: asked before the first round, answered by simulation."""

from rarely.planning.plan import BrokenPlan, NothingClose, Plan, SavedPlan, read_plan
from rarely.planning.planner import plan

__all__ = ["BrokenPlan", "NothingClose", "Plan", "SavedPlan", "plan", "read_plan"]
