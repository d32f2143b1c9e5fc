"""Time estimates come from the cells that are done on this machine."""

import pytest

from rarely_lab.commands import progress
from rarely_lab.engine.cell import Result
from rarely_lab.reproduce.catalogue import PROBLEMS, plan_cells
from rarely_lab.reproduce.records import Record

CELLS = plan_cells([PROBLEMS["cosine"], PROBLEMS["magic"]], ["practical", "code"], runs=2, rounds=500)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(progress, "span", lambda seconds: f"{seconds:.6g} s")
    return now


def test_the_time_left_follows_from_the_work_that_is_done(clock):
    shown = progress.ShownProgress("a run", 0)
    assert shown.line() == "reading records"
    shown.started(CELLS)
    shown.finished(Result(CELLS[0].id, None, "it rained"))
    assert "not known yet" in shown.line()  # a failure tells nothing
    for cell in CELLS[1:5]:
        clock[0] += 3.0 * cell.work()
        shown.finished(Result(cell.id, Record({})))
    left = 3.0 * sum(cell.work() for cell in CELLS[5:])
    assert shown.line() == f"5 of {len(CELLS)} cells after {clock[0]:.6g} s; about {left:.6g} s left"
    clock[0] += 1.0  # the time since the last cell counts
    assert shown.left() == f"about {left - 1:.6g} s left"
    clock[0] += 2 * left
    assert shown.left() == "about 0 s left"


def test_a_policy_that_takes_longer_than_was_predicted_is_known_by_its_cells(clock):
    """Most cells end soon, and those of one policy take a hundred times what they should."""
    quick = [cell for cell in CELLS if not cell.configuration.linear][:40]
    slow = quick[-1].id.rpartition("/")[0]
    of_slow = [cell for cell in CELLS if cell.id.startswith(f"{slow}/")]
    others = [cell for cell in quick if not cell.id.startswith(f"{slow}/")]
    shown = progress.ShownProgress("a run", 0)
    shown.started([*others, *of_slow])
    for cell in [*others, of_slow[0]]:
        seconds = (100.0 if cell is of_slow[0] else 1.0) * cell.work()
        clock[0] += seconds
        shown.finished(Result(cell.id, Record({"seconds": {"selecting": seconds / 2, "training": seconds / 2}})))
    left = 100.0 * sum(cell.work() for cell in of_slow[1:])
    assert shown.left() == f"about {left:.6g} s left"


def test_what_an_engine_predicts_counts_where_none_of_a_kind_is_done(clock):
    shown = progress.ShownProgress("a run", 0, work=lambda cell: 8.0 if cell.configuration.linear else 1.0)
    one, other = (next(cell for cell in CELLS if cell.configuration.linear is linear) for linear in (False, True))
    shown.started([one, other])
    clock[0] = 2.0
    shown.finished(Result(one.id, Record({"seconds": {"selecting": 0.5, "training": 0.5}})))
    clock[0] = 7.0
    assert shown.left() == "about 11 s left"


def test_an_engine_that_plays_many_cells_at_once_says_from_the_start_how_long_it_takes(clock):
    """A hundred seconds of processes, four at a time; and cells that end together halfway are no pace."""
    shown = progress.ShownProgress("a run", 0, work=lambda cell: 10.0, at_once=4)
    shown.started(CELLS[:10])
    assert shown.left() == "about 25 s left"
    clock[0] = 20.0
    for cell in CELLS[:5]:
        shown.finished(Result(cell.id, Record({"seconds": {"selecting": 2.0, "training": 10.0}})))
    assert shown.left() == "about 7.5 s left"
    clock[0] = 40.0
    assert shown.left() == "it takes longer than foreseen"


def test_the_start_of_processes_is_no_pace(clock):
    """Five seconds until the first of a hundred cells that take 0.1 s each: that is not eight minutes for all."""
    cells = plan_cells([PROBLEMS["cosine"]], ["code"], runs=200, rounds=50)
    cells = [cell for cell in cells if cell.work() == cells[0].work()][:100]
    shown = progress.ShownProgress("a run", 0)
    shown.started(cells)
    clock[0] = 5.0
    for cell in cells[:9]:
        clock[0] += 0.1
        shown.finished(Result(cell.id, Record({})))
        assert shown.left() == "the time left is not known yet"
    shown.finished(Result(cells[9].id, Record({})))  # a tenth of the work
    assert shown.left() == "about 53.1 s left"


def test_after_three_times_the_first_cell_the_pace_is_known(clock):
    cells = plan_cells([PROBLEMS["cosine"]], ["code"], runs=200, rounds=50)
    shown = progress.ShownProgress("a run", 0)
    shown.started(cells)
    for seconds in (5.0, 14.0):
        clock[0] = seconds
        shown.finished(Result(cells[0].id, Record({})))
        assert "not known" in shown.left()
    clock[0] = 15.0
    shown.finished(Result(cells[1].id, Record({})))
    assert shown.left().startswith("about")
