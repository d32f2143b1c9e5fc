"""Parts that are written outside of the package, with public imports alone."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_parts.py"
CHECKS = {
    "schedule": "check_schedule(lambda: Doubling(horizon=100, batches=7))",
    "learner": "check_learner(lambda: LeastSquares(np.zeros(2)))",
    "covariance": "check_covariance(lambda widths, ridge: DenseInverse(widths, ridge, Limit(widths)))",
    "rule": "check_rule(lambda: Softmax(0.3))",
    "policy": (
        "check_policy(lambda s: ComposedPolicy(LeastSquares(np.zeros(2)), s, covariance='dense_inverse', seed=0))"
    ),
}
STUDY = """
policy = policies()[1]
study = Study.create("sqlite:///own.db", "own", policy=policy, arms=["a", "b", "c", "d"])
rng = np.random.default_rng(0)
for t in range(20):
    answer = study.ask(rng.normal(size=(4, 3)), id=f"visit-{t}")
    study.tell(answer.id, float(rng.normal()))
print(study.update())
study.close()
"""
REOPEN = """
study = Study.open("sqlite:///own.db", "own")
print(study.status().version, study.status().decisions, study.ask(np.eye(3)[[0, 1, 2, 0]], id="next").index in range(4))
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A folder with a module of somebody else's."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copy(EXAMPLE, folder / "outside_parts.py")
    return folder


def run(folder, text, *, imports=True):
    head = "import numpy as np\nfrom rarely import ComposedPolicy\nfrom rarely.extend import Limit\n"
    head += "from rarely.testing import *\nfrom rarely.study import Study\n"
    head += "from outside_parts import *\n" if imports else ""
    return subprocess.run(
        [sys.executable, "-c", head + text],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_imports_nothing_private():
    imported = [node for node in ast.walk(ast.parse(EXAMPLE.read_text())) if isinstance(node, ast.ImportFrom)]
    modules = {node.module for node in imported if node.module and node.module.startswith("rarely")}
    assert modules == {"rarely", "rarely.extend"}
    assert not [alias.name for node in imported for alias in node.names if alias.name.startswith("_")]


@pytest.fixture(scope="module")
def broken(outside):
    """What each check raises, made one after another in one Python."""
    text = "import json, traceback\nbroken = {}\n"
    for part, check in CHECKS.items():
        text += f"try:\n    {check}\nexcept BaseException:\n    broken[{part!r}] = traceback.format_exc()\n"
    done = run(outside, text + "print(json.dumps(broken))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("part", CHECKS)
def test_each_part_keeps_its_promises(broken, part):
    assert broken.get(part, "") == ""


def test_policies_with_these_parts_are_played_saved_and_loaded(outside):
    done = subprocess.run([sys.executable, outside / "outside_parts.py"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "LinUCB, Z as dense_inverse: 4.3 missed, 9 updates",
        "ComposedPolicy, Z as dense_inverse: 3.5 missed, 9 updates",
    ]


def test_a_study_holds_them_and_says_what_to_import_where_they_are_not(outside):
    made = run(outside, STUDY)
    assert (made.returncode, made.stdout) == (0, "version\n"), made.stderr
    again = run(outside, REOPEN)
    assert (again.returncode, again.stdout) == (0, "1 20 True\n"), again.stderr
    without = run(outside, REOPEN, imports=False)
    assert without.returncode != 0
    assert "import its module" in without.stderr
    assert "damaged" not in without.stderr
