"""Old decisions and rewards go behind a version, their last hash stays, and the study is what it was."""

import datetime as dt
import sqlite3

import pytest

from rarely import FixedGrid, LinTS
from rarely.study import Erased, ErasedWarning, InvalidStudy, RewardRule, Stage, Study
from studies import contexts_of, every_storage, linear, neural, play

SIGNED = {"actor": "ann", "reason": "kept for a year"}


def grown(make, policy=None, **settings):
    """A study of 30 decisions and two versions, the last of them after decision 20."""
    study = make(linear(9) if policy is None else policy, **settings)
    for first in (0, 10, 20):
        play(study, first, 10)
        if first < 20:
            study.update()
    return study


def cut_of(study, version):
    return study.versions()[version].cut


@every_storage
def test_what_a_version_needs_stays_and_the_rest_goes(make, storage, tmp_path):
    study = grown(make)
    before = study.status()
    heads = before.events, before.head
    cut = cut_of(study, 2)
    tried = study.prune(cut, dry_run=True, **SIGNED)
    assert study.status() == before
    done = study.prune(cut, **SIGNED)
    assert done == tried
    assert (done.events, done.last, done.limit) == (41, cut - 1, "")  # with a cut
    assert done.bytes > 41 * 300
    after = study.status()
    assert (after.decisions, after.version, after.rewards) == (before.decisions, before.version, before.rewards)
    checked = study.verify(heads[1], heads[0])
    assert checked.whole
    assert "'ann' pruned 41 decisions and rewards up to event" in checked.gone[0]
    with pytest.warns(ErasedWarning, match="kept for a year"):
        assert study.log().rounds.tolist() == list(range(21, 31))
    with pytest.warns(ErasedWarning):
        assert len(study.log(after=done.last - 1)) == 10  # an event that went, too
    assert len(study.log(after=done.last)) == 10
    with pytest.warns(ErasedWarning):
        assert study.export(tmp_path / "log.csv").decisions == 10
    assert len(list(study.decisions())) == 10
    assert [version.number for version in study.versions()] == [0, 1, 2]
    for version in (0, 1):
        with pytest.raises(Erased):
            study.rollback(version, actor="ann")
    study.close()
    opened = make.open()
    assert opened.status() == after
    play(opened, 30, 5)
    assert opened.update() == "version"
    assert opened.verify().whole
    replay = opened.replay()
    assert replay.equal
    assert (replay.decisions, len(replay.trainings)) == (5, 1)
    assert opened.status().rewards.balanced
    assert opened.rollback(2, actor="ann") is None
    assert opened.verify().whole


@pytest.mark.parametrize("policy", [linear(9), neural()])
def test_a_pruned_study_decides_and_learns_as_one_that_was_not(make, tmp_path, policy):
    pruned, whole = (
        grown(make, policy),
        Study.create(f"sqlite:///{tmp_path}/whole.db", "trial", policy=policy, arms=["a", "b", "c"]),
    )
    for first in (0, 10, 20):
        play(whole, first, 10)
        if first < 20:
            whole.update()
    pruned.prune(10**6, **SIGNED)
    for study in (pruned, whole):
        play(study, 30, 10)
        study.update()
        play(study, 40, 3)
    ours, theirs = ([(a.arm, a.probability) for a in (r.answer for r in s.decisions())] for s in (pruned, whole))
    assert ours == theirs[20:]
    assert pruned.versions()[3].fingerprint == whole.versions()[3].fingerprint
    assert pruned.status().rewards == whole.status().rewards
    whole.close()


def test_it_stops_at_the_version_in_use_and_says_so(make):
    study = grown(make)
    cut = cut_of(study, 2)
    done = study.prune(study.status().events, **SIGNED)
    assert done.last == cut - 1
    assert f"only those up to {cut - 1} go: version 2, which is in use, continues from event {cut}" in done.limit
    again = study.prune(study.status().events, **SIGNED)
    assert (again.events, again.last) == (0, 0)
    assert len(study.verify().gone) == 1
    assert study.prune(1, **SIGNED).events == 0
    for early in ("1970-01-02", dt.date(1970, 1, 2)):
        assert study.prune(early, **SIGNED).events == 0
    for wrong in (0, -1, "yesterday", None, 1.5, "9" * 5000):
        with pytest.raises(InvalidStudy, match="before must be"):
            study.prune(wrong, **SIGNED)


def test_after_a_rollback_it_stops_at_the_earlier_version(make):
    study = grown(make)
    study.rollback(1, actor="ann")
    assert study.prune(10**6, **SIGNED).last == cut_of(study, 1) - 1
    study.rollback(2, actor="ann")
    assert study.prune(10**6, **SIGNED).last == cut_of(study, 2) - 1
    assert study.verify().whole
    assert len(study.verify().gone) == 2
    play(study, 30, 5)
    study.update()
    assert study.replay().equal


@pytest.mark.parametrize("aggregation", ["first", "last", "sum"])
def test_decisions_whose_window_is_open_stay(make, clock, aggregation):
    study = make(linear(9), rewards=RewardRule(aggregation=aggregation, wait=100.0, default=0.0), clock=clock)
    for first in (0, 10, 20):
        for i in range(first, first + 10):
            study.ask(contexts_of(i), id=f"visit-{i}")
            clock.now += 20.0
            if i % 3:
                study.tell(f"visit-{i}", 1.0)
        study.update(force=True)
    before = study.status()
    done = study.prune(10**6, **SIGNED)
    assert done.events > 0
    oldest = next(study.decisions()).answer
    cut = study._session.position.cut
    with study._session.reading() as tables:
        assert tables.event(cut).time - oldest.time <= 120e6  # one step beyond the window
    assert study.status().rewards == before.rewards
    opened = make.open(clock=clock)
    assert opened.status().rewards == before.rewards
    clock.now += 500.0
    assert opened.update(force=True) == "version"
    assert opened.replay().equal
    assert opened.verify().whole
    accounts = opened.status().rewards
    assert accounts.balanced
    assert accounts.used == accounts.received - accounts.late - accounts.quarantined


def test_pruned_then_erased_then_pruned(make, tmp_path):
    study = grown(make)
    study.prune(cut_of(study, 1), **SIGNED)
    done = study.erase(["visit-3", "visit-15", "visit-25"], actor="bob")  # the first is not there any more
    assert done.decisions == 2
    assert "of which nobody can say whose they were" in " ".join(done.remains)
    study.prune(10**6, **SIGNED)
    assert [len(list(study.decisions())), study.status().decisions] == [10, 30]
    play(study, 30, 5)
    study.update()
    assert study.replay().equal
    checked = study.verify()
    assert checked.whole
    assert [("pruned" in said, "erased" in said) for said in checked.gone] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    study.backup(tmp_path / "backup.db")
    Study.restore(tmp_path / "backup.db", f"sqlite:///{tmp_path}/restored.db")
    with Study.open(f"sqlite:///{tmp_path}/restored.db") as restored:
        assert restored.verify().gone == checked.gone
        assert restored.status().head == study.status().head


def test_an_analysis_of_a_pruned_trial_is_refused(make):
    study = grown(
        make, LinTS(dim=2, schedule=FixedGrid(1000, 9), seed=0), control="a", stages=[Stage("main", least=0.1)]
    )
    assert study.analysis().decisions == 30
    study.prune(10**6, **SIGNED)
    with pytest.raises(Erased, match=r"needs all decisions of the trial; event .* 'ann' pruned"):
        study.analysis()


def test_rewards_of_pruned_decisions_count_as_unknown_and_their_ids_are_free(make):
    study = grown(make)
    study.prune(10**6, **SIGNED)
    assert study.tell("visit-3", 1.0).reason == "unknown decision"
    assert study.ask(contexts_of(3), id="visit-3").round == 31
    assert study.verify().whole


@every_storage
def test_more_cannot_be_taken_unseen(make, storage):
    study = grown(make)
    study.pin(actor="ann")
    study.unpin(actor="ann")
    play(study, 30, 3)
    study.update()
    study.prune(10**6, **SIGNED)
    assert study.verify().whole
    pins = [event for event in study.acts() if event.kind == "pin"]

    def change(sql, *values):
        with study._session.storage.writing("trial") as tables, study._session.storage.altering("rarely_events"):
            tables.run(sql, values)

    change("UPDATE rarely_events SET kind = 'unpin' WHERE seq = ?", pins[0].seq)
    assert "altered" in study.verify().flaw
    change("UPDATE rarely_events SET kind = 'pin' WHERE seq = ?", pins[0].seq)
    assert study.verify().whole
    change("DELETE FROM rarely_events WHERE seq = ?", pins[0].seq)
    assert "others are there than were kept" in study.verify().flaw


def test_the_file_becomes_smaller(tmp_path):
    path = tmp_path / "trial.db"
    with Study.create(f"sqlite:///{path}", "trial", policy=linear(9), arms=["a", "b", "c"]) as study:
        play(study, 0, 600)
        study.update()
        before = path.stat().st_size
        done = study.prune(10**6, **SIGNED)
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as _:
            pass
        assert before - path.stat().st_size > 0.5 * done.bytes
