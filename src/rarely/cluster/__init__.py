"""Beyond one machine, on Ray and Parquet: campaigns that decide for millions, and fleets of deciders."""

from rarely.cluster.campaign import Campaign, decide
from rarely.cluster.decision_lines import LogBusy
from rarely.cluster.fleet import Decider, StaleVersionWarning, audit, join
from rarely.cluster.learning import UpdateReport, update
from rarely.cluster.store import publish, rollback

__all__ = [
    "Campaign",
    "Decider",
    "LogBusy",
    "StaleVersionWarning",
    "UpdateReport",
    "audit",
    "decide",
    "join",
    "publish",
    "rollback",
    "update",
]
