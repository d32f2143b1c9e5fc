"""The client: the verbs of a study over HTTP, repeated until they are answered, and rewards that wait in a file."""

import asyncio
import contextlib
import inspect
import json
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rarely._core.errors import InvalidContexts, InvalidInput, InvalidReward
from rarely.study import (
    AsyncClient,
    Client,
    FallbackWarning,
    NotDelivered,
    RequestRefused,
    RewardRule,
    ServiceUnavailable,
    Study,
    StudyConflict,
    UnknownDecision,
    UnknownStudy,
)
from rarely.study.client import Spool
from services import PATIENCE, serving
from studies import contexts_of, linear


@pytest.fixture
def client(served):
    with Client(served.url, "trial", backoff=0.01) as client:
        yield client


def test_the_client_answers_as_the_study_does(client, served):
    answer = client.ask(contexts_of(1), id="visit-1")
    assert client.ask(contexts_of(1), id="visit-1") == answer == served.opened.study.decision("visit-1").answer
    assert client.tell("visit-1", 1.0).status == "accepted"
    assert client.tell("visit-1", 1.0).status == "duplicate"
    assert client.status()["decisions"] == 1
    assert [row["number"] for row in client.versions()] == [0]
    assert client.activate(0, reason="a test")["version"] == 0


def test_the_client_reports_an_override_with_its_reason(client, served):
    arm = client.ask(contexts_of(1), id="visit-1").arm
    other = "a" if arm != "a" else "b"
    assert client.tell("visit-1", 1.0, arm=other, reason="an allergy").reason == "override"
    assert served.opened.study.log().overrides == {1: "an allergy"}
    assert client.tell_many([("visit-1", 2.0, "k", "", other, "again")])[0].reason == "override"


def test_the_client_reports_outcomes(storage):
    rule = RewardRule(outcomes={"click": 1.0, "purchase": 20.0})
    Study.create(storage, "shop", policy=linear(), arms=["a", "b", "c"], rewards=rule).close()
    with serving(storage) as service, Client(service.url, "shop", backoff=0.01) as client:
        client.ask(contexts_of(1), id="visit-1")
        assert client.tell("visit-1", {"purchase": 1, "click": 2}).status == "accepted"
        assert client.tell("visit-1", {"purchase": 1, "click": 2}).status == "duplicate"
        with pytest.raises(InvalidReward, match="click, purchase"):
            client.tell("visit-1", {"clicks": 2})
        with pytest.raises(InvalidReward):
            client.tell("visit-1", {})
    with Study.open(storage, "shop") as study:
        assert study.log().outcomes == {1: {"click": 2.0, "purchase": 1.0}}


def test_the_client_takes_names_of_arms_and_arms_that_are_there(client):
    assert client.ask({"b": np.array([1.0, 0.0])}).arm == "b"
    assert client.ask(contexts_of(1), available=["c"]).arm == "c"


def test_many_have_an_answer_or_an_error_each(client):
    answers = client.ask_many([(contexts_of(1), "one"), (contexts_of(2), "one"), (contexts_of(3), "two")])
    assert [type(answer).__name__ for answer in answers] == ["Answer", "StudyConflict", "Answer"]
    receipts = client.tell_many([("one", 1.0), ("nobody", 0.0)])
    assert [receipt.status for receipt in receipts] == ["accepted", "quarantined"]
    assert client.ask_many([]) == client.tell_many([]) == []


def test_what_the_service_refuses_is_the_error_of_the_study(client, served):
    client.ask(contexts_of(1), id="one")
    with pytest.raises(StudyConflict):
        client.ask(contexts_of(2), id="one")
    with pytest.raises(InvalidContexts):
        client.ask([[1.0]])
    with pytest.raises(RequestRefused, match="1048576 bytes"):
        client.ask(np.zeros((100_000, 2)))
    with Client(served.url, "nobody") as nobody, pytest.raises(UnknownStudy):
        nobody.status()


@pytest.mark.parametrize("bad", [np.nan, np.inf, "1", None])
def test_what_is_no_number_is_refused_before_it_is_sent(bad):
    client = Client("http://127.0.0.1:9", "trial", retries=0)
    with pytest.raises(InvalidReward):
        client.tell("visit-1", bad)
    with pytest.raises(InvalidInput, match="finite"):
        client.ask([[np.nan, 0.0]])


class Unreliable(BaseHTTPRequestHandler):
    """Hands requests on to the service; answers the first ones itself, or not at all, after the service has."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reply = self.server.behind.send("POST", self.path, body)
        fault = self.server.faults.pop(0) if self.server.faults else None
        self.server.seen += 1
        if fault == "lost":  # the answer, not the request
            self.close_connection = True
            return
        self.send_response(reply.status if fault is None else fault)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(reply.body)


@pytest.fixture
def unreliable(served):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unreliable)
    server.behind, server.faults, server.seen = served, [], 0
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    server.server_close()


def test_an_answer_that_was_lost_is_asked_for_again_and_decided_once(unreliable, served):
    unreliable.faults = ["lost", 429, 503, "lost"]
    client = Client(unreliable.url, "trial", backoff=0.001)
    answer = client.ask(contexts_of(1))
    client.close()
    assert unreliable.seen == 5
    assert served.status().decisions == 1
    assert served.opened.study.decision(answer.id).answer == answer


def test_the_client_gives_up_after_its_retries(unreliable):
    unreliable.faults = [503] * 10
    with Client(unreliable.url, "trial", backoff=0.001, retries=2) as client:
        with pytest.raises(ServiceUnavailable, match="503"):
            client.ask(contexts_of(1))
        assert unreliable.seen == 3


@pytest.mark.skipif(sys.platform == "win32", reason="no permissions of POSIX")
def test_a_spool_behind_a_link_is_made_private(tmp_path):
    (tmp_path / "spool").symlink_to(tmp_path / "there")
    Spool(tmp_path / "spool").add([{"id": "one", "reward": 1.0}])
    assert (tmp_path / "there").stat().st_mode & 0o077 == 0


def test_rewards_wait_in_the_spool_and_are_counted_once(storage, tmp_path):
    spool = tmp_path / "rewards.jsonl"
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service, Client(service.url, "trial") as client:
        for number in range(3):
            client.ask(contexts_of(number), id=f"visit-{number}")
        port = service.port
    away = Client(f"http://127.0.0.1:{port}", "trial", retries=0, spool=spool)
    assert [away.tell(f"visit-{number}", 1.0).status for number in range(3)] == ["spooled"] * 3
    assert away.tell("visit-0", 2.0, key="k").status == away.tell("visit-0", 3.0, key="k").status == "spooled"
    with open(spool, "ab") as file:
        file.write(b'{"id": "half a li')  # a process that was killed while it wrote
    assert away.spooled == 5
    with serving(storage, automatic=False) as service:
        back = Client(service.url, "trial", spool=spool)
        receipts = back.flush()
        assert [getattr(receipt, "status", type(receipt).__name__) for receipt in receipts] == [
            *("accepted", "accepted", "accepted", "quarantined", "StudyConflict")
        ]
        assert (back.spooled, back.flush()) == (0, [])
        assert "key 'k'" in (tmp_path / "rewards.jsonl.refused").read_text()
        for name in ("rewards.jsonl", "rewards.jsonl.refused"):  # it may get contexts of a fallback
            assert sys.platform == "win32" or (tmp_path / name).stat().st_mode & 0o077 == 0
        accounts = service.status().rewards
        assert (accounts.received, accounts.pending, accounts.balanced) == (4, 3, True)
        back.close()


def test_an_activation_does_not_use_a_connection_that_the_service_may_have_closed(client, served):
    client.status()
    client._idle[0].sock.shutdown(socket.SHUT_RDWR)
    assert client.activate(0)["version"] == 0


def test_half_a_line_in_the_spool_stops_nobody(served, tmp_path):
    spool = tmp_path / "rewards.jsonl"
    spool.write_bytes(b'{"id": "visit-1", "rew')  # a process that was killed
    for number in (1, 2):
        served.decide(number)
    away = Client("http://127.0.0.1:9", "trial", retries=0, spool=spool)
    assert away.tell("visit-1", 1.0).status == away.tell("visit-2", 0.0).status == "spooled"
    with open(spool, "ab") as file:
        file.write(b'[1]\n\xff\n{"id": 3}\n{"id": [1], "reward": 1}\n{"id": {}, "contexts": 1, "arm": 0}\n')
        file.write(b'{"id": "a", "reward": NaN}\n{"id": "b", "reward": 1e999}\n' + b"[" * 100_000 + b"\n")
        file.write(b'{"id": "visit-2", "reward": 7')
    with Client(served.url, "trial", spool=spool) as back:
        assert back.spooled == 11
        receipts = back.flush()
        kinds = [getattr(receipt, "status", "unreadable") for receipt in receipts]
        assert kinds == ["unreadable", "accepted", "accepted", *["unreadable"] * 8]
        assert (back.spooled, back.flush()) == (0, [])
    refused = (tmp_path / "rewards.jsonl.refused").read_text()
    assert "visit-1" in refused
    assert refused.count("cannot be read") == 9


class Refusing(BaseHTTPRequestHandler):
    """Answers every request in the same way."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = self.server.body
        self.send_response(self.server.code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    server.code, server.body = 500, b'{"title": "ValueError", "detail": "x"}'
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join(PATIENCE)
    server.server_close()


@pytest.mark.parametrize("code", [401, 403, 404, 408, 421, 500, 503])
def test_whatever_could_not_be_delivered_waits_in_the_spool(refusing, tmp_path, code):
    refusing.code = code
    with Client(refusing.url, "trial", retries=1, backoff=0.001, spool=tmp_path / "rewards.jsonl") as client:
        assert client.tell("visit-1", 1.0).status == "spooled"
        assert [receipt.status for receipt in client.tell_many([("visit-2", 0.0), ("visit-3", 0.0)])] == ["spooled"] * 2
        with pytest.raises((NotDelivered, ServiceUnavailable)):
            client.flush()
        assert client.spooled == 3
    assert not (tmp_path / "rewards.jsonl.refused").exists()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"3", b"{}"])
def test_an_answer_of_somebody_else_is_no_delivery(refusing, tmp_path, body):
    refusing.code, refusing.body = 200, body
    with Client(refusing.url, "trial", retries=0, spool=tmp_path / "rewards.jsonl") as client:
        assert client.tell("visit-1", 1.0).status == "spooled"
        with pytest.raises(ServiceUnavailable, match="does not come from"):
            client.ask(contexts_of(1))


def test_one_reward_that_is_refused_does_not_keep_the_others(served, tmp_path):
    away = Client("http://127.0.0.1:9", "trial", retries=0, spool=tmp_path / "rewards.jsonl")
    for number in range(5):
        served.decide(number)
        away.tell(f"visit-{number}", 1.0)
    text = (tmp_path / "rewards.jsonl").read_text().replace('"visit-3"', f'"{"x" * 300}"')  # the body is refused
    (tmp_path / "rewards.jsonl").write_text(text)
    with Client(served.url, "trial", spool=tmp_path / "rewards.jsonl") as back:
        receipts = back.flush()
    kinds = [getattr(each, "status", type(each)) for each in receipts]
    assert kinds == ["accepted"] * 3 + [RequestRefused, "accepted"]
    assert served.status().rewards.received == 4


def test_two_threads_that_flush_lose_nothing(served, tmp_path):
    away = Client("http://127.0.0.1:9", "trial", retries=0, spool=tmp_path / "rewards.jsonl")
    for number in range(20):
        served.decide(number)
        away.tell(f"visit-{number}", 1.0)
    with Client(served.url, "trial", spool=tmp_path / "rewards.jsonl") as back, ThreadPoolExecutor(4) as threads:
        found = [receipt for future in [threads.submit(back.flush) for _ in range(4)] for receipt in future.result()]
        assert sorted(receipt.status for receipt in found) == ["accepted"] * 20
        assert back.spooled == 0


def test_the_fallback_decides_while_the_service_is_away_and_is_marked_in_the_record(storage, tmp_path):
    Study.create(
        storage, "trial", policy=linear(), arms=["a", "b", "c"], rewards=RewardRule(wait=1000.0, default=0.0)
    ).close()
    away = Client("http://127.0.0.1:9", "trial", retries=0, spool=tmp_path / "spool.jsonl", fallback="b")
    answers = []
    for number in range(12):
        with pytest.warns(FallbackWarning, match="'b' was given"):
            answers.append(away.ask(contexts_of(number), id=f"visit-{number}"))
    assert {(each.arm, each.version, each.stage, each.seq) for each in answers} == {("b", -1, "fallback", 0)}
    assert away.ask(contexts_of(3), id="visit-3").arm == "b"  # given already, so without a warning
    assert away.tell("visit-0", 1.0).status == "spooled"
    assert away.spooled == 1
    with serving(storage, automatic=False) as service:
        options = {"spool": tmp_path / "spool.jsonl", "fallback": "b"}
        with Client(service.url, "trial", **options) as back:  # another process
            assert back.ask(contexts_of(3), id="visit-3").arm == "b"  # the visitor has been given it
            for number in range(1, 11):
                assert back.tell(f"visit-{number}", 1.0).status == "spooled"
            assert {(each.status, each.reason) for each in back.flush()} == {("quarantined", "override")}
            assert (back.spooled, back.flush()) == (0, [])
            assert back.tell("visit-0", 2.0, key="again").reason == "override"
            assert back.ask(contexts_of(20)).stage == "main"
        study = service.opened.study
        assert {study.decision(f"visit-{n}").answer.arm for n in range(11)} > {"b"}  # the study drew b too
        assert set(study.log().overrides.values()) == {"fallback: the service was away"}
        assert len(study.log().overrides) == 11
        assert study.status().rewards.pending == 0
        with pytest.raises(UnknownDecision):
            study.decision("visit-11")  # without a reward, which the study would have set to the default
        assert "visit-11" in (tmp_path / "spool.jsonl").read_text()


def test_a_fallback_needs_a_spool_and_bad_contexts_are_still_an_error(served, tmp_path):
    with pytest.raises(InvalidInput, match="with a spool"):
        Client(served.url, "trial", fallback="b")
    with Client(served.url, "trial", fallback=1, spool=tmp_path / "s") as client, pytest.raises(InvalidContexts):
        client.ask([[1.0]])
    client = Client("http://127.0.0.1:9", "trial", retries=0, fallback=1, spool=tmp_path / "s")
    with pytest.warns(FallbackWarning):
        assert client.ask(contexts_of(1)).index == 1


def test_ask_has_a_deadline(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, "trial", retries=1000, timeout=60, deadline=0.2) as client:
            begun = time.monotonic()
            with pytest.raises(ServiceUnavailable):
                client.ask(contexts_of(1))
            assert 0.1 < time.monotonic() - begun < 30


@pytest.fixture
def dripping():
    """A server that sends a byte of its head at a time, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip(connection):
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not ended.wait(0.02):
                    connection.sendall(b"x")

        def listen():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=drip, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()


def test_a_deadline_holds_for_every_call_also_against_a_server_that_drips(dripping, tmp_path):
    """A timeout of a socket begins again with every byte: no call would ever end."""
    with Client(dripping, "trial", deadline=0.3, spool=tmp_path / "s") as client:
        calls = [lambda: client.ask(contexts_of(1)), lambda: client.ask_many([(contexts_of(1),)]), client.status]
        begun = time.monotonic()
        for call in calls:
            with pytest.raises(ServiceUnavailable):
                call()
        assert client.tell("visit-1", 1.0).status == "spooled"
        assert time.monotonic() - begun < PATIENCE


def test_a_deadline_includes_the_wait_for_a_thread(dripping, tmp_path):
    async def visits():
        options = {"deadline": 2.0, "spool": tmp_path / "s", "fallback": "b", "threads": 1}
        async with AsyncClient(dripping, "trial", **options) as client:
            return await asyncio.gather(*(client.ask(contexts_of(n)) for n in range(20)))

    begun = time.monotonic()
    with pytest.warns(FallbackWarning):
        answers = asyncio.run(visits())
    assert {answer.stage for answer in answers} == {"fallback"}
    assert time.monotonic() - begun < 20  # one after another they take 40 s


def test_decisions_of_the_fallback_that_get_no_reward_leave_the_spool(tmp_path):
    options = {"retries": 0, "fallback": 1, "spool": tmp_path / "s"}
    with Client("http://127.0.0.1:9", "trial", keep=1e-6, **options) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(5):
            client.ask(contexts_of(number), id=f"visit-{number}")
        assert client.tell("visit-3", 1.0).status == "spooled"  # its reward waits, and so does it
        with pytest.raises(ServiceUnavailable):
            client.flush()
        kept = [json.loads(line)["id"] for line in (tmp_path / "s").read_text().splitlines()]
        assert kept == ["visit-3", "visit-3"]
    with Client("http://127.0.0.1:9", "trial", **options) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.ask(contexts_of(7), id="visit-7")
        assert Client("http://127.0.0.1:9", "trial", **options)._spool.asked.keys() == {"visit-3", "visit-7"}


def test_concurrent_calls_are_gathered_into_one_request(unreliable):
    async def visits():
        async with AsyncClient(unreliable.url, "trial", threads=20, gather=0.5) as client:
            wrong = asyncio.create_task(client.ask([[1.0]], id="wrong"))
            answers = await asyncio.gather(*(client.ask(contexts_of(n), id=f"visit-{n}") for n in range(15)))
            with pytest.raises(InvalidContexts):
                await wrong
            return answers

    answers = asyncio.run(visits())
    assert [answer.id for answer in answers] == [f"visit-{n}" for n in range(15)]
    assert unreliable.seen < 15
    with Client(unreliable.url, "trial", gather=0.001) as client:
        assert client.ask(contexts_of(3), id="visit-3") == answers[3]
        with pytest.raises(StudyConflict):
            client.ask(contexts_of(4), id="visit-3")


def test_the_asynchronous_client_does_the_same_while_the_loop_goes_on(served, tmp_path):
    async def visits():
        async with AsyncClient(served.url, "trial", threads=4, spool=tmp_path / "s", backoff=0.01) as client:
            answers = await asyncio.gather(*(client.ask(contexts_of(n), id=f"visit-{n}") for n in range(20)))
            receipts = await asyncio.gather(*(client.tell(each.id, 1.0) for each in answers))
            with pytest.raises(StudyConflict):
                await client.ask(contexts_of(7), id="visit-1")
            assert (await client.status())["decisions"] == 20
            assert await client.flush() == []
            return answers, receipts

    answers, receipts = asyncio.run(visits())
    assert [answer.id for answer in answers] == [f"visit-{n}" for n in range(20)]
    assert {receipt.status for receipt in receipts} == {"accepted"}
    assert inspect.signature(AsyncClient.ask) == inspect.signature(Client.ask)


def test_without_a_spool_a_reward_that_cannot_be_delivered_is_an_error():
    client = Client("http://127.0.0.1:9", "trial", retries=1, backoff=0.001)
    with pytest.raises(ServiceUnavailable, match="Is rarely serve running"):
        client.tell("visit-1", 1.0)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host/?x=1"])
def test_a_url_must_name_a_service(url):
    with pytest.raises(InvalidInput, match="url must be"):
        Client(url, "trial")
