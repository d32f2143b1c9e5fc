"""The dashboard: what it shows is what the record says, and a browser shows it at a desk and on a phone."""

import json
import os
import re

import numpy as np
import pytest

from browser import needs_browser, probe
from demo_study import demo
from rarely import LinUCB
from rarely.service.dashboard import Overview, _first_rounds, by_arm, by_version, panels, render_study
from rarely.study import AnalysisPlan, RewardRule, Stage, Study
from services import serving
from studies import contexts_of, linear

SECTIONS = ("Did it help?", "Mean reward", "Arm shares", "Versions and tuning record", "Health", "Quarantine")


def overview_of(study):
    made = Overview(study.settings)
    made.follow(study.events())
    return made


def page_of(study):
    return render_study(overview_of(study), study.status(), study.versions(), [])


@pytest.fixture(scope="module")
def study():
    with demo("memory://dashboard") as study:
        yield study


@pytest.fixture(scope="module")
def overview(study):
    return overview_of(study)


@pytest.fixture(scope="module")
def page(study):
    return page_of(study)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_page_has_every_section(page, section):
    assert f"<h2>{section}</h2>" in page


def test_a_page_loads_nothing_and_runs_nothing(page):
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


def test_the_columns_are_those_of_the_record(study, overview):
    records = list(study.decisions())
    log = study.log()
    assert overview.column("a").tolist() == [record.answer.index for record in records]
    assert overview.column("v").tolist() == [record.answer.version for record in records]
    told = ~np.isnan(overview.column("r"))
    # Those for which the window has closed have the default reward in the log, and none on the page.
    np.testing.assert_array_equal(overview.column("r")[told], np.asarray(log.rewards)[told])
    assert told.sum() == study.status().rewards.used + study.status().rewards.pending


def test_each_version_and_arm_has_what_its_own_decisions_earned(study, overview):
    records, rewards = list(study.decisions()), overview.column("r")
    for rows, of in ((by_version(overview), "version"), (by_arm(overview), "arm")):
        for row in rows:
            these = [i for i, record in enumerate(records) if getattr(record.answer, of) == row["name"]]
            known = rewards[these][~np.isnan(rewards[these])]
            assert (row["decisions"], row["rewards"]) == (len(these), len(known))
            assert row["mean"] == pytest.approx(known.mean())
            share, n, z = known.mean(), len(known), 1.959964  # Wilson's interval: rewards are 0 or 1
            middle = (share + z * z / (2 * n)) / (1 + z * z / n)
            half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
            assert (row["low"], row["high"]) == pytest.approx((middle - half, middle + half), rel=2e-2)
    assert [row["verdict"] for row in by_version(overview)] == ["", "better", "no clear difference"]


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
        return overview_of(study), page_of(study)


def test_a_version_that_helped_or_harmed_is_named_so():
    made, page = played("helped", [[0.0] * 30, [1.0] * 30, [0.1, 0.0] * 15])
    assert [row["verdict"] for row in by_version(made)] == ["", "better", "worse"]
    assert "Version 2: worse." in page
    made, page = played(
        "sums", [[3.0, 5.0], [4.0]], rewards=RewardRule(aggregation="sum", wait=1.0, least=0.0, most=9.0)
    )
    assert "no clear difference" in page
    made, page = played("single", [[1.0]])
    assert "Nothing to compare yet" in page


def test_lines_of_versions_are_where_they_began_to_decide(study, overview):
    versions = [record.answer.version for record in study.decisions()]
    begins = [round for round in range(2, len(versions) + 1) if versions[round - 1] != versions[round - 2]]
    assert list(_first_rounds(overview)) == begins
    assert begins != [update["record"]["round"] for update in overview.updates if update["record"]]


def test_an_overview_that_follows_in_parts_is_the_same(study, overview):
    parts = Overview(study.settings)
    while parts.seq < overview.seq:
        parts.follow(study.events(parts.seq, parts.seq + 101))
    for name in "avr":
        np.testing.assert_array_equal(parts.column(name), overview.column(name))
    assert parts.quarantined == overview.quarantined
    assert sorted(event.why for event in overview.quarantined) == ["out of range", "unknown decision"]
    assert panels(parts) == panels(overview)


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
        page = render_study(made, study.status(), study.versions(), [])
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
