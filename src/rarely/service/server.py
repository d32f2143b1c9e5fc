"""The server: from a storage string and an address to a running service."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypedDict, Unpack

import uvicorn

from rarely import InvalidInput
from rarely._core.errors import check_choice
from rarely.service.access import KeyFile, is_loopback
from rarely.service.app import create_app
from rarely.service.guard import GuardedProtocol
from rarely.service.logs import LogFormat, configure_logs
from rarely.service.writer import Limits

SWITCH_INTERVAL = 0.001
"""Seconds after which writer and event loop yield to each other; Python's default of 5 ms would add latency."""
GC_THRESHOLDS = (50_000, 20, 50)
"""With Python's defaults the garbage collector took a tenth of the service's time, to visit objects of requests that
reference counts free anyway."""
MAX_CONNECTIONS = 4000
"""With more connections uvicorn answers 503 without reading the request."""


OFF: dict[str, Any] = {"log_config": None, "access_log": False, "ws": "none", "server_header": False}
OFF["proxy_headers"] = False  # the limit of connections is for the address that connects: a proxy has its own


class AnnouncingServer(uvicorn.Server):
    """A server that announces its address, with the actual port, as soon as it listens."""

    announce: Callable[[str], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.announce is not None:
            host = self.config.host
            port = self.servers[0].sockets[0].getsockname()[1]
            self.announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose request is late; uvicorn calls this ten times a second."""
        now = asyncio.get_running_loop().time()
        for connection in [each for each in self.server_state.connections if isinstance(each, GuardedProtocol)]:
            connection.expire(now)
        return await super().on_tick(counter)


class Options(TypedDict, total=False):
    """The arguments of `create_app` besides the storage."""

    keys: KeyFile | None
    limits: Limits | None
    automatic: bool


def configured(
    storage: str, *, host: str = "127.0.0.1", port: int = 8000, **options: Unpack[Options]
) -> AnnouncingServer:
    """Return a server that is ready to run, with all studies open.

    Raises `InvalidInput` if other machines could reach it without a key, and `BrokenStudy` if a study is damaged.
    """
    keys, limits = options.get("keys"), options.get("limits") or Limits()
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
    """Serve until a signal arrives, and return whether the service could start.

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
    server = configured(storage, host=host, port=port, **options)
    configure_logs(log_format, requests=log_requests)
    server.announce = announce
    with suppress(ImportError, ValueError, OSError):
        import resource

        files = resource.RLIMIT_NOFILE  # of which 1024 are usual, and MAX_CONNECTIONS are more
        resource.setrlimit(files, (resource.getrlimit(files)[1],) * 2)
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()  # objects that live as long as the service need no further visits
    gc.set_threshold(*GC_THRESHOLDS)
    server.run()
    return server.started
