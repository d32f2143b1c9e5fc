"""What an update watches over: alarms, outliers, rejected trainings, schedules that cannot serve, and its log line.

It warns of a rejected training, of a schedule that cannot serve its horizon and of numbers far from all others, and
writes one line to Python's `logging`: INFO, or WARNING for a rejected update.

An alarm compares the latest rewards with what earlier batches led one to expect.

    e    (n,)   reward − predicted mean of the rewards that arrived since the last check
    q    ()     mean of e² over the variance of these rewards: what the predictions leave unexplained
    σ    ()     standard deviation of e
    √v   ()     √(φᵀZ⁻¹φ) of the arms that the batch chose: σ·√v is how far predictions may be off together

    coverage    e² is larger than before, and q by a quarter: rewards lie farther from their predictions
    rewards     the mean of e has left that of earlier batches, away from 0
    arms        a frozen version chose other arms in the second half of its batch than in the first
    missing     of the rounds before the latest batch, more have no reward than before at the same age

Rewards of arms of which far less was known than of those before, such as new ones, are left out.

A policy learns, so predictions may get better, and a new version chooses other arms: neither is an alarm. One test has
the level 0.01/(40·4), so that 40 updates of an unchanged world raise an alarm in one life of a hundred, by the union
bound. The expectation halves what it knew at every check, and stays as it was while an alarm of its kind is raised.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rarely._core.errors import DriftWarning, ForgettingWarning, OutlierWarning, RejectedWarning, ScheduleWarning
from rarely._core.inputs.history import History
from rarely._core.types import Array, Described, IntArray

if TYPE_CHECKING:
    from rarely._core.policies.state import BatchClock, PolicyState, UpdateRecord

# --- alarms

ALARM_KINDS = ("coverage", "rewards", "arms", "missing")
LEVEL = 0.01 / (40 * len(ALARM_KINDS))  # the probability of one false alarm of one kind at one update
WORSE = 1.25  # how many times q must be that of earlier batches, for e² may grow because rewards vary more
OVERDUE = 100  # rounds for which an update may be due before that is said
NEW_ARM_RATIO = 2.0  # skip arms whose bonus is over this many times the largest before: their rewards may be anything
FEWEST = 20  # rewards, or rounds, below which nothing is compared


class Moments(NamedTuple):
    """The weight, mean and variance of some numbers."""

    weight: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    @classmethod
    def of(cls, values: Array) -> Moments:
        """Return the moments of these numbers."""
        return cls(float(len(values)), float(values.mean()), float(values.var(ddof=1)))

    def merge(self, other: Moments) -> Moments:
        """Return both together, these at half their weight."""
        old = self.weight / 2
        total, shift = old + other.weight, other.mean - self.mean
        part = other.weight / total
        variance = (1 - part) * (self.variance + shift * shift * part) + part * other.variance
        return Moments(total, self.mean + shift * part, variance)


@dataclass(frozen=True, slots=True)
class Expectations(Described):
    """What the batches so far lead one to expect of the next, and which alarms are raised."""

    arrived: int = 0  # rewards that were compared
    rounds: int = 0  # rounds that had been decided by the last check
    earlier: int = 0  # rounds that had been decided by the check before
    errors: Moments = field(default_factory=Moments)
    squares: Moments = field(default_factory=Moments)
    unexplained: float = 0.0  # q of earlier batches
    doubt: float = 0.0  # the largest bonus among the rewards compared last
    missing: Moments = field(default_factory=Moments)
    raised: tuple[str, ...] = ()

    def after(
        self, history: History, version: int, model: float, *, predicts: bool, frozen: bool
    ) -> tuple[Expectations, dict[str, str]]:
        """Return the expectations after an update, and a sentence for each alarm that it raises.

        `version` is the one whose batch ends, `model` its √v, `predicts` whether there is a model at all and
        `frozen` whether nothing but contexts decides within a batch.
        """
        if max(history.rounds - self.rounds, history.arrived - self.arrived) < FEWEST:
            return self, {}
        next_, sentences = self, dict.fromkeys(self.raised, "still")  # unless it is checked now
        if history.rounds - self.rounds >= FEWEST:
            sentences["missing"], next_ = next_._check_missing(history)
            if frozen:
                sentences["arms"] = _check_arms(history, self.rounds, version)
            next_ = replace(next_, rounds=history.rounds, earlier=self.rounds)
        places, rewards = history.predicted_since(self.arrived)
        means, bonuses, arms = (column[places] for column in (history.means, history.bonuses, history.arms))
        if len(rewards) >= FEWEST:
            strange = bonuses > NEW_ARM_RATIO * (self.doubt or math.inf)
            usual = ~np.isin(arms, arms[strange])  # running bonuses fall within a batch, whose means stay
            if np.count_nonzero(usual) >= FEWEST:
                said, next_ = next_._check_rewards(rewards[usual], (rewards - means)[usual], model, predicts=predicts)
                sentences |= said
            next_ = replace(next_, arrived=history.arrived, doubt=float(bonuses.max()))
        raised = tuple(kind for kind in ALARM_KINDS if sentences.get(kind))
        return replace(next_, raised=raised), {kind: sentences[kind] for kind in raised if kind not in self.raised}

    def _check_rewards(
        self, rewards: Array, errors: Array, model: float, *, predicts: bool
    ) -> tuple[dict[str, str], Expectations]:
        """Return what is to be said of errors, and the expectations with those that are as expected."""
        now, squares, spread = Moments.of(errors), Moments.of(np.square(errors)), float(rewards.var())
        share = squares.mean / max(spread, 1e-30)
        sentences = {"coverage": "", "rewards": ""}
        rounding = 1e-9 * float(np.abs(rewards).max())
        if not math.isfinite(share + squares.variance) or 0 < rounding < 1e-150:  # squares overflow, or vanish
            return sentences, self
        if self.errors.weight >= FEWEST:
            off = abs(now.mean - self.errors.mean)
            together = math.sqrt(now.variance) * model
            worse = not predicts or abs(now.mean) > abs(self.errors.mean)
            if worse and off > rounding + _bound(now, self.errors, extra=together):
                sentences["rewards"] = (
                    f"the last {len(errors)} rewards are {rewards.mean():.3g} in the mean, {now.mean:+.3g} from their "
                    f"predictions, and those before were {self.errors.mean:+.3g}"
                )
        if predicts and self.squares.weight >= FEWEST:
            more = squares.mean - self.squares.mean
            if share > WORSE * self.unexplained and more > rounding**2 + _bound(squares, self.squares):
                sentences["coverage"] = (
                    f"the last {len(errors)} rewards are {math.sqrt(squares.mean):.3g} from their predictions (root "
                    f"mean square), and those before were {math.sqrt(self.squares.mean):.3g}"
                )
        next_ = self if sentences["rewards"] else replace(self, errors=self.errors.merge(now))
        if not sentences["coverage"]:
            both = self.squares.merge(squares)
            part = squares.weight / both.weight
            next_ = replace(next_, squares=both, unexplained=(1 - part) * self.unexplained + part * share)
        return sentences, next_

    def _check_missing(self, history: History) -> tuple[str, Expectations]:
        """Return what is to be said of the rounds before the latest batch, and the expectations with them."""
        lacking = np.isnan(history.rewards_between(self.earlier, self.rounds))
        if len(lacking) < FEWEST:
            return "", self
        now, before = Moments.of(lacking.astype(np.float64)), self.missing
        if before.weight >= FEWEST:
            share = (before.weight * before.mean + now.weight * now.mean) / (before.weight + now.weight)
            one, other = (Moments(each.weight, 0.0, share * (1 - share)) for each in (now, before))
            if now.mean - before.mean > _bound(one, other):
                return (
                    f"{np.count_nonzero(lacking)} of the {len(lacking)} rounds {self.earlier + 1} to {self.rounds} "
                    f"have no reward, {now.mean:.0%} against {before.mean:.0%} before"
                ), self
        return "", replace(self, missing=before.merge(now))


def _bound(now: Moments, before: Moments, extra: float = 0.0, tests: int = 1) -> float:
    """Return how far two means may be apart by chance; `extra` is a standard deviation that they do not show."""
    from statistics import NormalDist  # only here, because importing it takes long

    one, other = now.variance / now.weight, before.variance / before.weight
    size = one + other
    # Welch's degrees of freedom.
    least = one * one / (now.weight - 1) + other * other / max(before.weight - 1, 1.0)
    freedom = size * size / least if least > 0 else now.weight - 1
    z = -NormalDist().inv_cdf(LEVEL / tests / 2)
    return t_quantile(z, freedom) * math.sqrt(size + extra * extra)


def t_quantile(z: float, freedom: float) -> float:
    """Return Student's quantile that leaves as much as z does of a normal variable (Abramowitz and Stegun, 26.7.5).

    By Cornish and Fisher's series in the degrees of freedom, which need not be whole.

    >>> round(t_quantile(1.959964, 10.0), 2), t_quantile(2.0, 0.0)
    (2.23, inf)
    """
    if freedom <= 0:
        return math.inf
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _check_arms(history: History, start: int, version: int) -> str:
    """Return what is to be said of the arms that one version chose, in the halves of its rounds after `start`."""
    arms = history.arms_since(start, version)
    half, kinds = len(arms) // 2, int(arms.max(initial=0)) + 1
    if half < FEWEST:
        return ""
    before, now = (np.bincount(part, minlength=kinds) / len(part) for part in (arms[:half], arms[half:]))
    arm = int(np.abs(now - before).argmax())
    share = float(np.mean(arms == arm))
    first, second = (Moments(float(size), 0.0, share * (1 - share)) for size in (half, len(arms) - half))
    if abs(now[arm] - before[arm]) <= _bound(second, first, tests=kinds):
        return ""
    return (
        f"version {version} chose arm {arm} in {before[arm]:.0%} of the first half of its rounds and in {now[arm]:.0%} "
        "of the second, so contexts or the arms on offer have changed"
    )


# --- warnings and log lines

OUTLIER_DISTANCE = 1e4  # an outlier is this many times as far from the median as three quarters of the others are
COMPARED = 1000  # earlier rewards that new ones are compared with
FEWEST_VALUES = 5  # values below which nothing is usual
FEWEST_COMPARED = 16  # values other than the median that a column needs in which many equal it
OUTLIER_CHECK_EVERY = 16  # with one update per round, look for outliers only every 16 rewards
GLANCE = 100  # latest rewards, compared first: a number within this many times their range is not an outlier
Said = tuple[type[Warning], str]


def nothing_to_watch(state: PolicyState) -> bool:
    """Return whether an update made now would look neither for alarms nor for outliers."""
    expected, history = state.expectations, state.history
    new, arrived = history.arrived - state.learned, history.arrived
    if expected.raised or new != 1 or arrived % OUTLIER_CHECK_EVERY == 0:
        return False
    return max(history.rounds - expected.rounds, arrived - expected.arrived) < FEWEST


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
            f"the world seems to change: {record.memory}. The policy asks again at every update, and records what it "
            "remembers in updates[-1].memory. forgetting=None never forgets."
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


def warn_overdue(before: PolicyState, after: PolicyState) -> None:
    """Warn when the horizon is passed with an update due, and when one has been for 100 rounds; each happens once.

    A single round that ends the batch past the horizon may be followed by the update at once.
    """
    horizon, rounds = before.clock.budget.horizon, after.history.rounds - before.history.rounds
    since = after.clock.due_round
    within = horizon is None or after.history.rounds <= horizon  # past it the other warning has been given
    if since and within and before.history.rounds < since + OVERDUE <= after.history.rounds:
        say_overdue(after.clock, since + OVERDUE)
    late = horizon is not None and before.history.rounds <= horizon < after.history.rounds
    if horizon is not None and late and (before.clock.due or rounds > 1):
        warnings.warn(
            f"round {horizon + 1} is past the horizon of the schedule, and an update has been due for some time: "
            f"version {before.clock.version} still decides, without what was observed since. Call policy.update() "
            "when policy.due is True, or make the policy with a longer horizon.",
            ScheduleWarning,
            stacklevel=3,
        )


def say_overdue(clock: BatchClock, round: int) -> None:
    """Warn that an update has been due for some rounds, until this one."""
    since = clock.due_round
    warnings.warn(
        f"an update has been due for {round - since} rounds, since round {since}: version {clock.version} still "
        "decides, without what was observed since. Call policy.update() when policy.due is True.",
        ScheduleWarning,
        stacklevel=4,
    )


@cache
def _logger() -> Any:
    """Return the library's logger, which says nothing unless the program asks for it."""
    import logging  # only here, because importing it takes long

    logger = logging.getLogger("rarely")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def log_update(policy: str, record: UpdateRecord) -> None:
    """Log one update."""
    if record.accepted:
        _logger().info(
            "%s: version %d after round %d, from %d rewards (%d missing)",
            *(policy, record.version, record.round, record.samples, record.missing),
        )
    else:
        _logger().warning("%s: no new version after round %d: %s", policy, record.round, record.reason)


def _of_schedule(before: BatchClock, after: BatchClock, record: UpdateRecord) -> Iterator[Said]:
    """Warn of a trigger that had to be rescued, and of a last version before half of the rounds are decided."""
    horizon, batches = after.budget.horizon, after.budget.batches
    if "saturated" in record.due:
        why = record.due.partition(";")[0]
        yield ScheduleWarning, f"{why}, so an update came anyway. Use Paced(horizon, batches), or a smaller log_ratio."
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
            "three quarters of the latest are, so that least squares follow it more than all others. If it stands for "
            "a missing value, or is a mistake, leave such rounds out; otherwise clip it or take logarithms.",
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
    comparable = (usual > 0) & ((equal <= 1) | (rows - equal >= FEWEST_COMPARED)) & (rows >= FEWEST_VALUES)
    # Divided, because a product may overflow.
    return np.where(comparable & (off[places, np.arange(columns)] / OUTLIER_DISTANCE > usual), places, -1)
