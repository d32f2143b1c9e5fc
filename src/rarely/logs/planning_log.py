"""A log to plan from: the features of past rounds, and the rewards that are known of them.

    n, K      rounds and arms of the log
    features  (n, r)      one row a round: an arm's context is the row in the arm's block
              (n, K, f)   one row an arm: each brings features of its own
    rewards   (n, K)      NaN where none is known, which is almost everywhere: kept as (round, arm, reward)

Contexts come scaled as preset `practical` scales them, with a constant, and are made when they are asked for: K blocks
of every row at once would be K² times the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rarely.core.errors import InvalidContexts, InvalidInput, InvalidReward, check_whole
from rarely.core.inputs.arm_blocks import ArmBlocks, read_numbers
from rarely.core.inputs.scaling import Affine
from rarely.core.types import Array, IntArray
from rarely.logs.csv_columns import Coded, Role, read_columns
from rarely.logs.csv_lines import is_word
from rarely.logs.errors import InvalidLog

_Known = tuple[IntArray, IntArray, Array]


@dataclass(frozen=True, eq=False)
class Log:
    """Past rounds.

    Examples
    --------
    >>> log = Log.of([[0.5], [1.5], [2.5]], arms=2, chosen=[0, 1, 0], rewards=[1.0, 2.0, 3.0])
    >>> log
    <Log: 3 rounds, 2 arms, 1 features, 3 rewards>
    >>> log.contexts([0]).shape
    (1, 2, 4)
    """

    features: Array
    arms: int
    _known: _Known | None = None
    names: tuple[str, ...] = ()
    """What the features are called, where they have names."""
    arm_names: tuple[str, ...] = ()
    """What arms 0, 1, … are called, where they have names."""
    remarks: tuple[str, ...] = ()
    """What looked odd when it was read."""

    @classmethod
    def of(
        cls,
        features: Any,
        arms: int | None = None,
        chosen: Any = None,
        rewards: Any = None,
        names: Sequence[str] = (),
        arm_names: Sequence[str] = (),
    ) -> Log:
        """Arrays: (n, r) features and `arms`, or (n, K, f); arms chosen, 0 … K − 1, and their rewards, NaN if unknown.

        Where more than one reward of a round is known, rewards are (n, K), and nothing need be chosen.
        """
        rows = read_numbers(features, "features")
        if rows.ndim not in (2, 3) or not rows.size:
            raise InvalidContexts(
                f"features must have shape (n, r), one row a round, or (n, K, f), one row an arm; got {rows.shape}."
            )
        if not np.isfinite(rows).all():
            raise InvalidContexts("features must be finite; fill in missing numbers, or drop their rounds.")
        if rows.ndim == 3 and arms not in (None, rows.shape[1]):
            raise InvalidInput(f"features of shape {rows.shape} are of {rows.shape[1]} arms; got arms={arms!r}.")
        if rows.ndim == 2 and arms is None:
            raise InvalidInput("one row a round does not say how many arms there are; give arms.")
        count = rows.shape[1] if rows.ndim == 3 else arms
        check_whole("arms", count, 2)
        assert count is not None
        if len(arm_names) > count:
            raise InvalidInput(f"{len(arm_names)} arms are named, more than the {count} that there are.")
        known = _read_rewards(len(rows), int(count), chosen, rewards)
        return cls(rows, int(count), known, tuple(names), tuple(arm_names))

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        *,
        arms: int | None = None,
        features: Sequence[str] | None = None,
        arm: str | None = None,
        reward: str | None = None,
        round: str | None = None,
        ignore: Sequence[str] = (),
    ) -> Log:
        """A CSV file whose first line names its columns.

        One row a round, or, where `round` names a column, one row an arm: rows with the same entry there are the arms
        of one round, and a reward stands in the row of the arm that was chosen. `features` are all columns that are
        not named otherwise, nor to `ignore`, unless some are named. Empty rewards are unknown. Arms are numbered in
        the order of their names, or of their numbers where they are whole ones; `arm_names` keeps the names.
        """
        given: dict[Role, str | None] = {"arm": arm, "reward": reward, "round": round}
        roles = {role: name for role, name in given.items() if name is not None}
        read = read_columns(path, features, ignore, roles)
        remarks = tuple(
            f"Column {name} is taken for a feature, though its name suggests something else; ignore it (--ignore "
            f"{name}) if a policy could not know it before it decides."
            for name in read.suspicious
        )
        if read.round is not None:
            order, count = _by_round(path, read.round)
            rows = read.features[order].reshape(-1, count, read.features.shape[1])
            rewards = None if read.rewards is None else read.rewards[order].reshape(-1, count)
            return replace(cls.of(rows, arms, rewards=rewards, names=read.names), remarks=remarks)
        chosen = None if read.arm is None else read.arm.sorted()
        if read.rewards is not None and chosen is None:
            raise InvalidLog(f"{path}: a reward is an arm's; name the arm's column too.")
        there = () if chosen is None else chosen.values
        if arms is not None and len(there) > arms:
            raise InvalidLog(f"{path}: {len(there)} arms were chosen, more than the {arms} that there should be.")
        if arms is None and chosen is None:
            raise InvalidLog(
                f"{path}: one row a round does not say how many arms there are; give arms, or the arm's column."
            )
        picked = None if chosen is None else chosen.codes
        remarks += tuple(
            f"{name!r} in column {arm} is taken for an arm; drop its rows if it means that no arm is known."
            for name in there
            if is_word(name)
        )
        log = cls.of(read.features, arms or len(there), picked, read.rewards, read.names, there)
        return replace(log, remarks=remarks)

    def __repr__(self) -> str:
        known = "no rewards" if self._known is None else f"{len(self._known[2])} rewards"
        return f"<Log: {len(self)} rounds, {self.arms} arms, {self.features.shape[-1]} features, {known}>"

    def __len__(self) -> int:
        return len(self.features)

    @property
    def dim(self) -> int:
        """Numbers in a context."""
        return self._scale.dim if isinstance(self._scale, ArmBlocks) else self._scale.scaled_dim

    def contexts(self, rounds: Any) -> Array:
        """Scaled contexts (m, K, dim) of the rounds at these places of the log."""
        features = self.features[rounds]
        if isinstance(self._scale, ArmBlocks):
            return self._scale(features)
        return self._scale(features.reshape(-1, features.shape[-1])).reshape(*features.shape[:2], -1)

    def known(self) -> _Known:
        """Rounds and arms of the rewards that are known, and these."""
        if self._known is None:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        return self._known

    @property
    def rewards(self) -> Array | None:
        """Rewards as (n, K), NaN where unknown; None where none is known."""
        if self._known is None:
            return None
        rounds, arms, rewards = self._known
        table = np.full((len(self), self.arms), np.nan)
        table[rounds, arms] = rewards
        return table

    def arm_name(self, arm: int) -> str:
        """An arm's name, or its number."""
        return self.arm_names[arm] if arm < len(self.arm_names) else str(arm)

    @cached_property
    def _scale(self) -> ArmBlocks | Affine:
        if self.features.ndim == 2:
            return ArmBlocks.fit(self.features, self.arms)
        return Affine.fit(self.features.reshape(-1, self.features.shape[-1]))


def _read_rewards(count: int, arms: int, chosen: Any, rewards: Any) -> _Known | None:
    """Rewards that are known, with their rounds and arms, if any are."""
    if rewards is None:
        return None
    try:
        values = np.asarray(rewards, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidReward(f"rewards must be numbers, NaN where unknown; {error}.") from None
    if chosen is not None:
        picked = np.asarray(chosen)
        if picked.shape != (count,) or picked.dtype.kind not in "iu" or picked.min() < 0 or picked.max() >= arms:
            raise InvalidInput(f"chosen must be {count} whole numbers from 0 to {arms - 1}, an arm a round.")
        if values.shape != (count,):
            raise InvalidReward(f"rewards must be one for each of {count} rounds; got shape {values.shape}.")
        if np.isinf(values).any():
            raise InvalidReward("rewards must be finite, or NaN where unknown.")
        rounds = np.flatnonzero(~np.isnan(values))
        return (rounds, picked[rounds].astype(np.int64), values[rounds]) if rounds.size else None
    if values.shape != (count, arms):
        raise InvalidReward(f"without chosen arms rewards must have shape {(count, arms)}; got {values.shape}.")
    if np.isinf(values).any():
        raise InvalidReward("rewards must be finite, or NaN where unknown.")
    rounds, picked = np.nonzero(~np.isnan(values))
    return (rounds, picked, values[rounds, picked]) if rounds.size else None


def _by_round(path: str | Path, rounds: Coded) -> tuple[IntArray, int]:
    """The order that puts a round's rows together, rounds as they first appear, and the arms of each."""
    counts = np.bincount(rounds.codes)
    if (odd := np.flatnonzero(counts != counts[0])).size:
        raise InvalidLog(
            f"{path}: every round must have as many rows, one for each arm; round {rounds.values[0]} has "
            f"{counts[0]}, round {rounds.values[odd[0]]} has {counts[odd[0]]}. Plan for the rounds with the most usual "
            "number of arms."
        )
    return np.argsort(rounds.codes, kind="stable"), int(counts[0])
