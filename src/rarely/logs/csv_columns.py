"""The columns of a CSV file of past rounds: numbers as numbers, and the names of arms and rounds as codes.

Nothing of a long file is kept but 8 bytes for each entry that is wanted.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.types import Array, IntArray
from rarely.logs.csv_lines import finite_number, is_missing, is_word, read_lines
from rarely.logs.errors import InvalidLog

Role = Literal["arm", "reward", "round"]
SUSPICIOUS = {"reward", "rewards", "arm", "action", "propensity", "pscore", "prob", "probability"} | {
    *("id", "uuid", "index", "time", "timestamp", "date", "label")
}
"""Words in a column's name that are seldom a feature's."""


@dataclass(frozen=True)
class Coded:
    """Text as codes 0, 1, … into its values, in the order in which they first appear."""

    values: tuple[str, ...]
    codes: IntArray

    def sorted(self) -> Coded:
        """The same with values in order: of their numbers if all are whole numbers, else of the alphabet."""
        whole = all(re.fullmatch(r"[+-]?\d+", value) for value in self.values)
        order = sorted(range(len(self.values)), key=lambda i: (int(self.values[i]) if whole else 0, self.values[i]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Coded(tuple(self.values[i] for i in order), place[self.codes])


@dataclass(frozen=True)
class Columns:
    """What was read."""

    names: tuple[str, ...]
    features: Array
    rewards: Array | None
    arm: Coded | None
    round: Coded | None
    suspicious: tuple[str, ...]
    """Features that nobody named, and whose names do not sound like one."""


def read_columns(
    path: str | Path, features: Sequence[str] | None, ignore: Sequence[str], roles: dict[Role, str]
) -> Columns:
    """Features are those named, or all columns that have no role and are not to be ignored."""
    for name, given in (("features", features), ("ignore", ignore)):
        if isinstance(given, str):
            raise InvalidInput(f"{name} must be a list of columns, such as [{given!r}]; got one text.")
    for role, name in roles.items():
        if twice := [other for other, same in roles.items() if same == name and other != role]:
            raise InvalidLog(f"{path}: one column cannot be both {role} and {twice[0]}; got {name!r} for both.")
    lines = read_lines(path, InvalidLog)
    _, header = next(lines, (0, []))
    names = _features(path, header, features, ignore, roles)
    numbers, rewards, coded = _read(path, lines, header, names, roles)
    odd = tuple(name for name in names if features is None and SUSPICIOUS & set(_words(name)))
    return Columns(tuple(names), np.column_stack(numbers), rewards, coded.get("arm"), coded.get("round"), odd)


def _features(
    path: str | Path, header: list[str], features: Sequence[str] | None, ignore: Sequence[str], roles: dict[Role, str]
) -> list[str]:
    if not header:
        raise InvalidLog(f"{path} is empty; its first line must name the columns.")
    if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), None)):
        raise InvalidLog(
            f"{path} must separate its columns by commas; its first line has {mark!r}. Write it with commas."
        )
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise InvalidLog(f"{path}: the columns' names must differ; {twice!r} is there more than once.")
    for name in (*(features or ()), *ignore, *roles.values()):
        if name not in header:
            raise InvalidLog(f"{path} has no column {name!r}; its columns are {', '.join(header)}.")
    taken = {*roles.values(), *ignore}
    if features is None:
        features = [name for name in header if name not in taken]
    if both := [name for name in features if name in taken]:
        raise InvalidLog(f"{path}: {both[0]!r} cannot be a feature and something else; leave it out of the features.")
    if not features:
        raise InvalidLog(f"{path} has no column left for the features; its columns are {', '.join(header)}.")
    return list(dict.fromkeys(features))


def _read(
    path: str | Path,
    lines: Iterable[tuple[int, list[str]]],
    header: list[str],
    names: list[str],
    roles: dict[Role, str],
) -> tuple[list[Array], Array | None, dict[Role, Coded]]:
    at_features = [header.index(name) for name in names]
    numbers, rewards = [array("d") for _ in names], array("d")
    at_reward = header.index(roles["reward"]) if "reward" in roles else None
    texts: dict[Role, tuple[int, dict[str, int], array[int]]] = {
        role: (header.index(name), {}, array("q")) for role, name in roles.items() if role != "reward"
    }
    wrong: dict[str, tuple[str, int]] = {}
    count = 0
    for number, line in lines:
        count += 1
        for at, column in zip(at_features, numbers, strict=True):
            if (value := finite_number(line[at])) is None:
                wrong.setdefault(header[at], (line[at], number))
            column.append(math.nan if value is None else value)
        if at_reward is not None:
            value = math.nan if is_missing(line[at_reward]) else finite_number(line[at_reward])
            if value is None:
                wrong.setdefault(header[at_reward], (line[at_reward], number))
            rewards.append(math.nan if value is None else value)
        for role, (at, places, codes) in texts.items():
            field = line[at]
            if is_missing(field) and not (role == "arm" and is_word(field)):
                raise InvalidLog(f"{path}, line {number}: {header[at]} must not be {field!r}; drop the row.")
            codes.append(places.setdefault(field, len(places)))
    if wrong:
        raise InvalidLog(_complaint(path, wrong, hint=at_reward is None))
    if not count:
        raise InvalidLog(f"{path} has a header and no rows.")
    coded = {role: Coded(tuple(places), np.array(codes, np.int64)) for role, (_, places, codes) in texts.items()}
    return [np.asarray(column) for column in numbers], np.asarray(rewards) if at_reward is not None else None, coded


def _complaint(path: str | Path, wrong: dict[str, tuple[str, int]], *, hint: bool) -> str:
    found = ", ".join(f"{name} has {field!r} in line {number}" for name, (field, number) in wrong.items())
    blank = next((name for name, (field, _) in wrong.items() if is_missing(field)), None) if hint else None
    guess = (
        "" if blank is None else f" Is {blank} the reward, unknown there? Then say reward={blank!r} (--reward {blank})."
    )
    return (
        f"{path}: features and rewards must be finite numbers, but {found}.{guess} Name the columns that are features, "
        "or those to ignore; code text as numbers, and fill in gaps or drop their rows."
    )


def _words(name: str) -> list[str]:
    """The words of snake_case and camelCase, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
