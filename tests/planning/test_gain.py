"""What updates are worth, against the policy in use; and simulations that fail."""

import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest

from decision_logs import planning_log
from rarely import Affine
from rarely._core.schedules import EveryRound, FixedGrid
from rarely.planning import plan
from rarely.planning.frontier import PILOTS, Frontier, Point
from rarely.planning.plan import Present, Share, measure_present, share_lines, shares_of, update_price
from rarely.planning.planner import _counts
from rarely.planning.simulate import (
    KINDS,
    LoggedRounds,
    LogWorld,
    Maker,
    SimulatedRewards,
    SimulationFailed,
)
from rarely.runs.statistics import IntervalEstimate
from rarely.worlds import World

QUICK = {"horizon": 30, "runs": 2, "policy": "linear", "batches": [2, 4]}


class Lines(World):
    arms, dim, context_scale = 3, 3, Affine.identity(3)

    def secret(self, generator):
        return generator.normal(size=3)

    def round(self, t, secret, generator):
        contexts = generator.normal(size=(3, 3))
        return contexts, contexts @ secret, 0.3 * generator.normal()


def frontier(**regrets):
    """Regrets of B = 2, 4, 8 for each kind, against 100 of an update after every round."""
    points = []
    for kind in KINDS:
        for batches, regret in zip((2, 4, 8), regrets.get(kind, (200, 200, 200)), strict=True):
            ratio, whole = (
                IntervalEstimate(regret / 100, regret / 110, regret / 90, 5),
                IntervalEstimate(regret, 0, 1e9, 5),
            )
            points.append(Point(kind, batches, None, batches, whole, ratio, (1,) * batches))
    return Frontier(50, 5, IntervalEstimate(100.0, 90.0, 110.0, 5), ((0, 0.0), (50, 9.0)), tuple(points))


PRESENT = Present(True, IntervalEstimate(500.0, 490.0, 510.0, 5), IntervalEstimate(400.0, 380.0, 420.0, 5))


def test_shares_are_of_what_frequent_updates_gain_over_the_present_policy():
    rows = shares_of(frontier(fixed=(300, 220, 100), adaptive=(340, 180, 140)), PRESENT)
    assert [row.batches for row in rows] == [2, 4, 8]
    assert [row.shares["fixed"] for row in rows] == [0.5, 0.7, 1.0]
    assert [row.best for row in rows] == [0.75, 0.8, 1.0]
    assert rows[1].low == pytest.approx((500 - 200) / 400)
    assert rows[1].high == pytest.approx((500 - 180 / 1.1) / 400)


def test_the_next_update_is_worth_the_slope_to_the_next_b():
    shown = frontier(fixed=(300, 220, 100), adaptive=(340, 180, 140), geometric=(400, 400, 400))
    rows = shares_of(shown, PRESENT)
    assert [row.next for row in rows] == [(300 - 180) / 2, (180 - 100) / 4, None]
    assert update_price(rows, shown) == (
        "With 3 updates 80 % of the possible gain (75 % to 84 %); the 4th is worth 20 of reward over 50 rounds."
    )
    assert update_price(rows[2:], shown).endswith(
        "100 % of the possible gain (97 % to 102 %); more were not simulated."
    )
    worse = shares_of(frontier(fixed=(100, 300, 300), geometric=(300, 300, 300), adaptive=(300, 300, 300)), PRESENT)
    assert [row.next for row in worse] == [0.0, 0.0, None]


def test_an_interval_that_says_nothing_makes_no_headline():
    row = Share(4, {"fixed": 0.86}, -1.31, 1.34, 2.41)
    assert update_price([row], frontier()) == (
        "Inconclusive: 5 runs do not show how much of the possible gain updates bring: with 3 updates it is -131 % to "
        "134 %. Ask for more --runs."
    )
    alone = replace(row, shares={"fixed": None}, low=-math.inf, high=math.inf)
    assert "with 3 updates it is unknown. Ask" in update_price([alone], frontier())


def test_a_share_of_a_gain_that_is_not_shown_is_unknown():
    """Where the possible gain may be nothing, a share of it was once 212 %."""
    doubtful = replace(PRESENT, gain=IntervalEstimate(400.0, -30.0, 830.0, 5))
    rows = shares_of(frontier(fixed=(300, 220, 100)), doubtful)
    assert {share for row in rows for share in row.shares.values()} == {None}
    assert all("unknown" in line for line in share_lines(rows, frontier(), doubtful)[2:5])
    assert "%" not in "".join(share_lines(rows, frontier(), doubtful))
    wide = frontier(fixed=(300, 220, 100))
    wide = replace(wide, points=tuple(replace(p, ratio=replace(p.ratio, low=0.1, high=9.0)) for p in wide.points))
    assert {share for row in shares_of(wide, PRESENT) for share in row.shares.values()} == {None}


def test_where_the_present_policy_is_better_updates_gain_nothing():
    present = Present(False, IntervalEstimate(90.0, 80.0, 99.0, 5), IntervalEstimate(-10.0, -20.0, 0.0, 5))
    rows = shares_of(frontier(), present)
    assert rows == []
    (said,) = share_lines(rows, frontier(), present)
    assert said.startswith("Updates have nothing to gain here: choosing arms at random has no more regret than")


def test_the_present_policy_is_the_one_that_wrote_the_log():
    """Of two arms that pay 1 and 0 the log has the worse one in a quarter of its rounds."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    log = LoggedRounds.of(planning_log(rows, 2, (np.arange(40) % 4 == 0).astype(int), np.arange(40.0)))
    world = LogWorld(log, SimulatedRewards(log, lambda features: np.tile([1.0, 0.0], (len(features), 1))), 40)
    present = measure_present(world, 40, [1, 2], [1.0, 2.0])
    assert present.logged
    assert present.regret.value == 10.0
    at_random = measure_present(
        LogWorld(LoggedRounds.of(planning_log(rows, 2)), world.rewards, 40), 40, [1, 2], [1.0, 2.0]
    )
    assert not at_random.logged
    assert at_random.regret.value == 20.0


def test_a_world_is_compared_with_arms_at_random():
    present = measure_present(Lines(), 60, [3], [1.0])
    rounds = Lines().rounds(3, 60)
    expected = np.mean([rounds.regrets(np.full(60, arm)).sum() for arm in range(3)])
    assert present.regret.value == pytest.approx(expected)


def test_the_table_comes_first():
    made = plan(Lines(), **QUICK)
    lines = made.text().splitlines()
    assert lines[0].startswith("Share of the possible gain")
    assert lines[1].split()[:2] == ["B", "updates"]
    assert [line.split()[0] for line in lines[2:4]] == ["2", "4"]
    assert "possible gain" in lines[4]
    saved = json.loads(json.dumps(made.describe(), allow_nan=False))
    assert [share["batches"] for share in saved["shares"]] == [2, 4]
    assert saved["present"]["regret"]["value"] > 0


def test_the_default_policy_is_compared_with_128_updates_and_tried_up_to_64():
    default, plain = Maker("default"), Maker("linear")
    assert default.reference(2000) == FixedGrid(2000, 128)
    assert default.reference(100) == plain.reference(2000) == EveryRound()
    assert _counts(None, 2000, default)[-1] == 64
    assert _counts(None, 2000, plain)[-1] == 256
    assert Frontier(1024, 1, IntervalEstimate(1, 1, 1, 1), (), (), 128).often == "an update after every 8 rounds"


def test_a_simulation_that_fails_ends_the_plan_with_its_reason():
    pilots = np.random.SeedSequence(0).generate_state(QUICK["runs"] + PILOTS)[:PILOTS]

    class Failing(Lines):
        def rounds(self, seed, count, first=1):
            if seed not in (0, *pilots):
                raise ZeroDivisionError("no such round")
            return super().rounds(seed, count, first)

    with pytest.raises(SimulationFailed, match=r"EveryRound\(.*\), seed=\d+\): ZeroDivisionError: no such round"):
        plan(Failing(), **QUICK)


def test_a_process_that_is_killed_ends_the_plan_with_a_remedy():
    here = os.getpid()

    class Deadly(Lines):
        def rounds(self, seed, count, first=1):
            if os.getpid() != here:
                os._exit(9)
            return super().rounds(seed, count, first)

    with pytest.raises(SimulationFailed, match="was killed; is there enough memory"):
        plan(Deadly(), **QUICK, jobs=2)
