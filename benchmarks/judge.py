"""The error rates of the judge of the paper's claims, in simulated papers.

python benchmarks/judge.py                        # 2000 papers of each kind with 3 and with 10 runs, some minutes
python benchmarks/judge.py --papers 200 --runs 10
python benchmarks/judge.py --tests                # the test itself: error rates and power, a minute
python benchmarks/judge.py --published            # the test on the published runs, a minute

A simulated paper has a true mean regret and time for every configuration of the four problems, and runs that scatter
around them: a factor common to a run, which pairing removes, and one of each configuration's own, as large as on
record. Regrets are lognormal, so that differences are skewed. Three kinds of papers:

    random     every configuration and its scatter are drawn around plausible values; some claims are true, some false
    edge       all checks of a claim are exactly at their thresholds: it is barely true
    one false  as the paper says, but one check of a claim is barely false

A claim is true if its checks are, with the configurations' true means. Shown: how often a true claim is refuted and a
false one confirmed, for all claims and for the worst, and in how many papers that happens to any claim.

`--tests` draws samples of one kind and judges a claim of 1, 3 or 9 checks "the mean is above 0" on them, of which all
are barely true (mean 0), and the opposite claim; and shows how often it is told that a mean is above 0 that is.

`--published` shifts the runs of each check that decided a published verdict to a mean of 0, draws as many runs from
them with replacement, or 30, and shows how often the test would have said what it said: the error rate, were they the
world. Pairs of runs are drawn, so that a ratio of means is estimated anew.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from rarely.pages.grid import Grid
from rarely.runs.statistics import SKEWNESS_ERRORS, Sample, t_quantile
from rarely_lab.engine.record import read_packed
from rarely_lab.reproduce.catalogue import GRID, PAPER, PROBLEMS, configurations
from rarely_lab.reproduce.config import Configuration
from rarely_lab.reproduce.records import Record
from rarely_lab.reproduce.report.claims import ALPHA, ESTIMANDS, HELD, Check, Claim, ClaimChecker, Estimand, decide
from rarely_lab.reproduce.report.paper_claims import CLAIMS, OVERALL
from rarely_lab.reproduce.report.results import Comparison, Series, _linear, compare

RECORDS = Path(__file__).parents[1] / "docs" / "records"
ROUNDS = 2000
MANY = 400
"""Runs whose mean is taken for the truth where there is no formula: gaps between two regrets."""
GAPS = ("mushroom-3", "quadratic-5", "quadratic-7")
SPREADS = {"cosine": (0.1, 0.12), "quadratic": (0.5, 0.25), "mushroom": (0.05, 0.08), "magic": (0.05, 0.04)}
"""Standard deviations of log regrets: common to a run, and of one configuration in it."""
TIME_SPREAD = 0.08


@dataclass(frozen=True)
class Run:
    """What the checks read of a record."""

    regret: float
    seconds: float
    versions: int
    machine: str = "one"
    form: str = "one"
    engine: str = "one"
    curve: float = field(default=0.0)
    id: str = "simulated"


@dataclass(frozen=True)
class World:
    """True means of the logarithms of regret and time, and versions, by configuration."""

    problem: str
    regrets: dict[Configuration, float]
    times: dict[Configuration, float]
    versions: dict[Configuration, int]
    spreads: dict[Configuration, float] = field(default_factory=dict)
    """Of each configuration's own scatter, as a multiple of the problem's."""

    def own(self, c: Configuration) -> float:
        """The standard deviation of a configuration's own scatter."""
        return SPREADS[self.problem][1] * self.spreads.get(c, 1.0)

    def comparison(self, runs: int, rng: np.random.Generator, truth: str = "") -> Comparison:
        """Runs of this world, as the judge has them; the truth of means, or of means of logarithms, without noise."""
        noise = not truth
        shared = noise * SPREADS[self.problem][0] * rng.standard_normal(runs)
        found: dict[Configuration, dict[int, Run]] = {}
        for c in self.regrets:
            own = self.own(c)
            scatter = noise * own * rng.standard_normal(runs) - (truth != "means") * own**2 / 2
            regret = np.exp(self.regrets[c] + shared + scatter)
            seconds = np.exp(self.times[c] + noise * TIME_SPREAD * rng.standard_normal(runs))
            found[c] = {i: Run(float(regret[i]), float(seconds[i]), self.versions[c]) for i in range(runs)}
        linear = [
            series
            for kind in ("linucb", "linucb-intercept")
            for series in _linear(kind, {c: of for c, of in found.items() if c.kind == kind})
        ]
        others = [Series(c.id, c.id, c.kind, c, of) for c, of in found.items() if not c.linear]
        return Comparison(self.problem, self.problem, "practical", ROUNDS, {s.name: s for s in (*linear, *others)})


def known(problem: str) -> list[Configuration]:
    """The configurations of a problem, with three pairs of LinUCB's sixteen: the best is still chosen on the runs."""
    pairs = {(GRID[0], GRID[0]), (GRID[1], GRID[1]), (GRID[3], GRID[3])}
    named = [c for c in configurations(PROBLEMS[problem]) if c.kind != "default"]
    return [c for c in named if not c.linear or (c.ridge, c.beta) in pairs]


def versions_of(c: Configuration) -> int:
    return c.batches or ROUNDS


def random_world(problem: str, rng: np.random.Generator) -> World:
    """Effects of the size that is on record: families differ, B helps, single configurations scatter."""
    level = {kind: rng.normal(0, 0.35) for kind in ("linucb", "linucb-intercept", "fixed", "adaptive")} | {
        "neuralucb": 0.0
    }
    slope = {kind: rng.normal(-0.1, 0.15) for kind in ("fixed", "adaptive")}
    linear = rng.choice([0.1, 0.8, 2.2])
    regrets, times = {}, {}
    speed = rng.normal(np.log(10.0), 0.5)
    for c in known(problem):
        at = np.log(100.0) + level[c.kind] + (linear if c.linear else 0.0) + 0.05 * rng.standard_normal()
        if c.batches:
            at += slope[c.kind] * np.log(c.batches / 40)
        regrets[c] = float(at)
        times[c] = 0.0 if c.linear else 7.0 if c.kind == "neuralucb" else 7.0 - speed + 0.3 * rng.standard_normal()
    spreads = {c: float(np.exp(0.4 * rng.standard_normal())) for c in regrets}
    return World(problem, regrets, times, {c: versions_of(c) for c in regrets}, spreads)


def paper_world(problem: str) -> World:
    """A world in which all of the paper is true by a good margin."""
    fixed = {40: 145.0, 100: 140.0, 200: 134.0, 250: 131.0}
    if problem == "cosine":
        fixed[40] = 260.0
    if problem == "quadratic":
        fixed = {40: 125.0, 100: 112.0, 200: 103.0}
    adaptive = {40: 112.0, 100: 103.0, 200: 102.0, 250: 103.0}
    regrets, times = {}, {}
    for c in known(problem):
        if c.linear:
            regret = 112.0 if problem == "magic" else 80.0 if c.kind == "linucb-intercept" else 1000.0
            seconds = 2.0
        else:
            regret = 100.0 if c.batches is None else (fixed if c.kind == "fixed" else adaptive)[c.batches]
            seconds = 2000.0 if c.batches is None else 90.0 if problem == "quadratic" else 222.0
        regrets[c], times[c] = float(np.log(regret)), float(np.log(seconds))
    return World(problem, regrets, times, {c: versions_of(c) for c in regrets})


def equal_world(problem: str, factor: float) -> World:
    """Batched configurations at `factor` times NeuralUCB's regret: barely true where the claim's threshold is there."""
    world = paper_world(problem)
    regrets = {c: np.log(100.0 * (factor if c.batches else 1.0)) for c in world.regrets}
    return World(problem, {c: float(x) for c, x in regrets.items()}, world.times, world.versions)


def truth(checks: list[Check]) -> list[bool]:
    """Whether each check is true, from a sample so large that its mean is the truth."""
    told = []
    for check in checks:
        value = []
        for part in check.parts:
            centre = part.sample.interval().value
            value.append(part.low - 1e-9 <= centre <= part.high + 1e-9)
        told.append(all(value))
    return told


def judged(claim: Claim, comparisons: list[Comparison], estimand: Estimand = "typical") -> list[Check]:
    return [check for c in comparisons for check in claim.checks(ClaimChecker(c, estimand))]


def claims_of(worlds: list[World]) -> list[tuple[Claim, list[str]]]:
    own = [(claim, [w.problem]) for w in worlds for claim in CLAIMS[w.problem] if claim.kind == "claim"]
    return [*own, (OVERALL, [w.problem for w in worlds])]


def is_true(claim: Claim, checks: list[Check]) -> bool:
    counted = [check for check in checks if check.counts and check.applies]
    told = truth(counted)
    return sum(told) >= claim.rule.needed(len(told))


def random_paper(seed: int, runs: tuple[int, ...]) -> Counter:
    """Verdicts on every claim of one random paper, with the truth: every second one by means."""
    rng, estimand = np.random.default_rng(seed), ESTIMANDS[seed % 2]
    worlds = [random_world(problem, rng) for problem in PAPER]
    exact = {w.problem: w.comparison(2, rng, truth="means" if estimand == "mean" else "logs") for w in worlds}
    many = {w.problem: w.comparison(MANY, rng) for w in worlds if w.problem in ("mushroom", "quadratic")}
    out: Counter = Counter()
    facts = {}
    for claim, on in claims_of(worlds):
        source = many if claim.id in GAPS else exact
        facts[claim.id] = is_true(claim, judged(claim, [source[p] for p in on], estimand))
    for n in runs:
        seen = {w.problem: w.comparison(n, rng) for w in worlds}
        wrong = Counter()
        for claim, on in claims_of(worlds):
            verdict = decide(judged(claim, [seen[p] for p in on], estimand), claim.rule)[0]
            out["random", n, claim.id, facts[claim.id], verdict.partition(",")[0]] += 1
            wrong["refuted"] += facts[claim.id] and verdict == "does not hold"
            wrong["confirmed"] += not facts[claim.id] and verdict in HELD
        for what in ("refuted", "confirmed"):
            out["papers", n, what] += wrong[what] > 0
        out["papers", n, "all"] += 1
    return out


EDGES: list[tuple[str, float, str]] = [
    # Thresholds at which all checks of a claim are barely true.
    *(("cosine", 1.0, claim) for claim in ("cosine-4",)),
    ("cosine", 2.0, "cosine-2"),
    *(("mushroom", 1.0, claim) for claim in ("mushroom-3", "mushroom-6", "mushroom-7")),
    ("quadratic", 1.0, "quadratic-2"),
    ("quadratic", 1.5, "quadratic-6"),
    *(("magic", 1.0, claim) for claim in ("magic-2", "magic-3")),
]


def edge_paper(seed: int, runs: tuple[int, ...]) -> Counter:
    """Claims whose checks are all barely true, and paper-like claims of which one check is barely false."""
    rng = np.random.default_rng(10**6 + seed)
    out: Counter = Counter()
    for n, (problem, factor, name) in itertools.product(runs, EDGES):
        claim = next(claim for claim in CLAIMS[problem] if claim.id == name)
        checks = judged(claim, [equal_world(problem, factor).comparison(n, rng)])
        out["edge", n, name, True, decide(checks, claim.rule)[0].partition(",")[0]] += 1
    for n, (problem, moved, claim, to) in itertools.product(runs, BARELY_FALSE):
        world = paper_world(problem)
        regrets = {c: np.log(to) if c.id == moved else x for c, x in world.regrets.items()}
        seen = World(problem, regrets, world.times, world.versions).comparison(n, rng)
        found = next(one for one in CLAIMS[problem] if one.id == claim)
        out["one false", n, claim, False, decide(judged(found, [seen]), found.rule)[0].partition(",")[0]] += 1
    return out


BARELY_FALSE = [
    ("cosine", "adaptive-B40-logq60", "cosine-2", 200.5),
    ("cosine", "adaptive-B40-logq60", "cosine-4", 260.5),
    ("cosine", "fixed-B40", "cosine-5", 199.5),
    ("mushroom", "adaptive-B250-logq30", "mushroom-4", 120.5),
    ("mushroom", "adaptive-B250-logq30", "mushroom-6", 131.5),
    ("mushroom", "fixed-B250", "mushroom-7", 111.5),
    ("quadratic", "adaptive-B100-logq20", "quadratic-6", 150.5),
    ("quadratic", "fixed-B40", "quadratic-2", 99.5),
    ("magic", "fixed-B200", "magic-2", 111.5),
    ("magic", "adaptive-B200-logq70", "magic-4", 110.5),
    ("magic", "adaptive-B200-logq50", "magic-3", 112.5),
]


def one(job: tuple[int, tuple[int, ...]]) -> Counter:
    return random_paper(*job) + edge_paper(*job)


def show(found: Counter, runs: tuple[int, ...]) -> None:
    print(f"{'papers':11s}{'runs':>5s}  {'true, refuted':>24s}  {'false, confirmed':>24s}  {'inconclusive':>14s}")
    for kind, n in itertools.product(("random", "edge", "one false"), runs):
        mine = {key: count for key, count in found.items() if key[0] == kind and key[1] == n}
        rates = {}
        for fact, verdict in ((True, "does not hold"), (False, "holds")):
            per_claim = {}
            for name in {key[2] for key in mine}:
                of = sum(count for key, count in mine.items() if key[2] == name and key[3] is fact)
                bad = sum(count for key, count in mine.items() if key[2:] == (name, fact, verdict))
                if of >= 50:
                    per_claim[name] = bad / of
            every = sum(count for key, count in mine.items() if key[3] is fact)
            bad = sum(count for key, count in mine.items() if key[3] is fact and key[4] == verdict)
            worst = max(per_claim, key=per_claim.__getitem__) if per_claim else None
            rates[fact] = "–" if not every else f"{100 * bad / every:.1f} %"
            if worst:
                rates[fact] += f" (worst {worst} {100 * per_claim[worst]:.1f} %)"
        open_ = sum(count for key, count in mine.items() if key[4] == "inconclusive") / max(1, sum(mine.values()))
        print(f"{kind:11s}{n:5d}  {rates[True]:>34s}  {rates[False]:>34s}  {100 * open_:8.0f} %")
    for n in runs:
        papers = found["papers", n, "all"]
        refuted, confirmed = (100 * found["papers", n, what] / papers for what in ("refuted", "confirmed"))
        print(f"random papers, {n} runs: a true claim is refuted in {refuted:.1f} % of them, ", end="")
        print(f"a false one confirmed in {confirmed:.1f} %")


SAMPLES = {
    # Draws with mean 0 and their standard deviation.
    "normal": (lambda rng, size: rng.standard_normal(size), 1.0),
    "tied: +5 in 5 % of runs, else 0": (lambda rng, size: 5.0 * (rng.random(size) < 0.05) - 0.25, 1.09),
    "tied: +5 in 20 % of runs, else 0": (lambda rng, size: 5.0 * (rng.random(size) < 0.2) - 1.0, 2.0),
    "tied: ±3 in 10 % of runs, else 0": (
        lambda rng, size: 3.0 * (rng.random(size) < 0.1) * rng.choice([-1, 1], size),
        0.95,
    ),
    "log-normal, σ = 1": (lambda rng, size: rng.lognormal(size=size) - np.exp(0.5), 2.16),
    "log-normal, σ = 0.5": (lambda rng, size: rng.lognormal(sigma=0.5, size=size) - np.exp(0.125), 0.60),
    "bounded: beta(½, ½)": (lambda rng, size: rng.beta(0.5, 0.5, size) - 0.5, 0.354),
    "bounded: beta(1, 9)": (lambda rng, size: rng.beta(1, 9, size) - 0.1, 0.0905),
}
HARD = {
    # Where what matters most is seldom seen, so that few runs cannot show it.
    "normal, σ = 0.1, and +5 in 5 % of runs": (
        lambda rng, size: 0.1 * rng.standard_normal(size) + 5.0 * (rng.random(size) < 0.05) - 0.25,
        1.09,
    ),
    "tied: +1 in 30 % of runs, −3 in 10 %, else 0": (
        lambda rng, size: rng.choice([1.0, -3.0, 0.0], size, p=[0.3, 0.1, 0.6]),
        1.10,
    ),
    "log-normal, σ = 1.5": (lambda rng, size: rng.lognormal(sigma=1.5, size=size) - np.exp(1.125), 8.97),
    "Pareto, exponent 2.2": (lambda rng, size: rng.pareto(2.2, size) - 1 / 1.2, 2.76),
}
CHECKS = (1, 3, 9)
RUNS = (10, 30, 100)
FEW = (3, 5)
FEW_RUNS, POPULATION = 30, 100
"""Runs that are drawn from published ones as if these were the world, and how many of them make a world."""
EFFECTS = {3: 4.0, 5: 2.2, 10: 1.2, 30: 0.6, 100: 0.32}
"""Of the power, in standard deviations; Student's test finds them in normal runs in about 9 of 10 cases."""


def rejections(x: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Whether the mean of each row is told to be below 0, and above 0: the judge's test for many samples at once."""
    n, centred = x.shape[-1], x - x.mean(axis=-1, keepdims=True)
    spread = x.std(axis=-1)
    known = spread > 1e-12
    spread = np.where(known, spread, 1.0)
    t = x.mean(axis=-1) / spread * np.sqrt(n - 1)
    skewness = (centred**3).mean(axis=-1) / spread**3 * np.sqrt(n * (n - 1)) / (n - 2)
    error = SKEWNESS_ERRORS * np.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    low, high = (skewness - error) / (3 * np.sqrt(n)), (skewness + error) / (3 * np.sqrt(n))
    with np.errstate(all="ignore"):
        vertex = np.clip(np.where(t == 0, 0.0, -0.75 * (2 * t**2 + 1) / t**3), low, high)
    asked = np.array([t + a * t**2 + a**2 * t**3 / 3 + a / 2 for a in (0 * t, low, high, vertex)])
    q = t_quantile(n - 1, 1 - 2 * level)
    below, above = known & (asked.max(axis=0) < -q), known & (asked.min(axis=0) > q)
    for row, low, high in zip(x.reshape(-1, n)[:50], below.ravel(), above.ravel(), strict=False):
        sample = Sample(tuple(row))  # the judge itself says the same
        assert (sample.p_below(0.0) < level, sample.p_above(0.0) < level) == (low, high)
    return below, above


def of_sample(name: str, runs: int, times: int) -> list[str]:
    """One row of the table: the error rates of 1, 3 and 9 checks, either way, and the power of one, either way."""
    draw, deviation = (SAMPLES | HARD)[name]
    rng = np.random.default_rng([*name.encode(), runs])
    cells = []
    for checks in CHECKS:
        found = rejections(draw(rng, (times, checks, runs)), ALPHA / checks)  # Holm's first step decides the claim
        below, above = (100 * each.any(axis=1).mean() for each in found)
        cells.append(f"{below:.1f} / {above:.1f}")
    for sign in (1, -1):
        shifted = sign * draw(rng, (times, runs)) + EFFECTS[runs] * deviation
        cells.append(f"{100 * rejections(shifted, ALPHA)[1].mean():.0f}")
    return [name, str(runs), *cells]


def show_tests(times: int) -> None:
    """Print the tables of docs/judge.md: the cases that it is made for with few runs and more, and harder ones."""
    head = ["runs are", "runs", *(f"{k} check{'s' * (k > 1)}" for k in CHECKS), "power", "power, mirrored"]
    for samples, sizes in ((SAMPLES, RUNS), (SAMPLES, FEW), (HARD, RUNS)):
        print(Grid(head, [of_sample(name, n, times) for name in samples for n in sizes], numbers=1).markdown(), "\n")


@dataclass(frozen=True)
class Pairs(Sample):
    """A sample with the numbers that it is the ratio of."""

    pairs: tuple[tuple[float, ...], ...] = ()

    def redrawn(self, rng: np.random.Generator, size: tuple[int, int], estimand: Estimand) -> np.ndarray:
        """What the judge tests of runs that are drawn from these, less the truth, were these the world."""
        a, b = np.array(self.pairs, float)
        at = rng.integers(len(a), size=size)
        if estimand == "typical":
            return np.log(a / b)[at] - np.log(a / b).mean()
        above, below = a[at], b[at]
        whole = np.log(above.sum(axis=1) / below.sum(axis=1))[:, None]
        with np.errstate(all="ignore"):
            each = (1 - size[1]) * np.log((above.sum(axis=1)[:, None] - above) / (below.sum(axis=1)[:, None] - below))
        found = each - each.mean(axis=1)[:, None] + whole - np.log(a.sum() / b.sum())
        return np.where(np.isfinite(found).all(axis=1)[:, None], found, 0.0)  # one run has it all: nothing is decided


class PairsChecker(ClaimChecker):
    """Keeps what samples are made of."""

    def sample(self, a, b) -> Sample:
        made = super().sample(a, b)
        return Pairs(made.values, made.unit, pairs=(tuple(a), tuple(b)))


def deciding(comparisons: list[Comparison], estimand: Estimand) -> Iterator[tuple[str, Pairs, bool]]:
    """Each sample that decided a published verdict, and whether it was told to lie above its bound."""
    for comparison in comparisons:
        for claim in CLAIMS.get(comparison.base, ()):
            verdict, decided = decide(claim.checks(PairsChecker(comparison, estimand)), claim.rule)
            if claim.kind == "figure" or verdict not in (*HELD, "does not hold"):
                continue
            for one_check in decided:
                if not one_check.check.counted or one_check.verdict.partition(",")[0] != verdict.partition(",")[0]:
                    continue
                for part in one_check.check.parts:
                    if part.sample.runs >= 3 and np.ptp(part.sample.values) > 1e-9:
                        above = (part.low > 0) == (verdict in HELD)
                        yield f"{comparison.problem}, {comparison.preset}: {claim.id}, {part.what}", part.sample, above


def show_published(times: int) -> None:
    """Print how many samples decided a verdict, and where the test errs most: with all runs, and with 30."""
    rng, comparisons = np.random.default_rng(0), compare(read_packed(RECORDS, Record).records)
    for estimand, few in itertools.product(ESTIMANDS, (0, FEW_RUNS)):
        rows = []
        for what, sample, above in deciding(comparisons, estimand):
            if not few or sample.runs >= POPULATION:
                drawn = sample.redrawn(rng, (times, few or sample.runs), estimand)
                sides = [100 * told.mean() for told in rejections(drawn, ALPHA)]
                rows.append((max(sides) if few else sides[int(above)], sample.runs, what))
        rows.sort(reverse=True)
        many = f"{few} runs of each" if few else "as many runs as there are"
        print(f"{estimand}, {many}: {len(rows)} samples; above 5 %: {sum(row[0] > 5 for row in rows)}")
        for error, runs, what in rows[:5]:
            print(f"{error:5.1f} %  of {runs} runs  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=int, default=2000)
    parser.add_argument("--runs", type=int, nargs="*", default=[3, 10])
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--samples", type=int, default=20000, help="of each kind, with --tests and --published")
    asked = parser.parse_args()
    if asked.tests or asked.published:
        (show_tests if asked.tests else show_published)(asked.samples)
        return
    runs, found = tuple(asked.runs), Counter()
    with ProcessPoolExecutor() as pool:
        for one_of_them in pool.map(one, [(seed, runs) for seed in range(asked.papers)], chunksize=8):
            found.update(one_of_them)
    show(found, runs)


if __name__ == "__main__":
    main()
