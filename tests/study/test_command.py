"""`rarely study`: the verbs as commands, and errors in one sentence."""

import json

import pytest
from typer.testing import CliRunner

from rarely import FramePolicy, LinUCB, OnDemand
from rarely._cli import app
from rarely.offpolicy import read_log
from rarely.study import Study


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["study", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def storage(tmp_path):
    url = f"sqlite:///{tmp_path}/trial.db"
    schedule = {"kind": "FixedGrid", "horizon": 100, "batches": 20}
    described = {"policy": {"kind": "LinTS", "dim": 2, "schedule": schedule, "seed": 0}, "arms": ["red", "blue"]}
    (tmp_path / "colours.json").write_text(json.dumps(described))
    call("create", url, "--name", "colours", "--file", tmp_path / "colours.json")
    return url


def test_the_commands_of_a_study(storage, tmp_path):
    with Study.open(storage) as study:
        study.ask_many([([[1, i], [0, 1]], f"v{i}") for i in range(111)])
        study.tell_many([(f"v{i}", i % 2) for i in range(110)])
    assert "version 1 decides" in call("update", storage, "--actor", "nightly")
    status = json.loads(call("status", storage))
    assert (status["decisions"], status["version"], status["rewards"]["used"]) == (111, 1, 110)
    (tmp_path / "heads.jsonl").write_text(call("status", storage))
    assert "whole" in call("verify", storage, "--head", status["head"], "--seq", status["events"])
    assert "whole" in call("verify", storage, "--heads", tmp_path / "heads.jsonl")
    assert "cut off" in call("verify", storage, "--head", "0" * 64, code=1)
    assert "equal" in call("replay", storage)
    call("export", storage, tmp_path / "log.csv")
    log = read_log(tmp_path / "log.csv")
    assert (len(log), log.missing) == (111, 1)
    call("backup", storage, tmp_path / "copy.db")
    assert json.loads(call("status", f"sqlite:///{tmp_path}/copy.db")) == status
    assert json.loads(call("status", tmp_path / "copy.db")) == status
    assert "exists already" in call("backup", storage, tmp_path / "copy.db", code=1)


def test_a_study_from_the_file_of_a_policy_of_tables(tmp_path):
    policy = FramePolicy.fit(LinUCB, {"age": [20, 30, 40]}, arms=["tea", "rum"], schedule=OnDemand())
    policy.save(tmp_path / "policy.rarely")
    (tmp_path / "rest.json").write_text(json.dumps({"rewards": {"most": 1.0}}))
    given = ("--policy", tmp_path / "policy.rarely", "--file", tmp_path / "rest.json")
    call("create", tmp_path / "bar.db", "--name", "bar", *given)
    with Study.open(f"sqlite:///{tmp_path / 'bar.db'}") as study:
        assert study.ask({"user": {"age": 33}}).arm == "tea"
        assert study.settings.rewards.most == 1.0
    assert "give --file" in call("create", tmp_path / "none.db", "--name", "bar", code=1)
    (tmp_path / "rest.json").write_text(json.dumps({"policy": {"kind": "LinUCB", "dim": 2}}))
    assert "its policy comes once" in call("create", tmp_path / "two.db", "--name", "bar", *given, code=1)


def test_a_study_from_a_file_with_stages(tmp_path):
    described = {
        "policy": {
            "kind": "LinTS",
            "dim": 2,
            "schedule": {"kind": "FixedGrid", "horizon": 50, "batches": 5},
            "seed": 1,
        },
        "arms": ["placebo", "drug"],
        "rewards": {"least": 0.0, "most": 1.0},
        "stages": [{"name": "burn-in", "rounds": 4, "burn_in": True}, {"name": "main", "least": 0.2, "approval": True}],
        "control": "placebo",
    }
    (tmp_path / "study.json").write_text(json.dumps(described))
    storage = f"sqlite:///{tmp_path}/trial.db"
    call("create", storage, "--name", "drug", "--file", tmp_path / "study.json")
    with Study.open(storage) as study:
        answers = study.ask_many([([[1, 0], [0, 1]], f"{i}") for i in range(20)])
        study.tell_many([(f"{i}", 1) for i in range(20)])
    assert [answer.probability for answer in answers[:4]] == [0.5] * 4
    assert min(answer.probability for answer in answers) >= 0.2
    assert "waits" in call("update", storage)
    assert "version 1" in call("approve", storage, "--actor", "ann")
    assert "no candidate" in call("dismiss", storage, "--actor", "ann", code=1)
    assert "version 0" in call("rollback", storage, 0, "--pin", "--actor", "ann")
    assert "pinned" in call("update", storage, code=1)
    said = call("analysis", storage)
    assert "drug − placebo" in said
    assert "without a plan of analysis" in said
    assert "by ann: version 0 replaced version 1 by a rollback" in said
    for suffix in ("html", "md", "json"):
        call("analysis", storage, "--out", tmp_path / f"a.{suffix}")
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert [look["round"] for look in found["contrasts"][0]["looks"]] == [20]
    assert "drug − placebo" in (tmp_path / "a.md").read_text(encoding="utf-8")


def test_looks_and_closings_of_a_trial(tmp_path):
    described = {
        "policy": {"kind": "LinTS", "dim": 2, "schedule": {"kind": "AtRounds", "rounds": [10]}, "seed": 0},
        "arms": ["placebo", "low", "high"],
        "control": "placebo",
        "rewards": {"least": 0.0, "most": 1.0},
        "stages": [{"name": "main", "least": 0.2}],
        "plan": {"rounds": 40, "looks": 2, "effect": 0.3, "size": "Simulated."},
    }
    (tmp_path / "study.json").write_text(json.dumps(described))
    storage, both = f"sqlite:///{tmp_path}/trial.db", ["--actor", "ann", "--approved-by", "bob"]
    call("create", storage, "--name", "drug", "--file", tmp_path / "study.json")
    with Study.open(storage) as study:
        answers = study.ask_many([([[1, 0], [0, 1], [1, 1]], f"{i}") for i in range(20)])
        study.tell_many([(answer.id, answer.index % 2) for answer in answers])
    assert "repeated p" in call("look", storage, "--actor", "ann")
    assert "look 2 comes after decision 40" in call("look", storage, "--actor", "ann", code=1)
    assert "say what to close" in call("close", storage, *both, code=1)  # a forgotten --arm
    assert "say what to close" in call("close", storage, "--arm", "low", "--enrolment", *both, code=1)
    assert "closed: low" in call("close", storage, "--arm", "low", *both)
    assert "closed: enrolment" in call("close", storage, "--enrolment", *both, "--reason", "money")
    said = call("analysis", storage, "--plan", tmp_path / "plan.md")
    assert "Enrolment was closed before the last planned look" in said
    assert "No look is on record" in call("analysis", storage, "--as-of", "41")  # an event
    assert "40 patients. Simulated." in (tmp_path / "plan.md").read_text(encoding="utf-8")
    assert "deviations: 1" in call("analysis", storage, "--blinded")
    assert "event from 1 to " in call("analysis", storage, "--as-of", "4100", code=1)


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ([], "JSON object"),
        ({"policy": {"kind": "os.system"}}, "a policy must be one of"),
        ({"policy": {"kind": "LinUCB"}}, "LinUCB: missing a required argument: 'dim'"),
        ({"policy": {"kind": "LinUCB", "dim": 2, "colour": 1}}, "unknown argument 'colour' for LinUCB"),
        ({"policy": {"kind": "LinUCB", "dim": 2}, "stages": [{"nome": "x"}]}, "Did you mean 'name'?"),
        ({"policy": {"kind": "LinUCB", "dim": 2}, "rewards": {"wait": -1}}, "wait must be"),
        ({"policy": {"kind": "LinUCB", "dim": 2}, "colour": 1}, "got 'colour'"),
    ],
)
def test_descriptions_that_are_refused(tmp_path, described, says):
    (tmp_path / "study.json").write_text(json.dumps(described))
    assert says in call(
        "create", f"sqlite:///{tmp_path}/t.db", "--name", "x", "--file", tmp_path / "study.json", code=1
    )


def test_errors_are_one_sentence(tmp_path):
    assert "does not exist" in call("status", f"sqlite:///{tmp_path}/none.db", code=1)
    assert "does not exist" in call("status", tmp_path / "none.db", code=1)
    assert "storage must be" in call("status", "mysql://none", code=1)
    (tmp_path / "text.db").write_text("no database" * 100)
    assert "not an intact SQLite database" in call("status", f"sqlite:///{tmp_path}/text.db", code=1)


def test_a_study_without_a_seed_is_not_created_again_and_the_refusal_says_so(tmp_path):
    described = {"policy": {"kind": "LinUCB", "dim": 2}, "arms": ["red", "blue"]}
    (tmp_path / "study.json").write_text(json.dumps(described))
    again = ("create", tmp_path / "shop.db", "--name", "shop", "--file", tmp_path / "study.json")
    assert "any number of versions" in call(*again)
    refused = " ".join(call(*again, code=1).split())
    assert "with other settings: seed. Open it" in refused
    assert "draws one; name it to create the same again" in refused
