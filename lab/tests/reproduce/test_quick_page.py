"""What `make run` shows: a picture, a sentence with the numbers, a small table, and nothing judged."""

import re

import numpy as np
import pytest

from browser import needs_browser, probe
from lab_records import record
from rarely_lab.engine.record import NothingOnRecord
from rarely_lab.reproduce.catalogue import QUICK_CONFIGURATIONS
from rarely_lab.reproduce.report.quick_page import (
    numbers,
    regret_against_updates,
    regret_over_rounds,
    render_quick_page,
    write_quick_page,
)
from rarely_lab.reproduce.report.results import Series

REGRETS = {"uniform": 1400, "linucb-intercept": 150, "neuralucb": 28, "fixed": 66, "adaptive": 67, "default": 24}


@pytest.fixture(scope="module")
def rows():
    rows = []
    for label, c in QUICK_CONFIGURATIONS.items():
        sizes = {"updates": 0 if c.kind == "uniform" else (c.batches or 60) - 1, "rounds": 60}
        runs = {seed: record(seed=seed, regret=REGRETS[c.kind] + 3.0 * seed, **vars(c), **sizes) for seed in range(3)}
        rows.append(Series(c.id, label, c.kind, c, runs))
    return rows


@pytest.fixture(scope="module")
def page(rows):
    return render_quick_page(rows)


def test_the_picture_comes_before_everything_but_the_title(page):
    main = page[page.index("<main>") :]
    assert re.search(r"<h1>.*?</h1>\s*<div[^>]*>\s*<figure>\s*<svg", main, re.DOTALL)
    assert main.count("<figure>") == 2
    assert main.index("</figure>") < main.index('class="lead"') < main.index("<table")


def test_two_sentences_have_the_numbers_of_chance_of_the_frequent_and_of_the_rare(page):
    assert (
        "In 60 rounds random choice lost 1403 of reward, and LinUCB, a linear model updated after every round, 153. "
        "NeuralUCB, trained 59 times, lost 31 in 1.0 s; the default, which learned 19 times, lost 27 in 1.0 s."
    ) in page


def test_the_table_has_regret_updates_and_seconds_of_each(rows):
    grid = numbers(rows)
    assert list(grid.head) == ["policy", "regret", "updates", "seconds"]
    assert [row[0] for row in grid.body] == list(QUICK_CONFIGURATIONS)
    assert grid.body[-1] == [list(QUICK_CONFIGURATIONS)[-1], "27 ± 3", "19", "1.0"]


def test_nothing_is_judged_and_the_next_step_is_linked(page):
    assert not re.search(r"holds|inconclusive|claim by claim", page[page.index("<main>") :])
    assert "claims are about T = 2000: <code>make reproduce</code>" in page
    assert '<a href="#next">What next: your own data</a>' in page
    assert '<h2 id="next">' in page


def test_ticks_stand_where_each_policy_was_trained(rows):
    curves, rug = regret_over_rounds(rows).axes
    for line, row in zip(rug.lines, rows, strict=True):
        np.testing.assert_array_equal(line.get_xdata()[::3], row.runs[0].updates)
    for line, row in zip(curves.lines, rows, strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.mean([one.curve for one in row.runs.values()], axis=0))


def test_one_policy_that_is_far_worse_leaves_room_for_the_others(rows):
    top = regret_over_rounds(rows).axes[0].get_ylim()[1]
    assert 153 < top < 600


def test_the_second_panel_has_a_mean_and_all_runs_of_each_policy(rows):
    lines = regret_against_updates(rows).axes[0].lines
    assert [len(line.get_xdata()) for line in lines] == [3, 1] * (
        len(QUICK_CONFIGURATIONS) - 1
    )  # chance has no updates
    assert lines[-1].get_xdata()[0] == 19
    assert lines[-1].get_ydata()[0] == pytest.approx(27)


def test_a_folder_without_quick_runs_is_refused(tmp_path):
    with pytest.raises(NothingOnRecord, match="rarely reproduce --quick"):
        write_quick_page(tmp_path)


@needs_browser
def test_a_phone_shows_the_page_without_scrolling_sideways(page, tmp_path):
    width, top = "document.documentElement.scrollWidth", "document.querySelector('svg').getBoundingClientRect().top"
    wide, above = probe(tmp_path, page, f"[{width}, {top}]", width=390)
    assert wide <= 390
    assert above < 200
