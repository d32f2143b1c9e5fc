"""The parts of a policy, schedules, rules, learners and maps of contexts, as JSON: their class and their fields.

A base class registers every subclass when it is defined, the package's and the user's alike; what a file or a setting
names is found among those that are imported. A part of the user's is a frozen dataclass, whose author writes no saving:
its fields are numbers, texts, None, arrays, other parts, and tuples of these. What a file cannot hold is refused when
the part is described or saved: left out, it would come back with its default, as another part in silence.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np

from rarely._core.errors import InvalidInput, RarelyError, nearest, shown
from rarely._core.types import PLAIN

T = TypeVar("T")
ARRAYS = ("float64", "float32", "int64", "bool")  # what arrays may be of
READERS: dict[str, Callable[[dict[str, Any]], Any]] = {}
"""What makes a part of its description, by the name of the class that all parts of its kind derive from."""


def fields_of(part: Any) -> dict[str, Any]:
    """Return the fields that a part's constructor takes, by name."""
    if not is_dataclass(part):
        raise InvalidInput(
            f"{type(part).__name__} must be a frozen dataclass, of which a file holds the fields, or say itself how it "
            "is described and saved."
        )
    return {each.name: getattr(part, each.name) for each in fields(part) if each.init}


def as_json(name: str, value: Any) -> Any:
    """Return a field as JSON; `name` is the field's in errors."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray) and value.dtype.name in ARRAYS:
        return {"array": value.ravel().tolist(), "shape": list(value.shape), "dtype": value.dtype.name}
    if isinstance(value, list | tuple):
        return [as_json(name, each) for each in value]
    if type(value) in PLAIN:
        return value
    if part := next((base.__name__ for base in type(value).__mro__ if base.__name__ in READERS), ""):
        return {"part": part} | value.describe()
    raise InvalidInput(
        f"{name} must be a number, a text, None, an array of {', '.join(ARRAYS)}, a part such as a map of "
        f"contexts, or a tuple of these, for a file to hold it; got {shown(value)}."
    )


def from_json(value: Any) -> Any:
    """Return the field that `as_json` has made JSON of, lists as tuples.

    >>> from_json(as_json("size", (1, None))), from_json(as_json("weights", np.array([[1, 2]])))
    ((1, None), array([[1, 2]]))
    """
    if isinstance(value, list):
        return tuple(map(from_json, value))
    if not isinstance(value, dict) or not value.keys() & {"part", "array"}:
        return value
    if "part" in value:
        return READERS[value["part"]]({name: each for name, each in value.items() if name != "part"})
    if value["dtype"] not in ARRAYS:
        raise InvalidInput(f"an array must be one of {', '.join(ARRAYS)}; got {shown(value['dtype'])}.")
    return np.array(value["array"], value["dtype"]).reshape(value["shape"])


def is_own(kind: type) -> bool:
    """Return whether a class belongs to this package."""
    return kind.__module__.partition(".")[0] == "rarely"


class Registry(dict[str, type[T]]):
    """The subclasses of one base class, by name; those of `later` are imported with their modules when named."""

    def __init__(self, what: str, error: type[RarelyError] = InvalidInput, later: Mapping[str, str] = {}) -> None:
        super().__init__()
        self._what, self._error, self._later = what, error, later
        self.changes = 0  # how often a class was registered

    def add(self, kind: type[T], name: str | None = None) -> None:
        """Register a class; a user's does not replace one of the package, and a later definition replaces a former."""
        name = kind.__name__ if name is None else name
        if is_own(kind) or not (name in self._later or is_own(self.get(name, object))):
            self[name] = kind
            self.changes += 1

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._later

    def __missing__(self, name: Any) -> type[T]:
        if isinstance(name, str) and name in self._later:
            import_module(self._later[name])  # which adds it
            return self[name]
        names = sorted({*self, *self._later})
        raise self._error(
            f"{self._what} must be one of {', '.join(names)}; got {shown(name)}. {nearest(name, names)}If the "
            "class is your own, import its module first."
        )

    def made(self, description: dict[str, Any]) -> T:
        """Return the value that a description names by its kind and its fields."""
        given = {name: from_json(value) for name, value in description.items() if name != "kind"}
        return self[description["kind"]](**given)


def made(description: dict[str, Any], *kinds: type) -> Any:
    """Return the value of one of these classes that a description names."""
    registry = Registry[Any]("kind")
    registry |= {kind.__name__: kind for kind in kinds}
    return registry.made(description)


class OfKind:
    """A dataclass of one of several kinds, which is described by its kind and its fields."""

    __slots__ = ()

    def describe(self) -> dict[str, Any]:
        """Return it as JSON: its kind, and its fields by name."""
        kind = type(self).__name__
        return {"kind": kind} | {name: as_json(f"{kind}.{name}", value) for name, value in fields_of(self).items()}


class Part(OfKind, ABC):
    """A part of a policy; the definition of a subclass registers it."""

    __slots__ = ()
    registry: ClassVar[Registry[Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "registry" not in vars(cls):
            cls.registry.add(cls)
