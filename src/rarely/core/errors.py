"""Errors that say what must hold, what came, and what to do."""

import math
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np


class RarelyError(Exception):
    """Whatever this package raises on purpose; the policy is as it was before the call."""


class InvalidInput(RarelyError, ValueError):
    """An argument is outside its domain."""


class InvalidContexts(InvalidInput):
    """Contexts or a mask of the wrong shape, not finite, or without any arm."""


class InvalidReward(InvalidInput):
    """A reward that is not finite, or not one reward for each round."""


class InvalidSchedule(InvalidInput):
    """A schedule that could not be followed."""


class UnknownRound(InvalidInput):
    """A reward for a round that was never decided."""


class DroppedRound(UnknownRound):
    """A reward for a round that was dropped, because nothing that it could change is learned from any more."""


class HistoryDropped(RarelyError, RuntimeError):
    """Something that needs rounds which were dropped."""


class ConflictingReward(InvalidInput):
    """A second, different reward for one round."""


class WrongDecision(InvalidInput):
    """A reward for a decision that this policy or log did not make, or no longer has."""


class UnknownArm(InvalidInput):
    """A name that is not on the roster, or an arm that no name of it has."""


class UpdateDue(RarelyError, RuntimeError):
    """`select(..., until_due=True)` while the batch has already ended."""


class BudgetSpent(RarelyError, RuntimeError):
    """An update past the last version that the budget allows."""


class NothingToLearn(RarelyError, RuntimeError):
    """An update that is not due, without a reward since the last one."""


class WrongUpdate(InvalidInput):
    """A result of an update that another policy prepared, or a lost process of this one."""


class StaleUpdate(RarelyError, RuntimeError):
    """A result of an update that was adopted already, or that another update overtook."""


class PolicyBusy(RarelyError, RuntimeError):
    """A call while another thread's call on the same policy is under way."""


class RosterFull(RarelyError, RuntimeError):
    """A name beyond the last slot: slots are kept for life."""


class TrainingRejected(RarelyError, RuntimeError):
    """A policy cannot start from a log on which every attempt at training failed."""


class TooExpensive(RarelyError, MemoryError):
    """A covariance whose price is above the memory limit; the message has the alternatives' prices."""


class NotCompiled(RarelyError, RuntimeError):
    """RARELY_COMPILED=1 asks for the compiled loops, and they are missing; the message says why."""


class NotPositiveDefinite(RarelyError, ArithmeticError):
    """λI + K lost positive definiteness to rounding, and a small jitter did not bring it back."""


class SnapshotError(RarelyError, ValueError):
    """A file that is not a whole, unaltered snapshot of a policy."""


class SnapshotWarning(UserWarning):
    """Announces that a snapshot of earlier code lacks something, and what follows from it."""


class RoundingWarning(UserWarning):
    """Announces that rounding has eaten most digits of a bonus."""


class ScheduleWarning(UserWarning):
    """A schedule that cannot serve its horizon: its budget is spent early, or its trigger does not fire."""


class NothingToLearnWarning(UserWarning):
    """Announces an update that was due and was skipped, because no reward came since the last one."""


class ForgettingWarning(UserWarning):
    """Announces that `Limits.history` is reached, and that rounds are dropped which would have been learned from."""


class ApproximationWarning(UserWarning):
    """Announces that Z is approximated from now on, because an exact one is slower than `Limits.latency` allows."""


class ContextsWarning(UserWarning):
    """Announces contexts that are accepted but look like a mistake."""


class OutlierWarning(UserWarning):
    """Announces a reward, or a number of a context, that is so far from the others that learning follows it alone."""


class RejectedWarning(UserWarning):
    """Announces an update whose training was rejected: no version was spent, and the one in use goes on."""


class JitterWarning(UserWarning):
    """Announces that a jitter was added to a matrix that rounding had made indefinite."""


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Refuse a value that is not one of a Literal's."""
    if value not in get_args(choices):
        raise InvalidInput(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}; got {value!r}.")


def check_whole(name: str, value: Any, least: int, error: type[InvalidInput] = InvalidInput) -> None:
    """Refuse a value that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise error(f"{name} must be a whole number of at least {least}; got {value!r}.")


def check_positive(name: str, value: Any, remark: str) -> None:
    """Refuse a value that is not a positive, finite number."""
    if not 0 < _number(value) < math.inf:
        raise InvalidInput(f"{name} must be a positive, finite number, {remark}; got {value!r}.")


def check_not_negative(name: str, value: Any, remark: str) -> None:
    """Refuse a value that is not 0 or a positive, finite number."""
    if not 0 <= _number(value) < math.inf:
        raise InvalidInput(f"{name} must be 0 or a positive, finite number, {remark}; got {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse a value that is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False; got {value!r}.")


def _number(value: Any) -> float:
    """A number as a float: infinite where it is too large for one, NaN where it is none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
