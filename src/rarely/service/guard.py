"""Limits on connections that hold before a key is read: size and time of a request, connections of an address.

uvicorn has none of them: half a request would keep its connection for ever, and a head of any length its memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rarely.service.writer import Limits


class GuardedProtocol(HttpToolsProtocol):
    """A connection that is closed if its request is too slow, or its head too long, or its address has too many."""

    limits: Limits
    addresses: Counter[str]  # open connections by the client's address; each service has a class with its own
    _head = 0  # bytes of the request so far that are not its body: head, trailers, frames of chunks
    _since: float | None = None  # when the first byte of an unfinished request came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address, self._since = (self.client or ("",))[0], self.loop.time()
        self.addresses[self._address] += 1
        if self.addresses[self._address] > self.limits.connections:
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS)

    def connection_lost(self, exc: Exception | None) -> None:
        self.addresses -= Counter([self._address])  # drops those of which none is left
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        self._since = self._since or self.loop.time()
        super().data_received(data)
        if self._head > self.limits.head:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_body(self, body: bytes) -> None:
        self._head -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head, self._since = 0, None
        super().on_message_complete()

    def expire(self, now: float) -> None:
        """Close the connection if its request should have arrived by now."""
        if self._since is not None and now > self._since + self.limits.arrival:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer, unless an answer is on its way, and close."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nretry-after: 1\r\ncontent-length: 0\r\n"
            self.transport.write(f"{head}connection: close\r\n\r\n".encode())
        self.transport.close()
