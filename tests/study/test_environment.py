"""The environment of a study: the numerics of its own policy, and nothing of the others."""

import pytest

from rarely import BatchNeuralUCB, LinUCB, OnDemand, Uniform
from rarely.golden import FAMILIES, Golden, family_of
from rarely.study import versions
from rarely.study.versions import differing, environment
from studies import linear, play


class Mine(LinUCB):
    """A policy of the user's own."""


def changed(family, monkeypatch, **parts):
    """Let a family have other numbers, as after a change of the code."""
    golden = family.golden
    other = Golden(**{**vars(golden), **parts})
    monkeypatch.setitem(vars(family), "golden", other)


def test_the_code_is_the_golden_digest_of_the_policys_family():
    for policy in (LinUCB(2), Mine(2)):
        assert environment(policy)["code"] == FAMILIES["linucb"].golden.digest
    assert environment(Uniform(2, OnDemand()))["code"] == FAMILIES["uniform"].golden.digest


def test_a_change_of_another_family_is_no_other_environment(monkeypatch):
    before = environment(LinUCB(2))
    changed(FAMILIES["uniform"], monkeypatch, digest="0" * 16)
    assert not differing(before, environment(LinUCB(2)))
    for part in ("digest", "bits"):  # other arms, or other last digits
        with monkeypatch.context() as patch:
            changed(FAMILIES["linucb"], patch, **{part: "0" * 16})
            assert differing(before, environment(LinUCB(2)))


def test_a_policy_without_a_family_is_told_by_name_and_version(monkeypatch):
    monkeypatch.setattr(versions, "family_of", lambda policy: None)
    here = environment(BatchNeuralUCB(2, OnDemand(), hidden=8))
    assert (here["code"], here["bits"]) == ("BatchNeuralUCB", "")
    assert not differing(here, here)
    assert differing(here, here | {"rarely": "another"})


def test_an_environment_of_before_promises_no_bits():
    """Studies of 0.3 have a hash of sources, and nothing about bits: arms are compared, and hashes are not."""
    here = environment(LinUCB(2))
    old = {name: value for name, value in here.items() if name != "bits"} | {"code": "5f2c5f2c5f2c5f2c"}
    assert differing(here, old)


def test_a_replay_after_a_change_of_last_digits_compares_arms_and_not_hashes(make, monkeypatch):
    study = make()
    play(study, 0, 6)
    study.update()
    assert study.replay().equal
    assert not any(training.differs for training in study.replay().trainings)
    changed(family_of(linear()), monkeypatch, bits="0" * 16)
    replay = study.replay()
    assert replay.equal
    assert all(training.differs == ("bits",) for training in replay.trainings)


def test_versions_on_record_have_the_environment(make):
    assert make().versions()[0].environment == environment(linear())


@pytest.mark.parametrize("failure", [OSError, RuntimeError])
def test_a_study_needs_no_cache(make, monkeypatch, failure):
    def broken():
        raise failure("no folder")

    monkeypatch.setattr("rarely.golden.family.cache_folder", broken)
    monkeypatch.delitem(vars(FAMILIES["uniform"]), "golden", raising=False)
    make(policy=Uniform(2, OnDemand(), seed=0))
