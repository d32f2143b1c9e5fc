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
from rarely.planning.report import render_page
from rarely.planning.simulate import KINDS, Fit, Maker, play
from rarely.runs.statistics import IntervalEstimate, mean, share_of_sums
from rarely.worlds import Cosine

FAR, WIDE = (0.3, 0.5, 0.8), (-0.1, 0.05, 0.3)
CLOSE, CLOSER = (-0.1, 0.0, 0.08), (-0.1, 0.0, 0.04)


def point(kind, batches, interval, runs=8, **other):
    low, value, high = interval
    lengths = [100 // batches] * (batches - 1)
    told = {
        "log_ratio": 10.0 / batches if kind == "adaptive" else None,
        "used": float(batches),
        "regret": IntervalEstimate(5.0 + 20 * value, 1.0, 30.0, runs),
        "pattern": (*lengths, 100 - sum(lengths)),
    }
    return Point(kind, batches, lost=IntervalEstimate(value, low, high, runs), **(told | other))


def frontier(fixed, geometric=None, adaptive=None, runs=8, gain=(18.0, 20.0, 22.0)):
    """Shares lost with B = 2, 4, 8, …"""
    points = [
        point(kind, 2 ** (i + 1), interval, runs)
        for kind, intervals in zip(KINDS[1:], (fixed, geometric or fixed, adaptive or fixed), strict=True)
        for i, interval in enumerate(intervals)
    ]
    low, value, high = gain
    ends = mean([5.0] * runs), mean([25.0] * runs), IntervalEstimate(value, low, high, runs)
    return Frontier(100, runs, *ends, False, tuple(points), ((0, 0.0), (50, 8.0), (100, 10.0)))


@pytest.fixture(scope="module")
def made():
    rows = np.random.default_rng(0).normal(size=(40, 2))
    given = {"policy": "LinUCB", "batches": [2], "simulator": np.copy}
    return plan(planning_log(rows, 2), horizon=100, max_rounds=30, runs=1, **given)


def with_frontier(made, found, **other):
    return replace(made, frontier=found, **({"origin": "fitted"} | other))


def test_b_is_surely_within_from_the_largest_down_and_surely_outside_from_the_smallest_up():
    assert frontier([FAR, WIDE, CLOSE]).verdicts("fixed", 0.1) == {2: "outside", 4: "undecided", 8: "within"}
    assert frontier([FAR, WIDE, CLOSE]).verdicts("fixed", 0.05) == {2: "outside", 4: "undecided", 8: "undecided"}
    # A lucky small B does not count where a larger one is not sure, nor an unlucky large one where a smaller is not.
    assert frontier([CLOSE, WIDE, FAR]).verdicts("fixed", 0.1) == {2: "undecided", 4: "undecided", 8: "undecided"}
    assert set(frontier([FAR, CLOSE], runs=4).verdicts("fixed", 0.1).values()) == {"undecided"}


@given(st.lists(st.tuples(*[st.floats(-1, 2)] * 3).map(sorted), min_size=1, max_size=6))
def test_what_is_sure_is_so_by_its_interval_and_implies_the_estimate(intervals):
    found = frontier(intervals)
    for one in found.points:
        verdict = found.verdict(one, 0.1)
        assert verdict != "within" or one.lost.high <= 0.1
        assert verdict != "outside" or one.lost.low > 0.1
    sure, perhaps = found.enough(0.1, surely=True), found.enough(0.1)
    assert sure is None or perhaps.batches <= sure.batches


def test_the_fewest_batches_are_those_from_which_on_every_larger_b_is_close():
    found = frontier([CLOSE, FAR, WIDE, CLOSE])
    assert found.enough(0.1).batches == 8
    assert found.enough(0.1, surely=True).batches == 16
    assert frontier([CLOSE, FAR]).enough(0.1) is None


def test_among_equal_b_the_surer_comes_first_and_then_the_lower_upper_bound():
    lucky = (-0.5, -0.4, 0.5)
    assert frontier([lucky], [CLOSE], [lucky]).enough(0.1).kind == "geometric"
    assert frontier([CLOSE], [lucky], [CLOSER]).enough(0.1).kind == "adaptive"


def test_a_headline_that_is_sure_says_what_to_take_on_which_rewards_and_when(made):
    said = with_frontier(made, frontier([FAR, CLOSE], [FAR, FAR], [FAR, FAR])).headline()
    assert said == (
        "Take FixedGrid(horizon=100, batches=4): at most 3 updates bring 100 % (92 % to 100 %) of what an update after "
        "every round gain, surely 90 % (simulated with LinUCB on rewards fitted to the log, 8 runs). They come after "
        "rounds 25, 50, 75."
    )
    one = with_frontier(made, frontier([CLOSE], [FAR], [FAR]), origin="simulated", horizon=1000).headline()
    assert "simulated at 100 of 1000 rounds with LinUCB on the simulator's rewards" in one
    assert "They come after round 500." in one
    adaptive = with_frontier(made, frontier([FAR], [FAR], [CLOSE])).headline()
    assert "A typical run of 100 rounds had 1 after round 50." in adaptive


def test_a_headline_that_cannot_tell_says_so_and_what_to_pass(made):
    undecided = with_frontier(made, frontier([FAR, WIDE]))
    said = undecided.headline()
    assert said.startswith("Cannot tell yet how many updates bring 90 % of the gain: by estimate alone FixedGrid(")
    assert "95 % (70 % to 100 %)" in said
    assert "runs=32 (--runs 32)" in said
    assert undecided.text().endswith(said)
    few = with_frontier(made, frontier([FAR, CLOSE], runs=4))
    assert few.headline().startswith("Cannot tell: it is not shown that updates gain anything over choosing arms at")
    assert few.table() is None
    with pytest.raises(NothingClose, match="surely loses at most 10 %"):
        few.schedule(surely=True)


def test_where_nothing_is_gained_no_share_is_told(made):
    nothing = with_frontier(made, frontier([CLOSE], gain=(-1.0, 2.0, 5.0)))
    assert nothing.table() is None
    assert "%" not in nothing.text().split("- ")[0]
    assert {*nothing.frontier.verdicts("fixed", 0.1).values()} == {"undecided"}


def test_only_what_is_surely_outside_everywhere_asks_for_as_many_updates_as_can_be(made):
    said = with_frontier(made, frontier([FAR, FAR])).text()
    assert "Update as often as you can: nothing tried brings 90 %. The closest, equal batches with B = 2" in said
    assert "To paste" not in said
    assert "Update as often" not in with_frontier(made, frontier([FAR, FAR], [FAR, WIDE])).headline()


def test_a_model_that_foresees_nothing_gives_no_advice(made):
    said = with_frontier(made, frontier([CLOSE]), fit=Fit(60, -0.3, 1.0, "", ())).text()
    assert said.splitlines()[-1].startswith("No advice: the reward model foresees nothing of your rewards (R² ≤ 0)")
    assert "Share of" not in said
    assert "To paste" not in said


def test_the_table_has_a_share_of_each_kind_and_what_the_next_update_is_worth(made):
    table = with_frontier(made, frontier([FAR, CLOSE])).table()
    assert table.head == ["B", "updates", "fixed", "geometric", "adaptive", "one update more is worth"]
    assert table.body[0] == ["2", "1", *["50 % (20 % to 70 %)"] * 3, "5"]  # regret 15 to 5 by two updates
    assert table.body[1][-1] == ""


def test_the_recipe_is_for_the_whole_horizon_with_the_settings_simulated(made):
    found = frontier([FAR], [FAR], [CLOSE])
    plain = with_frontier(made, found).recipe()
    assert plain == (
        "To paste: LinUCB(**blocks.settings, schedule=DeterminantTrigger(horizon=100, batches=2, log_ratio=5.0), "
        "ridge='learned')  # blocks = ArmBlocks.fit(features, arms=2)"
    )
    longer = with_frontier(made, found, horizon=400, blocks=False, dim=7, policy="default", settings={"hidden": 8})
    # From round 50 to 100 log det grew by 2, so twice more by round 400.
    assert longer.recipe() == (
        "To paste: BatchNeuralUCB(dim=7, schedule=DeterminantTrigger(horizon=400, batches=2, log_ratio=7.0), hidden=8, "
        "context_scale=scale)  # scale = Affine.fit(rows), the features of all arms of the log; "
        "log_ratio is extrapolated from the 5 simulated over 100 rounds"
    )
    assert longer.schedule(kind="adaptive") == DeterminantTrigger(400, 2, log_ratio=7.0)
    named = with_frontier(made, found, arm_names=("tea", "rum"))
    assert "FramePolicy.fit(LinUCB, features, arms=['tea', 'rum'], schedule=" in named.recipe()
    fixed = with_frontier(made, frontier([CLOSE], [FAR], [FAR]))
    assert "schedule=FixedGrid(horizon=100, batches=2)" in fixed.recipe()
    assert fixed.schedule() == FixedGrid(100, 2)
    page = render_page(fixed, "<svg></svg>")
    assert "<pre>To paste: LinUCB(**blocks.settings, schedule=FixedGrid(horizon=100, batches=2), ridge=" in page
    assert page.count(">surely</td>") == 1


def test_intervals_of_shares_hold_as_often_as_they_say():
    generator, missed = np.random.default_rng(0), 0
    for _ in range(400):
        gains = np.exp(0.3 * generator.normal(size=6))
        lost = 0.2 * gains + 0.1 * generator.normal(size=6)
        found = share_of_sums(lost, gains, 0.95)
        missed += not found.low <= 0.2 <= found.high
    assert missed / 400 < 0.08
    assert share_of_sums([1.0, 2.0], [1.0, 2.0]).high == np.inf
    assert np.isnan(share_of_sums([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]).value)


@pytest.mark.parametrize("start", [0.5, 30.0, 1000.0])
def test_log_q_spends_the_budget_wherever_it_starts(start):
    world, maker = Cosine(dim=3, arms=3), Maker("default", {"hidden": 8, "training": 10})
    for batches in (2, 6) if start == 30.0 else (6,):
        found = calibrate(world, maker, 120, [1, 2, 3], start, batches)
        # An untrained network keeps log det small: with 2 batches log q cannot be half of what it grows later.
        assert np.log(found.spent / batches) > -0.25
        assert batches == 2 or np.log(found.spent / batches) < 0.25
        schedule = DeterminantTrigger(120, batches, log_ratio=found.log_ratio)
        used = [len(play(world, maker, 120, schedule, seed).ends) for seed in range(4, 7)]
        assert min(used) >= 2
        assert np.median(used) >= batches - 1
