"""SVG inside pages: matplotlib's figures made small and themeable, and charts that need no matplotlib.

A page that a server makes while somebody waits cannot afford matplotlib: ten figures take it half a second or more, and
`Chart` four milliseconds. Its charts are 400 units wide and shown about that wide, so that letters keep their size.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
from markupsafe import Markup

from rarely.extend import Array

INK, RULE = "#1c2126", "#dfe3e7"
PALETTE = {
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "pink": "#cc79a7",
    "olive": "#8a6d00",
    "sky": "#56b4e9",
    "grey": "#808080",
}
"""After Okabe and Ito, which colour-blind readers can distinguish; the style sheet has lighter ones for dark pages."""
VARIABLES = {INK: "currentColor", RULE: "var(--line)"} | {value: f"var(--{name})" for name, value in PALETTE.items()}
"""What each colour of a figure becomes inside a page."""
SERIES = [*(f"var(--{name})" for name in PALETTE), "currentColor"]  # colours of a chart's lines, in order
DECIMALS = 1  # digits of a coordinate: a tenth of a point cannot be seen
MAX_POINTS = 200  # points of a chart's line; longer ones are thinned
WIDTH, HEIGHT = 400, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 18, 12, 34
_NUMBER = re.compile(r"-?\d+\.\d+")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_COORDINATES = re.compile(r' (?:d|x|y|x1|x2|y1|y2|width|height|points|transform)="[^"]*"')
_STYLE = re.compile(r' style="([^"]*)"')


def with_dark_colours(svg: str) -> str:
    """Return a figure for a file whose ink, rules and palette follow the reader's dark mode, with no other change.

    >>> with_dark_colours('<svg width="9pt"><path style="fill: #0072b2"/></svg>')
    '<svg width="9pt"><style>@media (prefers-color-scheme: dark) {...} [style*="fill: #0072b2"] { fill: #...'
    """
    css = (Path(__file__).with_name("templates") / "style.css").read_text(encoding="utf-8")
    dark = dict(re.findall(r"--(\w+): (#\w+)", css.partition("prefers-color-scheme: dark")[2]))
    names = {INK: "ink", RULE: "line"} | {value: name for name, value in PALETTE.items()}
    rules = " ".join(
        f'[style*="{what}: {light}"] {{ {what}: {dark[name]} !important }}'
        for light, name in names.items()
        for what in ("fill", "stroke")
    )
    head, tag, rest = svg.partition("<svg")
    own, close, body = rest.partition(">")
    return f"{head}{tag}{own}{close}<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>{body}"


def inline(svg: str, label: str) -> Markup:
    """Return a figure's `<svg>` element alone: rounded coordinates, short ids, colours of the page.

    >>> figure = '<svg width="9pt" viewBox="0 0 9 9"><path d="M 1.26 2" style="fill: #0072b2"/></svg>'
    >>> print(inline(figure, "A picture"))
    <svg role="img" aria-label="A picture" viewBox="0 0 9 9"><path d="M 1.3 2" style="fill: var(--blue)"/></svg>
    """
    prefix = f"i{zlib.crc32(label.encode()):x}-"  # ids are unique in a page
    body = svg[svg.index("<svg") :].strip()
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    head, _, rest = body.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    rest = re.sub(r" font-family: [^;\"]*;?", "", rest)
    rest = re.sub(r' transform="rotate\(-0 [^"]*"', "", rest)
    rest = _COORDINATES.sub(lambda match: _NUMBER.sub(_rounded, match.group()), rest)
    rest = _STYLE.sub(lambda match: _COLOUR.sub(lambda c: VARIABLES.get(c.group(), c.group()), match.group()), rest)
    for number, name in enumerate(dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', rest))):
        rest = re.sub(rf'(href="#|url\(#| id="){re.escape(name)}(["\)])', rf"\g<1>{prefix}{number:x}\g<2>", rest)
    rest = re.sub(r' id="(?!' + re.escape(prefix) + r'[0-9a-f]+")[^"]*"', "", rest)
    rest = re.sub(r"\s*\n\s*", " ", rest).replace("xlink:href", "href").replace(" />", "/>").replace(' "', '"')
    rest = re.sub(r"> <", "><", rest)
    return Markup(f'<svg role="img" aria-label="{escape(label)}" {view.group() if view else ""}>{rest}')


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number.group()):.{DECIMALS}f}".removesuffix(".0")


@dataclass
class Chart:
    """Axes with lines and points on them."""

    title: str  # what the chart shows, for readers who cannot see it
    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str = ""
    marks: list[str] = field(default_factory=list)
    ticks: Sequence[tuple[float, str]] | None = None  # places and names on the x axis; numbers by default

    def __post_init__(self) -> None:
        self.x, self.y = _nonempty(*self.x), _nonempty(*self.y)

    def px(self, x: float) -> float:
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def py(self, y: float) -> float:
        return HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)

    def line(
        self, xs: Array | Sequence[float], ys: Array | Sequence[float], series: int = 0, *, dashed: bool = False
    ) -> None:
        """Draw a line through the finite points."""
        xs, ys = np.asarray(xs, float), np.asarray(ys, float)
        keep = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
        if len(keep) > MAX_POINTS:
            keep = keep[np.linspace(0, len(keep) - 1, MAX_POINTS).astype(int)]
        points = " ".join(f"{self.px(xs[i]):.1f},{self.py(ys[i]):.1f}" for i in keep)
        dash = ";stroke-dasharray:5 4" if dashed else ""
        self.marks.append(f'<polyline points="{points}" class="line" style="stroke:{_colour(series)}{dash}"/>')

    def point(self, x: float, y: float, series: int = 0) -> None:
        at = f'cx="{self.px(x):.1f}" cy="{self.py(y):.1f}" r="3.5"'
        self.marks.append(f'<circle {at} style="fill:{_colour(series)}"/>')

    def mark(self, x: float) -> None:
        """Draw a thin vertical line."""
        self.marks.append(f'<path d="M{self.px(x):.1f} {TOP}V{HEIGHT - BOTTOM}" class="mark"/>')

    def level(self, y: float) -> None:
        """Draw a thin horizontal line."""
        self.marks.append(f'<path d="M{LEFT} {self.py(y):.1f}H{WIDTH - RIGHT}" class="mark"/>')

    def svg(self) -> Markup:
        title = escape(self.title)
        inner = f"<title>{title}</title>{self._axes()}{''.join(self.marks)}"
        head = f'class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"'
        return Markup(f"<svg {head}>{inner}</svg>")

    def _axes(self) -> str:
        parts = [f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" class="axis"/>']
        for value in round_ticks(*self.y, 4):
            at = self.py(value)
            parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" class="rule"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{short(value)}</text>')
        ticks = self.ticks or [(value, short(value)) for value in round_ticks(*self.x, 5)]
        below = [(self.px(x), HEIGHT - BOTTOM + 15, name) for x, name in ticks]
        below.append(((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, self.x_label))
        parts += [f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>' for x, y, text in below]
        return "".join(parts)


def legend(*names: str) -> list[tuple[str, str]]:
    """Return each series' colour and name."""
    return [(_colour(series), name) for series, name in enumerate(names)]


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` round numbers between two others.

    >>> round_ticks(0, 1, 5)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    for power in range(int(np.floor(np.log10(high - low))) - 1, 400):
        for step in (1.0, 2.0, 2.5, 5.0):
            apart = step * 10.0**power
            first, last = int(np.ceil(low / apart - 1e-9)), int(np.floor(high / apart + 1e-9))
            if last - first < most:
                return [apart * i for i in range(first, last + 1)]
    return []


def short(value: float) -> str:
    """Return a number in few letters.

    >>> [short(value) for value in (0.25, 1200.0, 3e6, -0.0)]
    ['0.25', '1.2k', '3M', '0']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value + 0.0:.3g}"


def _colour(series: int) -> str:
    return SERIES[series % len(SERIES)]


def _nonempty(low: float, high: float) -> tuple[float, float]:
    """Widen a range of one value, and replace one that is not finite."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return 0.0, 1.0
    return (low, high) if high > low else (low - 0.5, low + 0.5)
