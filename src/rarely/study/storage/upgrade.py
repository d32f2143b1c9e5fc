"""The way from the schema of an earlier version of rarely to that of this one, a step for each schema between.

From schema 3 on every schema has a step. What 0.3 wrote, schema 2, holds policies that later versions cannot read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

from rarely import __version__
from rarely.study.errors import InvalidStorage
from rarely.study.storage.database import Database
from rarely.study.storage.tables import SCHEMA, check_age, create_table

STEPS: dict[int, tuple[str, Callable[[Database], Any]]] = {
    3: (
        "add the table of erasures",
        lambda database: create_table(database.execute, database.dialect, "rarely_erasures"),
    ),
    4: (
        "drop the table of versions, which their events have",
        lambda database: database.execute("DROP TABLE IF EXISTS rarely_versions"),
    ),
}
"""What leads from a schema to the next one, in words, and what does it inside a transaction."""


def upgrade(database: Database, backup: str | os.PathLike[str] | None) -> list[str]:
    """Bring a database to the schema of this version, after a backup; return the steps.

    Without a name for the backup nothing is changed, and the steps are those that would be taken. All of them are one
    transaction: one that fails leaves the database as it was.
    """
    with closing(database):
        with database.reading():
            found = database.schema()
        check_age(database.url, *found)
        steps = [STEPS[schema] for schema in range(found[0], SCHEMA)]
        if steps and backup is not None:
            if os.path.lexists(backup):
                raise InvalidStorage(f"{backup} exists already; a backup needs a new name, such as one with the date.")
            database.backup(os.fspath(backup))
            with database.transaction(database.writable):
                if database.schema() != found:
                    raise InvalidStorage(f"{database.url} was upgraded by another process meanwhile.")
                for _, step in steps:
                    step(database)
                database.execute(f"INSERT INTO rarely_schema VALUES ({SCHEMA}, '{__version__}')")
            database.check()
        return [
            f"schema {found[0] + number} to {found[0] + number + 1}: {says}" for number, (says, _) in enumerate(steps)
        ]
