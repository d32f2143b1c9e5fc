"""The old name of `rarely.planning`, kept until version 0.3."""

import warnings

from rarely.planning import BrokenPlan, InvalidLog, Log, NothingClose, Plan, SavedPlan, plan, read_plan

__all__ = ["BrokenPlan", "InvalidLog", "Log", "NothingClose", "Plan", "SavedPlan", "plan", "read_plan"]

warnings.warn("rarely.lab is now rarely.planning; the old name goes in version 0.3.", DeprecationWarning, stacklevel=2)
