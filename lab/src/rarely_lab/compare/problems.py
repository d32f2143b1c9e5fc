"""Problems: worlds by name, and a drifting and a delayed form of each.

Names are those of `rarely.worlds.find_world`, with +drift or +delay behind them for the variants:

    drift   between rounds T/4 and 3T/4 the world turns gradually into another: round t belongs to the new one with a
            probability that rises from 0 to 1, as in the gradual drift of Gama et al. (2014)
    delay   a reward arrives D ≥ 1 rounds late, D geometric with mean T/20

The new world has the same contexts in distribution. Where arms are blocks of one row, each arm pays what its neighbour
paid; elsewhere it is the same world with another secret, that of another seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rarely.errors import InvalidInput
from rarely.extend import Array, IntArray
from rarely.worlds import WORLD_SETS, Rounds, TableWorld, World, find_world
from rarely.worlds.gallery import Wheel
from rarely_lab.compare.contestant import Task

FAMILIES = (*WORLD_SETS, "own", "drift", "delay")
"""Sets and variants in the order in which they are shown."""
Variant = Literal["", "drift", "delay"]
VARIANTS: tuple[Variant, ...] = ("", "drift", "delay")
OTHER = 2**31
"""This is added to a seed for another run of the same world: no run that is compared has such a seed."""
MEAN_DELAY = 1 / 20
"""The mean delay of a reward in horizons."""


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
        """The variant, or else the set that it belongs to; of a file always `own`, for its name may be another's."""
        return self.set if self.set == "own" else self.variant or self.set

    @property
    def blocks(self) -> bool:
        """Whether arms are blocks of one row."""
        return isinstance(self.world, TableWorld | Wheel)

    def length(self, rounds: int) -> int:
        """Return how many rounds can be played if `rounds` are asked for: at most a table's rows."""
        return min(rounds, self.world.horizon or rounds)

    def rounds(self, seed: int, count: int) -> Rounds:
        """Return the rounds of one run; in the variant drift, of one whose world turns into another."""
        before = self.world.rounds(seed, count)
        if self.variant != "drift":
            return before
        after = self.world.rounds(seed + OTHER, count)
        means, rewards = (np.roll(each, int(self.blocks), axis=1) for each in (after.means, after.rewards))
        share = np.clip(2 * np.arange(1, count + 1) / count - 0.5, 0, 1)
        new = np.random.default_rng((seed, 0, 3)).random(count) < share
        return Rounds(
            np.where(new[:, None, None], after.contexts, before.contexts),
            np.where(new[:, None], means, before.means),
            np.where(new[:, None], rewards, before.rewards),
        )

    def delays(self, seed: int, count: int) -> IntArray | None:
        """Return how many rounds late the rewards of one run arrive, (T,); None where they arrive at once."""
        if self.variant != "delay":
            return None
        chance = min(1.0, 1 / (MEAN_DELAY * count))
        return np.asarray(np.random.default_rng((seed, 0, 4)).geometric(chance, count))

    def task(self, rounds: int, batches: int, seed: int) -> Task:
        """Return what a policy is asked to do."""
        world = self.world

        def pilot() -> Array:
            return world.rounds(seed + OTHER - 1, rounds).contexts

        block = world.dim // world.arms if self.blocks else 0
        return Task(world.arms, world.dim, rounds, batches, seed, world.context_scale, block, pilot)

    def describe(self) -> dict[str, Any]:
        """Return the problem as JSON."""
        return {"name": self.name, "variant": self.variant, "world": self.world.describe()}


def expand(names: list[str]) -> list[str]:
    """Return the names with sets replaced by what they contain, each once.

    >>> expand(["showdown+drift", "cosine"])
    ['shuttle+drift', 'covertype+drift', 'adult+drift', 'cosine']
    """
    sets = WORLD_SETS | {"all": tuple(name for names in WORLD_SETS.values() for name in names)}
    parts = (name.partition("+") for name in names)
    return list(dict.fromkeys(f"{one}{plus}{tail}" for base, plus, tail in parts for one in sets.get(base, (base,))))


@cache
def find_problem(name: str, label: str | None = None, ignore: tuple[str, ...] = ()) -> Problem:
    """Return a problem by its name; raises `InvalidInput` if none has it, and the errors of `find_world`.

    Parameters
    ----------
    name, label, ignore
        As `rarely.worlds.find_world` takes them; the name may end in +drift or +delay, for a variant.

    Examples
    --------
    >>> find_problem("wheel-0.5").world.delta
    0.5
    """
    base, _, variant = name.partition("+")
    if variant not in VARIANTS or name.endswith("+"):
        raise InvalidInput(f"a variant is +drift or +delay; got {name!r}.")
    family = next((each for each, names in WORLD_SETS.items() if base in names), "gallery")
    family = "own" if base.endswith(".csv") or ":" in base else family
    return Problem(problem_name(name), find_world(base, label, ignore), family, variant)


def problem_name(asked: str) -> str:
    """Return the name of a problem as it is asked for: that of a file without its folder and ending.

    >>> problem_name("tables/mine.csv+drift"), problem_name("wheel-0.95"), problem_name("steps=mine:Steps+drift")
    ('mine+drift', 'wheel-0.95', 'steps+drift')
    """
    base, plus, variant = asked.partition("+")
    if ":" in base:
        base = base.partition("=")[0] if "=" in base else base.replace(":", ".")
    return f"{Path(base).stem if base.endswith('.csv') else base}{plus}{variant}"
