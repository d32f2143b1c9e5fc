"""What is played: every policy on every problem with every budget, on several seeds.

comparison   what is asked for: problems, policies, budgets, seeds, rounds
cell         one policy on one run of one problem with one budget: what is played, recorded and resumed
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rarely.errors import InvalidInput, RarelyError
from rarely.extend.checks import check_whole
from rarely_lab.compare.policies import NAME, POLICIES, Entry, find_policy, policy_name
from rarely_lab.compare.problems import Problem, expand, find_problem, problem_name
from rarely_lab.compare.records import Record, Store, content_of
from rarely_lab.engine import cell as runs
from rarely_lab.engine.cell import LocalExecutor, Result, run_cells
from rarely_lab.engine.play import drawn, play

SELECTING, TRAINING = 1.5e-3, 4e-5
"""Seconds a round, and seconds an update and a round, of a neural policy on some machine: only ratios matter."""
RENAME = {"problems": "rename one of the files", "policies": "name one: NAME=module:factory"}
Named = TypeVar("Named", Problem, Entry)


@dataclass(frozen=True)
class Cell(runs.Cell):
    """One policy on one run of one problem with one budget; problem and policy have the names that were asked for.

    >>> Cell("cosine", "linucb@fixed", 20, seed=3, rounds=1000).id
    'cosine/linucb@fixed/B20/seed3'
    """

    record_type: ClassVar[type[Record]] = Record

    problem: str
    policy: str
    batches: int | None  # the budget B; None is T
    seed: int
    rounds: int
    label: str | None = None  # the column of the class in a CSV file
    ignore: tuple[str, ...] = ()  # columns of it that are left out

    @property
    def id(self) -> str:
        return f"{problem_name(self.problem)}/{policy_name(self.policy)}/B{self.batches or 'T'}/seed{self.seed}"

    def describe(self) -> dict[str, Any]:
        problem, entry = find_problem(self.problem, self.label, self.ignore), find_policy(self.policy)
        numbers = {"batches": self.batches, "seed": self.seed, "rounds": self.rounds}
        return {"problem": problem.describe(), "policy": {"name": entry.name, "text": entry.text}, **numbers}

    def play(self) -> dict[str, Any]:
        problem, batches = find_problem(self.problem, self.label, self.ignore), self.batches or self.rounds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # budgets that end early and the like; the record has the updates
            contestant = find_policy(self.policy).make(problem.task(self.rounds, batches, self.seed))
            rounds, delays = drawn(problem, self.seed, self.rounds), problem.delays(self.seed, self.rounds)
            played = play(contestant, rounds, batches, delays)
        return content_of(problem.family, played)

    def work(self) -> float:
        if self.policy.startswith(("uniform", "lin", "blce", "bayes", "vowpal", "elimination")):
            return SELECTING * self.rounds / 2
        return SELECTING * self.rounds + TRAINING * self.rounds * (self.batches or self.rounds)


@dataclass(frozen=True)
class Comparison:
    """What is asked for.

    Examples
    --------
    >>> cells, skipped = Comparison(["needle"], ["linucb", "linucb@fixed"], [5, None], seeds=1, rounds=50).plan()
    >>> [cell.id for cell in cells]
    ['needle/linucb/B5/seed0', 'needle/linucb@fixed/B5/seed0', 'needle/linucb/BT/seed0']
    """

    problems: list[str]
    """Names of problems or of sets of them (`paper`, `gallery`, `plain`, `sklearn`, `showdown`, `all`)."""
    policies: list[str]
    """Names of policies, or of factories of your own, as "module:factory"."""
    budgets: list[int | None]
    """Values of B; None is T."""
    seeds: int = 10
    """How many runs of each, with seeds from `first_seed` on."""
    rounds: int = 1000
    """The number of rounds T; for a table at most its rows."""
    label: str | None = None
    """The column of a CSV file that holds the class."""
    ignore: tuple[str, ...] = ()
    """Columns of a CSV file to leave out, such as an id."""
    first_seed: int = 0

    def __post_init__(self) -> None:
        check_whole("seeds", self.seeds, 1)
        check_whole("rounds", self.rounds, 2)
        for batches in self.budgets:
            check_whole("a budget B", batches, 1, besides=(None,))
        if not (self.problems and self.policies and self.budgets):
            raise InvalidInput("a comparison needs at least one problem, one policy and one budget.")

    def plan(self) -> tuple[list[Cell], list[str]]:
        """Return every cell, run by run, so that an interruption leaves whole runs; and what is skipped."""
        find = partial(find_problem, label=self.label, ignore=self.ignore)
        problems, skipped = _named("problems", expand(self.problems), find, ())
        for own in (problem.name for problem in problems.values()):
            if not NAME.fullmatch(own.partition("+")[0]):
                raise InvalidInput(f"a file's name must be letters, digits, '.', '_' or '-'; got {own!r}.")
        asked = dict.fromkeys(one for name in self.policies for one in (POLICIES if name == "all" else [name]))
        policies, lacking = _named("policies", asked, find_policy, self.policies)
        skipped += lacking
        cells: dict[str, Cell] = {}
        seeds, budgets = range(self.first_seed, self.first_seed + self.seeds), dict.fromkeys(self.budgets)
        every = itertools.product(seeds, problems.items(), budgets, policies.items())
        for seed, (path, problem), batches, (source, entry) in every:
            rounds = problem.length(self.rounds)
            if batches is not None and batches >= rounds:
                left_out = f"B = {batches} is left out on {problem.name}, which has T = {rounds}"
                skipped.append(f"{left_out}: T is for every round.")
                continue
            policy = entry.model if batches is None and entry.name in POLICIES else source
            cell = Cell(path, policy, batches, seed, rounds, self.label, self.ignore)
            cells.setdefault(cell.id, cell)
        if not cells:
            raise InvalidInput(f"nothing is left to play. {' '.join(dict.fromkeys(skipped))}".strip())
        return list(cells.values()), list(dict.fromkeys(skipped))


def _named(
    kind: str, names: Iterable[str], find: Callable[[str], Named], must: Collection[str]
) -> tuple[dict[str, Named], list[str]]:
    """Return problems or policies by the names asked for, and why some are skipped that not `must` be there."""
    named: dict[str, Named] = {}
    skipped: list[str] = []
    for name in names:
        try:
            one = find(name)
        except RarelyError as error:
            if isinstance(error, InvalidInput) or name in must:
                raise
            skipped.append(f"{name} is skipped: {error}")
            continue
        if any(other.name == one.name for other in named.values()):
            raise InvalidInput(f"two {kind} are called {one.name}; {RENAME[kind]}.")
        named[name] = one
    return named, skipped


def compare(comparison: Comparison, out: str | Path, *, jobs: int | None = None, replace: bool = False) -> list[Result]:
    """Play every cell that has no record in `out` yet, and return the results of those that failed.

    Parameters
    ----------
    comparison, out, jobs
        What is asked for; the folder for records; processes to play in, each with one BLAS thread; None: this one.
    replace
        Whether to play again what other code has played.

    Examples
    --------
    >>> import tempfile
    >>> asked = Comparison(["needle"], ["linucb"], [5], seeds=1, rounds=30)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     failed = compare(asked, folder)
    >>> failed
    []
    """
    return run_cells(comparison.plan()[0], Store(Path(out)), LocalExecutor(jobs), replace=replace)
