"""The B that each scheme needs, at five lengths."""

import numpy as np
import pytest

from lab_records import record
from rarely._reproduce.catalogue import GROWTH, PROBLEMS, configurations, plan_cells
from rarely._reproduce.report.paper_claims import judge
from rarely._reproduce.report.results import compare, needed

RATIOS = (15, 30, 60, 120, 240)


def lengths(enough_fixed, enough_adaptive, seeds=3, names=GROWTH):
    """Runs of which those with so many versions, or more, have little regret."""
    records = []
    for name in names:
        problem = PROBLEMS[name]
        for c in configurations(problem):
            for seed in range(seeds):
                rung = 1 + RATIOS[::-1].index(c.log_ratio) if c.log_ratio else 0
                versions = c.batches if c.kind == "fixed" else 4 * 2**rung
                enough = (enough_fixed if c.kind == "fixed" else enough_adaptive)(problem.rounds)
                regret = (10.0 if versions >= enough else 100.0) * (1 + 0.01 * seed)
                sizes = {"regret": regret, "updates": versions - 1, "rounds": problem.rounds, "seed": seed}
                records.append(record(name, "practical", **vars(c), **sizes))
    return records


def test_the_lengths_are_those_of_the_theory():
    assert [PROBLEMS[name].rounds for name in GROWTH] == [500, 1000, 2000, 4000, 8000]
    cells = plan_cells([PROBLEMS[name] for name in GROWTH], ["practical"], runs=1, rounds=77)
    assert {cell.rounds for cell in cells} == {500, 1000, 2000, 4000, 8000}
    assert {cell.configuration.kind for cell in cells} == {"fixed", "adaptive"}


def test_the_b_needed_is_the_smallest_whose_regret_is_that_of_a_fine_grid():
    found = needed(compare(lengths(lambda t: 33, lambda t: 17, names=GROWTH[:1]))[0])
    assert found["fixed"] == dict.fromkeys(range(3), 64)
    assert found["adaptive"] == dict.fromkeys(range(3), 32)


@pytest.mark.parametrize(
    ("fixed", "adaptive", "verdict"),
    [
        (lambda t: 2 * t**0.5, lambda t: 2 * np.log(t), "holds"),
        (lambda t: 20, lambda t: t**0.5, "does not hold"),
    ],
)
def test_growth_like_the_root_against_growth_like_the_logarithm(fixed, adaptive, verdict):
    judged = judge(compare(lengths(fixed, adaptive)))
    assert [(j.claim.id, j.problem, j.verdict) for j in judged] == [("theory-1", "growth", verdict)]
    assert judged[0].checks[0].estimate.runs == 3


def test_a_missing_length_leaves_it_open():
    judged = judge(compare(lengths(lambda t: 8, lambda t: 8, names=GROWTH[:3])))
    assert judged[0].verdict == "inconclusive"
    assert "quadratic-T4000" in judged[0].checks[0].note
