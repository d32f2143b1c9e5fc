"""The dashboard: pages that the service renders, with their charts inside and nothing loaded from elsewhere.

The database sums what decisions earned, by span of time, version and arm: a cell of `Earned`. The record is
append-only, so a page that is loaded again asks for what is new.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from math import hypot, sqrt
from typing import Any

import numpy as np

from rarely.errors import RarelyError
from rarely.extend import Array, schedule_from
from rarely.offpolicy import difference
from rarely.offpolicy.intervals import Span, deviations, normal, score
from rarely.pages.page import render
from rarely.pages.svg import Chart, legend
from rarely.study import Status, Study
from rarely.study.settings import RewardRule
from rarely.study.versions import UNLIMITED

BINS = 40  # points of a chart over time
SPANS = 400  # spans of time that are kept apart; with more of them, two become one
EVENTS = 20_000  # events that the database sums at a time
BLOCK, DEVIATIONS = 500, 5.0
"""Rewards that are compared with those before, and by how many standard errors they are lower if it is an alarm."""
MAX_ARMS = 7  # arms with a colour of their own; the others share the last
SECTIONS = {"helped": "Did it help?", "charts": "Charts", "acts": "What to do", "updates": "Versions"}
SECTIONS |= {"health": "Health", "quarantine": "Quarantine", "steps": "Latest actions"}
LATEST = 100  # how many rewards in quarantine, and actions of people, are named
TICKS = [60.0 * minutes for minutes in (1, 5, 15, 60, 180, 720, 1440, 2880, 10_080, 43_200, 129_600, 525_600)]
"""Seconds between two marks on an axis of time."""
NOTHING: Array = np.zeros(6)
"""Decisions, rewards, their sum and sum of squares, how many are neither 0 nor 1, and what they are worth."""


class Earned:
    """What decisions have earned, and whether the rewards of the version in use fell; hold `lock` meanwhile."""

    def __init__(self, rule: RewardRule) -> None:
        self.rule, self.lock, self.seq, self.width = rule, threading.Lock(), 0, 60_000_000
        self.cells: dict[tuple[int, int, int], Array] = {}
        """`NOTHING` and more, by span of `width` microseconds, version and arm."""
        self.fell = False
        self._version, self._before, self._block = -1, NOTHING, NOTHING

    def follow(self, study: Study, last: int) -> None:
        """Take in the next events up to `last`, so many that others hardly wait."""
        end = min(last, self.seq + EVENTS)
        for span, version, arm, *more in study.earned(self.seq, end, self.width):
            place, counts = (int(span), int(version), int(arm)), np.array(more, np.float64)
            self.cells[place] = self.cells.get(place, NOTHING) + counts
            if version > self._version:
                self._version, self.fell, self._before, self._block = int(version), False, NOTHING, NOTHING
            if version == self._version:
                self._block = self._block + counts
        self.seq = end
        self._compare()
        while len({span for span, *_ in self.cells}) > SPANS:
            cells, self.cells, self.width = self.cells, {}, 2 * self.width
            for (span, *others), counts in cells.items():
                place = span // 2, others[0], others[1]
                self.cells[place] = self.cells.get(place, NOTHING) + counts

    def _compare(self) -> None:
        """Compare the latest block of rewards of the newest version with those before, once it is whole."""
        (_, m, s, q, *_), (_, n, t, r, *_) = self._before, self._block
        if n < BLOCK:
            return
        if m >= BLOCK:
            spread = max(q / m - (s / m) ** 2, 0.0) / m + max(r / n - (t / n) ** 2, 0.0) / n
            self.fell = bool(t / n - s / m < -DEVIATIONS * sqrt(spread))
        if not self.fell:
            self._before = self._before + self._block
        self._block = NOTHING

    def by(self, place: int) -> dict[int, Array]:
        """Return the sums by span (0), version (1) or arm (2), in order."""
        sums: dict[int, Array] = {}
        for key, counts in self.cells.items():
            sums[key[place]] = sums.get(key[place], NOTHING) + counts
        return dict(sorted(sums.items()))

    @property
    def in_worth(self) -> bool:
        """Whether some decision said what its outcome is worth."""
        return any(counts[5] != counts[2] for counts in self.cells.values())

    def moment(self, span: float) -> float:
        """Return when a span begins, in seconds since 1970."""
        return span * self.width / 1e6


# --- pages


def render_study(
    study: Study,
    earned: Earned,
    status: Status,
    health: Sequence[tuple[str, bool, str]] = (),
    candidate: str = "",
    token: str = "",
) -> str:
    """Return the page of a study; with a token it has buttons for those who may press them."""
    acts, names = study.acts(), study.settings.arms
    made = [event for event in acts if event.kind in ("create", "version", "candidate", "rejected")]
    schedule = made[-1].content["settings"].get("schedule")
    numbers = [event.content["number"] for event in made if event.kind in ("create", "version")]
    with earned.lock:
        rows, arms, in_worth = by_version(earned), by_arm(earned, names)[:LATEST], earned.in_worth
        panels = [panel for panel in (_rewards(earned, rows), _shares(earned, names)) if panel]
    return render(
        "rarely.service",
        "study.html",
        contents=[(id, name) for id, name in SECTIONS.items() if id != "acts" or token or candidate],
        now=time.time(),
        status=status,
        unlimited=status.budget >= UNLIMITED,
        schedule=schedule_from(schedule) if schedule else "no schedule",
        candidate=candidate,
        token=token,
        numbers=[number for number in numbers if number != status.version],
        updates=made,
        steps=[event for event in acts if event.kind not in ("create", "rejected")][: -LATEST - 1 : -1],
        quarantined=study.quarantined(LATEST),
        health=[*_conditions(status), *health],
        by_version=rows[-LATEST:],
        by_arm=arms,
        in_worth=in_worth,
        judged=judged(rows, status.version),
        panels=panels,
    )


def by_version(earned: Earned) -> list[dict[str, Any]]:
    """Return what the decisions of each version earned, and whether that differs from the version before.

    The difference of two means has an interval from those of both (Newcombe's).
    """
    rows: list[dict[str, Any]] = []
    for version, counts in earned.by(1).items():
        spans = [span for span, number, _ in earned.cells if number == version]
        row = {"name": version, "first": earned.moment(min(spans)), "last": earned.moment(max(spans) + 1)}
        row |= mean_of(earned, counts)
        rows.append(row | (compared(row, rows[-1]) if rows else {}))
    return rows


def by_arm(earned: Earned, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return what the decisions for each arm earned, the most frequent arm first."""
    rows = [{"name": names[a] if names else a, **mean_of(earned, counts)} for a, counts in earned.by(2).items()]
    return sorted(rows, key=lambda row: -row["decisions"])


def compared(row: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return how the mean reward of a version differs from that of another one."""
    if not (row["rewards"] and old["rewards"]):
        return {}
    change = row["mean"] - old["mean"]
    low = change - hypot(row["mean"] - row["low"], old["high"] - old["mean"])
    high = change + hypot(row["high"] - row["mean"], old["mean"] - old["low"])
    verdict = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
    return {"change": change, "change_low": low, "change_high": high, "verdict": verdict}


def judged(rows: Sequence[dict[str, Any]], version: int) -> dict[str, Any] | None:
    """Return the version in use, compared with the last other one that decided: after a rollback, the one left."""
    mine = next((row for row in rows if row["name"] == version), None)
    others = [row for row in rows if row["name"] != version]
    if mine is None or not others or not (verdict := compared(mine, others[-1])):
        return None
    return mine | verdict | {"other": others[-1]["name"], "other_mean": others[-1]["mean"]}


def mean_of(earned: Earned, counts: Array) -> dict[str, Any]:
    """Return the mean reward of some decisions with its 95 % interval: a score interval if their range is known."""
    decisions, n, total, squares, _, worth = counts.tolist()
    row: dict[str, Any] = {"decisions": int(decisions), "rewards": int(n), "mean": None, "verdict": ""}
    row["worth"] = worth / n if n else None
    if not n:
        return row
    mean, rule, z = total / n, earned.rule, deviations(0.95)
    spread = max(squares - n * mean**2, 0.0)
    error = sqrt(spread / n / max(n - 1, 1))
    low, high = normal(mean, error, z)
    within = None if any(counts[4] for counts in earned.cells.values()) else (0.0, 1.0)
    if rule.aggregation != "sum" and rule.least is not None and rule.most is not None:
        within = rule.least, rule.most
    if within is not None:  # as `variance_share`, of sums
        width = within[1] - within[0]
        at = (mean - within[0]) / width
        share = min(1.0, (spread / width**2 + 1) / (n * max(0.0, at * (1 - at)) + 1))
        low, high = score(mean, error, z, Span(*within, n), share, within)
    return row | {"mean": mean, "low": low, "high": high}


def candidate_text(study: Study, status: Status) -> str:
    """Return what a candidate would have earned in place of the version in use, by decisions that it does not know."""
    candidates = [event for event in study.acts() if event.seq == status.candidate]
    if not candidates:
        return ""
    first = max(candidates[0].content["cut"], status.events - EVENTS)
    try:
        log = study.log(first)
        gain = difference(log, study.policy("candidate"), study.policy(status.version))
    except RarelyError as refusal:
        return f"What it would earn cannot be estimated yet: {refusal}"
    return (
        f"By the {len(log) - log.missing} rewarded decisions since it was trained it would earn {gain.value:+.3g} in "
        f"each beside version {status.version}, 95 % interval {gain.low:.3g} to {gain.high:.3g} (doubly robust). "
        f"{gain.note}"
    )


# --- charts


def _binned(earned: Earned) -> tuple[Array, list[dict[int, Array]]]:
    """Return the moments of the bins of a chart, and in each the sums by arm."""
    spans = sorted(earned.by(0))
    count = min(BINS, spans[-1] - spans[0] + 1)
    edges = np.linspace(spans[0], spans[-1] + 1, count + 1)
    sums: list[dict[int, Array]] = [{} for _ in range(count)]
    for (span, _, arm), counts in earned.cells.items():
        inside = sums[min(int(np.searchsorted(edges, span, "right")) - 1, count - 1)]
        inside[arm] = inside.get(arm, NOTHING) + counts
    return np.array([earned.moment(at) for at in (edges[:-1] + edges[1:]) / 2]), sums


def _chart(earned: Earned, title: str, y: tuple[float, float], times: Array, lines: Any) -> Chart:
    """Return a chart over the time of all decisions."""
    spans = earned.by(0)
    ends = earned.moment(min(spans)), earned.moment(max(spans) + 1)
    chart = Chart(title, ends, y, ticks=time_ticks(*ends))
    for series, values in enumerate(lines):
        chart.line(times, values, series)
        if len(times) == 1:
            chart.point(times[0], values[0], series)
    return chart


def _rewards(earned: Earned, versions: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    rows = [row for row in versions if row["rewards"]]
    told = sum(row["rewards"] for row in rows)
    if told < 2:
        return None
    times, bins = _binned(earned)
    sums = [sum(inside.values(), NOTHING) for inside in bins]
    means = np.array([counts[2] / counts[1] if counts[1] else np.nan for counts in sums])
    high = float(np.nanmax([*means, *(row["mean"] for row in rows)]))
    chart = _chart(earned, "mean reward over time", (min(np.nanmin(means), 0), high * 1.05), times, [means])
    for row in rows:
        chart.line((row["first"], row["last"]), (row["mean"], row["mean"]), 1)
    for row in rows[1:]:
        chart.mark(row["first"])
    note = f"{told} rewards of {sum(row['decisions'] for row in versions)} decisions, by when they were made."
    return {"title": "Mean reward", "svg": chart.svg(), "legend": legend("spans of time", "version"), "note": note}


def _shares(earned: Earned, given: Sequence[str] | None) -> dict[str, Any] | None:
    if not earned.cells:
        return None
    times, bins = _binned(earned)
    names = list(given or map(str, range(max(earned.by(2)) + 1)))
    counts = np.array([[inside.get(arm, NOTHING)[0] for arm in range(len(names))] for inside in bins])
    order = np.argsort(-counts.sum(axis=0), kind="stable")
    whole = np.where(counts.sum(axis=1) > 0, counts.sum(axis=1), np.nan)
    shares = counts / whole[:, None]
    if len(names) > MAX_ARMS + 1:
        shares = np.column_stack([shares[:, order[:MAX_ARMS]], shares[:, order[MAX_ARMS:]].sum(axis=1)])
        names = [*(names[arm] for arm in order[:MAX_ARMS]), f"{len(names) - MAX_ARMS} others"]
    chart = _chart(earned, "shares of the arms over time", (0, 1), times, shares.T)
    note = "How often each arm was chosen."
    return {"title": "Arm shares", "svg": chart.svg(), "legend": legend(*names), "note": note}


def time_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return at most five moments between two others, and their names (UTC).

    >>> time_ticks(0, 3600)
    [(0.0, '00:00'), (900.0, '00:15'), (1800.0, '00:30'), (2700.0, '00:45'), (3600.0, '01:00')]
    """
    apart = next((each for each in TICKS if (high - low) / each <= 5), (high - low) / 5)
    form = "%H:%M" if high - low <= TICKS[6] else "%d %b" if high - low < TICKS[-1] else "%b %Y"
    first, last = int(-(-low // apart)), int(high // apart)
    return [(apart * i, time.strftime(form, time.gmtime(apart * i))) for i in range(first, last + 1)]


def _conditions(status: Status) -> list[tuple[str, bool, str]]:
    """Return (name, whether it is well, details) for what the status alone says."""
    rewards = status.rewards
    sums = f"{rewards.used} used + {rewards.pending} pending + {rewards.late} late + {rewards.quarantined} quarantined"
    unseen = ", ".join(f"{count} of {column}" for column, count in status.unseen.items())
    return [
        *([("new values", True, unseen)] if unseen else []),
        *([] if status.spent is None else [("budget", True, f"{status.spent:g} spent; price {status.price:.3g}")]),
        ("rewards", rewards.balanced, f"{rewards.received} received = {sums}"),
        ("alarms", not status.raised, ", ".join(status.raised) or f"none; {sum(status.alarms.values())} so far"),
        ("approval", status.candidate is None, "no candidate" if status.candidate is None else "a candidate waits"),
        ("pinned", True, f"version {status.version} is pinned" if status.pinned else "no"),
        ("trainer", True, status.trainer or "idle"),
        ("last hash", True, f"{status.head[:16]}… after {status.events} events"),
    ]
