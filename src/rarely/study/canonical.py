"""JSON in one form, and arrays as bytes: what hashes are taken of."""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from rarely.core.saving.archive import plain
from rarely.core.types import Array

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain)


def canonical(value: Any) -> str:
    """The value as JSON with sorted names and no spaces; floats as `repr` gives them.

    >>> canonical({"b": 0.1, "a": [1, None, "é"]})
    '{"a":[1,null,"é"],"b":0.1}'
    """
    return _ENCODER.encode(value)


def canonical_text(value: str | None) -> str:
    """`canonical` of a text or None, which makes no encoder.

    >>> canonical_text('a "b"'), canonical_text(None)
    ('"a \\\\"b\\\\""', 'null')
    """
    return "null" if value is None else encode_basestring(value)


def digest(*parts: str | bytes) -> str:
    """The SHA-256 of the parts in order, each with its length in front.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    data = [part.encode() if isinstance(part, str) else part for part in parts]
    return hashlib.sha256(b"".join(piece for part in data for piece in (b"%d:" % len(part), part))).hexdigest()


def packed(*arrays: Any) -> bytes:
    """Numbers as little-endian float64, one array after another."""
    return b"".join(np.ascontiguousarray(array, "<f8").tobytes() for array in arrays)


def unpacked(data: bytes, *sizes: int) -> list[Array]:
    """The inverse for arrays of these sizes; ValueError where the sizes are others.

    >>> [array.tolist() for array in unpacked(packed([1.0, 2.0], [3.0]), 2, 1)]
    [[1.0, 2.0], [3.0]]
    """
    values = np.frombuffer(data, "<f8").astype(np.float64)
    if len(values) != sum(sizes):
        raise ValueError(f"{sum(sizes)} numbers are expected, and there are {len(values)}")
    ends = np.cumsum(sizes)
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]
