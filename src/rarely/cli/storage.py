"""Where the studies of a command are: a storage string, or the plain path of a file."""

from __future__ import annotations

from typing import Annotated

import typer


def storage_string(given: str) -> str:
    """A plain path is the file of an SQLite database.

    >>> storage_string("trial.db"), storage_string("postgresql://db/trials")
    ('sqlite:///trial.db', 'postgresql://db/trials')
    """
    return given if "://" in given else f"sqlite:///{given}"


Storage = Annotated[
    str,
    typer.Argument(help="trial.db or sqlite:///trial.db, or postgresql://user@host/name.", callback=storage_string),
]
