"""Worth in a fleet: in the line of a decision, and in the audit that makes it again."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rarely import LinTS, OnDemand, Worth
from rarely.cluster import Decider, fleet
from rarely.cluster.decider_logs import Log, lines_of
from rarely.cluster.fleet import OpenVersion
from rarely.errors import InvalidSlate, InvalidWorth


def test_a_decision_in_worth_is_made_again_from_its_line(tmp_path, monkeypatch):
    policy, draw = LinTS(2, OnDemand(), seed=0), np.random.default_rng(0)
    monkeypatch.setattr(fleet, "read_published", lambda *_: policy.with_covariance())
    one, other = (OpenVersion(None, "version-00000-0123456789abcdef.rarely") for _ in range(2))
    log = Log(tmp_path / "1.log")
    for i in range(20):
        worth = None if i % 4 == 0 else Worth(draw.uniform(-2, 2, 4), np.where(draw.random(4) < 0.2, np.inf, 0.1))
        contexts, mask = draw.normal(size=(4, 2)), None if i % 3 else np.arange(4) != 1
        try:
            made = one.decide(contexts, mask, one.draw(f"v{i}"), worth)
        except InvalidWorth:
            continue
        logged = one.logged(f"v{i}", made)
        log.append(logged)
        one.accept(made)
        json.dumps(logged.fields())
    log.close()
    decided = [said for _, said in lines_of(tmp_path / "1.log") if not isinstance(said, dict)]
    assert len(decided) == 20
    assert [fleet._made_again(other, each) for each in decided] == [0.0] * 20


def test_slates_are_refused_with_the_reason_and_nothing_is_logged(tmp_path, monkeypatch):
    records, policy = [], LinTS(2, OnDemand(), seed=0)
    monkeypatch.setattr(fleet, "read_published", lambda *_: policy.with_covariance())
    monkeypatch.setattr(fleet, "Folder", SimpleNamespace(at=lambda url: url))
    monkeypatch.setattr(fleet, "names_used", lambda *_: ["version-00000-0123456789abcdef.rarely"])
    with Decider(tmp_path, log=records.append) as decider:
        with pytest.raises(InvalidSlate, match="one arm a round, because"):
            decider.decide("visit 7", np.eye(2), slots=2)
        assert records == []
        decider.decide("visit 7", np.eye(2))
    assert len(records) == 1
