"""From records to a leaderboard.

    R    total regret of a run
    S    the smallest mean regret of a sequential policy (B = T) on the problem, of those with the most runs
    U    the mean expected regret of uniform play on the problem; a board has both on record for its T (`boards.toml`)
    n    normalised regret (R − S)/(U − S): 0 is the best that is known, 1 is uniform play

A policy's score with a budget B is the mean over problems of its mean n. The area under its frontier is the mean of n
over log B, by trapezoids over the finite budgets. Means and intervals are over base worlds: a problem and its variants
count as one. A problem on which U − S is less than a
tenth of U is shown but not averaged: there hardly anything can be learned, and n is mostly noise.

The line `linucb-hindsight` is not a policy: on each problem with each budget it is the best of LinUCB's pairs (λ, β) on
record, which nobody could choose beforehand. It is the 0 of no problem but those of a board.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from rarely.runs.statistics import IntervalEstimate, mean
from rarely_lab.compare.policies import PAIRS
from rarely_lab.compare.problems import FAMILIES
from rarely_lab.compare.runs import Record

ROOM = 0.1
HINDSIGHT = "linucb-hindsight"
BOARDS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("boards.toml").read_text(encoding="utf-8"))
Runs = dict[int, Record]  # the records of a policy with a budget on a problem, by seed


@dataclass(frozen=True)
class Scale:
    """What is 0 and what is 1 on a problem."""

    zero: float
    one: float
    best: str  # the policy that is 0, or the board that has it on record
    batches: int | None
    """Its budget; None is T, or a board's. A number where no sequential run is on record: the largest then serves."""

    @property
    def on_record(self) -> bool:
        """Whether a board has the zero on record; no policy has a space in its name."""
        return self.best.startswith("board ")

    @property
    def usable(self) -> bool:
        """Whether the best policy is better than uniform play by a tenth."""
        return self.one - self.zero >= ROOM * self.one > 0

    def __call__(self, regret: float) -> float:
        return (regret - self.zero) / (self.one - self.zero)


@dataclass(frozen=True)
class Row:
    """A policy's line of the leaderboard.

    Examples
    --------
    >>> one = IntervalEstimate(0.25, 0.2, 0.3, runs=5)
    >>> Row("linucb", one, 0.25, {5: one}, wins=2, ties=1, losses=0, seconds=0.1, problems=3).area.low
    0.2
    """

    policy: str
    area: IntervalEstimate
    """Mean normalised regret over log B."""
    untuned: IntervalEstimate | None
    """The same over the problems on which no default of this library was tuned; None if they are not among these."""
    scores: dict[int | None, IntervalEstimate]
    """Normalised regret with each budget."""
    wins: int
    """Comparisons (problem, budget, other policy) in which the interval of the paired difference lies below 0."""
    ties: int
    losses: int
    seconds: float
    """Processor seconds for 1000 rounds, in the mean over problems and finite budgets, on one machine."""
    problems: int
    """Problems on which it was played with every budget, variants included."""


class Leaderboard:
    """Records by problem, policy and budget, their scores, and the policies in order.

    Examples
    --------
    >>> board = Leaderboard([])
    >>> board.rows, board.unscaled
    ([], [])
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._runs: dict[tuple[str, str, int | None], Runs] = {}
        self.family: dict[str, str] = {}
        self.rounds: dict[str, int] = {}
        for record in records:
            self._runs.setdefault((record.problem, record.policy, record.batches), {})[record.seed] = record
            self.family[record.problem] = record.family
            self.rounds[record.problem] = record.rounds
        places = {family: place for place, family in enumerate(FAMILIES)}
        self.problems = sorted(self.family, key=lambda name: (places.get(self.family[name], len(places)), name))
        machines = Counter(record.machine for runs in self._runs.values() for record in runs.values())
        self.machine = next(iter(dict(machines.most_common(1))), "")
        self._look_back()
        self._regrets = {key: {seed: one.regret for seed, one in runs.items()} for key, runs in self._runs.items()}
        self.policies = sorted({policy for _, policy, _ in self._runs})

    def _look_back(self) -> None:
        """Replace the pairs (λ, β) of LinUCB by the best of them on each problem with each budget."""
        tried: dict[tuple[str, int | None], list[Runs]] = {}
        for problem, policy, batches in list(self._runs):
            if policy in PAIRS:
                default = self._runs.get((problem, "linucb", batches), {})
                pairs = tried.setdefault((problem, batches), [default] if default else [])
                pairs.append(self._runs.pop((problem, policy, batches)))
        for (problem, batches), pairs in tried.items():
            most = max(map(len, pairs))
            whole = [runs for runs in pairs if len(runs) == most]
            best = min(whole, key=lambda runs: sum(record.regret for record in runs.values()))
            self._runs[problem, HINDSIGHT, batches] = best

    def seeds(self, problem: str | None = None) -> str:
        """Return how many runs policies have with each budget, on a problem or all of them: 20, or 13 to 20."""
        counts = {len(runs) for (name, _, _), runs in self._runs.items() if problem in (None, name)}
        return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else "0"

    def runs(self, problem: str, policy: str, batches: int | None) -> Runs:
        """Return the runs; with B = T those of the policy under any schedule, which are the same."""
        return self._runs.get((problem, _schedule_free(policy, batches), batches), {})

    def budgets(self, problem: str | None = None) -> list[int | None]:
        """Return the budgets on record, rising; T is last."""
        played = {batches for name, _, batches in self._runs if problem in (None, name)}
        return sorted(played, key=lambda batches: batches or math.inf)

    def finite(self, problem: str | None = None) -> list[int]:
        """Return the budgets on record but T."""
        return [batches for batches in self.budgets(problem) if batches is not None]

    def regrets(self, problem: str, policy: str, batches: int | None) -> dict[int, float]:
        """Return the regret of each run, by its seed."""
        return self._regrets.get((problem, _schedule_free(policy, batches), batches), {})

    def regret(self, problem: str, policy: str, batches: int | None) -> IntervalEstimate:
        """Return the mean regret over runs."""
        return mean([*self.regrets(problem, policy, batches).values()])

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """What is 0 and 1 on each problem."""
        return {problem: self._scale(problem) for problem in self.problems}

    def _scale(self, problem: str) -> Scale:
        batches = self.budgets(problem)[-1]
        counts = {
            policy: len(runs)
            for policy in self.policies
            if policy not in ("uniform", HINDSIGHT) and (runs := self._runs.get((problem, policy, batches)))
        }
        # A policy with fewer runs may have been lucky, so it is not a yardstick for others.
        most = max(counts.values(), default=0)
        means = {policy: self.regret(problem, policy, batches).value for policy in counts if counts[policy] == most}
        here = (runs for (name, _, _), runs in self._runs.items() if name == problem)
        one = float(np.mean([*{seed: record.uniform for runs in here for seed, record in runs.items()}.values()]))
        if self.family[problem] != "own" and (name := self._board(problem)):
            zero, one = BOARDS[name]["scales"][problem]
            return Scale(zero, one, f"board {name}", None)
        if not means:
            return Scale(one, one, "none", batches)
        best = min(means, key=lambda policy: means[policy])
        return Scale(means[best], one, best, batches)

    def _board(self, problem: str) -> str:
        """Return the board whose scales count: the one with these seeds, or else the newest; "" if none has them."""
        seeds = {seed for (name, _, _), runs in self._runs.items() if name == problem for seed in runs}
        having = (
            (not seeds.isdisjoint(range(board["first_seed"], board["first_seed"] + board["seeds"])), place, name)
            for place, (name, board) in enumerate(BOARDS.items())
            if self.rounds[problem] == board["rounds"] and problem in board["scales"]
        )
        return max(having, default=(False, 0, ""))[2]

    @property
    def retired(self) -> str:
        """The retired boards whose scales are in use."""
        names = {scale.best.removeprefix("board ") for scale in self.scales.values() if scale.on_record}
        return " and ".join(sorted(name for name in names if BOARDS[name].get("retired")))

    @cached_property
    def scaled(self) -> list[str]:
        """The problems whose regrets can be normalised."""
        return [problem for problem in self.problems if self.scales[problem].usable]

    def normalised(self, problem: str, policy: str, batches: int | None) -> float | None:
        """Return the mean normalised regret over seeds; None without runs."""
        runs = self.runs(problem, policy, batches)
        return self.scales[problem](self.regret(problem, policy, batches).value) if runs else None

    def area(self, problem: str, policy: str) -> float | None:
        """Return the mean normalised regret over log B; None where a budget of the problem is missing."""
        budgets = self.finite(problem)
        values = [self.normalised(problem, policy, batches) for batches in budgets]
        whole = [value for value in values if value is not None]
        return area_under(budgets, whole) if budgets and len(whole) == len(budgets) else None

    @cached_property
    def rows(self) -> list[Row]:
        """The policies, the best first; those that were not played everywhere are last."""
        rows = [row for policy in self.policies if (row := self._row(policy)) is not None]
        return sorted(rows, key=lambda row: (-row.problems, row.area.value))

    @property
    def ranked(self) -> bool:
        """Whether there is more than one run of a policy: a single one ranks nobody."""
        return self.seeds() not in ("0", "1")

    @property
    def unscaled(self) -> list[str]:
        """Problems that are shown but not averaged: no policy beats uniform play there by a tenth."""
        return [problem for problem in self.problems if problem not in self.scaled]

    def _row(self, policy: str) -> Row | None:
        areas = {problem: area for problem in self.scaled if (area := self.area(problem, policy)) is not None}
        if not areas:
            return None
        untuned = {name: area for name, area in areas.items() if tuned_on(name, self.family[name]) is False}
        scores = {}
        for batches in self.budgets():
            each = {problem: self.normalised(problem, policy, batches) for problem in areas}
            if score := over_bases({problem: value for problem, value in each.items() if value is not None}):
                scores[batches] = score
        played = (self.runs(problem, policy, batches) for problem in areas for batches in self.finite(problem))
        finite = [record for runs in played for record in runs.values()]
        there = [record for record in finite if record.machine == self.machine] or finite
        seconds = float(np.mean([1000 * record.seconds / record.rounds for record in there]))
        whole = cast(IntervalEstimate, over_bases(areas))
        return Row(policy, whole, over_bases(untuned), scores, *self._counts(policy, areas), seconds, len(areas))

    def _counts(self, policy: str, problems: Iterable[str]) -> tuple[int, int, int]:
        """Return how often a policy has won, tied and lost."""
        wins = ties = losses = 0
        every = ((problem, batches) for problem in problems for batches in self.finite(problem))
        for (problem, batches), other in product(every, self.policies):
            own, theirs = (self.regrets(problem, name, batches) for name in (policy, other))
            gaps = [own[seed] - theirs[seed] for seed in sorted(own.keys() & theirs.keys())]
            if other != policy and gaps:
                gap = mean(gaps)
                wins, losses = wins + (gap.high < 0), losses + (gap.low > 0)
                ties += gap.low <= 0 <= gap.high
        return wins, ties, losses


def _schedule_free(policy: str, batches: int | None) -> str:
    return policy.partition("@")[0] if batches is None else policy


def area_under(budgets: Sequence[int], values: Sequence[float]) -> float:
    """Return the mean of values over log B, by trapezoids; of one budget its value.

    >>> round(area_under([10, 100, 1000], [1.0, 0.5, 0.0]), 6)
    0.5
    """
    if len(budgets) == 1:
        return float(values[0])
    logs = np.log(np.array(budgets, np.float64))
    heights = np.array(values, np.float64)
    return float(((heights[1:] + heights[:-1]) / 2 * np.diff(logs)).sum() / (logs[-1] - logs[0]))


def leaderboard(records: Iterable[Record]) -> Leaderboard:
    """Score every policy that has any finite budget, and sort them by the area under their frontiers.

    Parameters
    ----------
    records
        Records that belong together, as `read_records` gives them.

    Examples
    --------
    >>> import tempfile
    >>> from rarely_lab.compare import Comparison, compare, leaderboard, read_records
    >>> folder = tempfile.mkdtemp()
    >>> _ = compare(Comparison(["cosine"], ["linucb", "uniform"], [5], seeds=1, rounds=40), folder)
    >>> [row.policy for row in leaderboard(read_records(folder).records).rows]
    ['linucb', 'uniform']
    """
    return Leaderboard(records)


def tuned_on(problem: str, family: str) -> bool | None:
    """Return whether a default was tuned on a problem or on that of which it is a variant; None if no board says so."""
    for board in BOARDS.values() if family != "own" else ():  # a user's file is another problem, whatever its name
        if problem.partition("+")[0] in board["tuned"] or problem in board["untuned"]:
            return problem not in board["untuned"]
    return None


def over_bases(values: dict[str, float]) -> IntervalEstimate | None:
    """Return the mean of numbers of problems with its interval, where a problem and its variants count as one.

    >>> over_bases({"cosine": 0.0, "cosine+drift": 0.5, "wheel": 0.75}).value
    0.5
    """
    bases: dict[str, list[float]] = {}
    for problem, value in values.items():
        bases.setdefault(problem.partition("+")[0], []).append(value)
    return mean([float(np.mean(own)) for own in bases.values()]) if bases else None
