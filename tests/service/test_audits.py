"""Backup, verification, export and the clock over HTTP, while the service decides."""

import json
import socket
import sqlite3
import threading

import pytest
from typer.testing import CliRunner

from rarely._cli import app
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
        run = CliRunner()
        for verb, *rest in (("status",), ("verify",), ("backup", "copy.db"), ("export", "log.csv")):
            files = [str(tmp_path / name) for name in rest]
            result = run.invoke(app, ["study", verb, served.url, *files, "--name", "trial"])
            assert result.exit_code == 0, result.output
    finally:
        ends.set()
        busy.join()
    with Study.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        assert copy.verify().whole
        assert copy.status().decisions >= 5
    assert len(read_log(tmp_path / "log.csv")) >= 5
    assert json.loads(served.get("verify").body)["flaw"] == ""
    again = run.invoke(app, ["study", "backup", served.url, str(tmp_path / "copy.db"), "--name", "trial"])
    assert again.exit_code != 0
    assert run.invoke(app, ["study", "verify", served.url]).exit_code != 0
    asked = ["study", "verify", served.url, "--name", "trial", "--head", "0" * 64]
    assert "make a backup" in run.invoke(app, asked).output  # and does not pass over what was asked
    heads = tmp_path / "heads.jsonl"
    assert run.invoke(app, ["study", "heads", served.url, str(heads), "--name", "trial"]).exit_code == 0
    assert json.loads(heads.read_text()).keys() == {"study", "seq", "head", "time"}
    later = tmp_path / "later.db"
    assert run.invoke(app, ["study", "backup", served.url, str(later), "--name", "trial"]).exit_code == 0
    with Study.open(f"sqlite:///{later}", lazy=True) as copy:
        assert copy.verify(heads=heads).whole
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


def test_half_a_backup_is_none(tmp_path):
    """A service that is killed while it sends leaves no file that looks like a backup."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send_half():
            connection, _ = server.accept()
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nSQLite")
            connection.close()

        sender = threading.Thread(target=send_half)
        sender.start()
        url, out = f"http://127.0.0.1:{server.getsockname()[1]}", tmp_path / "half.db"
        found = CliRunner().invoke(app, ["study", "backup", url, str(out), "--name", "trial"])
        sender.join()
    assert found.exit_code != 0
    assert "994 bytes are missing" in found.output.replace("\n", " ")
    assert not out.exists()


@pytest.mark.parametrize("verb", ["backup", "verify", "export"])
def test_an_unknown_study_has_no_audits(served, verb):
    assert served.send("GET", f"/v1/studies/none/{verb}").status == 404
