"""The dashboard: pages that the service renders, with their charts inside and nothing loaded from elsewhere.

The record of a study is append-only, so an `Overview` reads each event once, into columns that grow with it: a page
that is loaded again reads only what is new.

    t    time of decision     a    place of the arm     p    its probability     m    its predicted reward
    r    its reward so far    l    seconds until the first reward
    w    probability under the shadow version over p, and s, the event that holds that version
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from rarely._core.types import Array, IntArray
from rarely._pages.page import render
from rarely._pages.plots import group_means
from rarely._pages.svg import Chart, legend
from rarely.offpolicy.intervals import Span, deviations, effective, normal, read_range, score, variance_share
from rarely.study import Status, VersionRow
from rarely.study.decisions import record_of
from rarely.study.events import SPECIALS, Event
from rarely.study.settings import StudySettings

REFRESH = 30
"""Seconds after which a page is loaded again."""
BINS = 40
"""Points of a chart over time."""
MAX_ARMS = 7
"""Arms with a colour of their own; the others share the last."""
DELAYS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)
"""Upper ends of the bars of a chart of delays, in seconds."""
CALIBRATION_GROUPS = 5
"""Groups of equal size in a chart of calibration."""
_SECTIONS = {"helped": "Did it help?", "charts": "Charts", "updates": "Versions", "shadows": "Shadow versions"}
SECTIONS = [*(_SECTIONS | {"health": "Health", "quarantine": "Quarantine", "steps": "Latest actions"}).items()]
CHUNK = 20
"""Decisions whose probabilities are summed in one row."""
LATEST = 8
"""How many rewards in quarantine, and actions of people, are named."""
_COLUMNS = {"t": "d", "a": "l", "p": "d", "m": "d", "v": "l", "r": "d", "l": "d", "w": "d", "s": "l"}


class Overview:
    """Columns of all decisions, and the rare events; hold `lock` while following or reading."""

    def __init__(self, settings: StudySettings) -> None:
        self.settings, self.lock = settings, threading.Lock()
        self.seq = 0
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}
        self._chances: list[Array] = []
        """(K,) for each chunk: the sum of the probabilities of all arms."""
        self.updates: list[dict[str, Any]] = []
        """Version 0 and all trainings: seq, time, kind, number, and the policy's record of the update."""
        self.steps: deque[Event] = deque(maxlen=LATEST)
        """The latest actions of people."""
        self.quarantined: deque[Event] = deque(maxlen=LATEST)
        self.reward_times = array("d")

    def column(self, name: str) -> Array:
        return np.array(self._columns[name])

    @property
    def decisions(self) -> int:
        return len(self._columns["t"])

    @property
    def chances(self) -> Array:
        """Return the mean probabilities of the arms, (chunks, K)."""
        width = max((len(row) for row in self._chances), default=0)
        sums = np.zeros((len(self._chances), width))
        for i, row in enumerate(self._chances):
            sums[i, : len(row)] = row
        counts = np.full(len(sums), float(CHUNK))
        if len(counts) and self.decisions % CHUNK:
            counts[-1] = self.decisions % CHUNK
        return np.asarray(sums / counts[:, None])

    def follow(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == "decide":
                self._decision(event)
            elif event.kind in ("reward", "late reward", "quarantine"):
                self._reward(event)
            elif event.kind in SPECIALS:
                self._special(event)
            self.seq = event.seq

    def _decision(self, event: Event) -> None:
        record = record_of(event, self.settings.arms)
        answer, present = record.answer, record.present
        place = int(present[: answer.index].sum())  # among the arms that were available
        weight = np.nan if record.shadow is None else record.shadow[place] / answer.probability
        row = (
            *(event.time / 1e6, answer.index, answer.probability, record.means[place], answer.version),
            *(np.nan, np.nan, weight, record.shadow_of or 0),
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        chances = record.padded(record.probabilities, 0.0)
        if (self.decisions - 1) % CHUNK == 0:
            self._chances.append(chances)
        else:
            old = self._chances[-1]
            width = max(len(old), len(chances))
            self._chances[-1] = np.pad(old, (0, width - len(old))) + np.pad(chances, (0, width - len(chances)))

    def _reward(self, event: Event) -> None:
        self.reward_times.append(event.time / 1e6)
        if event.kind == "quarantine":
            self.quarantined.append(event)
            return
        if event.kind == "late reward":
            return
        content = event.content
        place = content["round"] - 1
        known, rewards = self._columns["r"][place], self._columns["r"]
        summed = self.settings.rewards.aggregation == "sum" and not np.isnan(known)
        rewards[place] = known + content["reward"] if summed else content["reward"]
        if np.isnan(self._columns["l"][place]):
            self._columns["l"][place] = event.time / 1e6 - self._columns["t"][place]

    def _special(self, event: Event) -> None:
        if event.kind in ("create", "version", "candidate", "rejected"):
            content = event.content
            made = {"seq": event.seq, "time": event.time / 1e6, "kind": event.kind, "actor": event.actor}
            self.updates.append(made | {"number": content.get("number", 0), "record": content.get("record")})
        if event.kind not in ("create", "rejected"):
            self.steps.append(event)


# --- pages


@dataclass(frozen=True)
class Panel:
    """A chart with its heading, its legend and a sentence."""

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str]] = ()
    """Colours and names."""
    note: str = ""


def render_index(studies: Sequence[Status]) -> str:
    """Return the page of all studies."""
    return render("rarely.service", "index.html", studies=studies, refresh=REFRESH)


def render_study(
    overview: Overview,
    status: Status,
    versions: Sequence[VersionRow],
    health: Sequence[tuple[str, bool, str]],
    *,
    live: bool,
) -> str:
    """Return the page of a study; a `live` page reloads itself and links to the other pages."""
    schedule = json.loads(versions[-1].settings).get("schedule", {}) if versions else {}
    with overview.lock:
        shown: dict[str, Any] = {"by_version": by_version(overview)[-LATEST:], "by_arm": by_arm(overview)[:LATEST]}
        shown |= {"panels": panels(overview, status.log_det, _trigger(overview, schedule)), "updates": overview.updates}
        shown |= {"versions": {row.number: row for row in versions}, "shadows": shadows(overview)}
        shown |= {name: list(reversed(getattr(overview, name))) for name in ("quarantined", "steps")}
        shown |= {"health": [*_conditions(status), *health], "refresh": REFRESH if live else 0, "now": time.time()}
        shown |= {"contents": SECTIONS, "status": status, "schedule": _named(schedule), "live": live}
        return render("rarely.service", "study.html", **shown)


def panels(overview: Overview, log_det: float, trigger: float | None) -> list[Panel]:
    """Return all charts that have something to show."""
    found = [_rewards(overview), _over_time(overview), _log_det(overview, log_det, trigger)]
    found += [_shares(overview, drawn=True), _shares(overview, drawn=False), _delays(overview), *_calibration(overview)]
    return [panel for panel in found if panel is not None]


def _over_time(overview: Overview) -> Panel | None:
    times, rewards = overview.column("t"), np.array(overview.reward_times)
    if not len(times):
        return None
    end = max(times[-1], rewards[-1] if len(rewards) else 0.0)
    edges = np.linspace(times[0], max(end, times[0] + 1), BINS + 1)
    asked, given = np.histogram(times, edges)[0], np.histogram(rewards, edges)[0]
    chart = Chart("decisions and rewards over time", (edges[0], edges[-1]), (0, max(asked.max(), given.max(), 1)))
    chart.ticks = _clock(edges[0], edges[-1])
    middles = (edges[1:] + edges[:-1]) / 2
    chart.line(middles, asked, 0)
    chart.line(middles, given, 1)
    for round in _first_rounds(overview):
        chart.mark(times[round - 1])
    note = f"Per {_span(edges[1] - edges[0])}; thin lines: another version begins to decide."
    return Panel("Decisions and rewards", chart.svg(), legend("decisions", "rewards"), note)


def _rewards(overview: Overview) -> Panel | None:
    rewards = overview.column("r")
    known = np.flatnonzero(~np.isnan(rewards))
    if len(known) < 2:
        return None
    groups = np.array_split(known, min(BINS, len(known)))
    means, rounds = group_means(rewards, groups)[0], np.array([group.mean() + 1 for group in groups])
    chart = Chart("mean reward by round", (1, overview.decisions), (min(means.min(), 0), means.max() * 1.05), "round")
    chart.line(rounds, means)
    for row in by_version(overview):
        if row["rewards"]:
            chart.line((row["first"], row["last"]), (row["mean"], row["mean"]), 1)
    for round in _first_rounds(overview):
        chart.mark(round)
    note = f"{len(known)} of {overview.decisions} decisions have a reward."
    return Panel("Mean reward", chart.svg(), legend("consecutive rounds", "version"), note)


def by_version(overview: Overview) -> list[dict[str, Any]]:
    """Return what the decisions of each version earned, and whether that differs from the version before.

    The difference of two means has an interval from those of both (Newcombe's).
    """
    versions = overview.column("v").astype(int)
    rows: list[dict[str, Any]] = []
    for version in np.unique(versions):
        these = np.flatnonzero(versions == version)
        row = {"name": int(version), "first": these[0] + 1, "last": these[-1] + 1, **_earned(overview, these)}
        if rows and row["rewards"] and (old := rows[-1])["rewards"]:
            change = row["mean"] - old["mean"]
            low = change - np.hypot(row["mean"] - row["low"], old["high"] - old["mean"])
            high = change + np.hypot(row["high"] - row["mean"], old["mean"] - old["low"])
            verdict = "better" if low > 0 else "worse" if high < 0 else "no clear difference"
            row |= {"change": change, "change_low": low, "change_high": high, "verdict": verdict}
        rows.append(row)
    return rows


def by_arm(overview: Overview) -> list[dict[str, Any]]:
    """Return what the decisions for each arm earned, the most frequent arm first."""
    arms, names = overview.column("a").astype(int), overview.settings.arms
    rows = [{"name": names[a] if names else a, **_earned(overview, np.flatnonzero(arms == a))} for a in np.unique(arms)]
    return sorted(rows, key=lambda row: -row["decisions"])


def _earned(overview: Overview, these: IntArray) -> dict[str, Any]:
    """Return the mean reward of some decisions with its 95 % interval: a score interval if their range is known."""
    every, rule = overview.column("r"), overview.settings.rewards
    rewards = every[these][~np.isnan(every[these])]
    found: dict[str, Any] = {"decisions": len(these), "rewards": len(rewards), "mean": None, "verdict": ""}
    if not len(rewards):
        return found
    mean, error, z = float(rewards.mean()), float(rewards.std() / np.sqrt(max(len(rewards) - 1, 1))), deviations(0.95)
    known = rule.aggregation != "sum" and None not in (rule.least, rule.most)
    within = read_range((rule.least, rule.most) if known else None, every[~np.isnan(every)])
    interval = normal(mean, error, z)
    if within is not None:
        share = variance_share(np.ones(len(rewards)), rewards, rewards - mean, within)
        interval = score(mean, error, z, Span(*within, len(rewards)), share, within)
    return found | {"mean": mean, "low": interval[0], "high": interval[1]}


def _log_det(overview: Overview, now: float, trigger: float | None) -> Panel | None:
    if not overview.decisions or trigger is None:
        return None
    records = [update["record"] for update in overview.updates if update["record"]]
    known = [(record["round"], record["log_det"]) for record in records]
    xs, ys = map(list, zip((0, 0.0), *known, (overview.decisions, now), strict=True))
    chart = Chart("log det Z over rounds", (0, max(overview.decisions, 1)), (0, 1.08 * max(*ys, trigger)), "round")
    chart.line(xs, ys)
    for round in _first_rounds(overview):
        chart.mark(round)
    chart.level(trigger, "next update")
    note = "Information gathered: log det Z − log det λI, at each update and now."
    return Panel("log det against the next trigger", chart.svg(), note=note)


def _shares(overview: Overview, *, drawn: bool) -> Panel | None:
    chances = overview.chances
    if not chances.size:
        return None
    if drawn:
        arms, shares = overview.column("a").astype(int), np.zeros_like(chances)
        np.add.at(shares, (np.arange(len(arms)) // CHUNK, arms), 1.0)
        chances = shares / np.maximum(shares.sum(axis=1), 1)[:, None]
    count = chances.shape[1]
    names = overview.settings.arms or [str(arm) for arm in range(count)]
    groups = np.array_split(np.arange(len(chances)), min(BINS, len(chances)))
    means = np.array([chances[group].mean(axis=0) for group in groups])
    if count > MAX_ARMS + 1:
        order = np.argsort(-means.sum(axis=0), kind="stable")
        means = np.column_stack([means[:, order[:MAX_ARMS]], means[:, order[MAX_ARMS:]].sum(axis=1)])
        names = [*(names[arm] for arm in order[:MAX_ARMS]), f"{count - MAX_ARMS} others"]
    rounds = np.array([(group.mean() + 0.5) * CHUNK for group in groups])
    what = "shares of the arms" if drawn else "probabilities of the arms"
    chart = Chart(f"{what} over rounds", (0, max(overview.decisions, 1)), (0, 1), "round")
    for arm in range(means.shape[1]):
        chart.line(rounds, means[:, arm], arm)
        if len(rounds) == 1:
            chart.point(rounds[0], means[0, arm], arm)
    note = "How often each arm was chosen." if drawn else "The mean probability with which each arm was drawn."
    return Panel("Arm shares" if drawn else "Arm probabilities", chart.svg(), legend(*names), note)


def _delays(overview: Overview) -> Panel | None:
    delays = overview.column("l")
    delays = delays[~np.isnan(delays)]
    if not len(delays):
        return None
    counts = np.bincount(np.searchsorted(DELAYS, delays), minlength=len(DELAYS) + 1)
    chart = Chart("delay of rewards", (-0.5, len(DELAYS) + 0.5), (0, counts.max()), "from decision to reward, up to")
    chart.ticks = [*enumerate(map(_span, DELAYS)), (len(DELAYS), "more")]
    for i, value in enumerate(counts):
        chart.bar(i, 0.8, value)
    return Panel("Reward delay", chart.svg(), note=f"The median is {_span(float(np.median(delays)))}.")


def _calibration(overview: Overview) -> list[Panel]:
    """Compare predicted with received rewards, for the latest versions; version 0 predicts nothing yet."""
    versions, means, rewards = (overview.column(name) for name in ("v", "m", "r"))
    known = ~np.isnan(rewards) & ~np.isnan(means) & (versions > 0)
    made = []
    for version in np.unique(versions[known])[-3:]:
        these = np.flatnonzero(known & (versions == version))
        if len(these) < 2 * CALIBRATION_GROUPS:
            continue
        order = these[np.argsort(means[these], kind="stable")]
        groups = np.array_split(order, CALIBRATION_GROUPS)
        (xs, _), (ys, errors) = group_means(means, groups), group_means(rewards, groups)
        span = (float(min(xs.min(), (ys - errors).min())), float(max(xs.max(), (ys + errors).max())))
        chart = Chart(f"calibration of version {version}", span, span, "predicted reward")
        chart.line(span, span, 7, dashed=True)
        for x, y, error in zip(xs, ys, errors, strict=True):
            chart.point(x, y, 0, error=error)
        note = f"Mean reward of {len(these)} decisions in {CALIBRATION_GROUPS} groups by prediction; dashed: perfect."
        made.append(Panel(f"Calibration of version {version}", chart.svg(), note=note))
    return made


def shadows(overview: Overview) -> list[dict[str, Any]]:
    """Estimate by self-normalised inverse propensity what each shadow version would have earned."""
    sources, weights, rewards = (overview.column(name) for name in ("s", "w", "r"))
    rows = []
    for source in np.unique(sources[sources > 0]).astype(int):
        these = (sources == source) & ~np.isnan(rewards) & ~np.isnan(weights)
        w, r = weights[these], rewards[these]
        if not w.sum() > 0:
            continue
        value = float((w * r).sum() / w.sum())
        error = float(np.sqrt((w**2 * (r - value) ** 2).sum()) / w.sum())
        name = next((f"version {u['number']}" for u in overview.updates if u["seq"] == source), "")
        low, high = normal(value, error, deviations(0.95))
        row = {"name": name or f"event {source}", "value": value, "low": low, "high": high}
        rows.append(row | {"live": float(r.mean()), "rewards": len(r), "effective": effective(w)})
    return rows


def _first_rounds(overview: Overview) -> IntArray:
    """Return the rounds in which another version than before decided."""
    return np.flatnonzero(np.diff(overview.column("v"))) + 2


def _clock(low: float, high: float) -> list[tuple[float, str]]:
    """Return four moments, written as briefly as their distance allows."""
    form = "%H:%M:%S" if high - low < 600 else "%H:%M" if high - low < 86400 else "%m-%d"
    places: Array = np.linspace(low, high, 6)[1:-1]
    return [(float(place), time.strftime(form, time.gmtime(place))) for place in places]


def _span(seconds: float) -> str:
    """Return a duration in the unit that suits it.

    >>> _span(0.25), _span(90), _span(7200)
    ('0.25 s', '1.5 min', '2 h')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _trigger(overview: Overview, schedule: dict[str, Any]) -> float | None:
    """Return the log det at which the next batch ends; None if the schedule does not use it."""
    inner = schedule.get("schedule", schedule)
    ratio = inner.get("log_ratio") if isinstance(inner, dict) else None
    if not isinstance(ratio, int | float):
        return None
    accepted = [update["record"]["log_det"] for update in overview.updates if update["record"]]
    return (accepted[-1] if accepted else 0.0) + ratio


def _conditions(status: Status) -> list[tuple[str, bool, str]]:
    """Return (name, whether it is well, details) for what the status alone says."""
    rewards = status.rewards
    sums = f"{rewards.used} used + {rewards.pending} pending + {rewards.late} late + {rewards.quarantined} quarantined"
    return [
        ("rewards", rewards.balanced, f"{rewards.received} received = {sums}"),
        ("alarms", not status.raised, ", ".join(status.raised) or f"none; {sum(status.alarms.values())} so far"),
        ("approval", status.candidate is None, "no candidate" if status.candidate is None else "a candidate waits"),
        ("pinned", True, f"version {status.version} is pinned" if status.pinned else "no"),
        ("trainer", True, status.trainer or "idle"),
        ("last hash", True, f"{status.head[:16]}… after {status.events} events"),
    ]


def _named(schedule: Any) -> str:
    """Return a schedule as Python writes it."""
    if not isinstance(schedule, dict):
        return str(schedule)
    fields = ", ".join(f"{name}={_named(value)}" for name, value in schedule.items() if name != "kind")
    return f"{schedule.get('kind', '')}({fields})"


def render_routes(schema: dict[str, Any]) -> str:
    """Return the page of the API's routes, from its OpenAPI description."""
    routes = [(method.upper(), path, each) for path, all in schema["paths"].items() for method, each in all.items()]
    models = [(name, model) for name, model in sorted(schema["components"]["schemas"].items()) if "properties" in model]
    short = [f"{method} {path.replace('/v1/studies/{name}', '…')}" for method, path, _ in routes]
    contents = [(f"route-{place}", name) for place, name in enumerate(short)] + [(name, name) for name, _ in models]
    return render("rarely.service", "routes.html", contents=contents, routes=routes, models=models)
