"""Small pictures as SVG: lines, bars and points, drawn at the size of a phone's screen.

A picture is 400 units wide and is shown about that wide, on a phone one and on a desktop three beside each other, so
that its letters keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from rarely.core.types import Array

WIDE, HIGH = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 12, 34
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#6A6A6A")
"""After Okabe and Ito: told apart by everyone."""
MOST_POINTS = 200
"""Points of a line; more are thinned."""


@dataclass
class Chart:
    """Axes with some marks on them."""

    title: str
    """What the picture says, for those who cannot see it."""
    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str = ""
    y_label: str = ""
    marks: list[str] = field(default_factory=list)
    ticks: Sequence[tuple[float, str]] | None = None
    """Places and names on the x axis; numbers by default."""

    def __post_init__(self) -> None:
        self.x, self.y = _wide(*self.x), _wide(*self.y)

    def px(self, x: float) -> float:
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDE - LEFT - RIGHT)

    def py(self, y: float) -> float:
        return HIGH - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HIGH - TOP - BOTTOM)

    def line(
        self, xs: Array | Sequence[float], ys: Array | Sequence[float], colour: int = 0, *, dashed: bool = False
    ) -> None:
        """A line through the points that are finite."""
        xs, ys = np.asarray(xs, float), np.asarray(ys, float)
        keep = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
        keep = (
            keep[np.unique(np.linspace(0, len(keep) - 1, min(len(keep), MOST_POINTS)).astype(int))]
            if len(keep)
            else keep
        )
        points = " ".join(f"{self.px(xs[i]):.1f},{self.py(ys[i]):.1f}" for i in keep)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.marks.append(
            f'<polyline points="{points}" fill="none" stroke="{_colour(colour)}" stroke-width="2" '
            f'stroke-linejoin="round"{dash}/>'
        )

    def bar(self, x: float, width: float, low: float, high: float, colour: int = 0) -> None:
        """An upright bar."""
        left, top = self.px(x - width / 2), self.py(high)
        self.marks.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(self.px(x + width / 2) - left, 0.5):.1f}" '
            f'height="{max(self.py(low) - top, 0):.1f}" fill="{_colour(colour)}"/>'
        )

    def point(self, x: float, y: float, colour: int = 0, *, error: float = 0.0) -> None:
        """A dot, with a bar for its standard error."""
        if error > 0:
            low, high = self.py(max(y - error, self.y[0])), self.py(min(y + error, self.y[1]))
            self.marks.append(f'<path d="M{self.px(x):.1f} {low:.1f}V{high:.1f}" stroke="{_colour(colour)}"/>')
        self.marks.append(f'<circle cx="{self.px(x):.1f}" cy="{self.py(y):.1f}" r="3.5" fill="{_colour(colour)}"/>')

    def mark(self, x: float, text: str = "") -> None:
        """A thin upright line."""
        at = f"{self.px(x):.1f}"
        self.marks.append(f'<path d="M{at} {TOP}V{HIGH - BOTTOM}" class="mark"/>')
        if text:
            self.marks.append(f'<text x="{at}" y="{TOP - 2}" class="note" text-anchor="middle">{escape(text)}</text>')

    def level(self, y: float, text: str) -> None:
        """A thin level line with its name."""
        at = self.py(y)
        self.marks.append(f'<path d="M{LEFT} {at:.1f}H{WIDE - RIGHT}" class="mark"/>')
        self.marks.append(
            f'<text x="{WIDE - RIGHT}" y="{at - 4:.1f}" class="note" text-anchor="end">{escape(text)}</text>'
        )

    def svg(self) -> str:
        """The picture."""
        return (
            f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title>{self._axes()}{''.join(self.marks)}</svg>"
        )

    def _axes(self) -> str:
        parts = [f'<path d="M{LEFT} {TOP}V{HIGH - BOTTOM}H{WIDE - RIGHT}" class="axis"/>']
        for value in round_ticks(*self.y, 4):
            at = self.py(value)
            parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDE - RIGHT}" class="grid"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{short(value)}</text>')
        for value, name in self.ticks or [(value, short(value)) for value in round_ticks(*self.x, 5)]:
            parts.append(
                f'<text x="{self.px(value):.1f}" y="{HIGH - BOTTOM + 15}" text-anchor="middle">{escape(name)}</text>'
            )
        middle = (LEFT + WIDE - RIGHT) / 2
        parts.append(
            f'<text x="{middle}" y="{HIGH - 4}" text-anchor="middle" class="note">{escape(self.x_label)}</text>'
        )
        return "".join(parts)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers between two others.

    >>> round_ticks(0, 1, 5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    for power in range(int(np.floor(np.log10(high - low))) - 1, 400):
        for step in (1.0, 2.0, 2.5, 5.0):
            wide = step * 10.0**power
            first, last = int(np.ceil(low / wide - 1e-9)), int(np.floor(high / wide + 1e-9))
            if last - first < most:
                return [wide * i for i in range(first, last + 1)]
    return []


def short(value: float) -> str:
    """A number in few letters.

    >>> [short(value) for value in (0.25, 1200.0, 3e6, -0.0)]
    ['0.25', '1.2k', '3M', '0']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value + 0.0:.3g}"


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _wide(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return 0.0, 1.0
    return (low, high) if high > low else (low - 0.5, low + 0.5)
