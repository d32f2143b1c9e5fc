"""Backup, verification, export and the clock over HTTP, while the service decides."""

import json
import os
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rarely.logs import read_log
from rarely.study import Study
from services import PATIENCE, serving, until
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


def test_an_export_ends_when_the_caller_leaves(served, monkeypatch):
    made = []

    def parts(study):
        for number in range(10_000):
            made.append(number)
            yield "x" * 100_000

    monkeypatch.setattr(Study, "csv_text", parts)
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        raw.sendall(b"GET /v1/studies/trial/export HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in raw.recv(1000)
    until(lambda: not served.server.server_state.tasks)
    assert len(made) < 1000


def test_one_backup_at_a_time_and_nothing_is_left_of_those_that_were_killed(storage, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "rarely-backup-999999999-abc").mkdir()
    (tmp_path / f"rarely-backup-{os.getppid()}-abc").mkdir()  # of a service that runs
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        assert sorted(path.name for path in tmp_path.glob("rarely-*")) == [f"rarely-backup-{os.getppid()}-abc"]
        held, gate, backup = threading.Event(), threading.Event(), Study.backup

        def slow(study, path):
            held.set()
            gate.wait(PATIENCE)
            backup(study, path)

        monkeypatch.setattr(Study, "backup", slow)
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(service.get, "backup")
            assert held.wait(PATIENCE)
            assert service.get("backup").status == 429
            gate.set()
            assert first.result().status == 200


@pytest.mark.parametrize("verb", ["backup", "verify", "export"])
def test_an_unknown_study_has_no_audits(served, verb):
    assert served.send("GET", f"/v1/studies/none/{verb}").status == 404
