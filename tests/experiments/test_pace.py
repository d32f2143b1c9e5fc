"""Time estimates come from the cells that are done on this machine."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely.experiments.catalogue import PROBLEMS
from rarely.experiments.pace import Pace, Work, cost, group, measured_first, work
from rarely.experiments.queue import plan_cells

CELLS = plan_cells([PROBLEMS["cosine"], PROBLEMS["magic"]], ["practical", "code"], runs=2, rounds=500)
COSINE = plan_cells([PROBLEMS["cosine"]], ["practical"], runs=2, rounds=500)


def wall(cell, deciding, training):
    """A record's times on a machine that takes so many times the formula's seconds."""
    predicted = work(cell)
    spent = Work(predicted.deciding * deciding, predicted.training * training)
    if cell.configuration.linear:  # whose updates are no work of their own
        spent = Work(0.9 * spent.deciding, 0.1 * spent.deciding)
    return {"selecting": spent.deciding, "training": spent.training, "cell": sum(spent)}


def cost_of(cell, deciding, training):
    predicted = work(cell)
    return predicted.deciding * deciding + predicted.training * training


def test_the_queue_is_the_same_but_for_the_first_of_each_group():
    ordered = measured_first(CELLS)
    groups = {group(cell) for cell in CELLS}
    assert {group(cell) for cell in ordered[: len(groups)]} == groups
    assert sorted(cell.id for cell in ordered) == sorted(cell.id for cell in CELLS)
    rest = [cell for cell in CELLS if cell not in ordered[: len(groups)]]
    assert ordered[len(groups) :] == rest
    for first in ordered[: len(groups)]:
        assert cost(first) == min(cost(cell) for cell in CELLS if group(cell) == group(first))
        assert first.seed == 0
    assert measured_first([]) == []


def test_nothing_is_said_before_a_cell_is_done():
    pace = Pace(COSINE, 2, clock=itertools.count().__next__)
    assert pace.seconds_left() is None
    pace.finished(COSINE[0], None)  # a failure tells nothing
    assert pace.seconds_left() is None


@given(
    deciding=st.floats(0.1, 20),
    training=st.floats(0.1, 20),
    jobs=st.integers(1, 4),
)
def test_a_machine_of_another_speed_is_known_after_one_cell_of_each_group(deciding, training, jobs):
    """The formula's seconds are of no machine; whatever the factors are, one cell of a group shows them."""
    now = [0.0]
    ordered = measured_first(COSINE)
    groups = {group(cell) for cell in ordered}
    pace = Pace(ordered, jobs, clock=lambda: now[0])
    for cell in ordered[: len(groups)]:
        now[0] += cost_of(cell, deciding, training) / jobs
        assert not pace.known
        pace.finished(cell, wall(cell, deciding, training))
    assert pace.known
    truth = sum(cost_of(cell, deciding, training) for cell in ordered[len(groups) :]) / jobs
    assert pace.seconds_left() == pytest.approx(truth)


def test_what_is_under_way_counts():
    now = [0.0]
    first, second, third = [cell for cell in COSINE if cell.configuration.linear][:3]
    pace = Pace([first, second, third], 2, clock=lambda: now[0])
    now[0] = 10.0
    pace.finished(first, {"selecting": 9.0, "training": 1.0, "cell": 10.0})
    assert pace.seconds_left() == pytest.approx((20 - 10) / 2)
    now[0] = 12.0  # both of the others are under way, the second nearly done
    assert pace.seconds_left() == pytest.approx((20 - 14) / 2)
    pace.finished(second, {"selecting": 9.0, "training": 1.0, "cell": 10.0})
    now[0] = 15.0  # one process has nothing left to do
    assert pace.seconds_left() == pytest.approx(10 - 4 - 3)
    now[0] = 100.0
    assert pace.seconds_left() == 0.0
    pace.finished(third, None)
    assert (pace.seconds_left(), pace.known, pace.elapsed) == (0.0, True, 100.0)


def test_on_a_cluster_the_cells_tell_how_many_are_played_at_once():
    now = [0.0]
    linear = [cell for cell in COSINE if cell.configuration.linear][:12]
    pace = Pace(linear, None, clock=lambda: now[0])
    now[0] = 10.0
    for cell in linear[:4]:
        pace.finished(cell, {"selecting": 9.0, "training": 1.0, "cell": 10.0})
    assert pace.seconds_left() == pytest.approx(8 * 10.0 / 4)


def test_a_group_that_is_not_measured_goes_by_the_others():
    now = [0.0]
    linear, trained = next(c for c in COSINE if c.configuration.linear), COSINE[0]
    pace = Pace([linear, trained], 1, clock=lambda: now[0])
    now[0] = 3 * cost(linear)
    pace.finished(linear, {"selecting": 3 * cost(linear), "training": 0.0, "cell": 9 * cost(linear)})
    assert not pace.known
    assert pace.seconds_left() == pytest.approx(3 * cost(trained))


def test_what_a_process_does_once_is_not_expected_of_every_cell():
    now = [0.0]
    first, second = [cell for cell in COSINE if cell.configuration.linear][:2]
    pace = Pace([first, second], 1, clock=lambda: now[0])
    now[0] = 60.0
    pace.finished(first, {"selecting": 1.0, "training": 1.0, "cell": 60.0})
    assert pace.seconds_left() == pytest.approx(2.0)


def test_work_is_of_two_kinds():
    assert Work(1.0, 2.0).plus(Work(3.0, 4.0)) == Work(4.0, 6.0)
    for cell in CELLS:
        assert cost(cell) == sum(work(cell))
        assert (work(cell).training > 0) != cell.configuration.linear
