"""The parts of a policy as JSON: schedules, rules, learners and maps of contexts, by their class and their fields.

A part of the user's is a frozen dataclass, whose author writes no saving: its fields are numbers, texts, None, arrays,
other parts, and tuples of these. What a file cannot hold is refused when the part is described or saved: left out, it
would come back with its default, as another part in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rarely._core.errors import InvalidInput, shown
from rarely._core.types import PLAIN

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


def described(part: Any) -> dict[str, Any]:
    """Return a part as JSON: its kind, and its fields by name."""
    kind = type(part).__name__
    return {"kind": kind} | {name: as_json(f"{kind}.{name}", value) for name, value in fields_of(part).items()}


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
