"""Folders of files on any file system that pyarrow knows: a local path, or s3://, gs://, hdfs:// and the like by URL.

A file appears whole or not at all: it is written under a temporary name and renamed. A local file is on the disk
before its name is. So the names in a folder say what is done, and a process that is killed leaves nothing but
temporary files, which nobody reads.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from rarely.errors import InvalidInput, RarelyError
from rarely.extend import Array
from rarely.logs.tables import pyarrow
from rarely.runs.files import FolderBusy, lock_folder

READ_AT_ONCE = 8192  # rows of a Parquet file that are decoded at a time
CLAIM = ".coordinator"  # how the file ends by which a coordinator has a folder to itself
BUSY = "another coordinator works in {}; call again when it has ended."


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

    def names(self, start: str = "") -> list[str]:
        """Return the names of its complete files, sorted; none if the folder does not exist."""
        names = (info.base_name for info in self._entries())
        return sorted(name for name in names if name.startswith(start) and name[0] != ".")

    def folders(self, start: str) -> list[str]:
        """Return the names of the folders in it that begin so, sorted."""
        return sorted(info.base_name for info in self._entries("Directory") if info.base_name.startswith(start))

    def inside(self, name: str) -> Folder:
        """Return a folder in it."""
        return replace(self, path=f"{self.path}/{name}")

    def _entries(self, kind: str = "File", *, recursive: bool = False) -> Iterator[Any]:
        fs = pyarrow("fs")
        entries = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True, recursive=recursive))
        return (info for info in entries if info.type == fs.FileType[kind])

    def tables(self) -> list[str]:
        """Return the paths of its Parquet files, those in folders such as date=2026-01-31 included, sorted."""
        infos = ((info, info.path[len(self.path) :].strip("/").split("/")) for info in self._entries(recursive=True))
        return sorted(
            info.path
            for info, (*folders, name) in infos
            if name.endswith(".parquet") and name[0] != "." and all("=" in folder for folder in folders)
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the folder to oneself among coordinators; raise `FolderBusy` where another has it.

        On this machine the claim ends with its process, however that ends. Elsewhere it is a file of each, and whoever
        sees another's gives way, so that of two at least one does.
        """
        self.system.create_dir(self.path, recursive=True)
        if self.system.type_name == "local":
            with lock_folder(Path(self.path), CLAIM, BUSY):
                yield
            return
        mine = f".{secrets.token_hex(4)}-{socket.gethostname()}-{os.getpid()}{CLAIM}"
        self.write(mine, b"")
        try:
            for info in self._entries():
                if info.base_name.endswith(CLAIM) and info.base_name != mine:
                    advice = f"If it was killed, remove {info.path}, whose name has its machine and process."
                    raise FolderBusy(f"{BUSY.format(self.path)} {advice}")
            yield
        finally:
            self.system.delete_file(f"{self.path}/{mine}")

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self.system.open_input_stream(f"{self.path}/{name}") as stream:
            return bytes(stream.read())

    def started(self, write: Callable[[Any], None], *, private: bool = True) -> str:
        """Write a file under a temporary name, and return that name, for `commit`.

        Tables have contexts of people: locally their owner alone may read them.
        """
        temporary = f".{secrets.token_hex(8)}.part"
        self.system.create_dir(self.path, recursive=True)
        if private and self.system.type_name == "local":
            os.close(os.open(f"{self.path}/{temporary}", os.O_CREAT | os.O_EXCL, 0o600))
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
        self.commit(self.started(lambda stream: stream.write(content), private=False), name)

    def read_json(self, name: str) -> Any:
        """Return the content of a file of JSON; refuse one that is damaged."""
        with readable(f"{self.path}/{name}", "JSON"):
            return json.loads(self.read(name))

    def write_json(self, name: str, content: Any) -> None:
        """Write a file of JSON."""
        self.write(name, json.dumps(content).encode())

    def tidy(self, starts: tuple[str, ...] = ()) -> None:
        """Remove temporary files, which nobody will name any more, and those with such names."""
        for info in self._entries():
            if info.base_name.startswith(starts) or (info.base_name[0] == "." and info.base_name.endswith(".part")):
                self.system.delete_file(info.path)


def as_parquet(table: Any, rows: int | None = None) -> Callable[[Any], None]:
    """Return how a table is written, for `Folder.started`, in row groups of that many rows."""
    # Hardly a number comes twice, and to look for those that do takes as long as all the rest.
    write = pyarrow("parquet").write_table
    return partial(write, table, row_group_size=rows, use_dictionary=False, write_page_checksum=True)


@contextmanager
def readable(path: str, what: str = "Parquet") -> Iterator[None]:
    """Turn what reading a damaged file raises into an error that names it, and `what` it should be."""
    try:
        yield
    except RarelyError:
        raise
    except (OSError, pyarrow().ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"{path} cannot be read as {what}, or is damaged ({error!r})"
        raise InvalidInput(f"{said}. Put it back from a copy.") from error


def unpacked(content: bytes) -> dict[str, Array]:
    """Return the arrays of a file that `np.savez` wrote."""
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


@dataclass(frozen=True)
class Rows:
    """The rows of Parquet files, numbered in the order of the files' names."""

    system: Any
    files: tuple[tuple[str, int, int, int], ...]  # path, rows, time of the last change, and size of each

    @classmethod
    def at(cls, url: str | os.PathLike[str], columns: Sequence[str]) -> Rows:
        """Return the rows of a Parquet file, or of all in a folder, which must have these columns, of one type."""
        folder, parquet, fs = Folder.at(url), pyarrow("parquet"), pyarrow("fs")
        single = folder.system.get_file_info(folder.path).type == fs.FileType.File
        paths = [folder.path] if single else folder.tables()
        if not paths:
            raise InvalidInput(f"{os.fspath(url)} must be a Parquet file or a folder of them; there is none.")
        counted, kinds = [], dict[str, Any]()
        for path in paths:
            with readable(path), folder.system.open_input_file(path) as file:
                meta = parquet.read_metadata(file)
                schema = meta.schema.to_arrow_schema()
            for name in columns:
                if name not in schema.names:
                    has = ", ".join(sorted(schema.names))
                    raise InvalidInput(f"{path} must have the column {name!r}; it has {has}.")
                if (kind := kinds.setdefault(name, schema.field(name).type)) != schema.field(name).type:
                    raise InvalidInput(
                        f"the column {name!r} must have one type in all files; it is {kind} in {paths[0]}, and "
                        f"{schema.field(name).type} in {path}."
                    )
            counted.append((path, meta.num_rows, *_state(folder.system, path)))
        return cls(folder.system, tuple(counted))

    def __len__(self) -> int:
        return sum(rows for _, rows, *_ in self.files)

    def batches(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield rows start … stop − 1 as record batches, and where each is; only row groups that have some are decoded.

        Files must be as they were when this object was made.
        """
        first = 0
        for path, count, *state in self.files:
            if first < stop and start < first + count:
                if _state(self.system, path) != tuple(state):
                    raise InvalidInput(f"{path} must stay as it is while it is read; it was changed. Call again.")
                named = [part.split("=", 1) for part in path.split("/")[:-1] if "=" in part]
                with readable(path), self.system.open_input_file(path) as file:
                    whole = pyarrow("parquet").ParquetFile(file, page_checksum_verification=True)
                    for group, place, batch in _between(whole, start - first, stop - first, columns):
                        where = f"{path}, row group {group}, rows {place} to {place + len(batch) - 1}"
                        for name, value in named if columns is None else ():  # as date=2026-01-31 in the path
                            if name not in batch.schema.names:
                                batch = batch.append_column(name, pyarrow().array([unquote(value)] * len(batch)))
                        yield where, batch
            first += count


def _state(system: Any, path: str) -> tuple[int, int]:
    info = system.get_file_info(path)
    return info.mtime_ns or 0, info.size or 0


def _between(file: Any, start: int, stop: int, columns: Sequence[str] | None) -> Iterator[tuple[int, int, Any]]:
    """Yield some rows of a file in batches, each of one row group, with the group and the first row."""
    place = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if place < stop and start < place + count:
            first = place
            for batch in file.iter_batches(READ_AT_ONCE, row_groups=[group], columns=columns):
                begin = max(start, first)
                here = batch.slice(begin - first, max(0, min(stop, first + len(batch)) - begin))
                first += len(batch)
                if len(here):
                    yield group, begin, here
        place += count
