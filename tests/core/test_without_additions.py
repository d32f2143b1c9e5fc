"""The paper's algorithm stands alone: what the default adds can be taken out without touching anything else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rarely

ROOT = Path(__file__).parents[2]
ADDED = (
    "_core/policies/returning_arms.py",
    "_core/policies/tuned_network.py",
    "extend/additions.py",
)
PAPER = (
    "core/test_network_learner.py",
    "core/test_network.py",
    "core/test_sgd.py",
    "laws/test_one_file.py",
    "laws/test_dense_algorithm.py",
)
ONCE = "not (primal and (fixed or adaptive or sequential))"
"""Every scheme of the plain file with one form of Z: the other form reaches no other module of the paper."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A copy of the package without what tunes itself."""
    folder = tmp_path_factory.mktemp("bare")
    # With the bytecode, which is as old as its source; files that another process is writing have longer names.
    shutil.copytree(Path(rarely.__file__).parent, folder / "rarely", ignore=shutil.ignore_patterns("*.pyc.*"))
    for name in ADDED:
        (folder / "rarely" / name).unlink()
    return folder


def in_copy(folder, *command):
    path = os.pathsep.join((str(folder), str(ROOT / "tests")))
    environment = os.environ | {"PYTHONPATH": path, "EXAMPLES": "5"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_papers_learner_and_its_tests_are_green_without_them(bare):
    tests = [str(ROOT / "tests" / name) for name in PAPER]
    options = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", ONCE, "-c", os.devnull)
    options += ("--import-mode=importlib", "-o", "pythonpath=")
    done = in_copy(bare, "-m", "pytest", *options, *tests)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_every_policy_that_names_its_training_works_without_them(bare):
    code = """
import rarely
from rarely import BatchNeuralUCB, LinUCB, NeuralLinear, NeuralTS, OnDemand
assert rarely.__file__.startswith(%r)
for make in (BatchNeuralUCB, NeuralTS, NeuralLinear):
    policy = make(2, OnDemand(), hidden=8, training=5, seed=0)
    policy.observe(policy.select([[[0.0, 1.0], [1.0, 0.0]]] * 5), [1.0] * 5)
    policy.update()
for named in ({}, {"hidden": 8}):
    try:
        BatchNeuralUCB(2, OnDemand(), seed=0, **named)
    except ModuleNotFoundError as error:
        print(error.name)
"""
    done = in_copy(bare, "-c", code % str(bare))
    missing = [f"rarely._core.policies.{name}" for name in ("returning_arms", "tuned_network")]
    assert (done.returncode, done.stdout.split()) == (0, missing), done.stderr
