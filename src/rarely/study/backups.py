"""A copy of the database that was checked."""

from __future__ import annotations

import os

from rarely.study.errors import InvalidStorage, StudyError
from rarely.study.session import Session
from rarely.study.storage import open_storage


def back_up(session: Session, path: str) -> None:
    """Copy the database to a new SQLite file, and check that the copy has all events of the study."""
    session.check()
    if os.path.lexists(path):
        raise InvalidStorage(f"{path} exists already; a backup needs a name of its own, such as one with the date.")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise InvalidStorage(f"the folder of {path} does not exist; make it first.")
    with session.reading() as tables:
        known = tables.head(session.row.study)
    temporary = f"{path}.part"
    try:
        session.storage.backup(temporary)
        copy = open_storage(f"sqlite:///{temporary}?shared=1")
        try:
            with copy.reading() as tables:
                found = tables.event(session.row.study, 0 if known is None else known.seq)
        finally:
            copy.close()
        if known is None or found != known:
            raise StudyError(f"the backup {path} lacks events of study {session.name!r}; it was removed.")
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
