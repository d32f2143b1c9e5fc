"""Which policy does best with few updates: `rarely compare`, its problems, its policies and its leaderboard."""

from rarely_lab.compare.policies import POLICIES, UnavailablePolicy
from rarely_lab.compare.problems import Problem, Task, find_problem
from rarely_lab.compare.runs import Comparison, Record, compare, merge, read_records
from rarely_lab.compare.scores import Leaderboard, Row, leaderboard
from rarely_lab.engine.play import Contestant
from rarely_lab.engine.record import MixedRecords

__all__ = [
    "POLICIES", "Comparison", "Contestant", "Leaderboard", "MixedRecords", "Problem", "Record", "Row",
    "Task", "UnavailablePolicy", "compare", "find_problem", "leaderboard", "merge", "read_records",
]  # fmt: skip
