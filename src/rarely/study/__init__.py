"""Studies: decisions that last. Every decision, reward and version is on record before it is answered."""

from rarely.study.checking import Verification
from rarely.study.client import Client
from rarely.study.contrasts import Contrast
from rarely.study.decisions import Answer, Record
from rarely.study.deliveries import Accounts, Receipt, Tell
from rarely.study.errors import (
    ApprovalNeeded,
    BrokenStudy,
    InvalidId,
    InvalidStorage,
    InvalidStudy,
    NewerSchema,
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
    UnknownStudy,
)
from rarely.study.events import Event
from rarely.study.replaying import Replay, Training
from rarely.study.requests import Request
from rarely.study.reward_rule import RewardRule
from rarely.study.settings import StudySettings
from rarely.study.status import Status
from rarely.study.storage import VersionRow
from rarely.study.study import Study
from rarely.study.training import Job, Trained, train
from rarely.study.trial import Stage

__all__ = [
    "Accounts",
    "Answer",
    "ApprovalNeeded",
    "BrokenStudy",
    "Client",
    "Contrast",
    "Event",
    "InvalidId",
    "InvalidStorage",
    "InvalidStudy",
    "Job",
    "NewerSchema",
    "Receipt",
    "Record",
    "Replay",
    "Request",
    "RequestRefused",
    "RewardRule",
    "ServiceUnavailable",
    "Stage",
    "StaleTrainer",
    "Status",
    "Study",
    "StudyBusy",
    "StudyClosed",
    "StudyConflict",
    "StudyError",
    "StudyExists",
    "StudyFailed",
    "StudyFull",
    "StudyPinned",
    "StudySettings",
    "Tell",
    "Trained",
    "Training",
    "UnknownDecision",
    "UnknownStudy",
    "Verification",
    "VersionRow",
    "train",
]
