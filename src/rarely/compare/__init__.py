"""Which policy does best with few updates: `rarely compare`, its problems, its policies and its leaderboard."""

from rarely.compare.cells import Comparison, compare
from rarely.compare.contestant import Contestant, Task
from rarely.compare.policies import POLICIES, UnavailablePolicy
from rarely.compare.problems import PROBLEM_SETS, Problem, find_problem
from rarely.compare.records import Record, merge, read_records
from rarely.compare.scores import Leaderboard, Row, leaderboard
from rarely.runs.record import MixedRecords

__all__ = [
    "POLICIES", "PROBLEM_SETS", "Comparison", "Contestant", "Leaderboard", "MixedRecords", "Problem", "Record", "Row",
    "Task", "UnavailablePolicy", "compare", "find_problem", "leaderboard", "merge", "read_records",
]  # fmt: skip
