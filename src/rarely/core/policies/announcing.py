"""What an update says aloud: warnings of a rejected training, of a schedule that cannot serve its horizon and of
numbers far from all others; and a line in the log of Python's `logging`, INFO or, of a rejected update, WARNING.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import numpy as np

from rarely.core.errors import OutlierWarning, RejectedWarning, ScheduleWarning
from rarely.core.inputs.history import History
from rarely.core.policies.clock import BatchClock
from rarely.core.policies.state import PolicyState
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.types import Array

FAR = 1e4
"""How many times as far from the median as three quarters of the others are."""
PAST = 1000
"""Earlier rewards that new ones are compared with."""
OFTEN = 16
"""Rewards that are looked at together where each has an update of its own."""
SHORT = 100
"""Of these so many are looked at first: a number within so many times their range is no outlier."""

LOGGER = logging.getLogger("rarely")
LOGGER.addHandler(logging.NullHandler())  # a library logs nothing unless the program asks for it

Said = tuple[type[Warning], str]


def announce(before: PolicyState, after: PolicyState, record: UpdateRecord, *, trained: bool) -> None:
    """Warn of what the user of an update should know, and would find in records alone."""
    said: list[Said] = [*_of_schedule(before.clock, after.clock, record)]
    if trained:
        said += [*_of_rejection(record), *_of_outliers(before)]
    for category, text in said:
        warnings.warn(text, category, stacklevel=4)


def log_update(policy: str, record: UpdateRecord) -> None:
    """Log one update."""
    if record.accepted:
        LOGGER.info(
            "%s: version %d after round %d, from %d rewards (%d missing)",
            *(policy, record.version, record.round, record.samples, record.missing),
        )
    else:
        LOGGER.warning("%s: no new version after round %d: %s", policy, record.round, record.reason)


def _of_rejection(record: UpdateRecord) -> Iterator[Said]:
    if not record.accepted:
        yield (
            RejectedWarning,
            f"the update after round {record.round} was rejected: {record.reason}. Version {record.version} goes on, "
            "and no version of the budget is spent. If this comes again, look for rewards or contexts far from the "
            "others, or set a smaller step size.",
        )


def _of_schedule(before: BatchClock, after: BatchClock, record: UpdateRecord) -> Iterator[Said]:
    """A trigger that had to be rescued, and a last version in use before half of the rounds are decided."""
    horizon, batches = after.budget.horizon, after.budget.batches
    if "saturated" in record.due:
        why = record.due.partition(";")[0]
        text = f"{why}, so an update came anyway. Use Paced(horizon, batches), or a smaller log_ratio."
        yield ScheduleWarning, text
    ends = after.spent and not before.spent and not after.budget.plans_ahead
    if ends and horizon is not None and 2 * record.round < horizon:
        yield (
            ScheduleWarning,
            f"the budget of {batches} versions is spent after {record.round} of {horizon} rounds, so the rest is "
            "decided without learning. Paced(horizon, batches) keeps updates for later; or plan more batches.",
        )


def _of_outliers(before: PolicyState) -> Iterator[Said]:
    """Of the rewards that came since an update last looked, and of their contexts."""
    history, looked = before.history, before.learned // OFTEN * OFTEN
    if history.arrived - before.learned == 1 and history.arrived % OFTEN:
        return  # an update after every round would spend a tenth of its time here
    new = min(history.arrived - looked, len(history) - history.missing)
    if not new:
        return
    suspects = _suspects(_table(history, new + SHORT), new)
    table = _table(history, new + PAST) if suspects else np.empty((0, 0))
    for column in suspects:
        place = outlier(table[:, column], new)
        if place is None:
            continue
        position = history.last_arrivals(len(table))[0][place]
        round = int(history.rows[position]) - history.logged + 1
        where = f"of round {round}" if round > 0 else "of the log"
        what = f"the reward {where}"
        if column:
            names = before.reader.columns
            name = f"{column - 1}" if names is None else repr(names[column - 1])
            what = f"column {name} of the context {where}"
        yield (
            OutlierWarning,
            f"{what} is {table[place, column]:.6g}, more than {FAR:,.0f} times as far from the median as three "
            "quarters of the latest are, so that learning follows it more than all others. If it stands for a missing "
            "value, or is a mistake, leave such rounds out; if not, clip it or take logarithms.",
        )


def _table(history: History, count: int) -> Array:
    """(n, 1 + d): the last rewards that came, and their contexts."""
    _, contexts, rewards = history.last_arrivals(count)
    return np.column_stack((rewards, contexts))


def _suspects(table: Array, new: int) -> list[int]:
    """Columns in which a new number is far outside the range of those before; all where there are none before."""
    past, now = table[-new - SHORT : -new], table[-new:]
    if not len(past):
        return list(range(table.shape[1]))
    low, high = past.min(axis=0), past.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        room = SHORT * (high - low)
        outside = (now.max(axis=0) > high + room) | (now.min(axis=0) < low - room)
    return np.flatnonzero(outside).tolist()


def outlier(values: Array, new: int) -> int | None:
    """Where the farthest of the last `new` values is, if it is `FAR` off; None where most values are the same.

    >>> outlier(np.array([0.1, 0.4, 0.2, 0.3, -99999.0]), new=5)
    4
    """
    with np.errstate(over="ignore"):
        off = np.abs(values - np.median(values))
    place = len(values) - new + int(np.argmax(off[-new:]))
    usual = float(np.quantile(off, 0.75, method="lower"))  # between two values rounding can make a tiny one of 0
    return place if usual > 0 and off[place] > FAR * usual else None
