"""Arms with names, that come and go between rounds.

    slot    0 … K − 1, K = blocks.arms    a name takes the next one when it is first opened, and keeps it for life

Arms with blocks of their own have at most K slots. Content arms, whose blocks have no number of arms, have no limit,
and the contexts of an offer are those of the open arms alone.

What was learned of an arm is in Z, in the weights and in the history, all under its slot. So the arm of a
decision *is* the slot, whichever arms are open by now, and a closed arm's slot passes to no other name. A slot that is
not open has False in the mask, and NaN for a context: a mask that was forgotten is refused, not ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rarely.core.errors import InvalidContexts, InvalidInput, RosterFull, UnknownArm, check_whole
from rarely.core.inputs.arm_blocks import ArmBlocks, check_columns, read_numbers
from rarely.core.inputs.contexts import OpenContexts
from rarely.core.types import Array, BoolArray, Decision


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
    """(K, dim) or (n, K, dim), NaN where no arm is open; of content arms the open ones alone."""
    mask: BoolArray
    """(K,) or (n, K): which slots are open."""


class Roster:
    """Named arms over the slots of `blocks`, whose number is the most names there can ever be; None is any number.

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

    An arm arrives in mid-stream, of which nothing is known yet, and the first one leaves:

    >>> roster.open("blue")
    1
    >>> later = policy.select(*roster([0.5]))
    >>> roster.close("red")
    0
    >>> roster.names, roster.name_of(early[0]), roster.name_of(later)
    (('blue',), 'red', 'blue')

    Content arms come with their features, and there may be any number of them; closed ones cost nothing:

    >>> content = ArmBlocks(None, Affine.identity(1), "bilinear", features=Affine.identity(2))
    >>> articles = Roster(content)
    >>> for day in range(1000):
    ...     if day >= 2:
    ...         _ = articles.close(f"news {day - 2}")
    ...     _ = articles.open(f"news {day}", features=[day, 1.0])
    >>> articles
    <Roster: news 998, news 999 open; 1000 names so far>
    >>> articles([0.5]).contexts
    array([[5.00e-01, 9.98e+02, 1.00e+00],
           [5.00e-01, 9.99e+02, 1.00e+00]])
    """

    def __init__(self, blocks: ArmBlocks) -> None:
        self.blocks = replace(blocks)  # set_params changes the original
        self._slots: dict[str, int] = {}
        self._named: list[str] = []
        """The name of every slot."""
        self._open = np.zeros(blocks.arms or 0, np.bool_)
        self._features = np.zeros((blocks.arms or 0, 0 if blocks.features is None else blocks.features.dim))
        """Of every slot, as they came; 0 until it is taken."""

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
        """`ArmBlocks.settings`: what a policy must be made with; of content arms with the number that is open now."""
        open_now = int(np.count_nonzero(self._open)) or None
        return self.blocks.settings_among(open_now if self.blocks.arms is None else self.blocks.arms)

    def open(self, name: str, features: Any = None) -> int:
        """Open an arm, new or closed before, and say its slot.

        An arm that is opened again has its former features unless new ones are given.
        """
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"an arm's name must be a string that is not empty; got {name!r}.")
        slot = self._slots.get(name, len(self._slots))
        if slot == self.blocks.arms:
            raise RosterFull(
                f"a name keeps its slot for life, and the {slot} slots are taken; got {name!r}. Open one of "
                f"their names again, or go on with roster.wider({2 * slot}), which says how a policy follows."
            )
        if slot < len(self._open) and self._open[slot]:
            raise InvalidInput(f"an arm that is opened must not be open; {name!r} is. To change it, close it first.")
        known = name in self._slots
        own = self._features[slot] if known and features is None else self._read(name, features)
        if slot == len(self._open):  # content arms: as many slots again
            self._open = np.append(self._open, np.zeros(max(slot, 16), np.bool_))
            self._features = np.vstack((self._features, np.zeros((max(slot, 16), self._features.shape[1]))))
        if not known:
            self._slots[name] = slot
            self._named.append(name)
        self._features[slot] = own
        self._open[slot] = True
        return slot

    def close(self, name: str) -> int:
        """Take an arm out of later rounds, and say its slot; rewards of its earlier ones may still come."""
        slot = self.slot_of(name)
        if not self._open[slot]:
            raise UnknownArm(f"an arm that is closed must be open; {name!r} is closed already.")
        self._open[slot] = False
        return slot

    def slot_of(self, name: str) -> int:
        """The index of an arm, open or closed, in every decision."""
        if name not in self._slots:
            known = ", ".join(self._slots) or "none"
            raise UnknownArm(f"an arm must have been opened before; got {name!r}, and the names so far are: {known}.")
        return self._slots[name]

    def name_of(self, decision: Decision | Any) -> Any:
        """str, or a list of n: the chosen arm's name, of a decision of any time, or of arms as it has them."""
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
        """The arms open now for one row (r,) or n of them, (n, r)."""
        if not self._open.any():
            raise InvalidContexts("a round must have at least one arm; open one first.")
        if self.blocks.arms is None:
            alone = self.blocks(rows, self._features[np.flatnonzero(self._open)]).view(OpenContexts)
            mask = self._open[: len(self._named)]
            return Offer(alone, np.broadcast_to(mask, (*alone.shape[:-2], len(mask))).copy())
        contexts = self.blocks(rows, None if self.blocks.features is None else self._features)
        contexts[..., ~self._open, :] = np.nan
        return Offer(contexts, np.broadcast_to(self._open, contexts.shape[:-1]).copy())

    def wider(self, capacity: int) -> Roster:
        """The same arms in the same slots, with room for more.

        A policy is made for one `dim`. A policy for the wider roster can start with what the old one saw, because a
        context padded with zeros belongs to the same arm there::

            contexts, rewards = policy.history.observed()
            wider = roster.wider(capacity)
            padded = np.pad(contexts, ((0, 0), (0, wider.blocks.dim - policy.dim)))
            policy = BatchNeuralUCB.from_log(padded, rewards, schedule=…, **wider.settings)
        """
        if self.blocks.arms is None:
            raise InvalidInput("a roster of content arms has no capacity, so it needs no wider one; open the arm.")
        check_whole("capacity", capacity, self.blocks.arms)
        mine = self.describe()
        return Roster.from_description(mine | {"blocks": mine["blocks"] | {"arms": capacity}})

    def describe(self) -> dict[str, Any]:
        """The roster as JSON. Keep it whenever an arm was opened, before the next decision, beside `policy.save`."""
        arms = [
            {"name": name, "open": bool(self._open[slot]), "features": self._features[slot].tolist()}
            for name, slot in self._slots.items()
        ]
        return {"blocks": self.blocks.describe(), "arms": arms}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Roster:
        """The inverse of `describe`."""
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
                    f"this roster's arms have no features of their own, but {name!r} brings some; make its ArmBlocks "
                    "with features=, and layout 'hybrid', 'shared' or 'bilinear'."
                )
            return np.empty(0)
        check_columns(f"features of {name!r}", features, self.blocks.feature_columns)
        array = read_numbers([] if features is None else features, f"features of {name!r}")
        if array.shape != (self.blocks.features.dim,) or not np.isfinite(array).all():
            came = "none" if features is None else repr(features)
            raise InvalidInput(
                f"features of {name!r} must be {self.blocks.features.dim} finite numbers, because its ArmBlocks "
                f"scale so many; got {came}."
            )
        return array
