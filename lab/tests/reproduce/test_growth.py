"""How regret and versions grow with T, at six lengths of two problems."""

import numpy as np
import pytest

from lab_records import lengths
from rarely_lab.reproduce.catalogue import GROWTH, PROBLEMS, growing, plan_cells
from rarely_lab.reproduce.report import tables
from rarely_lab.reproduce.report.paper_claims import judge
from rarely_lab.reproduce.report.results import compare, growth


def test_the_lengths_and_grids_are_those_of_the_theory():
    assert [PROBLEMS[name].rounds for name in GROWTH] == [500, 1000, 2000, 4000, 8000, 16_000] * 2
    assert [growing(t) for t in (500, 8000)] == [(9, 22), (13, 89)]
    cells = plan_cells([PROBLEMS[name] for name in GROWTH], ["practical"], runs=1, rounds=77)
    assert {cell.rounds for cell in cells} == {500, 1000, 2000, 4000, 8000, 16_000}
    assert {cell.configuration.kind for cell in cells} == {"neuralucb", "fixed", "adaptive", "default"}
    assert {cell.rounds for cell in cells if cell.configuration.kind == "neuralucb"} == {500, 1000, 2000, 4000, 8000}


def test_exponents_are_found_again_with_their_intervals():
    found = growth(compare(lengths(lambda t: 6 * np.log(t), lambda kind, t: 3 * t**0.6))[:6])
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


def like(kind, t):
    return t**0.5


@pytest.mark.parametrize(
    ("versions", "regret", "failing"),
    [
        (lambda t: 6 * np.log(t), like, set()),
        (lambda t: 3 * t**0.5, like, {"theory-1", "few-3"}),
        (lambda t: 3 * t**0.3, like, {"few-3"}),
        (lambda t: 6 * np.log(t), lambda kind, t: t ** (0.5 + 0.05 * (kind == "adaptive")), {"theory-1", "few-1"}),
        (lambda t: 6 * np.log(t), lambda kind, t: t**0.5 * (1.2 if kind == "fixed" else 1.0), {"few-2"}),
        (lambda t: 6 * np.log(t), lambda kind, t: t**0.5 * (2.0 if kind == "adaptive" and t > 4000 else 1.0), set()),
    ],
)
def test_each_claim_about_lengths_fails_for_its_own_reason(versions, regret, failing):
    judged = judge(compare(lengths(versions, regret, seeds=8)))
    assert {j.problem for j in judged} == {"quadratic-growth", "cosine-growth"}
    for problem in ("quadratic-growth", "cosine-growth"):
        verdicts = {j.claim.id: j.verdict for j in judged if (j.problem, j.estimand) == (problem, "mean")}
        assert verdicts == {
            name: "does not hold" if name in failing else "holds" for name in ("theory-1", "few-1", "few-2", "few-3")
        }
    assert all(one.of_paper_length for one in judged)


def test_a_missing_length_leaves_it_open():
    judged = judge(compare(lengths(lambda t: 8, lambda kind, t: 9.0, names=[*GROWTH][:3])))
    assert {one.verdict for one in judged} == {"inconclusive"}
    assert "quadratic-T4000" in judged[0].checks[0].note


def test_the_table_shows_every_scheme():
    found = compare(lengths(lambda t: 6 * np.log(t), lambda kind, t: t**0.5))
    grid, other = tables.growing(found).values()
    assert [row[0] for row in grid.body] == [*growth(found[:6])]
    assert grid.body[0][-6:] == ["500", "1000", "2000", "4000", "8000", "—"]
    assert [*tables.growing(found)] == ["quadratic, preset practical", "cosine, preset practical"]
    assert other.body[1][-1] == "14"
    assert tables.growing(found[:2]) == {}
