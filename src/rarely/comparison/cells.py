"""What is played: every policy on every problem with every budget, on several seeds.

comparison   what is asked for: problems, policies, budgets, seeds, rounds
cell         one policy on one run of one problem with one budget: what is played, recorded and resumed
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any

from rarely.comparison.policies import NAME, POLICIES, Entry, UnavailablePolicy, find_policy
from rarely.comparison.problems import Problem, expand, find_problem
from rarely.core.errors import InvalidInput, RarelyError, check_whole
from rarely.worlds import DataUnavailable

BUDGETS: tuple[int | None, ...] = (2, 5, 10, 20, 40, 100, None)
"""B; None is T, an update after every round."""


@dataclass(frozen=True)
class Cell:
    """One policy on one run of one problem with one budget.

    >>> Cell("cosine", "linucb@fixed", 20, seed=3, rounds=1000).id
    'cosine/linucb@fixed/B20/seed3'
    """

    problem: str
    policy: str
    batches: int | None
    """B; None is T."""
    seed: int
    rounds: int
    source: str = ""
    """What the policy was given as, where it is a stranger's."""
    path: str = ""
    """The CSV file, where the problem is one, the column of its class, and columns that are left out."""
    label: str | None = None
    ignore: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its readable name, and its record's."""
        return f"{self.problem}/{self.policy}/B{self.batches or 'T'}/seed{self.seed}"

    def found_problem(self) -> Problem:
        """The problem itself."""
        return find_problem(self.path or self.problem, self.label, self.ignore)

    def found_policy(self) -> Entry:
        """The policy itself."""
        return find_policy(self.source or self.policy)

    def describe(self) -> dict[str, Any]:
        """Everything but the code that its result depends on, as JSON."""
        return {
            "problem": self.found_problem().describe(),
            "policy": {"name": self.policy, "text": self.found_policy().text},
            "batches": self.batches,
            "seed": self.seed,
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Comparison:
    """What is asked for.

    Parameters
    ----------
    problems
        Names of problems or of sets of them (`paper`, `gallery`, `sklearn`, `showdown`, `all`).
    policies
        Names of policies, or `module:factory` of one's own.
    budgets
        Values of B; None is T.
    seeds
        How many runs of each, with seeds from `first_seed` on.
    rounds
        T; a table has no more than rows.
    label
        The column of a CSV file that holds the class.
    ignore
        Columns of a CSV file that are no features, such as an id.
    first_seed
        The seed of the first run.

    Examples
    --------
    >>> cells, skipped = Comparison(["needle"], ["linucb", "linucb@fixed"], [5, None], seeds=1, rounds=50).plan()
    >>> [cell.id for cell in cells]
    ['needle/linucb/B5/seed0', 'needle/linucb@fixed/B5/seed0', 'needle/linucb/BT/seed0']
    """

    problems: list[str]
    policies: list[str]
    budgets: list[int | None]
    seeds: int = 10
    rounds: int = 1000
    label: str | None = None
    ignore: tuple[str, ...] = ()
    first_seed: int = 0

    def __post_init__(self) -> None:
        check_whole("seeds", self.seeds, 1)
        check_whole("rounds", self.rounds, 2)
        for batches in self.budgets:
            if batches is not None:
                check_whole("a budget B", batches, 1)
        if not (self.problems and self.policies and self.budgets):
            raise InvalidInput("a comparison needs at least one problem, one policy and one budget.")

    def plan(self) -> tuple[list[Cell], list[str]]:
        """Every cell, run by run, so that after an interruption whole runs are there; and why some are skipped."""
        skipped: list[str] = []
        problems = self._problems(skipped)
        policies = self._policies(skipped)
        cells: dict[str, Cell] = {}
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        for seed, (path, problem), batches, (source, entry) in itertools.product(
            seeds, problems.items(), dict.fromkeys(self.budgets), policies.items()
        ):
            rounds = problem.length(self.rounds)
            if batches is not None and batches >= rounds:
                sentence = f"B = {batches} is left out on {problem.name}, which has T = {rounds}: T is for every round."
                skipped += [] if sentence in skipped else [sentence]
                continue
            name = entry.model if batches is None else entry.name
            csv = path if path.partition("+")[0].endswith(".csv") else ""
            own = "" if entry.name in POLICIES else source
            table = (csv, self.label, self.ignore) if csv else ()
            cell = Cell(problem.name, name, batches, seed, rounds, own, *table)
            cells.setdefault(cell.id, cell)
        if not cells:
            raise InvalidInput(f"nothing is left to play. {' '.join(skipped)}".strip())
        return list(cells.values()), skipped

    def _problems(self, skipped: list[str]) -> dict[str, Problem]:
        found: dict[str, Problem] = {}
        for name in expand(self.problems):
            try:
                problem = find_problem(name, self.label, self.ignore)
            except InvalidInput:
                raise
            except (DataUnavailable, RarelyError) as error:
                skipped.append(f"{name} is skipped: {error}")
                continue
            if any(other.name == problem.name for other in found.values()):
                raise InvalidInput(f"two problems are called {problem.name}; rename one of the files.")
            if not NAME.fullmatch(problem.name.partition("+")[0]):
                raise InvalidInput(f"a file's name must be letters, digits, '.', '_' or '-'; got {problem.name!r}.")
            found[name] = problem
        return found

    def _policies(self, skipped: list[str]) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for name in dict.fromkeys(one for given in self.policies for one in (POLICIES if given == "all" else [given])):
            try:
                entry = find_policy(name)
            except UnavailablePolicy as error:
                if name in self.policies:
                    raise
                skipped.append(f"{name} is skipped: {error}")
                continue
            if any(other.name == entry.name for other in found.values()):
                raise InvalidInput(f"two policies are called {entry.name}; name one: NAME=module:factory.")
            found[name] = entry
        return found


def identity(description: dict[str, Any]) -> str:
    """The hash of canonical JSON."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
