"""`rarely study`: the verbs as commands, and errors in one sentence."""

import json

import pytest
from typer.testing import CliRunner

from rarely._cli import app
from rarely.offpolicy import read_log


def call(*arguments, input=None, code=0):
    result = CliRunner().invoke(app, ["study", *map(str, arguments)], input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def storage(tmp_path):
    url = f"sqlite:///{tmp_path}/trial.db"
    call("create", url, "--name", "colours", "--arms", "red, blue", "--dim", 2, "--rounds", 100, "--policy", "LinTS")
    return url


def lines(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_the_four_verbs(storage, tmp_path):
    asked = "\n".join(json.dumps({"id": f"v{i}", "contexts": [[1, i], [0, 1]]}) for i in range(110))
    first = lines(call("ask", storage, input=asked))
    assert lines(call("ask", storage, input=asked)) == first
    one = lines(call("ask", storage, "--id", "v3", "--contexts", "[[1, 3], [0, 1]]"))
    assert one == [first[3]]
    assert lines(call("ask", storage, "--contexts", "[[1, 3], [0, 1]]", "--available", "blue"))[0]["arm"] == "blue"
    told = "\n".join(json.dumps({"id": f"v{i}", "reward": i % 2}) for i in range(110))
    assert {line["status"] for line in lines(call("tell", storage, input=told))} == {"accepted"}
    assert lines(call("tell", storage, "--id", "v1", "--reward", 1))[0]["status"] == "duplicate"
    assert "version 1 decides" in call("update", storage, "--actor", "nightly")
    status = json.loads(call("status", storage, "--json"))
    assert (status["decisions"], status["version"], status["rewards"]["used"]) == (111, 1, 110)
    assert "111" in call("status", storage)
    assert "whole" in call("verify", storage, "--head", status["head"], "--seq", status["events"])
    assert "equal" in call("replay", storage)
    assert "chain is whole" in call("doctor", storage)
    call("export", storage, tmp_path / "log.csv")
    log = read_log(tmp_path / "log.csv")
    assert (len(log), log.missing) == (111, 1)
    call("backup", storage, tmp_path / "copy.db")
    assert json.loads(call("status", f"sqlite:///{tmp_path}/copy.db", "--json")) == status
    assert json.loads(call("status", tmp_path / "copy.db", "--json")) == status
    assert "exists already" in call("backup", storage, tmp_path / "copy.db", code=1)


def test_a_refused_line_is_told_and_the_others_count(storage):
    asked = '{"id": "a", "contexts": [[1, 0], [0, 1]]}\n\n{"id": "b", "contexts": [[1, 0]]}\n'
    output = call("ask", storage, input=asked, code=1)
    assert [set(line) >= {"arm"} for line in lines(output)] == [True, False]
    assert "refused" in output
    bad_lines = [
        "[1]",
        '{"id": "a"',
        '{"id": "a", "contexts": NaN}',
        '{"id": 1, "id": 2}',
        '{"other": 1}',
        '{"id": "x"}',
    ]
    for bad in bad_lines:
        assert "error:" in call("ask", storage, input=bad, code=1)


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
    call("register", storage, tmp_path / "registration.json")
    asked = "\n".join(json.dumps({"id": f"{i}", "contexts": [[1, 0], [0, 1]]}) for i in range(20))
    answers = lines(call("ask", storage, input=asked))
    assert [answer["probability"] for answer in answers[:4]] == [0.5] * 4
    assert min(answer["probability"] for answer in answers) >= 0.2
    call("tell", storage, input="\n".join(json.dumps({"id": f"{i}", "reward": 1}) for i in range(20)))
    assert "waits" in call("update", storage)
    assert "version 1" in call("approve", storage, "--actor", "ann")
    assert "no candidate" in call("dismiss", storage, "--actor", "ann", code=1)
    assert "version 0" in call("rollback", storage, 0, "--pin", "--actor", "ann")
    assert "pinned" in call("update", storage, code=1)
    said = call("analysis", storage, "--registration", tmp_path / "registration.json")
    assert "drug − placebo" in said
    assert "without a plan of analysis" in said
    assert "by ann: version 0 replaced version 1 by a rollback" in said
    for suffix in ("html", "md", "json"):
        call("analysis", storage, "--looks", "10,20", "--spending", "pocock", "--out", tmp_path / f"a.{suffix}")
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert found["contrasts"][0]["looks"] == []  # all rewards are 1, which tells no variance
    assert found["plan"] == {"rounds": 20, "looks": [10, 20], "spending": "pocock", "level": 0.95}
    assert "drug − placebo" in (tmp_path / "a.md").read_text(encoding="utf-8")
    assert "whole numbers" in call("analysis", storage, "--looks", "many", code=1)
    assert "whole" in call("verify", storage, "--registration", tmp_path / "registration.json")
    changed = json.loads((tmp_path / "registration.json").read_text()) | {"seed": 2}
    (tmp_path / "registration.json").write_text(json.dumps(changed))
    assert "digest differs" in call("verify", storage, "--registration", tmp_path / "registration.json", code=1)


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ([], "JSON object"),
        ({"policy": {"kind": "os.system"}}, "one of BatchNeuralUCB"),
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
    assert "needs --arms" in call("create", f"sqlite:///{tmp_path}/t.db", "-n", "x", code=1)
    (tmp_path / "text.db").write_text("no database" * 100)
    assert "not an intact SQLite database" in call("status", f"sqlite:///{tmp_path}/text.db", code=1)
