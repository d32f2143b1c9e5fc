"""What every schedule promises. A new schedule is one line in SCHEDULES; the promises are in `rarely.testing`."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import (
    AtRounds,
    Budget,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    GeometricGrid,
    InvalidSchedule,
    LogLogGrid,
    OnDemand,
    Paced,
)
from rarely._core.policies.state import BatchClock
from rarely._core.schedules import schedule_from
from rarely.testing import SCHEDULE_PROMISES, check_schedule

SCHEDULES = {
    "every": EveryRound(),
    "fixed": FixedGrid(100, 7),
    "geometric": GeometricGrid(100, 5),
    "geometric first": GeometricGrid(100, 5, first=20),
    "loglog": LogLogGrid(100, 4),
    "loglog crowded": LogLogGrid(100, 40),
    "at": AtRounds([3, 50, 51]),
    "trigger": DeterminantTrigger(log_ratio=1.5),
    "trigger capped": DeterminantTrigger(horizon=100, batches=4, log_ratio=0.5),
    "budget": Budget(EveryRound(), 9),
    "paced": Paced(100, 7),
    "on demand": OnDemand(),
    "on demand limited": OnDemand(batches=5, horizon=100),
    "extended": Budget(EveryRound(), 9).extended(3),
}
BATCHES = {
    "paced batch": Paced(100, 7).in_batch(version=2, round=9, log_det=12.0),
    "first batch": DeterminantTrigger(100, 5, 30.0).rescued(),
}


def follow(schedule, growth_per_round, rounds):
    """Versions started when every update is made at once: the rounds after which they were."""
    budget, version, base, ends = Budget.around(schedule), 0, 0.0, []
    for t in range(rounds):
        now = growth_per_round * (t + 1)
        batch = budget.in_batch(version, ends[-1] if ends else 0, base)
        if not budget.spent(version) and batch.first_due(t, np.array([now - base])) is not None:
            version, base = version + 1, now
            ends.append(t + 1)
    return ends


@pytest.mark.parametrize("name", SCHEDULES)
@given(st.integers(0, 10**6))
def test_a_schedule_keeps_its_promises(name, seed):
    check_schedule(lambda: SCHEDULES[name], seed=seed, examples=1)


@pytest.mark.parametrize("promise", [name for name in SCHEDULE_PROMISES if name != "describe_rebuilds_it"])
@pytest.mark.parametrize("name", BATCHES)
def test_the_schedule_of_one_batch_keeps_them_too(name, promise):
    if name == "first batch" and promise == "lookahead_is_exact_where_growth_does_not_matter":
        pytest.skip("a first batch that is rescued ends because growth has stopped, which no lookahead knows")
    check_schedule(lambda: BATCHES[name], examples=3, only=promise)


@pytest.mark.parametrize("kind", [FixedGrid, GeometricGrid, LogLogGrid])
def test_a_grid_has_as_many_batches_as_asked_for_every_horizon_and_budget(kind):
    """Every (T, B) up to 40×40: min(B, T) batches, none empty, none after the horizon."""
    for horizon in range(1, 41):
        for batches in range(1, 41):
            ends = [0, *kind(horizon, batches).points, horizon]
            assert len(ends) - 1 == min(horizon, batches)
            assert all(a < b for a, b in pairwise(ends)), (horizon, batches, ends)
            assert follow(kind(horizon, batches), 1.0, horizon) == ends[1:-1]


def test_the_fixed_grid_is_the_printed_one_where_it_divides_and_balanced_elsewhere():
    for horizon in range(1, 61):
        for batches in range(1, horizon + 1):
            ends = [0, *FixedGrid(horizon, batches).points, horizon]
            sizes = np.diff(ends)
            assert sizes.max() - sizes.min() <= 1
            if horizon % batches == 0:
                assert ends == [b * (horizon // batches) for b in range(batches + 1)]


def test_a_horizon_that_does_not_divide_keeps_its_budget():
    assert len(FixedGrid(2000, 300).points) == 299


def test_the_geometric_grid_grows_geometrically():
    assert GeometricGrid(10_000, 4).points == (10, 100, 1000)
    assert GeometricGrid(1600, 5, first=100).points == (100, 200, 400, 800)


@given(st.integers(10**4, 10**6), st.integers(1, 4))
def test_each_batch_of_the_loglog_grid_costs_the_same(horizon, batches):
    """u_1 = a and u_b = a√u_{b−1} with u_B = T (Gao et al., 2019): then t_b/√t_{b−1} is one number for all b."""
    ends = [*LogLogGrid(horizon, batches).points, horizon]
    np.testing.assert_allclose(ends[0], horizon ** (0.5 / (1 - 0.5**batches)), atol=0.5)
    np.testing.assert_allclose([b / np.sqrt(a) for a, b in pairwise(ends)], ends[0], rtol=0.02)


def test_the_loglog_grid_of_two_batches_explores_two_thirds_of_the_exponent():
    assert LogLogGrid(10**6, 2).points == (10**4,)
    assert LogLogGrid(2000, 20).points[:4] == (45, 299, 773, 1244)
    assert LogLogGrid(2000, 20).points[-1] == 1999
    assert LogLogGrid(30, 5000).points == tuple(range(1, 30))


def test_the_trigger_ends_a_batch_strictly_past_the_ratio():
    trigger = DeterminantTrigger(log_ratio=2.0)
    assert trigger.first_due(0, np.array([1.0, 2.0])) is None
    assert trigger.first_due(0, np.array([1.0, 2.0, 2.0 + 1e-9])) == 2
    assert DeterminantTrigger(log_ratio=np.inf).first_due(0, np.full(5, 1e300)) is None


def test_the_trigger_says_nothing_at_the_horizon():
    trigger = DeterminantTrigger(horizon=10, batches=5, log_ratio=1.0)
    assert trigger.first_due(8, np.array([5.0])) == 0
    assert trigger.first_due(9, np.array([5.0])) is None


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0.01, 5))
def test_the_adaptive_budget_is_hard(horizon, batches, pace):
    ends = follow(DeterminantTrigger(horizon, batches, 0.3), pace, horizon)
    assert len(ends) + 1 <= min(batches, horizon)


def test_a_budget_wraps_any_schedule_and_the_tighter_cap_wins():
    assert Budget(FixedGrid(10, 4), 2).batches == 2
    assert Budget(FixedGrid(10, 4), 9).batches == 4
    assert Budget(DeterminantTrigger(horizon=3, batches=9, log_ratio=1.0), 9).batches == 3
    assert Budget(EveryRound(), 1).spent(0)
    assert follow(Budget(EveryRound(), 3), 1.0, 20) == [1, 2]
    assert not Budget.around(EveryRound()).spent(10**9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedGrid(0, 3),
        lambda: FixedGrid(10, 0),
        lambda: FixedGrid(10, 2.5),
        lambda: LogLogGrid(10, 0),
        lambda: LogLogGrid(10**8, 10**8),
        lambda: GeometricGrid(10, 2, first=0),
        lambda: AtRounds([5, 5]),
        lambda: AtRounds([0]),
        lambda: AtRounds([2.5]),
        lambda: DeterminantTrigger(log_ratio=-0.1),
        lambda: DeterminantTrigger(horizon=10, batches=2),
        lambda: DeterminantTrigger(horizon=-1, log_ratio=1.0),
        lambda: Budget(EveryRound(), 0),
        lambda: schedule_from({"kind": "Nightly"}),
    ],
)
def test_schedules_that_cannot_be_followed_are_refused(make):
    with pytest.raises(InvalidSchedule):
        make()


def test_the_refusal_says_what_must_hold_what_came_and_what_to_do():
    with pytest.raises(InvalidSchedule, match=r"must be positive.*got -0.1(.|\n)*EveryRound"):
        DeterminantTrigger(log_ratio=-0.1)


@given(st.integers(1, 400), st.integers(1, 60), st.lists(st.floats(0, 5), min_size=1, max_size=400))
def test_paced_keeps_its_budget_and_its_windows_whatever_log_det_does(horizon, batches, steps):
    """Update b falls between rounds T(b/B)³ and T(b/B)², unless the one before is as late as that already."""
    batches = min(batches, horizon)
    log_dets = np.cumsum(np.resize(steps, horizon))
    clock, ends = BatchClock(Budget.around(Paced(horizon, batches))), []
    for t in range(horizon):
        if clock.first_due(t, log_dets[t : t + 1]) is not None:
            clock = clock.restarted(t + 1, float(log_dets[t]), clock.version + 1)
            ends.append(t + 1)
    assert len(ends) <= batches - 1
    for b, end in enumerate(ends, start=1):
        assert end >= horizon * (b / batches) ** 3 - 1e-9
        latest = -(-horizon * b**2 // batches**2)
        assert end <= latest or (ends[b - 2] if b > 1 else 0) >= latest
    # Where the grid of squares has room for all updates, all of them come.
    squares = np.ceil(horizon * (np.arange(1, batches) / batches) ** 2)
    if (np.diff(squares) > 1).all() and horizon > 2 * batches:
        assert len(ends) == batches - 1


def test_paced_starts_densely_and_goes_on_in_squares_where_log_det_grows_as_the_root_of_rounds():
    horizon, batches = 2000, 40
    clock, ends = BatchClock(Budget.around(Paced(horizon, batches))), []
    for t in range(horizon):
        now = 7 * np.sqrt(t + 1)
        if clock.first_due(t, np.array([now])) is not None:
            clock = clock.restarted(t + 1, now, clock.version + 1)
            ends.append(t + 1)
    assert ends[:5] == [1, 2, 4, 8, 16]
    roots = np.sqrt([*ends[4:], horizon])
    np.testing.assert_allclose(np.diff(roots), (roots[-1] - roots[0]) / (len(roots) - 1), rtol=0.08)


@given(st.integers(10, 5000), st.integers(2, 100))
def test_no_batch_of_paced_is_longer_than_what_came_before_it_unless_its_limits_say_so(horizon, batches):
    batches = min(batches, horizon)
    schedule, round = Paced(horizon, batches), 0
    for version in range(batches - 1):
        batch = schedule.in_batch(version, round, log_det=float(round))
        least = -(-horizon * (version + 1) ** 3 // batches**3)
        assert batch.latest <= max(2 * round, least, round + 1)
        round = batch.latest


def test_paced_updates_sooner_where_log_det_grows_faster():
    batch = Paced(1000, 10).in_batch(version=4, round=160, log_det=80.0)
    slow, fast = np.full(100, 0.0), np.cumsum(np.full(100, 3.0))
    assert 160 + batch.first_due(160, slow) + 1 == 250
    assert 160 + batch.first_due(160, fast) + 1 == 167


def test_paced_goes_on_after_an_update_that_came_late_or_was_rejected():
    """The caller may update after `latest`: the next batch still has rounds."""
    batch = Paced(1000, 10).in_batch(version=1, round=500, log_det=50.0)
    assert batch.earliest == 501
    assert 501 < batch.latest < 1000


def test_a_clock_whose_budget_is_spent_ends_no_batch():
    spent = BatchClock(Budget(EveryRound(), 2), version=1)
    assert spent.first_due(5, np.zeros(3)) is None
    assert BatchClock(Budget(EveryRound(), 2)).first_due(5, np.zeros(3)) == 0


def test_a_trigger_that_saturates_ends_its_first_batch_anyway():
    trigger = DeterminantTrigger(horizon=400, batches=40, log_ratio=40.0)
    clock = BatchClock(Budget.around(trigger), rescues=True)
    growth = np.log1p(np.arange(1, 400) / 0.01)
    end = clock.first_due(0, growth)
    assert trigger.first_due(0, growth) is None
    assert growth[end] * 400 < 40.0 * (end + 1)
    assert (growth[9:end] * 400 >= 40.0 * np.arange(10, end + 1)).all()
    assert "saturated" in clock.ended(end + 1).explain(end + 1, float(growth[end]))
    # Later batches follow the printed rule alone.
    assert clock.restarted(end + 1, 5.0, 1).first_due(end + 1, np.full(300, 5.0)) is None


@pytest.mark.parametrize("log_ratio", [20.0, 40.0])
def test_a_trigger_that_fires_is_the_printed_one(log_ratio):
    trigger = DeterminantTrigger(horizon=400, batches=4, log_ratio=log_ratio)
    growth = np.cumsum(np.full(399, 0.5))
    for rescues in (False, True):
        clock = BatchClock(Budget.around(trigger), rescues=rescues)
        assert clock.first_due(0, growth) == trigger.first_due(0, growth)


def test_a_saturated_first_batch_lasts_a_share_of_the_horizon_and_no_longer():
    first = DeterminantTrigger(horizon=100, batches=10, log_ratio=50.0).rescued()
    assert first.first_due(0, np.full(30, 0.1)) == 9  # with round 10 = T/B


@given(st.integers(2, 60), st.data())
def test_a_geometric_grid_with_a_long_first_batch_keeps_its_last_update_within_the_horizon(horizon, data):
    batches, first = data.draw(st.integers(1, horizon)), data.draw(st.integers(1, horizon - 1))
    grid = GeometricGrid(horizon, batches, first=first)
    assert len(grid.points) == batches - 1
    assert all(a < b for a, b in pairwise((0, *grid.points, horizon)))


def test_paced_ends_a_batch_strictly_past_its_share():
    batch = Paced(1000, 10).in_batch(version=4, round=160, log_det=80.0)
    assert batch.first_due(160, np.full(5, batch.growth)) is None
    assert batch.first_due(160, np.array([batch.growth, np.nextafter(batch.growth, 99)])) == 1
