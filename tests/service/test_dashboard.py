"""The dashboard: what it shows is what the record says, and a browser shows it at a desk and on a phone."""

import json
import os
import re
from urllib.parse import urlencode

import numpy as np
import pytest

from browser import needs_browser, probe
from demo_study import demo
from rarely import Ceiling, FixedGrid, LinUCB, Worth
from rarely.service import KeyFile, dashboard
from rarely.service.dashboard import Earned, by_arm, by_version, candidate_text, render_study, time_ticks
from rarely.study import AnalysisPlan, RewardRule, Stage, Study
from services import serving
from studies import contexts_of, linear, told_of

SECTIONS = ("Did it help?", "Mean reward", "Arm shares", "Versions and tuning record", "Health", "Quarantine")


def earned_of(study):
    made = Earned(study.settings.rewards)
    made.follow(study, study.status().events)
    return made


def page_of(study, **options):
    return render_study(study, earned_of(study), study.status(), **options)


@pytest.fixture(scope="module")
def study():
    with demo("memory://dashboard") as study:
        yield study


@pytest.fixture(scope="module")
def earned(study):
    return earned_of(study)


@pytest.fixture(scope="module")
def page(study):
    return page_of(study)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_page_has_every_section(page, section):
    assert f"<h2>{section}</h2>" in page


def test_a_page_loads_nothing_and_runs_nothing(page):
    assert "mean worth" not in page
    assert not re.search(r"https?://|<script|<img|<link(?! rel=.icon. href=.data:)|@import|url\(", page)


def test_a_trial_has_a_page_with_its_analysis():
    storage, rules = "memory://analysis-page", {"rewards": RewardRule(least=0.0, most=1.0), "control": "a"}
    rules |= {"stages": [Stage("main", least=0.2)], "plan": AnalysisPlan(60, 2), "arms": ["a", "b", "c"]}
    study = Study.create(storage, "trial", policy=linear(), **rules)
    for i in range(60):
        study.tell(study.ask(contexts_of(i), id=f"{i}").id, float(i % 3 == 0))
    Study.create(storage, "plain", policy=LinUCB(dim=2), arms=["a", "b"]).ask(contexts_of(0, arms=2))
    with serving(storage, automatic=False) as service:
        paths = ("trial/analysis", "trial", "plain/analysis")
        pages = [service.send("GET", f"/studies/{path}").body.decode() for path in paths]
    assert "b − a" in pages[0]
    assert 'href="../trial"' in pages[0]
    assert 'href="trial/analysis"' in pages[1]
    assert "Mixture(0.1)" in pages[2]


def test_what_people_wrote_is_text_on_the_page(page):
    assert "nobody &lt;b&gt;" in page
    assert "nobody <b>" not in page


def test_each_version_and_arm_has_what_its_own_decisions_earned(study, earned):
    records, rewards = told_of(study)
    assert np.sum(~np.isnan(rewards)) == study.status().rewards.used + study.status().rewards.pending
    for rows, of in ((by_version(earned), "version"), (by_arm(earned, None), "index")):
        for row in rows:
            these = [i for i, record in enumerate(records) if getattr(record.answer, of) == row["name"]]
            known = rewards[these][~np.isnan(rewards[these])]
            assert (row["decisions"], row["rewards"]) == (len(these), len(known))
            assert row["mean"] == pytest.approx(known.mean())
            share, n, z = known.mean(), len(known), 1.959964  # Wilson's interval: rewards are 0 or 1
            middle = (share + z * z / (2 * n)) / (1 + z * z / n)
            half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
            assert (row["low"], row["high"]) == pytest.approx((middle - half, middle + half), rel=2e-2)
    assert [row["verdict"] for row in by_version(earned)] == ["", "better", "no clear difference"]


def test_spans_become_longer_where_there_are_many(study, earned, monkeypatch):
    monkeypatch.setattr(dashboard, "SPANS", 10)
    short = earned_of(study)
    assert len(short.by(0)) <= 10
    assert short.width > earned.width
    for place in (1, 2):
        assert short.by(place).keys() == earned.by(place).keys()
        np.testing.assert_allclose([*short.by(place).values()], [*earned.by(place).values()])
    assert short.moment(min(short.by(0))) <= earned.moment(min(earned.by(0)))


@pytest.mark.parametrize("seconds", [1.0, 60.0, 4000.0, 86400.0, 9e6, 2e8, 4e9])
def test_an_axis_of_time_has_few_marks_inside(seconds):
    ticks = time_ticks(1.79e9, 1.79e9 + seconds)
    assert len(ticks) <= 6
    assert all(1.79e9 <= at <= 1.79e9 + seconds for at, _ in ticks)


def played(name, rewards_by_version, **options):
    """A study whose version n had these rewards, and its overview."""
    with Study.create(f"memory://{name}", "t", policy=linear(batches=50), arms=["a", "b", "c"], **options) as study:
        for version, rewards in enumerate(rewards_by_version):
            for number, reward in enumerate(rewards):
                answer = study.ask(contexts_of(number), id=f"{version}-{number}")
                study.tell(answer.id, reward)
            if version + 1 < len(rewards_by_version):
                study.update(force=True)
                study.tell(study.ask(contexts_of(1), id=f"{version}-last").id, rewards[-1])
        return earned_of(study), page_of(study)


def test_a_version_that_helped_or_harmed_is_named_so():
    made, page = played("helped", [[0.0] * 30, [1.0] * 30, [0.1, 0.0] * 15])
    assert [row["verdict"] for row in by_version(made)] == ["", "better", "worse"]
    assert "Version 2: worse." in page
    made, page = played("numbers", [[3.0, 5.0], [4.0]], rewards=RewardRule(least=0.0, most=9.0))
    assert "no clear difference" in page
    made, page = played("single", [[1.0]])
    assert "Nothing to compare yet" in page


def test_worth_and_what_was_spent_are_on_the_page():
    policy = LinUCB(2, FixedGrid(40, 2), seed=0).under(Ceiling(9.0))
    study = Study.create("memory://worth-page", "shop", policy=policy, arms=["a", "b", "c"])
    for i in range(20):
        study.ask(contexts_of(i), id=f"{i}", worth=Worth(gain=[2.0, 4.0, 8.0], cost=1.0, spends=[0.0, 0.5, 0.5]))
        study.tell(f"{i}", float(i % 2))
    earned, spent = earned_of(study), study.status().spent
    rows = by_arm(earned, study.settings.arms)
    for row in rows:
        assert row["worth"] == pytest.approx({"a": 2.0, "b": 4.0, "c": 8.0}[row["name"]] * row["mean"] - 1.0)
    assert spent == pytest.approx(0.5 * sum(row["decisions"] for row in rows if row["name"] != "a"))
    page = page_of(study)
    assert page.count("mean worth") == 2
    assert f"{spent:g} spent; price" in page


def test_a_study_without_decisions_has_a_page():
    with Study.create("memory://empty-page", "empty", policy=linear(), arms=["a", "b"]) as study:
        page = page_of(study)
    assert "No decisions yet." in page


def test_a_study_of_many_arms_without_names_has_a_page():
    with Study.create("memory://many-arms", "many", policy=linear()) as study:
        for number in range(30):
            study.ask(np.random.default_rng(number).normal(size=(5 + number % 8, 2)))
        page = page_of(study)
    assert re.search(r">\d others<", page)


def test_the_service_serves_the_pages(page):
    demo("memory://served-page", rounds=30)
    with serving("memory://served-page", automatic=False) as service:
        index = service.send("GET", "/")
        assert 'href="studies/reminders"' in index.body.decode()
        reply = service.send("GET", "/studies/reminders")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "<b>30</b>" in reply.body.decode()
        service.send("POST", "/v1/studies/reminders/decide", {"contexts": [[0, 0, 0]] * 4})
        assert service.send("GET", "/studies/nobody").status == 404
        assert json.loads(service.send("GET", "/openapi.json").body) == service.schema


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_real_browser_shows_the_page(page, tmp_path, width):
    script = """(() => { const charts = [...document.querySelectorAll('svg')];
      const box = chart => chart.getBoundingClientRect();
      return {wide: document.documentElement.scrollWidth, charts: charts.length,
      drawn: charts.filter(c => box(c).height > 100).length,
      letters: Math.min(...charts.map(c => 12 * box(c).width / 400)),
      cut: [...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth + 1).length,
      outside: charts.flatMap(c => [...c.querySelectorAll('text')].filter(t => { const b = t.getBBox();
        return b.x < -1 || b.x + b.width > 401 || b.y + b.height > 221; })).length,
      asked: performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length}; })()"""
    seen = probe(tmp_path, page, script, width)
    assert seen["wide"] <= width  # nothing sticks out sideways
    assert seen["charts"] == seen["drawn"] == 2
    assert width < 1280 or seen["cut"] == 0  # all columns of all tables are in sight
    assert seen["outside"] == 0  # no letter is cut off
    assert seen["letters"] >= 9
    assert seen["asked"] == 0  # nothing was asked of a network


def test_after_a_rollback_the_headline_judges_the_version_in_use():
    made, page = played("judged", [[0.0] * 30, [1.0] * 30])
    assert "Version 1: better." in page
    with Study.open("memory://judged") as study:
        study.rollback(0)
        page = render_study(study, made, study.status())
    assert "Version 0: worse." in page
    assert "Version 1: better." not in page


def test_a_page_is_not_loaded_again_under_the_reader_and_has_no_limit_that_is_none():
    study = Study.create("memory://unlimited", "trial", policy=LinUCB(dim=2, seed=0), arms=["a", "b"])
    page = page_of(study)
    assert 'http-equiv="refresh"' not in page
    assert "no limit" in page
    assert "2147483647" not in page
    assert "log det" not in page
    assert "step size" not in page


def test_the_index_says_which_studies_cannot_be_read(tmp_path):
    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    for name in ("trial", "second"):
        Study.create(storage, name, policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        page = service.send("GET", "/").body.decode()
        assert "no alarm" in page
        service.opened.failure, service.opened._status = "the database is away", None
        page = service.send("GET", "/").body.decode()
        assert "cannot be read now" in page
        assert "No studies yet" not in page
        assert str(tmp_path) not in page


@pytest.fixture
def trial(tmp_path):
    """A study with two versions and a candidate, and keys."""
    storage = f"sqlite:///{tmp_path / 'trial.db'}"
    stages = [Stage("first", 20), Stage("approved", least=0.1, approval=True)]
    with Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"], stages=stages) as study:
        for i in range(80):
            study.tell(study.ask(contexts_of(i), id=f"{i}").id, float(i % 3 == 0))
            if i in (9, 39):
                study.update()
        text = candidate_text(study, study.status())
        assert "doubly robust" in text or "cannot be estimated" in text
    return storage, KeyFile(tmp_path / "keys.json")


def pressed(service, key, act, token=None, **fields):
    page = service.send("GET", "/studies/trial", key=key).body.decode()
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page)
    fields |= {"act": act, "token": found.group(1) if token is None else token}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return service.send("POST", "/studies/trial/act", urlencode(fields).encode(), headers=headers, key=key)


def test_buttons_approve_pin_and_roll_back_in_the_name_of_the_key(trial):
    storage, keys = trial
    admin, reader = keys.add("ann", ["read", "admin"]), keys.add("eve", ["read"])
    with serving(storage, automatic=False, keys=keys) as service:
        page = service.send("GET", "/studies/trial", key=reader).body.decode()
        assert "<form" not in page
        assert "A candidate waits" in page
        reply = pressed(service, admin, "approve", reason="looks well")
        assert (reply.status, reply.headers["location"]) == (303, "../trial")
        assert pressed(service, admin, "pin").status == 303
        assert pressed(service, admin, "rollback", version="0", reason="<b>worse").status == 303
        status = service.status()
        assert (status.version, status.versions, status.pinned) == (0, 3, True)
        acts = [(event.kind, event.actor, event.reason) for event in service.opened.study.acts()[-3:]]
        assert acts == [("version", "ann", "looks well"), ("pin", "ann", ""), ("rollback", "ann", "<b>worse")]
        assert "&lt;b&gt;worse" in service.send("GET", "/studies/trial", key=admin).body.decode()


def test_no_other_page_and_no_other_key_can_press_a_button(trial):
    storage, keys = trial
    admin, second, reader = (
        keys.add("ann", ["read", "admin"]),
        keys.add("bob", ["read", "admin"]),
        keys.add("eve", ["read"]),
    )
    with serving(storage, automatic=False, keys=keys) as service:
        page = service.send("GET", "/studies/trial", key=second).body.decode()
        stolen = re.search(r'name="token" value="([0-9a-f]{64})"', page).group(1)
        for token in ("", "0" * 64, stolen):
            assert pressed(service, admin, "pin", token=token).status in (403, 422)
        assert pressed(service, reader, "pin", token=stolen).status == 403
        assert pressed(service, admin, "rollback", version="99").status == 422
        assert pressed(service, admin, "rollback", version="x").status == 422
        assert pressed(service, admin, "delete").status == 422
        assert service.post("pin", {"reason": ""}, key=reader).status == 403
        assert not service.status().pinned
        assert (
            "form-action 'self'" in service.send("GET", "/studies/trial", key=admin).headers["content-security-policy"]
        )


def test_files_of_the_record_are_for_their_owner_alone(tmp_path):
    old = os.umask(0o022)
    try:
        with Study.create(f"sqlite:///{tmp_path / 'trial.db'}", "trial", policy=linear(), arms=["a", "b"]) as study:
            study.ask(contexts_of(1, arms=2))
            study.backup(tmp_path / "copy.db")
            with study._session.checkpoints():
                pass
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert {"trial.db", "copy.db", "trial.db-checkpoints"} <= set(modes)
    assert set(modes.values()) == {0o600}
