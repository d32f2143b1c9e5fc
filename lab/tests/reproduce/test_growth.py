"""How regret and versions grow with T, at five lengths."""

import numpy as np
import pytest

from lab_records import lengths
from rarely_lab.reproduce.catalogue import GROWTH, PROBLEMS, growing, plan_cells
from rarely_lab.reproduce.report import tables
from rarely_lab.reproduce.report.paper_claims import judge
from rarely_lab.reproduce.report.results import compare, growth


def test_the_lengths_and_grids_are_those_of_the_theory():
    assert [PROBLEMS[name].rounds for name in GROWTH] == [500, 1000, 2000, 4000, 8000]
    assert [growing(t) for t in (500, 8000)] == [(9, 22), (13, 89)]
    cells = plan_cells([PROBLEMS[name] for name in GROWTH], ["practical"], runs=1, rounds=77)
    assert {cell.rounds for cell in cells} == {500, 1000, 2000, 4000, 8000}
    assert {cell.configuration.kind for cell in cells} == {"neuralucb", "fixed", "adaptive", "default"}


def test_exponents_are_found_again_with_their_intervals():
    found = {one.label: one for one in growth(compare(lengths(lambda t: 6 * np.log(t), lambda kind, t: 3 * t**0.6)))}
    assert list(found) == [
        "NeuralUCB",
        "fixed, B = log₂ T",
        "fixed, B = √T",
        *(f"adaptive, log q = {q}" for q in (20, 25, 30)),
        "default, B = √T",
    ]
    for one in found.values():
        a = one.regret.interval()
        assert a.low < 0.6 < a.high
        assert a.high - a.low < 0.1
    assert found["NeuralUCB"].versions.interval().value == pytest.approx(1)
    assert found["fixed, B = √T"].versions.interval().low == pytest.approx(0.5, abs=0.02)  # exact: no interval
    rule = found["adaptive, log q = 20"]
    assert rule.per_log.interval().low < 6 < rule.per_log.interval().high


@pytest.mark.parametrize(
    ("versions", "regret", "verdict"),
    [
        (lambda t: 6 * np.log(t), lambda kind, t: t**0.5, "holds"),
        (lambda t: 3 * t**0.5, lambda kind, t: t**0.5, "does not hold"),
        (lambda t: 6 * np.log(t), lambda kind, t: t ** (0.5 + 0.05 * (kind == "adaptive")), "does not hold"),
    ],
)
def test_the_rule_must_do_as_well_and_with_versions_that_grow_slower_than_the_root(versions, regret, verdict):
    judged = judge(compare(lengths(versions, regret)))
    assert [(j.claim.id, j.problem, j.verdict) for j in judged] == [("theory-1", "growth", verdict)] * 2


def test_a_missing_length_leaves_it_open():
    judged = judge(compare(lengths(lambda t: 8, lambda kind, t: 9.0, names=GROWTH[:3])))
    assert judged[0].verdict == "inconclusive"
    assert "quadratic-T4000" in judged[0].checks[0].note


def test_the_table_shows_every_scheme():
    found = compare(lengths(lambda t: 6 * np.log(t), lambda kind, t: t**0.5))
    (grid,) = tables.growing(found).values()
    assert [row[0] for row in grid.body] == [one.label for one in growth(found)]
    assert grid.body[0][-5:] == ["500", "1000", "2000", "4000", "8000"]
    assert tables.growing(found[:2]) == {}
