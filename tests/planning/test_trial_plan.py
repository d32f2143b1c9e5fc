"""The size of a trial: simulated trials that are analysed as a real one is."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from effort import MANY
from rarely import InvalidInput
from rarely._cli import app
from rarely.planning import plan_trial
from rarely.planning.report import draw_trial
from rarely.planning.trial import (
    Trouble,
    arrivals,
    cuts_at_looks,
    cuts_of,
    draw_rewards,
    make_policy,
    play_many,
    simulate_trial,
)
from rarely.study import AnalysisPlan, RewardRule, Stage, Study
from rarely.study.looks import looks_of
from rarely.study.reports import advice_of


def test_more_patients_have_more_power_and_narrower_intervals():
    made = plan_trial([0.3, 0.6], power=0.7, width=0.5, patients=[60, 240], looks=[1, 3], runs=30)
    assert [(point.patients, point.looks) for point in made.points] == [(60, 1), (60, 3), (240, 1), (240, 3)]
    small, large = made.points[1], made.points[3]
    assert small.power < large.power > 0.8
    assert small.width > large.width
    assert large.anytime <= large.power
    assert large.stopped < 240
    assert large.best > 0.5
    assert made.enough == made.points[2]
    assert "240 patients with one look surely reach power 70% and width 0.5." in str(made)
    assert "seeds 0 to 29" in str(made)


def test_a_control_arm_that_never_succeeds_has_the_power_of_one_that_rarely_does():
    never, rarely = (plan_trial([mean, 0.5], patients=[120], looks=[2], runs=20).points[0] for mean in (0.0, 0.02))
    assert never.power == never.coverage == 1.0
    assert never.width < 1.2 * rarely.width


def test_the_same_seed_gives_the_same_plan_and_progress_is_told():
    told, asked = [], {"noise": 1.0, "patients": [40], "looks": [2], "runs": 4}
    plans = [plan_trial([1.0, 2.0], **asked, seed=9, progress=lambda *at: told.append(at)) for _ in range(2)]
    assert plans[0] == plans[1]
    assert told[:2] == [("trials", 0, 4), ("trials", 4, 4)]
    assert plan_trial([1.0, 2.0], **asked, seed=10) != plans[0]


def test_without_an_effect_the_trials_tell_how_often_something_untrue_is_shown():
    """Of many trials of four equal arms, outcomes late and lost, 5 % may err; hardly ever 9 %."""
    trouble = {"late": 20, "lost": 0.1, "drift": 0.1, "looks": [3], "patients": [200], "runs": 300 if MANY else 200}
    point = plan_trial([0.3] * 4, **trouble).points[0]
    assert point.error <= 0.09
    assert point.coverage >= 0.91
    assert np.isnan(point.power)
    assert "No arm is better" in str(plan_trial([0.3] * 4, **trouble | {"runs": 20}))
    assert plan_trial([0.3] * 4, **trouble | {"comparisons": "each", "runs": 100}).points[0].error > point.error


@pytest.mark.parametrize("policy", ["LinTS", "equal"])
def test_trials_played_alone_know_what_those_side_by_side_know(policy):
    """Late and lost outcomes, a drift and random arrivals: the same arms and the same sums at every look."""
    plan, seeds, trouble = AnalysisPlan(90, 3), range(4), Trouble(late=3.0, lost=0.2, drift=0.1, accrual=5.0)
    came = np.stack([arrivals(trouble, 90, seed)[1] for seed in seeds])
    assert 0 < np.isinf(came).mean() < 0.5
    assert ((came >= np.arange(1, 91)) & (came <= 90)).any()
    rewards = np.stack([draw_rewards((0.3, 0.5, 0.4), None, 90, seed) for seed in seeds])
    stages = [Stage("alike", 30, burn_in=True), Stage("main", least=0.1, burn_in=policy == "equal")]
    trials = play_many(policy, rewards, 30, 0.1, [30, 60], seeds, came)
    cuts = cuts_of(trials, plan)
    contexts = np.broadcast_to(np.eye(3), (90, 3, 3))
    for run, seed in enumerate(seeds):
        made = make_policy("LinTS", 3, [30, 60], seed)
        alone = simulate_trial(made, contexts, rewards[run], stages, [30, 60], came[run])
        assert (alone.arms == trials.arms[run]).all()
        for found, expected in zip(cuts_at_looks(alone, plan, came[run]), cuts[run], strict=True):
            for one, other in zip(found, expected, strict=True):
                assert (one.round, one.fraction) == (other.round, pytest.approx(other.fraction))
                assert one.summary == pytest.approx(other.summary, rel=1e-9, nan_ok=True)


def test_time_goes_with_accrual_and_a_covariate_that_is_adjusted_for_narrows_the_interval():
    asked = {"patients": [160], "looks": [2], "runs": 30 if MANY else 20}
    slow, fast = (plan_trial([0.3, 0.5], **asked, accrual=rate, late=2.0).points[0] for rate in (4.0, 8.0))
    assert slow.time > 1.6 * fast.time > 20
    assert plan_trial([0.3, 0.5], **asked).points[0].time is None
    normal = {"noise": 0.5, "prognosis": 1.0, "policy": ["LinTS", "equal"]}
    with_covariate = plan_trial([0.0, 0.5], **asked, **normal)
    assert all(point.coverage >= 0.8 for point in with_covariate.points)
    unknown = plan_trial([0.0, 0.5], **asked, noise=np.hypot(0.5, 1.0)).points[0]
    assert with_covariate.points[0].width < 0.85 * unknown.width
    assert "a covariate moves them by ±1" in str(with_covariate)


def test_a_simulation_raises_no_alarm_about_its_own_world():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan_trial([0.1, 0.9], patients=[120], looks=[4], runs=2, policy=["LinTS", "LinUCB", "default"], drift=0.0)
        plan_trial([0.3, 0.5], patients=[60], looks=[5], runs=1, policy="LinUCB", late=40)  # nothing is known in time


def test_a_width_is_surely_reached_where_the_interval_of_its_mean_says_so():
    made = plan_trial([0.3, 0.6], power=None, width=0.5, patients=[60], looks=[1], runs=20)
    (point,) = made.points
    assert point.width < point.width_high < 1.3 * point.width
    for width in (0.9 * point.width, (point.width + point.width_high) / 2, 1.01 * point.width_high):
        assert (replace(made, width=width).enough is not None) == (width > point.width_high)


def test_other_rules_are_compared_in_the_same_table():
    rules = ["LinTS", "equal", "thall-wathen", "square-root"]
    made = plan_trial([0.2, 0.5, 0.2], patients=[150], looks=[2], runs=40, policy=rules)
    points = {point.policy: point for point in made.points}
    assert points["LinTS"].best > points["thall-wathen"].best > points["equal"].best == pytest.approx(1 / 3, abs=0.02)
    assert points["square-root"].best > points["equal"].best
    assert points["LinTS"].inferior < points["equal"].inferior
    assert all(abs(point.median_bias) < 0.1 for point in made.points)
    assert {row[0] for row in made.grid().body} == set(rules)


def test_power_is_that_of_the_best_arm_of_any_better_one_and_of_all():
    made = plan_trial([0.3, 0.3, 0.55, 0.6], patients=[200], looks=[2], runs=60)
    (point,) = made.points
    assert point.every < point.power < point.some
    head = made.grid().head
    assert {"power", "any", "all"} <= {*head}
    assert "time" not in head  # no accrual: nothing to say
    assert not {"any", "all"} & {*plan_trial([0.3, 0.6], patients=[60], looks=[1], runs=5).grid().head}
    assert "power" not in plan_trial([0.3, 0.3], patients=[60], looks=[1], runs=5).grid().head


@pytest.mark.parametrize("noise", [None, 0.7])
def test_trials_side_by_side_are_those_played_alone_and_those_of_a_study(noise):
    plan, seeds = AnalysisPlan(120, 3, comparisons="each"), range(3)
    rewards = np.stack([draw_rewards((0.3, 0.6), noise, 120, seed) for seed in seeds])
    trials = play_many("LinTS", rewards, 40, 0.1, [40, 80], seeds)
    stages = [Stage("alike", 40, burn_in=True), Stage("main", least=0.1)]
    cuts = cuts_of(trials, plan)
    for run, seed in enumerate(seeds):
        contexts = np.broadcast_to(np.eye(2), (120, 2, 2))
        alone = simulate_trial(make_policy("LinTS", 2, [40, 80], seed), contexts, rewards[run], stages, [40, 80])
        assert (alone.arms == trials.arms[run]).all()
        rule = RewardRule() if noise else RewardRule(least=0.0, most=1.0)
        settings = {"arms": ["a", "b"], "control": "a", "rewards": rule, "stages": stages, "plan": plan}
        study = Study.create(
            "memory://side", f"{noise} {seed}", policy=make_policy("LinTS", 2, [40, 80], seed), **settings
        )
        for first in (0, 40, 80):
            asked = study.ask_many([(np.eye(2), f"{i}") for i in range(first, first + 40)])
            study.tell_many([(answer.id, rewards[run, int(answer.id), answer.index]) for answer in asked])
            assert [answer.index for answer in asked] == trials.arms[run, first : first + 40].tolist()
            if study.due:
                study.update()
        looks = looks_of(cuts[run][0], plan, 0.05, (-1.0, 1.0) if noise is None else (-np.inf, np.inf))
        for look, other in zip(study.analysis().contrasts[0].looks, looks, strict=True):
            assert look[1:6] == pytest.approx(other[1:6], rel=1e-9)


def test_arms_that_a_look_finds_futile_are_closed_as_a_study_closes_them():
    """A board that follows the advice of each look, on the same outcomes: the same patients, looks and end."""
    plan, seeds, names = AnalysisPlan(160, 4, effect=0.4), range(2), ["a", "b", "c"]
    rewards = np.stack([draw_rewards((0.5, 0.4, 0.6), None, 160, seed) for seed in seeds])
    trials = play_many("LinTS", rewards, 40, 0.1, [40, 80, 120], seeds, plan=plan)
    cuts, closed = cuts_of(trials, plan), 0
    for run, seed in enumerate(seeds):
        stages = [Stage("alike", 40, burn_in=True), Stage("main", least=0.1)]
        settings = {"arms": names, "control": "a", "stages": stages, "plan": plan}
        policy, rule = make_policy("LinTS", 3, [40, 80, 120], seed), RewardRule(least=0.0, most=1.0)
        study = Study.create("memory://futile", f"{seed}", policy=policy, rewards=rule, **settings)
        for first in (0, 40, 80, 120):
            asked = study.ask_many([(np.eye(3), f"{i}") for i in range(first, first + 40)])
            study.tell_many([(answer.id, rewards[run, int(answer.id), answer.index]) for answer in asked])
            assert [answer.index for answer in asked] == trials.arms[run, first : first + 40].tolist()
            if study.due:
                study.update()
            for line in advice_of(study.look(actor="ann")):
                arm, _, advice = line.partition(" − a: stop for futility")
                if advice:
                    study.close_arm(arm, actor="ann", approved_by="bob")
                    closed += 1
        for cut, effect in zip(cuts[run], study.analysis().contrasts[:2], strict=True):
            for look, other in zip(effect.looks, looks_of(cut, plan, 0.025, (-1.0, 1.0)), strict=True):
                assert look[1:6] == pytest.approx(other[1:6], rel=1e-9)
                assert look.fraction == other.fraction
    assert closed > 1
    assert (trials.ended < 160).any()
    assert (trials.ended == 160).any()


def test_a_trial_that_closes_futile_arms_ends_sooner_where_nothing_works_and_shows_what_does():
    asked = {"patients": [200], "looks": [4], "runs": 40 if MANY else 20, "policy": ["equal", "LinTS"]}
    (none, _), (goes_on, _) = (plan_trial([0.3] * 3, effect=effect, **asked).points for effect in (0.25, None))
    assert none.futile > 0.5
    assert none.stopped < 0.8 * goes_on.stopped
    assert none.error_low <= 0.05
    assert goes_on.futile is None
    made = plan_trial([0.3, 0.3, 0.65], effect=0.3, power=0.9, **asked)
    assert all(point.power > 0.85 and point.futile < 0.1 for point in made.points)
    assert "futile" in made.grid().head
    assert made.analysis(200, 4) == AnalysisPlan(200, 4, effect=0.3, power=0.9)
    assert "Arms that a look finds futile, for a difference of 0.3, get no further patients." in str(made)


def test_a_wish_that_is_not_reached_is_said():
    made = plan_trial([0.45, 0.5], patients=[40], looks=[1], runs=5)
    assert made.enough is None
    tiny = plan_trial([0.1, 0.2], patients=[2], looks=1, runs=8)  # both had the same arm, so there is no interval
    assert tiny.points[0].low == 0.0
    assert "nan" not in str(tiny)
    assert json.loads(json.dumps(tiny.describe(), allow_nan=False))["points"][0]["width"] is None
    assert "None of these sizes surely reaches power 80%" in str(made)


def test_sizes_are_around_what_two_groups_need():
    made = plan_trial([0.2, 0.8], looks=[1], runs=2)
    assert [point.patients for point in made.points][:2] == [30, 40]
    assert len(made.points) == 6


@pytest.mark.parametrize("kind", ["LinTS", "LinUCB", "default"])
def test_a_simulated_trial_follows_its_stages(kind):
    stages = [Stage("alike", 20, burn_in=True), Stage("main", least=0.25)]
    rewards = draw_rewards((0.1, 0.9), None, 80, 3)
    contexts = np.broadcast_to(np.eye(2), (80, 2, 2))
    outcomes = simulate_trial(make_policy(kind, 2, [20, 50], 3), contexts, rewards, stages, [20, 50])
    assert (outcomes.chances[:20] == 0.5).all()
    assert outcomes.chances.min() >= 0.25
    assert (outcomes.rewards == rewards[np.arange(80), outcomes.arms]).all()
    assert outcomes.chances[50:, 1].mean() > 0.6


@pytest.mark.parametrize(
    ("means", "given", "says"),
    [
        ([0.5], {}, "two or more"),
        (None, {}, "two or more"),
        ([0.5, 0.4], {"patients": None}, "patients must be given"),
        ([0.3, 0.5], {"lost": 1.0}, "lost must be"),
        ([0.3, 0.5], {"late": -1}, "late"),
        ([0.3, 0.9], {"drift": 0.2}, "after drift and"),
        ([0.3, 0.5], {"prognosis": 0.1, "policy": "thall-wathen"}, "is simulated of LinTS"),
        ([0.3, 0.5], {"prognosis": 0.4}, "after drift and prognosis"),
        ([0.3, 0.5], {"accrual": 0.0}, "accrual"),
        ([0.3, 0.5], {"comparisons": "dunnett"}, "comparisons"),
        ([0.5, 1.5], {}, "give noise"),
        ([0.3, 0.5], {"power": None}, "must be wanted"),
        ([0.3, 0.5], {"power": 1.0}, "between 0 and 1"),
        ([0.3, 0.5], {"least": 0.6}, "at most 1/2"),
        ([0.3, 0.5], {"policy": "UCB1"}, "policy"),
        ([0.3, 0.5], {"runs": 0}, "runs"),
        ([0.3, 0.5], {"power": "high"}, "must be wanted"),
        ([0.3, 0.5], {"power": float("nan"), "patients": None}, "must be wanted"),
        ([0.3, 0.5], {"level": 2, "patients": None}, "level must be a number between 0 and 1"),
        ([0.3, 0.5], {"patients": [2.7]}, "patients must be a whole number"),
        ([0.3, 0.5], {"patients": ["many"]}, "patients must be a whole number"),
        ([0.3, 0.5], {"patients": []}, "patients must be a whole number"),
        ([0.3, 0.5], {"looks": 2.5}, "looks must be a whole number"),
        ([0.3, 0.5], {"looks": []}, "looks must be a whole number"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(means, given, says):
    with pytest.raises(InvalidInput, match=says):
        plan_trial(means, **{"patients": [20], "runs": 1} | given)


def test_the_command_writes_three_files(tmp_path):
    asked = ["plan", "--trial", "0.2,0.7", "--patients", "60,90", "--looks", "1,2", "--runs", "8"]
    said = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "plan")])
    assert said.exit_code == 0, said.output
    assert "trials: 100 %" in said.output
    found = {path.name for path in (tmp_path / "plan").iterdir()}
    assert found == {"plan.json", "plan.svg", "plan.html"}
    described = json.loads((tmp_path / "plan" / "plan.json").read_text(encoding="utf-8"))
    assert [point["patients"] for point in described["points"]] == [60, 60, 90, 90]
    assert "seeds 0 to 7" in (tmp_path / "plan" / "plan.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("last", [{"prognosis": 0.1}, {"effect": 0.4}])
def test_the_command_plans_for_trouble_as_python_does(tmp_path, last):
    trouble = {"late": 2.0, "lost": 0.1, "drift": 0.05, "accrual": 4.0} | last
    more = {"comparisons": "each", "level": 0.9, "burn_in": 0.3}
    asked = {"patients": [80], "looks": [2], "runs": 5}
    made = plan_trial([0.2, 0.6, 0.3], policy=["LinTS", "equal"], **asked, **trouble, **more)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in (trouble | more).items()]
    words += ["--patients=80", "--looks=2", "--runs=5", "--policy=LinTS,equal", f"--out={tmp_path}"]
    said = CliRunner().invoke(app, ["plan", "--trial", "0.2,0.6,0.3", *words])
    assert said.exit_code == 0, said.output
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == json.loads(json.dumps(made.describe()))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["0.2;0.7"], "mean rewards"),
        (["0.2,0.7", "--world", "cosine"], "no log"),
        (["0.2,0.7", "--lost", "1.5"], "lost must be a share"),
        (["0.2,0.7", "--policy", "LinTS,best"], "policy"),
    ],
)
def test_errors_of_the_command_are_one_sentence(asked, says, tmp_path):
    said = CliRunner().invoke(app, ["plan", "--trial", *asked, "--out", str(tmp_path)])
    assert said.exit_code == 1
    assert says in said.output


def test_an_interval_that_ends_at_one_is_drawn():
    made = plan_trial([0.1, 0.9], patients=[60], looks=[2], runs=10)
    rounded = replace(made, points=[made.points[0]._replace(power=1.0, low=0.7, high=1.0 - 1e-16)])
    assert draw_trial(rounded).axes


def test_where_no_arm_is_better_errors_are_drawn_against_the_level():
    made = plan_trial([0.4, 0.4], patients=[60, 90], looks=[1], runs=10)
    above = draw_trial(made).axes[0]
    assert above.get_ylabel() == "errors (95 % intervals)"
    assert above.lines[0].get_ydata().tolist() == [point.error for point in made.points]
    assert any(np.allclose(line.get_ydata(), 0.05) for line in above.lines)
    unsure = replace(made, points=[made.points[0]._replace(error=0.06, error_low=0.02, error_high=0.1)])
    assert unsure.advice()[0].endswith("more trials (runs=) would tell whether the level is held.")
    sure = replace(made, points=[made.points[0]._replace(error=0.02, error_low=0.01, error_high=0.04)])
    assert sure.advice()[0].endswith("the level is surely held.")
