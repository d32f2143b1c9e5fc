"""Errors of studies and of their client."""

from __future__ import annotations

from rarely.errors import InvalidInput, RarelyError

__all__ = [
    "ApprovalNeeded", "BrokenStudy", "CheckpointWarning", "ClockAhead", "EnrolmentClosed", "Erased", "ErasedWarning",
    "FallbackWarning",
    "InvalidId", "InvalidStorage", "InvalidStudy", "NewerSchema", "NotDelivered", "OlderSchema", "RequestRefused",
    "ServiceUnavailable", "StaleTrainer", "StudyBusy", "StudyClosed", "StudyConflict", "StudyError", "StudyExists",
    "StudyFailed", "StudyFull", "StudyPinned", "UnknownDecision", "UnknownPart", "UnknownStudy",
]  # fmt: skip


class StudyError(RarelyError):
    """The base class of all errors of a study; the study is as it was before the call."""


class InvalidStorage(StudyError, InvalidInput):
    """A storage string without a database, or a database that a study cannot use."""


class InvalidStudy(StudyError, InvalidInput):
    """Invalid settings or arguments of a study."""


class InvalidId(StudyError, InvalidInput):
    """A decision id, key, actor or reason that is empty, too long or not printable."""


class UnknownStudy(StudyError, LookupError):
    """A name that no study in the database has."""


class UnknownDecision(StudyError, LookupError):
    """A decision id that is not on record."""


class StudyExists(StudyError, RuntimeError):
    """A new study whose name is taken by a study with other settings."""


class StudyConflict(StudyError, RuntimeError):
    """An id or key that was already used for a different request or reward."""


class StudyFull(StudyError, RuntimeError):
    """An update beyond the study's budget of versions."""


class StudyBusy(StudyError, RuntimeError):
    """A call that must wait for another process or trainer; it may be repeated later."""


class StaleTrainer(StudyError, RuntimeError):
    """A trained version whose lease was taken over, or whose parent is no longer in use."""


class EnrolmentClosed(StudyError, RuntimeError):
    """A new decision of a trial that takes no further patients, or of arms that do not."""


class StudyPinned(StudyError, RuntimeError):
    """An update of a study whose version is pinned."""


class ApprovalNeeded(StudyError, RuntimeError):
    """A call that requires a candidate to be approved or dismissed first, or a candidate that does not exist."""


class StudyFailed(StudyError, RuntimeError):
    """A commit that the database did not confirm; the study must be opened again."""


class ClockAhead(StudyError, RuntimeError):
    """A clock that is far ahead of the last event, or of the database's clock; nothing is recorded by it."""


class StudyClosed(StudyError, RuntimeError):
    """A call on a closed study."""


class BrokenStudy(StudyError, ValueError):
    """A database that is damaged or was altered; nothing is served from it."""


class Erased(StudyError, LookupError):
    """A call that needs what was erased or pruned, as the record says."""


class UnknownPart(StudyError, LookupError):
    """A policy with a class that is not imported here, or is another than the one that it was saved with."""


class NewerSchema(StudyError, RuntimeError):
    """A database written by a later version of rarely."""


class OlderSchema(StudyError, RuntimeError):
    """A database written by an earlier version of rarely, which must be upgraded, or exported there."""


class ServiceUnavailable(StudyError, ConnectionError):
    """A service that did not answer, or refused temporarily, at every attempt of the client."""


class RequestRefused(StudyError, RuntimeError):
    """A request that the service itself refused: a missing key or scope, or a body that is too long."""


class NotDelivered(RequestRefused):
    """A request that the service refused for reasons that may go away, such as an expired key or its own failure."""


class FallbackWarning(UserWarning):
    """A client's fallback arm was given, because the service was away."""


class ErasedWarning(UserWarning):
    """A log that lacks decisions which were erased or pruned."""


class CheckpointWarning(UserWarning):
    """A checkpoint that is damaged or belongs to another record; the decisions are repeated from the record instead."""
