"""What another policy would have earned: a log of decisions, estimates from it, and its way to other programs."""

from rarely.logs import DecisionLog, InvalidLog, ParquetUnavailable, bandit_feedback, read_log, write_log
from rarely.offpolicy.estimates import (
    Estimate,
    Evaluation,
    Ridge,
    against_holdout,
    difference,
    dr,
    evaluate,
    ips,
    snips,
)
from rarely.offpolicy.sample import InvalidTarget, NotIdentified
from rarely.offpolicy.slates import slates

__all__ = [
    "DecisionLog", "Estimate", "Evaluation", "InvalidLog", "InvalidTarget", "NotIdentified", "ParquetUnavailable",
    "Ridge", "against_holdout", "bandit_feedback", "difference", "dr", "evaluate", "ips", "read_log", "slates", "snips",
    "write_log",
]  # fmt: skip
