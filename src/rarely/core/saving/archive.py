"""One file of arrays and JSON: a zip with a seal, a header and each array as .npy. No pickle, no compression.

    seal.json     what wrote the file, every other member with its size, and a checksum over all of it
    header.json   one JSON object
    NAME.npy      arrays of numbers or booleans

Nothing of a file is believed before it is checked against the file's real size: members are stored as they are, so
what is read takes no more memory than the file takes room, and an array's shape must account for every byte of it.
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

from rarely.core.errors import SnapshotError
from rarely.core.saving.files import replacing
from rarely.core.types import Arrays
from rarely.core.version import __version__

MAGIC = "rarely-policy"
FORMAT = 3
"""Raised with every change of what a policy writes; formats 1 … FORMAT are read."""
FIRST_VERSION = "0.1.0"
"""What wrote format 1, whose seal does not tell."""
SEAL, HEADER, SUFFIX = "seal.json", "header.json", ".npy"
LARGEST_SEAL = 2**20
_SEALED = {"magic", "format", "rarely", "members", "sha256"}
_FIELDS = {1: {"magic", "format", "sha256"}, 2: _SEALED, 3: _SEALED}
_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248])")
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_PREAMBLE = 10
"""Bytes of an .npy file before its header: the magic, version 1.0, and the header's length in two bytes."""
_NPY = re.compile(
    rb"\{'descr': '(?P<descr>[<>|][a-z]\d)', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,15}(?:, \d{1,15})*,?)?)\), \} *\n"
)
"""The header as NumPy writes it; to evaluate it as Python, as NumPy does, would be more than is needed."""
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that the same state gives the same bytes."""
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
    format: int
    version: str
    """The version of rarely that wrote it."""


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: Arrays) -> None:
    """Write header and arrays to one file, in one step (`files.replacing`); the same state gives the same bytes."""
    members: dict[str, list[bytes | memoryview]] = {HEADER: [json.dumps(header, default=plain).encode()]}
    members |= {name + SUFFIX: _npy(name, array) for name, array in arrays.items()}
    sizes = {name: sum(map(len, parts)) for name, parts in members.items()}
    seal: dict[str, Any] = {"magic": MAGIC, "format": FORMAT, "rarely": __version__, "members": sizes}
    sealed = {SEAL: [json.dumps(seal | {"sha256": _digest(seal, members)}).encode()]} | members
    with replacing(path) as file:
        bundle = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        try:
            for name, parts in sealed.items():
                member = zipfile.ZipInfo(name, _DATE)
                member.file_size = sizes.get(name, 0)  # tells zipfile which members are too large for its plain form
                with bundle.open(member, "w") as out:
                    for part in parts:
                        out.write(part)
            bundle.close()
        except BaseException:
            bundle.fp = None  # closing it would complain about the open member, and hide the interrupt
            raise


def read(path: str | os.PathLike[str]) -> Archive:
    """What a file holds that is whole and unaltered; `SnapshotError` before anything larger than it is allocated."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder is an error of `open`; a pipe would make it wait
        raise SnapshotError(f"{os.fspath(path)} is not a file that save() wrote, but a device or a pipe.")
    with open(path, "rb") as file:
        try:
            return _read(file)
        except SnapshotError as error:
            raise SnapshotError(f"{os.fspath(path)} {error}") from None
        except _DAMAGE as error:
            raise SnapshotError(
                f"{os.fspath(path)} is not a whole saved policy ({error}): it may be truncated, altered or of another "
                "kind. Save it again, or use a backup."
            ) from None


def _read(file: BinaryIO) -> Archive:
    """The sentences of its errors begin after the path."""
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as bundle:
        infos = _by_name(bundle.infolist())
        seal = _read_seal(bundle, infos.pop(SEAL, None))
        _check_members(infos, size)
        if "members" in seal and seal["members"] != {name: info.file_size for name, info in infos.items()}:
            raise SnapshotError("holds other members than its seal names. Use a backup.")
        content = {name: bundle.read(info) for name, info in infos.items()}
    if seal["sha256"] != (_digest_1(content) if seal["format"] == 1 else _digest(seal, _parts(content))):
        raise SnapshotError("was altered after it was saved: its checksum differs. Use a backup.")
    header = _json_object(content.pop(HEADER), HEADER)
    arrays = {name.removesuffix(SUFFIX): _array(name, content.pop(name), size) for name in list(content)}
    return Archive(header, arrays, seal["format"], seal.get("rarely", FIRST_VERSION))


def _by_name(infos: Iterable[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        if info.filename in members:
            raise SnapshotError(f"holds two members called {info.filename!r}. Use a backup.")
        members[info.filename] = info
    return members


def _check_members(infos: dict[str, zipfile.ZipInfo], size: int) -> None:
    """Refuse members that no saved policy has, or that claim more room than the file takes."""
    for name, info in infos.items():
        if name != HEADER and not (name.endswith(SUFFIX) and _NAME.fullmatch(name.removesuffix(SUFFIX))):
            raise SnapshotError(f"holds a member {name!r}, which no saved policy has. Use a backup.")
        if not _is_plain(info):
            raise SnapshotError(f"must hold its members as they are, but {name!r} is compressed or encrypted.")
    total = sum(info.file_size for info in infos.values())
    if total > size:
        raise SnapshotError(f"claims members of {total:,} bytes, but the file has {size:,}. Use a backup.")
    if HEADER not in infos:
        raise SnapshotError("is not a whole saved policy: it has no header. Use a backup.")


def _is_plain(info: zipfile.ZipInfo) -> bool:
    return info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size and not info.flag_bits & 1


def _read_seal(bundle: zipfile.ZipFile, info: zipfile.ZipInfo | None) -> dict[str, Any]:
    """The seal of a file whose format can be read."""
    if info is None or not _is_plain(info) or info.file_size > LARGEST_SEAL:
        raise SnapshotError("is not a saved policy. Use a file that save() wrote.")
    seal = _json_object(bundle.read(info), SEAL)
    if seal.get("magic") != MAGIC:
        raise SnapshotError("is not a saved policy. Use a file that save() wrote.")
    found, version = seal.get("format"), seal.get("rarely")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise SnapshotError(f"must have a whole number as its format; it has {found!r}. Use a backup.")
    if found > FORMAT:
        writer = f"rarely {version}" if isinstance(version, str) else "a later rarely"
        raise SnapshotError(
            f"was written by {writer} (format {found}), needs {writer} or newer; this is rarely {__version__}, which "
            f"reads formats up to {FORMAT}."
        )
    if set(seal) != _FIELDS[found] or not isinstance(seal["sha256"], str) or not isinstance(version, str | None):
        raise SnapshotError(f"must have the seal of format {found}; it has the fields {', '.join(sorted(seal))}.")
    return seal


def _json_object(text: bytes, name: str) -> dict[str, Any]:
    value = json.loads(text, object_pairs_hook=_unique)
    if not isinstance(value, dict):
        raise SnapshotError(f"must hold one JSON object in {name}, not a {type(value).__name__}.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a JSON object has a field twice")
    return fields


def _npy(name: str, array: NDArray[Any]) -> list[bytes | memoryview]:
    """An array as the two parts of an .npy file, its numbers without a copy."""
    values = array if array.flags.forc else np.asarray(array, order="C")
    if not _DTYPE.fullmatch(values.dtype.str) or not _NAME.fullmatch(name):
        raise TypeError(f"arrays of numbers or booleans can be saved, under plain names; {name!r} is of {values.dtype}")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(values))
    return [head.getvalue(), values.ravel(order="K").view(np.uint8).data]


def _array(name: str, blob: bytes, size: int) -> NDArray[Any]:
    """The array of an .npy file, whose shape must account for all of its bytes."""
    start = _PREAMBLE + int.from_bytes(blob[8:10], "little")
    found = _NPY.fullmatch(blob[_PREAMBLE:start]) if blob.startswith(_NPY_MAGIC) else None
    if found is None or not _DTYPE.fullmatch(found["descr"].decode()):
        raise SnapshotError(f"must hold arrays of numbers or booleans, but {name} is not one of them. Use a backup.")
    shape = tuple(int(n) for n in re.findall(rb"\d+", found["shape"]))
    dtype = np.dtype(found["descr"].decode())
    # An array without numbers takes no room, whatever it claims; so no axis may be longer than the file.
    if math.prod(shape) * dtype.itemsize != len(blob) - start or max(shape, default=0) > size or len(shape) > 4:
        raise SnapshotError(f"claims the shape {shape} for {name}, which has {len(blob) - start:,} bytes of numbers.")
    values = np.frombuffer(blob, dtype, offset=start).astype(dtype.newbyteorder("="))
    return values.reshape(shape, order="F" if found["fortran"] == b"True" else "C")


def _digest(seal: dict[str, Any], members: Mapping[str, Iterable[bytes | memoryview]]) -> str:
    """SHA-256 of the seal's other fields, which tell the members' sizes, and of the members in order."""
    others = {name: value for name, value in seal.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(others, sort_keys=True).encode())
    for name in sorted(members):
        for part in members[name]:
            digest.update(part)
    return digest.hexdigest()


def _parts(content: dict[str, bytes]) -> dict[str, list[bytes]]:
    return {name: [blob] for name, blob in content.items()}


def _digest_1(content: dict[str, bytes]) -> str:
    """The checksum of format 1."""
    digest = hashlib.sha256(content[HEADER])
    for name in sorted(name.removesuffix(SUFFIX) for name in content if name != HEADER):
        digest.update(name.encode())
        digest.update(content[name + SUFFIX])
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """NumPy's numbers, and the arrays inside a generator's state, as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")
