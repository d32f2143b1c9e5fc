"""Logs of past decisions, the tables they are read from, and the forms that other programs read."""

from rarely.logs.decision_log import DecisionLog
from rarely.logs.files import bandit_feedback, read_log, write_log
from rarely.logs.tables import InvalidLog, ParquetUnavailable, Remark

__all__ = ["DecisionLog", "InvalidLog", "ParquetUnavailable", "Remark", "bandit_feedback", "read_log", "write_log"]
