"""The client: the verbs of a study over HTTP, repeated until they are answered, and rewards that wait in a file."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rarely._core.errors import InvalidContexts, InvalidInput, InvalidReward
from rarely.study import Client, RequestRefused, RewardRule, ServiceUnavailable, Study, StudyConflict, UnknownStudy
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
        accounts = service.status().rewards
        assert (accounts.received, accounts.pending, accounts.balanced) == (4, 3, True)
        back.close()


def test_without_a_spool_a_reward_that_cannot_be_delivered_is_an_error():
    client = Client("http://127.0.0.1:9", "trial", retries=1, backoff=0.001)
    with pytest.raises(ServiceUnavailable, match="Is rarely serve running"):
        client.tell("visit-1", 1.0)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host/?x=1"])
def test_a_url_must_name_a_service(url):
    with pytest.raises(InvalidInput, match="url must be"):
        Client(url, "trial")
