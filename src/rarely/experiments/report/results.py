"""Records side by side: what the tables, figures and claims read.

series       all runs of one configuration; of LinUCB's 16 pairs (λ, β) two series are made:
             *best*, the pair with the lowest mean regret over these very runs, as the paper reports it,
             and *fair*, the pair that was fixed beforehand
comparison   all series of one problem in one preset
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rarely.core.policies.presets import PresetName
from rarely.core.types import Array
from rarely.experiments.catalogue import FAIR, PROBLEMS
from rarely.experiments.config import PRESETS, VIEWS, Configuration, Kind
from rarely.experiments.records import Record
from rarely.simulation.statistics import IntervalEstimate, Sample, differences, mean, ratios

BEST_LINEAR, NEURAL = "linucb-best", "neuralucb"
BATCHED: tuple[Kind, ...] = ("fixed", "adaptive", "default")
"""In the order of tables."""


@dataclass(frozen=True)
class Series:
    """All runs of one configuration."""

    name: str
    label: str
    kind: Kind
    configuration: Configuration
    runs: dict[int, Record]
    """By seed."""

    @property
    def regrets(self) -> list[float]:
        """Total regret of each run."""
        return [record.regret for record in self.runs.values()]

    @property
    def regret(self) -> IntervalEstimate:
        """Mean total regret."""
        return mean(self.regrets)

    @property
    def deviation(self) -> float:
        """Standard deviation of the total regret over runs."""
        return float(np.std(self.regrets, ddof=1)) if len(self.runs) > 1 else float("nan")

    @property
    def updates(self) -> float:
        """Mean number of updates."""
        return float(np.mean([len(record.updates) for record in self.runs.values()]))

    @property
    def right(self) -> float:
        """Mean share of rounds in which the best arm was chosen."""
        return float(np.mean([record.data["right"] for record in self.runs.values()]))

    @property
    def retried(self) -> int:
        """Trainings that were tried again with a smaller step, over all runs."""
        return sum(max(0, r.data["updates"]["attempts"] - len(r.updates)) for r in self.runs.values())

    @property
    def rejected(self) -> int:
        """Updates refused by training's own check, over all runs."""
        return sum(len(record.data["updates"]["rejected"]) for record in self.runs.values())

    def seconds(self, part: str | None = None) -> float:
        """Mean processor time of a run, or of one part of it."""
        every = [r.seconds if part is None else r.data["seconds"][part] for r in self.runs.values()]
        return float(np.mean(every))

    @property
    def log_det(self) -> float:
        """Mean of log det Z − log det λI at the end."""
        return float(np.mean([record.log_dets[-1, 1] for record in self.runs.values()]))

    @property
    def memory(self) -> int:
        """The most bytes that a process held."""
        return max(int(record.data["peak_memory"]) for record in self.runs.values())

    def curves(self) -> tuple[Array, Array]:
        """Rounds that figures show, (m,), and the regret so far at each, (runs, m)."""
        points = [record.curve_points for record in self.runs.values()]
        return points[0][0], np.stack([values for _, values in points])


@dataclass(frozen=True)
class Comparison:
    """One problem in one preset."""

    problem: str
    base: str
    preset: PresetName
    rounds: int
    series: dict[str, Series] = field(default_factory=dict)

    def of_kind(self, *kinds: Kind) -> list[Series]:
        """The series of some kinds."""
        return [series for series in self.series.values() if series.kind in kinds]

    @property
    def seeds(self) -> list[int]:
        """Every run of which there is a record."""
        return sorted({seed for series in self.series.values() for seed in series.runs})

    def paired(self, a: Series, b: Series, *, same_machine: bool = False) -> list[tuple[Record, Record]]:
        """The runs that both have; times are compared on one machine and with one compiled form only."""
        pairs = [(a.runs[seed], b.runs[seed]) for seed in sorted(a.runs.keys() & b.runs.keys())]
        return [(x, y) for x, y in pairs if not same_machine or (x.machine, x.form) == (y.machine, y.form)]

    def regret_ratios(self, a: Series, b: Series) -> Sample:
        """Regret of a over regret of b, run by run."""
        pairs = self.paired(a, b)
        return ratios([x.regret for x, _ in pairs], [y.regret for _, y in pairs])

    def ratio_of_means(self, a: Series, b: Series) -> float:
        """Mean regret of a over mean regret of b, on the runs that both have."""
        pairs = self.paired(a, b)
        below = sum(y.regret for _, y in pairs)
        return sum(x.regret for x, _ in pairs) / below if below else float("nan")

    def regret_differences(self, a: Series, b: Series) -> Sample:
        """Regret of a less regret of b, run by run."""
        pairs = self.paired(a, b)
        return differences([x.regret for x, _ in pairs], [y.regret for _, y in pairs])

    def time_ratios(self, a: Series, b: Series) -> Sample:
        """Processor time of a over that of b, run by run."""
        pairs = self.paired(a, b, same_machine=True)
        return ratios([x.seconds for x, _ in pairs], [y.seconds for _, y in pairs])

    def version_excess(self, a: Series, b: Series, factor: float) -> Sample:
        """Versions of a less `factor` times those of b, run by run: counts, which are compared as counts."""
        pairs = self.paired(a, b)
        return Sample(tuple(x.versions - factor * y.versions for x, y in pairs))

    def times_fewer_versions(self, a: Series, b: Series) -> float:
        """Versions of a over versions of b, in all runs together."""
        pairs = self.paired(a, b)
        below = sum(y.versions for _, y in pairs)
        return sum(x.versions for x, _ in pairs) / below if below else float("nan")

    def gap_differences(self, a: Series, b: Series, target: Series) -> Sample:
        """How much further b's regret is from the target's than a's, run by run."""
        seeds = sorted(a.runs.keys() & b.runs.keys() & target.runs.keys())

        def gaps(series: Series) -> list[float]:
            return [abs(series.runs[seed].regret - target.runs[seed].regret) for seed in seeds]

        return differences(gaps(b), gaps(a))

    def same_runs(self, a: Series, b: Series) -> bool:
        """Whether both chose alike in every run that both have."""
        pairs = self.paired(a, b)
        return bool(pairs) and all(x.regret == y.regret and x.curve_digest == y.curve_digest for x, y in pairs)


def compare(records: Iterable[Record]) -> list[Comparison]:
    """Every problem and preset of which there are records, in the catalogue's order."""
    problems: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        problems[record.problem].append(record)
    comparisons = []
    order = list(PROBLEMS)
    for problem in sorted(problems, key=lambda name: order.index(name) if name in order else len(order)):
        its_records = problems[problem]
        first = its_records[0]
        table = first.data["asked"]["world"].get("view") is not None
        played = {record.reading for record in its_records}
        views = {preset: VIEWS[preset] if table else "raw" for preset in PRESETS}
        # Where LinUCB alone was played, each view stands for the first preset that sees it.
        linear = {view: preset for preset, view in reversed(views.items()) if view in played}
        for preset in [p for p in PRESETS if p in played] or sorted(linear.values(), key=PRESETS.index):
            mine = [r for r in its_records if r.reading == (views[preset] if r.configuration.linear else preset)]
            series = {s.name: s for s in _series(mine)}
            comparisons.append(Comparison(problem, first.base, preset, first.rounds, series))
    return comparisons


def overhead(records: Iterable[Record]) -> float:
    """Time of the cells beyond that of their policies, as a share of the latter."""
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
    if sequential := runs.get(Configuration("neuralucb")):
        out.append(Series(NEURAL, "NeuralUCB", "neuralucb", Configuration("neuralucb"), sequential))
    batched = sorted(
        (c for c in runs if c.batched or c.kind == "default"),
        key=lambda c: (BATCHED.index(c.kind), c.batches or 0, c.log_ratio or 0.0),
    )
    return out + [Series(c.id, _label(c), c.kind, c, runs[c]) for c in batched]


def _linear(kind: Kind, runs: dict[Configuration, dict[int, Record]]) -> list[Series]:
    if not runs:
        return []
    # Pairs compete on the runs that all of them have: a stop in the middle of a run must not decide which is best.
    common = set.intersection(*(set(of) for of in runs.values()))
    name = "LinUCB" if kind == "linucb" else "LinUCB + 1"
    out = []
    if common:
        best = min(runs, key=lambda c: np.mean([runs[c][seed].regret for seed in sorted(common)]))
        among = f"best of {len(runs)}" if len(runs) > 1 else "the one pair run"
        out.append(Series(f"{kind}-best", f"{name}, {among}", kind, best, runs[best]))
    fair = Configuration(kind, ridge=FAIR[0], beta=FAIR[1])
    if fair in runs and len(runs) > 1:
        out.append(Series(f"{kind}-fair", f"{name}, λ = β = {FAIR[0]:g}", kind, fair, runs[fair]))
    return out


def _label(c: Configuration) -> str:
    budget = f"{c.kind} B={c.batches}"
    return budget if c.log_ratio is None else f"{budget}, log q={c.log_ratio:g}"
