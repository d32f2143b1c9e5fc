"""Records grouped for comparison: what the tables, figures and claims read.

series       all runs of one configuration; of LinUCB's 16 pairs (λ, β) two series are made:
             *best*, the pair with the lowest mean regret over these very runs, as the paper reports it,
             and *fair*, the pair that was fixed beforehand
comparison   all series of one problem in one preset
growth       how the regret and the versions of each scheme grow with T: exponents a of Tᵃ, fitted run by run
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from rarely.extend import Array, PresetName
from rarely.runs.statistics import IntervalEstimate, Sample, mean, ratios_of_means, share
from rarely.worlds import World
from rarely.worlds.datasets import Dataset
from rarely_lab.engine.record import group_of
from rarely_lab.reproduce.catalogue import FAIR, GROWTH, PROBLEMS, TIMED, growing
from rarely_lab.reproduce.config import PRESETS, VIEWS, Configuration, Kind
from rarely_lab.reproduce.records import Record

BEST_LINEAR, NEURAL = "linucb-best", "neuralucb"
NETWORKS: tuple[Kind, ...] = ("neuralucb", "fixed", "adaptive", "default")  # in the order of tables
SLACK = 1.25  # what "almost", "around" and "slightly" leave open: a factor
UNIFORM_ROUNDS = 200  # rounds of a world that tell what uniform play loses in each, to 2 %
where = attrgetter("machine", "form")
"""The machine of a run, and the compiled form of its loops: times of two places do not compare."""


@dataclass(frozen=True)
class Series:
    """All runs of one configuration, by seed."""

    name: str
    label: str
    kind: Kind
    configuration: Configuration
    runs: dict[int, Record]

    @property
    def group(self) -> str:
        """What its runs have in common in their names; of LinUCB's that is its view."""
        return next((group_of(record.id) for record in self.runs.values()), "")

    @property
    def disasters(self) -> IntervalEstimate:
        """The share of runs with more than half of the regret of uniform play in the same world, if that is known."""
        known = [(record.regret, uniform_regret(record)) for record in self.runs.values()]
        return share(sum(own > 0.5 * uniform for own, uniform in known), sum(not math.isnan(u) for _, u in known))

    @property
    def regrets(self) -> list[float]:
        return [record.regret for record in self.runs.values()]

    @property
    def regret(self) -> IntervalEstimate:
        return mean(self.regrets)

    @property
    def deviation(self) -> float:
        """The standard deviation of the total regret over runs; NaN for one run."""
        return float(np.std(self.regrets, ddof=1)) if len(self.runs) > 1 else math.nan

    @property
    def updates(self) -> float:
        return self.mean_of(lambda record: len(record.updates))

    @property
    def seconds(self) -> float:
        return self.mean_of(lambda record: record.seconds)

    def mean_of(self, value: Callable[[Record], float]) -> float:
        """Return the mean over runs of some number of a record."""
        return float(np.mean([value(record) for record in self.runs.values()]))

    def curves(self) -> tuple[Array, Array]:
        """Return the rounds that figures show, (m,), and the regret so far at each, (runs, m)."""
        points = [record.curve_points for record in self.runs.values()]
        return points[0][0], np.stack([values for _, values in points])


def uniform_regret(record: Record) -> float:
    """Return the expected regret of uniform play: as recorded, or else what some rounds of its world tell."""
    kept = record.data.get("uniform")
    return float(kept) if kept is not None else record.rounds * _uniform_gap(record.problem, record.seed)


@cache
def _uniform_gap(problem: str, seed: int) -> float:
    if problem not in PROBLEMS:
        return math.nan
    source = PROBLEMS[problem].source
    if isinstance(source, Dataset):
        return 1 - 1 / len(source.counts)
    means = source.rounds(seed, UNIFORM_ROUNDS).means if isinstance(source, World) else np.eye(len(source.classes))
    return float((means.max(axis=1) - means.mean(axis=1)).mean())


@dataclass(frozen=True)
class Comparison:
    """One problem in one preset."""

    problem: str
    base: str
    preset: PresetName
    rounds: int
    series: dict[str, Series] = field(default_factory=dict)
    clock: dict[str, Series] = field(default_factory=dict)
    """The series whose processor times count, if the problem was played once more for them."""

    def of_kind(self, kind: Kind) -> list[Series]:
        return [series for series in self.series.values() if series.kind == kind]

    @property
    def sequential_runs(self) -> int:
        return len(self.series[NEURAL].runs) if NEURAL in self.series else 0

    @cached_property
    def place(self) -> tuple[str, str]:
        """The machine whose times count, and the compiled form there: with the most runs by and beside NeuralUCB."""
        beside = self.clocked(self.series[NEURAL]) if NEURAL in self.series else {}
        runs = [one for series in self.series.values() for one in self.clocked(series).items()]
        pairs = [run for seed, run in runs if seed in beside and where(run) == where(beside[seed])]
        counts = Counter(where(run) for run in pairs or (run for _, run in runs))
        return max(counts, key=counts.__getitem__, default=("", ""))

    def clocked(self, series: Series) -> dict[int, Record]:
        """Return the runs that took the times of a series: not by a GPU, which plays many at once."""
        own = self.clock.get(series.name.replace("-fair", "-best"), series).runs
        return {seed: run for seed, run in own.items() if run.engine != "gpu"}

    def timed(self, series: Series) -> Series:
        """Return a series with the runs that have its times, on the one machine whose times count; maybe none."""
        return replace(series, runs={k: run for k, run in self.clocked(series).items() if where(run) == self.place})

    @property
    def has_times(self) -> bool:
        """Return whether the times of the sequential policy, or without it of some series, are known."""
        return bool(self.timed(self.series.get(NEURAL, next(iter(self.series.values())))).runs)

    @cached_property
    def idle(self) -> str:
        """Say that NeuralUCB does not learn here, if it has more regret than the LinUCB that the paper prints."""
        if NEURAL not in self.series or BEST_LINEAR not in self.series:
            return ""
        ratio = ratios_of_means(*self.paired("regret", self.series[NEURAL], self.series[BEST_LINEAR])).interval()
        if not ratio.low > 1:
            return ""
        return f"nothing learns: NeuralUCB itself has {ratio.value:.2g} times the regret of the printed LinUCB"

    def paired(self, name: str, a: Series, b: Series) -> tuple[list[float], list[float]]:
        """Return a number of every run that both have, of one engine where that matters; `seconds` of one machine."""
        if name == "seconds":
            a, b = self.timed(a), self.timed(b)
        pairs = [(a.runs[seed], b.runs[seed]) for seed in sorted(a.runs.keys() & b.runs.keys())]
        if not a.configuration.linear and not b.configuration.linear:
            pairs = [(x, y) for x, y in pairs if x.engine == y.engine]
        return [getattr(x, name) for x, _ in pairs], [getattr(y, name) for _, y in pairs]

    def same_runs(self, a: Series, b: Series) -> bool:
        """Return whether both chose the same arms in every run that both have."""
        each = (self.paired(name, a, b) for name in ("regret", "curve_digest"))  # the digests only where regrets agree
        return all(own and own == other for own, other in each)


def by_preset(some: Iterable[Any]) -> dict[PresetName, list[Any]]:
    """Return comparisons, or judged claims, by their presets."""
    presets: dict[PresetName, list[Any]] = {}
    for one in some:
        presets.setdefault(one.preset, []).append(one)
    return presets


def compare(records: Iterable[Record]) -> list[Comparison]:
    """Group records by problem and preset, in the catalogue's order."""
    problems: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        problems[record.problem].append(record)
    comparisons, order = list[Comparison](), [*PROBLEMS, *problems]
    for problem, its_records in sorted(problems.items(), key=lambda item: order.index(item[0])):
        first = its_records[0]
        table = first.data["asked"]["world"].get("view") is not None
        played = {record.reading for record in its_records}
        views = {preset: VIEWS[preset] if table else "raw" for preset in PRESETS}
        # If only LinUCB was played, each view belongs to the first preset that uses it.
        linear = {view: preset for preset, view in reversed(views.items()) if view in played}
        for preset in [p for p in PRESETS if p in played] or sorted(linear.values(), key=PRESETS.index):
            mine = [r for r in its_records if r.reading == (views[preset] if r.configuration.linear else preset)]
            series = {s.name: s for s in _series(mine)}
            comparisons.append(Comparison(problem, first.base, preset, first.rounds, series))
    clocks = {(c.base, c.preset, c.rounds): c.series for c in comparisons if c.problem in TIMED}
    plain = [c for c in comparisons if c.problem not in TIMED]
    return [replace(c, clock=clocks.get((c.problem, c.preset, c.rounds), {})) for c in plain]


def overhead(records: Iterable[Record]) -> float:
    """Return the cells' time beyond that of their policies, as a share of the latter."""
    walls = [record.data["wall"] for record in records]
    policies = sum(float(wall["selecting"] + wall["training"]) for wall in walls)
    return sum(float(wall["cell"]) for wall in walls) / policies - 1


def _series(records: Sequence[Record]) -> list[Series]:
    runs: dict[Configuration, dict[int, Record]] = defaultdict(dict)
    for record in sorted(records, key=lambda record: record.seed):
        runs[record.configuration][record.seed] = record
    out = []
    kinds: tuple[Kind, ...] = ("linucb", "linucb-intercept")
    for kind in kinds:
        out += _linear(kind, {c: of for c, of in runs.items() if c.kind == kind})
    networks = (c for c in runs if c.kind in NETWORKS)
    for c in sorted(networks, key=lambda c: (NETWORKS.index(c.kind), c.batches or 0, c.log_ratio or 0.0)):
        ratio = "" if c.log_ratio is None else f", log q={c.log_ratio:g}"
        out.append(Series(c.id, f"{c.kind} B={c.batches}{ratio}" if c.batches else "NeuralUCB", c.kind, c, runs[c]))
    return out


def _linear(kind: Kind, runs: dict[Configuration, dict[int, Record]]) -> list[Series]:
    if not runs:
        return []
    # Pairs compete on the runs that all of them have: an interrupted experiment must not decide which is best.
    common = set.intersection(*(set(of) for of in runs.values()))
    name = "LinUCB" if kind == "linucb" else "LinUCB + 1"
    out = []
    if common:
        best = min(runs, key=lambda c: np.mean([runs[c][seed].regret for seed in sorted(common)]))
        among = f"best of {len(runs)} in hindsight" if len(runs) > 1 else "the one pair run"
        out.append(Series(f"{kind}-best", f"{name}, {among}", kind, best, runs[best]))
    fair = Configuration(kind, ridge=FAIR[0], beta=FAIR[1])
    if fair in runs and len(runs) > 1:
        out.append(Series(f"{kind}-fair", f"{name}, λ = β = {FAIR[0]:g}", kind, fair, runs[fair]))
    return out


@dataclass(frozen=True)
class Growth:
    """How one scheme, whose series are by T, grows with T: samples of slopes, one for each run."""

    kind: Kind
    series: dict[int, Series]
    regret: Sample  # the exponent a of regret ∝ Tᵃ
    versions: Sample  # the exponent of the number of versions
    per_log: Sample  # versions for each unit of log T


def lengthened(comparisons: Iterable[Comparison]) -> dict[tuple[str, PresetName], list[Comparison]]:
    """Return what was played at several lengths, by the problem that they lengthen and the preset."""
    groups: dict[tuple[str, PresetName], list[Comparison]] = {}
    for c in comparisons:
        if c.problem in GROWTH:
            groups.setdefault((GROWTH[c.problem], c.preset), []).append(c)
    return groups


def growth(comparisons: Iterable[Comparison]) -> dict[str, Growth]:
    """Return the schemes that were played at three lengths or more, by their labels."""
    schemes: dict[str, dict[int, Series]] = {}
    for c in sorted(comparisons, key=lambda c: c.rounds):
        words = dict(zip(growing(c.rounds), ("log₂ T", "√T"), strict=True))
        for s in c.series.values():
            budget = f"{s.kind}, B = {words.get(s.configuration.batches or 0)}" if s.kind != NEURAL else s.label
            label = f"adaptive, log q = {s.configuration.log_ratio:g}" if s.configuration.log_ratio else budget
            schemes.setdefault(label, {})[c.rounds] = s
    return {label: _growth(series) for label, series in schemes.items() if len(series) > 2}


def _growth(series: dict[int, Series]) -> Growth:
    seeds = sorted(set.intersection(*(set(s.runs) for s in series.values())))
    kind, logs = next(iter(series.values())).kind, np.log([*series])

    def slopes(of: Callable[[Record], float], exact: bool = kind != "adaptive") -> Sample:
        values = np.array([[of(s.runs[seed]) for seed in seeds] for s in series.values()])
        return Sample(tuple(np.polyfit(logs, values, 1)[0].tolist()) if seeds else (), exact=exact)

    exponent = slopes(lambda run: math.log(run.regret) if run.regret > 0 else math.nan, exact=False)
    versions = slopes(lambda run: math.log(run.versions)), slopes(lambda run: float(run.versions))
    return Growth(kind, series, exponent, *versions)
