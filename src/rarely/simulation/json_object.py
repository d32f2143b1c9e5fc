"""The fields of a JSON object that somebody may have edited: each is asked for with what it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rarely.core.saving.fields import shortened
from rarely.simulation.sealed_json import Malformed

LARGEST = 1e100
"""Numbers beyond this are nonsense, and their squares would overflow."""
LARGEST_WHOLE = 2**63 - 1


@dataclass(frozen=True)
class JsonObject:
    """An object and where it stands; a field that is missing or wrong raises `Malformed` with its name.

    >>> JsonObject({"runs": 3}).whole("runs", 1)
    3
    >>> JsonObject({"wall": {"cell": -1.0}}).inside("wall").number("cell", 0)
    Traceback (most recent call last):
    rarely.simulation.sealed_json.Malformed: wall.cell must be a number from 0 to 1e+100; it is -1.0
    """

    data: dict[str, Any]
    within: str = ""
    """The names of the objects around it, each with a dot."""

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.data.get(name) is not None

    def wrong(self, name: str, must: str) -> Malformed:
        """The error that says what a field must be."""
        return Malformed(f"{self.within}{name} must be {must}; it is {shortened(self.data[name])}")

    def value(self, name: str) -> Any:
        """Any value."""
        if name not in self.data:
            raise Malformed(f"{self.within}{name} is missing")
        return self.data[name]

    def whole(self, name: str, least: int, most: int = LARGEST_WHOLE) -> int:
        """A whole number."""
        value = self.value(name)
        if not _is_whole(value) or not least <= value <= most:
            raise self.wrong(name, f"a whole number {least} … {most}")
        return int(value)

    def number(self, name: str, least: float = -LARGEST, most: float = LARGEST) -> float:
        """A finite number."""
        value = self.value(name)
        if not _is_number(value) or not least <= value <= most:
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def text(self, name: str) -> str:
        """Text that can be written: JSON also knows halves of characters."""
        value = self.value(name)
        if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise self.wrong(name, "text")
        return value

    def one_of(self, name: str, choices: Sequence[Any]) -> Any:
        """One of a few values."""
        value = self.value(name)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise self.wrong(name, f"one of {', '.join(map(str, choices))}")
        return value

    def inside(self, name: str) -> JsonObject:
        """The fields of an object inside."""
        value = self.value(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return JsonObject(value, f"{self.within}{name}.")

    def items(self, name: str, count: int | None = None) -> list[Any]:
        """A list, of so many values."""
        value = self.value(name)
        if not isinstance(value, list) or (count is not None and len(value) != count):
            raise self.wrong(name, "a list" if count is None else f"a list of {count}")
        return value

    def numbers(self, name: str, count: int | None = None) -> list[float]:
        """A list of finite numbers."""
        value = self.items(name, count)
        if not all(map(_is_number, value)):
            raise self.wrong(name, "a list of numbers")
        return [float(number) for number in value]

    def rising(self, name: str, least: int, most: int) -> list[int]:
        """A list of whole numbers, each above the one before."""
        value = self.items(name)
        within = all(_is_whole(number) and least <= number <= most for number in value)
        if not within or any(b <= a for a, b in pairwise(value)):
            raise self.wrong(name, f"a rising list of whole numbers {least} … {most}")
        return [int(number) for number in value]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    # A comparison and not math.isfinite, which overflows for an integer of 400 digits.
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST
