"""Bring back a saved policy: arrays and JSON, never pickle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from rarely.core import archive
from rarely.core.errors import InvalidInput, RarelyError, SnapshotError
from rarely.core.policy import Policy
from rarely.core.radius import FUNCTION, Beta
from rarely.core.settings import decoded
from rarely.core.types import Arrays

_MISFITS = (RarelyError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""What constructors, and the parts of a policy, raise at values that no policy saves."""


def load(path: str | os.PathLike[str], *, beta: Beta | None = None) -> Any:
    """The policy that `save` wrote, with the same future bit for bit (in the same environment).

    Files of every version since 0.1.0 can be read; a `SnapshotWarning` says what an early one lacks. A file that is
    damaged, or was written by a later version, is refused with a `SnapshotError`.

    A `beta` that is a function is not saved: give it again here.
    """
    saved = archive.read(path)
    settings = saved.header.get("settings")
    if isinstance(settings, dict) and "beta" in settings:
        _check_beta(settings["beta"], beta)
    try:
        return _restored(saved.header, saved.arrays, beta)
    except SnapshotError as error:
        raise SnapshotError(f"{os.fspath(path)} {error}") from error
    except _MISFITS as error:
        raise SnapshotError(
            f"{os.fspath(path)} was written by rarely {saved.version} (format {saved.format}) and altered, or by a "
            f"class that is not the one imported here: its parts do not fit ({type(error).__name__}: {error}). "
            "Use a backup."
        ) from error


def _restored(header: dict[str, Any], arrays: Arrays, beta: Beta | None) -> Any:
    """The sentences of its errors begin after the path."""
    name = header["policy"]
    # The package's own names are its own, whatever is imported beside them.
    kinds = {
        kind.__name__: kind for kind in sorted(_kinds_of(Policy), key=lambda k: k.__module__.startswith("rarely."))
    }
    if name not in kinds:
        raise SnapshotError(
            f"holds a policy of kind {name!r}, which this version does not know; if the class is your own, import it "
            "before."
        )
    if kinds[name].__module__.startswith("rarely."):
        _check_sizes(header["settings"], arrays)
    policy = kinds[name](**_read_settings(header["settings"], beta))
    policy._restore(header, arrays)
    return policy


def _check_sizes(settings: dict[str, Any], arrays: Arrays) -> None:
    """Refuse settings by which the constructor would allocate other arrays than the saved ones."""
    layers = [array for name, array in arrays.items() if name.startswith("learner.initial")]
    sizes = {"dim": arrays["history.contexts"].shape[1]}
    if layers:
        sizes |= {"hidden": arrays["learner.initial0"].shape[0], "depth": len(layers)}
    for name, size in sizes.items():
        if type(settings[name]) is not int or settings[name] != size:
            raise SnapshotError(f"must have settings.{name} = {size}, as its arrays have; it has {settings[name]!r}.")
    # An intercept of a thousand would be a thousand columns of ones.
    for name in ("intercept", "biases", "standardise_rewards", "warm_start"):
        if settings.get(name) not in (None, True, False):
            raise SnapshotError(f"must have true or false as settings.{name}; it has {settings[name]!r}.")


def _read_settings(saved: dict[str, Any], beta: Beta | None) -> dict[str, Any]:
    """The constructor's arguments from what `settings` gave."""
    given = saved if beta is None else saved | {"beta": beta}
    return dict(zip(given, decoded(**given), strict=True))


def _kinds_of(kind: Any) -> Iterator[Any]:
    """All classes made of this one that are imported: the package's and the user's."""
    for made in kind.__subclasses__():
        yield made
        yield from _kinds_of(made)


def _check_beta(saved: Any, given: Beta | None) -> None:
    saved = None if saved == FUNCTION else saved
    if saved is None and given is None:
        raise InvalidInput(
            "this policy's beta is a function, which a file cannot hold: give it to load(path, beta=...)."
        )
    if saved is not None and given is not None:
        raise InvalidInput(f"this policy was saved with beta = {saved}; beta is given to load() only for a function.")
