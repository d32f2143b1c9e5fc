"""Original data files, of the paper and of Riquelme et al. (2018): found, fetched, and never trusted unseen.

A file is looked for in a path given and nowhere else, or in the folder RARELY_DATA, in the cache folder
(RARELY_CACHE, else the user's), and then downloaded into the cache. Wherever it comes from, its size and SHA-256
must be those of the original, and its rows and classes are counted. Downloads use HTTPS and happen only in `fetch`;
beside it, only `rarely serve` and the study's client use the network.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import tomllib
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rarely.extend.checks import RarelyError
from rarely.extend.provisional import cache_folder, replacing
from rarely.worlds.table import Table

DOWNLOAD_TIMEOUT = 30.0  # seconds without a byte after which a download is given up
CHUNK = 2**16  # bytes that are read at once
PACKED = ".gz"  # the suffix of a file that is kept compressed
Progress = Callable[[int, int], None]  # called with the bytes read so far and the bytes expected


class DataUnavailable(RarelyError):
    """A data file that is missing, cannot be fetched, or is not the original."""


@dataclass(frozen=True)
class Dataset:
    """One original file, pinned.

    Examples
    --------
    >>> from rarely.worlds import DATASETS
    >>> DATASETS["mushroom"].count, DATASETS["mushroom"].file
    (8124, 'agaricus-lepiota.data')
    """

    name: str
    file: str
    size: int  #: Bytes of the file.
    sha256: str
    label: int  #: The column of the class.
    counts: tuple[tuple[str, int], ...]  #: Rows of each class, among those that are read.
    urls: tuple[str, ...]
    """Addresses to fetch it from, in this order; a `.zip` holds the file as a member, a `.gz` is the file, packed."""
    source: str  #: Whom to cite, and the licence.
    delimiter: str = ","
    unknown: str | None = None  #: The class of rows that are left out, because their class is not known.
    every: int = 1  #: Every how many rows one is read, for a file of whole numbers that is too large.
    packed: bool = False
    """Whether it is also looked for as `file.gz`, and kept so in the cache; size and SHA-256 are those of the file."""

    @property
    def count(self) -> int:
        """How many rows it has."""
        return sum(count for _, count in self.counts)

    def verify(self, path: Path) -> Path:
        """Return the path, or raise DataUnavailable if its bytes are not the original's."""
        try:
            content = gzip.decompress(path.read_bytes()) if path.suffix == PACKED else path.read_bytes()
        except (OSError, EOFError, zlib.error) as error:
            raise DataUnavailable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
        if wrong := self.difference(content):
            raise DataUnavailable(f"{path} {wrong}. Remove it, or put the original there.")
        return path

    def table(self, path: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Table:
        """Return the table, from wherever the file is found."""
        return self.read(located(self, path) or fetch(self, progress))

    def read(self, path: Path) -> Table:
        """Return the table in a file that was verified."""
        table = Table.from_csv(path, self.label, self.delimiter) if self.every == 1 else self._thinned(path)
        if self.unknown is not None:
            names = np.array(table.classes)[table.labels]
            table = Table.of(table.rows[names != self.unknown], names[names != self.unknown])
        counts = tuple(zip(table.classes, np.bincount(table.labels).tolist(), strict=True))
        if counts != self.counts:
            raise DataUnavailable(f"{path} must hold {dict(self.counts)} rows of each class; got {dict(counts)}.")
        return table

    def _thinned(self, path: Path) -> Table:
        """Read some rows of a file of whole numbers: as text in lists, all of them would take gigabytes."""
        with gzip.open(path, "rt", encoding="ascii") if path.suffix == PACKED else open(path, encoding="ascii") as file:
            lines = islice(file, None, None, self.every)
            numbers = np.loadtxt(lines, delimiter=self.delimiter, ndmin=2, dtype=np.int64)
        return Table.of(np.delete(numbers, self.label, axis=1), numbers[:, self.label])

    def difference(self, content: bytes) -> str:
        """Return in what the content differs from the original's; "" if in nothing."""
        digest = hashlib.sha256(content).hexdigest()
        if (len(content), digest) == (self.size, self.sha256):
            return ""
        return (
            f"is not the original {self.file}: {self.size} bytes with SHA-256 {self.sha256[:12]}… are "
            f"expected, and it has {len(content)} with {digest[:12]}…"
        )


_PINNED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
DATASETS = {
    name: Dataset(**each | {"name": name, "counts": tuple(each["counts"].items()), "urls": tuple(each["urls"])})
    for name, each in _PINNED.items()
}
"""All of them by name, as `datasets.toml` pins them."""


def places(dataset: Dataset, path: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield where the file is looked for, in this order; in a folder, also in one of the dataset's name."""
    data = os.environ.get("RARELY_DATA")
    elsewhere = [*([Path(data)] if data else []), cache_folder()]
    for folder in elsewhere if path is None else [Path(path)]:
        if folder.is_file():
            yield folder
        else:
            names = [dataset.file, *([dataset.file + PACKED] if dataset.packed else [])]
            yield from (inside / name for name in names for inside in (folder, folder / dataset.name))


def located(dataset: Dataset, path: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the verified file, or None if it is not on this machine."""
    for place in places(dataset, path):
        if place.exists():
            return dataset.verify(place)
    if path is not None:
        raise DataUnavailable(f"{path} has no {dataset.file}; give the file itself, or the folder that holds it.")
    return None


def fetch(dataset: Dataset, progress: Progress | None = None, patience: float = DOWNLOAD_TIMEOUT) -> Path:
    """Download into the cache folder, checked before it is put there under its name."""
    failures = []
    for url in dataset.urls:
        try:
            content = _member(_download(url, dataset.size, progress, patience), url, dataset)
        except (OSError, http.client.HTTPException, *_BAD_ZIP, DataUnavailable) as error:
            failures.append(f"{url}: {_said(error)}")
            continue
        if wrong := dataset.difference(content):
            failures.append(f"{url}: what came {wrong}")
            continue
        name = dataset.file + PACKED if dataset.packed else dataset.file
        kept = gzip.compress(content, mtime=0) if dataset.packed else content
        return _put(kept, cache_folder() / dataset.name / name)
    raise DataUnavailable(
        f"{dataset.file} could not be fetched ({'; '.join(failures)}). Put the original file into "
        f"{cache_folder() / dataset.name}, or set RARELY_DATA to the folder that holds it."
    )


def _download(url: str, expected: int, progress: Progress | None, patience: float) -> bytes:
    received = io.BytesIO()
    with urllib.request.urlopen(url, timeout=patience) as answer:
        promised = answer.length  # None where the header is absent, or no number
        while chunk := answer.read1(CHUNK):
            received.write(chunk)
            # Enough for a zip that did not shrink; an endless answer must not fill the memory.
            if received.tell() > 2 * expected + CHUNK:
                raise DataUnavailable(f"more than twice the expected {expected} bytes came")
            if progress is not None:
                progress(received.tell(), promised or expected)
    if promised and received.tell() < promised:
        raise DataUnavailable(f"the connection ended after {received.tell()} of {promised} bytes")
    return received.getvalue()


_BAD_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError)
"""What zipfile raises on an archive that is damaged, lacks the member, or packs it in a way unknown to it."""


def _member(content: bytes, url: str, dataset: Dataset) -> bytes:
    if url.endswith(PACKED):
        with gzip.open(io.BytesIO(content)) as file:
            return file.read(dataset.size + 1)
    if not url.endswith(".zip"):
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(dataset.file) as member:
        return member.read(dataset.size + 1)  # one byte too many is enough to be refused


def _put(content: bytes, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be written ({error.strerror}); set RARELY_CACHE to a folder.") from error
    return path


def _said(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code}"
    if isinstance(error, TimeoutError):
        return "nothing came for too long"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    if isinstance(error, KeyError):
        return str(error.args[0])
    return str(error) or type(error).__name__
