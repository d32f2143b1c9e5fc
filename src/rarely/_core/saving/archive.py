"""One file of arrays and JSON: a zip with a seal, a header and each array as .npy. No pickle, no compression.

    seal.json     what wrote the file, every other member with its size, and a checksum over all of it
    header.json   one JSON object
    NAME.npy      arrays of numbers or booleans

Sizes are checked against the file's real size before anything is allocated: members are stored uncompressed, so what
is read takes no more memory than the file takes room, and an array's shape must account for every byte of it. The
checksum detects damage; it does not protect against a file that somebody forged with a new checksum.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rarely._core.errors import MissingSnapshot, SnapshotError
from rarely._core.saving.fields import plain
from rarely._core.saving.files import path_of, replacing
from rarely._core.types import Arrays
from rarely._core.version import __version__

MAGIC = "rarely-policy"
FORMAT = 1  # raise it with every change of what a policy writes; no other format is read
SEAL, HEADER, SUFFIX = "seal.json", "header.json", ".npy"
MAX_SEAL_BYTES = 2**20
_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248])")
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_PREAMBLE = 10  # bytes of an .npy file before its header: the magic, version 1.0, and the header's length in two bytes
_NPY = re.compile(
    rb"\{'descr': '(?P<descr>[<>|][a-z]\d)', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,15}(?:, \d{1,15})*,?)?)\), \} *\n"
)
"""The header as NumPy writes it; NumPy evaluates it as Python, which is more than is needed."""
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
_DATE = (1980, 1, 1, 0, 0, 0)  # the date of every member, so that the same state gives the same bytes
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, ValueError, NotImplementedError, RuntimeError),
    *(RecursionError, OverflowError, TypeError, IndexError, struct.error),
)
"""What reading a damaged zip or damaged JSON raises, depending on where the damage is: a wrong byte may name a way of
packing that zipfile does not know (NotImplementedError), or encryption (RuntimeError)."""


class Archive(NamedTuple):
    """What a file holds."""

    header: dict[str, Any]
    arrays: Arrays
    version: str  # the version of rarely that wrote it


class _Bundle(zipfile.ZipFile):
    """A zip that an interrupt may leave as it is: its file is closed, or removed, by those who opened it."""

    def __del__(self) -> None:
        # ZipFile would close itself here, into a file that is closed already, and print what that raises.
        pass


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: Arrays) -> None:
    """Write header and arrays to one file, atomically; the same state gives the same bytes."""
    with replacing(path) as file:
        _write(file, header, arrays)


def to_bytes(header: dict[str, Any], arrays: Arrays) -> bytes:
    """Return the bytes that `write` would write."""
    file = io.BytesIO()
    _write(file, header, arrays)
    return file.getvalue()


def _write(file: BinaryIO, header: dict[str, Any], arrays: Arrays) -> None:
    members: dict[str, list[bytes | memoryview]] = {HEADER: [json.dumps(header, default=plain).encode()]}
    members |= {name + SUFFIX: _npy(name, array) for name, array in arrays.items()}
    sizes = {name: sum(map(len, parts)) for name, parts in members.items()}
    seal: dict[str, Any] = {"magic": MAGIC, "format": FORMAT, "rarely": __version__, "members": sizes}
    sealed = {SEAL: [json.dumps(seal | {"sha256": _digest(seal, members)}).encode()]} | members
    bundle = _Bundle(file, "w", zipfile.ZIP_STORED)
    for name, parts in sealed.items():
        member = zipfile.ZipInfo(name, _DATE)
        member.file_size = sizes.get(name, 0)  # lets zipfile know which members need its 64-bit form
        with bundle.open(member, "w") as out:
            for part in parts:
                out.write(part)
    bundle.close()


def read(path: str | os.PathLike[str]) -> Archive:
    """Return what a whole and unaltered file holds; raise SnapshotError before allocating more than its size."""
    try:
        mode = os.stat(path_of(path)).st_mode
    except FileNotFoundError:
        there = f"there is none called {os.path.abspath(path)}"
        raise MissingSnapshot(f"a policy is loaded from a file that `save` wrote; {there}. Check the name.") from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder is an error of `open`; a pipe would make it wait
        raise SnapshotError(f"{os.fspath(path)} must be a file that save() wrote; it is a device or a pipe.")
    with open(path, "rb") as file:
        return parse(file, os.fspath(path))


def parse(file: BinaryIO, name: Any) -> Archive:
    """Return what an open file holds; `name` is the file's in errors."""
    try:
        return _read(file)
    except SnapshotError as error:
        raise SnapshotError(f"{name} {error}") from None
    except _DAMAGE as error:
        raise SnapshotError(
            f"{name} is not a whole saved policy ({error}): it may be truncated, altered or of another kind. Save it "
            "again, or use a backup."
        ) from None


def _read(file: BinaryIO) -> Archive:
    """Return what a file holds; its errors are sentences that continue after the path."""
    size = file.seek(0, os.SEEK_END)
    with _Bundle(file) as bundle:
        infos = {info.filename: info for info in bundle.infolist()}
        seal = _read_seal(bundle, infos.pop(SEAL, None))
        _check_members(infos, size)
        if seal["members"] != {name: info.file_size for name, info in infos.items()}:
            raise SnapshotError("holds other members than its seal lists. Use a backup.")
        content = {name: bundle.read(info) for name, info in infos.items()}
    if seal["sha256"] != _digest(seal, {name: [blob] for name, blob in content.items()}):
        raise SnapshotError("was altered after it was saved: its checksum differs. Use a backup.")
    header = _json_object(content.pop(HEADER), HEADER)
    arrays = {name.removesuffix(SUFFIX): _array(name, content.pop(name), size) for name in list(content)}
    return Archive(header, arrays, seal["rarely"])


def _check_members(infos: dict[str, zipfile.ZipInfo], size: int) -> None:
    """Raise SnapshotError for members that no saved policy has, or that claim more room than the file takes."""
    for name, info in infos.items():
        if name != HEADER and not (name.endswith(SUFFIX) and _NAME.fullmatch(name.removesuffix(SUFFIX))):
            raise SnapshotError(f"holds a member {name!r}, which no saved policy has. Use a backup.")
        if not _is_plain(info):
            raise SnapshotError(f"must hold plain members, but {name!r} is compressed or encrypted. Use a backup.")
    total = sum(info.file_size for info in infos.values())
    if total > size:
        raise SnapshotError(f"claims members of {total:,} bytes, but the file has {size:,}. Use a backup.")
    if HEADER not in infos:
        raise SnapshotError("is not a whole saved policy: it has no header. Use a backup.")


def _is_plain(info: zipfile.ZipInfo) -> bool:
    return info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size and not info.flag_bits & 1


def _read_seal(bundle: zipfile.ZipFile, info: zipfile.ZipInfo | None) -> dict[str, Any]:
    """Return the seal of a file of this format."""
    readable = info is not None and _is_plain(info) and info.file_size <= MAX_SEAL_BYTES
    seal = _json_object(bundle.read(SEAL), SEAL) if readable else {}
    if seal.get("magic") != MAGIC:
        raise SnapshotError("is not a saved policy. Use a file that save() wrote.")
    if type(seal.get("format")) is not int or seal["format"] != FORMAT:
        writer = f"rarely {seal['rarely']}" if isinstance(seal.get("rarely"), str) else "another rarely"
        raise SnapshotError(
            f"has format {seal.get('format')!r} and was written by {writer}; this is rarely {__version__}, which reads "
            f"format {FORMAT}. Load it with the version that wrote it."
        )
    return seal


def _json_object(text: bytes, name: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise SnapshotError(f"must hold one JSON object in {name}, not a {type(value).__name__}.")
    return value


def _npy(name: str, array: NDArray[Any]) -> list[bytes | memoryview]:
    """Return an array as the two parts of an .npy file, its numbers without a copy."""
    values = array if array.flags.forc else np.asarray(array, order="C")
    if not _DTYPE.fullmatch(values.dtype.str) or not _NAME.fullmatch(name):
        raise TypeError(f"arrays of numbers or booleans can be saved, under plain names; {name!r} is of {values.dtype}")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(values))
    return [head.getvalue(), values.ravel(order="K").view(np.uint8).data]


def _array(name: str, blob: bytes, size: int) -> NDArray[Any]:
    """Return the array of an .npy file, whose shape must account for all of its bytes."""
    start = _PREAMBLE + int.from_bytes(blob[8:10], "little")
    head = _NPY.fullmatch(blob[_PREAMBLE:start]) if blob.startswith(_NPY_MAGIC) else None
    if head is None or not _DTYPE.fullmatch(head["descr"].decode()):
        raise SnapshotError(f"must hold arrays of numbers or booleans, but {name} is not one of them. Use a backup.")
    shape = tuple(int(n) for n in re.findall(rb"\d+", head["shape"]))
    dtype = np.dtype(head["descr"].decode())
    # An empty array takes no room, whatever shape it claims; so no axis may be longer than the file.
    if math.prod(shape) * dtype.itemsize != len(blob) - start or max(shape, default=0) > size or len(shape) > 4:
        raise SnapshotError(f"claims the shape {shape} for {name}, which has {len(blob) - start:,} bytes of numbers.")
    values = np.frombuffer(blob, dtype, offset=start).astype(dtype.newbyteorder("="))
    return values.reshape(shape, order="F" if head["fortran"] == b"True" else "C")


def _digest(seal: dict[str, Any], members: Mapping[str, Iterable[bytes | memoryview]]) -> str:
    """Return the SHA-256 of the seal's other fields, which include the members' sizes, and of the members in order."""
    others = {name: value for name, value in seal.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode())
    for name in sorted(members):
        for part in members[name]:
            digest.update(part)
    return digest.hexdigest()
