"""What another policy would have earned: a log of decisions, estimates from it, and its way to other programs."""

from rarely.logs import (
    DecisionLog,
    InvalidLog,
    ParquetUnavailable,
    bandit_feedback,
    read_csv,
    read_parquet,
    write_csv,
    write_parquet,
)
from rarely.offpolicy.estimates import Estimate, difference, dr, ips, snips
from rarely.offpolicy.models import Ridge
from rarely.offpolicy.sample import InvalidTarget, NotIdentified

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
