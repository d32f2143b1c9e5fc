"""Bring back a saved policy: arrays and JSON, never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from rarely.core.choice.confidence_radius import FUNCTION, Beta
from rarely.core.covariance import Kind, Sketch
from rarely.core.errors import InvalidInput, RarelyError, SnapshotError
from rarely.core.policies.base import Policy
from rarely.core.policies.renamed import grouped_settings, settings_with_limits
from rarely.core.policies.settings import decoded
from rarely.core.saving import archive
from rarely.core.saving.fields import Fields, shortened
from rarely.core.types import Arrays

_MISFITS = (RarelyError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""What constructors, and the parts of a policy, raise at values that no policy saves."""


def load(
    path: str | os.PathLike[str],
    *,
    beta: Beta | None = None,
    covariance: Kind | Sketch | None = None,
    memory_limit: int | None = None,
) -> Any:
    """The policy that `save` wrote, with the same future bit for bit (in the same environment).

    Files of every version since 0.1.0 can be read; a `SnapshotWarning` says what an early one lacks. A file that is
    damaged, or was written by a later version, is refused with a `SnapshotError`.

    A `beta` that is a function is not saved: give it again here. With `covariance` or `memory_limit` the policy goes on
    in another form of Z, as `Policy.with_covariance` makes it.

    Parameters
    ----------
    path
        The file.
    beta
        The function, where the policy was made with one: a file cannot hold it.
    covariance, memory_limit
        Another form of Z, and another limit of its bytes, as `Policy.with_covariance` makes them.

    Examples
    --------
    >>> import os, tempfile
    >>> from rarely import LinUCB, load
    >>> policy = LinUCB(dim=1, seed=0)
    >>> _ = policy.select([[1.0], [2.0]])
    >>> path = os.path.join(tempfile.mkdtemp(), "policy.rarely")
    >>> policy.save(path)
    >>> load(path).fingerprint() == policy.fingerprint()
    True
    """
    saved = archive.read(path)
    settings = saved.header.get("settings")
    if isinstance(settings, dict) and "beta" in settings:
        _check_beta(settings["beta"], beta, saved.format)
    try:
        with np.errstate(all="ignore"):  # numbers that no policy has may overflow before they are refused
            policy = _restored(saved, beta)
    except SnapshotError as error:
        raise SnapshotError(f"{os.fspath(path)} {error}") from error
    except _MISFITS as error:
        raise SnapshotError(
            f"{os.fspath(path)} was written by rarely {saved.version} (format {saved.format}) and altered, or by a "
            f"class that is not the one imported here: its parts do not fit ({type(error).__name__}: {error}). "
            "Use a backup."
        ) from error
    if covariance is not None or memory_limit is not None:
        policy._reform(covariance, memory_limit, "given to load")
    return policy


def _restored(found: archive.Archive, beta: Beta | None) -> Any:
    """The sentences of its errors begin after the path."""
    saved = Fields("", found.header, found.arrays, found.format)
    name, settings = saved.text("policy"), saved.value("settings")
    # The package's own names are its own, whatever is imported beside them.
    kinds = {
        kind.__name__: kind for kind in sorted(_kinds_of(Policy), key=lambda k: k.__module__.startswith("rarely."))
    }
    if name not in kinds:
        raise SnapshotError(
            f"holds a policy of kind {name!r}, which this version does not know; if the class is your own, import it "
            "before."
        )
    own = kinds[name].__module__.startswith("rarely.")
    if own:
        _check_sizes(Fields("settings", settings, {}), found.arrays)
    settings = grouped_settings(settings)
    if own:
        settings = settings_with_limits(settings)
    given = _read_settings(settings, beta)
    if own and saved.format == 1 and name != "Uniform":
        given["within_batch"] = "frozen"  # version 0.1 had nothing else
    policy = kinds[name](**given)
    if own:
        _check_settings(saved, settings, policy.settings())
    policy._restore(saved, settings.get("seed"))
    saved.finish()
    return policy


def _check_sketch(settings: Fields, arrays: Arrays) -> None:
    """Refuse a sketch of another size than the saved one, whose matrices would be allocated first."""
    form = settings.value("covariance") if "covariance" in settings else None
    if isinstance(form, dict):
        saved = [arrays[name] for name in ("covariance.running.pending", "covariance.basis") if name in arrays]
        if not saved:  # version 0.1 wrote the second one
            raise SnapshotError("must hold covariance.running.pending or covariance.basis. Use a backup.")
        fits = saved[0].ndim == 2 and form.get("size") == saved[0].shape[1]
        settings.require(fits, f"covariance must be a sketch of the saved size; it is {form}")


def _check_sizes(settings: Fields, arrays: Arrays) -> None:
    """Refuse settings by which the constructor would allocate larger arrays than the saved ones."""

    def width(name: str) -> int:
        if name not in arrays or arrays[name].ndim != 2:
            raise SnapshotError(f"must hold an array of two dimensions in {name}. Use a backup.")
        return int(arrays[name].shape[1])

    dim = settings.whole("dim", 1)
    fitting = width("history.contexts") == dim
    settings.require(fitting, f"dim must be {width('history.contexts')}, the columns of history.contexts; it is {dim}")
    if "hidden" in settings:
        settings.require("preset" in settings, "preset must be there")  # old names are grouped around it
        hidden, depth = settings.whole("hidden", 1), settings.whole("depth", 2, len(arrays))
        for i in range(depth):
            name = f"learner.initial{i}"
            large = width(name) >= (hidden if i else dim) and (i == depth - 1 or len(arrays[name]) == hidden)
            settings.require(large, f"hidden must be that of {name}, of shape {arrays[name].shape}; it is {hidden}")
    _check_sketch(settings, arrays)
    # An intercept of a thousand would be a thousand columns of ones.
    for name in ("intercept", "biases", "standardise_rewards", "warm_start"):
        if name in settings and not settings.is_null(name):
            settings.flag(name)


def _check_settings(saved: Fields, settings: dict[str, Any], made: dict[str, Any]) -> None:
    """Refuse settings other than those of a policy that was made with them: names that are left out, other values."""
    made = json.loads(json.dumps(made, default=archive.plain))
    if settings.get("seed") is None:  # files of version 0.1 do not tell it
        made["seed"] = None
    if saved.format == 1:  # it has fewer names, and fewer fields in the description of a radius
        made = {name: made[name] for name in settings.keys() & made.keys()} | {"beta": settings.get("beta")}
    for name in sorted(made):
        saved.require(name in settings or saved.format == 1, f"settings.{name} must be there")
        came = settings.get(name)
        saved.require(came == made[name], f"settings.{name} must be {made[name]!r}; it is {shortened(came)}")
    left = settings.keys() - made.keys()
    saved.require(not left, f"settings.{min(left, default='')} is none of its policy's")


def _read_settings(saved: dict[str, Any], beta: Beta | None) -> dict[str, Any]:
    """The constructor's arguments from what `settings` gave."""
    given = saved if beta is None else saved | {"beta": beta}
    return dict(zip(given, decoded(**given), strict=True))


def _kinds_of(kind: Any) -> Iterator[Any]:
    """All classes made of this one that are imported: the package's and the user's."""
    for made in kind.__subclasses__():
        yield made
        yield from _kinds_of(made)


def _check_beta(saved: Any, given: Beta | None, format: int) -> None:
    function = saved == FUNCTION or (saved is None and format == 1)
    if function and given is None:
        raise InvalidInput(
            "this policy's beta is a function, which a file cannot hold: give it to load(path, beta=...)."
        )
    if not function and given is not None:
        raise InvalidInput(f"this policy was saved with beta = {saved}; beta is given to load() only for a function.")
