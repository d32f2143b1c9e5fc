"""What is measured. A second on one machine says little on another, so a figure is a ratio within one run.

figure      a number with its unit, which way is better, and the target that it must reach, if there is one
benchmark   what makes one figure, or a few that share their work
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rarely import InvalidInput, RarelyError
from rarely._core.errors import check_choice

Better = Literal["higher", "lower"]
When = Literal["quick", "full", "named"]
"""quick: always. full: a minute or more, left out by --quick. named: very long, only by its name or with --all."""
Tell = Callable[[str], None]
"""Hears how far a long benchmark is."""


class NotMeasured(RarelyError):
    """What a benchmark needs is not here; the message says what."""


class BenchmarkFailed(RarelyError):
    """A benchmark could not be finished."""


@dataclass(frozen=True)
class Figure:
    """One number.

    >>> Figure("decision", "One decision over one read.", 2.5, "times", "lower", seconds=0.002, asked=2.0).reached
    False
    """

    name: str
    says: str
    """What it is, in one sentence."""
    value: float
    unit: str
    better: Better
    seconds: float
    """The raw time behind it."""
    asked: float | None = None
    """The target: at least this where higher is better, at most this where lower is."""
    note: str = ""

    def __post_init__(self) -> None:
        check_choice("better", self.better, Better)
        if not math.isfinite(self.value):
            raise InvalidInput(f"a figure must be a finite number; {self.name} is {self.value}.")

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.asked is None:
            return None
        return self.value >= self.asked if self.better == "higher" else self.value <= self.asked


@dataclass(frozen=True)
class Benchmark:
    """A measurement by name."""

    name: str
    says: str
    measure: Callable[[Tell], Sequence[Figure]]
    when: When = "quick"
