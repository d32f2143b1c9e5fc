"""API keys: shown once, kept as hashes in a file, each with its scopes.

    key    rk_<name>_<secret>     secret: 32 random bytes; the file holds SHA-256(key)

A secret of 256 random bits cannot be guessed from its hash, so no slow hash is needed, and a key is checked with every
request. The file is read again when it has changed: a key that is added, rotated or revoked needs no restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from rarely.core.errors import InvalidInput, check_choice
from rarely.core.saving.files import replacing

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)
"""decide: ask for decisions. reward: tell rewards. read: status, versions, metrics, dashboard. admin: versions."""
PREFIX = "rk"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
DUMMY = "0" * 64
"""Compared with where there is no such key, so that both take the same time."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key, as the file holds it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> keys = KeyFile(pathlib.Path(tempfile.mkdtemp()) / "keys.json")
    >>> key = keys.find(keys.add("shop", ["decide"]))
    >>> key.name, key.scopes, key.is_valid(now=0.0)
    ('shop', ('decide',), True)
    """

    name: str
    """Whose it is; the actor of what is done with it."""
    hash: str
    scopes: tuple[str, ...]
    created: float
    """Seconds since 1970."""
    expires: float | None = None
    """None for no end."""

    def is_valid(self, now: float) -> bool:
        """Whether it is still accepted."""
        return self.expires is None or now < self.expires


class KeyFile:
    """A file of API keys.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> keys = KeyFile(pathlib.Path(tempfile.mkdtemp()) / "keys.json")
    >>> secret = keys.add("shop", ["decide", "reward"])
    >>> keys.find(secret).scopes
    ('decide', 'reward')
    >>> keys.revoke("shop")
    1
    >>> keys.find(secret) is None
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._seen: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()

    def all(self) -> tuple[Key, ...]:
        """All keys, read again if the file has changed."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            self._seen, self._keys = None, ()
            return ()
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._seen:
            self._keys, self._seen = self._read(), seen
        return self._keys

    def find(self, secret: str, now: float | None = None) -> Key | None:
        """The key that is valid now; None if there is none."""
        hash, now = _hash(secret), time.time() if now is None else now
        found = None
        for key in self.all() or (Key("", DUMMY, (), 0.0),):
            if hmac.compare_digest(hash, key.hash) and key.is_valid(now):
                found = key
        return found

    def add(self, name: str, scopes: Iterable[str], *, expires: float | None = None) -> str:
        """Make a key; the secret, which is told once."""
        if _NAME.fullmatch(name) is None:
            raise InvalidInput(f"the name of a key must be 1 to 40 of a–z, 0–9 and -; got {name!r}.")
        if any(key.name == name for key in self.all()):
            raise InvalidInput(f"there is a key called {name!r}; rotate or revoke it, or choose another name.")
        return self._write_with(self.all(), name, tuple(scopes), expires)

    def rotate(self, name: str, *, grace: float = 0.0) -> str:
        """Make a new secret for a key; the old one is accepted for `grace` seconds more."""
        old = [key for key in self.all() if key.name == name]
        if not old:
            raise InvalidInput(f"there is no key called {name!r}; {self._known()}.")
        end = time.time() + grace
        ending = [replace(key, expires=end if key.expires is None else min(end, key.expires)) for key in old]
        others = [key for key in self.all() if key.name != name]
        return self._write_with([*others, *(ending if grace > 0 else ())], name, old[-1].scopes, None)

    def revoke(self, name: str) -> int:
        """Drop a key and its earlier secrets; how many there were."""
        kept = [key for key in self.all() if key.name != name]
        dropped = len(self.all()) - len(kept)
        if not dropped:
            raise InvalidInput(f"there is no key called {name!r}; {self._known()}.")
        self._write(kept)
        return dropped

    def _write_with(self, others: Sequence[Key], name: str, scopes: tuple[str, ...], expires: float | None) -> str:
        """Write the other keys and a new one; its secret."""
        if not scopes:
            raise InvalidInput(f"a key needs at least one scope of {', '.join(SCOPES)}.")
        for scope in scopes:
            check_choice("scope", scope, Scope)
        secret = f"{PREFIX}_{name}_{secrets.token_urlsafe(32)}"
        key = Key(name, _hash(secret), tuple(dict.fromkeys(scopes)), time.time(), expires)
        self._write([*others, key])
        return secret

    def _known(self) -> str:
        names = sorted({key.name for key in self.all()})
        return f"{self.path} has {', '.join(names) if names else 'none'}"

    def _read(self) -> tuple[Key, ...]:
        try:
            with open(self.path, encoding="utf-8") as file:
                rows = json.load(file)["keys"]
            return tuple(Key(**row | {"scopes": tuple(row["scopes"])}) for row in rows)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{self.path} is no file of API keys ({error}); rarely keys add makes one.") from error

    def _write(self, keys: Sequence[Key]) -> None:
        if not os.path.exists(self.path):
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
        rows: list[dict[str, Any]] = [asdict(key) for key in keys]
        with replacing(self.path) as file:
            file.write(json.dumps({"keys": rows}, indent=2).encode())
        self._seen = None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()
