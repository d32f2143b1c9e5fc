"""Promises: methods whose docstrings state them, and which raise `AssertionError` where a subject breaks them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rarely.errors import InvalidInput
from rarely.extend import Array, Fields
from rarely.extend.checks import shown


def names_of(promises: type) -> tuple[str, ...]:
    """Return the names of a class's promises, which are all its own methods."""
    return tuple(name for name in vars(promises) if not name.startswith("_"))


def check_all(case: Any, subject: str, only: str | None, where: str) -> None:
    """Check every promise, or one of them; `where` says how to repeat the check.

    >>> class OfNumbers(int):
    ...     def is_small(self):
    ...         '''A number is below 10.'''
    ...         ensure(self < 10, f"got {self}")
    >>> check_all(OfNumbers(12), "the number", None, "")
    Traceback (most recent call last):
    AssertionError: the number breaks the promise is_small: A number is below 10. In this check: got 12.
    """
    names = names_of(type(case))
    if only is not None and only not in names:
        raise InvalidInput(f"only must be one of {', '.join(names)}; got {only!r}.")
    for name in names if only is None else (only,):
        check = getattr(case, name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # promises are about results, and small problems warn
                check()
        except Exception as error:
            reason = error if isinstance(error, AssertionError) else f"{type(error).__name__} was raised: {error}"
            sentence = f"{subject} breaks the promise {name}: {' '.join((check.__doc__ or '').split())}"
            raise AssertionError(f"{sentence} In this check: {reason}{where}.") from error


def ensure(holds: Any, otherwise: str) -> None:
    """Raise `AssertionError` with this sentence unless all of it holds; `python -O` does not leave it out."""
    if not np.all(holds):
        raise AssertionError(otherwise)


def ensure_equal(actual: Any, expected: Any, what: str) -> None:
    """Raise `AssertionError` unless both are equal, arrays number by number, NaN to NaN."""
    if isinstance(actual, np.ndarray) or isinstance(expected, np.ndarray):
        same = np.array_equal(actual, expected, equal_nan=True)
    else:
        same = bool(actual == expected)
    ensure(same, f"{what} must be {_in_full(expected)}; got {_in_full(actual)}")


def ensure_close(actual: Any, expected: Any, what: str, *, rtol: float = 1e-9, atol: float = 0.0) -> None:
    """Raise `AssertionError` unless both are equal but for rounding, NaN to NaN."""
    same = np.shape(actual) == np.shape(expected) and np.allclose(actual, expected, rtol, atol, equal_nan=True)
    ensure(same, f"{what} must be {_in_full(expected)}, to a relative {rtol:g}; got {_in_full(actual)}")


@contextmanager
def ensure_raises(kind: type[Exception], what: str) -> Iterator[None]:
    """Raise `AssertionError` unless the block raises this error."""
    raised = "nothing"
    try:
        yield
    except kind:
        return
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    raise AssertionError(f"{what} must raise {kind.__name__}; it raised {raised}")


def _in_full(value: Any) -> str:
    """Return a value as a message shows it, an array by its numbers."""
    return shown(value.tolist() if isinstance(value, np.ndarray) else value, length=200)


def rewards_of(contexts: Array) -> Array:
    """Return the rewards of chosen contexts, (n, d): a fixed function, with a little noise that is one, too."""
    return np.asarray(np.sin(contexts.sum(axis=1)) + 0.1 * np.cos(100 * contexts[:, 0]))


def through_json(one: Any, what: str) -> Fields:
    """Return what something saves, as it is read from a file."""
    numbers, arrays = one.state()
    return Fields(what, json.loads(json.dumps(numbers)), {name: array.copy() for name, array in arrays.items()})
