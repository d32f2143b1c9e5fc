"""Arms that are retired and activated again while others decide: acts on record, replayed and followed."""

import pytest
from typer.testing import CliRunner

from rarely import FramePolicy, LinTS, OnDemand
from rarely._cli import app
from rarely.study import AnalysisPlan, EnrolmentClosed, InvalidStudy, Stage, Study
from studies import contexts_of, every_storage, linear

ANN = {"actor": "ann", "reason": "sold out"}


def asked(study, first, rounds=20, **more):
    arms = [study.ask(contexts_of(i), id=f"v{i}", **more).arm for i in range(first, first + rounds)]
    for i in range(first, first + rounds):
        study.tell(f"v{i}", float(i % 2))
    return {*arms}


@every_storage
def test_a_retired_arm_gets_no_decisions_until_it_is_activated(make, storage):
    study = make()
    *_, last = study.settings.arms
    assert last in asked(study, 0)
    before = study.ask(contexts_of(0), id="v0")
    study.retire_arm(last, **ANN)
    study.retire_arm(last, **ANN)  # which changes nothing
    assert last not in asked(study, 20)
    assert study.ask(contexts_of(0), id="v0") == before
    with pytest.raises(EnrolmentClosed, match=f"no arm of this request is open; closed are: {last}"):
        study.ask(contexts_of(1), id="only", available=[last])
    study.update()
    study = make.open()
    assert last not in asked(study, 40)
    study.activate_arm(last, **ANN)
    assert last in asked(study, 60, 40)
    assert [event.kind for event in study.acts() if event.kind in ("retire", "activate")] == ["retire", "activate"]
    assert study.verify().whole
    assert study.replay().equal


def test_what_cannot_be_retired_is_refused_and_nothing_recorded(make):
    study = make()
    first, *others = study.settings.arms
    for name in others:
        study.retire_arm(name, **ANN)
    events = study.status().events
    for wrong, says in ((first, "the last open arm"), ("nobody", "arm must be one of")):
        with pytest.raises(InvalidStudy, match=says):
            study.retire_arm(wrong, **ANN)
    with pytest.raises(InvalidStudy, match="must say who decides"):
        study.activate_arm(others[0], actor="")
    with pytest.raises(InvalidStudy, match="last open arm"):
        study.close_arm(first, actor="ann", approved_by="bob")
    assert study.status().events == events
    trial = Study.create("memory://retired", "trial", policy=linear(), arms=["a", "b"], plan=AnalysisPlan(60, 2))
    with pytest.raises(InvalidStudy, match="closes arms, as a second person approves"):
        trial.retire_arm("a", **ANN)


def test_an_analysis_names_the_arms_that_were_retired():
    settings = {"arms": ["tea", "rum"], "stages": [Stage("main", least=0.2)]}
    study = Study.create("memory://bar", "bar", policy=linear(), **settings)
    study.ask(contexts_of(0)[:2])
    study.retire_arm("rum", **ANN)
    study.activate_arm("rum", **ANN)
    said = " ".join(study.analysis().deviations)
    assert "rum was retired after decision 1 (sold out)" in said
    assert "rum was activated after decision 1 (sold out)" in said


def test_named_arms_of_columns_are_retired_by_the_command(tmp_path):
    storage = f"sqlite:///{tmp_path}/bar.db"
    policy = FramePolicy.fit(LinTS, {"age": [20.0, 40.0]}, arms=["tea", "rum"], schedule=OnDemand(), seed=0)
    Study.create(storage, "bar", policy=policy).close()
    for words, arms in ((["rum"], {"tea"}), (["rum", "--activate"], {"tea", "rum"})):
        done = CliRunner().invoke(app, ["study", "retire", storage, *words, "--actor", "ann"])
        assert done.exit_code == 0, done.output
        with Study.open(storage) as study:
            seq = study.status().events
            assert {study.ask({"user": {"age": 30.0}}, id=f"{seq}-{i}").arm for i in range(20)} == arms
