"""The checks that claims are made of, on one problem in one preset.

"Every" configuration is every one of the catalogue whose B and log q the paper names: one that was not run cannot be
told. Configurations with other values stand beside a claim. Where the paper names no value at all (log q of the cosine
problem), those of the catalogue stand for it, because the claim could not be asked otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from rarely.experiments.catalogue import PROBLEMS, configurations
from rarely.experiments.report.results import Comparison, Series
from rarely.experiments.report.verdicts import ALIKE, SLACK, Check, Measured
from rarely.simulation.statistics import Sample

Quantity = Literal["regret", "time", "versions"]
SAME = "the same decisions in every run"
NAMED_BATCHES = {
    "cosine": (40,),
    "mushroom": (40, 250),
    "quadratic": (40, 100, 200),
    "magic": (40, 100, 200),
}
NAMED_LOG_RATIOS: dict[str, tuple[float, ...]] = {
    "mushroom": (30,),
    "quadratic": (20, 25, 30),
    "magic": (50, 60, 70),
}


class ClaimChecker:
    """Checks on one comparison, by the names of its series."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        known = {c.id: c for c in configurations(PROBLEMS[comparison.problem])}
        self.fixed = {name: c for name, c in known.items() if c.kind == "fixed"}
        self.adaptive = {name: c for name, c in known.items() if c.kind == "adaptive"}
        self.batched = self.fixed | self.adaptive

    def adaptive_with(self, *batches: int) -> list[str]:
        """The adaptive configurations with these B."""
        return [name for name, c in self.adaptive.items() if c.batches in batches]

    def named(self, name: str) -> bool:
        """Whether the paper names the values of a configuration; it does of those without any."""
        if name not in self.batched:
            return True
        configuration, base = self.batched[name], self.comparison.base
        ratios = NAMED_LOG_RATIOS.get(base)
        ours = configuration.log_ratio is not None and ratios is not None and configuration.log_ratio not in ratios
        return configuration.batches in NAMED_BATCHES[base] and not ours

    def at_least(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        """a is at least `factor` times b."""
        return self._factor(quantity, a, b, f"at least {factor:g}", factor, math.inf)

    def at_most(self, factor: float, quantity: Quantity, a: str, b: str) -> Check:
        """a is at most `factor` times b."""
        return self._factor(quantity, a, b, f"at most {factor:g}", 0.0, factor)

    def around(self, size: float, quantity: Quantity, a: str, b: str) -> Check:
        """a is about `size` times b: the paper gives a size, and more is no more right than less."""
        low, high = size / SLACK, size * SLACK
        return self._factor(quantity, a, b, f"between {low:.3g} and {high:.3g}", low, high)

    def alike(self, a: str, b: str) -> Check:
        """Regrets of a and b cannot be told apart."""
        low, high = 1 - ALIKE, 1 + ALIKE
        return self._factor("regret", a, b, f"between {low:g} and {high:g}", low, high)

    def beats(self, a: str, b: str) -> Check:
        """a has less regret than b."""
        return self._above_zero(
            f"regret of {self.label(b)} − regret of {self.label(a)}",
            lambda: self.comparison.regret_differences(self._series(b), self._series(a)),
            (a, b),
        )

    def nearer(self, a: str, b: str, target: str) -> Check:
        """a's regret is nearer to the target's than b's."""
        labels = [self.label(name) for name in (b, a, target)]
        return self._above_zero(
            f"distance of {labels[0]} − distance of {labels[1]}, from the regret of {labels[2]}",
            lambda: self.comparison.gap_differences(self._series(a), self._series(b), self._series(target)),
            (a, b, target),
        )

    def below(self, regret: float, meaning: str, name: str) -> Check:
        """A configuration has less regret than this number, which means something."""
        return self._above_zero(
            f"{regret:.0f} ({meaning}) − regret of {self.label(name)}",
            lambda: Sample(tuple(regret - each for each in self._series(name).regrets)),
            (name,),
        )

    def _above_zero(self, what: str, sample: Callable[[], Sample], names: tuple[str, ...]) -> Check:
        check = self._check(what, "above 0", sample, names, 0.0, math.inf, strict=True)
        if len(names) > 1 and self._ran(*names) and self._same(*names[:2]):
            return replace(check, asked=False, note=f"{SAME}: the budget of neither was used up")
        return check

    def _factor(self, quantity: Quantity, a: str, b: str, needs: str, low: float, high: float) -> Check:
        if quantity == "versions":
            return self._times_fewer(a, b, needs, low)
        measure = {"regret": self.comparison.regret_ratios, "time": self.comparison.time_ratios}[quantity]
        what = f"{quantity} of {self.label(a)} ÷ {self.label(b)}"
        check = self._check(what, needs, lambda: measure(self._series(a), self._series(b)), (a, b), low, high)
        if quantity == "time" and (reason := self._too_short(low, b)):
            return replace(check, asked=False, note=reason)
        if quantity == "regret" and self._ran(a, b) and not check.note:
            means = self.comparison.ratio_of_means(self._series(a), self._series(b))
            check = replace(check, note=f"ratio of the means {means:.4g}")
        return check

    def _times_fewer(self, a: str, b: str, needs: str, factor: float) -> Check:
        """Versions are counts: a's less `factor` times b's must not be negative, and a tie is none."""
        what = f"versions of {self.label(a)} − {factor:g} × versions of {self.label(b)}"
        check = self._check(
            what,
            "at least 0",
            lambda: self.comparison.version_excess(self._series(a), self._series(b), factor),
            (a, b),
            0.0,
            math.inf,
        )
        if reason := self._too_short(factor, b):
            return replace(check, asked=False, note=reason)
        if self._ran(a, b):
            times = self.comparison.times_fewer_versions(self._series(a), self._series(b))
            check = replace(check, note=f"{times:.4g} times fewer; {needs}")
        return check

    def _check(
        self,
        what: str,
        needs: str,
        sample: Callable[[], Sample],
        names: tuple[str, ...],
        low: float,
        high: float,
        strict: bool = False,
    ) -> Check:
        counts = all(map(self.named, names))
        if not self._ran(*names):
            lacking = " and ".join(name for name in names if name not in self.comparison.series)
            return Check(what, needs, (Measured(what, needs, None),), f"no runs of {lacking}", counts)
        runs = sample()
        note = "no number, because a value is 0" if any(map(math.isnan, runs.values)) else ""
        return Check(what, needs, (Measured(what, needs, runs, low, high, strict),), note, counts)

    def _too_short(self, factor: float, name: str) -> str:
        """Why so many times fewer updates cannot be asked of a grid at this length; empty where they can."""
        budget, rounds = self.fixed[name].batches if name in self.fixed else None, self.comparison.rounds
        if budget is None or rounds >= factor * budget:
            return ""
        return f"cannot be asked: {rounds} rounds are not {factor:g} times a grid of {budget}"

    def _ran(self, *names: str) -> bool:
        return all(name in self.comparison.series for name in names)

    def _same(self, a: str, b: str) -> bool:
        return self.comparison.same_runs(self._series(a), self._series(b))

    def _series(self, name: str) -> Series:
        return self.comparison.series[name]

    def label(self, name: str) -> str:
        """What readers call a configuration."""
        series = self.comparison.series.get(name)
        return series.label if series else name
