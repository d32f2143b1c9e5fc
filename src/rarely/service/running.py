"""From a storage string and an address to a running service."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable
from typing import TypedDict, Unpack

import uvicorn

from rarely.core.errors import InvalidInput
from rarely.service.access import is_loopback
from rarely.service.app import create_app
from rarely.service.keys import KeyFile
from rarely.service.limits import Limits

TURN = 0.001
"""Seconds after which the writer lets the event loop run, and the other way round; Python's own 5 ms would be felt."""
COLLECTION = (50_000, 20, 50)
"""Thresholds of the garbage collector. With Python's own, a tenth of the service's time went into looking through
objects of requests, which reference counts free anyway."""
MOST_CONNECTIONS = 4000
"""Beyond it uvicorn answers 503 without reading the request."""


class AnnouncingServer(uvicorn.Server):
    """Says where it listens once it does, with the port that it was given where any was asked for."""

    announce: Callable[[str], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, and say where."""
        await super().startup(sockets)
        if self.started and self.announce is not None:
            host = self.config.host
            port = self.servers[0].sockets[0].getsockname()[1]
            self.announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")


class Options(TypedDict, total=False):
    """What `create_app` takes besides the storage."""

    keys: KeyFile | None
    limits: Limits | None
    automatic: bool
    read_only: bool


def configured(
    storage: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: KeyFile | None = None,
    limits: Limits | None = None,
    automatic: bool = True,
    read_only: bool = False,
) -> AnnouncingServer:
    """A server that is ready to run, with all studies open.

    Raises
    ------
    InvalidInput
        If others could reach it without a key.
    BrokenStudy
        If a study is damaged.
    """
    if keys is None and not is_loopback(host):
        raise InvalidInput(
            f"{host} can be reached from other machines, so API keys are needed: rarely keys add keys.json NAME "
            "--scope decide, then rarely serve … --keys keys.json."
        )
    if keys is not None and not keys.all():
        raise InvalidInput(f"{keys.path} has no API keys; make one: rarely keys add {keys.path} NAME --scope decide.")
    limits = Limits() if limits is None else limits
    app = create_app(storage, keys=keys, limits=limits, automatic=automatic, read_only=read_only)
    app.state.studies.start()  # before uvicorn, which would answer a damaged study with a traceback
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on the client's address or scheme
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(limits.grace),
        limit_concurrency=MOST_CONNECTIONS,
    )
    return AnnouncingServer(config)


def serve(
    storage: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    announce: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> bool:
    """Serve until a signal comes; whether the service could start.

    See `create_app` for the other options.

    Parameters
    ----------
    storage
        As in `create_app`.
    host, port
        Where to listen; port 0 for any that is free.
    announce
        Called with the address when the service listens there, and not at all if it cannot.
    **options
        The other arguments of `create_app`.

    Examples
    --------
    >>> serve("sqlite:///trial.db", port=8000)  # doctest: +SKIP
    True
    """
    server = configured(storage, host=host, port=port, **options)
    server.announce = announce
    sys.setswitchinterval(TURN)
    gc.collect()
    gc.freeze()  # what a service keeps for its life is not looked through again
    gc.set_threshold(*COLLECTION)
    server.run()
    return server.started
