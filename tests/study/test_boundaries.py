"""Boundaries of planned looks: to the digits that were published, and as simulation and a plain grid find them."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rarely.study.boundaries import (
    START,
    boundaries,
    conditional_power,
    final,
    futility,
    power,
    predictive_power,
    spent,
)

FIVE = [0.2, 0.4, 0.6, 0.8, 1.0]


def gamma_spending(fraction, error, gamma):
    """The family of Hwang, Shih and DeCani (1990)."""
    return error * (1 - math.exp(-gamma * fraction)) / (1 - math.exp(-gamma))


@pytest.mark.parametrize(
    ("spending", "published"),
    [
        # Reboussin, DeMets, Kim and Lan (2000), two-sided 0.05, five equal looks.
        ("obrien-fleming", [4.877, 3.357, 2.680, 2.290, 2.031]),
        ("pocock", [2.438, 2.427, 2.410, 2.397, 2.386]),
    ],
)
def test_boundaries_are_those_of_lan_and_demets(spending, published):
    found = boundaries([spent(spending, look, 0.05) for look in FIVE], FIVE)
    assert found == pytest.approx(published, abs=6e-4)
    assert boundaries([0.05], [3.0]) == pytest.approx([1.959964], abs=1e-5)


def crossed(looks, constant, exponent):
    """The error of |S| > constant·(j/K)^exponent at K equal looks."""
    now, total, step = START, 0.0, 1 / looks
    for look in range(1, looks + 1):
        bound = constant * (look / looks) ** exponent
        total += 2 * now.above(step, bound)
        now = now.carried(step, -bound, bound, step)
    return total


@pytest.mark.parametrize(
    ("exponent", "constants"),
    # Jennison and Turnbull (2000), tables 2.1 and 2.3, α = 0.05: Pocock's constants, and O'Brien and Fleming's.
    [
        (0.5, {2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413, 10: 2.555}),
        (0.0, {2: 1.977, 3: 2.004, 4: 2.024, 5: 2.040, 10: 2.087}),
    ],
)
def test_classical_constants_are_solved_to_the_digits_that_were_published(exponent, constants):
    for looks, published in constants.items():
        low, high = 1.5, 3.0
        while high - low > 1e-5:
            middle = (low + high) / 2
            low, high = (middle, high) if crossed(looks, middle, exponent) > 0.05 else (low, middle)
        assert round(high, 3) == published


def test_a_design_with_futility_is_that_of_gsdesign():
    """keaven/gsDesign, tests/testthat/_snaps/independent-test-print.gsDesign.md: `test.type=1` and `test.type=4`."""
    upper = boundaries([2 * gamma_spending(look, 0.025, -4) for look in FIVE], FIVE)
    assert np.round(upper, 2).tolist() == [3.25, 2.99, 2.69, 2.37, 2.03]
    assert power(upper, [1.023 * look for look in FIVE], [3.2415]) == pytest.approx([0.900], abs=5e-4)
    patients = [177.0, 353.0, 529.0, 705.0, 882.0]
    shares = [n / 882 for n in patients]
    lower = futility([gamma_spending(share, 0.1, -2) for share in shares], patients, upper, 0.1146)
    assert np.round(lower, 2).tolist() == [-0.90, -0.04, 0.69, 1.36, 2.03]


def paths(drift, information, trials, seed):
    """Z of many Brownian motions at the looks."""
    steps = np.diff([0.0, *information])
    draws = np.random.default_rng(seed).normal(size=(trials, len(steps)))
    return np.cumsum(drift * steps + np.sqrt(steps) * draws, axis=1) / np.sqrt(information)


def test_futility_is_crossed_as_often_as_it_may_be_under_the_drift_and_costs_no_error():
    drift, information = 2.9, [0.25, 0.6, 1.0]
    upper = boundaries([spent("obrien-fleming", v, 0.05) for v in information], information)
    allowed = [spent("obrien-fleming", v, 0.4) / 2 for v in information]
    lower = futility(allowed, information, upper, drift)
    z, alive, stopped = paths(drift, information, 400_000, 1), np.ones(400_000, bool), []
    for look in range(2):
        stopped.append(float((alive & (z[:, look] < lower[look])).mean()))
        alive &= (z[:, look] >= lower[look]) & (z[:, look] <= upper[look])
    assert stopped == pytest.approx(np.diff([0.0, *allowed[:2]]), abs=4 * math.sqrt(0.2 / 400_000))
    assert futility([0.05, 0.4], [0.5, 1.0], [1.5, 1.5], 5.0) == [pytest.approx(1.5), 1.5]  # no error left to be made


def test_conditional_power_is_what_simulation_finds_and_predictive_power_its_mean():
    information, reached = [0.5, 0.75, 1.0], 0.9
    upper = boundaries([spent("pocock", v, 0.05) for v in information], information)
    later = [v - 0.5 for v in information[1:]]
    found = []
    for drift in (0.0, 1.8):
        s = reached + paths(drift, later, 200_000, 2) * np.sqrt(later)
        z = s / np.sqrt(information[1:])
        first = np.abs(z[:, 0]) > upper[1]
        wins = (z[:, 0] > upper[1]) | (~first & (z[:, 1] > upper[2]))
        found.append(conditional_power(upper[1:], information[1:], reached, 0.5, [drift])[0])
        assert found[-1] == pytest.approx(wins.mean(), abs=0.005)
    assert found[0] < predictive_power(upper[1:], information[1:], reached, 0.5) < found[1] + 0.1


def test_the_order_of_stages_has_the_right_size_at_every_drift_and_the_right_median():
    """Stop at the first crossing: the final interval holds 95 %, and the estimate is too high in half of the trials."""
    information = [0.3, 0.6, 1.0]
    upper = boundaries([spent("pocock", v, 0.05) for v in information], information)
    for drift in (0.0, 2.0):
        z = paths(drift, information, 400, 3)
        held = higher = rejected = 0
        for path in z:
            stop = next((look for look in range(3) if abs(path[look]) > upper[look]), 2)
            said = final(float(path[stop]), upper[:stop], information[: stop + 1], 0.05)
            held += said.low <= drift <= said.high
            higher += said.median > drift
            rejected += said.p <= 0.05
            assert (said.p <= 0.05) == (abs(path[stop]) >= upper[stop])
        assert 380 - 17 < held < 380 + 17  # four deviations
        assert 200 - 40 < higher < 200 + 40
        assert drift > 0 or rejected < 20 + 17


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.05, 2.0), min_size=1, max_size=5), st.floats(-6.0, 6.0), st.sampled_from([0.05, 0.001]))
def test_the_ends_of_the_final_interval_are_the_drifts_that_give_such_a_result_their_probabilities(steps, z, alpha):
    information = np.cumsum(steps).tolist()
    upper = boundaries([spent("pocock", v / information[-1], 0.05) for v in information], information)[:-1]
    said = final(z, upper, information, alpha)
    for drift, share in ((said.low, alpha / 2), (said.median, 0.5), (said.high, 1 - alpha / 2)):
        found = power([*upper, z], information, [drift])[0]
        assert found == pytest.approx(share, abs=1e-5)


def plain_crossings(bounds, information):
    """Crossing probabilities from a plain grid of S: the oracle of the recursive integration."""
    grid = np.linspace(-8, 8, 3201) * math.sqrt(information[-1])
    width, density, before, found = grid[1] - grid[0], None, 0.0, []
    for bound, v in zip(bounds, information, strict=True):
        if density is None:
            density = np.exp(-(grid**2) / (2 * v)) / math.sqrt(2 * math.pi * v)
        else:
            kernel = np.exp(-(grid**2) / (2 * (v - before))) / math.sqrt(2 * math.pi * (v - before))
            density = np.convolve(density, kernel, mode="same") * width
        outside = np.abs(grid) > bound * math.sqrt(v)
        found.append(float(density[outside].sum() * width))
        density, before = np.where(outside, 0.0, density), v
    return found


@settings(max_examples=8, deadline=None)
@given(st.lists(st.floats(0.3, 2.0), min_size=1, max_size=4), st.sampled_from(["obrien-fleming", "pocock"]))
def test_each_look_is_crossed_with_the_error_it_may_spend(steps, spending):
    information = np.cumsum(steps)
    errors = [spent(spending, v / information[-1], 0.1) for v in information]
    assert errors[-1] == pytest.approx(0.1)
    found = plain_crossings(boundaries(errors, information.tolist()), information)
    assert found == pytest.approx(np.diff([0.0, *errors]), abs=2e-3)


@pytest.mark.parametrize("grown", [1e-2, 1e-6, 1e-9, 1e-12])
def test_a_look_that_learns_almost_nothing_spends_its_error_just_below_the_one_before(grown):
    first, second = boundaries([0.01, 0.02], [1.0, 1.0 + grown])
    assert (first, second) == pytest.approx([NormalDist().inv_cdf(0.995), NormalDist().inv_cdf(0.99)], abs=1e-3)
