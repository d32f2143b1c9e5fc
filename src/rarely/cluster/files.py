"""Folders of files on any file system that pyarrow knows: a local path, or s3://, gs://, hdfs:// and the like by URL.

A file appears whole or not at all: it is written under a temporary name and renamed. A local file is on the disk
before its name is. So the names in a folder say what is done, and a process that is killed leaves nothing but
temporary files, which nobody reads.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rarely import InvalidInput
from rarely.extend import Array
from rarely.logs.tables import pyarrow

READ_AT_ONCE = 8192
"""Rows of a Parquet file that are decoded at a time."""


@dataclass(frozen=True)
class Folder:
    """A folder, by its file system and path."""

    system: Any
    path: str

    @classmethod
    def at(cls, url: str | os.PathLike[str]) -> Folder:
        """Return the folder at a path or URL, which need not exist yet."""
        fs, text = pyarrow("fs"), os.fspath(url)
        if "://" in text:
            return cls(*fs.FileSystem.from_uri(text))
        return cls(fs.LocalFileSystem(), os.path.abspath(text))

    def names(self, start: str = "", end: str = "") -> list[str]:
        """Return the names of its complete files, sorted; none if the folder does not exist."""
        names = (info.base_name for info in self._files())
        return sorted(name for name in names if name.startswith(start) and name.endswith(end) and name[0] != ".")

    def _files(self) -> Iterator[Any]:
        fs = pyarrow("fs")
        entries = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return (info for info in entries if info.type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self.system.open_input_stream(f"{self.path}/{name}") as stream:
            return bytes(stream.read())

    def started(self, write: Callable[[Any], None]) -> str:
        """Write a file under a temporary name, and return that name, for `commit`."""
        temporary = f".{secrets.token_hex(8)}.part"
        self.system.create_dir(self.path, recursive=True)
        with self.system.open_output_stream(f"{self.path}/{temporary}") as stream:
            write(stream)
        if self.system.type_name == "local":
            with open(f"{self.path}/{temporary}", "rb") as file:
                os.fsync(file.fileno())
        return temporary

    def commit(self, temporary: str, name: str) -> None:
        """Give a file its name."""
        self.system.move(f"{self.path}/{temporary}", f"{self.path}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        self.commit(self.started(lambda stream: stream.write(content)), name)

    def tidy(self, starts: tuple[str, ...] = ()) -> None:
        """Remove temporary files, which nobody will name any more, and those with such names."""
        for info in self._files():
            if info.base_name.startswith(starts) or (info.base_name[0] == "." and info.base_name.endswith(".part")):
                self.system.delete_file(info.path)


def as_parquet(table: Any, rows: int | None = None) -> Callable[[Any], None]:
    """Return how a table is written, for `Folder.started`, in row groups of that many rows."""
    # Hardly a number comes twice, and to look for those that do takes as long as all the rest.
    return partial(pyarrow("parquet").write_table, table, row_group_size=rows, use_dictionary=False)


def unpacked(content: bytes) -> dict[str, Array]:
    """Return the arrays of a file that `np.savez` wrote."""
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


@dataclass(frozen=True)
class Rows:
    """The rows of Parquet files, numbered in the order of the files' names."""

    system: Any
    files: tuple[tuple[str, int], ...]
    """Path and rows of each."""

    @classmethod
    def at(cls, url: str | os.PathLike[str], columns: Sequence[str]) -> Rows:
        """Return the rows of a Parquet file, or of all in a folder, which must have these columns."""
        folder, parquet, fs = Folder.at(url), pyarrow("parquet"), pyarrow("fs")
        single = folder.system.get_file_info(folder.path).type == fs.FileType.File
        paths = [folder.path] if single else [f"{folder.path}/{name}" for name in folder.names(end=".parquet")]
        if not paths:
            raise InvalidInput(f"{os.fspath(url)} must be a Parquet file or a folder of them; there is none.")
        counted = []
        for path in paths:
            try:
                with folder.system.open_input_file(path) as file:
                    meta = parquet.read_metadata(file)
                    names = set(meta.schema.to_arrow_schema().names)
            except (OSError, pyarrow().ArrowInvalid) as error:
                raise InvalidInput(f"{os.fspath(url)} must be a Parquet file or a folder of them: {error}") from error
            if lacking := [name for name in columns if name not in names]:
                raise InvalidInput(f"{path} must have the column {lacking[0]!r}; it has {', '.join(sorted(names))}.")
            counted.append((path, meta.num_rows))
        return cls(folder.system, tuple(counted))

    def __len__(self) -> int:
        return sum(rows for _, rows in self.files)

    def batches(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield rows start … stop − 1 as record batches; only the row groups that have some are decoded."""
        first = 0
        for path, count in self.files:
            if first < stop and start < first + count:
                with self.system.open_input_file(path) as file:
                    yield from _between(pyarrow("parquet").ParquetFile(file), start - first, stop - first, columns)
            first += count

    def changed(self) -> list[tuple[int, int]]:
        """Return when each file was changed last, and its size."""
        entries = self.system.get_file_info([path for path, _ in self.files])
        return [(info.mtime_ns or 0, info.size) for info in entries]


def _between(file: Any, start: int, stop: int, columns: Sequence[str] | None) -> Iterator[Any]:
    counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    ends = np.cumsum(counts)
    groups = [g for g, end in enumerate(ends) if end > start and end - counts[g] < stop]
    place = int(ends[groups[0]]) - counts[groups[0]]
    for batch in file.iter_batches(READ_AT_ONCE, row_groups=groups, columns=columns):
        here = batch.slice(max(start - place, 0), max(0, min(stop, place + len(batch)) - max(start, place)))
        place += len(batch)
        if len(here):
            yield here
