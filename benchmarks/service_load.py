"""The service under load: requests at a constant rate, whatever it answers, and the disk's own rate beside the figures.

    PYTHONPATH=src python benchmarks/service_load.py --rate 1000 --seconds 20

A closed loop, which sends the next request when the last was answered, slows down with the service and hides its queue.
Here request i is due at time i/rate; its latency counts from then, also if no connection was free. The service runs in
a process of its own with SQLite, K arms, a network of m units and a record of some past rounds; the generator and the
service share the cores. Halfway through, with --update, a version is trained, and the seconds of the training are told
apart. `fsync` is how often this disk confirms a small write: a commit takes at least one. With --empty the same
requests go to an endpoint of Starlette that reads the body and answers {}, on the same server: the share of the rate
that is left for decisions.

    PYTHONPATH=src python benchmarks/service_load.py --clients 64 1 --policy linucb --arms 4 --past 250

With --clients so many send a request whenever their last one was answered, to the service and to the empty endpoint in
turns: the processor time of a request is then said as a multiple of the empty endpoint's, the median over the turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rarely import BatchNeuralUCB, FixedGrid, LinUCB, Policy
from rarely.study import Client, Request, Study

EMPTY = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
async def empty(request):
    await request.body()
    return Response("{}", media_type="application/json")
app = Starlette(routes=[Route("/v1/studies/{name}/decide", empty, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", log_level="warning", access_log=False)
"""
TOGETHER = 250
TURNS, REQUESTS = 6, 400
CONNECTIONS = 512
PATIENCE = 60
"""Seconds after the last request is due in which those that wait for a connection are sent, or dropped as unsent."""


def fsync_rate(folder: Path, seconds: float = 1.0) -> float:
    """Small writes that the disk confirms in a second, one by one."""
    with open(folder / "probe", "wb") as file:
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
            count += 1
    return count / (time.perf_counter() - begun)


def make_study(storage: str, options: argparse.Namespace) -> None:
    """A study with past rounds and their rewards."""
    schedule = FixedGrid(10 * options.past + 100_000, 20)
    policy: Policy = BatchNeuralUCB(
        dim=options.dim, schedule=schedule, hidden=options.hidden, within_batch=options.within_batch, seed=0
    )
    if options.policy != "network":
        policy = {"linucb": LinUCB, "default": BatchNeuralUCB}[options.policy](options.dim, schedule, seed=0)
    rng = np.random.default_rng(0)
    with Study.create(storage, "load", policy=policy, arms=options.arms) as study:
        for first in range(0, options.past, TOGETHER):
            contexts = rng.normal(size=(TOGETHER, options.arms, options.dim)).round(4)
            answers = study.ask_many([Request(each, f"past-{first + i}") for i, each in enumerate(contexts)])
            study.tell_many([(answer.id, float(rng.random())) for answer in answers])
        if options.policy == "default":  # whose version 0 has no model
            study.update()


class Connection(asyncio.Protocol):
    """One connection: a request out, an answer in."""

    def __init__(self, load: Load) -> None:
        self.load, self.due, self.got, self.need, self.busy = load, 0.0, b"", -1, False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.load.free(self)

    def send(self, due: float, data: bytes) -> None:
        self.due, self.got, self.need, self.busy = due, b"", -1, True
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.got += data
        if self.need < 0:
            end = self.got.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.got[:end].lower()
            at = head.index(b"content-length:") + 15
            self.need = end + 4 + int(head[at : head.find(b"\r\n", at) if b"\r\n" in head[at:] else None])
        if len(self.got) >= self.need:
            self.busy = False
            self.load.answered(self.due, int(self.got[9:12]))
            self.load.free(self)

    def connection_lost(self, error) -> None:
        self.load.lost += self.busy
        if self in self.load.idle:
            self.load.idle.remove(self)


class Load:
    """Requests at their times, on connections that are free; those that find none wait, and their clock runs."""

    def __init__(self, port: int, options: argparse.Namespace) -> None:
        self.port, self.options = port, options
        self.idle: list[Connection] = []
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.found: list[tuple[float, float, int]] = []
        self.lost = self.unsent = 0
        rng = np.random.default_rng(1)
        self.bodies = [json.dumps(rng.normal(size=(options.arms, options.dim)).round(4).tolist()) for _ in range(200)]

    def request(self, number: int) -> bytes:
        body = f'{{"id":"load-{self.options.tag}-{number}","contexts":{self.bodies[number % 200]}}}'.encode()
        head = "POST /v1/studies/load/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def free(self, connection: Connection) -> None:
        if self.waiting:
            connection.send(*self.waiting.popleft())
        else:
            self.idle.append(connection)

    def answered(self, due: float, status: int) -> None:
        self.found.append((due - self.begun, time.perf_counter() - due, status))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        total = int(self.options.rate * self.options.seconds)
        self.begun = time.perf_counter() + 0.1
        for number in range(total):
            due = self.begun + number / self.options.rate
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            data = self.request(number)
            if self.idle:
                self.idle.pop().send(due, data)
            else:
                self.waiting.append((due, data))
            if number % 50 == 0:
                await asyncio.sleep(0)
        await self._drained(PATIENCE, lambda: not self.waiting)
        self.unsent = len(self.waiting)
        self.waiting.clear()
        await self._drained(PATIENCE, lambda: len(self.found) + self.lost + self.unsent == total)

    async def _drained(self, seconds: float, done: Callable[[], bool]) -> None:
        end = time.perf_counter() + seconds
        while not done() and time.perf_counter() < end:
            await asyncio.sleep(0.05)


class Closed(Load):
    """Clients that send when their last request was answered."""

    sent, total = 0, REQUESTS

    def free(self, connection: Connection) -> None:
        if self.sent < self.total:
            self.sent += 1
            connection.send(time.perf_counter(), self.request(self.sent))
        elif len(self.found) == self.total:
            self.done.set()

    async def play(self, clients: int) -> None:
        loop, self.begun, self.done = asyncio.get_running_loop(), time.perf_counter(), asyncio.Event()
        made = [await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port) for _ in range(clients)]
        await self.done.wait()
        for transport, _ in made:
            transport.close()


def figures(name: str, rows: list[tuple[float, float, int]], seconds: float) -> dict[str, object]:
    """Rate and latency of the decisions among some answers."""
    late = np.array([latency for _, latency, status in rows if status == 200]) * 1e3
    statuses = {str(status): sum(s == status for _, _, s in rows) for status in sorted({s for _, _, s in rows})}
    cuts = (
        dict(zip(("p50", "p99", "p999", "most"), np.quantile(late, [0.5, 0.99, 0.999, 1.0]).round(1), strict=True))
        if len(late)
        else {}
    )
    return {
        "part": name,
        "decisions/s": round(len(late) / seconds),
        **{k: float(v) for k, v in cuts.items()},
        "statuses": statuses,
    }


def memory_of(process: int) -> float:
    """Resident memory of a process in MiB."""
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def cpu_of(process: int) -> float:
    """Seconds of CPU that a process has used; not those of the processes that it started, or of ended threads."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def measure_empty(options: argparse.Namespace) -> None:
    """Send the requests to an empty endpoint, and print the same figures."""
    service = subprocess.Popen([sys.executable, "-c", EMPTY, str(options.port)])
    try:
        time.sleep(3)
        load, spent = Load(options.port, options), cpu_of(service.pid)
        asyncio.run(load.run())
        print(json.dumps(figures("empty", load.found, options.seconds)))
        print(f"CPU a request: empty endpoint {(cpu_of(service.pid) - spent) / len(load.found) * 1e3:.2f} ms")
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(60)


def measure_turns(service: int, options: argparse.Namespace) -> None:
    """Print the processor time of a request for each number of clients, beside an empty endpoint's."""
    empty = subprocess.Popen([sys.executable, "-c", EMPTY, str(options.port + 1)])
    try:
        time.sleep(3)
        for clients in options.clients:
            costs: dict[int, list[float]] = {service: [], empty.pid: []}
            for turn in range(TURNS):
                for port, (process, found) in enumerate(costs.items(), options.port):
                    options.tag = f"{time.time():.0f}-{clients}-{turn}"
                    load, spent = Closed(port, options), cpu_of(process)
                    asyncio.run(load.play(clients))
                    assert all(status == 200 for *_, status in load.found), "a request was refused"
                    found.append((cpu_of(process) - spent) / REQUESTS * 1e6)
            ours, bare = map(np.array, costs.values())
            print(
                f"{options.policy}, {clients} clients: {np.median(ours):.0f} µs of CPU a request, "
                f"{np.median(ours / bare):.1f} times an empty endpoint's {np.median(bare):.0f}",
                flush=True,
            )
    finally:
        empty.send_signal(signal.SIGTERM)
        empty.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"rate": 1000.0, "seconds": 20.0}.items():
        parser.add_argument(f"--{name}", type=float, default=value)
    for name, value in {"past": 20_000, "arms": 10, "dim": 10, "hidden": 64, "port": 8123, "waiting": 2000}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--within-batch", default="frozen")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--empty", action="store_true", help="measure an empty endpoint of FastAPI instead")
    parser.add_argument("--policy", choices=("network", "linucb", "default"), default="network")
    parser.add_argument("--clients", type=int, nargs="+", help="closed loops of so many clients, in turns with --empty")
    parser.add_argument("--folder", type=Path, help="where the database is kept and used again")
    options = parser.parse_args()
    options.tag = f"{time.time():.0f}"
    if options.empty:
        measure_empty(options)
        return
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{folder / 'load.db'}"
    if not (folder / "load.db").exists():
        make_study(storage, options)
    rate = fsync_rate(folder)
    command = [sys.executable, "-m", "rarely", "serve", storage, "--port", str(options.port), "--no-train"]
    service = subprocess.Popen([*command, "--waiting", str(options.waiting)], stdout=subprocess.DEVNULL)
    try:
        client = Client(f"http://127.0.0.1:{options.port}", "load", retries=60, backoff=0.5)
        before = client.status()
        if options.clients:
            measure_turns(service.pid, options)
            return
        load, trained = Load(options.port, options), [0.0, 0.0]

        async def update() -> None:
            await asyncio.sleep(options.seconds / 4)
            trained[0] = options.seconds / 4
            await asyncio.to_thread(client.activate, "next", force=True)
            while (await asyncio.to_thread(client.status))["training"]:
                await asyncio.sleep(0.5)
            trained[1] = time.perf_counter() - load.begun

        async def both() -> None:
            await asyncio.gather(load.run(), *([update()] if options.update else []))

        memory, spent, usage = memory_of(service.pid), cpu_of(service.pid), resource.getrusage(resource.RUSAGE_SELF)
        own = usage.ru_utime + usage.ru_stime
        asyncio.run(both())
        print(f"fsync/s {rate:.0f}, cores {os.cpu_count()}, load average {os.getloadavg()[0]:.1f}")
        parts = {"all": load.found}
        if options.update:
            parts["training"] = [row for row in load.found if trained[0] <= row[0] <= trained[1]]
            parts["no training"] = [row for row in load.found if not trained[0] <= row[0] <= trained[1]]
        spans = {"all": options.seconds, "training": trained[1] - trained[0]}
        for name, rows in parts.items():
            span = spans.get(name, options.seconds - min(spans["training"], options.seconds - trained[0]))
            print(json.dumps(figures(name, rows, max(span, 1e-9))))
        time.sleep(1.5)
        after = client.status()
        made = after["decisions"] - before["decisions"]
        decided = sum(status == 200 for _, _, status in load.found)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(
            f"requests {int(options.rate * options.seconds)}, unsent {load.unsent}, answered {len(load.found)}, "
            f"lost {load.lost}, decided {decided}, on record {made}, version {before['version']} → {after['version']}, "
            f"memory of the service {memory:.0f} → {memory_of(service.pid):.0f} MiB, CPU a request: service "
            f"{(cpu_of(service.pid) - spent) / len(load.found) * 1e3:.2f} ms, generator "
            f"{(usage.ru_utime + usage.ru_stime - own) / len(load.found) * 1e3:.2f} ms"
        )
        rewards = after["rewards"]
        parts = sum(rewards[name] for name in ("used", "pending", "late", "quarantined"))
        print(f"rewards: received {rewards['received']}, used + pending + late + quarantined {parts}")
        assert len(load.found) + load.lost + load.unsent == int(options.rate * options.seconds), (
            "no answer to a request"
        )
        assert rewards["received"] == parts, "a reward is not accounted for"
        assert made == decided, "an answered decision is not on record, or one on record was not answered"
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(60)


if __name__ == "__main__":
    main()
