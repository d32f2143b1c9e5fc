"""Requests of Azure Personalizer's clients, in the form of its public reference, answered by a study."""

import pytest

from rarely import FramePolicy, LinUCB, Mixture, OnDemand
from rarely.service.access import KeyFile
from rarely.study import Study
from services import serving

RANK = {
    "contextFeatures": [
        {"timeOfDay": "Morning"},
        {"user": {"profileType": "AnonymousUser"}, "device": {"mobile": True}},
    ],
    "actions": [
        {"id": "NewsArticle", "features": [{"type": "News"}]},
        {"id": "SportsArticle", "features": [{"type": "Sports"}]},
        {"id": "EntertainmentArticle", "features": [{"type": "Entertainment"}]},
    ],
    "excludedActions": ["SportsArticle"],
    "eventId": "75269AD0-BFEE-4598-8196-C57383D38E10",
    "deferActivation": False,
}
USERS = [
    {"timeOfDay": "Morning", "user.profileType": "AnonymousUser", "device.mobile": True},
    {"timeOfDay": "Evening", "user.profileType": "Member", "device.mobile": False},
]
ITEMS = [{"id": f"{kind}Article", "type": kind} for kind in ("News", "Sports", "Entertainment")]
PATH = "/v1/studies/trial/personalizer/v1.0"


def loop(storage, **settings):
    exploration = {"exploration": Mixture(0.2), "schedule": OnDemand(), "seed": 0}
    policy = FramePolicy.fit(LinUCB, USERS, ITEMS, key="id", **exploration)
    Study.create(storage, "trial", policy=policy, **settings).close()


@pytest.fixture
def served(storage):
    loop(storage)
    with serving(storage, automatic=False) as service:
        yield service


def test_rank_reward_and_activate(served):
    reply = served.send("POST", f"{PATH}/rank", RANK)
    assert reply.status == 201
    said = reply.content
    assert said["eventId"] == RANK["eventId"]
    assert said["rewardActionId"] == said["ranking"][0]["id"] != "SportsArticle"
    chances = {each["id"]: each["probability"] for each in said["ranking"]}
    assert chances["SportsArticle"] == 0
    assert sum(chances.values()) == pytest.approx(1)
    assert served.send("POST", f"{PATH}/rank", RANK).content == said
    event = f"{PATH}/events/{RANK['eventId']}"
    assert served.send("POST", f"{event}/activate", None).status == 204
    assert served.send("POST", f"{event}/reward", {"value": 1.0}).status == 204
    assert served.status().rewards.received == 1
    assert served.opened.study.decision(RANK["eventId"]).question.table.sent["user"]["timeOfDay"] == "Morning"
    assert served.opened.study.verify().whole


def test_what_did_not_come_is_a_gap_and_an_event_gets_an_id(served):
    reply = served.send("POST", f"{PATH}/rank", {"actions": RANK["actions"]})
    assert reply.status == 201
    assert len(reply.content["eventId"]) == 32


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"actions": []}, "actions"),
        ({"excludedActions": ["Other"]}, "'Other' is none"),
        ({"contextFeatures": [{"weather": "Sunny"}]}, "weather"),
        ({"contextFeatures": [{"timeOfDay": ["Morning"]}]}, "'timeOfDay' must be text"),
        ({"actions": RANK["actions"][:1] * 2, "excludedActions": []}, "must name each once"),
        ({"excludedActions": [each["id"] for each in RANK["actions"]]}, "at least one arm"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_recorded(served, change, says):
    reply = served.send("POST", f"{PATH}/rank", RANK | change)
    assert reply.status == 422
    assert says in reply.content["detail"]
    assert served.status().decisions == 0


def test_events_that_are_not_there(served):
    assert served.send("POST", f"{PATH}/events/none/activate", None).status == 404
    assert served.send("POST", f"{PATH}/events/none/reward", {"value": 1.0}).status == 204
    assert served.status().rewards.quarantined == 1


def test_a_deferred_event_is_refused_because_a_study_would_learn_from_it_before_it_is_active(served):
    reply = served.send("POST", f"{PATH}/rank", RANK | {"deferActivation": True})
    assert (reply.status, "activated or not" in reply.content["detail"]) == (422, True)
    assert served.status().events == 1
    assert served.send("POST", f"{PATH}/rank", RANK).status == 201


def test_the_key_may_come_in_personalizers_header(storage, tmp_path):
    loop(storage)
    keys = KeyFile(tmp_path / "keys.json")
    secret = keys.add("shop", ["decide", "reward"])
    with serving(storage, automatic=False, keys=keys) as service:
        assert service.send("POST", f"{PATH}/rank", RANK).status == 401
        headers = {"Ocp-Apim-Subscription-Key": secret}
        assert service.send("POST", f"{PATH}/rank", RANK, headers=headers).status == 201


def test_other_studies_are_refused(storage):
    Study.create(storage, "trial", policy=LinUCB(2, OnDemand()), arms=["a", "b"]).close()
    with serving(storage, automatic=False) as service:
        reply = service.send("POST", f"{PATH}/rank", RANK)
        assert (reply.status, "named by the key" in reply.content["detail"]) == (422, True)
