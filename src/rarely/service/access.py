"""Who may do what: API keys with scopes, in a file, and the check that every route makes.

    key    rk_<name>_<secret>     secret: 32 random bytes; the file holds SHA-256(key)

A secret of 256 random bits cannot be guessed from its hash, so no slow hash is needed, and a key is checked with every
request. The file is read again when it has changed: adding or revoking a key needs no restart, and root may do it for
the service's user. A service whose file is damaged, gone or unreadable keeps the last good keys, logs it, and says so
in its metrics; a key that was revoked since still works then.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from starlette.requests import Request

from rarely.errors import InvalidInput
from rarely.extend.checks import check_choice, check_positive
from rarely.extend.provisional import replacing
from rarely.service.bodies import Refusal

Scope = Literal["decide", "reward", "read", "blinded", "look", "approve", "admin", "erase"]
SCOPES: tuple[str, ...] = get_args(Scope)
"""What a key may do. decide: request decisions. reward: report rewards. read: status, versions, metrics, dashboard and
analysis, which show arms. blinded: counts of a trial without arms. look: take its looks. approve: close arms and
enrolment, two keys together. admin: versions. erase: erase what is known of persons, and prune what is old."""
PREFIX = "rk"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
DUMMY = "0" * 64  # compared with if there are no keys, so that both cases take the same time
REALM = 'realm="rarely"'
BURST = 1.0  # seconds' worth of its rate that a key may use at once
LOG = logging.getLogger("rarely.service")


@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, hide_input_in_errors=True))
class Key:
    """An API key, as the file holds it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> keys = KeyFile(pathlib.Path(tempfile.mkdtemp()) / "keys.json")
    >>> key = keys.find(keys.add("shop", ["decide"]))
    >>> key.name, key.scopes, key.is_valid(now=0.0)
    ('shop', ('decide',), True)
    """

    name: str  #: Its owner, and the actor of everything done with it.
    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    scopes: tuple[str, ...]
    created: float  #: Seconds since 1970.
    expires: float | None = None  #: Seconds since 1970; None for no end.
    studies: list[str] | None = None  #: The studies that it may be used for; None for all.
    rate: Annotated[float, Field(gt=0)] | None = None
    """Decisions, rewards and other requests a second; None for no limit."""

    def covers(self, study: str) -> bool:
        """Return whether the key may be used for a study."""
        return self.studies is None or study in self.studies

    def is_valid(self, now: float) -> bool:
        """Return whether the key has not expired."""
        return self.expires is None or now < self.expires


ANYONE = Key("", secrets.token_hex(32), SCOPES, 0.0)
"""Who calls where no keys are needed; the hash is a secret of this process, as that of a key is one of its owner."""


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
    >>> keys.find(secret) is None
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._seen: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()
        self._spent: dict[str, float] = {}  # until when the rate of a key is used up, by name
        self.failure = ""  #: Why the last good keys are in use; "" if those of the file are.

    def all(self) -> tuple[Key, ...]:
        """Return all keys, reading the file again if it has changed; the last good ones if it is damaged."""
        try:
            self._keys, self.failure = self.read(), ""
        except InvalidInput as error:
            if self._seen is None:
                raise
            if not self.failure:
                LOG.error("the last good keys stay in use, also those revoked since: %s", error)
            self.failure = str(error)
        return self._keys

    def read(self) -> tuple[Key, ...]:
        """Return the keys of the file, which may not exist yet; `InvalidInput` if it is damaged, or gone."""
        try:
            file = os.stat(self.path)
            seen = (file.st_mtime_ns, file.st_size, file.st_ino)
            if seen == self._seen:
                return self._keys
            with open(self.path, encoding="utf-8") as text:
                rows = json.load(text)["keys"]
            self._keys = tuple(Key(**row | {"scopes": tuple(row["scopes"])}) for row in rows)
            self._seen = seen
            return self._keys
        except FileNotFoundError:
            if self._seen is None:
                return ()
            raise InvalidInput(f"{self.path} is gone. Put it back, or make keys: rarely keys add.") from None
        except PermissionError as error:
            advice = f"Give it back to the service's user: chown USER {self.path}."
            raise InvalidInput(f"{self.path} cannot be read by this user. {advice}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInput(
                f"{self.path} is not a file of API keys ({error}). Make one: rarely keys add."
            ) from error

    def charge(self, key: Key, calls: int, *, admit: bool = False) -> None:
        """Count calls against the rate of a key; with `admit`, before a body is read, refuse them if it is used up."""
        if key.rate is None:
            return
        now = time.monotonic()
        spent = max(self._spent.get(key.name, now), now)
        if admit and spent - now > BURST:
            headers = {"Retry-After": str(math.ceil(spent - now - BURST))}
            raise Refusal(429, f"the key may make {key.rate:g} calls a second.", "RateExceeded", headers=headers)
        self._spent[key.name] = spent + calls / key.rate

    def find(self, secret: str, now: float | None = None) -> Key | None:
        """Return the valid key with this secret; None if there is none."""
        hash, now = _hash(secret), time.time() if now is None else now
        keys = self.all() or (Key("", DUMMY, (), 0.0),)
        same = [key for key in keys if hmac.compare_digest(hash, key.hash)]  # all, so that the time tells nothing
        return next((key for key in same if key.is_valid(now)), None)

    def add(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        expires: float | None = None,
        studies: Iterable[str] | None = None,
        rate: float | None = None,
    ) -> str:
        """Make a key, and return its secret, which is not stored; the arguments are the fields of `Key`."""
        if _NAME.fullmatch(name) is None:
            raise InvalidInput(f"the name of a key must be 1 to 40 characters of a–z, 0–9 and -; got {name!r}.")
        if any(key.name == name for key in self.read()):
            raise InvalidInput(f"there is already a key called {name!r}; revoke it, or choose another name.")
        allowed = tuple(dict.fromkeys(scopes))
        if not allowed:
            raise InvalidInput(f"a key needs at least one scope of {', '.join(SCOPES)}.")
        for scope in allowed:
            check_choice("scope", scope, Scope)
        if rate is not None:
            check_positive("rate", rate, "the calls a second")
        only = None if studies is None else list(dict.fromkeys(studies))
        secret = f"{PREFIX}_{name}_{secrets.token_urlsafe(32)}"
        self._write([*self.read(), Key(name, _hash(secret), allowed, time.time(), expires, only, rate)])
        return secret

    def revoke(self, name: str) -> None:
        """Remove a key."""
        names = [key.name for key in self.read()]
        if name not in names:
            raise InvalidInput(f"there is no key called {name!r}; {self.path} has {', '.join(names) or 'none'}.")
        self._write([key for key in self.read() if key.name != name])

    def _write(self, keys: Sequence[Key]) -> None:
        if os.name == "posix" and os.path.exists(self.path) and os.geteuid() not in (0, os.stat(self.path).st_uid):
            raise InvalidInput(
                f"{self.path} belongs to another user, who could not read what this one writes; nothing was changed. "
                "Run the command as its owner, or as root."
            )
        with replacing(self.path, 0o600) as file:
            file.write(json.dumps({"keys": [asdict(key) for key in keys]}, indent=2).encode())
        self._seen, self._keys = None, tuple(keys)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    with suppress(ValueError):
        return host.lower().rstrip(".") == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def caller_of(keys: KeyFile | None, request: Request, scope: str, study: str | None = None) -> Key:
    """Return the caller's key, or `ANYONE`; `Refusal` without a key that has the scope and covers the study.

    Without keys, only this machine's own names are answered: another site may let its name resolve to this machine.
    """
    if keys is None:
        if not _names_loopback(request.headers.get("host", "")):
            detail = "without API keys the service only answers to localhost; start it with --keys to use another name."
            raise Refusal(421, detail, "WrongHost")
        return ANYONE
    secret = _secret(request.headers.get("authorization", "")) or request.headers.get("ocp-apim-subscription-key")
    if secret is None:
        detail = f"this route needs an API key with the scope {scope!r}: Authorization: Bearer rk_…"
        raise Refusal(401, detail, "KeyNeeded", {"WWW-Authenticate": f"Bearer {REALM}, Basic {REALM}"})
    key = keys.find(secret)
    if key is None:
        headers = {"WWW-Authenticate": f'Bearer {REALM}, error="invalid_token", Basic {REALM}'}
        raise Refusal(401, "the API key is unknown, revoked or expired.", "KeyRefused", headers=headers)
    if scope not in key.scopes:
        has = ", ".join(name for name in SCOPES if name in key.scopes)
        raise Refusal(403, f"this route needs the scope {scope!r}; the key has {has}.", "ScopeMissing")
    if study is not None and not key.covers(study):
        raise Refusal(403, "the key is for other studies.", "StudyNotAllowed")
    keys.charge(key, 1, admit=True)
    return key


@lru_cache
def _names_loopback(host: str) -> bool:
    with suppress(ValueError):  # an invalid name, such as "["
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    return False


def _secret(header: str) -> str | None:
    """Return the key in an Authorization header: Bearer, or the password of Basic, which browsers can send."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.strip() or None
    with suppress(ValueError):  # binascii.Error is one, too
        if kind.lower() == "basic":
            return base64.b64decode(value, validate=True).decode().partition(":")[2] or None
    return None
