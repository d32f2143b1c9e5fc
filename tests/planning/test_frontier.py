"""Verdicts and choices on frontiers made by hand: no simulation, so every word can be foreseen."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decision_logs import planning_log
from rarely import DeterminantTrigger, FixedGrid
from rarely.planning import NothingClose, plan
from rarely.planning.frontier import Frontier, Point, calibrate
from rarely.planning.plan import above
from rarely.planning.report import render_page
from rarely.planning.simulate import KINDS, Maker, Trial, play_trial
from rarely.runs.statistics import IntervalEstimate, mean, ratio_of_means
from rarely.worlds import Cosine

WIDE, FAR = (0.9, 1.05, 1.3), (1.5, 2.0, 3.0)
CLOSE, CLOSER = (0.9, 1.0, 1.08), (0.9, 1.0, 1.04)


def point(kind, batches, interval, runs=8, **other):
    low, value, high = interval
    lengths = [100 // batches] * (batches - 1)
    told = {
        "log_ratio": 10.0 / batches if kind == "adaptive" else None,
        "used": float(batches),
        "regret": mean([1.0] * runs),
        "pattern": (*lengths, 100 - sum(lengths)),
    }
    return Point(kind, batches, ratio=IntervalEstimate(value, low, high, runs), **(told | other))


def frontier(fixed, geometric=None, adaptive=None, runs=8):
    """Intervals for B = 2, 4, 8, …"""
    points = [
        point(kind, 2 ** (i + 1), interval, runs)
        for kind, intervals in zip(KINDS, (fixed, geometric or fixed, adaptive or fixed), strict=True)
        for i, interval in enumerate(intervals)
    ]
    return Frontier(100, runs, mean([5.0] * runs), ((0, 0.0), (50, 8.0), (100, 10.0)), tuple(points))


@pytest.fixture(scope="module")
def made():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    given = {"policy": "linear", "batches": [2], "simulator": np.copy}
    return plan(planning_log(rows, 2), horizon=100, max_rounds=30, runs=1, **given)


def with_frontier(made, found, **other):
    return replace(made, frontier=found, **({"origin": "fitted"} | other))


def test_b_is_surely_within_from_the_largest_down_and_surely_outside_from_the_smallest_up():
    assert frontier([FAR, WIDE, CLOSE]).verdicts("fixed", 0.1) == {2: "outside", 4: "undecided", 8: "within"}
    assert frontier([FAR, WIDE, CLOSE]).verdicts("fixed", 0.05) == {2: "outside", 4: "undecided", 8: "undecided"}
    # A lucky small B does not count where a larger one is not sure, nor an unlucky large one where a smaller is not.
    assert frontier([CLOSE, WIDE, FAR]).verdicts("fixed", 0.1) == {2: "undecided", 4: "undecided", 8: "undecided"}
    assert set(frontier([FAR, CLOSE], runs=4).verdicts("fixed", 0.1).values()) == {"undecided"}


@given(st.lists(st.tuples(*[st.floats(0.1, 3)] * 3).map(sorted), min_size=1, max_size=6))
def test_what_is_sure_is_so_by_its_interval_and_implies_the_estimate(intervals):
    found = frontier(intervals)
    for one in found.points:
        verdict = found.verdict(one, 0.1)
        assert verdict != "within" or one.ratio.high <= 1.1
        assert verdict != "outside" or one.ratio.low > 1.1
    sure, perhaps = found.enough(0.1, surely=True), found.enough(0.1)
    assert sure is None or perhaps.batches <= sure.batches


def test_the_fewest_batches_are_those_from_which_on_every_larger_b_is_close():
    found = frontier([CLOSE, FAR, WIDE, CLOSE])
    assert found.enough(0.1).batches == 8
    assert found.enough(0.1, surely=True).batches == 16
    assert found.enough(0.01) is None or found.enough(0.01).batches == 16
    assert frontier([CLOSE, FAR]).enough(0.1) is None


def test_among_equal_b_the_surer_comes_first_and_then_the_lower_upper_bound():
    lucky = (0.5, 0.6, 1.5)
    assert frontier([lucky], [CLOSE], [lucky]).enough(0.1).kind == "geometric"
    assert frontier([CLOSE], [lucky], [CLOSER]).enough(0.1).kind == "adaptive"


def test_a_headline_that_is_sure_says_how_many_updates_on_which_rewards_and_when(made):
    said = with_frontier(made, frontier([FAR, CLOSE], [FAR, FAR], [FAR, FAR])).headline()
    assert said.startswith("On rewards fitted to the log, with LinUCB: 4 batches, at most 3 updates, are enough")
    assert "(98 % interval 0.90 to 1.08, 8 runs), which is within 10 %" in said
    assert "Update after rounds 25, 50, 75 of 100." in said
    one = with_frontier(made, frontier([CLOSE], [FAR], [FAR]), origin="simulated", horizon=1000).headline()
    assert one.startswith(
        "On the simulator's rewards, simulated at 100 of 1000 rounds, with LinUCB: 2 batches, at most 1 update"
    )
    assert "Update after round 500 of 1000." in one
    adaptive = with_frontier(made, frontier([FAR], [FAR], [CLOSE])).headline()
    assert "A typical simulated run of 100 rounds had 1 update after round 50." in adaptive
    idle = replace(frontier([FAR], [FAR], [CLOSE]), points=(point("adaptive", 2, CLOSE, pattern=(100,)),))
    assert "had no update." in replace(made, frontier=idle)._when(idle.points[0])


def test_a_headline_that_cannot_tell_says_so_and_what_to_pass(made):
    undecided = with_frontier(made, frontier([FAR, WIDE]))
    said = undecided.headline()
    assert "cannot tell which number of batches is within 10 %" in said
    assert "pass runs=32 (--runs 32), or larger B than the 4 tried: batches=[8, 16] (--batches 8,16)" in said
    for word in ("Update as often", "never", "are enough"):
        assert word not in undecided.text()
    assert "fixed perhaps from B = 4 (B = 2 is surely too few)" in undecided.text()
    assert "whether it is within 10 % is not sure" in undecided.recipe()
    few = with_frontier(made, frontier([FAR, CLOSE], runs=4))
    assert "cannot tell" in few.headline()
    assert "surely" not in few.text().split("What this rests on")[0]
    with pytest.raises(NothingClose, match="surely within 10 %"):
        few.schedule(surely=True)


def test_only_what_is_surely_outside_everywhere_asks_for_as_many_updates_as_can_be(made):
    said = with_frontier(made, frontier([FAR, FAR])).text()
    assert "nothing tried is within 10 % of an update after every round, surely" in said
    assert "Update as often as you can, or try larger B than the 4 tried: batches=[8, 16]" in said
    assert "Within 5 %: fixed surely not up to B = 4; " in said
    assert "To paste" not in said
    assert "Update as often" not in with_frontier(made, frontier([FAR, FAR], [FAR, WIDE])).headline()


def test_a_model_that_foresees_nothing_gives_no_advice(made):
    from rarely.planning.simulate import Fit

    said = with_frontier(made, frontier([CLOSE]), fit=Fit(60, -0.3, 1.0, "", ())).text()
    assert said.startswith("No advice: the reward model foresees nothing of your rewards (R² ≤ 0)")
    assert "Within" not in said
    assert "To paste" not in said


def test_the_recipe_is_for_the_whole_horizon_with_the_settings_simulated(made):
    found = frontier([FAR], [FAR], [CLOSE])
    plain = with_frontier(made, found).recipe()
    assert plain == (
        "To paste: LinUCB(**blocks.settings, schedule=DeterminantTrigger(horizon=100, batches=2, log_ratio=5.0), "
        "ridge=1.0, within_batch='running')  # blocks = ArmBlocks.fit(features, arms=2)"
    )
    longer = with_frontier(made, found, horizon=400, blocks=False, dim=7, policy="neural", settings={"hidden": 8})
    # From round 50 to 100 log det grew by 2, so twice more by round 400.
    assert longer.recipe() == (
        "To paste: BatchNeuralUCB(dim=7, context_scale=scale, "
        "schedule=DeterminantTrigger(horizon=400, batches=2, log_ratio=7.0), hidden=8)"
        "  # scale = Affine.fit(rows), the features of all arms of the log; "
        "log_ratio is extrapolated from the 5 simulated over 100 rounds"
    )
    assert longer.schedule(kind="adaptive") == DeterminantTrigger(400, 2, log_ratio=7.0)
    fixed = with_frontier(made, frontier([CLOSE], [FAR], [FAR]))
    assert "schedule=FixedGrid(horizon=100, batches=2)" in fixed.recipe()
    assert fixed.schedule() == FixedGrid(100, 2)
    page = render_page(fixed, "<svg></svg>")
    assert "<pre>LinUCB(**blocks.settings, schedule=FixedGrid(horizon=100, batches=2), ridge=1.0, " in page
    assert page.count(">surely</td>") == 1


def test_intervals_are_told_where_there_are_some():
    assert above(point("fixed", 2, (0.0, 1.2, np.inf), runs=2)).endswith("(2 runs, so no interval)")
    assert above(point("fixed", 2, (0.0, 1.2, np.inf), runs=3)).endswith(
        "(3 runs, which differ too much for an interval)"
    )


def test_one_run_without_regret_does_not_void_the_others():
    found = ratio_of_means([1.0, 0.0, 3.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0, 1.5])
    assert found.value == pytest.approx(8 / 7.5)
    assert 0 < found.low < found.value < found.high < np.inf
    assert ratio_of_means([1.0, 2.0], [1.0, 2.0]).high == np.inf
    assert np.isnan(ratio_of_means([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]).value)


def test_intervals_of_ratios_hold_as_often_as_they_say():
    generator, missed = np.random.default_rng(0), 0
    for _ in range(400):
        common, own = generator.normal(size=6), generator.normal(size=(2, 6))
        a, b = np.exp(0.3 * common + 0.2 * own - 0.065)
        found = ratio_of_means(1.2 * a, b, 0.95)
        missed += not found.low <= 1.2 <= found.high
    assert missed / 400 < 0.08
    assert ratio_of_means([1.0, 0.0, 0.0], [1.0, 1.0, 1.0]).high == np.inf


@pytest.mark.parametrize("start", [0.5, 30.0, 1000.0])
def test_log_q_spends_the_budget_wherever_it_starts(start):
    world, maker = Cosine(dim=3, arms=3), Maker("neural", {"hidden": 8, "training": 10})
    for batches in (2, 6):
        found = calibrate(world, maker, 120, [1, 2, 3], start, batches)
        # An untrained network keeps log det small: with 2 batches log q cannot be half of what it grows later.
        assert np.log(found.spent / batches) > -0.25
        assert batches == 2 or np.log(found.spent / batches) < 0.25
        schedule = DeterminantTrigger(120, batches, log_ratio=found.log_ratio)
        used = [len(play_trial(world, maker, 120, Trial("adaptive", schedule, seed)).ends) for seed in range(4, 9)]
        assert min(used) >= 2
        assert np.median(used) >= batches - 1
