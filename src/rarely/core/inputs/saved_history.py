"""The columns of a history that a file of another format may lack, read and checked."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rarely.core.inputs.decision_ids import LIFE
from rarely.core.saving.fields import Fields
from rarely.core.types import Array, IntArray


def read_known(saved: Fields, rows: int, logged: int) -> Array:
    """(rows, 3): the saved propensities, means and bonuses; the first files of version 0.1 have none."""
    known = np.full((rows, 3), np.nan)
    if saved.since(2, "propensities"):
        known[:, 0] = saved.array("propensities", (rows,), above=0, most=1, missing=True)
    if saved.since(2, "means"):
        known[:, 1] = saved.array("means", (rows,), missing=True)
    if saved.since(2, "bonuses"):
        known[:, 2] = saved.array("bonuses", (rows,), least=0, missing=True)
    unknown = np.isnan(known)
    # Rounds of such a file stay without them, and come before all others.
    fits = (unknown == unknown[:, :1]).all() and unknown[:logged].all() and (unknown[:-1] | ~unknown[1:]).all()
    saved.require(bool(fits), "propensities, means and bonuses must be NaN together, in the logged rows and none later")
    return known


def read_arrivals(saved: Fields, rewards: Array, logged: int, *, in_order: bool) -> IntArray:
    """The saved order of rewards. The first files of version 0.1 do not tell it, and no learner of theirs needs it."""
    told = ~np.isnan(rewards)
    if not saved.since(2, "arrivals"):
        return np.flatnonzero(told)
    arrivals = saved.array("arrivals", (None,), "int", least=0, most=len(rewards) - 1)
    found = np.zeros(len(rewards), np.bool_)
    found[arrivals] = True
    once = len(arrivals) == int(found.sum()) and bool((found == told).all())
    saved.require(once, "arrivals must name every row with a reward once, and no other")
    first = not in_order or np.array_equal(arrivals[:logged], np.arange(logged))
    saved.require(first, f"arrivals must begin with the {logged} logged rows")
    return arrivals


def read_lives(saved: Fields, logged: int, rows: int) -> tuple[tuple[int, str], ...]:
    """From which row on each life of the policy decided."""
    if not saved.since(2, "lives"):
        return ()
    lives: list[tuple[int, str]] = []
    for pair in saved.listed("lives"):
        saved.require(isinstance(pair, list) and len(pair) == 2, "lives must be pairs of a row and a life")
        life = Fields("history.lives", dict(zip(("row", "life"), pair, strict=True)), {})
        lives.append((life.whole("row", least=logged, most=rows - 1), life.text("life", LIFE)))
    rising = all(a < b and one != other for (a, one), (b, other) in pairwise(lives))
    saved.require(rising, "lives must begin at rising rows, and each must be another than the one before")
    return tuple(lives)
