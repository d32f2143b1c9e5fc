"""What an arm's outcome is worth, said with the round: prices change without a training.

    u   gain   (n, K)   worth of one unit of the outcome        v   cost   (n, K)   worth that showing the arm costs

A policy learns outcomes y. With worth u·y − v its score of an arm is u·mean + |u|·bonus − v: an upper bound stays one,
and a Gaussian stays a Gaussian. v = ∞ says what a mask says: the arm is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import InvalidWorth, shown
from rarely._core.inputs.contexts import RoundContexts
from rarely._core.reading import read_real
from rarely._core.types import LATER, Array


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """What outcomes are worth: u·outcome − v, for each arm.

    Parameters
    ----------
    gain, cost
        u and v: one number, (K,) for each arm, or (n, K) for n rounds; or the name of a column of items, for a
        `FramePolicy`. Where v is infinite, the arm is not available.
    spends
        What showing the arm takes from a `Ceiling`, likewise; None where there is none, or where costs are learned.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> policy = LinUCB(dim=1, seed=0)
    >>> policy.select([[1.0], [1.0]], worth=Worth(gain=[9.0, 3.0])).arm
    0
    >>> policy.select([[1.0], [1.0]], worth=Worth(gain=[9.0, 3.0], cost=[7.0, 0.0])).arm
    1
    """

    gain: Any = 1.0
    cost: Any = 0.0
    spends: Any = None

    def __getitem__(self, rounds: Any) -> Worth:
        return Worth(*(None if each is None else each[rounds] for each in (self.gain, self.cost, self.spends)))

    def of_arms(self, names: Sequence[str]) -> Worth:
        """Return it with lists in the place of numbers by the names of arms."""
        by_name = {}
        for name in self.__slots__:
            if isinstance(said := getattr(self, name), Mapping):
                if set(said) != {*names}:
                    wanted = f"each of {', '.join(names)}" if names else "no names, because arms have none"
                    raise InvalidWorth(f"{name} of a worth by arm must have {wanted}; got {shown(said)}.")
                by_name[name] = [said[arm] for arm in names]
        return replace(self, **by_name)

    def of(self, outcomes: Any) -> Array:
        """Return what outcomes are worth."""
        return np.asarray(self.gain * np.asarray(outcomes) - self.cost)

    def cost_apart(self, there: Any = True) -> Array:
        """Return v, (n, K), less the least of the arms there in each round: what all have in common decides nothing.

        >>> Worth(cost=np.array([[1e15, 1e15 + 2, 0.0]])).cost_apart([[True, True, False]])
        array([[ 0.e+00,  2.e+00, -1.e+15]])
        """
        return np.asarray(self.cost - np.min(self.cost, axis=1, keepdims=True, where=there, initial=np.inf))

    def describe(self) -> dict[str, Any]:
        """Return the numbers as JSON."""
        named = {"gain": self.gain, "cost": self.cost, "spends": self.spends}
        return {name: np.asarray(value).tolist() for name, value in named.items() if value is not None}

    @classmethod
    def joined(cls, parts: list[Worth | None], widths: list[int], width: int) -> Worth | None:
        """Return (n, K) of rounds, (K_i,) each or None for outcomes as they are, padded; None where all are None."""
        if all(part is None for part in parts):
            return None
        columns = []
        for name, usual in (("gain", 1.0), ("cost", 0.0), ("spends", 0.0)):
            values = np.full((len(parts), width), usual)
            for i, part in enumerate(parts):
                values[i, : widths[i]] = usual if part is None or getattr(part, name) is None else getattr(part, name)
            columns.append(values)
        spends = any(part is not None and part.spends is not None for part in parts)
        return cls(columns[0], columns[1], columns[2] if spends else None)


LATER["worth"] = lambda scores: Worth(*scores[3:])


def worth_from(worth: Any) -> Worth:
    """Return a worth as users give it: a `Worth`, a dict of its fields, or the gain alone."""
    if isinstance(worth, Worth):
        return worth
    if isinstance(worth, dict) and worth.keys() & {"gain", "cost", "spends"}:
        unknown = worth.keys() - {"gain", "cost", "spends"}
        if unknown:
            raise InvalidWorth(f"worth must have some of gain, cost and spends; got {shown(worth)}.")
        return Worth(**worth)
    return Worth(worth)


def with_worth(rounds: RoundContexts, worth: Any, *, ceiling: bool = False) -> RoundContexts:
    """Return rounds whose arms have this worth; those of infinite cost are not available.

    Without a `ceiling` there is nothing of which they could spend.
    """
    asked, there = worth_from(worth), rounds.present
    if asked.spends is not None and not ceiling:
        raise InvalidWorth(
            "spends of a worth is for a policy with a ceiling: policy.under(Ceiling(total)). Leave it out."
        )
    gain, cost = (_read(getattr(asked, name), name, rounds) for name in ("gain", "cost"))
    spends = None if asked.spends is None else _read(asked.spends, "spends", rounds)
    for name, values, wrong in (
        ("gain", gain, ~np.isfinite(gain)),
        ("cost", cost, np.isnan(cost) | (cost == -np.inf)),
        *(() if spends is None else [("spends", spends, ~(np.isfinite(spends) & (spends >= 0)))]),
    ):
        if (wrong & there).any():
            i, arm = np.argwhere(wrong & there)[0].tolist()
            least = "a finite number of at least 0" if name == "spends" else "a finite number"
            also = ", or infinite for an arm that is not available" if name == "cost" else ""
            raise InvalidWorth(
                f"{name} of a worth must be {least} for each arm{also}; that of arm {arm} in round {i} of the call is "
                f"{values[i, arm]}."
            )
    offered = there & (cost < np.inf)
    gone = bool((offered != there).any())
    # What absent arms are given counts nowhere.
    read = Worth(*(None if each is None else np.where(offered, each, 0.0) for each in (gain, cost, spends)))
    if not gone:
        return replace(rounds, worth=read)
    given: NDArray[Any] | list[Array] = rounds.given
    if isinstance(given, list):
        given = [each[offered[i, : len(each)]] for i, each in enumerate(given)]
    elif given.shape[1] != there.shape[1]:
        raise InvalidWorth("cost must be finite for the open arms of a Roster; close an arm with roster.close(name).")
    return replace(rounds, given=given, present=offered, complete=False, worth=read)


def _read(values: Any, name: str, rounds: RoundContexts) -> Array:
    """Return (n, K) numbers."""
    shape = rounds.present.shape
    if isinstance(values, list | tuple) and isinstance(rounds.given, list) and len(values) == len(rounds):
        ragged = [np.asarray(read_real(each, f"{name} of a worth", InvalidWorth)) for each in values]
        if [each.shape for each in ragged] == [(len(each),) for each in rounds.given]:
            return np.array([np.pad(each, (0, shape[1] - len(each))) for each in ragged])
    array = read_real(values, f"{name} of a worth", InvalidWorth)
    if array.shape not in ((), shape[1:], shape):
        each = f"({shape[1]},)" if rounds.single else f"({shape[1]},) or {shape}"
        raise InvalidWorth(f"{name} of a worth must be one number, or of shape {each}; got shape {array.shape}.")
    return np.full(shape, array)
