"""What a figure is, and when it counts as worse, better or the same."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidInput
from suite import session as sessions
from suite.figures import Figure
from suite.session import BrokenBaseline, Session, compare, differences, heading, notes, table

MADE = {"machine": "M, 2 cores", "system": "Linux", "python": "3.11.7", "numpy": "2.4.6", "rarely": "0.1.0"}
MADE |= {"passes": "numpy", "code": "abc", "threads": 2, "date": "2026-01-01T00:00:00+00:00"}
RATES = {"float32": 2.5e11, "float64": 1.5e11, "read": 2e10}


def figure(value=10.0, better="higher", name="speed", **more):
    return Figure(name, "How fast.", value, more.pop("unit", "%"), better, more.pop("seconds", 0.1), **more)


def session(*figures, **made):
    return Session(MADE | made, RATES, list(figures))


@pytest.mark.parametrize(
    ("better", "value", "reached"),
    [("higher", 40.0, True), ("higher", 39.9, False), ("lower", 40.0, True), ("lower", 40.1, False)],
)
def test_a_target_is_reached_from_its_own_side(better, value, reached):
    assert figure(value, better, asked=40.0).reached is reached
    assert figure(value, better).reached is None


def test_a_figure_is_a_finite_number_with_a_direction():
    with pytest.raises(InvalidInput, match="finite"):
        figure(math.inf)
    with pytest.raises(InvalidInput, match="better must be one of"):
        figure(better="faster")


@pytest.mark.parametrize(
    ("better", "value", "verdict"),
    [
        ("higher", 7.9, "worse"),
        ("higher", 8.1, "same"),
        ("higher", 12.4, "same"),
        ("higher", 12.6, "better"),
        ("lower", 12.6, "worse"),
        ("lower", 12.4, "same"),
        ("lower", 8.1, "same"),
        ("lower", 7.9, "better"),
    ],
)
def test_a_figure_has_moved_when_it_left_the_tolerance(better, value, verdict):
    assert compare([figure(value, better)], [figure(10.0, better)])[0].verdict == verdict


def test_the_tolerance_is_the_callers():
    now, then = [figure(9.0)], [figure(10.0)]
    assert compare(now, then, tolerance=0.05)[0].verdict == "worse"
    assert compare(now, then, tolerance=0.2)[0].verdict == "same"
    assert compare(then, then, tolerance=0.0)[0].verdict == "same"


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(0.0, 0.9))
def test_the_direction_turns_the_verdict_round(now, then, tolerance):
    opposite = {"worse": "better", "better": "worse", "same": "same"}
    higher = compare([figure(now)], [figure(then)], tolerance)[0].verdict
    lower = compare([figure(now, "lower")], [figure(then, "lower")], tolerance)[0].verdict
    assert lower == opposite[higher]


def test_new_and_missing_figures_are_neither_better_nor_worse():
    changes = compare([figure(name="a"), figure(name="b")], [figure(name="b"), figure(name="c")])
    assert [(change.name, change.verdict) for change in changes] == [("a", "new"), ("b", "same"), ("c", "not measured")]
    assert [change.growth for change in changes] == [None, 0.0, None]


def test_a_figure_in_another_unit_is_another_figure():
    assert compare([figure(1.0, unit="s")], [figure(10.0)])[0].verdict == "new"
    assert compare([figure(1.0, "lower")], [figure(10.0)])[0].verdict == "new"
    assert compare([figure(1.0)], [figure(0.0)])[0].verdict == "new"


def test_a_baseline_from_elsewhere_is_named_as_such():
    here = session()
    assert differences(here, session(rarely="0.0.9", code="other", date="long ago")) == []
    told = differences(here, session(machine="N, 64 cores", numpy="1.26.0", passes="compiled"))
    assert told == [
        "the baseline is of another machine: N, 64 cores there, M, 2 cores here",
        "the baseline is of another NumPy: 1.26.0 there, 2.4.6 here",
        "the baseline is of another kind of passes: compiled there, numpy here",
    ]


def test_a_session_comes_back_from_its_file(tmp_path):
    kept = session(figure(asked=3.0, note="a µs"), figure(2.0, "lower", name="other"))
    kept.skipped["x"], kept.failed["y"] = "not here", "it rained"
    sessions.write(tmp_path / "b.json", kept, compare(kept.figures, []))
    assert sessions.read(tmp_path / "b.json") == kept
    assert json.loads((tmp_path / "b.json").read_text())["changes"][0]["verdict"] == "new"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "{}",
        '{"format": 1}',
        '{"format": 2}',
        '{"format": 1, "made": {}, "rates": {}, "figures": [{}], "skipped": {}, "failed": {}}',
        '{"format": 1, "made": {}, "rates": {}, "figures": [3], "skipped": {}, "failed": {}}',
    ],
)
def test_a_broken_baseline_is_a_typed_error_with_a_way_out(text, tmp_path):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(BrokenBaseline, match=r"bench.py --save"):
        sessions.read(path)


def test_bytes_that_are_no_text_are_a_broken_baseline(tmp_path):
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BrokenBaseline):
        sessions.read(tmp_path / "b.json")


def test_writing_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "b.json"
    sessions.write(path, session(figure()))
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(sessions.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        sessions.write(path, session(figure(99.0)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_table_has_every_figure_and_reads_as_markdown():
    then = [figure(20.0), figure(name="gone")]
    now = [figure(10.0, asked=40.0), figure(1.5, "lower", name="fresh", asked=2.0)]
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table(compare(now, then), against=True).splitlines()
    ]
    assert lines[0] == ["figure", "value", "asked", "reached", "baseline", "change"]
    assert lines[2:] == [
        ["speed", "10 %", "≥ 40", "no", "20", "-50 %, worse"],
        ["fresh", "1.5 %", "≤ 2", "yes", "—", "new"],
    ]
    assert all(set(cell) == {"-"} for cell in lines[1])
    alone = table(compare(now, []), against=False).splitlines()
    assert alone[0].count("|") == 5
    assert len({len(line) for line in alone}) == 1


def test_notes_say_what_each_figure_is_and_what_is_missing():
    one = session(figure(note="raw"))
    one.skipped["x"], one.failed["y"] = "not here", "it rained"
    assert notes(one) == ["speed: How fast. (raw)", "x: skipped: not here", "y: failed: it rained"]
    assert "250 GFLOP/s in float32 and 150 in float64, reads 20 GB/s" in heading(one)
    assert "NumPy 2.4.6, numpy passes, threads: 2" in heading(one)
