"""Services of the tests: on a free port of this machine, in a thread of the test."""

import http.client
import json
import threading
import time
from contextlib import contextmanager

from rarely.service.app import describe_api
from rarely.service.server import configured
from studies import contexts_of

PATIENCE = 300


class Reply:
    """A status, headers and what was said."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def content(self):
        return json.loads(self.body)


class Served:
    """A running service, and a connection of the caller's own."""

    def __init__(self, server, port, key=None):
        self.server, self.port, self.key = server, port, key
        self.url = f"http://127.0.0.1:{port}"

    @property
    def opened(self):
        return self.server.config.app.state.studies.opened("trial")

    @property
    def schema(self):
        return describe_api()

    def send(self, method, path, body=None, *, headers=None, key=None):
        """One request on a connection of its own; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes | type(None)) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data is not None else {}
        given |= {"Authorization": f"Bearer {key or self.key}"} if key or self.key else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, data, given | (headers or {}))
            return Reply(connection.getresponse())
        finally:
            connection.close()

    def post(self, verb, body, **options):
        return self.send("POST", f"/v1/studies/trial/{verb}", body, **options)

    def get(self, verb, **options):
        return self.send("GET", f"/v1/studies/trial/{verb}", **options)

    def decide(self, number, id=None):
        return self.post("decide", {"id": id or f"visit-{number}", "contexts": contexts_of(number).tolist()})

    def status(self):
        """As it is now: what the service tells may be a second old."""
        return self.opened.study.status()


@contextmanager
def serving(storage, announce=None, **options):
    """A service of the studies in a database."""
    server = configured(storage, port=0, **options)
    server.announce = announce
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started
    until(lambda: not server.config.app.state.studies.starting)
    try:
        yield Served(server, server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until(happened):
    """Wait for something that another thread does."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
