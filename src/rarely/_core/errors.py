"""Errors that say what must hold, what came, and what to do."""

import inspect
import math
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from numbers import Integral
from typing import Any, TypeVar, get_args

import numpy as np

__all__ = [
    "ApproximationWarning", "BudgetSpent", "CeilingReached", "ConflictingReward", "ContextsWarning", "DriftWarning",
    "DroppedRound", "ForgettingWarning", "HistoryDropped", "InvalidContexts", "InvalidInput", "InvalidReward",
    "InvalidSchedule", "InvalidSlate", "InvalidWorth", "JitterWarning", "MissingSnapshot", "ModelWarning",
    "NotCompiled", "NotPositiveDefinite", "NothingToLearn", "NothingToLearnWarning", "OutlierWarning", "PolicyBusy",
    "RarelyError", "RejectedWarning", "RosterFull", "RoundingWarning", "ScheduleWarning", "SnapshotError",
    "SnapshotWarning", "StaleUpdate", "TooExpensive", "TrainingRejected", "UnknownArm", "UnknownRound", "UpdateDue",
    "WrongDecision", "WrongUpdate",
]  # fmt: skip
"""All errors and warnings, which `rarely.errors` exports; the functions below refuse arguments with them."""


class RarelyError(Exception):
    """Base class of all errors of this package; the policy is as it was before the call."""


class InvalidInput(RarelyError, ValueError):
    """An argument is outside its domain."""


class InvalidContexts(InvalidInput):
    """Contexts or a mask of the wrong shape, not finite, or without any arm."""


class InvalidReward(InvalidInput):
    """A reward that is not finite, or not one reward for each round."""


class InvalidSchedule(InvalidInput):
    """A schedule that could not be followed."""


class InvalidSlate(InvalidInput):
    """More slots than arms, or rewards or a last slot seen that do not fit a slate."""


class InvalidWorth(InvalidInput):
    """A worth of an arm that is no number, or not one for each arm, or one that nothing asks for."""


class UnknownRound(InvalidInput):
    """A reward for a round that was never decided."""


class DroppedRound(UnknownRound):
    """A reward for a round that was dropped, because the policy no longer learns from it."""


class HistoryDropped(RarelyError, RuntimeError):
    """A call that needs rounds which were dropped."""


class ConflictingReward(InvalidInput):
    """A second, different reward for one round."""


class WrongDecision(InvalidInput):
    """A reward for a decision that this policy or log did not make, or has lost."""


class UnknownArm(InvalidInput):
    """A name or an arm that is not on the roster."""


class UpdateDue(RarelyError, RuntimeError):
    """`select(..., until_due=True)` while the batch has already ended."""


class BudgetSpent(RarelyError, RuntimeError):
    """An update after the last version that the budget allows."""


class NothingToLearn(RarelyError, RuntimeError):
    """An update that is not due, without a new reward since the last one."""


class WrongUpdate(InvalidInput):
    """The result of an update that another policy prepared, or a lost process of this one."""


class StaleUpdate(RarelyError, RuntimeError):
    """The result of an update that was adopted already, or that another update overtook."""


class PolicyBusy(RarelyError, RuntimeError):
    """A call while another call on the same policy is in progress."""


class RosterFull(RarelyError, RuntimeError):
    """A new name when all slots are taken; names keep their slots for life."""


class TrainingRejected(RarelyError, RuntimeError):
    """Every attempt at training on the log that a policy should start from failed."""


class CeilingReached(RarelyError):
    """No arm may be shown: what a `Ceiling` or a cap leaves does not reach for any."""


class TooExpensive(RarelyError, MemoryError):
    """A covariance that needs more memory than the limit; the message lists the alternatives."""


class NotCompiled(RarelyError, RuntimeError):
    """RARELY_COMPILED=1 requires the compiled loops, but they are missing; the message says why."""


class NotPositiveDefinite(RarelyError, ArithmeticError):
    """λI + K lost positive definiteness to rounding, and a small jitter did not restore it."""


class SnapshotError(RarelyError, ValueError):
    """A file that is not a whole, unaltered snapshot of a policy."""


class MissingSnapshot(SnapshotError, FileNotFoundError):
    """No file of the name that a policy should be loaded from."""


class SnapshotWarning(UserWarning):
    """A snapshot lacks something, with consequences that the message names."""


class RoundingWarning(UserWarning):
    """A bonus lost most of its digits to rounding."""


class ScheduleWarning(UserWarning):
    """A schedule or a ceiling that cannot serve its horizon: it is spent early, or the trigger does not fire."""


class NothingToLearnWarning(UserWarning):
    """An update that was due was skipped, because no reward arrived since the last one."""


class ForgettingWarning(UserWarning):
    """Rounds are no longer learned from: `Limits.history` is reached, or the world has changed."""


class ApproximationWarning(UserWarning):
    """Z is approximate from now on, because an exact one would exceed a limit."""


class ContextsWarning(UserWarning):
    """Contexts, or columns and arms of a table, that are accepted but look like a mistake."""


class OutlierWarning(UserWarning):
    """A reward, or a number of a context, so far from the others that it dominates what is learned."""


class DriftWarning(UserWarning):
    """Predictions, rewards, choices or missing rewards have left what earlier batches led one to expect."""


class RejectedWarning(UserWarning):
    """The training of an update was rejected: no version was spent, and the current one stays in use."""


class ModelWarning(UserWarning):
    """A module of the user's is trained otherwise than its layers do it by themselves."""


class JitterWarning(UserWarning):
    """A jitter was added to a matrix that rounding had made indefinite."""


LARGEST_WHOLE = 2**63 - 1  # the largest whole number that a setting may be, `sys.maxsize`: NumPy counts with no more
Kind = TypeVar("Kind", bound=type)


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Raise InvalidInput unless the value is one of a Literal's."""
    if not isinstance(value, str) or value not in get_args(choices):
        names, meant = ", ".join(map(repr, get_args(choices))), nearest(value, get_args(choices))
        raise InvalidInput(f"{name} must be one of {names}; got {shown(value)}. {meant}".rstrip())


def check_whole(
    name: str, value: Any, least: int, error: type[InvalidInput] = InvalidInput, *, besides: tuple[str | None, ...] = ()
) -> None:
    """Raise `error` unless the value is a whole number of at least `least`, or one of `besides`."""
    if value is None or isinstance(value, str):
        whole = value in besides
    else:
        whole = is_whole(value) and least <= int(value) <= LARGEST_WHOLE
    if not whole:
        other = "".join(f" or {word!r}" for word in besides)
        beyond = " and at most 2**63 - 1" if is_whole(value) and int(value) > LARGEST_WHOLE else ""
        raise error(f"{name} must be a whole number of at least {least}{beyond}{other}; got {shown(value)}.")


def check_positive(name: str, value: Any, remark: str) -> None:
    """Raise InvalidInput unless the value is a positive, finite number."""
    if not 0 < as_number(value) < math.inf:
        raise InvalidInput(f"{name} must be a positive, finite number, {remark}; got {shown(value)}.")


def check_not_negative(name: str, value: Any, remark: str = "") -> None:
    """Raise InvalidInput unless the value is 0 or a positive, finite number."""
    if not 0 <= as_number(value) < math.inf:
        remark = f", {remark}" if remark else ""
        raise InvalidInput(f"{name} must be 0 or a positive, finite number{remark}; got {shown(value)}.")


def check_flag(name: str, value: Any) -> None:
    """Raise InvalidInput unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False; got {shown(value)}.")


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number; neither True nor a time, which NumPy counts among them, is one."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.timedelta64)


def as_number(value: Any) -> float:
    """Return a number of Python or NumPy as a float: infinite if it is too large, NaN if it is none."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool | np.timedelta64):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def shown(value: Any, length: int = 60) -> str:
    """Return a value as a message shows it: in one line of at most `length` characters, whatever it is.

    >>> shown([1, 2]), shown(np.zeros((2, 2))), shown(10**5000)
    ('[1, 2]', 'an array of float64 of shape (2, 2)', 'an object of type int')
    """
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= length else text[: length - 3] + "..."


def named_arguments(kind: Kind, read: Callable[[str, Any], Any] | None = None) -> Kind:
    """Let a constructor refuse arguments that it does not have by InvalidInput, with the nearest name that it has.

    `read` returns what the constructor gets, for an argument's name and value.
    """
    made: Any = kind
    init = made.__init__
    positions = [] if read is None else [*inspect.signature(init).parameters][1:]

    @wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        if read is not None:
            args = *map(read, positions, args), *args[len(positions) :]
            kwargs = {name: read(name, value) for name, value in kwargs.items()}
        try:
            init(self, *args, **kwargs)
        except TypeError:
            try:
                inspect.signature(init).bind(self, *args, **kwargs)
            except TypeError as error:
                owner, names = type(self).__name__, _argument_names(type(self))
                check_names(owner, kwargs, names)
                raise InvalidInput(f"{owner}: {error}. It has {', '.join(sorted(names))}.") from None
            raise

    made.__init__ = checked
    return kind


_ELSEWHERE = {
    ("n_arms", "num_arms", "n_actions", "arms"): "each round brings its own contexts, (K, d), one row for each arm",
    ("alpha", "ucb_multiplier", "delta"): "it is beta here",
    ("epsilon", "eps"): "it is exploration=Mixture(epsilon) here, or NeuralEpsilonGreedy(epsilon=…)",
    ("lambda_", "lam", "reg", "reg_lambda", "l2_lambda", "l2"): "it is ridge here",
    ("n_features", "context_dim", "input_dim", "d"): "it is dim here",
    ("hidden_size", "hidden_sizes", "width", "n_hidden"): "it is hidden here",
    ("lr", "learning_rate", "n_epochs", "epochs"): "it belongs to training=Training(steps, step_size) here",
    ("batch_size", "horizon", "batches", "T", "B"): "it belongs to a schedule here, as in Paced(horizon, batches)",
    ("random_state", "rng", "random_seed"): "it is seed here",
}
"""What other libraries call it, and what it is here."""


def check_names(owner: str, names: Iterable[str], allowed: Collection[str]) -> None:
    """Raise InvalidInput for the first argument that its owner does not have."""
    for name in names:
        if name not in allowed:
            has = f"It has {', '.join(sorted(allowed)) or 'none'}."
            here = next((f"{said[0].upper()}{said[1:]}. " for words, said in _ELSEWHERE.items() if name in words), "")
            hint = here if "beta" in allowed or "schedule" in allowed else ""
            raise InvalidInput(f"unknown argument {name!r} for {owner}. {hint or nearest(name, allowed)}{has}")


def nearest(word: Any, words: Collection[str]) -> str:
    """Return the question whether a known word was meant, or nothing where none is near."""
    import difflib  # only here, because importing it takes long

    near = difflib.get_close_matches(word, words, 1, 0.7) if isinstance(word, str) else []
    return f"Did you mean {near[0]!r}? " if near else ""


def _argument_names(kind: type) -> set[str]:
    """Return the names that a constructor takes, and those of the base class to which it passes others on."""
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in vars(base):
            arguments = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            names |= {argument.name for argument in arguments if argument.kind is not argument.VAR_KEYWORD}
            if all(argument.kind is not argument.VAR_KEYWORD for argument in arguments):
                break
    return names
