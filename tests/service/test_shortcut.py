"""Decisions and rewards past the router get the answers that FastAPI's routes give."""

import asyncio
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rarely.service import shortcut
from rarely.service.app import create_app
from rarely.service.keys import KeyFile
from rarely.service.routes import answer_text
from rarely.study import Answer, Study
from studies import contexts_of, linear

VERBS = ("decide", "reward")
JSON = "application/json"


async def answered(app, path, body, headers=(), root_path="", method="POST"):
    """Status, headers and body of an answer, without a server between."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "query_string": b""}
    scope |= {"method": method, "root_path": root_path, "path": root_path + path, "raw_path": path.encode()}
    scope |= {"headers": [(name.encode(), value.encode()) for name, value in headers]}
    received = iter([{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}])
    sent = []

    async def receive():
        return next(received)

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    return start["status"], sorted(start["headers"]), b"".join(part.get("body", b"") for part in rest)


def both_ways(app, path, body, headers):
    """An answer past the router, and FastAPI's: a root path keeps the shortcut out."""

    async def ask():
        return [await answered(app, path, body, headers, root_path) for root_path in ("", "/behind")]

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    storage = "memory://shortcut"
    study = Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"])
    study.ask(contexts_of(1), id="visit-1")
    app = create_app(storage, automatic=False)
    app.state.studies.start()
    yield app
    app.state.studies.close()
    study.close()


rows = st.lists(st.lists(st.floats(-5, 5) | st.integers(-3, 3), min_size=2, max_size=2), min_size=3, max_size=3)
ids = st.text("ab é\n", max_size=4) | st.just("visit-1")
wild = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda each: st.lists(each),
    max_leaves=4,
)
decisions = st.fixed_dictionaries(
    {"id": ids, "contexts": rows | rows | wild | st.dictionaries(st.sampled_from("abcd"), wild)},
    optional={"available": st.lists(st.sampled_from(["a", "b", "d", 0, 1, 7])) | wild, "colour": wild},
)
rewards = st.fixed_dictionaries({"id": ids, "reward": st.floats() | wild}, optional={"key": ids | wild})
many = st.one_of(
    st.fixed_dictionaries({"requests": st.lists(decisions, max_size=3)}),
    st.fixed_dictionaries({"rewards": st.lists(rewards, max_size=3)}),
)
bodies = st.one_of(
    *(each.map(lambda value: json.dumps(value).encode()) for each in (decisions, rewards, many, wild)),
    st.binary(max_size=20),
)
heads = st.fixed_dictionaries(
    {
        "content-type": st.sampled_from([JSON] * 6 + ["text/plain"]),
        "host": st.sampled_from(["localhost"] * 4 + ["127.0.0.1:8000", "evil.example"]),
    },
    optional={
        "content-length": st.sampled_from(["9", "x"]),
    },
)


good = contexts_of(3).tolist()


def example_of(verb, value):
    """A request that is answered with 200."""
    return example(
        verb=verb, name="trial", body=json.dumps(value).encode(), head={"content-type": JSON, "host": "localhost"}
    )


@example_of("decide", {"id": "é", "contexts": good})
@example_of("decide", {"id": "b", "contexts": {"a": good[0], "c": good[1]}})
@example_of("decide", {"requests": [{"id": "c", "contexts": good}, {"id": "c", "contexts": good[::-1]}]})
@example_of("reward", {"id": "é", "reward": 1, "key": "k"})
@example_of("reward", {"rewards": [{"id": "b", "reward": 0.5}, {"id": "nobody", "reward": 2.0}]})
@given(verb=st.sampled_from(VERBS), name=st.sampled_from(["trial"] * 6 + ["nobody", "é"]), body=bodies, head=heads)
def test_both_ways_give_the_same_answer(app, verb, name, body, head):
    path = f"/v1/studies/{name}/{verb}"
    shortcut_reply, routed_reply = both_ways(app, path, body, list(head.items()))
    if verb == "reward" and shortcut_reply[0] == 200:
        # The second delivery is a duplicate of the first one, whichever way it came.
        third, fourth = both_ways(app, path, body, list(head.items()))
        assert third == fourth == routed_reply
    else:
        assert shortcut_reply == routed_reply


@pytest.mark.parametrize("verb", VERBS)
def test_the_shortcut_is_taken(app, verb, monkeypatch):
    taken, plain = [], shortcut.Shortcut.find
    monkeypatch.setattr(shortcut.Shortcut, "find", lambda self, scope: taken.append(plain(self, scope)) or taken[-1])
    both_ways(app, f"/v1/studies/trial/{verb}", b"{}", [("host", "localhost")])
    assert [found is not None for found in taken] == [True, False]


@pytest.mark.parametrize(
    "path",
    ["/v1/studies//decide", "/v1/studies/a/b/decide", "/v1/studies/trial/status", "/decide", "/v1/studies/x"],
)
def test_other_paths_are_left_to_the_router(app, path):
    first, second = both_ways(app, path, b"{}", [("host", "localhost"), ("content-type", JSON)])
    assert first == second
    assert first[0] in (404, 405)


def test_both_ways_ask_for_the_same_scope(app, tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    secrets = {scope: keys.add(scope, [scope]) for scope in ("decide", "reward", "read", "admin")}
    guarded = create_app("memory://shortcut", keys=keys, automatic=False)
    try:
        for verb in VERBS:
            for scope, secret in [*secrets.items(), ("none", "")]:
                head = [("content-type", JSON), *([("authorization", f"Bearer {secret}")] if secret else [])]
                first, second = both_ways(guarded, f"/v1/studies/trial/{verb}", b"{}", head)
                assert first == second
                assert first[0] == (422 if scope == verb else 403 if secret else 401)
    finally:
        guarded.state.studies.close()


def test_a_read_only_service_takes_no_shortcut(app):
    reading = create_app("memory://shortcut", automatic=False, read_only=True)
    try:
        for reply in both_ways(reading, "/v1/studies/trial/decide", b"{}", [("host", "localhost")]):
            assert reply[0] == 404
    finally:
        reading.state.studies.close()


@given(st.text(max_size=5), st.text(max_size=5) | st.integers(0, 9), st.floats(0, 1), st.text(max_size=3))
def test_the_text_of_an_answer_is_its_json(id, arm, probability, stage):
    answer = Answer(id, arm, 3, probability, 1, 10**9, stage, 10**10, 10**16)
    assert answer_text(answer) == json.dumps(answer.describe(), separators=(",", ":"))


def test_middleware_of_ones_own_sees_every_request():
    storage, seen = "memory://middleware", []
    study = Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"])
    app = create_app(storage, automatic=False)
    app.state.studies.start()

    @app.middleware("http")
    async def see(request, call_next):
        seen.append(request.url.path)
        return await call_next(request)

    body = json.dumps({"id": "visit-1", "contexts": good}).encode()
    path, headers = "/v1/studies/trial/decide", [("content-type", JSON), ("host", "localhost")]
    status, _, _ = asyncio.run(answered(app, path, body, headers))
    app.state.studies.close()
    study.close()
    assert (status, seen) == (200, [path])


def test_a_host_that_is_no_name_is_refused(app):
    for status, _, _ in both_ways(app, "/v1/studies/trial/decide", b"{}", [("content-type", JSON), ("host", "[")]):
        assert status == 421
