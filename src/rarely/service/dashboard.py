"""The dashboard: pages that the service renders, with their charts inside and nothing loaded from elsewhere.

The record of a study is append-only, so an `Overview` reads each event once, into columns that grow with it: a page
that is loaded again reads only what is new.

    a    the arm of a decision     v    its version     r    its reward so far, NaN if there is none
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rarely.extend import Array, IntArray, schedule_from
from rarely.offpolicy.intervals import Span, deviations, normal, read_range, score, variance_share
from rarely.pages.page import render
from rarely.pages.plots import group_means
from rarely.pages.svg import Chart, legend
from rarely.study import PublishedVersion, Status
from rarely.study.events import SPECIALS, Event
from rarely.study.settings import StudySettings
from rarely.study.versions import UNLIMITED

BINS = 40
"""Points of a chart over time."""
MAX_ARMS = 7
"""Arms with a colour of their own; the others share the last."""
SECTIONS = {"helped": "Did it help?", "charts": "Charts", "updates": "Versions", "health": "Health"}
SECTIONS |= {"quarantine": "Quarantine", "steps": "Latest actions"}
LATEST = 100
"""How many rewards in quarantine, and actions of people, are named."""


class Overview:
    """Columns of all decisions, and the rare events; hold `lock` while following or reading."""

    def __init__(self, settings: StudySettings) -> None:
        self.settings, self.lock = settings, threading.Lock()
        self.seq = 0
        self._columns: dict[str, array[Any]] = {"a": array("l"), "v": array("l"), "r": array("d")}
        self.updates: list[dict[str, Any]] = []
        """Version 0 and all trainings: seq, time, kind, number, and the policy's record of the update."""
        self.steps: deque[Event] = deque(maxlen=LATEST)
        """The latest actions of people."""
        self.quarantined: deque[Event] = deque(maxlen=LATEST)

    def column(self, name: str) -> Array:
        return np.array(self._columns[name])

    @property
    def decisions(self) -> int:
        return len(self._columns["a"])

    def follow(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == "decide":
                content = event.content
                for name, value in {"a": content["arm"], "v": content["version"], "r": np.nan}.items():
                    self._columns[name].append(value)
            elif event.kind == "reward":
                self._reward(event.content)
            elif event.kind == "quarantine":
                self.quarantined.append(event)
            elif event.kind in SPECIALS:
                self._special(event)
            self.seq = event.seq

    def _reward(self, content: dict[str, Any]) -> None:
        rewards, place = self._columns["r"], content["round"] - 1
        summed = self.settings.rewards.aggregation == "sum" and not np.isnan(rewards[place])
        rewards[place] = rewards[place] + content["reward"] if summed else content["reward"]

    def _special(self, event: Event) -> None:
        if event.kind in ("create", "version", "candidate", "rejected"):
            content = event.content
            made = {"seq": event.seq, "time": event.time / 1e6, "kind": event.kind, "actor": event.actor}
            self.updates.append(made | {"number": content.get("number", 0), "record": content.get("record")})
        if event.kind not in ("create", "rejected"):
            self.steps.append(event)


# --- pages


def render_study(
    overview: Overview, status: Status, versions: Sequence[PublishedVersion], health: Sequence[tuple[str, bool, str]]
) -> str:
    """Return the page of a study."""
    with overview.lock:
        rows = by_version(overview)
        shown: dict[str, Any] = {"by_version": rows[-LATEST:], "by_arm": by_arm(overview)[:LATEST]}
        shown |= {"unlimited": status.budget >= UNLIMITED, "judged": judged(rows, status.version)}
        shown |= {"panels": panels(overview), "updates": overview.updates}
        shown |= {name: list(reversed(getattr(overview, name))) for name in ("quarantined", "steps")}
        shown |= {"versions": {row.number: row for row in versions}, "health": [*_conditions(status), *health]}
        schedule = versions[-1].settings.get("schedule")
        shown |= {"status": status, "schedule": schedule_from(schedule) if schedule else "no schedule"}
        return render("rarely.service", "study.html", **shown, contents=[*SECTIONS.items()], now=time.time())


def panels(overview: Overview) -> list[dict[str, Any]]:
    """Return all charts that have something to show, each with its title, its legend and a sentence."""
    return [panel for panel in (_rewards(overview), _shares(overview)) if panel is not None]


def _rewards(overview: Overview) -> dict[str, Any] | None:
    rewards = overview.column("r")
    rewarded = np.flatnonzero(~np.isnan(rewards))
    if len(rewarded) < 2:
        return None
    groups = np.array_split(rewarded, min(BINS, len(rewarded)))
    means, rounds = group_means(rewards, groups)[0], np.array([group.mean() + 1 for group in groups])
    chart = Chart("mean reward by round", (1, overview.decisions), (min(means.min(), 0), means.max() * 1.05), "round")
    chart.line(rounds, means)
    for row in by_version(overview):
        if row["rewards"]:
            chart.line((row["first"], row["last"]), (row["mean"], row["mean"]), 1)
    for round in _first_rounds(overview):
        chart.mark(round)
    note = f"{len(rewarded)} of {overview.decisions} decisions have a reward."
    names = legend("consecutive rounds", "version")
    return {"title": "Mean reward", "svg": chart.svg(), "legend": names, "note": note}


def by_version(overview: Overview) -> list[dict[str, Any]]:
    """Return what the decisions of each version earned, and whether that differs from the version before.

    The difference of two means has an interval from those of both (Newcombe's).
    """
    versions = overview.column("v").astype(int)
    rows: list[dict[str, Any]] = []
    for version in np.unique(versions):
        these = np.flatnonzero(versions == version)
        row = {"name": int(version), "first": these[0] + 1, "last": these[-1] + 1, **_earned(overview, these)}
        rows.append(row | (compared(row, rows[-1]) if rows else {}))
    return rows


def compared(row: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return how the mean reward of a version differs from that of another one."""
    if not (row["rewards"] and old["rewards"]):
        return {}
    change = row["mean"] - old["mean"]
    low = change - np.hypot(row["mean"] - row["low"], old["high"] - old["mean"])
    high = change + np.hypot(row["high"] - row["mean"], old["mean"] - old["low"])
    verdict = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
    return {"change": change, "change_low": low, "change_high": high, "verdict": verdict}


def judged(rows: Sequence[dict[str, Any]], version: int) -> dict[str, Any] | None:
    """Return the version in use, compared with the last other one that decided: after a rollback, the one left."""
    mine = next((row for row in rows if row["name"] == version), None)
    others = [row for row in rows if row["name"] != version]
    if mine is None or not others or not (verdict := compared(mine, others[-1])):
        return None
    return mine | verdict | {"other": others[-1]["name"], "other_mean": others[-1]["mean"]}


def by_arm(overview: Overview) -> list[dict[str, Any]]:
    """Return what the decisions for each arm earned, the most frequent arm first."""
    arms, names = overview.column("a").astype(int), overview.settings.arms
    rows = [{"name": names[a] if names else a, **_earned(overview, np.flatnonzero(arms == a))} for a in np.unique(arms)]
    return sorted(rows, key=lambda row: -row["decisions"])


def _earned(overview: Overview, these: IntArray) -> dict[str, Any]:
    """Return the mean reward of some decisions with its 95 % interval: a score interval if their range is known."""
    every, rule = overview.column("r"), overview.settings.rewards
    rewards = every[these][~np.isnan(every[these])]
    row: dict[str, Any] = {"decisions": len(these), "rewards": len(rewards), "mean": None, "verdict": ""}
    if not len(rewards):
        return row
    mean, error, z = float(rewards.mean()), float(rewards.std() / np.sqrt(max(len(rewards) - 1, 1))), deviations(0.95)
    bounded = rule.aggregation != "sum" and None not in (rule.least, rule.most)
    within = read_range((rule.least, rule.most) if bounded else None, every[~np.isnan(every)])
    interval = normal(mean, error, z)
    if within is not None:
        share = variance_share(np.ones(len(rewards)), rewards, rewards - mean, within)
        interval = score(mean, error, z, Span(*within, len(rewards)), share, within)
    return row | {"mean": mean, "low": interval[0], "high": interval[1]}


def _shares(overview: Overview) -> dict[str, Any] | None:
    arms = overview.column("a").astype(int)
    if not len(arms):
        return None
    names = overview.settings.arms or [str(arm) for arm in range(arms.max() + 1)]
    groups = np.array_split(np.arange(len(arms)), min(BINS, len(arms)))
    shares = np.array([np.bincount(arms[group], minlength=len(names)) / len(group) for group in groups])
    if len(names) > MAX_ARMS + 1:
        order = np.argsort(-shares.sum(axis=0), kind="stable")
        shares = np.column_stack([shares[:, order[:MAX_ARMS]], shares[:, order[MAX_ARMS:]].sum(axis=1)])
        names = [*(names[arm] for arm in order[:MAX_ARMS]), f"{len(names) - MAX_ARMS} others"]
    rounds = np.array([group.mean() + 1 for group in groups])
    chart = Chart("shares of the arms over rounds", (0, overview.decisions), (0, 1), "round")
    for arm in range(shares.shape[1]):
        chart.line(rounds, shares[:, arm], arm)
        if len(rounds) == 1:
            chart.point(rounds[0], shares[0, arm], arm)
    note = "How often each arm was chosen."
    return {"title": "Arm shares", "svg": chart.svg(), "legend": legend(*names), "note": note}


def _first_rounds(overview: Overview) -> IntArray:
    """Return the rounds in which another version than before decided."""
    return np.flatnonzero(np.diff(overview.column("v"))) + 2


def _conditions(status: Status) -> list[tuple[str, bool, str]]:
    """Return (name, whether it is well, details) for what the status alone says."""
    rewards = status.rewards
    sums = f"{rewards.used} used + {rewards.pending} pending + {rewards.late} late + {rewards.quarantined} quarantined"
    unseen = ", ".join(f"{count} of {column}" for column, count in status.unseen.items())
    return [
        *([("new values", True, unseen)] if unseen else []),
        ("rewards", rewards.balanced, f"{rewards.received} received = {sums}"),
        ("alarms", not status.raised, ", ".join(status.raised) or f"none; {sum(status.alarms.values())} so far"),
        ("approval", status.candidate is None, "no candidate" if status.candidate is None else "a candidate waits"),
        ("pinned", True, f"version {status.version} is pinned" if status.pinned else "no"),
        ("trainer", True, status.trainer or "idle"),
        ("last hash", True, f"{status.head[:16]}… after {status.events} events"),
    ]
