import sys

import numpy as np
import pytest

from rarely import InvalidInput, RarelyError
from rarely.worlds import PLAIN_ARMS, WORLD_SETS, DataUnavailable
from rarely.worlds.gallery import GALLERY
from rarely_lab.compare import Comparison, Task, UnavailablePolicy, find_problem, policies, problems
from rarely_lab.compare.policies import MODELS, POLICIES, SCHEDULES, find_policy
from rarely_lab.compare.problems import expand
from rarely_lab.compare.runs import Cell
from rarely_lab.engine.cell import play_cell
from rarely_lab.engine.play import play

OWN = """
class Mine:
    def __init__(self, task):
        self.task = task
    def select(self, contexts):
        return self.task.seed % len(contexts)
    def observe(self, round, contexts, arm, reward):
        pass
    def due(self, round):
        return round in self.task.squares
    def update(self):
        pass

def lacking(task):
    return object()

number = 7
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)
    (tmp_path / "my_policies.py").write_text(OWN, encoding="utf-8")


def plays(policy, *, batches=4, problem="needle", rounds=16):
    result = play_cell(Cell(problem, policy, batches, 0, rounds))
    assert result.record is not None, result.error
    return result.record


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", ["linucb", "kernelucb"])
def test_every_schedule_keeps_the_budget(model, schedule):
    name = model if schedule == "paced" else f"{model}@{schedule}"
    assert 1 <= len(plays(name, rounds=30).data["updates"]) <= 3


@pytest.mark.parametrize("model", MODELS)
def test_every_model_plays_and_with_b_equal_to_t_updates_after_every_round(model):
    assert plays(model, batches=None, rounds=6).data["updates"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("forest", "wheel"),
        ("vowpal", "wheel"),
        *(
            (name, "needle+delay")
            for name in ("forest-bootstrap", "boosting", "lightgbm", "lightgbm-bootstrap", "vowpal")
        ),
    ],
)
def test_every_adapter_plays_where_its_package_is_installed(name, problem):
    pytest.importorskip(POLICIES[name].package)
    assert len(plays(name, problem=problem, rounds=30).data["updates"]) == 3


def test_a_regressor_learns_which_arm_pays():
    pytest.importorskip("sklearn")
    problem = find_problem("constant-arms")
    played = play(POLICIES["forest"].make(problem.task(200, 4, 0)), problem.rounds(0, 200), 4)
    assert played.regrets[-60:].sum() < 0.5 * played.regrets[:60].sum()


def test_a_policy_without_its_package_is_refused_by_name_and_skipped_among_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(UnavailablePolicy, match="lightgbm needs lightgbm, which is not installed: pip"):
        Comparison(["needle"], ["lightgbm"], [5]).plan()
    cells, skipped = Comparison(["needle"], ["all"], [5]).plan()
    assert any(sentence.startswith("lightgbm is skipped") for sentence in skipped)
    assert {"uniform", "default@trigger"} <= {cell.policy for cell in cells}


@pytest.mark.usefixtures("own")
def test_a_policy_of_ones_own_is_found_in_the_folder_and_named():
    assert find_policy("mine=my_policies:Mine").name == "mine"
    assert find_policy("my_policies:Mine").name == "my_policies.Mine"
    assert plays("my_policies:Mine").data["updates"] == [1, 4, 9]
    assert len(find_policy("my_policies:Mine").text) == 16


BESIDE = {
    "one_policy.py": "import numpy, beside\nfrom nets.deep import layer\nmake = dict",
    "beside.py": "import other_policy  # which imports it\n",
    "other_policy.py": "def make():\n    from packed import third\n",
    "nets/deep/layer.py": "from . import unit\n",  # folders without __init__
    "nets/deep/unit.py": "",
    "packed/__init__.py": "",
    "packed/third.py": "from .. import beside",
    "unrelated.py": "",
}


@pytest.mark.parametrize("edited", [None, *BESIDE])
def test_an_edit_of_what_a_policy_imports_beside_it_makes_it_another(edited, tmp_path):
    def text(folder, edited=None):
        for name, content in BESIDE.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content + ("# edited" if name == edited else ""), encoding="utf-8")
        return policies._text("one_policy", folder / "one_policy.py")

    same = text(tmp_path / "a") == text(tmp_path / "b", edited)
    assert same == (edited in (None, "unrelated.py"))


def test_of_an_installed_policy_its_own_package_counts_and_no_other(tmp_path):
    def text(folder, other="", own=""):
        for name, content in {"numpy.py": other, "p/__init__.py": "", "p/net.py": own}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        (folder / "p/make.py").write_text("import numpy\nfrom . import net", encoding="utf-8")
        return policies._text("p.make", folder / "p/make.py")

    plain = text(tmp_path / "a" / "site-packages")
    assert plain == text(tmp_path / "b" / "site-packages", other="x = 1")
    assert plain != text(tmp_path / "c" / "site-packages", own="x = 1")


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nothing", "no policy is called 'nothing'"),
        ("no_such_module:make", "cannot be imported"),
        ("my_policies:absent", "has no function or class 'absent'"),
        ("my_policies:number", "has no function or class 'number'"),
        ("a/b=my_policies:Mine", "name must be letters"),
        ("linucb=my_policies:Mine", "not one of the suite's"),
    ],
)
def test_misuse_of_policies_is_one_sentence(given, says):
    with pytest.raises(InvalidInput, match=says):
        find_policy(given)


@pytest.mark.usefixtures("own")
def test_a_factory_of_something_else_fails_in_its_own_cells():
    result = play_cell(Cell("needle", "x=my_policies:lacking", 4, 0, 16))
    assert result.record is None
    assert "must give an object with select, observe, due and update; it lacks select" in result.error


@pytest.mark.parametrize(
    "name", [*GALLERY, *PLAIN_ARMS, "cosine", "quadratic", "wheel-0.95", "cosine+drift", "one-in-fifty+drift"]
)
def test_every_problem_without_data_has_rounds_and_a_task(name):
    problem = find_problem(name)
    rounds, task = problem.rounds(0, 20), problem.task(20, 5, 0)
    assert rounds.contexts.shape == (20, task.arms, task.dim)
    assert task.pilot().shape == rounds.contexts.shape
    assert not np.array_equal(problem.rounds(1, 20).rewards, rounds.rewards)
    assert np.array_equal(problem.rounds(0, 20).rewards, rounds.rewards)


@pytest.mark.parametrize("name", WORLD_SETS["sklearn"])
def test_tables_of_scikit_learn_are_played_in_blocks(name):
    pytest.importorskip("sklearn")
    problem = find_problem(name)
    task = problem.task(10, 5, 0)
    assert task.block * task.arms == task.dim
    assert problem.family == "sklearn"
    features = task.features(problem.rounds(0, 1).contexts[0])
    assert features.shape == (task.arms, task.block + task.arms)
    assert (features[:, : task.block] == features[0, : task.block]).all()


def test_a_file_is_a_problem_with_its_own_length(tmp_path):
    (tmp_path / "mine.csv").write_text("x,y,kind\n1,2,a\n2,1,b\n3,3,a\n", encoding="utf-8")
    problem = find_problem(f"{tmp_path / 'mine.csv'}+delay", "kind")
    assert (problem.name, problem.family, problem.length(100)) == ("mine+delay", "own", 3)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cosinus", "no world is called 'cosinus'"),
        ("cosine+fast", r"a variant is \+drift or \+delay"),
        ("cosine+", r"a variant is \+drift or \+delay"),
        ("wheel-2", "between 0 and 1"),
        ("wheel-x", "between 0 and 1"),
        ("nowhere.csv", "cannot be read"),
    ],
)
def test_misuse_of_problems_is_one_sentence(name, says):
    with pytest.raises(InvalidInput, match=says):
        find_problem(name)


def test_absent_data_is_skipped_with_a_sentence(monkeypatch):
    def absent(name, label, ignore):
        if name == "shuttle":
            raise DataUnavailable("shuttle.trn is not here.")
        if name == "wine":
            raise RarelyError("wine comes with scikit-learn, which is not installed.")
        return plain(name, label, ignore)

    plain = problems.find_world
    monkeypatch.setattr(problems, "find_world", absent)
    find_problem.cache_clear()
    cells, skipped = Comparison(["shuttle", "needle", "wine"], ["linucb"], [5]).plan()
    assert {cell.problem for cell in cells} == {"needle"}
    assert skipped[0] == "shuttle is skipped: shuttle.trn is not here."
    with pytest.raises(InvalidInput, match=r"nothing is left to play\. shuttle is skipped"):
        Comparison(["shuttle"], ["linucb"], [5]).plan()


def test_sets_are_expanded_with_their_variant():
    assert expand(["paper+delay"]) == ["cosine+delay", "quadratic+delay", "mushroom+delay", "magic+delay"]
    assert len(expand(["all"])) == sum(map(len, WORLD_SETS.values()))


def test_cells_come_run_by_run_and_budgets_beyond_the_horizon_are_left_out():
    cells, said = Comparison(["needle"], ["linucb", "linucb@fixed"], [2, 50, None], seeds=2, rounds=40).plan()
    assert said == ["B = 50 is left out on needle, which has T = 40: T is for every round."]
    assert [cell.id for cell in cells] == [
        f"needle/{policy}/seed{seed}" for seed in (0, 1) for policy in ("linucb/B2", "linucb@fixed/B2", "linucb/BT")
    ]


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"rounds": 1}, {"budgets": [0]}, {"problems": []}])
def test_a_comparison_checks_itself(wrong):
    with pytest.raises(InvalidInput):
        Comparison(**({"problems": ["needle"], "policies": ["linucb"], "budgets": [5]} | wrong))


@pytest.mark.parametrize(("horizon", "batches"), [(100, 5), (30, 29), (10, 10), (7, 1), (50, 40)])
def test_the_squares_are_within_the_budget_and_the_horizon(horizon, batches):
    squares = Task(2, 1, horizon, batches, 0).squares
    assert len(squares) <= batches - 1
    assert all(1 <= end < horizon for end in squares)
    assert list(squares) == sorted(set(squares))
