"""A study of a policy whose classes are the user's: what is not imported is named, and nothing is called damaged."""

import importlib
import json
import sys

import pytest
from typer.testing import CliRunner

from rarely import EnsemblePolicy, LinUCB, Schedule
from rarely._cli import app
from rarely._core.schedules import SCHEDULES
from rarely.extend.provisional import POLICIES
from rarely.service import create_app
from rarely.study import InvalidStudy, Study, UnknownPart, session
from studies import contexts_of, play

MODULE = '''
"""Parts of my own."""

from dataclasses import dataclass

from rarely import LinUCB, Schedule


class Cautious(LinUCB):
    """Half as curious."""


@dataclass(frozen=True)
class Doubling(Schedule):
    """Updates after rounds 1, 2, 4, 8, …."""

    horizon: int = 100
    batches: int = 8

    def first_due(self, round, growth):
        ahead = self.lookahead(round, growth, 0)
        return ahead - 1 if ahead <= len(growth) else None

    def lookahead(self, round, growth, rounds_in_batch):
        return (1 << round.bit_length()) - round
'''
KINDS = {"Cautious": POLICIES, "Doubling": SCHEDULES}


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A module of the user's, importable in the folder of the command."""
    (tmp_path / "my_parts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "my_parts"
    sys.modules.pop("my_parts", None)
    for name, registry in KINDS.items():
        registry.pop(name, None)


def call(*arguments, code=0, **environment):
    result = CliRunner().invoke(app, [*map(str, arguments)], env=environment)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("name", KINDS)
def test_a_class_that_is_not_imported_is_named_and_its_checkpoints_stay(parts, name, tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(session, "CHECKPOINT_WORK", 0.0)
    monkeypatch.syspath_prepend(tmp_path)
    url = f"sqlite:///{tmp_path}/trial.db"
    module = importlib.import_module(parts)
    policy = module.Cautious(dim=2, seed=0) if name == "Cautious" else LinUCB(dim=2, schedule=module.Doubling(), seed=0)
    with Study.create(url, "trial", policy=policy, arms=3) as study:
        play(study, 0, 20)
    kind = KINDS[name].pop(name)  # as in a process that has not imported it
    with pytest.raises(UnknownPart, match=rf"(?s)is intact.*'{name}'.*import.*--import MODULE") as caught:
        Study.open(url)
    assert "damaged" not in str(caught.value)
    assert "backup" not in str(caught.value)
    with Study.open(url, lazy=True) as study:
        assert study.verify().whole
        assert len(study.log()) == 20
    KINDS[name][name] = kind
    with Study.open(url) as study:
        assert study.saved  # the checkpoint was not dropped
        assert study.ask(contexts_of(99)).round == 21
        assert study.replay().equal
    assert not [warning for warning in recwarn if "checkpoint" in str(warning.message)]


@pytest.mark.parametrize("by_variable", [False, True])
def test_commands_import_it_first(parts, tmp_path, by_variable):
    described = {"policy": {"kind": "Cautious", "dim": 2, "seed": 0}, "arms": ["red", "blue"]}
    (tmp_path / "study.json").write_text(json.dumps(described))
    create = ["create", "trial.db", "--name", "colours", "--file", "study.json"]
    assert "'Cautious'. If the class is your own, import its module first" in call("study", *create, code=1)
    if by_variable:
        assert "0 decisions" in call("study", *create, RARELY_IMPORT=parts)
    else:
        assert "0 decisions" in call("study", "--import", parts, *create)
    assert POLICIES["Cautious"].__module__ == parts
    with Study.open(f"sqlite:///{tmp_path}/trial.db") as study:
        assert type(study.policy(0)).__name__ == "Cautious"


REGRESSOR = """
from sklearn.dummy import DummyRegressor


class Nearest(DummyRegressor):
    pass


nearest, other = Nearest(), DummyRegressor()
"""


def test_a_model_that_is_code_is_given_or_named_by_its_module(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    (tmp_path / "my_nets.py").write_text(REGRESSOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("my_nets")
    storage = f"sqlite:///{tmp_path}/trial.db"
    policy = EnsemblePolicy(mine.Nearest(), dim=2, seed=0, members=2)
    with Study.create(storage, "trial", policy=policy, arms=["a", "b", "c"]) as study:
        play(study, 0, 4)
        assert study.update() == "version"
    with pytest.raises(UnknownPart, match=r"(?s)is intact.*Nearest.*load\(path, model=estimator\).*--import MODULE"):
        Study.open(storage)
    with pytest.raises(UnknownPart, match="holds a policy whose estimator is"):
        Study.open(storage, model=mine.other)
    for model in (mine.nearest, [3, mine.other, mine.nearest]):
        with Study.open(storage, model=model) as study:
            assert isinstance(study.policy(1).model, mine.Nearest)
            assert study.replay().equal
    assert "Nearest" in call("study", "status", "trial.db", code=1)
    assert "no attribute 'absent'" in call("study", "--import", "my_nets:absent", "status", "trial.db", code=2)
    for named in (("my_nets:nearest",), ("my_nets:other", "--import", "my_nets:nearest")):
        assert '"version": 1' in call("study", "--import", *named, "status", "trial.db")
    assert '"version": 1' in call("study", "status", "trial.db", RARELY_IMPORT="my_nets:nearest")
    app = create_app(storage, models=[mine.nearest])
    app.state.studies.start()
    app.state.studies.close()


@pytest.mark.parametrize(
    "command", [["study", "--import", "my_typo", "status", "x.db"], ["serve", "x", "--import", "my_typo"]]
)
def test_a_module_that_cannot_be_imported_is_named(command):
    assert "my_typo cannot be imported" in call(*command, code=2).replace("│ ", "")


def test_a_policy_that_cannot_be_saved_is_refused_with_the_reason():
    class Unsaved(Schedule):
        horizon = batches = 5

        def first_due(self, round, growth):
            return None

        def lookahead(self, round, growth, rounds_in_batch):
            return 1

        def describe(self):
            return {"kind": "NobodyKnows"}

    policy = LinUCB(dim=2, schedule=Unsaved())
    with pytest.raises(InvalidStudy, match=r"(?s)saved and loaded.*'NobodyKnows'.*rarely\.extend") as caught:
        Study.create("memory://unsaved", "trial", policy=policy, arms=2)
    assert "damaged" not in str(caught.value)
    assert "backup" not in str(caught.value)
