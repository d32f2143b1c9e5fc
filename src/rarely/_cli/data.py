"""`rarely data`: list, verify and fetch the original data files."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typer import Argument, Option

from rarely.console import Stages, console, guarded
from rarely.errors import InvalidInput
from rarely.worlds.datasets import DATASETS, fetch, located


@guarded
def data_command(
    names: Annotated[list[str] | None, Argument(help="mushroom, magic, shuttle, covertype or adult; else all.")] = None,
    fetch_them: Annotated[bool, Option("--fetch", help="Download the missing files.")] = False,
    path: Annotated[Path | None, Option(help="Look only here: a file, or its folder.")] = None,
) -> None:
    """List the UCI files, verify them, and fetch those that are missing.

    They are looked for in --path if it is given, otherwise in the folder RARELY_DATA and in the cache. The exit code is
    1 if one that is named, or looked for in --path, is missing.

    **Examples**

    - `rarely data` — list the files and verify those found
    - `rarely data --fetch` — download the missing ones into the cache
    - `rarely data mushroom --path downloads/agaricus-lepiota.data` — check that this is the original
    """
    missing = 0
    if path is not None and path.is_file() and not names:
        names = [dataset.name for dataset in DATASETS.values() if dataset.file == path.name]
        if not names:
            raise InvalidInput(f"{path} is none of {', '.join(DATASETS)}. Name the dataset: rarely data magic --path …")
    folder = os.environ.get("RARELY_DATA") if path is None else None
    if folder and not Path(folder).exists():
        raise InvalidInput(f"RARELY_DATA names {folder}, which does not exist.")
    for name in names or DATASETS:
        if name not in DATASETS:
            raise InvalidInput(f"unknown dataset {name!r}; known are {', '.join(DATASETS)}.")
        place = located(dataset := DATASETS[name], path)
        if place is None and fetch_them:
            with Stages("connecting") as stages:
                place = fetch(dataset, partial(stages, f"fetching {dataset.file}"))
        counts = ", ".join(f"{count} {label}" for label, count in dataset.counts)
        console.print(f"[bold]{name}[/bold]: {dataset.count} rows ({counts}), {dataset.source}")
        if place is None:
            console.print(f"  not found; rarely data {name} --fetch downloads it from {dataset.urls[0]}")
            missing += 1
        else:
            table = dataset.read(place)
            console.print(f"  verified, {table.rows.shape[1]} features: {escape(str(place))}")
    if missing and (names or path is not None):  # a mere list says what is missing, and that is its job
        raise typer.Exit(1)
