"""Time estimates come from the cells that are done on this machine."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely._reproduce.catalogue import PROBLEMS, plan_cells
from rarely._reproduce.records import Record
from rarely._runs.cell import Result
from rarely._runs.progress import Pace

CELLS = plan_cells([PROBLEMS["cosine"], PROBLEMS["magic"]], ["practical", "code"], runs=2, rounds=500)
ALIKE = [cell for cell in CELLS if cell.configuration.linear][:12]


def done(cell, seconds):
    return Result(cell.id, Record({}), seconds=seconds)


def failed(cell):
    return Result(cell.id, None, "it rained")


def test_nothing_is_said_before_a_cell_is_done():
    pace = Pace(CELLS, 2, clock=itertools.count().__next__)
    assert pace.seconds_left() is None
    pace.finished(failed(CELLS[0]))  # a failure tells nothing
    assert pace.seconds_left() is None


@given(speed=st.floats(0.1, 20), jobs=st.integers(1, 4), count=st.integers(1, 20))
def test_a_machine_of_another_speed_is_known_from_the_cells_that_are_done(speed, jobs, count):
    """The formula's seconds are of no machine; whatever the factor is, the finished cells show it."""
    now = [0.0]
    pace = Pace(CELLS, jobs, clock=lambda: now[0])
    for cell in CELLS[:count]:
        now[0] += speed * cell.work() / jobs
        pace.finished(done(cell, speed * cell.work()))
    assert (pace.done, pace.all) == (count, len(CELLS))
    assert pace.seconds_left() == pytest.approx(speed * sum(cell.work() for cell in CELLS[count:]) / jobs)


def test_the_time_since_the_last_cell_counts():
    now = [0.0]
    first, second, third = ALIKE[:3]
    pace = Pace([first, second, third], 2, clock=lambda: now[0])
    now[0] = 10.0
    pace.finished(done(first, 10.0))
    assert pace.seconds_left() == pytest.approx(20 / 2)
    now[0] = 12.0
    assert pace.seconds_left() == pytest.approx(20 / 2 - 2)
    pace.finished(done(second, 10.0))
    now[0] = 15.0  # one process has nothing left to do
    assert pace.seconds_left() == pytest.approx(10 - 3)
    now[0] = 100.0
    assert pace.seconds_left() == 0.0
    pace.finished(failed(third))
    assert (pace.seconds_left(), pace.elapsed) == (0.0, 100.0)


def test_on_a_cluster_the_cells_tell_how_many_are_played_at_once():
    now = [0.0]
    pace = Pace(ALIKE, None, clock=lambda: now[0])
    now[0] = 10.0
    for cell in ALIKE[:4]:
        pace.finished(done(cell, 10.0))
    assert pace.seconds_left() == pytest.approx(8 * 10.0 / 4)
