"""Over HTTP a study of a FramePolicy is asked by columns: what a client has is what it sends."""

import numpy as np
import pandas as pd
import pytest

from rarely import FramePolicy, LinTS, OnDemand, Worth
from rarely.errors import InvalidContexts, InvalidSlate, InvalidWorth
from rarely.service import ServiceLimits
from rarely.study import Client, Study
from services import serving, until

USERS = pd.DataFrame({"age": [20, 31, 45, 52], "town": ["Ulm", "Bonn", "Ulm", "Bonn"]})
ITEMS = pd.DataFrame({"sku": ["a", "b", "c"], "topic": ["x", "y", "x"], "price": [1.0, 2.0, 3.0]})
BODY = {"user": {"age": 30, "town": "Ulm"}, "items": ITEMS.to_dict("records")}


def shop():
    return FramePolicy.fit(LinTS, USERS, ITEMS, key="sku", schedule=OnDemand(), seed=0)


@pytest.fixture
def served(storage):
    Study.create(storage, "trial", policy=shop()).close()
    with serving(storage, automatic=False) as service:
        yield service


def test_a_body_of_columns_is_answered_as_the_study_answers(served):
    beside = Study.create("memory://beside-http-columns", "trial", policy=shop())
    for number in range(5):
        body = {**BODY, "user": {"age": 20 + 9 * number, "town": "Ulm"}}
        expected = beside.ask(body, id=f"v{number}").describe()
        answer = served.post("decide", {"id": f"v{number}", **body}).content
        for name in ("seq", "time"):
            del answer[name], expected[name]
        assert answer == expected
    assert served.opened.study.verify().whole


def test_the_client_sends_frames_and_rows(served):
    with Client(served.url, "trial", backoff=0.01) as client:
        answer = client.ask({"user": USERS.iloc[1], "items": ITEMS}, id="one")
        rows = {"user": {"age": 31, "town": "Bonn"}, "items": ITEMS.to_dict("records")}
        assert client.ask(rows, id="one") == answer == served.opened.study.decision("one").answer
        assert client.tell("one", 1.0).status == "accepted"
        with pytest.raises(InvalidContexts, match="column 'age' of user"):
            client.ask({"user": {"age": "old", "town": "Ulm"}, "items": ITEMS})


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"user": {"age": "old", "town": "Ulm"}, "items": BODY["items"]}, 422, "column 'age' of user must be a number"),
        ({"user": {"age": 3}, "items": BODY["items"]}, 422, "user must have the column 'town'"),
        ({"user": BODY["user"]}, 422, "columns of user and items; got user"),
        ({"contexts": [[1.0]]}, 422, "columns of user and items"),
        ({"contexts": [[1.0]], **BODY}, 422, "give either contexts, or the columns"),
        ({"user": [1.0], "items": BODY["items"]}, 422, "user: Input should be a valid dictionary"),
        ({"user": {"age": {"x": 1}, "town": "Ulm"}, "items": BODY["items"]}, 422, "user.age"),
        ({}, 422, "give either contexts, or the columns"),
    ],
)
def test_what_does_not_fit_the_columns_is_named_and_nothing_recorded(served, body, status, says):
    reply = served.post("decide", body)
    assert reply.status == status
    assert says in reply.content["detail"]
    assert served.status().decisions == 0


def test_too_many_items_are_refused(served):
    items = [{"sku": f"i{i}", "topic": "x", "price": 1.0} for i in range(ServiceLimits().arms + 1)]
    reply = served.post("decide", {**BODY, "items": items})
    assert reply.status == 422
    assert "may have at most" in reply.content["detail"]


def test_each_study_has_a_schema_of_its_own(served):
    schema = served.get("schema").content
    assert schema["properties"]["user"]["required"] == ["age", "town"]
    assert schema["properties"]["items"]["items"]["properties"]["topic"]["examples"] == ["x", "y"]


def test_values_that_the_sample_did_not_have_are_counted_where_people_look(served):
    served.post("decide", {**BODY, "user": {"age": None, "town": "Rome"}})
    served.post("decide", {**BODY, "user": {"age": 20, "town": "Paris"}})
    assert served.status().unseen == {"age": 1, "town": 2}
    until(lambda: "1 of age, 2 of town" in served.send("GET", "/studies/trial").body.decode())
    until(lambda: 'rarely_unseen_total{study="trial"} 3' in served.send("GET", "/metrics").body.decode())


def test_arms_that_are_called_as_the_tables_are_asked_by_name(storage):
    Study.create(storage, "trial", policy=LinTS(dim=1, seed=0), arms=["user", "items"]).close()
    with serving(storage, automatic=False) as service, Client(service.url, "trial") as client:
        assert client.ask({"user": [1.0], "items": [2.0]}, id="one").arm in ("user", "items")
        assert client.ask({"user": np.array([1.0])}).arm == "user"


@pytest.mark.parametrize("available", ["a", 5, object()])
def test_the_client_refuses_available_arms_that_are_no_list(available):
    with pytest.raises(InvalidContexts, match="available must be a list"):
        Client("http://127.0.0.1:9", "trial", retries=0).ask(BODY, available=available)


def test_half_a_character_in_a_column_is_refused_and_not_the_requests_beside_it(served):
    bad = {**BODY, "user": {"age": 30, "town": "\ud800"}}
    reply = served.post("decide", {"requests": [{"id": "a", **BODY}, {"id": "b", **bad}]})
    first, second = reply.content["answers"]
    assert first["id"] == "a"
    assert second["title"] == "InvalidContexts"
    assert served.post("decide", bad).status == 422


def test_a_study_that_was_deleted_while_it_was_served_keeps_no_other_from_it(storage):
    for name in ("trial", "other"):
        Study.create(storage, name, policy=shop()).close()
    with serving(storage, automatic=False) as service:
        assert service.post("decide", {"id": "a", **BODY}).status == 200
        Study.delete(storage, "trial", actor="ann")
        for path in ("decide", "reward"):
            reply = service.post(path, {"id": "a", **(BODY if path == "decide" else {"reward": 1.0})})
            assert reply.status == 404
            assert "deleted on" in reply.content["detail"]
            assert "sqlite" not in reply.content["detail"]
        for path in ("status", "export", "backup"):
            assert service.get(path).status == 404
        index = service.send("GET", "/").body.decode()
        assert "studies/other" in index
        assert "trial" not in index
        Study.create(storage, "trial", policy=shop()).close()
        assert service.post("decide", {"id": "a", **BODY}).content["round"] == 1
        assert "studies/trial" in service.send("GET", "/").body.decode()
        assert service.send("GET", "/health").status == 200


def test_worth_comes_by_columns_too(served):
    reply = served.post("decide", {**BODY, "id": "v", "worth": {"gain": "price", "cost": [0.0, 0.0, 0.5]}})
    assert reply.status == 200
    worth = served.opened.study.decision("v").question.worth
    assert (worth.gain.tolist(), worth.cost.tolist()) == ([1.0, 2.0, 3.0], [0.0, 0.0, 0.5])
    with Client(served.url, "trial", backoff=0.01) as client:
        asked = {"user": USERS.iloc[0], "items": ITEMS}
        first = client.ask(asked, id="w", worth=Worth("price", np.zeros(3)))
        assert client.ask(asked, id="w", worth=Worth("price", np.zeros(3))) == first
        costs = np.array([0.0, np.inf, np.inf])
        only = client.ask(asked, id="x", worth=Worth(cost=costs))
        assert (only.index, only.probability) == (0, 1.0)
        again = served.post("decide", {**BODY, "id": "y", "worth": {"cost": [None, None, 0.0]}})
        assert again.content["index"] == 2
        assert served.opened.study.decision("y").present.tolist() == [False, False, True]
        with pytest.raises(InvalidWorth, match="column 'weight'"):
            client.ask(asked, worth="weight")
    for wrong in ({"gain": {"x": {}}}, {"price": "price", "gain": 1.0}, True):
        assert served.post("decide", {**BODY, "worth": wrong}).status == 422
    assert served.status().decisions == 4


def test_a_slate_over_http(served):
    reply = served.post("decide", {**BODY, "id": "s", "slots": 2})
    assert reply.status == 200
    assert [slot["id"] for slot in reply.content["slots"]] == ["s#1", "s#2"]
    told = served.post("reward", {"id": "s", "reward": [0.0, 1.0], "seen": 1})
    assert [slot["status"] for slot in told.content["slots"]] == ["accepted"]
    with Client(served.url, "trial", backoff=0.01) as client:
        slate = client.ask(BODY, id="s", slots=2)
        assert [answer.id for answer in slate] == ["s#1", "s#2"]
        assert [receipt.status for receipt in client.tell("s", [0.0, 1.0])] == ["duplicate", "accepted"]
        with pytest.raises(InvalidSlate):
            client.ask(BODY, slots=4)
        client.ask(BODY, id="whole", slots=2)
        assert [(receipt.id, receipt.status) for receipt in client.tell("whole", 1.0)] == [
            ("whole#1", "accepted"),
            ("whole#2", "accepted"),
        ]
        assert [len(each) for each in client.tell_many([("whole", 1.0)])] == [2]
    assert served.post("decide", {**BODY, "slots": 0}).status == 422
