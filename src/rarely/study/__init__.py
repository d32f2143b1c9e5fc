"""Studies: every decision, reward and version is on record before it is answered."""

from rarely.study import errors
from rarely.study.analysis import Analysis, Effect, Imbalance, StageEffect
from rarely.study.audit import Replay, Status, Training, Verification
from rarely.study.client import AsyncClient, Client
from rarely.study.decision import Answer, DecisionRecord, Request, Slate
from rarely.study.erasure import Erasure, Pruning
from rarely.study.errors import *
from rarely.study.events import Event
from rarely.study.looks import Look, Outlook
from rarely.study.plan import AnalysisPlan
from rarely.study.settings import RewardRule, Stage, StudySettings
from rarely.study.study import Study
from rarely.study.tell import Accounts, Receipt, Tell
from rarely.study.versions import Job, PublishedVersion, Trained, train

__all__ = [
    "Accounts", "Analysis", "AnalysisPlan", "Answer", "AsyncClient", "Client", "DecisionRecord", "Effect", "Erasure",
    "Event", "Imbalance", "Job", "Look", "Outlook", "Pruning", "PublishedVersion", "Receipt", "Replay", "Request",
    "RewardRule", "Slate", "Stage", "StageEffect", "Status", "Study", "StudySettings", "Tell", "Trained", "Training",
    "Verification", "train",
]  # fmt: skip
__all__ += errors.__all__
