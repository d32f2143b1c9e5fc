"""A log to plan from: the features of past rounds, and the rewards that are known of them.

    n, K      rounds and arms of the log
    features  (n, r)      one row a round: an arm's context is the row in the arm's block
              (n, K, f)   one row an arm: each brings features of its own
    rewards   (n, K)      NaN where none is known, which is almost everywhere; None where none is

Contexts come scaled as preset `practical` scales them, with a constant, and are made when they are asked for: K blocks
of every row at once would be K² times the log.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rarely.core.blocks import ArmBlocks, read_numbers
from rarely.core.errors import InvalidContexts, InvalidInput, InvalidReward, check_whole
from rarely.core.scaling import Affine
from rarely.core.types import Array, IntArray
from rarely.worlds.table import MISSING


class InvalidLog(InvalidInput):
    """A table of past rounds that cannot be read as one."""


@dataclass(frozen=True, eq=False)
class Log:
    """Past rounds.

    >>> log = Log.of([[0.5], [1.5], [2.5]], arms=2, chosen=[0, 1, 0], rewards=[1.0, 2.0, 3.0])
    >>> log
    <Log: 3 rounds, 2 arms, 1 features, 3 rewards>
    >>> log.contexts([0]).shape
    (1, 2, 4)
    """

    features: Array
    arms: int
    rewards: Array | None = None
    names: tuple[str, ...] = ()
    """What the features are called, where they have names."""

    @classmethod
    def of(
        cls,
        features: Any,
        arms: int | None = None,
        chosen: Any = None,
        rewards: Any = None,
        names: Sequence[str] = (),
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
        return cls(rows, int(count), _read_rewards(len(rows), int(count), chosen, rewards), tuple(names))

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
    ) -> Log:
        """A CSV file whose first line names its columns.

        One row a round, or, where `round` names a column, one row an arm: rows with the same entry there are the arms
        of one round, and a reward stands in the row of the arm that was chosen. `features` are all columns that are
        not named otherwise, unless some are named. Empty rewards are unknown.
        """
        # Arms with rows of their own need no name, but the column that has it is no feature either.
        roles = {_REWARD: reward, _ROUND: round} | ({} if round else {_ARM: arm})
        columns = _columns(path, features, {role: name for role, name in roles.items() if name is not None}, arm)
        names = tuple(name for name in columns if name not in roles)
        rows = np.column_stack([columns[name] for name in names])
        rewards = columns.get(_REWARD)
        if round is None:
            chosen = columns.get(_ARM)
            if rewards is not None and chosen is None:
                raise InvalidLog(f"{path}: a reward is an arm's; name the arm's column too.")
            return _one_row_a_round(path, rows, arms, chosen, rewards, names)
        order, count = _by_round(path, columns[_ROUND])
        grouped = rows[order].reshape(-1, count, rows.shape[1])
        known = None if rewards is None else np.asarray(rewards)[order].reshape(-1, count)
        return cls.of(grouped, arms, rewards=known, names=names)

    def __repr__(self) -> str:
        known = "no rewards" if self.rewards is None else f"{np.count_nonzero(~np.isnan(self.rewards))} rewards"
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

    def known(self) -> tuple[IntArray, IntArray, Array]:
        """Rounds and arms of the rewards that are known, and these."""
        if self.rewards is None:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        rounds, arms = np.nonzero(~np.isnan(self.rewards))
        return rounds, arms, self.rewards[rounds, arms]

    @cached_property
    def _scale(self) -> ArmBlocks | Affine:
        if self.features.ndim == 2:
            return ArmBlocks.fit(self.features, self.arms)
        return Affine.fit(self.features.reshape(-1, self.features.shape[-1]))


def _read_rewards(count: int, arms: int, chosen: Any, rewards: Any) -> Array | None:
    """Rewards as (n, K), if any are known."""
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
        values, told = np.full((count, arms), np.nan), values
        values[np.arange(count), picked] = told
    if values.shape != (count, arms):
        raise InvalidReward(f"without chosen arms rewards must have shape {(count, arms)}; got {values.shape}.")
    if np.isinf(values).any():
        raise InvalidReward("rewards must be finite, or NaN where unknown.")
    return None if np.isnan(values).all() else values


# Columns that are not features, under keys that no file can have.
_ARM, _REWARD, _ROUND = "\0arm", "\0reward", "\0round"
_Columns = dict[str, Any]


def _columns(path: str | Path, features: Sequence[str] | None, roles: dict[str, str], left_out: str | None) -> _Columns:
    """Every column that is wanted: features and rewards as numbers, arms and rounds as they are written."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            wanted = _places(path, header, features, roles, left_out)
            return _read(path, ((reader.line_num, line) for line in reader if line), header, wanted)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidLog(f"{path} is not a CSV file in UTF-8: {error}.") from error
    except OSError as error:
        raise InvalidLog(f"{path} cannot be read: {error.strerror}.") from error


def _places(
    path: str | Path, header: list[str], features: Sequence[str] | None, roles: dict[str, str], left_out: str | None
) -> dict[str, int]:
    """Where each column that is wanted stands."""
    if not header:
        raise InvalidLog(f"{path} is empty; its first line must name the columns.")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InvalidLog(f"{path}: the columns' names must differ; {twice!r} is there more than once.")
    taken = {*roles.values(), left_out}
    if features is None:
        features = [name for name in header if name not in taken]
    for name in (*features, *roles.values()):
        if name not in header:
            raise InvalidLog(f"{path} has no column {name!r}; its columns are {', '.join(header)}.")
    if both := [name for name in features if name in taken]:
        raise InvalidLog(f"{path}: {both[0]!r} cannot be a feature and something else; leave it out of the features.")
    if not features:
        raise InvalidLog(f"{path} has no column left for the features; its columns are {', '.join(header)}.")
    return {name: header.index(name) for name in features} | {role: header.index(at) for role, at in roles.items()}


def _read(
    path: str | Path, lines: Iterable[tuple[int, list[str]]], header: list[str], wanted: dict[str, int]
) -> _Columns:
    """Numbers are kept as 8 bytes each, and nothing else of a long file is."""
    columns: _Columns = {name: [] if name in (_ARM, _ROUND) else array("d") for name in wanted}
    text: dict[str, str] = {}
    for number, line in lines:
        if len(line) != len(header):
            raise InvalidLog(f"{path}, line {number}: {len(header)} fields are expected; got {len(line)}.")
        for name, at in wanted.items():
            field = line[at].strip()
            if name in (_ARM, _ROUND):
                if field.lower() in MISSING:
                    raise InvalidLog(f"{path}, line {number}: {header[at]} must not be {field!r}; drop the row.")
                columns[name].append(field)
            elif name == _REWARD and field.lower() in MISSING:
                columns[name].append(math.nan)
            elif (value := _number(field)) is not None:
                columns[name].append(value)
            else:
                text.setdefault(header[at], f"{field!r} in line {number}")
    if text:
        raise InvalidLog(
            f"{path}: features and rewards must be finite numbers, but "
            + ", ".join(f"{name} has {where}" for name, where in text.items())
            + ". Name the columns that are features, code text as numbers, and fill in gaps or drop their rows."
        )
    if not len(next(iter(columns.values()))):
        raise InvalidLog(f"{path} has a header and no rows.")
    return columns


def _number(field: str) -> float | None:
    try:
        value = float(field)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _one_row_a_round(
    path: str | Path, rows: Array, arms: int | None, written: list[str] | None, rewards: Any, names: tuple[str, ...]
) -> Log:
    chosen = None
    if written is not None:
        arms_there, chosen = np.unique(written, return_inverse=True)
        if arms is not None and len(arms_there) > arms:
            raise InvalidLog(f"{path}: {len(arms_there)} arms were chosen, more than the {arms} that there should be.")
        arms = len(arms_there) if arms is None else arms
    if arms is None:
        raise InvalidLog(
            f"{path}: one row a round does not say how many arms there are; give arms, or the arm's column."
        )
    return Log.of(rows, arms, chosen, rewards, names)


def _by_round(path: str | Path, written: list[str]) -> tuple[IntArray, int]:
    """The order that puts a round's rows together, rounds as they first appear, and the arms of each."""
    places = {name: i for i, name in enumerate(dict.fromkeys(written))}
    rounds = np.array([places[name] for name in written])
    counts = np.bincount(rounds)
    if (odd := np.flatnonzero(counts != counts[0])).size:
        name = list(places)[odd[0]]
        raise InvalidLog(
            f"{path}: every round must have as many rows, one for each arm; round {next(iter(places))} has "
            f"{counts[0]}, round {name} has {counts[odd[0]]}. Plan for the rounds with the most usual number of arms."
        )
    return np.argsort(rounds, kind="stable"), int(counts[0])
