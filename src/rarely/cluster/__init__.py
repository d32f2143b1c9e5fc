"""Beyond one machine, on Ray and Parquet: campaigns that decide for millions, and fleets of deciders."""

from rarely.cluster.campaign import Campaign, decide
from rarely.cluster.fleet import Decider, LogBusy, StaleVersionWarning, audit, join, publish, rollback
from rarely.cluster.learning import UpdateReport, update

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
