"""Types of arrays, what classes are written with, and the decision that a policy returns.

n  rounds in a call    K  arms (the largest number, if rounds differ)    d  numbers in a context
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
"""float64 or float32: training may run in either, everything that `select` computes is an `Array`."""
Arrays = dict[str, NDArray[Any]]  # the arrays of a saved state, by name
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def forwarded(path: str, doc: str | None = None) -> Any:
    """Return a property that is an attribute, or a method, of a part, such as "clock.version"."""
    return property(attrgetter(path), doc=doc)


PLAIN = {bool, int, float, str, type(None)}


class Described:
    """A dataclass whose fields are all there is to say about it."""

    __slots__ = ()

    def describe(self) -> dict[str, Any]:
        """Return its fields by name, as JSON."""
        value: Any = self
        named = {name: getattr(value, name) for name in value.__dataclass_fields__}
        # What has no parts needs no `asdict`, which before Python 3.12 copies every number deeply.
        return named if all(type(one) in PLAIN or one == () for one in named.values()) else asdict(value)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # a value, which never changes


LATER: dict[str, Callable[[Array], Any]] = {
    "means": itemgetter(0),
    "bonuses": itemgetter(1),
    "probabilities": itemgetter(2),
}
"""What is made of the scores of a decision, which a policy gives it in their place: (3, …), (5, …) with a worth, or
(6, …) under a ceiling."""


@dataclass(frozen=True, eq=False)
class Decision:
    """One round's decision, or n of them with a leading axis everywhere.

    Rounds are numbered from 1 and versions from 0, as in Algorithm 1. An arm that was absent in a round has NaN for
    mean and bonus, and probability 0.

    Examples
    --------
    >>> d = Decision(arm=np.array([1, 0]), means=np.zeros((2, 2)), bonuses=np.ones((2, 2)),
    ...              version=np.array([0, 0]), round=np.array([1, 2]), probabilities=np.full((2, 2), 0.5))
    >>> len(d), d[1].arm, d[1].round
    (2, 0, 2)
    """

    arm: int | IntArray
    """int, or (n,): the chosen arm."""
    means: Array
    """(K,) or (n, K): the predicted reward of every arm, in reward units."""
    bonuses: Array
    """(K,) or (n, K): how much more every arm may pay, in reward units; `source` says by which reckoning."""
    version: int | IntArray
    """int, or (n,): the frozen policy that decided."""
    round: int | IntArray
    """int, or (n,): the round number, by which `observe` finds the decision."""
    probabilities: Array
    """(K,) or (n, K): the distribution that the arm was drawn from; a single 1 for a rule that does not draw."""
    life: str = ""
    """The life of the policy that made it. A policy begins a new life when it is made, loaded, copied or unpickled, so
    that a decision lost in a crash is not mistaken for the later one with the same round number."""
    held_out: bool | BoolArray | None = None
    """bool, or (n,): whether a lot decided, as in a share of the rounds under a `Mixture`; None without one."""
    source: str | NDArray[np.str_] = "model"
    """str, or (n,): what the scores are those of. Of the "model" bonuses are β·ω·√(φᵀZ⁻¹φ); of "returning arms" they
    are bounds from the rewards of each arm alone (`returning_arms`); of "none" there is no model."""
    worth: Any = field(default_factory=type(None))
    """What outcomes are worth, a `Worth` of (K,) or (n, K), by which the arm was chosen; None where none was given."""
    price: float | Array | None = None
    """float, or (n,): the worth of a unit of a `Ceiling` when it was decided; None without one."""
    reason: str | NDArray[np.str_] = ""
    """str, or (n,): which of "cap", "ceiling", "sticky" and "holdout" had a say; see `Policy.under`."""
    slate: int | IntArray | None = None
    """int, or (n,): the round of the first slot of the slate that the round is a slot of; None for rounds that are no
    slots."""

    def __getattr__(self, name: str) -> Any:
        if name not in LATER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        made = self.__dict__[name] = LATER[name](self._scores)
        return made

    @property
    def arms(self) -> IntArray:
        """(n,): the chosen arms; (1,) for a single decision."""
        return np.atleast_1d(np.asarray(self.arm))

    @property
    def versions(self) -> IntArray:
        """(n,): the versions that decided; (1,) for a single decision."""
        return np.atleast_1d(np.asarray(self.version))

    @property
    def rounds(self) -> IntArray:
        """(n,): the round numbers; (1,) for a single decision."""
        return np.atleast_1d(np.asarray(self.round))

    @property
    def id(self) -> str | list[str]:
        """str, or a list of n: life and round, for `observe(ids=…)` after a restart or in another process."""
        ids = [f"{self.life}-{number}" for number in self.rounds]
        return ids[0] if self.single else ids

    @property
    def propensity(self) -> float | Array:
        """float, or (n,): the probability of the chosen arm."""
        if self.single:
            return float(self.probabilities[self.arm])
        return self.probabilities[np.arange(len(self)), self.arms]

    def describe(self) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the decision as JSON, one dict for each round, for a log file or a message.

        >>> decision = Decision(arm=1, means=np.array([0.2, 0.5]), bonuses=np.array([0.3, np.nan]), version=0,
        ...                     round=7, probabilities=np.array([0.0, 1.0]), life="ab")
        >>> decision.describe()["arm"], decision.describe()["means"], decision.describe()["bonuses"]
        (1, [0.2, 0.5], [0.3, None])
        """
        if not self.single:
            return [described for i in range(len(self)) if isinstance(described := self[i].describe(), dict)]
        fields = {name: getattr(self, name) for name in ("id", "round", "version", "arm", "propensity")}
        fields["source"] = str(self.source)
        kinds = {"held_out": bool, "price": float, "slate": int}
        fields |= {name: kind(one) for name, kind in kinds.items() if (one := getattr(self, name)) is not None}
        if self.reason:
            fields["reason"] = str(self.reason)
        if self.worth is not None:
            fields["worth"] = self.worth.describe()
        numbers = {name: getattr(self, name).tolist() for name in ("means", "bonuses", "probabilities")}
        # JSON has no NaN, which stands for an absent arm.
        return fields | {name: [None if x != x else x for x in row] for name, row in numbers.items()}

    def __repr__(self) -> str:
        if not self.single:
            n, arms = len(self), ", ".join(map(str, self.arms[:8]))
            span = f"rounds {self.rounds[0]} … {self.rounds[-1]}" if n else "no rounds"
            return f"<{n} decisions: {span}, arms {arms}{', …' if n > 8 else ''}>"
        arm = int(self.arms[0])
        scores = f"mean {self.means[arm]:.4g}, bonus {self.bonuses[arm]:.4g}, probability {self.propensity:.4g}"
        return f"<Decision: round {self.round}, version {self.version}, arm {arm} of {len(self.means)} ({scores})>"

    @property
    def single(self) -> bool:
        """Whether this is one round without a leading axis."""
        return self.means.ndim == 1

    def __len__(self) -> int:
        if self.single:
            raise TypeError("a single decision has no length; select on (n, K, d) gives n of them")
        return len(self.arms)

    def __getitem__(self, rounds: Any) -> Decision:
        if self.single:
            raise TypeError("a single decision cannot be sliced; select on (n, K, d) gives n of them")
        fields: dict[str, Any] = {name: getattr(self, name) for name in _BY_ROUND}
        for name, value in fields.items():
            if value is not None and not isinstance(value, str):
                fields[name] = (value if name == "worth" else np.asarray(value))[rounds]
        if np.ndim(fields["arm"]) == 0:
            fields |= {name: int(fields[name]) for name in ("arm", "version", "round")}
        return Decision(**fields, life=self.life)

    @classmethod
    def joined(cls, parts: list[Decision], **others: Any) -> Decision:
        """Return decisions as one, with `others` in place of its fields; all are single, or none is."""
        single = parts[0].single

        def column(values: list[Any]) -> Any:
            if all(value is None for value in values):
                return None
            if single:
                return np.array(values)
            pairs = zip(values, parts, strict=True)
            return np.concatenate([value if np.ndim(value) else np.repeat(value, len(part)) for value, part in pairs])

        fields = {name: column([getattr(part, name) for part in parts]) for name in _BY_ROUND if name != "worth"}
        if fields["held_out"] is not None:
            fields["held_out"] = fields["held_out"].astype(np.bool_)  # None, where no lot had a part in a round
        if (worth := parts[0].worth) is not None:
            columns = [column([getattr(part.worth, name) for part in parts]) for name in worth.__slots__]
            fields["worth"] = type(worth)(*columns)
        return cls(**(fields | {"life": parts[0].life} | others))


_BY_ROUND = [name for name in Decision.__dataclass_fields__ if name != "life"]
"""Fields of a decision with a value for each round, or one for all."""
