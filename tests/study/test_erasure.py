"""A study that is deleted is gone, others stay as they were, and who did it is on record."""

import pytest

from rarely.study import InvalidStudy, Study, StudyError, UnknownDecision, UnknownStudy
from studies import contexts_of, every_storage, linear, play


@every_storage
def test_a_deleted_study_is_gone_and_others_stay(make, tmp_path, storage):
    study = make()
    play(study, 0, 5)
    study.update()
    with Study.create(storage, "other", policy=linear(), arms=["x", "y", "z"]) as other:
        head = play(other, 0, 4) and other.status().head
    events = study.status().events
    study.close()
    with pytest.raises(InvalidStudy, match="who decides"):
        Study.delete(storage, "trial", actor="")
    assert Study.delete(storage, "trial", actor="ann", reason="the trial is over") == events
    with pytest.raises(UnknownStudy, match=f"deleted on .* by 'ann', with {events} events: the trial is over"):
        Study.open(storage, "trial")
    with Study.open(storage, "other") as other:
        assert other.status().head == head
        assert other.verify().whole
        for table in ("rarely_events", "rarely_snapshots", "rarely_leases", "rarely_studies"):
            with other._session.reading() as tables:
                assert {row[0] for row in tables.run(f"SELECT study FROM {table}")} <= {2}
            refused = pytest.raises(StudyError, match="never changed")
            if table in ("rarely_leases", "rarely_snapshots"):
                continue  # of the other study some are empty, or keep their foreign keys
            with refused, other._session.storage.writing("other") as tables:
                tables.run(f"DELETE FROM {table}")
        with other._session.checkpoints() as tables:
            assert {row[0] for row in tables.run("SELECT study FROM rarely_checkpoints")} <= {2}
    with Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]) as again:
        assert again.ask(contexts_of(1), id="visit-1").round == 1
        assert again.verify().whole


def test_nothing_of_a_deleted_study_is_left_in_the_file(tmp_path):
    path = tmp_path / "trial.db"
    with Study.create(f"sqlite:///{path}", "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        study.ask(contexts_of(1), id="patient-Mustermann")
    assert b"Mustermann" in path.read_bytes()
    Study.delete(f"sqlite:///{path}", "trial", actor="ann")
    assert not any(b"Mustermann" in each.read_bytes() for each in tmp_path.iterdir())


@every_storage
def test_a_process_that_has_a_deleted_study_open_says_so_and_reads_no_other(make, tmp_path, storage):
    study = make()
    play(study, 0, 3)
    Study.delete(storage, "trial", actor="ann", reason="the trial is over")
    with Study.create(storage, "other", policy=linear(), arms=["a", "b", "c"]) as other:
        play(other, 0, 9)  # longer than the record that is gone
        acts = [study.status, study.log, study.csv_text, study.update, lambda: study.ask(contexts_of(1), id="new")]
        for act in (*acts, lambda: study.export(tmp_path / "log.csv"), lambda: study.tell("visit-0", 1.0)):
            with pytest.raises(UnknownStudy, match=r"deleted on .* by 'ann'"):
                list(act())
        assert study.versions() == []
        with pytest.raises(UnknownDecision):
            study.decision(next(other.decisions()).answer.id)
        assert other.verify().whole
    assert not (tmp_path / "log.csv").exists()
