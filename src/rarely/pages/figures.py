"""The style of matplotlib's figures: colours, markers and axes that all of them share.

Figures have a transparent background, one ink and one colour for rules, and follow the reader's light or dark mode:
files by rules of their own, inside a page by `inline`, which gives them the page's colours.
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rarely.pages.svg import INK, PALETTE, RULE, with_dark_colours

# Families also differ in marker and dash, for readers who see no colours.
LOOKS = {
    "uniform": ("random choice", PALETTE["grey"], "v"),
    "linucb": ("LinUCB", PALETTE["grey"], "s"),
    "linucb-intercept": ("LinUCB with intercept", PALETTE["pink"], "D"),
    "neuralucb": ("NeuralUCB", INK, "*"),
    "fixed": ("fixed grid", PALETTE["blue"], "o"),
    "adaptive": ("adaptive", PALETTE["orange"], "^"),
    "default": ("default policy", PALETTE["green"], "P"),
    "geometric": ("geometric grid", PALETTE["green"], "s"),
    "paced": ("paced", PALETTE["pink"], "D"),
}
NAMES, COLOURS, MARKERS = ({kind: look[i] for kind, look in LOOKS.items()} for i in range(3))
DASHES: tuple[Any, ...] = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)))
STYLE: Any = {
    "font.size": 9,
    "font.family": "sans-serif",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **{f"boxplot.{part}props.color": INK for part in ("box", "whisker", "cap", "median", "flier")},
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=[*PALETTE.values(), INK]),
    "grid.color": RULE,
    "legend.frameon": False,
    "svg.hashsalt": "rarely",
    "svg.fonttype": "none",  # letters stay letters: a twentieth of the size, and they can be searched
    "figure.constrained_layout.use": True,
}


def drawn(draw: Callable[..., Figure], *arguments: Any, **options: Any) -> str:
    """Return the figure of a function as SVG, drawn in this style; the same figure gives the same text."""
    text = StringIO()
    with matplotlib.rc_context(STYLE):
        draw(*arguments, **options).savefig(text, format="svg", metadata={"Date": None})
    return with_dark_colours(text.getvalue())


class PlainLocator(LogLocator):
    """Ticks at 1, 2 and 5 times powers of ten, and at even steps where an axis is too short for three of them."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        ticks = super().tick_values(vmin, vmax)
        inside = [tick for tick in ticks if vmin <= tick <= vmax]
        if len(inside) > 2:
            return ticks
        return [tick for tick in MaxNLocator(5).tick_values(vmin, vmax) if tick > 0]


def plain_numbers(*axes: Axis) -> None:
    """Write 30 and 300 on logarithmic axes, not powers of ten."""
    for axis in axes:
        if axis.get_scale() == "log":
            axis.set_major_locator(PlainLocator(subs=(1.0, 2.0, 5.0), numticks=12))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def plain_text(text: str) -> str:
    """Return text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")
