"""Problems: worlds by name, and a drifting and a delayed form of each.

Names are those of `rarely.worlds.find_world`, with +drift or +delay behind them for the variants:

    drift   between rounds T/4 and 3T/4 the world turns gradually into another: round t belongs to the new one with a
            probability that rises from 0 to 1, as in the gradual drift of Gama et al. (2014)
    delay   a reward arrives D ≥ 1 rounds late, D geometric with mean T/20

The new world has the same contexts in distribution. Where arms are blocks of one row, each arm pays what its neighbour
paid; elsewhere it is the same world with another secret, that of another seed. What a policy is told of a problem is a
`Task`, for which a `Contestant` of `rarely_lab.engine.play` is made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from rarely.errors import InvalidInput
from rarely.extend import Array, ContextMap, ContextScale, IntArray
from rarely.worlds import WORLD_SETS, Rounds, TableWorld, World, find_world
from rarely.worlds.everyday import OneRow
from rarely.worlds.gallery import Wheel

FAMILIES = (*WORLD_SETS, "own", "drift", "delay")  # sets and variants in the order in which they are shown
Variant = Literal["", "drift", "delay"]
VARIANTS: tuple[Variant, ...] = ("", "drift", "delay")
OTHER = 2**31  # this is added to a seed for another run of the same world: no run that is compared has such a seed
MEAN_DELAY = 1 / 20  # the mean delay of a reward in horizons


@dataclass(frozen=True)
class Task:
    """What is known before the first round: K arms, and d numbers in the context of each.

    Examples
    --------
    >>> task = Task(arms=2, dim=6, horizon=100, batches=5, seed=0, block=3)
    >>> task.squares
    (4, 16, 36, 64)
    """

    arms: int
    dim: int
    horizon: int
    """The number of rounds T that will be played."""
    batches: int
    """The most versions B that there may be: B − 1 updates. B = T is an update after every round."""
    seed: int
    """The seed of the run; randomness of a policy should depend on it alone."""
    context_scale: ContextMap | None = None
    """How the library's policies scale these contexts; None where they find their own scale."""
    block: int = 0
    """How many numbers a block has, where arm k's context is one row in the k-th of K blocks; 0 elsewhere."""
    pilot: Callable[[], Array] | None = None
    """Returns the contexts of another run of the problem, (T, K, d), without rewards."""

    @property
    def sequential(self) -> bool:
        """Whether there may be an update after every round."""
        return self.batches >= self.horizon

    @cached_property
    def squares(self) -> tuple[int, ...]:
        """The rounds T(b/B)², dense at first: a good plan if nothing else is known."""
        count = min(self.batches, self.horizon)
        ends = {max(b, round(self.horizon * (b / count) ** 2)) for b in range(1, count)}
        return tuple(sorted(end for end in ends if end < self.horizon))

    @cached_property
    def linear_view(self) -> ContextMap:
        """How `LinUCB` sees contexts: with a constant where they have none of their own."""
        return ContextScale.start(self.dim, self.context_scale, constant=True, fitted=False).map

    def features(self, contexts: Array) -> Array:
        """Return contexts for a model that is not linear, (K, n): a row in blocks becomes the row and the arm.

        >>> task = Task(arms=2, dim=4, horizon=9, batches=3, seed=0, block=2)
        >>> task.features(np.array([[5.0, 1.0, 0.0, 0.0], [0.0, 0.0, 5.0, 1.0]]))
        array([[5., 1., 1., 0.],
               [5., 1., 0., 1.]])
        """
        if not self.block:
            return contexts
        row = contexts.reshape(self.arms, self.arms, self.block).sum(axis=1)
        return np.hstack([row, np.eye(self.arms)])


class AtEnds:
    """A contestant that is due at given rounds, T(b/B)² if none are given, and learns there from what it was told.

    Late rewards may hold that up.

    >>> contestant = AtEnds(Task(arms=2, dim=1, horizon=9, batches=3, seed=0))
    >>> contestant.due(1), contestant.due(2), contestant.update(), contestant.due(3), contestant.due(4)
    (True, True, None, False, True)
    """

    stream: ClassVar[int] = 0  # the random numbers of this kind of contestant
    refits: bool = False  # whether an update learns from all rewards so far, not only from those since the last one

    def __init__(self, task: Task, ends: tuple[int, ...] | None = None) -> None:
        self._task, self._generator = task, np.random.default_rng((task.seed, 0, self.stream))
        self._ends = ends if ends is not None else tuple(range(1, task.horizon)) if task.sequential else task.squares
        self._passed = self._made = 0
        self._told: list[tuple[int, Any, float]] = []  # the arm, its row and the reward of what is to be learned from

    def rows(self, contexts: Array) -> Array:
        """Return contexts as the model sees them, one row for each arm."""
        return contexts

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Keep the reward for the update that follows."""
        self._told.append((arm, self.rows(contexts)[arm], reward))

    def due(self, round: int) -> bool:
        """Return whether an end has passed since the last update."""
        self._passed = bisect_right(self._ends, round)
        return self._passed > self._made

    def update(self) -> None:
        self._made = self._passed
        if self._told:
            self.learn(*zip(*self._told, strict=True))
        if not self.refits:
            self._told = []

    def learn(self, arms: Sequence[int], rows: Sequence[Any], rewards: Sequence[float]) -> None:
        """Make the next version from n arms, their rows and rewards."""


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
        return isinstance(self.world, TableWorld | Wheel | OneRow)

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
