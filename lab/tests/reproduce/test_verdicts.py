"""How checks make a verdict: intersection–union to hold, Holm to fail, partial conjunction for "most"."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rarely.runs.statistics import Sample, mean
from rarely_lab.reproduce.report.claims import (
    ALL,
    ALPHA,
    MAX_REPEATS,
    MOST,
    Check,
    Measured,
    Rule,
    decide,
    runs_to_decide,
)

H, N, Q = "holds", "does not hold", "inconclusive"


def check(centre, spread=1.0, runs=3, counts=True, applies=True):
    """Above 0: symmetric runs around the centre."""
    values = centre + spread * np.linspace(-1, 1, runs)
    return Check(
        "x", "above 0", (Measured("x", "above 0", Sample(tuple(values)), 0.0, strict=True),), "", counts, applies
    )


SURE, NOT, OPEN = check(1e6), check(-1e6), check(0.1)


@pytest.mark.parametrize(
    ("rule", "given", "verdict"),
    [
        (ALL, [SURE, SURE], H),
        (ALL, [SURE, NOT, OPEN], N),
        (ALL, [SURE, OPEN], Q),
        (ALL, [], Q),
        (MOST, [SURE, SURE, NOT], H),
        (MOST, [SURE, NOT], N),
        (MOST, [SURE, OPEN, OPEN], Q),
        (MOST, [], Q),
    ],
)
def test_how_checks_make_a_verdict(rule, given, verdict):
    assert decide(given, rule)[0] == verdict
    aside = [check(-1e6, counts=False), check(-1e6, applies=False)]
    told, decided = decide([*given, *aside], rule)
    assert told == verdict
    assert [one.verdict for one in decided[len(given) :]] == [N, "not applicable"]


def barely(p, runs=10):
    """A check against which the p-value is p."""
    return check(-mean(np.linspace(-1, 1, runs), 1 - 2 * p).high, runs=runs)


@pytest.mark.parametrize("count", [1, 3, 27])
def test_a_refutation_survives_the_number_of_checks(count):
    others = [check(1e6, runs=10)] * (count - 1)
    assert decide([barely(0.98 * ALPHA / count), *others])[0] == N
    assert decide([barely(1.02 * ALPHA / count), *others])[0] == Q


def test_holm_goes_on_after_the_first():
    told = [one.verdict for one in decide([barely(0.3 * ALPHA), barely(0.45 * ALPHA), barely(0.9 * ALPHA)])[1]]
    assert told == [N, N, N]
    told = [one.verdict for one in decide([barely(0.3 * ALPHA), barely(0.6 * ALPHA), barely(0.9 * ALPHA)])[1]]
    assert told == [N, Q, Q]


@given(st.lists(st.floats(1e-6, 0.4), min_size=1, max_size=12))
def test_holm_is_the_textbooks(ps):
    # A check is made to have the value p, up to rounding: at a threshold that would decide.
    assume(all(abs(p * count / ALPHA - 1) > 1e-6 for p in ps for count in range(1, len(ps) + 1)))
    decided = decide([barely(p) for p in ps])[1]
    failed = set()
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        if ps[place] > ALPHA / (len(ps) - rank):
            break
        failed.add(place)
    assert {i for i, one in enumerate(decided) if one.verdict == N} == failed


def test_the_interval_shown_is_the_one_that_decided():
    """Where 95 % lie elsewhere and the wider interval of 27 checks does not, the wider one is shown."""
    others = [check(1e6, runs=10)] * 26
    alone, among = decide([barely(ALPHA / 2)])[1][0], decide([barely(ALPHA / 2), *others])[1][0]
    assert alone.verdict == N
    assert alone.estimate.high < 0
    assert alone.confidence == pytest.approx(0.95)
    assert among.verdict == Q
    assert among.confidence == pytest.approx(1 - 2 * ALPHA / 27)
    assert among.estimate.low < 0 < among.estimate.high
    refuted = decide([barely(0.5 * ALPHA / 27), *others])[1][0]
    assert refuted.verdict == N
    assert refuted.confidence == pytest.approx(1 - 2 * ALPHA / 27)
    assert refuted.estimate.high < 0
    held = decide([SURE, NOT])[1][0]
    assert (held.verdict, held.confidence) == (H, pytest.approx(0.95))
    assert held.estimate.low > 0


def test_an_open_check_shows_the_part_that_leaves_it_open():
    """Not one that holds for sure, even where the other is more likely to hold than not."""
    (sure,), (unproven,) = SURE.parts, check(0.5).parts
    for parts in [(sure, unproven), (unproven, sure)]:
        shown = decide([Check("both", "above 0", parts)])[1][0]
        assert shown.verdict == Q
        assert shown.estimate.value == pytest.approx(0.5)
        assert shown.note == "left open by x, above 0"


@given(st.lists(st.sampled_from(["sure", "not", "open"]), min_size=1, max_size=9), st.integers(1, 9))
def test_fewer_needed_never_makes_a_claim_harder(kinds, needed):
    """A claim of u of K checks: what holds for u holds for fewer, what fails for u fails for more."""
    checks = [{"sure": SURE, "not": NOT, "open": OPEN}[kind] for kind in kinds]
    needed = min(needed, len(checks))
    told = {u: decide(checks, Rule("", lambda _, u=u: u))[0] for u in range(1, len(checks) + 1)}
    for u in told:
        if told[needed] == H and u <= needed:
            assert told[u] == H
        if told[needed] == N and u >= needed:
            assert told[u] == N


BARELY_TRUE = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "log-normal": lambda rng, size: rng.lognormal(size=size) - math.exp(0.5),
    "tied": lambda rng, size: 5.0 * (rng.random(size) < 0.05) - 0.25,
    "rarely different": lambda rng, size: 3.0 * (rng.random(size) < 0.1) * rng.choice([-1, 1], size),
}


@pytest.mark.parametrize("checks", [1, 9])
@pytest.mark.parametrize("draw", BARELY_TRUE.values(), ids=BARELY_TRUE)
def test_a_barely_true_claim_is_refuted_in_at_most_5_percent(draw, checks):
    """All checks at their thresholds, runs independent: Student's test refuted half of nine log-normal ones."""
    rng, claims, refuted = np.random.default_rng(checks), 200, 0
    for _ in range(claims):
        values = draw(rng, (checks, 10))
        found = [Check("x", "above 0", (Measured("x", "", Sample(tuple(row)), 0.0, strict=True),)) for row in values]
        refuted += decide(found)[0] == N
    assert refuted <= 0.05 * claims


@pytest.mark.parametrize("runs", [3, 10])
def test_a_claim_with_one_barely_false_check_is_confirmed_in_at_most_5_percent(runs):
    rng, claims = np.random.default_rng(runs), 400
    confirmed = 0
    for _ in range(claims):
        values = np.array([0.0, 50.0, 50.0])[:, None] + rng.standard_normal((3, runs))
        checks = [
            Check("x", "above 0", (Measured("x", "above 0", Sample(tuple(row)), 0.0, strict=True),)) for row in values
        ]
        confirmed += decide(checks)[0] == H
    assert confirmed <= 0.05 * claims


def test_differences_that_are_all_0_decide_nothing():
    """As ten pairs of runs on MAGIC were, of which "does not beat" was said."""
    assert decide([Check("x", "above 0", (Measured("x", "", Sample((0.0,) * 10), 0.0, strict=True),))])[0] == Q


@given(
    centres=st.lists(st.floats(-2, 2), min_size=1, max_size=6),
    runs=st.integers(10, 14),
    rule=st.sampled_from([ALL, MOST]),
)
def test_so_many_runs_like_these_tell_and_no_fewer(centres, runs, rule):
    """The oracle: the judge itself on each multiple of the runs, made by hand."""

    def with_runs(times):
        wide = math.sqrt((times * runs - 1) / (times * (runs - 1)))  # so that the spread stays as it is
        parts = [
            (Measured("x", "above 0", Sample(tuple(c + wide * (v - c)) * times), 0.0, strict=True),)
            for c, v in zip(centres, drawn, strict=True)
        ]
        return decide([Check("x", "above 0", part) for part in parts], rule)[0]

    drawn = [centre + np.linspace(-1, 1, runs) for centre in centres]
    told = [times * runs for times in range(1, MAX_REPEATS + 1) if with_runs(times) != Q]
    needed = runs_to_decide([check(centre, runs=runs) for centre in centres], rule)
    assert needed == (told[0] if told else math.inf)


def test_what_is_not_known_is_not_foretold():
    missing = Check("x", "above 0", (Measured("x", "above 0"),))
    for checks in ([], [check(0.1, runs=9)], [check(0.1, runs=10), missing], [check(1e6, counts=False)]):
        assert math.isnan(runs_to_decide(checks))
    assert runs_to_decide([check(0.0, runs=10)]) == math.inf
    assert runs_to_decide([check(0.2, runs=10), check(-1e6, runs=2, counts=False)]) == 60
