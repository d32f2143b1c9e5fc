"""Beyond one machine, on Ray and Parquet: campaigns that decide for millions, and fleets of deciders."""

from rarely.cluster.campaign import Campaign, decide
from rarely.cluster.decision_lines import LogBusy, LostDecisions
from rarely.cluster.files import FolderBusy
from rarely.cluster.fleet import Decider, StaleVersionWarning, audit
from rarely.cluster.learning import UpdateReport, update
from rarely.cluster.store import publish, rollback
from rarely.cluster.waves import LostDecisionsWarning, join, prune, rotate

__all__ = [
    "Campaign",
    "Decider",
    "FolderBusy",
    "LogBusy",
    "LostDecisions",
    "LostDecisionsWarning",
    "StaleVersionWarning",
    "UpdateReport",
    "audit",
    "decide",
    "join",
    "prune",
    "publish",
    "rollback",
    "rotate",
    "update",
]
