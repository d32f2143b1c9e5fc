"""What another policy would have earned: a log of decisions, estimates from it, and its way to other programs."""

from rarely.offpolicy.errors import InvalidLog, InvalidTarget, NotIdentified, ParquetUnavailable
from rarely.offpolicy.estimates import Estimate, difference, dr, ips, snips
from rarely.offpolicy.export import bandit_feedback, read_csv, read_parquet, write_csv, write_parquet
from rarely.offpolicy.log import DecisionLog
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
