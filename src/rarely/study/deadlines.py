"""HTTP connections whose requests end by a deadline, however slowly the other side sends."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


def left(end: float) -> float:
    """Return the seconds until a moment of the monotonic clock; TimeoutError if there are none."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds


class _Received(io.RawIOBase):
    """What a socket receives until a deadline: the timeout of a socket alone begins again with every byte."""

    def __init__(self, sock: Any, end: float) -> None:
        self._sock, self._end, self._raw = sock, end, sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(left(self._end))
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return what an `HTTPResponse` reads from."""
        return io.BufferedReader(self)


class Connection(http.client.HTTPConnection):
    """A connection with `end`, by which everything must be done."""

    end = float("inf")

    def __init__(self, *address: Any) -> None:
        super().__init__(*address)
        self._create_connection = self._connected
        self.response_class: Any = lambda sock, **more: http.client.HTTPResponse(_Received(sock, self.end), **more)  # type: ignore[arg-type]

    def _connected(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Connect to the first address of a name that answers."""
        failure = OSError(f"{address[0]} has no address")
        for found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            try:
                return socket.create_connection((str(found[4][0]), address[1]), left(self.end))
            except OSError as error:
                failure = error
        raise failure

    def send(self, data: Any) -> None:
        if self.sock is not None:
            self.sock.settimeout(left(self.end))
        super().send(data)


class SecureConnection(Connection, http.client.HTTPSConnection):
    """The same over TLS."""
