"""A policy that decides from tables: users and items, or users and arms with names.

The policy inside gets arrays and knows nothing of tables; `FrameTables` is between them. Both are saved in one file.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np

from rarely.extend import Array, Arrays, Decision, Interval, Policy, Scores
from rarely.extend.checks import InvalidInput, check_whole, shown
from rarely.extend.provisional import WRAPPERS, Layout, archive, content_at, forwarded, state_of
from rarely.frames.columns import key_of
from rarely.frames.tables import FrameTables, encoder_of


class ColumnEffect(NamedTuple):
    """How far an arm's mean and bonus lie from what they were with an average value in one column.

    Examples
    --------
    >>> ColumnEffect("users.age", mean=0.2, bonus=-0.1).column
    'users.age'
    """

    column: str
    mean: float
    bonus: float


class FramePolicy:
    """A policy, and the encoders of its tables; `fit` makes both. Its other methods are those of the policy inside.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> users = {"age": [20, 30, 40, 50], "town": ["Ulm", "Bonn", "Ulm", "Bonn"]}
    >>> items = [{"name": "tea", "price": 3.0}, {"name": "rum", "price": 9.0}]
    >>> policy = FramePolicy.fit(LinUCB, users, items)
    >>> decision = policy.select({"age": 41, "town": "Ulm"}, items)
    >>> policy.observe(decision, 1.0)
    >>> policy.update().version, items[decision.arm]["name"]
    (1, 'tea')
    >>> policy.select(users, items).arm.shape
    (4,)
    """

    def __init__(self, policy: Policy, tables: FrameTables | None = None) -> None:
        if not isinstance(policy, Policy) or not isinstance(tables, FrameTables):
            raise InvalidInput(
                "a FramePolicy is made by FramePolicy.fit(kind, users, items, **settings), which sees samples of the "
                "tables first, as in FramePolicy.fit(BatchNeuralUCB, users, items, schedule=OnDemand()); "
                f"got {shown(policy)}."
            )
        self.policy, self.tables = policy, tables
        if policy.dim != (wanted := tables.settings["dim"]):
            raise InvalidInput(f"policy must have dim={wanted}, the numbers of these tables; got {policy.dim}.")

    users = forwarded("tables.users", "The `FrameEncoder` of users, or None.")
    items = forwarded("tables.items", "The `FrameEncoder` of items, or None.")
    arms = forwarded("tables.arms", "Names of the arms, if they are not the rows of a table.")

    @classmethod
    def fit(
        cls,
        kind: type[Policy],
        users: Any = None,
        items: Any = None,
        *,
        arms: Sequence[str] | int | Interval = (),
        ignore: Sequence[str] = (),
        layout: Layout | None = None,
        key: str | None = None,
        chosen: Sequence[str] | None = None,
        rewards: Any = None,
        **settings: Any,
    ) -> Self:
        """Return a policy for tables like these samples; with `rewards` it has learned from them already.

        Parameters
        ----------
        kind
            The class of the policy, such as `BatchNeuralUCB` or `LinUCB`.
        users, items
            A sample of each table, or its `FrameEncoder`. One of them may be left out.
        arms
            Names of the arms, or their number, if they are not the rows of a table; or an `Interval` of doses.
        ignore
            Columns of either table that are not read, such as ids.
        layout
            How `ArmBlocks` makes contexts of the two; None is "bilinear" for items and "disjoint" for arms.
        key
            The column of items that names them, such as an article number. It is not read; answers of a `Study` name
            items by it.
        rewards
            One number for each row, if the rows are past rounds: a user, and the item that was chosen. They train
            version 0, as in `Policy.from_log`.
        chosen
            With `arms` and `rewards`: the arm of each past round, by name.
        **settings
            Other arguments of the policy's constructor.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> past = {"arms": ["tea", "rum"], "chosen": ["tea", "rum", "rum"], "rewards": [0, 0, 1]}
        >>> policy = FramePolicy.fit(LinUCB, {"age": [20, 30, 40]}, **past)
        >>> policy.arms[policy.select({"age": 45}).arm]
        'rum'
        """
        if not callable(kind):
            raise InvalidInput(
                "fit makes a policy of a class, as FramePolicy.fit(LinUCB, users, …); one that is there learns by "
                f"observe(decision, reward) and update(). Got {shown(kind)}."
            )
        by_item = encoder_of(items, ignore if key is None else [*ignore, key])
        tables = FrameTables(encoder_of(users, ignore), by_item, arms, layout, key)  # type: ignore[arg-type]
        if chosen is not None and (rewards is None or not tables.arms):
            raise InvalidInput("chosen must come with arms and rewards, because it says which arm was rewarded.")
        make, settings = cast(Any, kind), tables.settings | settings
        policy = cls(make(**settings), tables)
        if rewards is not None:
            policy.policy = kind.from_log(policy._past(users, items, chosen), rewards, **settings)
        return policy

    def _past(self, users: Any, items: Any, chosen: Any) -> Array:
        """Return the contexts of past rounds with their chosen arms, (n, d)."""
        tables = [self.tables.rows(users), self.tables.features(items)]
        parts = [np.atleast_2d(numbers) for numbers in tables if numbers is not None]
        if len(parts[0]) != len(parts[-1]):
            raise InvalidInput(
                f"a past round is a row of users and of items; got {len(parts[0])} and {len(parts[-1])}."
            )
        if not self.arms:
            return np.hstack(parts)
        try:
            places = [self.arms.index(key_of(arm)) for arm in chosen]
        except (TypeError, ValueError):
            places = []
        if len(places) != len(parts[0]):
            raise InvalidInput(f"chosen must be one of {self.arms} for each past round; got {shown(chosen)}.")
        return np.asarray(self.tables.placed(parts[0], None)[np.arange(len(places)), places])

    # --- deciding

    def contexts(self, users: Any = None, items: Any = None) -> Any:
        """Return what the policy inside decides on; see `FrameTables.contexts`."""
        return self.tables.contexts(users, items)

    def select(
        self,
        users: Any = None,
        items: Any = None,
        mask: Any = None,
        *,
        worth: Any = None,
        slots: int | None = None,
        user: str | None = None,
        until_due: bool = False,
    ) -> Decision:
        """Decide one round, or n under the same version; `decision.arm` is the place of the chosen item or arm.

        `users` and `items` are those of `contexts`, and the rest is that of `Policy.select`. A worth may name
        columns of items, also such as are not read: "price", or `Worth(gain="margin", cost="freight")`; or have numbers
        by the names of arms.

        >>> from rarely import LinUCB
        >>> items = [{"name": "tea", "price": 3.0}, {"name": "rum", "price": 9.0}]
        >>> policy = FramePolicy.fit(LinUCB, items=items, key="name")
        >>> items[policy.select(items=items, worth="price").arm]["name"]
        'rum'
        """
        options: Any = {"worth": self.tables.worth(worth, items), "slots": slots, "user": user, "until_due": until_due}
        return self.policy.select(self.contexts(users, items), mask, **options)

    def score(self, users: Any = None, items: Any = None, mask: Any = None) -> Scores:
        """Return each arm's mean and bonus, without recording a decision."""
        return self.policy.score(self.contexts(users, items), mask)

    def probabilities(
        self, users: Any = None, items: Any = None, mask: Any = None, *, worth: Any = None, **options: Any
    ) -> Array:
        """Return the probability of every arm, without recording a decision."""
        worth = self.tables.worth(worth, items)
        return self.policy.probabilities(self.contexts(users, items), mask, worth=worth, **options)

    def explain(self, users: Any = None, items: Any = None, *, arm: int | Decision) -> tuple[ColumnEffect, ...]:
        """Return what each column contributes to the mean and the bonus of one arm, or of a decision's, largest first.

        An effect is the difference to the average of the sample in that column; effects need not add up. Of a decision
        with a worth they are in worth: u times the mean's and the size of u times the bonus's.
        """
        gain = arm.worth.gain[arm.arm] if isinstance(arm, Decision) and arm.worth is not None else 1.0
        chosen: Any = arm.arm if isinstance(arm, Decision) else arm
        check_whole("arm", chosen, 0)
        tables, rows, features = self.tables, self.tables.rows(users), self.tables.features(items)
        names, variants = [""], [tables.placed(rows, features)]
        if variants[0].ndim != 2 or chosen >= len(variants[0]):
            raise InvalidInput(f"explain takes one round and one of its arms; got arm {chosen} of {variants[0].shape}.")
        for table, encoder, numbers in (("users", tables.users, rows), ("items", tables.items, features)):
            if encoder is None:
                continue
            for column, place in encoder.slices.items():
                other = numbers.copy()
                other[..., place] = encoder.scale.center[place]
                names.append(f"{table}.{column}")
                variants.append(tables.placed(*((other, features) if table == "users" else (rows, other))))
        rounds = np.stack([contexts[chosen : chosen + 1] for contexts in variants])
        scores = self.policy.score(rounds.view(type(variants[0])))
        mean, bonus = (u * (values[0, 0] - values[1:, 0]) for u, values in zip((gain, abs(gain)), scores, strict=True))
        effects = map(ColumnEffect, names[1:], mean.tolist(), bonus.tolist())
        return tuple(sorted(effects, key=lambda effect: -abs(effect.mean)))

    # --- the policy inside, copies and files

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "policy":  # asked for by `copy` and `pickle` before there is a policy
            raise AttributeError(name)
        return getattr(self.policy, name)

    def __sklearn_clone__(self) -> FramePolicy:
        return FramePolicy(type(self.policy)(**self.policy.settings()), self.tables)

    def __repr__(self) -> str:
        return f"<FramePolicy of {self.policy!r}>"

    def __copy__(self) -> FramePolicy:
        return copy.deepcopy(self)

    def under(self, *limits: Any, **named: Any) -> FramePolicy:
        """Return a copy that keeps to a `Ceiling`, to `Shares`, or to both; see `Policy.under`."""
        return FramePolicy(self.policy.under(*limits, **named), self.tables)

    def with_covariance(self, *args: Any, **settings: Any) -> FramePolicy:
        """Return a copy whose Z has another form; see `Policy.with_covariance`."""
        return FramePolicy(self.policy.with_covariance(*args, **settings), self.tables)

    def describe(self) -> dict[str, Any]:
        """Return the tables as JSON: each column with its kind, and what stands for its gaps."""
        return self.tables.describe()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write policy and encoders to one file; `rarely.load` brings both back."""
        archive.write(path, *self._content())

    def _content(self) -> tuple[dict[str, Any], Arrays]:
        header, arrays = content_at(self.policy, state_of(self.policy))
        return header | {"wrapper": {"kind": "FramePolicy"} | self.describe()}, arrays

    @classmethod
    def around(cls, policy: Policy, saved: dict[str, Any]) -> FramePolicy:
        """Return the policy with the tables that `describe` described."""
        return cls(policy, FrameTables.from_description(saved))


WRAPPERS.add(FramePolicy)
