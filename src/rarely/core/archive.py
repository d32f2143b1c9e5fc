"""One file of arrays and JSON: a zip with a header, each array as .npy, and a checksum over both. No pickle."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
import zlib
from typing import Any

import numpy as np

from rarely.core.errors import SnapshotError
from rarely.core.types import Array, Arrays

MAGIC = "rarely-policy"
FORMAT = 1
_DAMAGE = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)
"""What reading a damaged zip or damaged JSON raises, depending on where the damage is."""


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: Arrays) -> None:
    """Write header and arrays so that a reader sees the old file or the new one, never half of it."""
    body = json.dumps(header, default=plain).encode()
    blobs = {name: _npy(array) for name, array in arrays.items()}
    seal = {"magic": MAGIC, "format": FORMAT, "sha256": _digest(body, blobs)}
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"a policy is saved into a folder that is there; {folder} is not.")
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".rarely-")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as bundle:
                bundle.writestr("seal.json", json.dumps(seal))
                bundle.writestr("header.json", body)
                for name, blob in blobs.items():
                    bundle.writestr(name + ".npy", blob)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    """The process' umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a file that is whole and unaltered."""
    with open(path, "rb") as file:
        content = io.BytesIO(file.read())
    try:
        with zipfile.ZipFile(content) as bundle:
            names = bundle.namelist()
            seal = json.loads(bundle.read("seal.json")) if "seal.json" in names else None
            checksum = _check_seal(path, seal)
            body = bundle.read("header.json")
            blobs = {name.removesuffix(".npy"): bundle.read(name) for name in names if name.endswith(".npy")}
    except SnapshotError:
        raise
    except _DAMAGE as error:
        raise SnapshotError(
            f"{os.fspath(path)} is not a whole saved policy ({error}): it may be truncated, altered or of another "
            "kind. Save it again, or use a backup."
        ) from None
    if _digest(body, blobs) != checksum:
        raise SnapshotError(f"{os.fspath(path)} was altered after it was saved: its checksum differs. Use a backup.")
    arrays = {name: np.load(io.BytesIO(blob), allow_pickle=False) for name, blob in blobs.items()}
    return json.loads(body), arrays


def _check_seal(path: str | os.PathLike[str], seal: Any) -> str:
    """The checksum that a seal holds."""
    if not isinstance(seal, dict) or seal.get("magic") != MAGIC or "sha256" not in seal:
        raise SnapshotError(f"{os.fspath(path)} is not a saved policy. Use a file that save() wrote.")
    if seal.get("format") != FORMAT:
        raise SnapshotError(
            f"{os.fspath(path)} has format {seal.get('format')}, and this version of rarely reads format {FORMAT}. "
            "Install the version that wrote it."
        )
    return str(seal["sha256"])


def _npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _digest(body: bytes, blobs: dict[str, bytes]) -> str:
    digest = hashlib.sha256(body)
    for name in sorted(blobs):
        digest.update(name.encode())
        digest.update(blobs[name])
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """NumPy's numbers, and the arrays inside a generator's state, as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be saved as JSON")
