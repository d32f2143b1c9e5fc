"""Persons are erased and old events pruned over HTTP, by a key for that alone, while others decide."""

import logging

import pytest

from rarely.service import KeyFile
from rarely.study import Study
from services import serving
from studies import linear

ERASE, PRUNE = "/v1/studies/trial/erase", "/v1/studies/trial/prune"


def test_a_person_is_erased_while_the_study_is_served(served, caplog):
    for i in range(6):
        served.decide(i, id=f"visit-{i}")
    with caplog.at_level(logging.INFO, "rarely.service"):
        reply = served.send("POST", ERASE, {"ids": ["visit-2", "visit-4", 17], "reason": "request 12"})
    assert reply.status == 200
    assert reply.content == {"decisions": 2, "rewards": 0, "remains": []}
    own = [record.getMessage() for record in caplog.records if record.name == "rarely.service"]
    said = [each for each in own if "erase" in each]
    assert said == ["study 'trial': erase by 'service': request 12"]
    checked = served.send("GET", "/v1/studies/trial/verify").content
    assert checked["flaw"] == ""
    assert len(checked["gone"]) == 1
    assert served.decide(9, id="visit-9").content["round"] == 7
    tried = served.send("POST", PRUNE, {"before": "2100-01-01", "dry_run": True}).content
    assert tried["events"] == 0
    assert "version 0, which is in use" in tried["limit"]
    assert served.send("POST", PRUNE, {"before": 5}).content["events"] == 0


@pytest.mark.parametrize(
    "body",
    [{}, {"ids": []}, {"ids": [None]}, {"ids": "visit-2"}, {"ids": ["a"], "by": "patient"}, {"ids": ["a"], "by": ""}],
)
def test_what_names_nobody_is_refused(shared, body):
    assert shared.send("POST", ERASE, body).status == 422


def test_no_other_scope_includes_it(tmp_path):
    Study.create("memory://erase-scope", "trial", policy=linear(), arms=["a", "b", "c"])
    file = KeyFile(tmp_path / "keys.json")
    keys = {scope: file.add(scope, [scope]) for scope in ("admin", "erase")}
    with serving("memory://erase-scope", keys=file, automatic=False) as service:
        for route, body in ((ERASE, {"ids": ["a"]}), (PRUNE, {"before": 2})):
            assert service.send("POST", route, body, key=keys["admin"]).status == 403
            assert service.send("POST", route, body, key=keys["erase"]).status == 200
