"""Backup, verification, export and the clock over HTTP, while the service decides."""

import json
import sqlite3
import threading

import pytest

from rarely.logs import read_log
from rarely.study import Study
from services import serving
from studies import Clock, linear


def test_an_operator_audits_a_study_that_is_served(served, tmp_path):
    for number in range(5):
        served.decide(number)
    ends = threading.Event()
    asked = iter(range(100, 10_000))

    def ask():
        while not ends.is_set():
            assert served.decide(next(asked)).status == 200

    busy = threading.Thread(target=ask)
    busy.start()
    try:
        for verb, name in (("backup", "copy.db"), ("export", "log.csv"), ("status", "heads.jsonl")):
            reply = served.get(verb)
            assert reply.status == 200
            (tmp_path / name).write_bytes(reply.body)
    finally:
        ends.set()
        busy.join()
    with Study.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        assert copy.verify().whole
        assert copy.status().decisions >= 5
    assert len(read_log(tmp_path / "log.csv")) >= 5
    assert json.loads(served.get("verify").body)["flaw"] == ""
    (tmp_path / "later.db").write_bytes(served.get("backup").body)
    with Study.open(f"sqlite:///{tmp_path / 'later.db'}", lazy=True) as copy:
        assert copy.verify(heads=tmp_path / "heads.jsonl").whole
    assert sqlite3.connect(tmp_path / "copy.db").execute("SELECT count(*) FROM rarely_events").fetchone()[0] > 5


def test_a_leaping_clock_is_503_until_an_administrator_confirms_it(storage, monkeypatch):
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        assert service.decide(1).status == 200
        clock = Clock(service.opened.study._session._clock() + 5 * 365 * 86400)
        monkeypatch.setattr(service.opened.study._session, "_clock", clock)
        refused = service.decide(2)
        assert (refused.status, refused.content["title"]) == (503, "ClockAhead")
        assert service.get("status").status == 200
        assert service.post("repair-clock", {"reason": "a long pause"}).content["outcome"] == "repaired"
        assert service.decide(2).status == 200


@pytest.mark.parametrize("verb", ["backup", "verify", "export"])
def test_an_unknown_study_has_no_audits(served, verb):
    assert served.send("GET", f"/v1/studies/none/{verb}").status == 404
