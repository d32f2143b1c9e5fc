import numpy as np
import pytest

from lab_records import record, runs
from rarely.pages.figures import PlainLocator
from rarely.runs.statistics import mean
from rarely_lab.reproduce.report import figures as plots
from rarely_lab.reproduce.report.results import compare


def comparison(problem="cosine", count=10):
    records = runs(range(10, 10 + count), problem=problem, kind="neuralucb")
    records += runs(range(20, 20 + count), problem=problem, kind="fixed", batches=40)
    return compare(records)[0]


def test_the_box_plot_is_the_papers():
    figure = plots.box(comparison())
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert plots.box(comparison("quadratic")).axes[0].get_xscale() == "linear"
    # Of each box: two whiskers, two caps, median, mean, fliers.
    lines = axes.lines
    medians = [line for line in lines if line.get_linewidth() == 1.4]
    means = [line for line in lines if line.get_linewidth() == 1.1]
    assert [line.get_linestyle() for line in medians] == ["-", "-"]
    assert [line.get_linestyle() for line in means] == ["--", "--"]
    assert sorted(float(line.get_xdata()[0]) for line in means) == [14.5, 24.5]


def test_whiskers_reach_from_the_least_to_the_most():
    records = runs([10, 11, 12, 13, 14, 15, 90], problem="quadratic", kind="neuralucb")
    lines = plots.box(compare(records)[0]).axes[0].lines
    assert {float(x) for line in lines for x in line.get_xdata()} >= {10.0, 90.0}


def test_few_runs_are_points_and_no_boxes():
    axes = plots.box(comparison("quadratic", count=3)).axes[0]
    assert not axes.patches
    dots = [sorted(map(float, line.get_xdata())) for line in axes.lines if line.get_marker() != "None"]
    assert dots == [[10, 11, 12], [20, 21, 22]]
    assert not plots.box(comparison("quadratic", count=4)).axes[0].patches
    assert plots.box(comparison("quadratic", count=5)).axes[0].patches


def test_whiskers_of_the_frontier_are_the_intervals():
    records = runs([30, 20, 40, 25, 35, 30] * 2, problem="quadratic", kind="neuralucb")
    axes = plots.frontier(compare(records)).axes[0]
    whisker = axes.collections[0].get_segments()[0]
    interval = mean([30.0, 20.0, 40.0, 25.0, 35.0, 30.0] * 2)
    assert whisker[:, 1].tolist() == pytest.approx([interval.low, interval.high])


def test_a_whisker_that_reaches_below_0_leaves_the_panel():
    records = runs([1, 90, 2, 80, 3], problem="quadratic", kind="neuralucb")
    axes = plots.frontier(compare(records)).axes[0]
    assert axes.collections[0].get_segments()[0][0, 1] < axes.get_ylim()[0]


def test_a_regret_of_nothing_does_not_break_the_box_plot():
    records = runs([0, 1, 2], kind="neuralucb")
    assert plots.box(compare(records)[0]).axes[0].get_xscale() == "linear"


def test_the_scatter_shows_five_runs_picked_at_random_and_always_the_same():
    def shown():
        axes = plots.scatter(comparison()).axes[0]
        assert "at most 5 runs of each" in axes.get_title()
        return [tuple(points.get_offsets()[:, 1]) for points in axes.collections]

    first = shown()
    assert [len(points) for points in first] == [5, 5]
    assert set(first[0]) != set(range(10, 15))
    assert shown() == first


def test_the_scatter_shows_times_of_one_machine_and_runs_that_others_do_not_have():
    sequential, batched = runs([10] * 4, kind="neuralucb"), runs([20] * 2, kind="fixed", batches=40)
    sequential[0].data["environment"]["machine"] = "another"
    axes = plots.scatter(compare([*sequential, *batched])[0]).axes[0]
    assert [len(points.get_offsets()) for points in axes.collections] == [3, 2]
    for run in batched:
        run.data["environment"]["machine"] = "another"
    figure = plots.scatter(compare([*sequential, *batched])[0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["NeuralUCB"]


def test_the_band_is_the_interval_of_the_mean():
    records = [record(kind="neuralucb", seed=seed, regret=regret) for seed, regret in enumerate((10.0, 20.0, 60.0))]
    figure = plots.curves(compare(records)[0])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    interval = mean([10.0, 20.0, 60.0])
    assert band[:, 1].max() == pytest.approx(interval.high)
    assert figure.axes[0].lines[0].get_ydata()[-1] == pytest.approx(interval.value)


def test_ticks_stand_at_the_updates_of_one_run():
    figure = plots.curves(comparison())
    ticks = {tuple(line.get_xdata()[::3]) for line in figure.axes[1].lines}
    assert ticks == {tuple(record(kind="neuralucb").updates)}
    often = plots.curves(compare(runs([1, 2], kind="neuralucb", rounds=900, updates=899))[0])
    assert [tuple(line.get_xdata()) for line in often.axes[1].lines] == [(1, 899)]


def test_the_frontier_shows_every_series_even_one_that_never_updated():
    records = runs([10, 12], kind="adaptive", batches=40, log_ratio=20.0, updates=0)
    records += runs([10, 12], problem="quadratic", kind="fixed", batches=40)
    figure = plots.frontier(compare(records))
    assert len(figure.axes) == 2
    shown = [float(axes.lines[0].get_xdata()[0]) for axes in figure.axes[:2]]
    assert shown == [1.0, 4.0]
    assert np.isfinite(np.log(shown)).all()


@pytest.mark.parametrize(("low", "high"), [(7, 16), (12, 45), (30, 90), (8, 900), (1.1, 1.3)])
def test_a_logarithmic_axis_has_ticks_enough_to_read_a_value(low, high):
    ticks = PlainLocator(subs=(1.0, 2.0, 5.0), numticks=12).tick_values(low, high)
    assert sum(low <= tick <= high for tick in ticks) >= 3
    assert min(ticks) > 0
