"""What a study needs of a database, whichever it is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from rarely.study.storage.tables import Tables


class Storage(Protocol):
    """A database of studies; several studies, and several threads, may share one."""

    @property
    def url(self) -> str:
        """The string that names it, without a password."""

    def writing(self, name: str) -> AbstractContextManager[Tables]:
        """One transaction that writes to the study of a name; no other writer of that study is at work meanwhile.

        It is durable when the block has ended. `StudyFailed` where the database did not confirm it.
        """

    def reading(self) -> AbstractContextManager[Tables]:
        """One transaction that sees the database as it was when it began."""

    def create(self) -> None:
        """Make the tables where there are none, and upgrade those of an earlier schema."""

    def check(self) -> None:
        """Upgrade tables of an earlier schema; refuse a database without tables, or of a later schema."""

    def backup(self, path: str) -> None:
        """Copy the whole database to a new file, as it stands at one moment."""

    def close(self) -> None:
        """Give the connection back."""
