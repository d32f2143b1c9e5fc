"""Beyond one machine, on Ray and Parquet: campaigns that decide for millions, and fleets of deciders."""

from rarely.cluster.campaign import Campaign, decide
from rarely.cluster.decider_logs import LogBusy, LostDecisions, LostDecisionsWarning, join, prune, rotate
from rarely.cluster.fleet import Decider, StaleVersionWarning, audit, publish, rollback
from rarely.cluster.learning import UpdateReport, update
from rarely.runs.files import FolderBusy

__all__ = [
    "Campaign", "Decider", "FolderBusy", "LogBusy", "LostDecisions", "LostDecisionsWarning", "StaleVersionWarning",
    "UpdateReport", "audit", "decide", "join", "prune", "publish", "rollback", "rotate", "update",
]  # fmt: skip
