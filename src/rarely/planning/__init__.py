"""How many updates, when, and what fewer of them cost: asked before the first round, answered by simulation."""

from rarely.logs.errors import InvalidLog
from rarely.logs.planning_log import Log
from rarely.planning.plan import NothingClose, Plan
from rarely.planning.planner import plan
from rarely.planning.saved_plan import BrokenPlan, SavedPlan, read_plan

__all__ = ["BrokenPlan", "InvalidLog", "Log", "NothingClose", "Plan", "SavedPlan", "plan", "read_plan"]
