"""Worlds by their names, as commands take them.

    cosine quadratic mushroom magic      the paper's four
    needle wheel …                       the gallery; wheel-0.95 is the wheel with δ = 0.95
    router-cut router-regression         three models that answer prompts
    model-router clicks …                everyday: worlds like problems of users
    gaussian-3 ten-coins …               plain arms: bandits without contexts
    digits wine breast_cancer iris       tables of scikit-learn, where it is installed
    shuttle covertype adult              tables of Riquelme et al. (2018)
    file.csv                             a labelled table of yours
    steps=mine:Steps                     a world of your own: a World, or a class or function that makes one

A table is played with its rows standardised and a constant, each arm in its block.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module

from rarely.extend.checks import InvalidInput, shown
from rarely.logs.tables import finite_number
from rarely.worlds.datasets import DATASETS
from rarely.worlds.everyday import EVERYDAY
from rarely.worlds.gallery import GALLERY, PLAIN_ARMS, Router, Wheel
from rarely.worlds.protocol import World
from rarely.worlds.synthetic import Cosine, Quadratic
from rarely.worlds.table import Table, TableWorld, own_table, sklearn_table

WORLD_SETS: dict[str, tuple[str, ...]] = {
    "paper": ("cosine", "quadratic", "mushroom", "magic"),
    "gallery": tuple(GALLERY),
    "everyday": tuple(EVERYDAY),
    "plain": tuple(PLAIN_ARMS),
    "sklearn": ("digits", "wine", "breast_cancer", "iris"),
    "showdown": ("shuttle", "covertype", "adult"),
}
"""Names by the set to which they belong."""
_ROUTERS: dict[str, World] = {"router-cut": Router("price cut"), "router-regression": Router("regression")}
_MADE: dict[str, World] = {"cosine": Cosine(), "quadratic": Quadratic()} | GALLERY | EVERYDAY | PLAIN_ARMS | _ROUTERS


@cache
def find_world(name: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> World:
    """Return a world by its name; a table is read once in a process.

    Raises `InvalidInput` if no world has this name, `DataUnavailable` if a data file is not here and cannot be
    fetched, and `RarelyError` if a table comes with scikit-learn, which is not installed.

    Parameters
    ----------
    name
        A name of `WORLD_SETS`, `wheel-δ`, a path that ends in .csv, or module:name, with `own=` before it, of your own.
    label
        The column of a CSV file that holds the class, by name or number; None: the last.
    ignore
        Columns of a CSV file to leave out, by name or number.

    Examples
    --------
    >>> find_world("wheel-0.5").delta
    0.5
    """
    if name in _MADE:
        return _MADE[name]
    if name.startswith("wheel-"):
        delta = finite_number(name.removeprefix("wheel-"))
        if delta is None or not 0 < delta < 1:
            raise InvalidInput(f"wheel-δ needs a δ between 0 and 1, such as wheel-0.95; got {name!r}.")
        return Wheel(delta)
    if name in DATASETS:
        return _played(DATASETS[name].table())
    if name in WORLD_SETS["sklearn"]:
        return _played(sklearn_table(name))
    if ":" in (source := name.rpartition("=")[2]):
        return _own(source)
    if name.endswith(".csv"):
        return _played(own_table(name, label, ignore))
    sets = WORLD_SETS | {"routers": tuple(_ROUTERS)}
    there = "; ".join(f"{each}: {', '.join(names)}" for each, names in sets.items())
    raise InvalidInput(
        f"no world is called {name!r}; there are ({there}), wheel-δ such as wheel-0.95, any file.csv, and your own as "
        "module:name."
    )


def _own(source: str) -> World:
    """Return the world that module:name names, or makes; the module may lie in the folder of the command."""
    module, _, name = source.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        world = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"the world {source} cannot be imported: {error}.") from None
    world = world() if callable(world) else world
    if not isinstance(world, World):
        raise InvalidInput(f"{source} must be a World, or make one; got {shown(world)}.")
    return world


def _played(table: Table) -> World:
    return TableWorld(table, "standard", constant=True)
