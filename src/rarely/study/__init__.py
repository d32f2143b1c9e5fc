"""Studies: every decision, reward and version is on record before it is answered."""

from rarely.study.analysis import Analysis, Effect, Imbalance, StageEffect
from rarely.study.audit import Replay, Status, Training, Verification
from rarely.study.client import AsyncClient, Client
from rarely.study.decision import Answer, DecisionRecord, Request
from rarely.study.effects import AnalysisPlan, Look
from rarely.study.errors import (
    ApprovalNeeded,
    BrokenStudy,
    CheckpointWarning,
    ClockAhead,
    FallbackWarning,
    InvalidId,
    InvalidStorage,
    InvalidStudy,
    NewerSchema,
    NotDelivered,
    RequestRefused,
    ServiceUnavailable,
    StaleTrainer,
    StudyBusy,
    StudyClosed,
    StudyConflict,
    StudyError,
    StudyExists,
    StudyFailed,
    StudyFull,
    StudyPinned,
    UnknownDecision,
    UnknownPart,
    UnknownStudy,
)
from rarely.study.events import Event
from rarely.study.settings import RewardRule, StudySettings
from rarely.study.storage import VersionRow
from rarely.study.study import Study
from rarely.study.tell import Accounts, Receipt, Tell
from rarely.study.trial import Stage
from rarely.study.versions import Job, Trained, train

__all__ = [
    "Accounts", "Analysis", "AnalysisPlan", "Answer", "ApprovalNeeded", "AsyncClient", "BrokenStudy",
    "CheckpointWarning", "Client", "ClockAhead", "DecisionRecord", "Effect", "Event", "FallbackWarning",
    "Imbalance", "InvalidId", "InvalidStorage", "InvalidStudy", "Job", "Look", "NewerSchema", "NotDelivered",
    "Receipt", "Replay", "Request", "RequestRefused", "RewardRule", "ServiceUnavailable", "Stage", "StageEffect",
    "StaleTrainer", "Status", "Study", "StudyBusy", "StudyClosed", "StudyConflict", "StudyError", "StudyExists",
    "StudyFailed", "StudyFull", "StudyPinned", "StudySettings", "Tell", "Trained", "Training", "UnknownDecision",
    "UnknownPart", "UnknownStudy", "Verification", "VersionRow", "train",
]  # fmt: skip
