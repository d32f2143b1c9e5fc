"""`rarely compare`: which policy does best with few updates."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rarely.console import Jobs, Stages, console, guarded, say_loops
from rarely.errors import InvalidInput
from rarely.runs.files import check_folder
from rarely.worlds import WORLD_SETS
from rarely_lab.commands.progress import File, Names, Replace, executor_of, play_cells, say_refused
from rarely_lab.compare import Comparison, UnavailablePolicy, merge, read_records
from rarely_lab.compare.policies import POLICIES, find_policy
from rarely_lab.compare.runs import Store
from rarely_lab.compare.scores import BOARDS
from rarely_lab.engine.record import pack

SEVERAL = ("cosine", "quadratic", "magic", "needle", "wheel", "two-sided", "wine", "shuttle")
SEVERAL_POLICIES = ("default", "neuralts", "neuralepsilon", "linucb", "lints")
QUICK = ("cosine", "needle", "wheel")
QUICK_POLICIES = ("default", "linucb", "uniform")
QUICK_ROUNDS, QUICK_SEEDS = 200, 3

PROBLEMS_HELP = (
    "cosine, needle, wheel-0.95, shuttle, mine.csv, …; the sets paper, gallery, plain, sklearn, showdown, all; each "
    "with +drift or +delay too; and a world of your own as NAME=module:World."
)
POLICIES_HELP = "A policy by name, or your own as NAME=module:factory; may be repeated. `all` is every one."
MERGE_HELP = "Copy the records of this folder or packed file to --out, and play nothing; may be repeated."


@guarded
def compare_command(
    problems: Annotated[Names, typer.Argument(help=PROBLEMS_HELP)] = None,
    policy: Annotated[Names, typer.Option(help=POLICIES_HELP)] = None,
    budgets: Annotated[str | None, typer.Option(help="Values of B, as 5,20,T; T updates after every round.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 10,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds T of a run.")] = 1000,
    jobs: Jobs = None,
    board: Annotated[str | None, typer.Option(help="A board, v2: it fixes problems, budgets, seeds and T.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three problems, 200 rounds, 3 seeds: a minute.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List problems, policies and boards; play nothing.")] = False,
    label: Annotated[str | None, typer.Option(help="The class's column of a CSV, by name or number.")] = None,
    ignore: Annotated[Names, typer.Option(help="A column of a CSV to leave out; may be repeated.")] = None,
    merged: Annotated[list[Path] | None, typer.Option("--merge", help=MERGE_HELP)] = None,
    replace: Replace = False,
    markdown: Annotated[File, typer.Option(help="Also write the leaderboard to this file.")] = None,
    packed: Annotated[File, typer.Option("--pack", help="Also write all records into this one file.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for records and the page.")] = Path("compare"),
) -> None:
    """Compare policies under budgets of updates, and write a leaderboard.

    Records are kept one by one: stop it at any moment, and the same command continues where it was.

    **Examples**

    - `rarely compare --quick` — see what comes out
    - `rarely compare paper gallery --budgets 5,20,100 --out board` — some problems and budgets
    - `rarely compare cosine+drift mine.csv --policy default --policy mine=my_module:make` — a policy of your own
    - `rarely compare steps=mine:Steps --policy default --policy linucb` — a world of your own
    - `rarely compare --board v2 --policy mine=my_module:make --pack mine.jsonl.gz` — enter a policy of your own
    - `rarely compare --merge theirs --merge ours --out both` — one leaderboard from several folders
    - `rarely compare --merge board --out board` — write its page again
    """
    if listed:
        _list()
        return
    if merged:
        if problems or policy or budgets or quick or board:
            raise InvalidInput("--merge plays nothing; leave out problems, policies, budgets, --quick and --board.")
        _merge(merged, out, markdown, packed)
        return
    if (label or ignore) and not any(".csv" in name for name in problems or ()):
        raise InvalidInput("--label and --ignore are for a table of your own; name a file.csv.")
    check_folder(out)
    say_loops()
    if board is not None:
        if problems or quick or (seeds, rounds) != (10, 1000):
            raise InvalidInput("--board fixes problems, seeds and T; leave out all of them.")
        asked = _board(board, policy, budgets)
    else:
        asked = Comparison(
            problems or list(QUICK if quick else SEVERAL),
            policy or list(QUICK_POLICIES if quick else SEVERAL_POLICIES),
            _budgets(budgets or ("5,20,T" if quick else "5,20,100,T")),
            min(seeds, QUICK_SEEDS) if quick else seeds,
            min(rounds, QUICK_ROUNDS) if quick else rounds,
            label,
            tuple(ignore or ()),
        )
    cells, skipped = asked.plan()
    for sentence in skipped:
        console.print(escape(sentence))
    failed = play_cells(cells, Store(out), executor_of("local", jobs), "one policy on one run with one budget", replace)
    if failed and not any((out / "records").rglob("*.gz")):
        raise typer.Exit(1)
    incomplete = _show(out, markdown, packed, whole=len(asked.problems) if board else 0) or failed
    if board is not None and policy:
        ours = escape(str(packed or out))
        console.print(f"among others: rarely compare --merge leaderboard.jsonl.gz --merge {ours} --out both")
    raise typer.Exit(1 if incomplete else 0)


def _list() -> None:
    """Print what may be asked for."""
    for name, members in WORLD_SETS.items():
        console.print(f"problems, {name}: {', '.join(members)}")
    console.print("each also with +drift or +delay; wheel-0.5, file.csv, and your own as NAME=module:World")
    console.print(f"policies: {', '.join(POLICIES)}; and your own as NAME=module:factory")
    for name, board in BOARDS.items():
        retired = ", retired" if board.get("retired") else ""
        sizes = f"budgets {board['budgets']}, T = {board['rounds']}, {board['seeds']} seeds"
        console.print(f"board {name}{retired}: {sizes}")


def _board(name: str, policies: list[str] | None, budgets: str | None = None) -> Comparison:
    """Return what a board asks for: of its policies those whose packages are installed, of its budgets all but T."""
    if name not in BOARDS:
        raise InvalidInput(f"no board is called {name!r}; there is {', '.join(BOARDS)}.")
    fixed, allowed = BOARDS[name], _budgets(BOARDS[name]["budgets"])
    chosen: list[int | None] = _budgets(budgets) if budgets else [batches for batches in allowed if batches is not None]
    if not set(chosen) <= set(allowed):
        raise InvalidInput(f"--board {name} has the budgets {fixed['budgets']}; choose among them, got {budgets}.")
    entered = list(policies or ())
    for one in () if policies else fixed["policies"]:
        try:
            entered.append(find_policy(one).name)
        except UnavailablePolicy as error:
            console.print(f"skipped: {error}")
    sizes = {size: fixed[size] for size in ("seeds", "rounds", "first_seed")}
    return Comparison(fixed["tuned"] + fixed["untuned"], entered, chosen, **sizes)


def _merge(folders: list[Path], out: Path, markdown: File, packed: File) -> None:
    with Stages("reading records") as stages:
        merged = merge(folders, out, partial(stages, "copying records"))
    console.print(f"{len(merged.records)} records in {escape(str(out))}")
    if merged.refused:
        say_refused(merged.refused, f"{len(merged.records)} records were merged" if merged.records else "none is left")
    if _show(out, markdown, packed) or merged.refused:
        raise typer.Exit(1)


def _show(out: Path, markdown: File, packed: File, whole: int = 0) -> bool:
    """Pack the records of a folder, write its page, say what it shows, and return whether files were refused."""
    from rarely_lab.compare.page import write_leaderboard  # which imports matplotlib

    with Stages("writing the page"):
        if packed is not None and (records := read_records(out).records):  # first: a policy alone may have no page
            pack(records, packed)
            console.print(f"{len(records)} records packed: {escape(str(packed))}")
        written = write_leaderboard(out, markdown)
    console.print("area: 0 is the best known regret, 1 that of uniform play, on average over budgets")
    if not written.board.ranked:
        console.print("One run of each policy ranks nobody: below is what it had. Play several, as --seeds 10.")
    for place, row in enumerate(written.board.rows, 1):
        problems = f"{row.problems} problem{'s' if row.problems > 1 else ''}"
        few = f" of the board's {whole}: not a whole entry" if row.problems < whole else ""
        number = f"{place}. " if written.board.ranked else ""
        console.print(f"{number}{row.policy}: area {row.area.value:.3f} over {problems}{few}", markup=False)
    console.print(f"leaderboard: [bold]{escape(str(written.path))}[/bold]")
    if written.refused:
        say_refused(written.refused, "the leaderboard leaves them out and says so")
    return bool(written.refused)


def _budgets(text: str) -> list[int | None]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if wrong := [part for part in parts if part != "T" and not part.isdigit()]:
        raise InvalidInput(f"--budgets must be whole numbers and T, separated by commas; got {wrong[0]!r}.")
    return [None if part == "T" else int(part) for part in parts]
