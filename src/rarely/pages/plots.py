"""`Policy.plot`: six panels. A thin line is an update, a dotted one a training that was rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rarely.extend import IntArray, Policy
from rarely.extend.checks import InvalidInput

GROUPS, CALIBRATION_GROUPS, LEAST = 40, 10, 5
"""Points of a curve over rounds and of the calibration, and rounds that each stands for at least."""
MAX_ARMS, MAX_LINES = 6, 60
"""Arms with colours of their own, and updates with lines as high as the panel; of more updates, each has a tick."""
OVER_UPDATES = {"coverage": "coverage of predictions", "log_det": "log det Z − log det λI", "beta": "radius β"}


def plot_policy(policy: Policy, figure: Any = None, arms: Sequence[str] = ()) -> Any:
    """Return the figure, a new one or the given one, with six panels in the colours of matplotlib's style in use."""
    try:
        from matplotlib import colors, pyplot, rc_context, rcParams

        from rarely.pages.figures import STYLE, plain_text
        from rarely.pages.svg import PALETTE
    except ImportError:
        raise InvalidInput("plot needs matplotlib: pip install matplotlib.") from None
    history, ink = policy.history, rcParams["text.color"]
    decided = history.arms >= 0  # logged samples have no arm
    rounds, chosen = (history.rows + 1 - history.logged)[decided], history.arms[decided]
    rewards, means = history.rewards[decided], history.means[decided]
    lighter = 0.35 if np.mean(colors.to_rgb(rcParams["axes.facecolor"])) < 0.5 else 0.0
    palette = [lighter + (1 - lighter) * np.array(colors.to_rgb(colour)) for colour in PALETTE.values()]
    with rc_context(STYLE | {name: rcParams[name] for name in STYLE if "color" in name} | {"grid.alpha": 0.3}):
        drawn = pyplot.figure(figsize=(11, 5.6)) if figure is None else figure
        panels = drawn.subplots(2, 3).ravel()
        drawn.suptitle(repr(policy)[1:-1] + (f", {history.dropped} rows dropped" if history.dropped else ""))
        _draw_rewards(panels[0], rounds, rewards, palette)
        _draw_arms(panels[1], rounds, chosen, palette, [*map(plain_text, arms)])
        trained = min((record.adopted for record in policy.updates if record.accepted), default=policy.round)
        shown = (rounds > trained) & ~np.isnan(rewards + means)
        _draw_calibration(panels[2], means[shown], rewards[shown], [*palette, ink])
        for axes, (name, title) in zip(panels[3:], OVER_UPDATES.items(), strict=True):
            records: Any = (*policy.updates, policy)
            points = np.array([(record.round, getattr(record, name, None)) for record in records], float).T
            axes.plot(*points, "o-", ms=3, color=palette[0], drawstyle="steps-post" if name == "beta" else None)
            axes.set(title=title, ylim=(0, 1.03 if name == "coverage" else None))
        panels[3].axhline(0.95, color=ink, lw=1, ls="--")
        for axes in (*panels[:2], *panels[3:]):
            axes.set(xlabel="round", xlim=(0, max(1, policy.round)))
            top = 1 if len(policy.updates) <= MAX_LINES else 0.05
            for accepted, dash in ((True, "-"), (False, ":")):
                at = [record.round for record in policy.updates if record.accepted is accepted]
                axes.vlines(at, 0, top, ink, dash, transform=axes.get_xaxis_transform(), lw=0.6, alpha=0.4, zorder=0.5)
    if figure is None:
        pyplot.close(drawn)  # a notebook shows what a cell returns, and would show an open figure again
    return drawn


def in_groups(count: int, most: int = GROUPS) -> list[IntArray]:
    """Return the numbers below `count` in consecutive groups of at least `LEAST`, if there are as many."""
    return np.array_split(np.arange(count), max(1, min(most, count // LEAST))) if count else []


def group_means(values: Any, groups: list[IntArray]) -> Any:
    """Return the mean of each group, and its standard error."""
    means, spreads = (np.array([of(values[group]) for group in groups]) for of in (np.mean, np.std))
    return means, spreads / np.sqrt([max(1, len(group) - 1) for group in groups])


def _draw_rewards(axes: Any, rounds: Any, rewards: Any, palette: Any) -> None:
    axes.set_title("mean reward")
    rounds, rewards = rounds[~np.isnan(rewards)], rewards[~np.isnan(rewards)]
    if groups := in_groups(len(rewards)):
        (centre, error), at = group_means(rewards, groups), group_means(rounds, groups)[0]
        axes.fill_between(at, centre - 1.96 * error, centre + 1.96 * error, color=palette[0], alpha=0.25, lw=0)
        axes.plot(at, centre, ".-", color=palette[0], label="of consecutive rounds, 95 % band")
        so_far, first = np.cumsum(rewards) / np.arange(1, len(rewards) + 1), len(groups[0]) - 1  # noise before
        axes.plot(rounds[first:], so_far[first:], color=palette[1], label="of all rounds so far")
        axes.legend(fontsize=7)


def _draw_arms(axes: Any, rounds: Any, arms: Any, palette: Any, names: Sequence[str]) -> None:
    axes.set(title="share of each arm", ylim=(0, 1))
    if groups := in_groups(len(arms)):
        counts = np.bincount(arms)
        shown = sorted(arm for arm in np.argsort(-counts, kind="stable")[:MAX_ARMS] if counts[arm])
        shares = np.array([group_means(arms == arm, groups)[0] for arm in shown])
        whole = np.pad(np.vstack([shares, 1 - shares.sum(axis=0)]), ((0, 0), (1, 1)), mode="edge")
        at = [rounds[0] - 1, *group_means(rounds, groups)[0], rounds[-1]]
        areas = axes.stackplot(at, whole, colors=palette, alpha=0.75, lw=0)
        labels = [*(names[arm] if arm < len(names) else f"{arm}" for arm in shown), "others"]
        labels = labels[: np.count_nonzero(counts)]
        axes.legend(areas[: len(labels)], labels, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), reverse=True)


def _draw_calibration(axes: Any, means: Any, rewards: Any, palette: Any) -> None:
    axes.set(title="calibration", xlabel="predicted since the first update", ylabel="received, 95 % interval")
    order = np.argsort(means, kind="stable")
    if groups := [order[group] for group in in_groups(len(order), CALIBRATION_GROUPS)]:
        (predicted, _), (received, error) = group_means(means, groups), group_means(rewards, groups)
        axes.axline((predicted[0], predicted[0]), slope=1, color=palette[-1], lw=1, ls="--")
        axes.errorbar(predicted, received, 1.96 * error, color=palette[0], fmt="o", ms=4)
