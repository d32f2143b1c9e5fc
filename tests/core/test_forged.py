"""Files that a forger has sealed again: what no policy saves is refused, and nothing else goes wrong.

`tests/fuzz.py` forges as many as you like; here is a sample of each kind of policy, and the fields of which each once
loaded and failed later.
"""

import copy

import pytest

import rarely
from forged import KINDS, consequence, saved, search
from rarely import SnapshotError
from rarely._core.saving import archive

EACH = 6
FIELDS = {
    "arm_stats.unexplored": [1],
    "arm_stats.rounds": "",
    "arm_stats.disjoint": 3,
    "expectations.arrived": [None],
    "expectations.errors": [1.0, 2.0],
    "expectations.raised": "arms",
    "history.kept.dropped_rewards": [3.5, 0.0, 0.0, 0.0],
    "history.kept.abandoned": "x",
    "history.kept.start": -1,
    "history.lives": [[None, "x"]],
    "history.logged": 10**9,
    "covariance.rounds": -1,
    "covariance.running_unit": -1e308,
    "learner.shuffle_seed": -1,
    "learner.reward_spread": 0,
    "own.compared": "x",
    "reader.columns": [1],
    "reader.arms": -2,
    "updates": [{"version": 1}],
    "events": [3],
    "version": 2**63,
    "base_round": 10**9,
    "learned": 2**53,
    "lost": 0.5,
    "radius": -1.0,
}


@pytest.fixture(scope="module")
def returning(tmp_path_factory):
    return saved("returning", tmp_path_factory.mktemp("forged") / "saved.rarely")


@pytest.mark.parametrize("place", FIELDS)
def test_a_field_of_another_kind_or_range_is_refused_by_its_name(returning, place, tmp_path):
    header, (*outer, last) = copy.deepcopy(returning.header), place.split(".")
    inside = header
    for step in outer:
        inside = inside[step]
    assert inside[last] != FIELDS[place]
    inside[last] = FIELDS[place]
    archive.write(tmp_path / "policy.rarely", header, returning.arrays)
    together = {"learned": "learned", "base_round": "batch", "history.logged": "logged", "history.kept.start": "start"}
    with pytest.raises(SnapshotError, match=together.get(place, place.replace(".", r"\."))):
        rarely.load(tmp_path / "policy.rarely")


@pytest.mark.parametrize("name", ["learner.settled", "history.arrivals", "history.rewards", "history.arms"])
def test_arrays_that_do_not_fit_each_other_are_refused(returning, name, tmp_path):
    wrong = -returning.arrays[name] - 2 if name == "history.arms" else returning.arrays[name][:-1]
    archive.write(tmp_path / "policy.rarely", returning.header, returning.arrays | {name: wrong})
    with pytest.raises(SnapshotError, match=r"must hold|parts do not fit"):
        rarely.load(tmp_path / "policy.rarely")


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_file_ends_in_a_typed_error_or_does_no_harm(kind, tmp_path):
    assert search(kind, tmp_path, seed=0, count=EACH) == []


def test_a_file_that_nobody_forged_does_no_harm_either(tmp_path):
    saved("Uniform", tmp_path / "policy.rarely")
    assert consequence(tmp_path / "policy.rarely", KINDS["Uniform"][1]) == ""
