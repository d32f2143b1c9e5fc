"""Logs of past decisions: one log, one CSV reader, and the forms that other programs read."""

from rarely.logs.csv_file import read_csv, write_csv
from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import InvalidLog, ParquetUnavailable
from rarely.logs.open_bandit import bandit_feedback
from rarely.logs.parquet_file import read_parquet, write_parquet
from rarely.logs.planning_log import Log

__all__ = [
    "DecisionLog",
    "InvalidLog",
    "Log",
    "ParquetUnavailable",
    "bandit_feedback",
    "read_csv",
    "read_parquet",
    "write_csv",
    "write_parquet",
]
