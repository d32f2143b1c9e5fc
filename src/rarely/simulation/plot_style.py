"""Colours, markers and axes that all figures share."""

from __future__ import annotations

from typing import Any

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

# Okabe and Ito's colours, told apart by everyone; families also differ in marker and dash.
COLOURS: dict[str, str] = {
    "linucb": "#999999",
    "linucb-intercept": "#CC79A7",
    "neuralucb": "#000000",
    "fixed": "#0072B2",
    "adaptive": "#D55E00",
    "default": "#009E73",
}
MARKERS: dict[str, str] = {
    "linucb": "s",
    "linucb-intercept": "D",
    "neuralucb": "*",
    "fixed": "o",
    "adaptive": "^",
    "default": "P",
}
NAMES: dict[str, str] = {
    "linucb": "LinUCB",
    "linucb-intercept": "LinUCB with intercept",
    "neuralucb": "NeuralUCB",
    "fixed": "fixed grid",
    "adaptive": "adaptive",
    "default": "default policy",
}
DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)))
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "rarely",
    "svg.fonttype": "none",  # letters stay letters: a twentieth of the size, and they can be searched
    "font.family": "sans-serif",
    "figure.constrained_layout.use": True,
}


class PlainLocator(LogLocator):
    """1, 2 and 5 times powers of ten, and even steps where an axis is too short for three of them."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """The ticks between two ends."""
        ticks = super().tick_values(vmin, vmax)
        inside = [tick for tick in ticks if vmin <= tick <= vmax]
        if len(inside) > 2:
            return ticks
        return [tick for tick in MaxNLocator(5).tick_values(vmin, vmax) if tick > 0]


def plain_numbers(*given: Axis) -> None:
    """30 and 300 on a logarithmic axis, not powers of ten."""
    for axis in given:
        if axis.get_scale() == "log":
            axis.set_major_locator(PlainLocator(subs=(1.0, 2.0, 5.0), numticks=12))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
