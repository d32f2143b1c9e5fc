"""The pictures of a study's page, each from the columns of its overview."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.types import Array
from rarely.service.dashboard.charts import COLOURS, Chart
from rarely.service.dashboard.overview import CHUNK, Overview

BINS = 40
"""Of pictures over time."""
MOST_ARMS = 7
"""Arms that have a colour of their own; the others share the last."""
DELAYS = (
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (21600, "6 h"),
    (86400, "1 d"),
    (604800, "7 d"),
)
POINTS = 5
"""Groups of equal size in a picture of calibration."""


@dataclass(frozen=True)
class Panel:
    """A picture with its heading, its legend and a sentence."""

    title: str
    svg: str
    legend: Sequence[tuple[str, str]] = ()
    """(colour, name)."""
    note: str = ""


def panels(overview: Overview, log_det: float, trigger: float | None) -> list[Panel]:
    """All pictures that have something to show."""
    found = [
        _over_time(overview),
        _rewards(overview),
        _versions(overview),
        _log_det(overview, log_det, trigger),
        _shares(overview, drawn=True),
        _shares(overview, drawn=False),
        _delays(overview),
        *_calibration(overview),
    ]
    return [panel for panel in found if panel is not None]


def _over_time(overview: Overview) -> Panel | None:
    times, rewards = overview.column("t"), np.array(overview.reward_times)
    if not len(times):
        return None
    end = max(times[-1], rewards[-1] if len(rewards) else 0.0)
    edges = np.linspace(times[0], max(end, times[0] + 1), BINS + 1)
    asked, told = np.histogram(times, edges)[0], np.histogram(rewards, edges)[0]
    chart = Chart("decisions and rewards over time", (edges[0], edges[-1]), (0, max(asked.max(), told.max(), 1)))
    chart.ticks = _clock(edges[0], edges[-1])
    middles = (edges[1:] + edges[:-1]) / 2
    chart.line(middles, asked, 0)
    chart.line(middles, told, 1)
    for update in overview.updates[1:]:
        if update["kind"] == "version" and edges[0] <= update["time"] <= edges[-1]:
            chart.mark(update["time"])
    note = f"Per {_span(edges[1] - edges[0])}; thin lines are new versions."
    return Panel("Decisions and rewards", chart.svg(), _legend("decisions", "rewards"), note)


def _rewards(overview: Overview) -> Panel | None:
    rewards = overview.column("r")
    known = np.flatnonzero(~np.isnan(rewards))
    if len(known) < 2:
        return None
    groups = np.array_split(known, min(BINS, len(known)))
    means = np.array([rewards[group].mean() for group in groups])
    rounds = np.array([group.mean() + 1 for group in groups])
    chart = Chart(
        "mean reward over rounds", (1, overview.decisions), (min(means.min(), 0), means.max() * 1.05), "round"
    )
    chart.line(rounds, means)
    _mark_versions(chart, overview)
    return Panel("Mean reward", chart.svg(), (), f"{len(known)} of {overview.decisions} decisions have a reward.")


def _versions(overview: Overview) -> Panel | None:
    versions = overview.column("v")
    if not len(versions):
        return None
    rounds = np.arange(1, len(versions) + 1)
    chart = Chart("version in use over rounds", (1, len(versions)), (0, max(versions.max(), 1)), "round")
    change = np.flatnonzero(np.diff(versions, prepend=versions[0] - 1))
    corners = np.append(rounds[change], rounds[-1])
    chart.line(np.repeat(corners, 2)[1:-1], np.repeat(versions[change], 2), 0)
    return Panel("Batches and versions", chart.svg(), (), f"{len(change)} batches; a batch is decided by one version.")


def _log_det(overview: Overview, now: float, trigger: float | None) -> Panel | None:
    if not overview.decisions:
        return None
    known = [
        (update["record"]["round"], update["record"]["log_det"]) for update in overview.updates if update["record"]
    ]
    xs, ys = map(list, zip((0, 0.0), *known, (overview.decisions, now), strict=True))
    chart = Chart("log det Z over rounds", (0, max(overview.decisions, 1)), (0, max(*ys, trigger or 0.0)), "round")
    chart.line(xs, ys)
    _mark_versions(chart, overview)
    if trigger is not None:
        chart.level(trigger, "next update")
    note = "What the policy knows: log det Z − log det λI, at each update and now."
    return Panel("log det against the next trigger", chart.svg(), (), note)


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
    if count > MOST_ARMS + 1:
        order = np.argsort(-means.sum(axis=0), kind="stable")
        means = np.column_stack([means[:, order[:MOST_ARMS]], means[:, order[MOST_ARMS:]].sum(axis=1)])
        names = [*(names[arm] for arm in order[:MOST_ARMS]), f"{count - MOST_ARMS} others"]
    rounds = np.array([(group.mean() + 0.5) * CHUNK for group in groups])
    what = "shares of the arms" if drawn else "probabilities of the arms"
    chart = Chart(f"{what} over rounds", (0, max(overview.decisions, 1)), (0, 1), "round")
    for arm in range(means.shape[1]):
        chart.line(rounds, means[:, arm], arm)
        if len(rounds) == 1:
            chart.point(rounds[0], means[0, arm], arm)
    note = "How often each arm was chosen." if drawn else "The mean probability of each arm, as it was drawn from."
    return Panel("Arm shares" if drawn else "Arm probabilities", chart.svg(), _legend(*names), note)


def _delays(overview: Overview) -> Panel | None:
    delays = overview.column("l")
    delays = delays[~np.isnan(delays)]
    if not len(delays):
        return None
    counts = np.bincount(np.searchsorted([seconds for seconds, _ in DELAYS], delays), minlength=len(DELAYS) + 1)
    chart = Chart(
        "delay of rewards", (-0.5, len(DELAYS) + 0.5), (0, counts.max()), "time from decision to reward, up to"
    )
    chart.ticks = [(i, name) for i, (_, name) in enumerate(DELAYS)] + [(len(DELAYS), "more")]
    for i, value in enumerate(counts):
        chart.bar(i, 0.8, 0, value)
    return Panel("Reward delay", chart.svg(), (), f"The median is {_span(float(np.median(delays)))}.")


def _calibration(overview: Overview) -> list[Panel]:
    """Predicted against received rewards, for the latest versions."""
    versions, means, rewards = (overview.column(name) for name in ("v", "m", "r"))
    known = ~np.isnan(rewards) & ~np.isnan(means)
    made = []
    for version in np.unique(versions[known])[-3:]:
        these = np.flatnonzero(known & (versions == version))
        if len(these) < 2 * POINTS:
            continue
        order = these[np.argsort(means[these], kind="stable")]
        groups = np.array_split(order, POINTS)
        xs = np.array([means[group].mean() for group in groups])
        ys = np.array([rewards[group].mean() for group in groups])
        errors = np.array([rewards[group].std() / np.sqrt(len(group)) for group in groups])
        span = (float(min(xs.min(), (ys - errors).min())), float(max(xs.max(), (ys + errors).max())))
        chart = Chart(f"calibration of version {version}", span, span, "predicted reward")
        chart.line(span, span, 7, dashed=True)
        for x, y, error in zip(xs, ys, errors, strict=True):
            chart.point(x, y, 0, error=error)
        note = f"Mean reward of {len(these)} decisions in {POINTS} groups by prediction; the dashed line is perfect."
        made.append(Panel(f"Calibration of version {version}", chart.svg(), (), note))
    return made


def shadows(overview: Overview) -> list[dict[str, Any]]:
    """What each shadow version would have earned: self-normalised inverse propensity, with a 95 % interval."""
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
        rows.append(
            {
                "name": name or f"event {source}",
                "value": value,
                "low": value - 1.96 * error,
                "high": value + 1.96 * error,
                "live": float(r.mean()),
                "rewards": len(r),
                "effective": float(w.sum() ** 2 / (w**2).sum()),
            }
        )
    return rows


def _mark_versions(chart: Chart, overview: Overview) -> None:
    for update in overview.updates:
        if update["kind"] == "version" and update["record"]:
            chart.mark(update["record"]["round"])


def _legend(*names: str) -> list[tuple[str, str]]:
    return [(COLOURS[i % len(COLOURS)], name) for i, name in enumerate(names)]


def _clock(low: float, high: float) -> list[tuple[float, str]]:
    """Four moments, as short as their distance allows."""
    form = "%H:%M:%S" if high - low < 600 else "%H:%M" if high - low < 86400 else "%m-%d"
    places: Array = np.linspace(low, high, 6)[1:-1]
    return [(float(place), time.strftime(form, time.gmtime(place))) for place in places]


def _span(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> _span(0.25), _span(90), _span(7200)
    ('0.25 s', '1.5 min', '2 h')
    """
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
