"""The laboratory: experiments as data, run once, kept as records, drawn and judged from the records alone.

`plan` asks before the first round what `reproduce` asks of the paper's problems: what do fewer updates cost?
"""

from rarely.lab.advice import NothingClose, Plan
from rarely.lab.logged import InvalidLog, Log
from rarely.lab.planner import plan
from rarely.lab.saved_plan import BrokenPlan, SavedPlan, read_plan

__all__ = ["BrokenPlan", "InvalidLog", "Log", "NothingClose", "Plan", "SavedPlan", "plan", "read_plan"]
