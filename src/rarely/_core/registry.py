"""Classes by their names: what a file or a setting names is found among those that are imported.

A base class adds every subclass when it is defined, the package's and the user's alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from rarely._core.errors import InvalidInput, RarelyError, nearest, shown
from rarely._core.parts import from_json

Part = TypeVar("Part")


def is_own(kind: type) -> bool:
    """Return whether a class belongs to this package."""
    return kind.__module__.partition(".")[0] == "rarely"


class Registry(dict[str, type[Part]]):
    """The subclasses of one base class, by name; those of `later` are in modules that are imported when they are named.

    >>> registry = Registry[int]("a number")
    >>> registry.add(bool)
    >>> registry["bool"], "int" in registry
    (<class 'bool'>, False)
    """

    def __init__(self, what: str, error: type[RarelyError] = InvalidInput, later: Mapping[str, str] = {}) -> None:
        super().__init__()
        self._what, self._error, self._later = what, error, later
        self.changes = 0  # how often a class was registered

    def add(self, kind: type[Part], name: str | None = None) -> None:
        """Register a class; a user's does not replace one of the package, and a later definition replaces a former."""
        name = kind.__name__ if name is None else name
        if is_own(kind) or not (name in self._later or is_own(self.get(name, object))):
            self[name] = kind
            self.changes += 1

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._later

    def __missing__(self, name: Any) -> type[Part]:
        if isinstance(name, str) and name in self._later:
            import_module(self._later[name])  # which adds it
            return self[name]
        names = sorted({*self, *self._later})
        raise self._error(
            f"{self._what} must be one of {', '.join(names)}; got {shown(name)}. {nearest(name, names)}If the "
            "class is your own, import its module first."
        )

    def made(self, description: dict[str, Any]) -> Part:
        """Return the value that a description names by its kind and its fields."""
        given = {name: from_json(value) for name, value in description.items() if name != "kind"}
        return self[description["kind"]](**given)


def made(description: dict[str, Any], *kinds: type) -> Any:
    """Return the value of one of these classes that a description names."""
    registry = Registry[Any]("kind")
    registry |= {kind.__name__: kind for kind in kinds}
    return registry.made(description)
