"""A version as weights for each leaf, which a feature-flag tool can serve.

A leaf is a row of users' columns, such as {"country": "de", "member": true}: who has these values gets each arm as
often as its weight says. Weights are in ten thousandths and sum to all of them.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from rarely.extend import Array
from rarely.study.errors import InvalidStudy

if TYPE_CHECKING:
    from rarely.study.study import Study

WHOLE = 10_000  # what weights sum to
MOST_LEAVES = 10_000


def weights_by_leaf(study: Study, leaves: list[dict[str, Any]] | None = None, version: int | None = None) -> Any:
    """Return a version as JSON: the weights of all arms for each leaf.

    Without `leaves` they are all combinations of the values that columns of categories have. Raises `InvalidStudy` if
    the study was not made with a `FramePolicy` of users and named arms, or a column is a number and leaves are not
    given.

    >>> from rarely import FramePolicy, LinTS, OnDemand
    >>> from rarely.study import Study
    >>> users = {"country": ["de", "fr", "de", "fr"]}
    >>> policy = FramePolicy.fit(LinTS, users, arms=["red", "blue"], schedule=OnDemand(), seed=0)
    >>> study = Study.create("memory://example-flags", "colours", policy=policy)
    >>> weights_by_leaf(study)["leaves"][0]
    {'when': {'country': 'de'}, 'weights': {'red': 5000, 'blue': 5000}}
    """
    tables = study.settings.tables
    if tables is None or tables.users is None or not tables.arms:
        raise InvalidStudy("weights by leaf need a study of FramePolicy.fit(kind, users, arms=[…]).")
    number = study.status().version if version is None else version
    policy = study.policy(number)
    rows = _all_leaves(tables.users) if leaves is None else list(leaves)
    if not rows or len(rows) > MOST_LEAVES:
        raise InvalidStudy(f"there must be 1 to {MOST_LEAVES:,} leaves; got {len(rows):,}. Give those that matter.")
    found = []
    for row in rows:
        chances = policy.probabilities(tables.contexts(row))
        shares = dict(zip(tables.arms, _whole(chances), strict=True))
        found.append({"when": row, "weights": shares})
    return {"study": study.name, "version": number, "of": WHOLE, "leaves": found}


def _all_leaves(users: Any) -> list[dict[str, Any]]:
    """Return all combinations of the values of categories."""
    others = [column.name for column in users.columns if column.kind != "category"]
    if others:
        raise InvalidStudy(
            f"column {others[0]!r} is no category, so leaves must be given: rows of the values to serve."
        )
    names = [column.name for column in users.columns]
    size = int(np.prod([len(column.values) for column in users.columns], dtype=float))
    if size > MOST_LEAVES:
        raise InvalidStudy(f"there are {size:,} combinations, more than {MOST_LEAVES:,}; give the leaves that matter.")
    return [dict(zip(names, values, strict=True)) for values in product(*(column.values for column in users.columns))]


def _whole(chances: Array) -> list[int]:
    """Return probabilities in ten thousandths that sum to all of them: what is left goes to the largest remainders."""
    exact = chances * WHOLE
    out = np.floor(exact).astype(int)
    out[np.argsort(out - exact, kind="stable")[: WHOLE - int(out.sum())]] += 1
    return [int(each) for each in out]
