"""The server: from a storage string and an address to a running service."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any, Literal, TypedDict, Unpack

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rarely.errors import InvalidInput
from rarely.extend.checks import check_choice
from rarely.service.access import KeyFile, is_loopback
from rarely.service.app import REQUESTS, create_app
from rarely.service.writer import ServiceLimits

SWITCH_INTERVAL = 0.001
"""Seconds after which writer and event loop yield to each other; Python's default of 5 ms would add latency."""
GC_THRESHOLDS = (50_000, 20, 50)
"""With Python's defaults the garbage collector took a tenth of the service's time, to visit objects of requests that
reference counts free anyway."""
MAX_CONNECTIONS = 4000  # with more connections uvicorn answers 503 without reading the request
LogFormat = Literal["text", "json"]
TEXT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
OFF: dict[str, Any] = {"log_config": None, "access_log": False, "ws": "none", "server_header": False}
OFF["proxy_headers"] = False  # the limit of connections is for the address that connects: a proxy has its own


class GuardedProtocol(HttpToolsProtocol):
    """A connection that is closed if its request is too slow, or its head too long, or its address has too many.

    These limits hold before a key is read, and uvicorn has none of them: half a request would keep its connection for
    ever, and a head of any length its memory.
    """

    limits: ServiceLimits
    addresses: Counter[str]  # open connections by the client's address; each service has a class with its own
    _head = 0  # bytes of the request so far that are not its body: head, trailers, frames of chunks
    _since: float | None = None  # when the first byte of an unfinished request came

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
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


class AnnouncingServer(uvicorn.Server):
    """A server that announces its address, with the actual port, as soon as it listens.

    With `ends` it ends when a study works again only in a new process, for whoever starts it again.
    """

    announce: Callable[[str], None] | None = None
    ends = stopped = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.announce is not None:
            host = self.config.host
            port = self.servers[0].sockets[0].getsockname()[1]
            self.announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose request is late, and see what has stopped; uvicorn calls this ten times a second."""
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self.server_state.connections if isinstance(each, GuardedProtocol)]:
            connection.expire(now)
        app: Any = self.config.app
        if self.ends and any(each.stopped for each in app.state.studies.all()):
            self.stopped = self.should_exit = True
        return await super().on_tick(counter)


class Options(TypedDict, total=False):
    """The arguments of `create_app` besides the storage."""

    keys: KeyFile | None
    limits: ServiceLimits | None
    automatic: bool
    models: Sequence[Any]
    proxies: Sequence[str]


def configured(
    storage: str, *, host: str = "127.0.0.1", port: int = 8000, **options: Unpack[Options]
) -> AnnouncingServer:
    """Return a server that is ready to run, while it opens its studies.

    Raises `InvalidInput` if other machines could reach it without a key, and `BrokenStudy` if all studies are damaged.
    """
    keys, limits = options.get("keys"), options.get("limits") or ServiceLimits()
    if keys is None and not is_loopback(host):
        raise InvalidInput(
            f"{host} can be reached from other machines, so API keys are needed. Make one: rarely keys add keys.json "
            "NAME --scope decide, then rarely serve … --keys keys.json."
        )
    if keys is not None and not keys.all():
        raise InvalidInput(f"{keys.path} has no API keys. Make one: rarely keys add {keys.path} NAME --scope decide.")
    app = create_app(storage, **options)
    app.state.studies.start()  # before uvicorn, which would show a traceback for a damaged study
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        **OFF,
        http=type("Guarded", (GuardedProtocol,), {"limits": limits, "addresses": Counter()}),
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(limits.grace),
        limit_concurrency=MAX_CONNECTIONS,
    )
    return AnnouncingServer(config)


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the traceback if any, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        when = f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03d}Z"
        said = {"time": when, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        said |= getattr(record, "fields", {})
        said |= {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(said, ensure_ascii=False)


@contextmanager
def logging_to_stderr(form: LogFormat, *, requests: bool) -> Iterator[None]:
    """Send the messages of the service and of its server to standard error; as a library, rarely logs nothing."""
    handler, formatter = logging.StreamHandler(), (JsonFormatter if form == "json" else logging.Formatter)(TEXT)
    formatter.datefmt, formatter.converter = "%Y-%m-%dT%H:%M:%S", time.gmtime
    handler.setFormatter(formatter)
    levels = {"rarely": logging.INFO, "uvicorn": logging.WARNING, "py.warnings": logging.WARNING}
    loggers = [*map(logging.getLogger, levels), REQUESTS]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    logging.captureWarnings(True)
    for logger, level in zip(loggers, levels.values(), strict=False):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    REQUESTS.setLevel(logging.INFO if requests else logging.WARNING)
    try:
        yield
    finally:  # standard error may be another one by the time that somebody logs again
        logging.captureWarnings(False)
        for logger, handlers, propagate, level in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


def serve(
    storage: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    announce: Callable[[str], None] | None = None,
    log_format: LogFormat = "text",
    log_requests: bool = False,
    **options: Unpack[Options],
) -> bool:
    """Serve until a signal arrives, or a study works again only in a new process; return whether a signal ended it.

    Parameters
    ----------
    storage
        The argument of `create_app`.
    host, port
        The address to listen at; port 0 for any free port.
    announce
        Called with the address once the service listens; not called if it cannot.
    log_format, log_requests
        Whether the log on standard error has lines of "text" or "json"; whether it has one for each request.
    **options
        The other arguments of `create_app`.

    Examples
    --------
    >>> serve("sqlite:///trial.db", port=8000)  # doctest: +SKIP
    True
    """
    check_choice("log_format", log_format, LogFormat)
    with logging_to_stderr(log_format, requests=log_requests):
        server = configured(storage, host=host, port=port, **options)
        server.announce, server.ends = announce, True
        with suppress(ImportError, ValueError, OSError):
            import resource

            files = resource.RLIMIT_NOFILE  # of which 1024 are usual, and MAX_CONNECTIONS are more
            resource.setrlimit(files, (resource.getrlimit(files)[1],) * 2)
        sys.setswitchinterval(SWITCH_INTERVAL)
        gc.collect()
        gc.freeze()  # objects that live as long as the service need no further visits
        gc.set_threshold(*GC_THRESHOLDS)
        server.run()
        return server.started and not server.stopped
