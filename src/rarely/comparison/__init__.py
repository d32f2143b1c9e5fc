"""Which policy does best with few updates: `rarely compare`, its problems, its policies and its leaderboard."""

from rarely.comparison.cells import Comparison
from rarely.comparison.contestant import Contestant, Task
from rarely.comparison.policies import POLICIES, UnavailablePolicy
from rarely.comparison.problems import PROBLEM_SETS, Problem, find_problem
from rarely.comparison.records import Record
from rarely.comparison.runner import compare
from rarely.comparison.scores import Leaderboard, Row, leaderboard
from rarely.comparison.store import MixedRecords, merge, read_records

__all__ = [
    "POLICIES",
    "PROBLEM_SETS",
    "Comparison",
    "Contestant",
    "Leaderboard",
    "MixedRecords",
    "Problem",
    "Record",
    "Row",
    "Task",
    "UnavailablePolicy",
    "compare",
    "find_problem",
    "leaderboard",
    "merge",
    "read_records",
]
