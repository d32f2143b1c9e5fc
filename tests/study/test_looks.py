"""Looks that are frozen when they are taken, what several comparisons show together, and the end of a trial."""

import html
import itertools
import json
import math
from datetime import date
from statistics import NormalDist

import numpy as np
import pytest

from browser import needs_browser, probe
from effort import MANY
from rarely import AtRounds, FramePolicy, InvalidInput, LinTS, OnDemand
from rarely.study import (
    AnalysisPlan,
    ApprovalNeeded,
    BrokenStudy,
    EnrolmentClosed,
    InvalidId,
    InvalidStudy,
    RewardRule,
    Stage,
    Study,
)
from rarely.study.analysis import read_summary
from rarely.study.boundaries import boundaries, spent
from rarely.study.effects import Scores, Summary
from rarely.study.events import canonical, read_body
from rarely.study.looks import Cut, adjusted, final_of, looks_of, outlook_of, shown_at, taken
from rarely.study.plan import AnalysisPlan as Plan
from rarely.study.reports import answers_of, html_of
from studies import Clock, contexts_of, every_storage

NAMES = itertools.count()
ANN = {"actor": "ann"}
BOTH = {"actor": "ann", "approved_by": "bob"}
WEAK = {"placebo": 0.3, "low": 0.3, "high": 0.6}


def trial(storage="memory://looks", **settings):
    settings = {"arms": list(WEAK), "control": "placebo", "rewards": RewardRule(least=0.0, most=1.0)} | settings
    settings = {"stages": [Stage("main", least=0.2)], "plan": AnalysisPlan(400, looks=4)} | settings
    policy = LinTS(dim=2, schedule=AtRounds([100, 200, 300]), seed=1)
    return Study.create(storage, f"trial {next(NAMES)}", policy=policy, **settings)


def enrol(study, first, count, *, late=(), truth=WEAK):
    """Ask for patients, and tell all rewards but those of `late`, which are returned."""
    answers = study.ask_many([(contexts_of(i), f"{i}") for i in range(first, first + count)])
    told = [(a.id, float(np.random.default_rng(int(a.id)).random() < truth[a.arm])) for a in answers]
    study.tell_many([each for each in told if int(each[0]) not in late])
    return [each for each in told if int(each[0]) in late]


# --- frozen looks


def test_a_look_stays_as_it_was_taken_when_later_outcomes_come():
    study = trial()
    late = enrol(study, 0, 200, late=range(120, 200))
    taken = study.look(**ANN, reason="the first look, late")
    before = {effect.name: effect.looks[-1] for effect in taken.contrasts}
    study.tell_many(late)
    enrol(study, 200, 50)
    for effect in study.analysis().contrasts:
        look = effect.looks[-1]
        kept = before[effect.name]
        assert (look.round, look.rounds, look.estimate, look.low, look.high, look.boundary) == kept[:6]
        assert look.rounds == 120
        assert look.fraction == 0.3  # of the information, and not half of the patients
        assert look.later[0] == 200
        assert look.later[1] != look.estimate
        assert look.event == taken.contrasts[0].looks[-1].event
    assert any("look planned after decision 100 was not taken" in line for line in study.analysis().deviations)
    text = str(study.analysis())
    assert "with later outcomes" in text
    assert study.verify().whole
    assert study.replay().equal


def test_the_next_look_takes_earlier_ones_as_they_were():
    study = trial()
    late = enrol(study, 0, 100, late=range(60, 100))
    study.look(**ANN)
    study.tell_many(late)
    enrol(study, 100, 100)
    contrast = study.look(**ANN).contrasts[1]
    events = [event.content for event in study.events() if event.kind == "look"]
    known = [row["effects"]["high − placebo"]["summary"][3] for row in events]
    errors = [spent("obrien-fleming", row["fraction"], 0.025) for row in events]
    assert [row["fraction"] for row in events] == [0.15, 0.5]
    assert [look.boundary for look in contrast.looks] == pytest.approx(boundaries(errors, known), abs=1e-6)
    assert events[1]["cut"] + 1 == contrast.looks[1].event
    assert events[1]["plan"] == study.settings.plan.hash


def test_every_look_keeps_what_was_to_be_expected_and_a_report_names_its_data_cut():
    study = trial(plan=AnalysisPlan(400, looks=4, effect=0.2))
    enrol(study, 0, 100)
    first = study.look(**ANN).contrasts[1]
    assert "repeated p" in answers_of(study.analysis())[1]
    enrol(study, 100, 100)
    study.look(**ANN)
    study.close_arm("low", **BOTH)
    study.close_enrolment(**BOTH)
    found = study.look(**ANN)
    kept = found.contrasts[1].looks
    assert kept[0].outlook == first.outlook
    assert [look.outlook is None for look in kept] == [False, False, True]
    assert found.contrasts[1].outlook is None
    assert str(found).count("low got no patients after decision 200.") == 1
    head = study.status()
    for text in (str(found), html_of(found)):
        assert f"event {head.events}, hash {head.head}" in text
        assert study.settings.plan.hash in text
        assert "power by trend" in text


def test_a_report_has_the_day_of_the_last_outcome_and_those_of_first_and_last_patient():
    clock = Clock(1_700_000_000.0)  # 2023-11-14
    study = trial(clock=clock)
    late = enrol(study, 0, 20, late=range(20))
    clock.now += 3 * 86_400.0
    study.tell_many(late)
    assert "20 decisions from 2023-11-14 to 2023-11-14, 20 rewards, as of 2023-11-17" in str(study.analysis())


def test_as_of_gives_what_any_day_gave():
    clock = Clock(1_700_000_000.0)  # 2023-11-14
    study = trial(clock=clock)
    enrol(study, 0, 100)
    first = study.analysis()
    status = study.status()
    clock.now += 86_400.0
    enrol(study, 100, 50)
    for as_of in ("2023-11-14", date(2023, 11, 14), status.events, "2023-11-14T23:00:00+00:00"):
        assert study.analysis(as_of=as_of).describe() == first.describe()
    assert study.analysis(as_of="2023-11-15").decisions == 150
    for wrong, says in (("2020-01-01", "began after"), ("yesterday", "as_of must be"), (0, "as_of must be")):
        with pytest.raises(InvalidStudy, match=says):
            study.analysis(as_of=wrong)


def test_looks_out_of_order_are_refused_and_change_nothing():
    study = trial(plan=AnalysisPlan(100, looks=2))
    enrol(study, 0, 40)
    head = study.status().head
    with pytest.raises(InvalidStudy, match="look 1 comes after decision 50, and there are 40"):
        study.look(**ANN)
    with pytest.raises(InvalidStudy, match="must say who decides"):
        study.look(actor="")
    assert study.status().head == head
    enrol(study, 40, 20)
    study.look(**ANN)
    with pytest.raises(InvalidStudy, match="look 2 comes after decision 100"):
        study.look(**ANN)
    enrol(study, 60, 40)
    assert study.look(**ANN).contrasts[0].looks[-1].fraction == 1.0
    with pytest.raises(InvalidStudy, match="the last look was taken"):
        study.look(**ANN)
    with pytest.raises(InvalidStudy, match="needs a plan"):
        trial(plan=None).look(**ANN)


# --- closing


@every_storage
def test_a_closed_arm_gets_no_further_patients_anywhere(storage):
    study = trial(storage)
    enrol(study, 0, 100)
    before = study.ask(contexts_of(7), id="7")
    study.close_arm("low", **BOTH, reason="futility at look 1")
    assert study.ask(contexts_of(7), id="7") == before  # an answer stays for the life of the study
    enrol(study, 100, 100)
    study.close()
    with Study.open(storage, study.name) as again:
        arms = {record.answer.arm for record in again.decisions() if record.answer.round > 100}
        assert arms == {"placebo", "high"}
        with pytest.raises(EnrolmentClosed, match="closed are: low"):
            again.ask(contexts_of(0), id="only", available=["low"])
        first = again.ask(contexts_of(0), id="next")
        assert again.ask(contexts_of(0), id="next") == first
        low = again.analysis().contrasts[0]
        assert (low.name, low.closed, low.rounds) == ("low − placebo", True, 100)
        assert again.replay().equal


def test_closing_needs_two_people_an_open_arm_and_somebody_left():
    study = trial()
    for wrong, error in (
        ({"approved_by": "ann"}, ApprovalNeeded),
        ({"approved_by": "Ann"}, ApprovalNeeded),
        ({"approved_by": ""}, ApprovalNeeded),
        ({"actor": ""}, InvalidStudy),
        ({"arm": "none"}, InvalidStudy),
        ({"arm": None}, InvalidStudy),
        ({"arm": 1}, InvalidStudy),
    ):
        with pytest.raises(error):
            study.close_arm(**{"arm": "low", **BOTH} | wrong)
    study.close_arm("low", **BOTH)
    with pytest.raises(InvalidStudy, match="low is closed already"):
        study.close_arm("low", **BOTH)
    study.close_arm("high", **BOTH)
    with pytest.raises(InvalidStudy, match="last open arm"):
        study.close_arm("placebo", **BOTH)
    study.close_enrolment(**BOTH)
    with pytest.raises(InvalidStudy, match="enrolment is closed already"):
        study.close_enrolment(**BOTH)
    with pytest.raises(EnrolmentClosed, match="takes no further patients"):
        study.ask(contexts_of(0), id="late")


def test_an_arm_of_a_study_of_columns_closes_as_any_other():
    # As many arms as numbers of the user, so that taking the one for the other would raise nothing.
    users = {"age": [20, 30, 40], "height": [1.6, 1.7, 1.8], "weight": [60.0, 70.0, 80.0]}
    policy = FramePolicy.fit(LinTS, users, arms=["tea", "rum", "gin"], schedule=OnDemand(), seed=0)
    study = Study.create(f"memory://closed-{next(NAMES)}", "bar", policy=policy, control="tea")
    user = {"age": 25, "height": 1.7, "weight": 66.0}
    study.ask({"user": user}, id="before")
    study.close_arm("rum", **BOTH)
    for i in range(8):
        answer = study.ask({"user": user}, id=f"v{i}")
        assert answer.arm != "rum"
        assert study.ask({"user": user}, id=f"v{i}") == answer
        assert study.decision(f"v{i}").question.numbers.tolist() == [25.0, 1.7, 66.0]
    assert study.verify().whole
    assert study.replay().equal


def test_outcomes_that_overrun_are_in_the_final_look():
    """Stopped for efficacy after look 2; outcomes of those enrolled replace that look in the order of stages."""
    study = trial(plan=AnalysisPlan(400, 4, "pocock"))
    enrol(study, 0, 100, truth=WEAK | {"high": 0.5})
    study.look(**ANN)
    late = enrol(study, 100, 100, late=range(180, 200), truth=WEAK | {"high": 0.95})
    stopped = study.look(**ANN).contrasts[1]
    assert stopped.shown == 1
    assert stopped.final is None
    study.close_enrolment(**BOTH, reason="efficacy")
    study.tell_many(late)
    ended = study.look(**ANN).contrasts[1]
    assert [look.rounds for look in ended.looks] == [100, 180, 200]
    assert ended.final.p < 0.05
    assert ended.final.low < ended.final.median < ended.final.high
    *_, event = (event for event in study.events() if event.kind == "look")
    last = read_summary(event.content["effects"]["high − placebo"]["summary"])
    assert ended.final == final_of([ended.looks[0], ended.looks[2]], last, 0.025, (-1.0, 1.0))
    # The final look replaces the one that stopped the trial, and has the error of that stage.
    assert ended.looks[2].fraction == 0.5
    assert ended.looks[2].boundary == pytest.approx(ended.looks[1].boundary, abs=0.2)
    assert ended.looks[2].excludes_zero
    assert "came after enrolment was closed" in " ".join(study.analysis().notes)


def test_a_final_look_that_does_not_wait_for_all_outcomes_is_said():
    """One that waits for its best moment among the last tenth of the outcomes errs in 7.1 % of trials instead of 5."""
    study = trial(plan=AnalysisPlan(100, looks=1))
    late = enrol(study, 0, 100, late=range(90, 100))
    study.look(**ANN)
    assert not study.analysis().deviations
    study.tell_many(late[:7])
    (said,) = study.analysis().deviations
    assert said.startswith("7 outcomes came after the final look, which was taken without them")


def test_a_stop_that_no_boundary_explains_gets_no_more_error_and_is_said():
    """Whoever could stop when it suits, and spend what is left there, would err more often than planned."""
    study = trial()
    enrol(study, 0, 100, truth=dict.fromkeys(WEAK, 0.3))
    study.look(**ANN)
    enrol(study, 100, 60, truth=dict.fromkeys(WEAK, 0.3))
    study.close_enrolment(**BOTH)
    ended = study.look(**ANN)
    low, look = ended.contrasts[0], ended.contrasts[0].looks[-1]
    assert look.fraction == 0.4
    (said,) = (line for line in ended.deviations if "no boundary was crossed" in line)
    assert "low − placebo, high − placebo: " in said
    # No rule says when such a trial stops, so results have no order: what holds for every reason is said instead.
    assert (low.final.p, low.final.low, low.final.high) == (look.p, look.low, look.high)
    assert low.final.p > 0.3
    with pytest.raises(InvalidStudy, match="the last look was taken"):
        study.look(**ANN)


@pytest.mark.parametrize("recorded", [True, False])
def test_an_arm_that_is_closed_leaves_no_error_to_looks_after_it(recorded):
    """Whoever closes arms that look bad would else show by later looks, at sums that stay, that they are worse."""
    study = trial()
    for first, truth in ((0, 0.3), (100, 0.03), (200, 0.3), (300, 0.3)):
        enrol(study, first, 100, truth={"placebo": 0.35, "low": truth, "high": 0.35})
        if recorded:
            study.look(**ANN)
        if first == 100:
            before = study.analysis().contrasts[0]
            study.close_arm("low", **BOTH)
    low = study.analysis().contrasts[0]
    last = NormalDist().inv_cdf(1 - 0.025 / 2)
    assert last < -low.looks[-1].z < before.looks[-1].boundary
    assert before.shown is low.shown is None
    assert [look.fraction for look in low.looks] == [0.25, 0.5, 0.5, 0.5]
    for look in low.looks[1:]:
        assert look[1:6] == pytest.approx(before.looks[1][1:6])
        assert look.p == pytest.approx(before.looks[1].p)
    assert low.final.p == low.looks[-1].p > 0.025


def test_a_comparison_that_showed_nothing_is_not_significant_since_another_stopped_the_trial():
    """The order of stages would spend all the error here: its p-values contradicted the sentence above them."""
    study = trial(plan=AnalysisPlan(400, looks=4))
    enrol(study, 0, 200, truth={"placebo": 0.3, "low": 0.65, "high": 0.97})
    low, high = study.look(**ANN).contrasts[:2]
    assert (low.shown, high.shown) == (None, 0)
    study.close_enrolment(**BOTH, reason="efficacy of high")
    ended = study.look(**ANN)
    low = ended.contrasts[0]
    assert 2.2 < low.looks[-1].z < low.looks[-1].boundary
    assert low.final.low <= 0 <= low.final.high
    assert low.final.p > 0.025
    assert low.adjusted > 0.05
    assert ended.contrasts[1].final.p < 0.01
    assert not any("no boundary was crossed" in line for line in ended.deviations)  # it was, of high


def test_a_stop_for_futility_follows_the_plan_and_one_without_a_reason_does_not():
    study = trial(plan=AnalysisPlan(400, looks=4, effect=0.2))
    enrol(study, 0, 200, truth={"placebo": 0.5, "low": 0.45, "high": 0.75})
    said = study.look(**ANN)
    assert "low − placebo: stop for futility" in str(said)
    study.close_arm("low", **BOTH)
    assert not any("no boundary" in line for line in study.analysis().deviations)
    study.close_arm("high", **BOTH)
    (line,) = (line for line in study.analysis().deviations if "no boundary" in line)
    assert "of high − placebo: " in line
    study.close_enrolment(**BOTH)
    final = study.look(**ANN, reason="all in")
    assert final.acts[-1][2].startswith("final look after decision 200")


@pytest.mark.parametrize("lucky", [("high",), ("placebo", "low", "high")])
def test_final_intervals_of_extreme_outcomes_are_within_the_range_and_those_of_the_look(lucky):
    """With one look there is one interval, whatever its variance supposes; no difference of shares exceeds 1."""
    study = trial(plan=AnalysisPlan(200, looks=1))
    answers = study.ask_many([(contexts_of(i), f"{i}") for i in range(200)])
    study.tell_many([(answer.id, float(answer.arm in lucky)) for answer in answers])
    for effect in study.look(**ANN).contrasts[:2]:
        assert effect.final.low == pytest.approx(effect.looks[0].low, abs=1e-4)
        assert effect.final.high == pytest.approx(effect.looks[0].high, abs=1e-4)
        assert -1 <= effect.final.low <= effect.final.median <= effect.final.high <= 1
        assert (effect.final.p <= 0.025) == (effect.shown is not None)


# --- what bad input gets


def every_page(study, folder):
    """The analysis in each of its forms."""
    found = study.analysis()
    for suffix in ("html", "md", "json"):
        found.save(folder / f"page.{suffix}")
        yield html.unescape((folder / f"page.{suffix}").read_text(encoding="utf-8"))
    yield str(found)


@pytest.mark.parametrize("later", [0.1, 0.6])
def test_what_a_look_showed_and_the_end_does_not_bear_out_is_said_so(later):
    """Whoever goes on after a boundary may find nothing or the contrary: it is neither hidden nor turned round."""
    study = trial(plan=AnalysisPlan(400, looks=2, spending="pocock"))
    enrol(study, 0, 200, truth={"placebo": 0.1, "low": 0.1, "high": 0.6})
    assert "high − placebo: stop for efficacy" in str(study.look(**ANN))
    enrol(study, 200, 200, truth={"placebo": 0.9, "low": 0.9, "high": later}, late=[399])
    found = study.look(**ANN)
    end = found.contrasts[1].final
    assert (end.high < 0) == (later == 0.1)
    assert end.median < 0 or end.low < 0 < end.high
    said = "high was shown to be better than placebo at the look after decision 200, but the trial went on and does not"
    assert answers_of(found)[1].startswith(said)
    if later > 0.1:
        assert "no values undo it" not in str(found)  # there is nothing to undo


def test_looks_that_learn_nothing_spend_their_error():
    """Sums that stay are the same Z: each look excludes what one look with the error spent so far excludes."""
    plan, known = AnalysisPlan(400, looks=4), Summary(100, 0.1, 0.05, 400.0, 1e9)
    for information in ([400.0] * 4, [400.0, 401.0, 400.5, 399.0]):
        cuts = [Cut(at, at / 400, known._replace(information=v)) for at, v in zip(plan.at, information, strict=True)]
        single = [-NormalDist().inv_cdf(spent(plan.spending, at / 400, 0.05) / 2) for at in plan.at]
        assert [look.boundary for look in looks_of(cuts, plan, 0.05)] == pytest.approx(single, abs=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_an_estimate_beyond_what_rewards_allow_is_in_its_intervals_and_on_its_side(seed):
    """One arm fails always, the other never: the weighted mean may exceed 1, where no variance is."""
    truth = {"placebo": 0.0, "high": 1.0}
    policy = LinTS(dim=2, schedule=AtRounds([60]), seed=seed)
    settings = {"stages": [Stage("alike", 60, burn_in=True), Stage("main", least=0.05)], "arms": list(truth)}
    settings |= {"control": "placebo", "rewards": RewardRule(least=0.0, most=1.0), "plan": AnalysisPlan(120, looks=2)}
    study = Study.create("memory://beyond", f"{seed}", policy=policy, **settings)
    for _ in range(120):
        answer = study.ask(np.eye(2))
        study.tell(answer.id, truth[answer.arm])
        if study.due:
            study.update()
    (effect,) = study.analysis().contrasts
    end = effect.final
    assert effect.low <= effect.estimate <= effect.high <= 1
    assert end.low <= end.median <= end.high <= 1
    assert end.median > 0.8
    assert all(look.low <= look.estimate <= look.high for look in effect.looks)
    assert "high is better than placebo" in answers_of(study.analysis())[0]


def test_outcomes_of_a_closed_arm_and_those_that_cannot_count_are_deviations_on_every_page(tmp_path):
    study = trial()
    enrol(study, 0, 50)
    study.close_arm("low", **BOTH)
    after = study.ask(contexts_of(50), id="50")
    for id, reward, arm in (
        (after.id, 1.0, "low"),
        ("nobody", 1.0, None),
        (study.ask(contexts_of(1), id="x").id, 7, None),
    ):
        study.tell_many([(id, reward, None, "ann", arm, "the patient wished it")])
    for page in every_page(study, tmp_path):
        assert "1 patients were given another arm than was drawn" in page
        assert "1 outcomes are of an arm that had been closed before their patients came." in page
        assert "1 outcomes that came do not count (unknown decision)." in page
        assert "1 outcomes that came do not count (out of range)." in page
    assert "deviations: 4" in study.analysis().blinded()


def test_information_that_goes_backwards_is_a_deviation_on_every_page(tmp_path, monkeypatch):
    study = trial()
    enrol(study, 0, 100)
    first = study.look(**ANN).contrasts[1].looks[0]
    enrol(study, 100, 100)
    until = Scores.until
    monkeypatch.setattr(Scores, "until", lambda self, n: until(self, n)._replace(information=1.0))
    second = study.look(**ANN).contrasts[1].looks
    monkeypatch.undo()
    assert second[0] == first
    assert second[1].boundary >= 1.96
    for page in every_page(study, tmp_path):
        assert "The information about " in page
        assert "fell before event" in page
        assert "high − placebo" in page.partition("The information about ")[2].partition("taken as equal.")[0]


def test_a_plan_that_changes_after_the_first_patient_is_a_deviation_and_a_control_must_exist(tmp_path):
    study = trial()
    enrol(study, 0, 100)
    changed = study.analysis(plan=AnalysisPlan(300, looks=2))
    assert "The registered plan is" in " ".join(changed.deviations)
    changed.save(tmp_path / "page.html")
    assert "The registered plan is" in html.unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    for wrong in ("none", 5):
        with pytest.raises(InvalidStudy, match="control"):
            study.analysis(control=wrong)
        with pytest.raises(InvalidStudy, match="control must be one of the arms"):
            trial(control=wrong)


# --- several comparisons


def cut(z, n, of=400):
    """A cut whose Z is about `z` at n rewards."""
    return Cut(n, n / of, Summary(n, z / math.sqrt(n), 1 / math.sqrt(n), float(n), 1e9))


def test_what_was_shown_leaves_its_error_to_the_others():
    """Holm's shares at one look: 2.2 is beyond z(0.025) = 1.96 + but not beyond z(0.0125) = 2.24."""
    plan = Plan(400, looks=1)
    assert shown_at([[cut(2.2, 400)], [cut(2.2, 400)]], plan) == [None, None]
    assert shown_at([[cut(2.2, 400)], [cut(2.3, 400)]], plan) == [0, 0]
    assert shown_at([[cut(-2.3, 400)], [cut(1.9, 400)]], plan) == [0, None]
    each = Plan(400, looks=1, comparisons="each")
    assert shown_at([[cut(2.2, 400)], [cut(1.9, 400)]], each) == [0, None]


@pytest.mark.parametrize("comparisons", ["holm", "ordered", "each"])
def test_adjusted_p_values_are_small_where_a_single_look_shows_a_difference(comparisons):
    rng, plan = np.random.default_rng(0), Plan(400, looks=1, comparisons=comparisons)
    for _ in range(200 if MANY else 60):
        z = 2.5 * rng.normal(size=3)
        cuts = [[cut(value, 400)] for value in z]
        p_values = [final_of(looks_of(each, plan, 0.05), each[-1].summary, 0.05).p for each in cuts]
        found = [p <= 0.05 for p in adjusted(p_values, 3, plan)]
        assert found == [look is not None for look in shown_at(cuts, plan)]


@pytest.mark.parametrize("spending", ["obrien-fleming", "pocock"])
@pytest.mark.parametrize("looks", [1, 2, 6])
def test_a_repeated_p_value_is_the_least_error_with_which_the_look_shows_a_difference(looks, spending):
    rng, plan = np.random.default_rng(looks), Plan(400, looks, spending)
    for _ in range(5):
        n = np.array(plan.at)
        z = np.cumsum(rng.normal(0.15, 1.0, looks) * np.sqrt(np.diff(n, prepend=0))) / np.sqrt(n)
        cuts = [cut(value, at) for value, at in zip(z, n, strict=True)]
        found = taken(cuts, plan, 0.05)
        assert [look[:9] for look in found] == [look[:9] for look in looks_of(cuts, plan, 0.05)]
        for error in (0.001, 0.025, 0.05, 0.3):
            shown = [look.excludes_zero for look in looks_of(cuts, plan, error)]
            assert [look.p <= error for look in found] == shown
    nothing = Cut(100, 0.25, Summary(100, math.nan, math.inf, 0.0, 0.0))
    assert math.isnan(taken([nothing], plan, 0.05)[0].p)


def test_a_comparison_that_waits_is_not_said_to_show_nothing():
    study = trial(plan=AnalysisPlan(400, looks=4, comparisons="ordered"))
    enrol(study, 0, 400, truth=WEAK | {"high": 0.9})
    said = str(study.analysis())
    assert "high and placebo wait for the comparison before theirs, which showed nothing: " in said
    assert "No difference between high" not in said


def test_ordered_comparisons_wait_for_the_one_before():
    plan = Plan(400, looks=2, comparisons="ordered")
    strong, weak = [cut(4.0, 200), cut(4.0, 400)], [cut(0.1, 200), cut(2.1, 400)]
    assert shown_at([weak, strong], plan) == [1, 1]
    assert shown_at([strong, weak], plan) == [0, 1]
    assert shown_at([weak[:1], strong[:1]], plan) == [None, None]


def test_all_comparisons_together_err_as_rarely_as_planned_at_every_looks():
    """Three arms against one control share its noise; of 400 trials 5 % may err, and hardly ever 9 %."""
    rng, plan, wrong = np.random.default_rng(4), Plan(400, looks=4, spending="pocock"), {"holm": 0, "each": 0}
    for _ in range(400):
        noise = np.cumsum(rng.normal(size=(4, 4)), axis=1)  # a row for each arm
        z = (noise[1:] - noise[0]) / np.sqrt(2 * np.arange(1, 5))
        cuts = [[cut(value, 100 * (look + 1)) for look, value in enumerate(row)] for row in z]
        for kind in wrong:
            wrong[kind] += any(look is not None for look in shown_at(cuts, Plan(400, 4, "pocock", comparisons=kind)))
    assert wrong["holm"] <= 36
    assert wrong["each"] > 40
    assert plan.comparisons == "holm"


# --- what to expect


def test_an_outlook_advises_to_stop_where_the_planned_effect_is_out_of_reach():
    plan = Plan(400, looks=2, effect=0.15)
    hopeless, hopeful = (looks_of([cut(z, 200)], plan, 0.05) for z in (-0.5, 2.0))
    bad, good = outlook_of(hopeless, plan, 0.05), outlook_of(hopeful, plan, 0.05)
    assert hopeless[0].z < bad.futility < hopeful[0].z
    assert bad.futility == pytest.approx(good.futility)
    assert bad.trend < bad.predictive < bad.planned < 0.7
    assert 0.75 < good.trend < good.planned
    assert outlook_of(looks_of([cut(1.0, 200), cut(1.0, 400)], plan, 0.05), plan, 0.05) is None
    assert math.isnan(outlook_of(hopeful, Plan(400, looks=2), 0.05).futility)


def test_the_analysis_says_whether_to_stop():
    study = trial(plan=AnalysisPlan(400, looks=4, effect=0.25))
    enrol(study, 0, 300)
    study.look(**ANN)
    said = str(study.analysis())
    assert "high − placebo: stop for efficacy; the boundary was crossed at the look after decision 300." in said
    assert "low − placebo: " in said
    assert json.loads(json.dumps(study.analysis().describe()))["contrasts"][1]["shown"] == 0
    event = next(event for event in study.events() if event.kind == "look")
    assert any("stop for efficacy" in line for line in event.content["advice"])
    nothing = trial()
    nothing.ask_many([(contexts_of(i), f"{i}") for i in range(100)])
    assert "cannot tell: the rewards give no interval yet." in str(nothing.analysis())


def test_subgroups_are_those_that_were_registered():
    study = trial(plan=AnalysisPlan(200, 1, subgroups={"high x": (0, 0.0, None)}))
    enrol(study, 0, 200)
    rows = {(row.stage, row.name): row for row in study.analysis().stages}
    assert 60 < rows["high x (subgroup)", "high − placebo"].rounds < 140
    for wrong in ({"a": (0, 2.0, 1.0)}, {"a": (0, None, None)}, {"a": (-1, 0.0, None)}, ["a"], {"": (0, 1, None)}):
        with pytest.raises(InvalidStudy, match="subgroups must be"):
            AnalysisPlan(200, subgroups=wrong)
    with pytest.raises(InvalidStudy, match="covariate 5"):
        trial(plan=AnalysisPlan(200, 1, subgroups={"none": (5, 0.0, None)}))
    policy = FramePolicy.fit(LinTS, {"age": [20, 30, 40]}, arms=["tea", "rum"], seed=0)
    plan = AnalysisPlan(200, 1, subgroups={"none": (1, 0.0, None)})
    with pytest.raises(InvalidStudy, match="covariate 1; covariates are 0 to 0"):  # of patients, not of contexts
        Study.create(f"memory://groups-{next(NAMES)}", "bar", policy=policy, plan=plan)


@pytest.mark.parametrize(
    "wrong",
    [
        {"looks": 10**12},
        {"looks": 10**400},
        {"looks": 0},
        {"looks": []},
        {"looks": [100, 200, 300]},
        {"looks": [100, 50, 200]},
        {"estimand": 5},
        {"estimand": "\ud800"},
        {"subgroups": {"\ud800": (0, 1.0, None)}},
        {"subgroups": {5: (0, 1.0, None)}},
    ],
)
def test_a_plan_that_no_record_can_hold_is_refused_at_once(wrong):
    with pytest.raises(InvalidStudy if "subgroups" not in wrong else InvalidId):
        AnalysisPlan(200, **wrong)


def test_a_look_on_record_that_nobody_took_is_damage():
    row = {"estimate": 0.1, "low": None, "high": None, "boundary": 2.0, "fell": False}
    row["summary"] = [1, 0.1, None, 0.0, None, 0.0, 0.0, 0.0]
    read_body(canonical({"effects": {"low − placebo": row}, "fraction": 0.5, "final": False}))
    for name in row:
        for junk in ("x", [], {}, True if name != "fell" else 1, [None] * 5, 1e301):
            with pytest.raises(BrokenStudy, match="damaged"):
                read_body(canonical({"effects": {"low − placebo": row | {name: junk}}}))
        with pytest.raises(BrokenStudy, match="damaged"):
            read_body(canonical({"effects": {"low − placebo": {key: row[key] for key in row if key != name}}}))
    for name, junk in {"fraction": -0.5, "final": 1, "unseen": [], "sent": 3, "effects": {"a": 1}}.items():
        with pytest.raises(BrokenStudy, match="damaged"):
            read_body(canonical({name: junk}))


def test_a_tipping_point_says_how_far_missing_rewards_must_lie_to_undo_what_was_shown():
    study = trial(plan=AnalysisPlan(300, 1))
    enrol(study, 0, 300, late=range(0, 300, 5))
    high = study.analysis().contrasts[1]
    assert high.shown == 0
    assert high.tipping is None or 0 < high.tipping <= 1
    assert (high.tipping is None) == (high.bound_low > 0)
    many = trial(plan=AnalysisPlan(300, 1))
    enrol(many, 0, 300, late=range(0, 300, 2), truth=WEAK | {"high": 0.8})
    effect = many.analysis().contrasts[1]
    assert effect.shown == 0
    assert effect.bound_low < 0
    assert 0 < effect.tipping < 1


# --- documents


def test_the_plan_prints_a_document_that_its_hash_names():
    plan = AnalysisPlan(400, looks=4, effect=0.2, subgroups={"older": (0, 65.0, None)}, estimand="All who were asked.")
    said = str(plan)
    assert plan.hash in said
    for part in (
        "After 100, 200, 300, 400 decisions",
        "A difference of 0.2 matters",
        "All who were asked.",
        "Signatures",
    ):
        assert part in said
    assert "older (covariate 0 from 65)" in said
    # Lan and DeMets' boundaries of four looks, each with its two-sided p-value
    assert (
        "an error of 5 %, and if outcomes come as patients do, 4.333 (1.5e-05); 2.963 (0.003); 2.359 (0.018); " in said
    )
    assert "for the authors to write" in said
    assert "400 patients. Simulated." in str(AnalysisPlan(400, size="Simulated."))
    assert "size" not in plan.describe()  # so that plans without it keep their hash
    assert AnalysisPlan(400, size="Simulated.").hash != AnalysisPlan(400).hash
    assert plan.hash == AnalysisPlan(**json.loads(json.dumps(plan.describe()))).hash
    assert plan.hash != AnalysisPlan(400, looks=4).hash
    assert "no boundary of futility" in str(AnalysisPlan(400))


def test_flow_and_allocation_are_shown_and_the_blinded_view_names_no_arm():
    study = trial()
    enrol(study, 0, 150, late=range(140, 150))
    study.look(**ANN)
    found = study.analysis()
    assert sum(row[1] for row in found.flow) == 150
    assert sum(row[3] for row in found.flow) == 10
    assert found.allocation[-1][0] == 150
    assert all(sum(chances) == pytest.approx(1.0) for _, chances in found.allocation)
    assert "Flow of patients" in str(found)
    blinded = found.blinded()
    assert "150 of 400 decisions, 140 rewards" in blinded
    assert "look after decision 150, 35% of the outcomes planned" in blinded
    study.close_arm("low", **BOTH)
    enrol(study, 150, 60)
    assert "look after decision 210, 50% of the outcomes planned" in study.look(**ANN).blinded()
    assert not any(arm in blinded for arm in WEAK)
    assert study.settings.plan.hash in blinded


def test_the_page_draws_the_flow_of_patients_and_has_the_checklist(tmp_path):
    study = trial(plan=AnalysisPlan(400, looks=4, effect=0.2))
    enrol(study, 0, 100, late=range(90, 100))
    study.look(**ANN, reason="the board met")
    study.close_arm("low", **BOTH, reason="<futility>")
    enrol(study, 100, 20)
    found = study.analysis()
    assert [row[4] for row in found.flow] == [None, 100, None]
    assert [act[1:] for act in found.acts][1] == (
        "ann",
        "closed arm low after decision 100, approved by bob",
        "<futility>",
    )
    found.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    drawing = page[page.index('aria-label="flow of patients"') :].partition("</svg>")[0]
    patients = {name: (count, lost, known) for name, count, known, lost, *_ in found.flow}
    for name, counts in patients.items():
        assert f">{name}:</text>" in drawing
        assert all(f">{count}" in drawing for count in counts)
    assert "patients, closed after 100" in drawing
    assert "120 of 400 patients enrolled" in drawing
    assert "</i>2 high − placebo</li>" in page  # a legend: long names would run into one another
    assert "repeated p" in page
    for part in ("ACE checklist", "11c", 'aria-label="allocation over time"', "the board met", "&lt;futility&gt;"):
        assert part in page
    assert "ACE checklist" not in str(found)
    many = Study.create("memory://many", f"{next(NAMES)}", policy=LinTS(dim=2), arms=[f"{i}" * 30 for i in range(12)])
    assert "…" in html_of(many.analysis())


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_nothing_of_the_page_sticks_out_or_runs_into_another(tmp_path, width):
    arms = ["placebo", "low dose of the drug", "high dose of the drug & rest", "the operation of last resort"]
    study = trial(arms=arms, control="placebo")
    answers = study.ask_many([(np.eye(4, 2), f"{i}") for i in range(200)])
    study.tell_many([(answer.id, float(answer.index > i % 4)) for i, answer in enumerate(answers)])
    study.look(**ANN)
    study.close_arm(arms[1], **BOTH)
    script = """(() => { const charts = [...document.querySelectorAll('svg')];
      const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      const mixed = c => { const t = [...c.querySelectorAll('text')].map(e => e.getBoundingClientRect());
        const box = c.getBoundingClientRect();
        return t.filter((a, i) => a.left < box.left - 1 || a.right > box.right + 1
          || t.slice(i + 1).some(b => !apart(a, b))).length; };
      return {wide: document.documentElement.scrollWidth, charts: charts.length,
        mixed: charts.map(mixed), tables: document.querySelectorAll('table').length}; })()"""
    seen = probe(tmp_path, html_of(study.analysis()), script, width)
    assert seen["wide"] <= width
    assert seen["charts"] == 3
    assert seen["mixed"] == [0, 0, 0]
    assert seen["tables"] >= 10


def test_the_plan_is_written_as_a_page_that_prints_with_what_the_study_fixed(tmp_path):
    study = trial()
    for suffix in ("html", "md"):
        study.analysis().save_plan(tmp_path / f"plan.{suffix}")
        text = (tmp_path / f"plan.{suffix}").read_text(encoding="utf-8")
        assert "with an error of 2.5 %" in text  # the first step of two comparisons
        for part in (study.settings.plan.hash, "control: placebo", "Hypotheses", "Missing outcomes", "first_event"):
            assert part in text
    assert "<script" not in (tmp_path / "plan.html").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"\.html or \.md"):
        AnalysisPlan(100).save(tmp_path / "plan.pdf")
    AnalysisPlan(100).save(tmp_path / "alone.md")
    assert (tmp_path / "alone.md").read_text(encoding="utf-8") == str(AnalysisPlan(100))
