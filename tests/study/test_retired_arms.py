"""Arms that are retired and activated again while others decide: acts on record, replayed and followed."""

import pytest
from typer.testing import CliRunner

from rarely import FramePolicy, LinTS, OnDemand
from rarely._cli import app
from rarely.study import AnalysisPlan, EnrolmentClosed, InvalidStudy, Stage, Study, StudyExists
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


USER = {"user": {"age": 30.0}}


def bar(storage, **settings):
    """A study of users and two arms, with room for two more."""
    arms = ["tea", "rum", "spare 1", "spare 2"]
    policy = FramePolicy.fit(LinTS, {"age": [20.0, 40.0]}, arms=arms, schedule=OnDemand(), seed=0)
    study = Study.create(storage, "bar", policy=policy, **settings)
    for spare in arms[2:]:
        study.retire_arm(spare, **ANN)
    return study


def served(study, rounds, first=0):
    arms = {study.ask(USER, id=f"{first + i}").arm for i in range(rounds)}
    for i in range(rounds):
        study.tell(f"{first + i}", float(i % 2))
    return arms


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"], indirect=True)
def test_an_arm_that_comes_later_is_added_by_its_name(storage):
    shared = f"{storage}?shared=1" if "sqlite" in storage else storage
    study, other = bar(shared, stages=[Stage("main", least={"tea": 0.2, "spare 1": 0.2})]), Study.open(shared, "bar")
    assert served(study, 20) == served(other, 20, 20) == {"tea", "rum"}
    study.update()
    study.add_arm("cake", **ANN)
    assert study.settings.arms == ("tea", "rum", "cake", "spare 2")
    gain = {"tea": 1.0, "rum": 1.0, "cake": 2.0, "spare 2": 1.0}
    assert other.ask(USER, id="only", available=["cake"], worth={"gain": gain}).arm == "cake"  # at once
    assert other.tell("only", 1.0, arm="tea", reason="no cake was left").reason == "override"
    assert "cake" in served(study, 30, 40)
    assert other.ask(USER, id="40") == study.ask(USER, id="40")
    other.update()
    other.add_arm("pie", **ANN)
    assert served(other, 40, 80) >= {"cake", "pie"}
    assert study.settings.stages[0].least == {"tea": 0.2, "cake": 0.2}
    assert study.settings.arms == ("tea", "rum", "cake", "spare 2")  # until it is asked
    assert "pie" in served(study, 40, 120)
    assert [(each.kind, each.content["arm"]) for each in study.acts() if each.kind == "add"] == [("add", 2), ("add", 3)]
    for each in (study, other):
        each.close()
    with Study.open(shared, "bar", lazy=True) as again:
        assert again.log().arm_names == ("tea", "rum", "cake", "pie")
        assert again.verify().whole
        assert again.replay().equal
        said = " ".join(again.analysis(control="tea").deviations)
        assert "cake was added after decision 40 (sold out)" in said
    policy = FramePolicy.fit(LinTS, {"age": [20.0, 40.0]}, arms=4, schedule=OnDemand(), seed=0)
    with pytest.raises(StudyExists):
        Study.create(shared, "bar", policy=policy)


def test_a_process_that_only_reads_knows_arms_by_their_names(tmp_path):
    shared = f"sqlite:///{tmp_path}/bar.db?shared=1"
    study = bar(shared)
    study.ask(USER, id="first")
    readers = [Study.open(shared, "bar") for _ in range(4)]
    study.add_arm("cake", **ANN)
    study.ask(USER, id="cake", available=["cake"])
    one, log, table, trial = readers
    assert one.decision("cake").answer.arm == "cake"
    assert log.log().arm_names == ("tea", "rum", "cake", "spare 2")
    assert ",cake," in "".join(table.csv_text())
    assert [mean.name for mean in trial.analysis(control="tea").means][2] == "cake"
    assert [each.answer.arm for each in trial.decisions()][-1] == "cake"
    for each in (study, *readers):
        each.close()


def test_an_arm_is_added_by_the_command(tmp_path):
    storage = f"sqlite:///{tmp_path}/bar.db"
    bar(storage).close()
    done = [CliRunner().invoke(app, ["study", "add", storage, name, "--actor", "ann"]) for name in ("cake", "tea")]
    assert [each.exit_code for each in done] == [0, 1]
    assert "added: cake" in done[0].output
    assert "'tea' is an arm of the study" in done[1].output
    with Study.open(storage) as study:
        assert study.settings.arms == ("tea", "rum", "cake", "spare 2")


def test_a_new_arm_needs_a_new_name_and_a_spare_place():
    study = bar("memory://bar-refused")
    study.activate_arm("spare 2", **ANN)
    study.ask(USER, id="first")
    study.retire_arm("spare 2", **ANN)  # it may have decisions: no other arm takes its place
    study.retire_arm("rum", **ANN)
    events = study.status().events
    with pytest.raises(InvalidStudy, match="'rum' is an arm of the study"):
        study.add_arm("rum", **ANN)
    with pytest.raises(InvalidStudy, match="must say who decides"):
        study.add_arm("cake", actor="")
    assert study.status().events == events
    study.add_arm("cake", **ANN)
    with pytest.raises(InvalidStudy, match="no spare arm is left for 'pie'"):
        study.add_arm("pie", **ANN)
    assert study.settings.arms == ("tea", "rum", "cake", "spare 2")
    assert study.ask(USER, id="first").arm in ("tea", "rum", "spare 2")


def test_arms_of_a_plain_policy_are_added_too(make):
    study = make(control="a")
    for spare in ("a", "b"):
        study.retire_arm(spare, **ANN)
    with pytest.raises(InvalidStudy, match="control must be one of the arms"):
        study.add_arm("new", **ANN)
    study.activate_arm("a", **ANN)
    study.add_arm("new", **ANN)
    assert study.settings.arms == ("a", "new", "c")
    assert study.ask({"new": [1.0, 0.0]}).arm == "new"
    assert study.replay().equal
