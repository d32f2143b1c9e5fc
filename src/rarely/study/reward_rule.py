"""How rewards count: how long they are waited for, what stands in for one that never came, how several become one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any, Literal

from rarely.core.errors import check_choice
from rarely.study.errors import InvalidStudy

LARGEST = 1e100
"""A reward beyond this would overflow in every later training; it is out of every range."""
Aggregation = Literal["first", "last", "sum"]


@dataclass(frozen=True, slots=True)
class RewardRule:
    """How the rewards of a study count.

    Parameters
    ----------
    aggregation
        "first": the first reward of a decision counts, and a second one goes to the quarantine. "last" and "sum" need
        a waiting window, and count when it has closed.
    wait
        Seconds after a decision in which its rewards are accepted; None for no end. A reward that comes later is
        recorded as late and not learned from.
    default
        The reward of a decision for which none came in its window; None to learn nothing from it.
    least, most
        The range of a single reward; others go to the quarantine. None for no limit but ±1e100, beyond which trainings
        would overflow.

    Examples
    --------
    >>> RewardRule(wait=7 * 24 * 3600, default=0.0, least=0.0, most=1.0).aggregation
    'first'
    >>> RewardRule("sum")
    Traceback (most recent call last):
        ...
    rarely.study.errors.InvalidStudy: aggregation 'sum' needs wait, the seconds after which a decision's rewards are \
complete; got None.
    """

    aggregation: Aggregation = "first"
    wait: float | None = None
    default: float | None = None
    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        check_choice("aggregation", self.aggregation, Aggregation)
        for name in ("wait", "default", "least", "most"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise InvalidStudy(f"{name} must be a finite number or None; got {value!r}.")
            if value is not None and not -LARGEST <= float(value) <= LARGEST:
                raise InvalidStudy(f"{name} must be a number from -1e100 to 1e100, or None; got {value!r}.")
        if self.wait is not None and self.wait <= 0:
            raise InvalidStudy(f"wait must be a positive number of seconds, or None for no end; got {self.wait!r}.")
        if self.wait is None and self.aggregation != "first":
            raise InvalidStudy(
                f"aggregation {self.aggregation!r} needs wait, the seconds after which a decision's rewards are "
                "complete; got None."
            )
        if self.wait is None and self.default is not None:
            raise InvalidStudy("default needs wait, the seconds after which a reward counts as missing; got None.")
        if self.least is not None and self.most is not None and self.least >= self.most:
            raise InvalidStudy(f"least must be below most; got {self.least!r} and {self.most!r}.")

    @property
    def window(self) -> int | None:
        """`wait` in microseconds."""
        return None if self.wait is None else round(float(self.wait) * 1e6)

    def contains(self, value: float) -> bool:
        """Whether a reward is in range."""
        low = -LARGEST if self.least is None else self.least
        return low <= value <= (LARGEST if self.most is None else self.most)

    def describe(self) -> dict[str, Any]:
        """The rule as JSON: its fields, so `RewardRule(**description)` is the inverse."""
        return {k: float(v) if isinstance(v, Real) else v for k, v in asdict(self).items()}
