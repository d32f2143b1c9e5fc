"""Whatever a request brings: a clear answer, never 500, and a study that is as it was."""

import http.client
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely.service.bodies import Refusal, parse
from rarely.study import Study
from services import PATIENCE, serving
from studies import contexts_of, linear

GOOD = {"id": "visit-1", "contexts": contexts_of(1).tolist()}
DEEP = b"[" * 100_000


def raw(contexts, id='"visit-1"'):
    return f'{{"id": {id}, "contexts": {contexts}}}'.encode()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (raw("[[NaN, 0], [0, 1], [1, 1]]"), 400, "NaN is not a number"),
        (raw("[[-Infinity, 0], [0, 1], [1, 1]]"), 400, "-Infinity is not a number"),
        (raw("[[1e309, 0], [0, 1], [1, 1]]"), 422, "finite"),
        (raw(f"[[{'9' * 400}, 0], [0, 1], [1, 1]]"), 422, "contexts"),
        (raw(f"[[{'9' * 5000}, 0], [0, 1], [1, 1]]"), 400, "JSON"),
        (b'{"id": "x", "id": "y", "contexts": [[1, 0], [0, 1], [1, 1]]}', 400, "'id' twice"),
        (raw('{"a": [1, 0], "a": [0, 1]}'), 400, "'a' twice"),
        (DEEP, 400, "nested too deeply"),
        (raw("[" * 30 + "1" + "]" * 30), 422, "contexts"),
        (b'{"id": "\xff", "contexts": [[1, 0], [0, 1], [1, 1]]}', 400, "UTF-8"),
        (b"\xff\xfe{\x00}\x00", 400, "UTF-8"),
        (raw("[[1, 0], [0, 1], [1, 1]]", r'"\ud800"'), 422, "id"),
        (raw("[[1, 0], [0, 1], [1, 1]]", r'"two\nlines"'), 422, "printable"),
        (raw("[[1, 0], [0, 1], [1, 1]]", r'"\u0000"'), 422, "printable"),
        (raw("[[1, 0], [0, 1], [1, 1]]", f'"{"x" * 201}"'), 422, "200"),
        (raw("[[1, 0], [0, 1], [1, 1]]", '""'), 422, "id"),
        (raw("[[1, 0], [0, 1], [1, 1]]", "7"), 422, "id"),
        (raw("[[1, 0], [0, 1]]"), 422, "(3, 2)"),
        (raw("[[1, 0], [0, 1], [1]]"), 422, "contexts"),
        (raw('[["1", 0], [0, 1], [1, 1]]'), 422, "number"),
        (raw("[[true, 0], [0, 1], [1, 1]]"), 422, "number"),
        (raw("[[null, 0], [0, 1], [1, 1]]"), 422, "number"),
        (raw('{"nobody": [1, 0]}'), 422, "nobody"),
        (raw("[]"), 422, "contexts"),
        (raw("{}"), 422, "at least one arm"),
        (raw('"text"'), 422, "contexts"),
        (b'{"id": "x"}', 422, "contexts"),
        (json.dumps(GOOD | {"colour": 1}).encode(), 422, "colour"),
        (json.dumps(GOOD | {"available": ["nobody"]}).encode(), 422, "nobody"),
        (json.dumps(GOOD | {"available": []}).encode(), 422, "at least one arm"),
        (json.dumps(GOOD | {"available": [10**30]}).encode(), 422, "available"),
        (json.dumps({"requests": []}).encode(), 422, "requests"),
        (json.dumps({"requests": [GOOD, {"contexts": 3}]}).encode(), 422, "requests.1.contexts"),
        (json.dumps({"requests": [{"contexts": [[0, 0]]}] * 1001}).encode(), 413, "1000 items"),
        (b"", 400, "JSON"),
        (b"null", 422, "body"),
        (b"[]", 422, "body"),
        (b"{", 400, "JSON"),
    ],
)
def test_a_bad_decision_is_refused_and_changes_nothing(shared, body, status, says):
    before = shared.status()
    reply = shared.post("decide", body)
    assert (reply.status, shared.status()) == (status, before)
    assert reply.headers["content-type"] == "application/problem+json"
    assert says in reply.content["detail"]
    assert reply.content["status"] == status


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b'{"id": "visit-1", "reward": NaN}', 400, "NaN"),
        (b'{"id": "visit-1", "reward": 1e309}', 422, "finite"),
        (b'{"id": "visit-1", "reward": "1"}', 422, "reward"),
        (b'{"id": "visit-1", "reward": true}', 422, "reward"),
        (b'{"id": "visit-1", "reward": [[1]]}', 422, "reward"),
        (b'{"id": "visit-1", "reward": null}', 422, "reward"),
        (b'{"id": "visit-1"}', 422, "reward"),
        (b'{"id": "visit-1", "reward": 1, "key": " x"}', 422, "spaces"),
        (b'{"rewards": [{"id": "visit-1", "reward": 1}, 7]}', 422, "rewards.1"),
        (DEEP, 400, "nested"),
    ],
)
def test_a_bad_reward_is_refused_and_changes_nothing(shared, body, status, says):
    before = shared.status()
    reply = shared.post("reward", body)
    assert (reply.status, shared.status()) == (status, before)
    assert says in reply.content["detail"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_a_body_must_say_that_it_is_json(shared, kind):
    reply = shared.post("decide", GOOD, headers={"Content-Type": kind})
    assert (reply.status, reply.content["title"]) == (415, "WrongContentType")


def test_a_charset_that_is_utf_8_is_taken(shared):
    assert shared.post("decide", GOOD, headers={"Content-Type": "application/json; charset=UTF-8"}).status == 200


def test_a_body_of_100_megabytes_is_refused_unread(shared):
    before = shared.status()
    assert shared.post("decide", b" " * (100 << 20)).status == 413
    assert shared.status() == before


def test_a_body_without_a_length_is_refused_where_it_is_too_long(shared):
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=PATIENCE)
    parts = (b" " * 100_000 for _ in range(12))
    connection.request("POST", "/v1/studies/trial/decide", parts, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 413
    connection.close()


def test_too_many_arms_are_refused(storage):
    Study.create(storage, "trial", policy=linear()).close()  # every request brings its own number of arms
    with serving(storage, automatic=False) as service:
        before = service.status()
        reply = service.post("decide", {"contexts": [[0, 1]] * 100_000})
        assert (reply.status, reply.content["title"]) == (422, "InvalidContexts")
        assert "at most 1000 arms" in reply.content["detail"]
        assert service.post("decide", {"contexts": [[0, 1]] * 1000}).status == 200
        assert service.status().decisions == before.decisions + 1


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/studies/nobody/status", "/v1/studies/a%2Fb/status", "/v1/studies/%ff/status"]
)
def test_what_is_not_there_is_not_found(shared, path):
    assert shared.send("GET", path).status == 404


def test_a_path_that_is_not_there_is_named(shared):
    assert shared.send("GET", "/nothing").content["detail"].startswith("there is no GET /nothing. /openapi.json lists")


def test_another_method_is_not_allowed(shared):
    reply = shared.send("PUT", "/v1/studies/trial/decide", GOOD)
    assert reply.status == 405
    assert "there is no PUT /v1/studies/trial/decide; it takes POST." in reply.content["detail"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bytes_are_read_as_json_or_refused(body):
    try:
        expected = json.loads(body.decode("utf-8"))
    except ValueError:
        expected = Refusal
    try:
        found = parse(body)
    except Refusal:
        found = Refusal
    if found is not Refusal:
        assert found == expected
    if expected is Refusal:
        assert found is Refusal


@given(JSON, st.sampled_from(["decide", "reward", "activate", "pin", "unpin", "dismiss"]))
def test_any_json_gets_an_answer_that_is_no_failure(shared, body, verb):
    assert shared.post(verb, body).status < 500
