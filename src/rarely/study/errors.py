"""What a study refuses, in sentences that say what to do."""

from __future__ import annotations

from rarely.core.errors import InvalidInput, RarelyError


class StudyError(RarelyError):
    """Whatever a study raises on purpose; the study is as it was before the call."""


class InvalidStorage(StudyError, InvalidInput):
    """A storage string that names no database, or a database that a study cannot use."""


class InvalidStudy(StudyError, InvalidInput):
    """Settings that no study can have."""


class InvalidId(StudyError, InvalidInput):
    """A decision id, key, actor or reason that is empty, too long or has characters that are refused."""


class UnknownStudy(StudyError, LookupError):
    """No study of that name is in the database."""


class UnknownDecision(StudyError, LookupError):
    """No decision with that id is on record."""


class StudyExists(StudyError, RuntimeError):
    """A study of that name is in the database already, with other settings."""


class StudyConflict(StudyError, RuntimeError):
    """An id that was decided already for another request."""


class StudyFull(StudyError, RuntimeError):
    """An update past the last version that the study may have."""


class StudyBusy(StudyError, RuntimeError):
    """Another process or trainer holds what the call needs; the call may be repeated later."""


class StaleTrainer(StudyError, RuntimeError):
    """A version of a trainer whose lease another trainer has taken over, or whose parent is no longer in use."""


class StudyPinned(StudyError, RuntimeError):
    """An update of a study whose version is pinned."""


class ApprovalNeeded(StudyError, RuntimeError):
    """A step that must wait until a person has approved or rejected the candidate."""


class StudyFailed(StudyError, RuntimeError):
    """The database did not confirm a commit; the study object does no more work until it is opened again."""


class StudyClosed(StudyError, RuntimeError):
    """A call on a study that was closed."""


class BrokenStudy(StudyError, ValueError):
    """A database whose content is damaged or was altered; nothing is served from it."""


class NewerSchema(StudyError, RuntimeError):
    """A database that was written by a later version of rarely."""


class ServiceUnavailable(StudyError, ConnectionError):
    """A service that did not answer, or refused for now, as often as the client tried."""


class RequestRefused(StudyError, RuntimeError):
    """A request that a service refuses for a reason of its own: a key, a scope, a body that is too long."""
