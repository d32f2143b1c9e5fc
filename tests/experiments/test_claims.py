import json

import pytest

from lab_records import record, runs
from rarely.experiments.catalogue import PAPER, PROBLEMS, configurations
from rarely.experiments.config import VIEWS
from rarely.experiments.report.claims import CLAIMS, judge
from rarely.experiments.report.results import compare
from rarely.experiments.report.verdicts import ALIKE, ALMOST, SLIGHTLY, VERY_CLOSE, Bench, Check, all_hold, most_hold

NOTES = {
    "cosine": [f"cosine-{i}" for i in range(1, 5)],
    "mushroom": [f"mushroom-{i}" for i in range(1, 9)],
    "quadratic": [f"quadratic-{i}" for i in range(1, 7)],
    "magic": [f"magic-{i}" for i in range(1, 5)],
}
SPREAD = (1.0, 1.01, 0.99)


def field(regret_of, seconds_of=lambda c: 1.0, problem="cosine", preset="practical", updates_of=lambda c: 30):
    """Three runs of every configuration, regrets and times as a function of the configuration."""
    table = problem in ("mushroom", "magic")
    records = []
    for c in configurations(PROBLEMS[problem]):
        reading = (VIEWS[preset] if table else "raw") if c.linear else preset
        for seed, noise in enumerate(SPREAD):
            kind = {"kind": c.kind, "batches": c.batches, "log_ratio": c.log_ratio, "ridge": c.ridge, "beta": c.beta}
            sizes = {"regret": noise * regret_of(c), "seconds": seconds_of(c), "updates": updates_of(c)}
            records.append(record(problem, reading, seed=seed, rounds=2000, **kind, **sizes))
    return records


def verdicts(records):
    return {j.claim.id: j.verdict for j in judge(compare(records))}


def test_every_claim_of_the_notes_is_there_by_id():
    assert {base: [claim.id for claim in claims] for base, claims in CLAIMS.items()} == NOTES
    assert verdicts(field(lambda c: 1.0))["overall-1"]


def test_the_thresholds_are_those_fixed_beforehand():
    assert (ALMOST, SLIGHTLY, VERY_CLOSE, ALIKE) == (0.8, 1.25, 1.5, 0.1)


def as_the_paper_says(c):
    """A made-up world in which all of the paper is true; a tiny term tells configurations apart."""
    if c.linear:
        return 1000.0
    if c.kind == "neuralucb":
        return 100.0
    if c.kind == "fixed":
        return {40: 149.0, 100: 139.0, 200: 133.0, 250: 131.0}[c.batches]
    return {40: 118.0, 100: 104.0, 200: 103.0, 250: 102.0}[c.batches]


def times_as_the_paper_says(c):
    return 0.5 if c.linear else 2000.0 if c.kind == "neuralucb" else 50.0


def updates_as_the_paper_says(c):
    return 1999 if c.batches is None else c.batches - 1


@pytest.mark.parametrize("problem", PAPER)
def test_where_the_paper_is_right_every_claim_holds(problem):
    def regret(c):
        slightly_worse = c.linear and problem == "magic"
        return 115.0 if slightly_worse else as_the_paper_says(c)

    found = verdicts(field(regret, times_as_the_paper_says, problem, updates_of=updates_as_the_paper_says))
    assert set(found) == {"overall-1", *NOTES[problem]}
    assert {name for name, verdict in found.items() if verdict != "holds"} == set()


@pytest.mark.parametrize("problem", PAPER)
def test_where_the_opposite_is_true_no_claim_holds(problem):
    """LinUCB best, NeuralUCB worst but for being fast, adaptive worse than fixed, more batches worse."""

    def regret(c):
        if c.linear:
            return 10.0
        if c.kind == "neuralucb":
            return 100.0
        return (400.0 if c.kind == "fixed" else 900.0) + c.batches

    found = verdicts(field(regret, lambda c: 1.0, problem, updates_of=lambda c: 1999))
    assert {name for name, verdict in found.items() if verdict != "does not hold"} == set()


def adaptive(batches, *log_ratios):
    return [f"adaptive-B{batches}-logq{q}" for q in log_ratios]


ALL_TABLES = [f"linucb-r{r}-b{b}" for r in ("0.001", "0.01", "0.1", "1") for b in ("0.001", "0.01", "0.1", "1")]
# (claim, what is moved, of which configurations, to what, the verdict then)
MOVED = [
    ("cosine-1", "regret", ALL_TABLES, 790, "does not hold"),
    ("cosine-1", "regret", ALL_TABLES, 820, "holds"),
    ("cosine-1", "regret", ["linucb-intercept-r1-b1"], 50, "holds"),
    ("cosine-2", "regret", ["fixed-B40"], 900, "holds"),
    ("cosine-2", "regret", ["fixed-B100"], 210, "does not hold"),
    ("cosine-2", "regret", adaptive(40, 60), 210, "does not hold"),
    ("cosine-2", "regret", adaptive(40, 60), 190, "holds"),
    ("cosine-3", "updates", ["fixed-B200"], 300, "does not hold"),
    ("cosine-3", "seconds", ["fixed-B200"], 260, "does not hold"),
    ("cosine-3", "seconds", ["fixed-B200"], 240, "holds"),
    ("cosine-4", "regret", adaptive(100, 20), 145, "does not hold"),
    ("mushroom-1", "regret", ["neuralucb"], 1100, "does not hold"),
    ("mushroom-2", "seconds", ["neuralucb"], 450, "does not hold"),
    ("mushroom-2", "seconds", ["neuralucb"], 550, "holds"),
    ("mushroom-3", "regret", ["fixed-B250"], 155, "does not hold"),
    ("mushroom-3", "regret", ["fixed-B250"], 10, "does not hold"),
    ("mushroom-4", "regret", adaptive(250, 40), 125, "does not hold"),
    ("mushroom-4", "regret", adaptive(250, 40), 117, "holds"),
    ("mushroom-4", "regret", ALL_TABLES, 90, "does not hold"),
    ("mushroom-5", "seconds", adaptive(250, 20), 300, "does not hold"),
    ("mushroom-6", "regret", adaptive(40, 20), 132, "does not hold"),
    ("mushroom-7", "regret", ["fixed-B250"], 110, "does not hold"),
    ("mushroom-7", "regret", ["fixed-B40"], 110, "holds"),
    ("mushroom-8", "regret", adaptive(40, 30), 146, "does not hold"),
    ("mushroom-8", "regret", ["fixed-B40"], 117, "does not hold"),
    ("mushroom-8", "regret", adaptive(40, 20), 900, "holds"),
    ("quadratic-1", "regret", ALL_TABLES, 140, "does not hold"),
    ("quadratic-2", "regret", ["fixed-B200"], 90, "does not hold"),
    ("quadratic-2", "regret", ALL_TABLES, 90, "does not hold"),
    ("quadratic-3", "regret", adaptive(40, 25), 160, "does not hold"),
    ("quadratic-3", "regret", ALL_TABLES, 110, "does not hold"),
    ("quadratic-4", "seconds", adaptive(40, 20), 95, "does not hold"),
    ("quadratic-5", "regret", adaptive(200, 30), 115, "does not hold"),
    ("quadratic-5", "regret", adaptive(100, 20), 119, "does not hold"),
    ("quadratic-6", "regret", ["fixed-B40"], 160, "does not hold"),
    ("magic-1", "regret", ALL_TABLES, 130, "does not hold"),
    ("magic-1", "regret", ALL_TABLES, 95, "does not hold"),
    ("magic-2", "regret", ["fixed-B200"], 110, "does not hold"),
    ("magic-2", "regret", ["fixed-B40"], 110, "holds"),
    ("magic-3", "regret", adaptive(200, 50), 119, "does not hold"),
    ("magic-4", "regret", adaptive(200, 70), 112, "does not hold"),
    ("magic-4", "seconds", adaptive(100, 50), 350, "does not hold"),
    ("magic-4", "seconds", adaptive(100, 50), 300, "holds"),
]


@pytest.mark.parametrize(("claim", "what", "moved", "to", "verdict"), MOVED)
def test_each_claim_turns_at_its_threshold(claim, what, moved, to, verdict):
    problem = claim.rsplit("-", 1)[0]

    def regret(c):
        if c.id in moved and what == "regret":
            return float(to)
        return 115.0 if c.linear and problem == "magic" else as_the_paper_says(c)

    def seconds(c):
        return float(to) if c.id in moved and what == "seconds" else times_as_the_paper_says(c)

    def updates(c):
        return to if c.id in moved and what == "updates" else updates_as_the_paper_says(c)

    assert verdicts(field(regret, seconds, problem, updates_of=updates))[claim] == verdict


@pytest.mark.parametrize("part", ["regret", "seconds", "updates"])
def test_overall_needs_regret_time_and_versions_in_most_configurations(part):
    def spoiled(c, much):
        return much if c.batched and c.batches != 40 else None

    found = verdicts(
        field(
            lambda c: (part == "regret" and spoiled(c, 900.0)) or as_the_paper_says(c),
            lambda c: (part == "seconds" and spoiled(c, 1900.0)) or times_as_the_paper_says(c),
            updates_of=lambda c: (part == "updates" and spoiled(c, 1900)) or updates_as_the_paper_says(c),
        )
    )
    assert found["overall-1"] == "does not hold"


def test_every_configuration_is_every_one_of_the_catalogue():
    """What was not run cannot be told, however well the others do."""
    every = field(as_the_paper_says, times_as_the_paper_says, updates_of=updates_as_the_paper_says)
    few = [r for r in every if r.configuration.kind in ("neuralucb", "fixed")]
    assert verdicts(few)["cosine-2"] == verdicts(few)["cosine-3"] == "cannot be told"
    assert verdicts(few)["overall-1"] == "cannot be told"


def test_wide_intervals_are_not_judged_by_their_middle():
    wide = Bench(compare(runs([400, 900, 3000], kind="fixed", batches=40) + runs([100, 101, 99], kind="neuralucb"))[0])
    over, under = (
        wide.at_least(8, "regret", "fixed-B40", "neuralucb"),
        wide.at_most(12, "regret", "fixed-B40", "neuralucb"),
    )
    assert 8 < over.estimate.value < 12
    assert over.verdict == under.verdict == "cannot be told"
    near = runs([80, 120, 100], kind="fixed", batches=40) + runs([100, 101, 99], kind="neuralucb")
    assert Bench(compare(near)[0]).alike("fixed-B40", "neuralucb").verdict == "cannot be told"


def test_the_ratio_of_mean_regrets_stands_beside_that_of_the_runs():
    records = runs([30, 40, 50, 300], kind="fixed", batches=40) + runs([60, 60, 60, 60], kind="neuralucb")
    check = Bench(compare(records)[0]).at_most(2, "regret", "fixed-B40", "neuralucb")
    assert check.estimate.value == pytest.approx(1.086, abs=1e-3)
    assert "ratio of the means 1.75" in check.note


def test_what_cannot_be_at_so_few_rounds_is_not_asked():
    records = runs([10, 20], kind="fixed", batches=40, rounds=300, updates=39)
    records += runs([10, 20], kind="neuralucb", rounds=300, updates=299)
    check = Bench(compare(records)[0]).at_least(8, "versions", "neuralucb", "fixed-B40")
    assert (check.verdict, check.counts) == ("cannot be told", False)
    assert "cannot be asked" in check.note


@pytest.mark.parametrize("problem", PAPER)
def test_one_run_tells_no_claim(problem):
    one = [r for r in field(as_the_paper_says, times_as_the_paper_says, problem) if r.seed == 0]
    assert set(verdicts(one).values()) == {"cannot be told"}


def test_wide_intervals_tell_nothing():
    records = runs([10, 500, 90], kind="neuralucb") + runs([400, 20, 100], kind="fixed", batches=40)
    bench = Bench(compare(records)[0])
    assert bench.beats("fixed-B40", "neuralucb").verdict == "cannot be told"
    assert bench.at_most(2, "regret", "fixed-B40", "neuralucb").verdict == "cannot be told"


def test_pairs_by_seed_tell_what_means_do_not():
    regrets = [10.0, 500.0, 90.0, 1000.0]
    records = runs([r - 2 for r in regrets], kind="fixed", batches=40) + runs(regrets, kind="neuralucb")
    assert Bench(compare(records)[0]).beats("fixed-B40", "neuralucb").verdict == "holds"


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.99, "holds"), (1.05, "holds"), (1.2, "does not hold"), (0.8, "does not hold")]
)
def test_alike_is_an_interval_within_ten_percent(factor, verdict):
    base = [100.0, 200.0, 300.0]
    records = runs([factor * r for r in base], kind="fixed", batches=40) + runs(base, kind="neuralucb")
    assert Bench(compare(records)[0]).alike("fixed-B40", "neuralucb").verdict == verdict


def test_a_configuration_that_was_not_run_is_named():
    check = Bench(compare(runs([1, 2], kind="neuralucb"))[0]).beats("neuralucb", "fixed-B40")
    assert check.verdict == "cannot be told"
    assert "fixed-B40" in check.note


def test_the_same_runs_are_said_to_be_the_same():
    records = runs([10, 20], kind="adaptive", batches=40, log_ratio=20.0)
    records += runs([10, 20], kind="adaptive", batches=100, log_ratio=20.0)
    check = Bench(compare(records)[0]).beats("adaptive-B100-logq20", "adaptive-B40-logq20")
    assert "same decisions" in check.note
    assert check.verdict == "does not hold"


def test_times_are_compared_on_one_machine_only():
    slow, fast = runs([1, 1, 1], kind="neuralucb"), runs([1, 1, 1], kind="fixed", batches=40)
    for other in slow[1:]:
        other.data["environment"]["machine"] = "another"
    check = Bench(compare(slow + fast)[0]).at_least(1, "time", "neuralucb", "fixed-B40")
    assert check.estimate.runs == 1


def test_the_best_pair_is_chosen_on_the_runs_and_the_fair_one_is_not():
    records = runs([5, 7], reading="raw", kind="linucb", ridge=0.1, beta=0.01)
    records += runs([50, 70], reading="raw", kind="linucb", ridge=1.0, beta=1.0)
    series = compare(records + runs([1, 1], kind="neuralucb"))[0].series
    assert series["linucb-best"].configuration.ridge == 0.1
    assert series["linucb-fair"].regrets == [50, 70]


def test_the_best_pair_has_the_lowest_mean_not_the_lowest_median():
    steady = runs([20, 20, 20], reading="raw", kind="linucb", ridge=0.1, beta=0.01)
    risky = runs([1, 1, 900], reading="raw", kind="linucb", ridge=0.001, beta=0.01)
    assert compare(steady + risky)[0].series["linucb-best"].configuration.ridge == 0.1


def test_a_stop_in_the_middle_of_a_run_does_not_decide_which_pair_is_best():
    good = runs([10, 10], reading="raw", kind="linucb", ridge=0.1, beta=0.01)
    bad_but_longer = runs([500, 500, 500], reading="raw", kind="linucb", ridge=0.001, beta=0.01)
    best = compare(good + bad_but_longer)[0].series["linucb-best"]
    assert best.configuration.ridge == 0.1
    assert best.label == "LinUCB, best of 2"


def test_a_policy_that_never_updated_has_one_version():
    records = runs([10, 20], kind="adaptive", batches=40, log_ratio=20.0, updates=0)
    records += runs([10, 20], kind="neuralucb", updates=59)
    check = Bench(compare(records)[0]).at_least(8, "versions", "neuralucb", "adaptive-B40-logq20")
    assert (check.estimate.value, check.verdict) == (pytest.approx(60), "holds")


def test_linucb_alone_can_be_reported():
    linear = runs([5, 7], reading="raw", kind="linucb", ridge=0.1, beta=0.01)
    assert [(c.preset, list(c.series)) for c in compare(linear)] == [("paper", ["linucb-best"])]


def check(verdict, counts=True):
    return Check("", "", None, verdict, counts=counts)


H, N, Q = "holds", "does not hold", "cannot be told"


@pytest.mark.parametrize(
    ("judge_all", "given", "verdict"),
    [
        (all_hold, [H, H], H),
        (all_hold, [H, N, Q], N),
        (all_hold, [H, Q], Q),
        (all_hold, [], Q),
        (most_hold, [H, H, N], H),
        (most_hold, [H, N], N),
        (most_hold, [H, Q, Q], Q),
        (most_hold, [], Q),
    ],
)
def test_how_checks_make_a_verdict(judge_all, given, verdict):
    assert judge_all([check(v) for v in given]) == verdict
    assert judge_all([*(check(v) for v in given), check(N, counts=False)]) == verdict


def test_claims_are_plain_json():
    described = [j.describe() for j in judge(compare(field(as_the_paper_says)))]
    again = json.loads(json.dumps(described, allow_nan=False))
    assert again[0].keys() >= {"id", "says", "verdict", "checks", "preset", "problem", "rounds", "rule"}
    assert again[1]["checks"][0].keys() >= {"what", "needs", "value", "low", "high", "runs", "verdict"}
