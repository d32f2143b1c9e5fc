"""What another policy would have earned: a log of decisions, estimates from it, and its way to other programs."""

from rarely.logs.csv_file import read_csv, write_csv
from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import InvalidLog, ParquetUnavailable
from rarely.logs.open_bandit import bandit_feedback
from rarely.logs.parquet_file import read_parquet, write_parquet
from rarely.offpolicy.errors import InvalidTarget, NotIdentified
from rarely.offpolicy.estimates import Estimate, difference, dr, ips, snips
from rarely.offpolicy.models import Ridge

__all__ = [
    "DecisionLog",
    "Estimate",
    "InvalidLog",
    "InvalidTarget",
    "NotIdentified",
    "ParquetUnavailable",
    "Ridge",
    "bandit_feedback",
    "difference",
    "dr",
    "ips",
    "read_csv",
    "read_parquet",
    "snips",
    "write_csv",
    "write_parquet",
]
