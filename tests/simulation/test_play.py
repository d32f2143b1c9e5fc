import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest

from rarely import BatchNeuralUCB, FixedGrid, NeuralUCB
from rarely.experiments.catalogue import PROBLEMS, policy_of
from rarely.experiments.config import Cell, Configuration
from rarely.experiments.records import make_record
from rarely.simulation.play import play
from rarely.simulation.provenance import DECISIVE, PACKAGE, code_fingerprint, fingerprint_of
from rarely.worlds import Cosine

ROUNDS = Cosine().rounds(seed=0, count=30)


def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass


class Slow:
    """A policy whose methods take known times; `update` also sleeps, which costs the processor nothing."""

    log_det = 0.0
    due = True

    def select(self, contexts):
        burn(0.01)
        return SimpleNamespace(arm=0)

    def observe(self, decision, reward):
        burn(0.02)

    def update(self):
        burn(0.03)
        time.sleep(0.02)


def test_time_is_processor_time_split_into_selecting_and_training():
    played = play(Slow(), ROUNDS[:5])
    assert played.selecting.seconds == pytest.approx(5 * 0.03, rel=0.3)
    assert played.training.seconds == pytest.approx(4 * 0.03, rel=0.3)
    assert played.training.wall > played.training.seconds + 4 * 0.015


def test_sequential_play_updates_after_every_round_but_the_last():
    policy = NeuralUCB(10, hidden=4, training=1, seed=0)
    play(policy, ROUNDS)
    assert [u.round for u in policy.updates] == list(range(1, 30))


@pytest.mark.parametrize("count", [7, 211, 450])
def test_log_det_is_on_record_from_the_start_to_the_end(count):
    policy = BatchNeuralUCB(10, FixedGrid(count, 3), hidden=4, training=1, seed=0)
    played = play(policy, Cosine().rounds(seed=0, count=count))
    assert played.log_dets[0] == (0, 0.0)
    assert played.log_dets[-1] == (count, policy.log_det)
    assert min(count, 200) <= len(played.log_dets) <= 300


def test_what_is_on_record_is_what_the_world_paid():
    policy = BatchNeuralUCB(10, FixedGrid(30, 3), hidden=4, training=1, seed=0)
    played = play(policy, ROUNDS)
    arms = policy.history.arms
    np.testing.assert_allclose(policy.history.rewards, ROUNDS.paid(arms))
    np.testing.assert_allclose(played.regrets, ROUNDS.regrets(arms))
    assert played.right == np.mean(arms == ROUNDS.best)
    assert played.reward == pytest.approx(ROUNDS.paid(arms).sum())


def test_a_rejected_update_is_on_record_as_rejected():
    cell = Cell(PROBLEMS["cosine"], "paper", Configuration("fixed", batches=3), 0, 30)
    policy = policy_of(cell, Cosine())
    played = play(policy, ROUNDS)
    refused = SimpleNamespace(round=20, accepted=False, reason="it rained", log_det=1.0, attempts=24)
    fake = SimpleNamespace(updates=[policy.updates[0], refused])
    told = make_record(cell, SimpleNamespace(**(vars(played) | {"policy": fake})), 1.0).data["updates"]
    assert told["rounds"] == [10]
    assert told["rejected"] == [[20, "it rained"]]


def test_every_seed_has_initial_weights_of_its_own():
    weights = []
    for seed in (3, 4):
        cell = Cell(PROBLEMS["cosine"], "paper", Configuration("neuralucb"), seed, 10)
        weights.append(policy_of(cell, Cosine()).initial_weights[0])
    assert not np.array_equal(*weights)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package, whose fingerprint is asked for."""
    copy = tmp_path / "rarely"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    monkeypatch.setattr("rarely.simulation.provenance.PACKAGE", copy)
    yield copy
    forget()


def forget():
    code_fingerprint.cache_clear()
    fingerprint_of.cache_clear()


def fingerprint():
    forget()
    return code_fingerprint()


@pytest.mark.parametrize("part", DECISIVE)
def test_a_change_in_any_decisive_file_changes_the_fingerprint(part, package):
    before, path = fingerprint(), package / part
    for file in sorted(path.rglob("*.py"))[:2] if path.is_dir() else [path]:
        file.write_text(file.read_text() + "\nunknown = 1\n")
    assert fingerprint() != before


def test_files_that_are_moved_leave_the_fingerprint_as_it_was(package):
    """Into folders of their own, with every import rewritten and sorted anew."""
    before = fingerprint()
    moves = {"training.tuning": "fitting", "training.objective": "fitting", "choice.gaussian_argmax": "odds"}
    for name, folder in moves.items():
        room, _, module = name.partition(".")
        (package / "core" / folder).mkdir(exist_ok=True)
        (package / "core" / folder / "__init__.py").write_text('"""A room."""\n')
        (package / "core" / room / f"{module}.py").rename(package / "core" / folder / f"{module}.py")
    for file in package.rglob("*.py"):
        text = file.read_text()
        for name, folder in moves.items():
            module = name.partition(".")[2]
            text = text.replace(f"from rarely.core.{name} import", f"from rarely.core.{folder}.{module} import")
        file.write_text(text)
    assert "rarely.core.fitting.tuning" in (package / "core" / "policies" / "neural.py").read_text()
    assert fingerprint() == before


def test_a_comment_or_a_docstring_leaves_the_fingerprint_as_it_was(package):
    before, file = fingerprint(), package / "core" / "training" / "checkpoints.py"
    file.write_text(file.read_text().replace('"""', '"""Truly. ', 1) + "\n# a remark\n")
    assert fingerprint() == before


@pytest.mark.parametrize(
    "edit",
    [
        ("core.training.gradient_descent import ATTEMPTS", "core.inputs.scaling import ATTEMPTS"),  # of another module
        ("import ATTEMPTS", "import HOPELESS as ATTEMPTS, ATTEMPTS"),
        ("STABLE = 1.0", "STABLE = 1.1"),
        ("import numpy as np", "import cupy as np"),
    ],
)
def test_what_is_imported_counts(package, edit):
    before, file = fingerprint(), package / "core" / "training" / "checkpoints.py"
    assert edit[0] in file.read_text()
    file.write_text(file.read_text().replace(*edit))
    assert fingerprint() != before
