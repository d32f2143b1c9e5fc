"""What a snapshot holds does not change without a new format."""

import json

import pytest

import snapshot_layout
from rarely.core.covariance import FORMS
from rarely.core.policies.base import Policy
from rarely.core.policies.snapshot import _kinds_of
from rarely.core.saving import archive

CHANGED = """what save() writes has changed, and its format has not.
    {}
If format {} was released: raise archive.FORMAT, and let the readers take what the earlier format has (Fields.since).
Then record the layout: python tests/snapshot_layout.py"""


@pytest.fixture(scope="module")
def found():
    return snapshot_layout.layouts()


def test_what_is_written_is_what_is_on_record_for_its_format(found):
    recorded = snapshot_layout.read(archive.FORMAT)
    assert recorded.keys() == found.keys(), CHANGED.format("The cases are others.", archive.FORMAT)
    lines = [line for case in found for line in snapshot_layout.differences(case, recorded[case], found[case])]
    assert not lines, CHANGED.format("\n    ".join(lines), archive.FORMAT)


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("history.colour.npy", "float64/1", "history.colour.npy was absent, and is float64/1"),
        ("history.arms.npy", "int32/1", "history.arms.npy was int64/1, and is int32/1"),
        ("history.arms.npy", None, "history.arms.npy was int64/1, and is absent"),
        ("learned", "float", "learned was int, and is float"),
        ("updates.#.rescaled", None, "updates.#.rescaled was any, and is absent"),
    ],
)
def test_a_name_that_is_new_gone_or_of_another_kind_is_told(name, kind, line):
    recorded = snapshot_layout.read(archive.FORMAT)["linucb"]
    found = {k: v for k, v in recorded.items() if k != name} | ({name: kind} if kind else {})
    assert snapshot_layout.differences("linucb", recorded, found) == [f"linucb: {line}"]


def test_every_policy_and_form_is_on_record():
    policies = [snapshot_layout.CASES[case][0]() for case in snapshot_layout.RECORDED]
    kinds = {kind for kind in _kinds_of(Policy) if kind.__module__.startswith("rarely.")}
    assert {type(policy) for policy in policies} == kinds
    described = [policy.settings().get("covariance") for policy in policies]
    assert {policy.covariance for policy in policies} | {form for form in described if form == "auto"} == {*FORMS}


def test_the_record_is_what_the_command_writes(found, tmp_path, monkeypatch):
    before = snapshot_layout.RECORD.read_text(encoding="utf-8")
    monkeypatch.setattr(snapshot_layout, "RECORD", tmp_path / "layout.json")
    snapshot_layout.RECORD.write_text(before, encoding="utf-8")
    snapshot_layout.write(found)
    assert json.loads(snapshot_layout.RECORD.read_text(encoding="utf-8")) == json.loads(before)
