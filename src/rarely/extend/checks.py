"""Arguments as users give them: read, or refused with an error that says what must hold and what came."""

from rarely._core.errors import *
from rarely._core.inputs.contexts import read_array, read_real, read_whole
from rarely._core.inputs.history import read_rewards

__all__ = [
    "ApproximationWarning", "BudgetSpent", "ConflictingReward", "ContextsWarning", "DriftWarning", "DroppedRound",
    "ForgettingWarning", "HistoryDropped", "InvalidContexts", "InvalidInput", "InvalidReward", "InvalidSchedule",
    "JitterWarning", "NotCompiled", "NotPositiveDefinite", "NothingToLearn", "NothingToLearnWarning",
    "OutlierWarning", "PolicyBusy", "RarelyError", "RejectedWarning", "RosterFull", "RoundingWarning",
    "ScheduleWarning", "SnapshotError", "SnapshotWarning", "StaleUpdate", "TooExpensive", "TrainingRejected",
    "UnknownArm", "UnknownRound", "UpdateDue", "WrongDecision", "WrongUpdate", "as_number", "check_choice",
    "check_flag", "check_names", "check_not_negative", "check_positive", "check_whole", "is_whole",
    "named_arguments", "nearest", "read_array", "read_real", "read_rewards", "read_whole", "shown",
]  # fmt: skip
