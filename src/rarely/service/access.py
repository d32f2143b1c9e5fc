"""Who may do what: a key with the scope that a route needs, or nobody's key on loopback."""

from __future__ import annotations

import base64
import binascii
import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi import Request

from rarely.service.headers import header
from rarely.service.keys import SCOPES, KeyFile
from rarely.service.problems import Refusal

REALM = 'realm="rarely"'


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Access:
    """The keys that a service asks for; None where it is reached from this machine alone and asks for none."""

    keys: KeyFile | None

    def caller(self, request: Request, scope: str) -> str:
        """The name of the key's owner; `Refusal` without a key that has the scope."""
        if self.keys is None:
            self._check_host(request)
            return ""
        secret = _secret(header(request, b"authorization"))
        if secret is None:
            raise Refusal(
                401,
                f"this needs an API key with the scope {scope!r}: Authorization: Bearer rk_…",
                code="KeyNeeded",
                headers={"WWW-Authenticate": f"Bearer {REALM}, Basic {REALM}"},
            )
        key = self.keys.find(secret)
        if key is None:
            headers = {"WWW-Authenticate": f'Bearer {REALM}, error="invalid_token", Basic {REALM}'}
            raise Refusal(401, "the API key is unknown, revoked or expired.", code="KeyRefused", headers=headers)
        if scope not in key.scopes:
            told = ", ".join(name for name in SCOPES if name in key.scopes)
            raise Refusal(403, f"this needs the scope {scope!r}; the API key has {told}.", code="ScopeMissing")
        return key.name

    def _check_host(self, request: Request) -> None:
        """Without keys, answer to this machine's own names alone: a page of another site may point its name here."""
        if not _names_loopback(header(request, b"host")):
            raise Refusal(
                421,
                "without API keys the service answers to localhost alone; start it with --keys to use another name.",
                code="WrongHost",
            )


@lru_cache
def _names_loopback(host: str) -> bool:
    """Whether a Host header names this machine."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:  # no name of any machine, such as "["
        return False


def _secret(header: str) -> str | None:
    """The key of an Authorization header: Bearer, or the password of Basic, which browsers can send."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer" and value.strip():
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2] or None
        except (binascii.Error, ValueError):
            return None
    return None
