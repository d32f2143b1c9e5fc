"""What is played in a comparison, and what is kept of it: sealed records, to be packed, submitted and merged.

    comparison   what is asked for: problems, policies, budgets, seeds, rounds
    cell         one policy on one run of one problem with one budget: what is played, recorded and resumed
    record       what is known of a finished cell

    DIR/records/PROBLEM/POLICY/B20/seed3.json.gz     as they are played
    records.jsonl.gz                                 packed for submission, a record in each line

A record says which rounds were played (a digest of what every arm would have paid), so that only records of the same
rounds are compared, whoever made them and with whatever version.
"""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from rarely.errors import InvalidInput, RarelyError
from rarely.extend.checks import check_whole
from rarely_lab.compare.golden import FAMILIES, family_of
from rarely_lab.compare.policies import NAME, POLICIES, Entry, find_policy, policy_name
from rarely_lab.compare.problems import Problem, expand, find_problem, problem_name
from rarely_lab.engine import cell as runs
from rarely_lab.engine import record as kept
from rarely_lab.engine.cell import LocalExecutor, Result, run_cells
from rarely_lab.engine.play import drawn, play
from rarely_lab.engine.record import MixedRecords, Stored, at_odds, identity

SELECTING, TRAINING = 1.5e-3, 4e-5
"""Seconds a round, and seconds an update and a round, of a neural policy on some machine: only ratios matter."""
RENAME = {"problems": "rename one of the files", "policies": "name one: NAME=module:factory"}
RENAMED = {"neuralucb": "default"}  # policies by their names in records of 0.3
Named = TypeVar("Named", Problem, Entry)
Found = kept.Found["Record"]


class Record(kept.Record):
    """What is known of a finished cell.

    Examples
    --------
    >>> Record({"asked": {"policy": {"name": "linucb"}}}).policy
    'linucb'
    """

    kind: ClassVar[str] = "comparison"
    golden: ClassVar = FAMILIES
    advice: ClassVar[str] = "Run compare again to play its cell anew, or remove the file"

    @classmethod
    def read(cls, data: dict[str, Any], text: str = "") -> Self:
        """Return the record in a JSON object; the default, which 0.3 called neuralucb, has its name of today."""
        record = super().read(data, text)
        model, at, schedule = record.policy.partition("@")
        if model not in RENAMED:
            return record
        name, (problem, _, run) = f"{RENAMED[model]}{at}{schedule}", record.id.split("/", 2)
        asked = record.asked | {"policy": record.asked["policy"] | {"name": name}}
        return cls(data | {"id": f"{problem}/{name}/{run}", "asked": asked, "identity": identity(asked)})

    @classmethod
    def golden_family(cls, asked: dict[str, Any]) -> str | None:
        return family_of(asked["policy"]["name"])

    @classmethod
    def check_together(cls, records: Sequence[Self], planned: Iterable[dict[str, Any]] = ()) -> None:
        """Raise MixedRecords unless one problem is one world of one length, and one policy one piece of code."""
        asked = [(record.asked, record.numerics) for record in records]
        asked += [(one, cls.fingerprint(one)) for one in planned]
        if odd := at_odds((one["problem"]["name"], (one["rounds"], identity(one["problem"]))) for one, _ in asked):
            problem, (first, _), (other, _) = odd
            lengths = f"T differs (T = {min(first, other)} and {max(first, other)})"
            differs = "data or settings differ" if first == other else lengths
            raise MixedRecords(
                f"there would be two problems called {problem}, whose {differs}: their regrets do not compare. "
                "Keep them in folders of their own."
            )
        if odd := at_odds((one["policy"]["name"], (code, one["policy"]["text"])) for one, code in asked):
            policy, (first, _), (other, _) = odd
            changed = f": the numbers of family {family} have changed" if (family := family_of(policy)) else ""
            whose = f"rarely's{changed}" if first != other else "the policy's own"
            raise MixedRecords(
                f"there would be records of {policy} made by two versions of the code ({whose}). Use another folder, "
                "name one of them (--policy NAME=module:factory), or play them again with --replace."
            )
        if odd := at_odds(((record.problem, record.seed), record.data["rounds_digest"]) for record in records):
            raise MixedRecords(
                f"records of {odd[0][0]}, seed {odd[0][1]}, were played on other rounds than one another; their "
                "regrets do not compare. Play all with one version of rarely."
            )

    family = Stored(str, "family")
    """The variant, or the set that the problem belongs to."""
    policy = Stored(str, "asked", "policy", "name")
    batches = Stored[int | None](lambda batches: batches, "asked", "batches")
    """The budget B; None is T."""
    uniform = Stored(float, "uniform")
    """The expected regret of uniform play on the same rounds."""


Store = partial(kept.Store[Record], record_type=Record)  # the records of one folder of a comparison


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
        # A digest in single precision: the last bits of another machine do not matter.
        parts = (np.float32(part) + np.float32(0) for part in (rounds.contexts, rounds.means, rounds.rewards))
        return played.shared() | {
            "family": problem.family,
            "rounds_digest": hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16],
            "regret": float(np.cumsum(played.regrets)[-1]),
            "updates": played.updates,
            "seconds": {"selecting": played.selecting.seconds, "training": played.training.seconds},
        }

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


def read_records(folder: str | Path) -> Found:
    """Return all records of a folder in the order of their names, and the files that are refused.

    Raises `MixedRecords` if records of one problem are of other rounds, or those of one policy of other code.

    Parameters
    ----------
    folder
        A folder that `rarely compare` wrote, or a file of packed records.

    Examples
    --------
    >>> import tempfile
    >>> stored = read_records(tempfile.mkdtemp())  # an empty folder
    >>> stored.records, stored.refused
    ([], [])
    """
    return kept.read_records(Path(folder), Record)


def merge(
    folders: Sequence[str | Path], out: str | Path, progress: Callable[[int, int], None] = lambda done, of: None
) -> Found:
    """Copy the records of several folders into one, and return all that it then holds, and the files refused.

    Raises `MixedRecords`, and copies nothing, if two records of one cell differ, or records do not compare.

    Parameters
    ----------
    folders
        Folders that `rarely compare` wrote, on this machine or on others, or files of packed records.
    out
        The folder that gets a copy of every record; it may hold records already.
    progress
        Called with how many records of how many are copied.

    Examples
    --------
    >>> import tempfile
    >>> from rarely_lab.compare import Comparison, compare, merge
    >>> folder = tempfile.mkdtemp()
    >>> _ = compare(Comparison(["cosine"], ["linucb", "uniform"], [5], seeds=1, rounds=40), folder)
    >>> len(merge([folder], tempfile.mkdtemp()).records)
    2
    """
    sources = [Path(out), *map(Path, folders)]
    for folder in sources[1:]:
        if not (folder.is_file() or (folder / "records").is_dir()):
            lack = "has no records" if folder.exists() else "does not exist"
            raise MixedRecords(f"{folder} {lack}; name a folder or a packed file that rarely compare wrote.")
    contents = [kept.find_records(source, Record) for source in sources]
    every = [record for one in contents for record in one.records]
    Record.check_together(every)  # before regrets, for it says why they differ
    if odd := at_odds((record.id, record.regret) for record in every):
        raise MixedRecords(
            f"two records of {odd[0]} differ (regret {odd[1]:g} and {odd[2]:g}); leave one folder out, or name the "
            "policies apart."
        )
    records = {record.id: record for record in reversed(every)}  # of two alike the first
    merged = sorted(records.values(), key=lambda record: record.id)
    kept.copy_records(merged, Store(Path(out)), progress)
    return Found(merged, [file for one in contents for file in one.refused])
