"""Files that a forger has sealed again: what no policy saves is refused, and nothing else goes wrong.

`python tests/fuzz.py forged` forges as many as you like; here is a sample of each kind of file, and the fields of which
each once loaded and failed later.
"""

import copy

import numpy as np
import pytest

import rarely
from effort import MANY
from forged import KINDS, Bounded, measured, prepared, search
from rarely import SnapshotError
from rarely._core.saving import archive

EACH = {kind: 4 if MANY or kind not in ("study", "looks", "columns") else 2 for kind in KINDS}
"""Files of each kind; a study that was changed is audited and repeated as a whole."""
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
    folder = tmp_path_factory.mktemp("forged") / "made"
    KINDS["returning"].make(folder)
    return archive.read(folder / "policy.rarely")


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


@pytest.mark.parametrize("column", [1e308, 21.0, -1.0, 0.5])
def test_packed_columns_that_no_context_has_are_refused(column, tmp_path):
    KINDS["sparse"].make(tmp_path / "made")
    saved = archive.read(tmp_path / "made" / "policy.rarely")
    inputs = saved.arrays["covariance.input0"].copy()
    inputs[0, 0] = column
    archive.write(tmp_path / "policy.rarely", saved.header, saved.arrays | {"covariance.input0": inputs})
    with pytest.raises(SnapshotError, match="whole columns from 0 to 20 in the first half of input0"):
        rarely.load(tmp_path / "policy.rarely")


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_file_ends_in_a_typed_error_or_does_no_harm(kind, tmp_path):
    prepared(kind, tmp_path)  # which nobody forged, and does no harm either
    with measured():
        assert search(kind, tmp_path, seed=0, count=EACH[kind]) == []


FOUND = {
    "default": {"learner.choice.point": None},
    "network": {"learner.ridge": 1e-308, "learner.updates": None, "updates.1.chosen": -1e308},
    "returning": {"own.spread": 1e308},
    "NeuralTS": {"learner.constant": False, "settings.beta": 1e308},
    "primal": {"settings.training": 10**12},
    "KernelUCB": {"settings.steps": 2**62},
    "Uniform": {"learner.columns": 0},
    "composed": {"learner.coefficients": None},
}
"""Of each kind the fields that once loaded and ended a later call with a raw error; None cuts an array."""


@pytest.mark.parametrize(("kind", "place"), [(kind, place) for kind, fields in FOUND.items() for place in fields])
def test_what_a_search_has_found_does_no_harm_any_more(kind, place, tmp_path):
    KINDS[kind].make(tmp_path / "made")
    saved = archive.read(tmp_path / "made" / "policy.rarely")
    inside, (*outer, last) = saved.header, place.split(".")
    if FOUND[kind][place] is None:
        saved.arrays[place] = saved.arrays[place][:-1]
    else:
        for step in outer:
            inside = inside[int(step) if step.isdigit() else step]
        inside[last] = FOUND[kind][place]
    archive.write(tmp_path / "made" / "policy.rarely", *saved[:2])
    bounded = Bounded()
    with measured():
        KINDS[kind].use(tmp_path / "made", bounded)
    assert bounded.problems == []


@pytest.mark.parametrize("covariance", ["primal", "dual", "diagonal"])
def test_a_setting_may_be_a_whole_number_of_any_size(covariance):
    policy = rarely.BatchNeuralUCB(3, rarely.OnDemand(), hidden=4, seed=1, ridge=2**64, covariance=covariance)
    decision = policy.select(np.random.default_rng(0).normal(size=(20, 3, 3)))
    policy.observe(decision, np.arange(20.0))
    policy.update()
    assert np.isfinite(policy.log_det)
