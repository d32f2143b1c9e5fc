"""Warnings and log lines of an update.

It warns of a rejected training, of a schedule that cannot serve its horizon and of numbers far from all others, and
writes one line to Python's `logging`: INFO, or WARNING for a rejected update.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import numpy as np

from rarely._core.errors import DriftWarning, ForgettingWarning, OutlierWarning, RejectedWarning, ScheduleWarning
from rarely._core.inputs.history import History
from rarely._core.policies.state import BatchClock, PolicyState, UpdateRecord
from rarely._core.types import Array, IntArray

OUTLIER_DISTANCE = 1e4
"""An outlier is this many times as far from the median as three quarters of the others are."""
COMPARED = 1000
"""Earlier rewards that new ones are compared with."""
FEWEST_VALUES = 5
"""Values below which nothing is usual."""
FEWEST_COMPARED = 16
"""Values other than the median that a column needs in which many equal it."""
OUTLIER_CHECK_EVERY = 16
"""With one update per round, look for outliers only every 16 rewards."""
GLANCE = 100
"""The latest rewards, which are compared first: a number within this many times their range is not an outlier."""

LOGGER = logging.getLogger("rarely")
LOGGER.addHandler(logging.NullHandler())  # a library logs nothing unless the program asks for it

Said = tuple[type[Warning], str]


def announce(before: PolicyState, after: PolicyState, record: UpdateRecord, *, trained: bool) -> None:
    """Warn of what the user of an update should know and would otherwise find only in its records."""
    said = [*_of_schedule(before.clock, after.clock, record)]
    if trained and not record.accepted:
        text = (
            f"the update after round {record.round} was rejected: {record.reason}. Version {record.version} stays in "
            "use, and no version of the budget is spent. If this happens again, look for rewards or contexts far from "
            "the others, or set a smaller step size."
        )
        said.append((RejectedWarning, text))
    # An update after every round would spend a tenth of its time on looking for outliers.
    arrived = before.history.arrived
    if trained and (arrived - before.learned != 1 or arrived % OUTLIER_CHECK_EVERY == 0):
        said += _of_outliers(before)
    if record.memory and all(event.kind != "memory" for event in before.events):
        text = (
            f"the world seems to change: {record.memory}. The policy learns from those from now on, asks again at "
            "every update, and records what it remembers in updates[-1].memory. forgetting=None never forgets."
        )
        said.append((ForgettingWarning, text))
    for event in after.events[len(before.events) :]:
        if event.kind == "alarm":
            text = (
                f"{event.detail}. The world, or what reports its rewards, may have changed: check that first. If it "
                "has, forgetting=Window(rounds) lets the policy follow. The alarm is in updates[-1].alarms while it "
                "lasts."
            )
            said.append((DriftWarning, text))
    for category, text in said:
        warnings.warn(text, category, stacklevel=4)


def warn_past_horizon(before: PolicyState, after: PolicyState) -> None:
    """Warn when the horizon is passed with an update due, which happens once.

    A single round that ends the batch past the horizon may be followed by the update at once.
    """
    horizon, rounds = before.clock.budget.horizon, after.history.rounds - before.history.rounds
    if horizon is None or not (before.clock.due or rounds > 1):
        return
    if before.history.rounds <= horizon < after.history.rounds:
        warnings.warn(
            f"round {horizon + 1} is past the horizon of the schedule, and an update has been due for some time: "
            f"version {before.clock.version} still decides, without what was observed since. Call policy.update() "
            "when policy.due is True, or make the policy with a longer horizon.",
            ScheduleWarning,
            stacklevel=3,
        )


def log_update(policy: str, record: UpdateRecord) -> None:
    """Log one update."""
    if record.accepted:
        LOGGER.info(
            "%s: version %d after round %d, from %d rewards (%d missing)",
            *(policy, record.version, record.round, record.samples, record.missing),
        )
    else:
        LOGGER.warning("%s: no new version after round %d: %s", policy, record.round, record.reason)


def _of_schedule(before: BatchClock, after: BatchClock, record: UpdateRecord) -> Iterator[Said]:
    """Warn of a trigger that had to be rescued, and of a last version before half of the rounds are decided."""
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
    """Warn of outliers among the rewards that arrived since an update last looked, and in their contexts."""
    history, looked = before.history, before.learned // OUTLIER_CHECK_EVERY * OUTLIER_CHECK_EVERY
    new = min(history.arrived - looked, len(history) - history.missing)
    if not new:
        return
    suspects = _suspects(_table(history, new + GLANCE), new)
    if not len(suspects):
        return
    table = _table(history, new + COMPARED)
    places = outliers(table[:, suspects], new)
    for column, place in zip(suspects[places >= 0], places[places >= 0], strict=True):
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
            f"{what} is {table[place, column]:.6g}, more than {OUTLIER_DISTANCE:,.0f} times as far from the median as "
            "three quarters of the latest are, so that learning follows it more than all others. If it stands for a "
            "missing value, or is a mistake, leave such rounds out; otherwise clip it or take logarithms.",
        )


def _table(history: History, count: int) -> Array:
    """Return the last rewards and their contexts, (n, 1 + d)."""
    _, contexts, rewards = history.last_arrivals(count)
    return np.column_stack((rewards, contexts))


def _suspects(table: Array, new: int) -> IntArray:
    """Return the columns in which a new number is far outside the range of those before; all if there are none."""
    past, now = table[-new - GLANCE : -new], table[-new:]
    if not len(past):
        return np.arange(table.shape[1])
    low, high = past.min(axis=0), past.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        room = GLANCE * (high - low)
        outside = (now.max(axis=0) > high + room) | (now.min(axis=0) < low - room)
    return np.flatnonzero(outside)


def outliers(table: Array, new: int) -> IntArray:
    """Return where the farthest of the last `new` values of each column is if that is an outlier, else −1.

    Values that equal the median of their column are left out if it has several: a column of one arm of several, or of
    rare events, is 0 in most rows, and its usual distance is that of the others.

    >>> outliers(np.array([[0.1, 0.4, 0.2, 0.3, -99999.0]]).T, new=5)
    array([4])
    """
    rows, columns = table.shape
    with np.errstate(over="ignore"):
        off = np.abs(table - np.median(table, axis=0))
    places = rows - new + np.argmax(off[rows - new :], axis=0)
    equal = np.count_nonzero(off == 0, axis=0)
    left_out = np.where(equal > 1, equal, 0)
    # The quantile is one of the values: between two of them rounding can make a tiny one of 0.
    usual = np.sort(off, axis=0)[(left_out + 3 * (rows - 1 - left_out) // 4).clip(0, rows - 1), np.arange(columns)]
    # Two of three numbers are next to each other now and then; four of five are not.
    known = (usual > 0) & ((equal <= 1) | (rows - equal >= FEWEST_COMPARED)) & (rows >= FEWEST_VALUES)
    # Divided, because a product may overflow.
    return np.where(known & (off[places, np.arange(columns)] / OUTLIER_DISTANCE > usual), places, -1)
