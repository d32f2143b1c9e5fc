"""What a snapshot holds does not change without a new format."""

import json

import pytest

import snapshot_layout
from rarely._core.covariance import FORMS
from rarely._core.policies.saving import POLICIES, is_own
from rarely._core.saving import archive

CHANGED = """what save() writes has changed, and its format has not.
    {}
If format {} was released: raise archive.FORMAT.
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
    recorded = snapshot_layout.read(archive.FORMAT)["linear"]
    found = {k: v for k, v in recorded.items() if k != name} | ({name: kind} if kind else {})
    assert snapshot_layout.differences("linear", recorded, found) == [f"linear: {line}"]


def test_every_policy_and_form_is_on_record():
    policies = [make() for make in snapshot_layout.CASES.values()]
    assert {type(policy).__name__ for policy in policies} == {name for name, kind in POLICIES.items() if is_own(kind)}
    assert {policy.covariance for policy in policies} == {*FORMS, "none"}


def test_the_record_is_what_the_command_writes(found, tmp_path, monkeypatch):
    before = snapshot_layout.RECORD.read_text(encoding="utf-8")
    monkeypatch.setattr(snapshot_layout, "RECORD", tmp_path / "layout.json")
    snapshot_layout.RECORD.write_text(before, encoding="utf-8")
    snapshot_layout.write(found)
    assert json.loads(snapshot_layout.RECORD.read_text(encoding="utf-8")) == json.loads(before)
