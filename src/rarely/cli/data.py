"""`rarely data`: list, verify and fetch the original data files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from rarely.cli.console import console, guarded, telling
from rarely.core.errors import InvalidInput
from rarely.worlds.datasets import DATASETS, Dataset, fetch, located


@guarded
def data_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="mushroom, magic, shuttle, covertype, adult; all where none is named.")
    ] = None,
    fetch_them: Annotated[bool, typer.Option("--fetch", help="Download what is not here.")] = False,
    path: Annotated[Path | None, typer.Option(help="Look here alone: a file, or the folder that holds it.")] = None,
) -> None:
    """List the UCI files, verify them, and fetch those that are missing.

    They are looked for in --path alone where it is given, else in the folder RARELY_DATA and in the cache. Exit code 1
    if one is missing.

    **Examples**

    - `rarely data` — what is here, verified, and where
    - `rarely data --fetch` — download the rest into the cache
    - `rarely data mushroom --path downloads/agaricus-lepiota.data` — is this the original?
    """
    missing = 0
    if path is not None and path.is_file() and not names:
        names = [dataset.name for dataset in DATASETS.values() if dataset.file == path.name]
        if not names:
            raise InvalidInput(f"which of {', '.join(DATASETS)} should {path} be? Name it: rarely data magic --path …")
    given = os.environ.get("RARELY_DATA") if path is None else None
    if given and not Path(given).exists():
        raise InvalidInput(f"RARELY_DATA names {given}, which does not exist.")
    for name in names or DATASETS:
        if name not in DATASETS:
            raise InvalidInput(f"no dataset is called {name!r}; there are {', '.join(DATASETS)}.")
        dataset = DATASETS[name]
        place = located(dataset, path)
        if place is None and fetch_them:
            place = _fetch(dataset)
        counts = ", ".join(f"{count} {label}" for label, count in dataset.counts)
        console.print(f"[bold]{name}[/bold]: {dataset.count} rows ({counts}), {dataset.source}")
        if place is None:
            console.print(f"  not here; rarely data {name} --fetch downloads it from {dataset.urls[0]}")
            missing += 1
        else:
            table = dataset.read(place)
            console.print(f"  verified, {table.rows.shape[1]} features: {escape(str(place))}")
    if missing:
        raise typer.Exit(1)


def _fetch(dataset: Dataset) -> Path:
    arrived, all_of_it = 0, dataset.size

    def line() -> str:
        return f"fetching {dataset.file}: {arrived / 1e6:.1f} of {all_of_it / 1e6:.1f} MB"

    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress, telling(line):
        bar = progress.add_task(f"fetching {dataset.file}", total=dataset.size)

        def advanced(done: int, of: int) -> None:
            nonlocal arrived, all_of_it
            arrived, all_of_it = done, of
            progress.update(bar, completed=done, total=of)

        return fetch(dataset, advanced)
