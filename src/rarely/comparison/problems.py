"""Problems by name: the paper's, the gallery, tables, and a drifting and a delayed form of each.

    cosine quadratic mushroom magic      the paper's four
    needle wheel …                       the gallery; wheel-0.95 is the wheel with δ = 0.95
    digits wine breast_cancer iris       tables of scikit-learn, where it is installed
    shuttle covertype adult              tables of Riquelme et al. (2018)
    file.csv                             a labelled table of one's own
    NAME+drift, NAME+delay               the variants

A table is played with its rows standardised and a constant, each arm in a block of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from rarely.comparison.contestant import Task
from rarely.comparison.variants import OTHER, VARIANTS, Variant, delays, drifted
from rarely.core.errors import InvalidInput, RarelyError
from rarely.core.types import Array, IntArray
from rarely.worlds import DATASETS, GALLERY, Cosine, Quadratic, Rounds, Table, TableWorld, World
from rarely.worlds.gallery import Wheel
from rarely.worlds.own_table import own_table

SYNTHETIC: dict[str, World] = {"cosine": Cosine(), "quadratic": Quadratic()}
PROBLEM_SETS: dict[str, tuple[str, ...]] = {
    "paper": ("cosine", "quadratic", "mushroom", "magic"),
    "gallery": tuple(GALLERY),
    "sklearn": ("digits", "wine", "breast_cancer", "iris"),
    "showdown": ("shuttle", "covertype", "adult"),
}
"""Problems by the name of their set; `all` is every one of them."""
FAMILIES = (*PROBLEM_SETS, "own", "drift", "delay")
"""Sets and variants in the order in which they are shown."""


@dataclass(frozen=True)
class Problem:
    """A world with a name, and perhaps a variant.

    Examples
    --------
    >>> problem = find_problem("needle+delay")
    >>> problem.family, problem.rounds(seed=0, count=3).means.shape
    ('delay', (3, 10))
    """

    name: str
    world: World
    set: str
    variant: Variant = ""

    @property
    def family(self) -> str:
        """The variant, or else the set that it belongs to."""
        return self.variant or self.set

    @property
    def blocks(self) -> bool:
        """Whether arms are blocks of one row."""
        return isinstance(self.world, TableWorld | Wheel)

    def length(self, rounds: int) -> int:
        """How many of so many rounds can be played: a table has no more than rows."""
        return min(rounds, self.world.horizon or rounds)

    def rounds(self, seed: int, count: int) -> Rounds:
        """The rounds of one run."""
        if self.variant == "drift":
            return drifted(self.world, seed, count, blocks=self.blocks)
        return self.world.rounds(seed, count)

    def delays(self, seed: int, count: int) -> IntArray | None:
        """How late the rewards of one run come; None where they come at once."""
        return delays(seed, count) if self.variant == "delay" else None

    def task(self, rounds: int, batches: int, seed: int) -> Task:
        """What a policy is asked to do."""
        world = self.world

        def pilot() -> Array:
            return world.rounds(seed + OTHER - 1, rounds).contexts

        block = world.dim // world.arms if self.blocks else 0
        return Task(world.arms, world.dim, rounds, batches, seed, world.context_scale, block, pilot)

    def describe(self) -> dict[str, Any]:
        """The problem as JSON."""
        return {"name": self.name, "variant": self.variant, "world": self.world.describe()}


def expand(names: list[str]) -> list[str]:
    """Names with sets replaced by what they contain, each once.

    >>> expand(["showdown+drift", "cosine"])
    ['shuttle+drift', 'covertype+drift', 'adult+drift', 'cosine']
    """
    sets = PROBLEM_SETS | {"all": tuple(name for names in PROBLEM_SETS.values() for name in names)}
    found = dict.fromkeys(
        f"{one}{plus}{variant}"
        for base, plus, variant in (name.partition("+") for name in names)
        for one in sets.get(base, (base,))
    )
    return list(found)


def find_problem(name: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> Problem:
    """A problem by its name.

    Parameters
    ----------
    name
        A name of `PROBLEM_SETS`, `wheel-δ`, or a path that ends in .csv; with +drift or +delay for a variant.
    label
        The column of a CSV file that holds the class, by name or number; None: the last.
    ignore
        Columns of a CSV file that are no features, by name or number.

    Returns
    -------
    Problem
        The problem; a table is read once in a process.

    Raises
    ------
    DataUnavailable
        If a data file is not here and cannot be fetched.
    InvalidInput
        If there is no such problem.
    RarelyError
        If the table comes with scikit-learn, which is not installed.

    Examples
    --------
    >>> find_problem("wheel-0.5").world.delta
    0.5
    """
    base, _, variant = name.partition("+")
    if variant not in VARIANTS or name.endswith("+"):
        raise InvalidInput(f"a variant is +drift or +delay; got {name!r}.")
    return replace(_plain(base, label, ignore), name=_shown(name), variant=variant)


def _shown(name: str) -> str:
    base, plus, variant = name.partition("+")
    return f"{Path(base).stem if base.endswith('.csv') else base}{plus}{variant}"


@cache
def _plain(name: str, label: str | None, ignore: tuple[str, ...]) -> Problem:
    if name in SYNTHETIC:
        return Problem(name, SYNTHETIC[name], "paper")
    if name in GALLERY:
        return Problem(name, GALLERY[name], "gallery")
    if name.startswith("wheel-"):
        return Problem(name, Wheel(_radius(name)), "gallery")
    if name in DATASETS:
        kind = "paper" if name in PROBLEM_SETS["paper"] else "showdown"
        return Problem(name, _played(DATASETS[name].table()), kind)
    if name in PROBLEM_SETS["sklearn"]:
        return Problem(name, _played(_sklearn(name)), "sklearn")
    if name.endswith(".csv"):
        return Problem(name, _played(own_table(name, label, ignore)), "own")
    known = ", ".join(one for names in PROBLEM_SETS.values() for one in names)
    raise InvalidInput(
        f"no problem is called {name!r}; there are {known}, wheel-δ such as wheel-0.95, any file.csv, and the sets "
        f"{', '.join(PROBLEM_SETS)} and all."
    )


def _radius(name: str) -> float:
    try:
        delta = float(name.removeprefix("wheel-"))
    except ValueError:
        delta = np.nan
    if not 0 < delta < 1:
        raise InvalidInput(f"wheel-δ needs a δ between 0 and 1, such as wheel-0.95; got {name!r}.")
    return delta


def _played(table: Table) -> World:
    return TableWorld(table, "standard", constant=True)


def _sklearn(name: str) -> Table:
    try:
        datasets = import_module("sklearn.datasets")
    except ModuleNotFoundError as error:
        raise RarelyError(
            f"{name} comes with scikit-learn, which is not installed: pip install scikit-learn."
        ) from error
    return Table.from_bunch(getattr(datasets, f"load_{name}")())
