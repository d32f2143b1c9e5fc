"""Arrays, and the decision that a policy hands out.

n  rounds in a call    K  arms (the most, where rounds differ)    d  numbers in a context
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
"""float64 or float32: training may run in either, everything that `select` computes is an `Array`."""
Arrays = dict[str, NDArray[Any]]
"""The arrays of a saved state, by name."""
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One round's decision, or n of them with a leading axis everywhere.

    Rounds are numbered from 1 and versions from 0, as in Algorithm 1. An arm that was not there in a
    round has NaN for mean and bonus, and the probability 0.

    >>> d = Decision(arm=np.array([1, 0]), means=np.zeros((2, 2)), bonuses=np.ones((2, 2)),
    ...              version=np.array([0, 0]), round=np.array([1, 2]), probabilities=np.full((2, 2), 0.5))
    >>> len(d), d[1].arm, d[1].round
    (2, 0, 2)
    """

    arm: Any
    """int, or (n,): the chosen arm."""
    means: Array
    """(K,) or (n, K): the predicted reward of every arm, in reward units."""
    bonuses: Array
    """(K,) or (n, K): β·√(φᵀZ⁻¹φ) of every arm, in reward units."""
    version: Any
    """int, or (n,): the frozen policy that decided."""
    round: Any
    """int, or (n,): what `observe` needs to know."""
    probabilities: Array
    """(K,) or (n, K): what the arm was drawn from; a rule that does not draw has a single 1."""
    life: str = ""
    """Which life of the policy made it. A policy begins a new one when it is made, loaded, copied or unpickled, so
    that a decision lost in a crash is not taken for the one that got its round number afterwards."""

    @property
    def id(self) -> Any:
        """str, or a list of n: life and round, for `observe(ids=…)` after a restart or from another process."""
        return f"{self.life}-{self.round}" if self.single else [f"{self.life}-{number}" for number in self.round]

    @property
    def propensity(self) -> Any:
        """float, or (n,): the probability of the chosen arm."""
        if self.single:
            return float(self.probabilities[self.arm])
        return self.probabilities[np.arange(len(self.arm)), self.arm]

    @property
    def single(self) -> bool:
        """Whether this is one round without a leading axis."""
        return self.means.ndim == 1

    def __len__(self) -> int:
        if self.single:
            raise TypeError("a single decision has no length; select on (n, K, d) gives n of them")
        return len(self.arm)

    def __getitem__(self, rounds: Any) -> Decision:
        if self.single:
            raise TypeError("a single decision cannot be sliced; select on (n, K, d) gives n of them")
        arm, version, number = self.arm[rounds], self.version[rounds], self.round[rounds]
        if np.ndim(arm) == 0:
            arm, version, number = int(arm), int(version), int(number)
        chances = self.probabilities[rounds]
        return Decision(arm, self.means[rounds], self.bonuses[rounds], version, number, chances, self.life)
