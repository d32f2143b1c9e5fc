"""Bring back a saved policy: arrays and JSON, never pickle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from rarely.core import archive
from rarely.core.choice import Mixture
from rarely.core.covariance import form_from
from rarely.core.errors import InvalidInput, SnapshotError
from rarely.core.forgetting import forgetting_from
from rarely.core.policy import Policy
from rarely.core.radius import FUNCTION, Beta, beta_from
from rarely.core.scaling import Affine
from rarely.core.schedules import schedule_from


def load(path: str | os.PathLike[str], *, beta: Beta | None = None) -> Any:
    """The policy that `save` wrote, with the same future bit for bit (in the same environment).

    A `beta` that is a function is not saved: give it again here.
    """
    header, arrays = archive.read(path)
    name = header.get("policy")
    # The package's own names are its own, whatever is imported beside them.
    kinds = {
        kind.__name__: kind for kind in sorted(_kinds_of(Policy), key=lambda k: k.__module__.startswith("rarely."))
    }
    if name not in kinds:
        raise SnapshotError(
            f"{os.fspath(path)} holds a policy of kind {name!r}, which this version does not know; if the class is "
            "your own, import it before."
        )
    settings = dict(header["settings"])
    if "schedule" in settings:
        settings["schedule"] = schedule_from(settings["schedule"])
    if settings.get("context_scale") is not None:
        settings["context_scale"] = Affine(**settings["context_scale"])
    if settings.get("exploration") is not None:
        settings["exploration"] = Mixture(**settings["exploration"])
    if "forgetting" in settings:
        settings["forgetting"] = forgetting_from(settings["forgetting"])
    if "covariance" in settings:
        settings["covariance"] = form_from(settings["covariance"])
    if "beta" in settings:
        settings["beta"] = _read_beta(settings["beta"], beta)
    policy = kinds[name](**settings)
    policy._restore(header, arrays)
    return policy


def _kinds_of(kind: Any) -> Iterator[Any]:
    """All classes made of this one that are imported: the package's and the user's."""
    for made in kind.__subclasses__():
        yield made
        yield from _kinds_of(made)


def _read_beta(saved: Any, given: Beta | None) -> Beta:
    saved = None if saved == FUNCTION else saved
    if saved is None and given is None:
        raise InvalidInput(
            "this policy's beta is a function, which a file cannot hold: give it to load(path, beta=...)."
        )
    if saved is not None and given is not None:
        raise InvalidInput(f"this policy was saved with beta = {saved}; beta is given to load() only for a function.")
    return beta_from(saved) if given is None else given
