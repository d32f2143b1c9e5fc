"""Logs of past decisions, the tables they are read from, and the forms that other programs read."""

from rarely.logs.decision_log import DecisionLog
from rarely.logs.files import bandit_feedback, read_csv, read_parquet, write_csv, write_parquet
from rarely.logs.tables import InvalidLog, ParquetUnavailable

__all__ = [
    "DecisionLog",
    "InvalidLog",
    "ParquetUnavailable",
    "bandit_feedback",
    "read_csv",
    "read_parquet",
    "write_csv",
    "write_parquet",
]
