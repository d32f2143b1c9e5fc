"""Each kind of check on made-up runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_records import runs
from rarely_lab.reproduce.report.claims import ClaimChecker, decide
from rarely_lab.reproduce.report.results import compare

NEURAL = {"kind": "neuralucb"}
FIXED = {"kind": "fixed", "batches": 40}
BASE, LIKE = [100.0, 200.0, 300.0, 150.0], [100.01, 200.0, 299.99, 150.0]


def checker(*records, estimand="typical"):
    return ClaimChecker(compare([r for some in records for r in some])[0], estimand)


def decided(check):
    return decide([check])[1][0]


def verdict(check):
    return decided(check).verdict


def test_wide_intervals_are_not_judged_by_their_middle():
    wide = checker(runs([400, 900, 3000], **FIXED), runs([100, 101, 99], **NEURAL))
    over = decided(wide.at_least(8, "regret", "fixed-B40", "neuralucb"))
    under = decided(wide.at_most(12, "regret", "fixed-B40", "neuralucb"))
    assert 8 < over.estimate.value < 12
    assert over.verdict == under.verdict == "inconclusive"
    near = checker(runs([80, 120, 100], **FIXED), runs([100, 101, 99], **NEURAL))
    assert verdict(near.alike("fixed-B40", "neuralucb")) == "inconclusive"


@pytest.mark.parametrize(("estimand", "value"), [("mean", 1.75), ("typical", 1.086)])
def test_the_ratio_is_of_means_or_of_typical_runs(estimand, value):
    both = checker(runs([30, 40, 50, 300], **FIXED), runs([60, 60, 60, 60], **NEURAL), estimand=estimand)
    assert decided(both.at_most(2, "regret", "fixed-B40", "neuralucb")).estimate.value == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("quantity", ["versions", "seconds"])
def test_what_cannot_be_at_so_few_rounds_is_not_asked(quantity):
    both = checker(
        runs([10, 20], **FIXED, rounds=300, updates=39), runs([10, 20], **NEURAL, rounds=300, updates=299, seconds=9)
    )
    check = both.at_least(8, quantity, "neuralucb", "fixed-B40")
    assert (verdict(check), check.applies) == ("not applicable", False)
    assert "not applicable" in check.note


@given(st.integers(2, 10), st.integers(1, 40), st.integers(-3, 3))
def test_counts_that_schedules_fix_are_compared_as_counts_and_a_tie_is_at_least_as_much(factor, versions, more):
    """2000 versions are 8 times 250, though exp(log 2000 − log 250) is less than 8; and that is no chance."""
    count = factor * versions + more
    if count < 2:
        return
    many = runs([1, 2], **NEURAL, rounds=count, updates=count - 1)
    few = runs([1, 2], kind="adaptive", batches=versions, log_ratio=20.0, rounds=count, updates=versions - 1)
    check = checker(many, few).at_least(factor, "versions", "neuralucb", f"adaptive-B{versions}-logq20")
    assert verdict(check) == ("holds" if more >= 0 else "inconclusive")


def test_wide_intervals_tell_nothing():
    wide = checker(runs([10, 500, 90], **NEURAL), runs([400, 20, 100], **FIXED))
    assert verdict(wide.beats("fixed-B40", "neuralucb")) == "inconclusive"
    assert verdict(wide.at_most(2, "regret", "fixed-B40", "neuralucb")) == "inconclusive"


def test_pairs_by_seed_tell_what_means_do_not():
    regrets = [10.0, 500.0, 90.0, 1000.0]
    shares = [0.8, 0.81, 0.79, 0.805]
    both = checker(
        runs([r * share for r, share in zip(regrets, shares, strict=True)], **FIXED), runs(regrets, **NEURAL)
    )
    assert verdict(both.beats("fixed-B40", "neuralucb")) == "holds"


@pytest.mark.parametrize(
    ("factor", "told"), [(0.99, "holds"), (1.05, "holds"), (1.2, "does not hold"), (0.8, "does not hold")]
)
def test_alike_is_an_interval_within_ten_percent(factor, told):
    both = checker(runs([factor * r for r in BASE], **FIXED), runs(LIKE, **NEURAL))
    assert verdict(both.alike("fixed-B40", "neuralucb")) == told


@pytest.mark.parametrize(
    ("factor", "told", "side"),
    [
        (0.9, "does not hold", "reversed"),
        (1.0, "does not hold", ""),
        (7.9, "does not hold", "smaller than claimed, in its direction"),
        (8.1, "holds", ""),
        (12.4, "holds", ""),
        (12.6, "holds, larger than claimed", ""),
    ],
)
def test_a_size_is_missed_from_below_and_exceeded_from_above(factor, told, side):
    both = checker(runs([factor * r for r in BASE], **FIXED), runs(LIKE, **NEURAL))
    one = decided(both.around(10, "regret", "fixed-B40", "neuralucb"))
    assert one.verdict == told
    assert one.note == side
    assert decide([both.around(10, "regret", "fixed-B40", "neuralucb")])[0] == told


def test_a_configuration_that_was_not_run_is_named():
    one = decided(checker(runs([1, 2], **NEURAL)).beats("neuralucb", "fixed-B40"))
    assert one.verdict == "inconclusive"
    assert "fixed-B40" in one.note


def test_the_same_runs_are_said_to_be_the_same_and_are_not_asked_which_is_better():
    first = runs([10, 20], kind="adaptive", batches=40, log_ratio=20.0)
    second = runs([10, 20], kind="adaptive", batches=100, log_ratio=20.0)
    check = checker(first, second).beats("adaptive-B100-logq20", "adaptive-B40-logq20")
    assert "same decisions" in check.note
    assert verdict(check) == "not applicable"


@pytest.mark.parametrize("fact", ["machine", "form"])
def test_times_are_compared_on_one_machine_and_with_one_compiled_form_only(fact):
    slow, fast = runs([1, 1, 1], **NEURAL), runs([1, 1, 1], **FIXED)
    for other in slow[1:]:
        other.data["environment"][fact] = "another"
    one = decided(checker(slow, fast).at_least(1, "seconds", "neuralucb", "fixed-B40"))
    assert one.estimate.runs == 1
    assert one.verdict == "inconclusive"


def test_a_time_is_of_the_machine_with_the_most_runs():
    slow = runs([1] * 5, **NEURAL, seconds=80.0)
    fast = runs([1] * 5, **FIXED, seconds=10.0)
    for run in (*slow[:2], *fast[:2]):  # two pairs of five, on which it is twice as slow
        run.data["environment"]["machine"] = "another"
    for run in slow[:2]:
        run.data["seconds"] = {"selecting": 160.0, "training": 0.0}
    one = decided(checker(slow, fast).at_least(1, "seconds", "neuralucb", "fixed-B40"))
    assert (one.estimate.runs, one.estimate.value) == (3, pytest.approx(8.0))


def test_at_most_has_one_bound_and_all_of_its_level():
    check = checker(runs([100, 101, 99, 102, 98], **FIXED), runs([90] * 5, **NEURAL)).at_most(
        1, "regret", "fixed-B40", "neuralucb"
    )
    (part,) = check.parts
    assert part.p_inside == part.sample.p_above(1.0)


def test_a_policy_that_never_updated_has_one_version():
    never = runs([10, 20], kind="adaptive", batches=40, log_ratio=20.0, updates=0)
    both = checker(never, runs([10, 20], **NEURAL, updates=59))
    one = decided(both.at_least(8, "versions", "neuralucb", "adaptive-B40-logq20"))
    assert (one.estimate.value, one.verdict) == (pytest.approx(60), "inconclusive")


@pytest.mark.parametrize(
    ("problem", "name", "named"),
    [
        ("cosine", "fixed-B40", True),
        ("cosine", "adaptive-B40-logq60", True),
        ("cosine", "fixed-B100", True),
        ("mushroom", "adaptive-B250-logq30", True),
        ("mushroom", "adaptive-B250-logq20", False),
        ("mushroom", "fixed-B100", False),
        ("magic", "adaptive-B100-logq70", True),
        ("magic", "linucb-best", True),
    ],
)
def test_values_that_the_paper_does_not_name_do_not_count(problem, name, named):
    one = checker(runs([1, 2], **NEURAL, problem=problem))
    assert one.named(name) is named
    assert one.beats(name, "neuralucb").counts is named


def test_a_machine_where_nothing_can_be_compared_is_not_the_one_whose_times_count():
    slow, fast = runs([1] * 3, **NEURAL, seconds=80.0), runs([1] * 3, **FIXED, seconds=10.0)
    elsewhere = [*runs([1] * 9, kind="linucb"), *runs([1] * 9, kind="adaptive", batches=40, log_ratio=20.0)]
    for run in elsewhere:
        run.data["environment"]["machine"] = "another"
    one = decided(checker(slow, fast, elsewhere).at_least(1, "seconds", "neuralucb", "fixed-B40"))
    assert (one.estimate.runs, one.estimate.value) == (3, pytest.approx(8.0))
