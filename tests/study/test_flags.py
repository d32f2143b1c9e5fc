"""Weights by leaf: a version's probabilities, whole in ten thousandths."""

import json

import pytest

from command_line import call, told
from rarely import FramePolicy, LinTS, LinUCB, OnDemand
from rarely.study import InvalidStudy, Study
from rarely.study.flags import WHOLE, weights_by_leaf

USERS = {"country": ["de", "fr"] * 5, "member": ["yes", "no", "no", "yes", "no"] * 2}


def study_at(storage, **users):
    policy = FramePolicy.fit(LinTS, USERS | users, arms=["red", "blue", "green"], schedule=OnDemand(), seed=0)
    study = Study.create(storage, "colours", policy=policy)
    for i in range(30):
        row = {name: values[i % 10] for name, values in (USERS | users).items()}
        study.tell(study.ask({"user": row}).id, float(i % 3 == 1))
    study.update()
    return study


def test_weights_are_the_probabilities_of_the_version():
    study = study_at("memory://flags-weights")
    said = weights_by_leaf(study)
    assert (said["version"], len(said["leaves"])) == (1, 4)
    policy, tables = study.policy(1), study.settings.tables
    for leaf in said["leaves"]:
        chances = policy.probabilities(tables.contexts(leaf["when"]))
        assert sum(leaf["weights"].values()) == WHOLE
        assert [*leaf["weights"].values()] == pytest.approx(chances * WHOLE, abs=1)
    assert weights_by_leaf(study, version=0)["leaves"] != said["leaves"]


def test_leaves_that_cannot_be_listed_are_asked_for():
    study = study_at("memory://flags-numbers", age=[*range(20, 30)])
    with pytest.raises(InvalidStudy, match="'age' is no category"):
        weights_by_leaf(study)
    row = {"country": "de", "member": "yes", "age": 31}
    assert weights_by_leaf(study, [row])["leaves"][0]["when"] == row
    with pytest.raises(InvalidStudy, match="1 to 10,000 leaves; got 0"):
        weights_by_leaf(study, [])
    other = Study.create("memory://flags-other", "trial", policy=LinUCB(2, OnDemand()), arms=["a", "b"])
    with pytest.raises(InvalidStudy, match="arms=\\[…\\]"):
        weights_by_leaf(other)


def test_the_command_writes_them(tmp_path):
    study_at(f"sqlite:///{tmp_path / 'shop.db'}", age=[*range(20, 30)]).close()
    (tmp_path / "segments.csv").write_text("country,member,age\nde,yes,31\nfr,no,44\n")
    files = tmp_path / "shop.db", tmp_path / "out.json", "--leaves", tmp_path / "segments.csv"
    assert "2 leaves of version 1" in told(call("study", "flags", *map(str, files)))
    assert [leaf["when"]["age"] for leaf in json.loads((tmp_path / "out.json").read_text())["leaves"]] == [31, 44]
