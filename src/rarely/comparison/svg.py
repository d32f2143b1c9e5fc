"""Figures as SVG text: a frontier for each problem, and a radar for each policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

# Okabe and Ito's colours, told apart by everyone; lines also differ in marker and dash.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a6d00", "#56B4E9", "#000000", "#7a7a7a")
DASHES = ("", "6 3", "2 2")
WIDTH, HEIGHT = 340, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 24, 34
DODGE = 12.0
"""How far apart the points of one budget are drawn, in all."""
ROOM = 2.0
"""By this factor an axis may be longer than the means need, so that the ends of intervals are on it."""
FEWEST = 3
"""Fewer ticks than this tell nobody what a point's value is."""


@dataclass(frozen=True)
class Style:
    """How one policy is drawn everywhere."""

    colour: str
    dash: str
    marker: int

    @classmethod
    def of(cls, index: int) -> Style:
        """The style of the policy with this place in the leaderboard.

        >>> Style.of(0) != Style.of(8)
        True
        """
        return cls(COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)], index % 5)


@dataclass(frozen=True)
class Curve:
    """A policy's mean regret with each budget, and the ends of its intervals."""

    name: str
    style: Style
    budgets: Sequence[int]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


def marker(style: Style, x: float, y: float, size: float = 3.4) -> str:
    """A point: disc, square, triangle, diamond or ring."""
    fill = f'fill="{style.colour}"'
    if style.marker == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {fill}/>'
    if style.marker == 4:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="#fff" stroke="{style.colour}" stroke-width="1.5"/>'
    corners = {1: ((-1, -1), (1, -1), (1, 1), (-1, 1)), 2: ((0, -1.2), (1.1, 0.9), (-1.1, 0.9))}
    shape = corners.get(style.marker, ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)))
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in shape)
    return f'<polygon points="{points}" {fill}/>'


def swatch(style: Style) -> str:
    """A line with its marker, for a legend."""
    line = f'<line x1="0" y1="6" x2="26" y2="6" stroke="{style.colour}" stroke-width="1.6"{_dashed(style.dash)}/>'
    drawn = line + marker(style, 13, 6)
    return f'<svg class="swatch" viewBox="0 0 26 12" width="26" height="12" aria-hidden="true">{drawn}</svg>'


def frontier(title: str, curves: Sequence[Curve], zero: float, one: float, zero_name: str, last: int) -> str:
    """Regret against the budget, both on logarithmic axes; dashed lines at what is 1 (uniform play) and what is 0.

    `zero_name` says what is 0, and `last` is the budget that stands for T.
    """
    values = [value for curve in curves for value in curve.means if value > 0] + [one, zero]
    least, most = min([value for value in values if value > 0], default=1.0), max(values)
    ends = [end for curve in curves for end in (*curve.lows, *curve.highs) if least / ROOM <= end <= most * ROOM]
    low = min([least / 1.25, *(end / 1.1 for end in ends)])
    high = max(most, low * 2, *ends) * 1.15
    budgets = sorted({b for curve in curves for b in curve.budgets})
    x_ends = math.log(budgets[0]), math.log(max(budgets[-1], budgets[0] + 1))

    def x(batches: float) -> float:
        return LEFT + 8 + (math.log(batches) - x_ends[0]) / (x_ends[1] - x_ends[0]) * (WIDTH - LEFT - RIGHT - 8)

    def y(value: float) -> float:
        share = (math.log(min(max(value, low), high)) - math.log(low)) / (math.log(high) - math.log(low))
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="15" class="t">{escape(title)}</text>']
    for tick in _ticks(low, high):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e6e6e6"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y(tick) + 3.5:.1f}" text-anchor="end">{tick:g}</text>')
    for batches in budgets:
        name = "T" if batches == last else str(batches)
        parts.append(f'<text x="{x(batches):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{name}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 5}" text-anchor="middle">versions B</text>')
    for value, name, x_name, anchor, down in (
        (one, "uniform", WIDTH - RIGHT, "end", -3),
        (zero, zero_name, LEFT + 2, "start", 11),
    ):
        if low <= value <= high:
            at = y(value)
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="ref"/>')
            parts.append(f'<text x="{x_name}" y="{at + down:.1f}" text-anchor="{anchor}" class="faint">{name}</text>')
    for place, curve in enumerate(curves):
        # A few points to the side of each other, so that intervals do not hide one another.
        shift = DODGE * (place - (len(curves) - 1) / 2) / max(len(curves) - 1, 1)
        parts += _curve(curve, [x(batches) + shift for batches in curve.budgets], y)
    return _figure(f"{title}: regret against the number of versions", parts, WIDTH, HEIGHT)


def _curve(curve: Curve, at: Sequence[float], y: Callable[[float], float]) -> list[str]:
    style = curve.style
    points = " ".join(f"{x:.1f},{y(v):.1f}" for x, v in zip(at, curve.means, strict=True))
    parts = [
        f'<polyline points="{points}" fill="none" stroke="{style.colour}" stroke-width="1.5"{_dashed(style.dash)}/>'
    ]
    for x, v, low, high in zip(at, curve.means, curve.lows, curve.highs, strict=True):
        if math.isfinite(low) and math.isfinite(high):
            ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}"'
            parts.append(f'<line {ends} stroke="{style.colour}" stroke-width="1" opacity=".45"/>')
            # An arrow where an interval goes on beyond the axis.
            parts += [
                f'<path d="M{x - 3:.1f} {y(end) + turn:.1f}L{x:.1f} {y(end):.1f}L{x + 3:.1f} {y(end) + turn:.1f}" '
                f'fill="none" stroke="{style.colour}" opacity=".45"/>'
                for end, turn, beyond in ((high, 4, y(high) <= TOP), (low, -4, y(low) >= HEIGHT - BOTTOM))
                if beyond
            ]
        parts.append(marker(style, x, y(v)))
    return parts


def radar(title: str, axes: Sequence[tuple[str, float | None]], style: Style) -> str:
    """Values from 0 in the middle to 1 at the rim; None is drawn in the middle, with its name in grey."""
    centre_x, centre_y, radius = 170.0, 128.0, 84.0
    count = len(axes)
    parts = [f'<text x="170" y="15" text-anchor="middle" class="t">{escape(title)}</text>']

    def at(index: int, share: float) -> tuple[float, float]:
        angle = 2 * math.pi * index / count - math.pi / 2
        return centre_x + radius * share * math.cos(angle), centre_y + radius * share * math.sin(angle)

    for ring in (0.25, 0.5, 0.75, 1.0):
        points = " ".join("{:.1f},{:.1f}".format(*at(i, ring)) for i in range(count))
        parts.append(f'<polygon points="{points}" fill="none" stroke="#ddd"/>')
    for index, (name, value) in enumerate(axes):
        end, text = at(index, 1.0), at(index, 1.13)
        parts.append(f'<line x1="{centre_x}" y1="{centre_y}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="#ddd"/>')
        anchor = "middle" if abs(text[0] - centre_x) < 8 else "start" if text[0] > centre_x else "end"
        css = ' class="faint"' if value is None else ""
        parts.append(
            f'<text x="{text[0]:.1f}" y="{text[1] + 3.5:.1f}" text-anchor="{anchor}"{css}>{escape(name)}</text>'
        )
    points = " ".join("{:.1f},{:.1f}".format(*at(i, value or 0.0)) for i, (_, value) in enumerate(axes))
    parts.append(
        f'<polygon points="{points}" fill="{style.colour}" fill-opacity=".18" stroke="{style.colour}" '
        'stroke-width="1.6"/>'
    )
    shown = ", ".join(f"{name} {'none' if value is None else f'{value:.2f}'}" for name, value in axes)
    return _figure(f"{title}: {shown}", parts, WIDTH, HEIGHT)


def _figure(label: str, parts: Sequence[str], width: int, height: int) -> str:
    inner = "\n".join(parts)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">\n{inner}\n</svg>'


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten; 1, 2 and 5 times them where there are few, and even steps where these are few as well.

    >>> _ticks(8, 1200), _ticks(20, 1800), _ticks(52, 160)
    ([10, 100, 1000], [20, 50, 100, 200, 500, 1000], [60.0, 80.0, 100.0, 120.0, 140.0, 160.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5)):
        ticks = [tick for power in powers for step in steps if low <= (tick := step * 10**power) <= high]
        if len(ticks) >= FEWEST:
            return ticks
    coarse = (step * 10.0**power for power in reversed(range(powers.start - 2, powers.stop)) for step in (5, 2, 1))
    for even in coarse:
        ticks = [round(even * k, 9) for k in range(math.ceil(low / even), math.floor(high / even) + 1)]
        if len(ticks) >= FEWEST:
            break
    return ticks
