"""Arms with names, which come and go between rounds.

    slot    0 … K − 1, K = blocks.arms    a name takes the next one when it is first opened, and keeps it for life

Arms with their own blocks have at most K slots. Content arms, whose blocks have no number of arms, have no limit, and
an offer has the contexts of the open arms only.

Everything learned about an arm, in Z, in the weights and in the history, is stored under its slot. So the arm of a
decision *is* the slot, whichever arms are open now, and a closed arm's slot is never given to another name. A slot
that is not open has False in the mask, and NaN for a context: a forgotten mask is refused, not ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rarely._core.errors import InvalidContexts, InvalidInput, RosterFull, UnknownArm, named_arguments, shown
from rarely._core.inputs.arm_blocks import FITTED, ArmBlocks, read_numbers
from rarely._core.inputs.contexts import OpenContexts, check_columns
from rarely._core.types import Array, BoolArray, Decision


class Offer(NamedTuple):
    """The arms open now, as `select` takes them: `policy.select(*roster(rows))`.

    Examples
    --------
    >>> from rarely import Affine, ArmBlocks, Roster
    >>> roster = Roster(ArmBlocks(arms=3, rows=Affine.identity(1)))
    >>> place = roster.open("red")
    >>> offer = roster([2.0])
    >>> offer.contexts.shape, offer.mask
    ((3, 3), array([ True, False, False]))
    """

    contexts: Array
    """(K, dim) or (n, K, dim), NaN for closed arms; of content arms only the open ones."""
    mask: BoolArray
    """(K,) or (n, K): which slots are open."""


@named_arguments
class Roster:
    """Named arms over the slots of `blocks`, which limit the number of names; with `arms=None` there is no limit.

    Examples
    --------
    >>> from rarely import Affine, ArmBlocks, BatchNeuralUCB, FixedGrid, Roster
    >>> roster = Roster(ArmBlocks(arms=3, rows=Affine.identity(1, constant=True)))
    >>> roster.open("red")
    0
    >>> policy = BatchNeuralUCB(schedule=FixedGrid(horizon=40, batches=4), seed=0, **roster.settings)
    >>> early = policy.select(*roster([[0.5]] * 10))
    >>> policy.observe(early, [0.1] * 10)
    >>> policy.update().accepted
    True

    An unknown arm arrives in mid-stream, and the first one leaves:

    >>> roster.open("blue")
    1
    >>> later = policy.select(*roster([0.5]))
    >>> roster.close("red")
    0
    >>> roster.names, roster.name_of(early[0]), roster.name_of(later)
    (('blue',), 'red', 'blue')

    Content arms come with their features, and there may be any number of them; closed ones cost nothing:

    >>> articles = Roster(ArmBlocks(None, Affine.identity(1), "bilinear", features=Affine.identity(2)))
    >>> for day in range(1000):
    ...     _ = articles.open(f"news {day}", features=[day, 1.0])
    ...     _ = articles.close(f"news {day - 2}") if day >= 2 else None
    >>> articles, articles([0.5]).contexts.shape
    (<Roster: news 998, news 999 open; 1000 names so far>, (2, 3))
    """

    def __init__(self, blocks: ArmBlocks) -> None:
        if not isinstance(blocks, ArmBlocks):
            raise InvalidInput(f"blocks must be an ArmBlocks; got {shown(blocks)}.")
        self.blocks = blocks
        self._slots: dict[str, int] = {}
        self._named: list[str] = []  # the name of every slot
        self._open = np.zeros(blocks.arms or 0, np.bool_)
        self._features = np.zeros((blocks.arms or 0, 0 if blocks.features is None else blocks.features.dim))
        """The features of every slot, not scaled; 0 until it is taken."""

    def __repr__(self) -> str:
        arms, names = self.blocks.arms, len(self._slots)
        taken = f"{names} names so far" if arms is None else f"{names} of {arms} slots taken"
        return f"<Roster: {', '.join(self.names) or 'none'} open; {taken}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The arms open now, in the order of their slots."""
        return tuple(self._named[slot] for slot in np.flatnonzero(self._open))

    @property
    def slots(self) -> dict[str, int]:
        """The slot of every name that was ever open."""
        return dict(self._slots)

    @property
    def settings(self) -> dict[str, Any]:
        """`ArmBlocks.settings` for a policy; of content arms with the number that is open now."""
        open_now = int(np.count_nonzero(self._open)) or None
        return self.blocks.settings_among(open_now if self.blocks.arms is None else self.blocks.arms)

    def open(self, name: str, features: Any = None) -> int:
        """Open an arm, new or closed before, and return its slot.

        An arm that is opened again keeps its features unless new ones are given.
        """
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"an arm's name must be a string that is not empty; got {shown(name)}.")
        slot = self._slots.get(name, len(self._slots))
        if slot == self.blocks.arms:
            raise RosterFull(
                f"a name keeps its slot for life, and the {slot} slots are taken; got {name!r}. Open one of their "
                "names again, or make blocks and policy for more arms."
            )
        if slot < len(self._open) and self._open[slot]:
            raise InvalidInput(f"an arm that is opened must not be open; {name!r} is. To change it, close it first.")
        named = name in self._slots
        own = self._features[slot] if named and features is None else self._read(name, features)
        if slot == len(self._open):  # content arms: as many slots again
            self._open = np.append(self._open, np.zeros(max(slot, 16), np.bool_))
            self._features = np.vstack((self._features, np.zeros((max(slot, 16), self._features.shape[1]))))
        if not named:
            self._slots[name] = slot
            self._named.append(name)
        self._features[slot] = own
        self._open[slot] = True
        return slot

    def close(self, name: str) -> int:
        """Take an arm out of later rounds and return its slot; rewards of its earlier rounds may still arrive."""
        slot = self.slot_of(name)
        if not self._open[slot]:
            raise UnknownArm(f"an arm that is closed must be open; {name!r} is closed already.")
        self._open[slot] = False
        return slot

    def slot_of(self, name: str) -> int:
        """Return the index of an arm, open or closed, in every decision."""
        if name not in self._slots:
            names = ", ".join(self._slots) or "none"
            raise UnknownArm(f"an arm must have been opened before; got {name!r}, and the names so far are: {names}.")
        return self._slots[name]

    def name_of(self, decision: Decision | Any) -> Any:
        """Return the name, or a list of n names, of the chosen arms of any decision, or of arm numbers."""
        slots = np.asarray(decision.arm if isinstance(decision, Decision) else decision)
        if slots.dtype.kind not in "iu" or slots.ndim > 1:
            raise UnknownArm(f"name_of needs a decision, or whole numbers of arms; got {decision!r}.")
        names = self._named
        unknown = slots[(slots < 0) | (slots >= len(names))]
        if unknown.size:
            raise UnknownArm(
                f"an arm must be one of the {len(names)} slots taken so far; got {unknown.flat[0]}. Is this the roster "
                "that the decision was made with? A logged sample has the arm -1 and no name."
            )
        return [names[slot] for slot in slots] if slots.ndim else names[slots]

    def __call__(self, rows: Any) -> Offer:
        """Return the arms that are open now, for one row (r,) or n of them, (n, r)."""
        if not self._open.any():
            raise InvalidContexts("a round must have at least one arm; open one first.")
        if self.blocks.arms is None:
            alone = self.blocks(rows, self._features[np.flatnonzero(self._open)]).view(OpenContexts)
            mask = self._open[: len(self._named)]
            return Offer(alone, np.broadcast_to(mask, (*alone.shape[:-2], len(mask))).copy())
        contexts = self.blocks(rows, None if self.blocks.features is None else self._features)
        contexts[..., ~self._open, :] = np.nan
        return Offer(contexts, np.broadcast_to(self._open, contexts.shape[:-1]).copy())

    def describe(self) -> dict[str, Any]:
        """Return the roster as JSON. Store it after an arm was opened, before the next decision."""
        arms = [
            {"name": name, "open": bool(self._open[slot]), "features": self._features[slot].tolist()}
            for name, slot in self._slots.items()
        ]
        return {"blocks": self.blocks.describe(), "arms": arms}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Roster:
        """Return the roster that `describe` described."""
        roster = cls(ArmBlocks.from_description(description["blocks"]))
        for arm in description["arms"]:
            roster.open(arm["name"], arm["features"] or None)
            if not arm["open"]:
                roster.close(arm["name"])
        return roster

    def _read(self, name: str, features: Any) -> Array:
        if self.blocks.features is None:
            if features is not None:
                raise InvalidInput(
                    f"this roster's arms have no features, but {name!r} was given some; make its ArmBlocks "
                    "with features=, and layout 'hybrid', 'shared' or 'bilinear'."
                )
            return np.empty(0)
        check_columns(f"features of {name!r}", features, self.blocks.feature_columns, FITTED)
        array = read_numbers([] if features is None else features, f"features of {name!r}")
        if array.shape != (self.blocks.features.dim,):
            got = "none" if features is None else repr(features)
            raise InvalidInput(f"features of {name!r} must be {self.blocks.features.dim} finite numbers; got {got}.")
        return array
