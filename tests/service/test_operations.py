"""What an operator sees and sets: logs, health, metrics, and limits that hold before a key is read."""

import http.client
import io
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml

from rarely import LinUCB
from rarely.service import KeyFile, ServiceLimits, opened
from rarely.service.metrics import FAMILIES, Meters, exposition, sample
from rarely.service.server import configured, logging_to_stderr
from rarely.study import CheckpointWarning, Study, StudyError
from rarely.study.storage.postgresql import without_password
from services import PATIENCE, serving, until
from studies import contexts_of, linear

EXAMPLES = Path(__file__).parents[2] / "examples" / "service"
SECRET = re.compile(r"rk_\w+|password|Bearer")


@pytest.fixture
def trial(storage):
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    return storage


@pytest.fixture
def log():
    """The lines of the service's log, as JSON, with a line for each request."""
    with logging_to_stderr("json", requests=True):
        text = io.StringIO()
        logging.getLogger("rarely").handlers[0].setStream(text)
        yield lambda: [json.loads(line) for line in text.getvalue().splitlines()]


# --- logs


def said(log, words, level=None):
    return [line for line in log() if words in line["message"] and level in (None, line["level"])]


def test_a_library_logs_nothing_and_the_command_says_what_it_serves(trial, tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    secret = keys.add("shop", ["decide", "read"])
    command = [sys.executable, "-m", "rarely", "serve", trial, "--port", "0", "--keys", keys.path, "--log-requests"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        address = process.stdout.readline().split()[0]
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE) as raw:
            raw.sendall(
                f"GET /v1/studies/trial/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\r\n".encode()
            )
            assert b"200" in raw.recv(1000)
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    start, request, stop = errors.splitlines()
    assert f"INFO rarely.service: rarely 0.3.0 serves {trial} with 1 keys, ServiceLimits(head=65536" in start
    assert re.search(
        r"INFO rarely.requests: GET /v1/studies/trial/status 200 [\d.]+ 127.0.0.1 shop [0-9a-f]{16} -$", request
    )
    assert "has stopped" in stop
    assert secret not in errors
    assert isinstance(logging.getLogger("rarely").handlers[0], logging.NullHandler)


def test_a_full_disk_is_logged_at_once_and_is_not_ready(trial, log):
    with serving(trial, automatic=False) as service:
        raw = service.opened.study._session.storage._raw
        (pages,) = raw.execute("PRAGMA page_count").fetchone()
        raw.execute(f"PRAGMA max_page_count = {pages}")
        while (reply := service.post("decide", {"contexts": contexts_of(1).tolist()})).status == 200:
            pass
        assert (reply.status, "disk is full" in reply.content["detail"]) == (503, True)
        assert len(said(log, "disk is full", "error")) == 1
        assert service.send("GET", "/health/ready").content["problems"] == ["the database refused to write"]
        assert service.send("GET", "/health/live").status == 200
        raw.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert service.decide(1).status == 200
        assert service.send("GET", "/health/ready").status == 200


def test_little_free_space_is_not_ready(trial, monkeypatch):
    with serving(trial, automatic=False) as service:
        assert service.send("GET", "/health").status == 200
        monkeypatch.setattr("rarely.service.app.MIN_FREE", 1 << 62)
        assert service.send("GET", "/health").content["problems"] == ["the disk is full or gone"]


def test_a_disk_that_is_gone_is_not_ready(trial, tmp_path):
    with serving(trial, automatic=False) as service:
        os.rename(tmp_path, f"{tmp_path}-gone")
        assert "the disk is full or gone" in service.send("GET", "/health").content["problems"]
        os.rename(f"{tmp_path}-gone", tmp_path)


def test_warnings_and_refused_audits_are_lines_of_the_log(trial, log, monkeypatch):
    with serving(trial, automatic=False) as service:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a checkpoint cannot be used", CheckpointWarning, stacklevel=1)
        assert said(log, "CheckpointWarning: a checkpoint cannot be used", "warning")
        monkeypatch.setattr(Study, "backup", lambda *_: (_ for _ in ()).throw(StudyError("no space is left")))
        assert service.get("backup").status == 503
        assert said(log, "backup was refused: no space is left", "error")


def test_the_description_says_what_each_audit_returns(shared):
    paths = shared.send("GET", "/openapi.json").content["paths"]
    kinds = {"verify": "application/json", "backup": "application/octet-stream", "export": "text/csv"}
    for name, kind in kinds.items():
        responses = paths[f"/v1/studies/{{name}}/{name}"]["get"]["responses"]
        assert list(responses["200"]["content"]) == [kind]
        assert "429" in responses


def test_a_failed_training_and_a_failed_request_are_logged_with_the_reason(trial, log, monkeypatch):
    with serving(trial, automatic=False) as service:
        service.decide(1)
        monkeypatch.setattr("sys.executable", "/bin/false")
        service.post("activate", {"version": "next", "force": True})
        until(lambda: not service.opened.trainer.under_way)
        assert "ended with code 1" in said(log, "a training of study 'trial' failed", "error")[0]["traceback"]
        monkeypatch.setattr("rarely.service.opened.answer_many", lambda study, calls: 1 / 0)
        reply = service.decide(2)
        assert (reply.status, "log says why" in reply.content["detail"]) == (500, True)
        assert "ZeroDivisionError" in said(log, "a request failed", "error")[0]["traceback"]
        monkeypatch.setattr("rarely.service.opened.render_study", lambda *_: 1 / 0)
        assert service.send("GET", "/studies/trial").status == 500
        assert len(said(log, "a request failed", "error")) == 2


@pytest.mark.skipif(os.name != "posix", reason="Windows has no signal that may be ignored")
def test_a_service_that_is_stopped_while_it_trains_reports_no_failure(trial, log, tmp_path, monkeypatch):
    """systemd sends SIGTERM to the training, too."""
    ignoring, up = opened.COMMAND.partition("from rarely")[0], tmp_path / "up"
    monkeypatch.setattr(opened, "COMMAND", f"{ignoring}open({str(up)!r}, 'w'); import time; time.sleep(600)  # %d")
    with serving(trial, automatic=False) as service:
        service.decide(1)
        service.post("activate", {"version": "next", "force": True})
        until(up.exists)
        service.opened.trainer._child.terminate()
        time.sleep(0.2)
        assert service.opened.trainer._child.poll() is None
    assert said(log, "ended with the service", "info")
    assert not [line for line in log() if line["level"] == "error"]


def test_requests_are_logged_without_secrets(trial, log, tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    secret = keys.add("shop", ["read"])
    with serving(trial, keys=keys, automatic=False) as service:
        service.get("status", key=secret)
        service.get("status", key=secret + "x")
        service.send("GET", "/v1/studies/a%0Ab/status?token=hidden", key=secret)
    lines = [line for line in log() if line["logger"] == "rarely.requests"]
    assert [(line["status"], line["key"]) for line in lines] == [(200, "shop"), (401, ""), (422, "shop")]
    assert lines[2]["path"] == "/v1/studies/a%0Ab/status"
    assert not any(SECRET.search(json.dumps(line)) or "hidden" in json.dumps(line) for line in log())


def test_the_log_says_who_did_what_and_for_which_client(trial, log, tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    secret = keys.add("ann", ["decide", "read", "admin"])
    with serving(trial, keys=keys, automatic=False, proxies=["127.0.0.1", "10.0.0.1"]) as service:
        headers = {"X-Request-Id": "r-17", "X-Forwarded-For": "9.9.9.9, 1.2.3.4, 10.0.0.1"}
        body = {"id": "visit-1", "contexts": contexts_of(1).tolist()}
        assert service.post("decide", body, key=secret, headers=headers).headers["X-Request-Id"] == "r-17"
        service.post("pin", {"reason": "a holiday"}, key=secret)
        service.post("unpin", {}, key=secret)
        service.post("activate", {"version": "next", "force": True, "reason": "a look"}, key=secret)
        until(lambda: not service.opened.trainer.under_way)
        service.post("activate", {"version": 0, "reason": "complaints"}, key=secret)
    (line,) = [line for line in log() if line.get("decision") == "visit-1"]
    assert (line["request"], line["client"], line["key"]) == ("r-17", "1.2.3.4", "ann")  # 9.9.9.9 is what it claims
    assert said(log, "study 'trial': pinned, version 0 is in use, by 'ann': a holiday", "info")
    assert said(log, "training of study 'trial' for 'ann': a look", "info")
    assert said(log, "training of study 'trial': version; version 1 is in use", "info")
    assert said(log, "version 0 is in use, by 'ann': complaints", "info")


def test_a_study_without_a_limit_of_versions_is_warned_of(storage, log):
    Study.create(storage, "trial", policy=LinUCB(dim=2, seed=0), arms=["a", "b", "c"]).close()
    with serving(storage):
        assert said(log, "study 'trial' has no limit of versions: name a schedule", "warning")


def test_a_client_without_a_proxy_cannot_choose_its_address(trial, log):
    with serving(trial, automatic=False) as service:
        service.get("status", headers={"X-Forwarded-For": "1.2.3.4", "X-Request-Id": "x" * 300})
    (line,) = [
        line for line in log() if line["logger"] == "rarely.requests" and line.get("path", "").endswith("status")
    ]
    assert (line["client"], len(line["request"])) == ("127.0.0.1", 16)


def test_a_refusal_of_the_database_does_not_tell_its_address(trial, monkeypatch):
    with serving(trial, automatic=False) as service:
        monkeypatch.setattr(
            Study, "ask_and_tell", lambda *_, **__: (_ for _ in ()).throw(StudyError(f"{trial} is away."))
        )
        assert service.decide(1).content["detail"] == "the database is away."


def test_passwords_are_not_shown():
    for url in (
        "postgresql://u:p%40ss@h/d",
        "postgresql://u@h/d?password=p%40ss",
        "postgresql://h/?a=1&sslpassword=p%40ss",
    ):
        assert "ss@" not in without_password(url).replace("u@h", "")
        assert "p%40" not in without_password(url)
    assert without_password("sqlite:////a/b.db?shared=1") == "sqlite:////a/b.db?shared=1"


# --- health


def test_health_needs_no_key_and_tells_no_paths_or_names(trial, tmp_path, monkeypatch):
    keys = KeyFile(tmp_path / "keys.json")
    keys.add("shop", ["decide"])
    with serving(trial, keys=keys, automatic=False) as service:
        service.opened.failure = f"{tmp_path} is broken"
        for path in ("/health", "/health/ready"):
            reply = service.send("GET", path)
            assert (reply.status, reply.content["problems"]) == (503, ["a study cannot decide"])
            assert str(tmp_path) not in reply.body.decode()
            assert "trial" not in reply.body.decode()
        assert service.send("GET", "/health/live").status == 503  # only a new process ends this


def test_a_service_that_only_a_new_process_mends_ends(trial, monkeypatch):
    """Also where nothing asks for its health: systemd starts again what has ended."""
    server = configured(trial, port=0, automatic=False)
    server.ends = True
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    server.config.app.state.studies.opened("trial").failure = "the disk did not confirm a commit"
    thread.join(PATIENCE)
    assert (thread.is_alive(), server.stopped) == (False, True)


UNSHARED = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=3m tmpfs "$1" && shift && exec "$@"', "sh"]


def test_a_full_disk_heals(tmp_path):
    """On a file system of 3 MB; where none can be mounted, the page limit of SQLite is tried below."""
    (tmp_path / "small").mkdir()
    given = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    if subprocess.run([*UNSHARED, tmp_path / "small", "true"], capture_output=True).returncode:
        warnings.warn("no file system can be mounted here, so only the page limit of SQLite is tried", stacklevel=1)
        return
    script = [sys.executable, Path(__file__).parents[1] / "full_disk.py", "."]
    done = subprocess.run(
        [*UNSHARED, ".", "env", "-C", tmp_path / "small", *script],
        cwd=tmp_path / "small",
        env=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["refused"], seen["title"], seen["still refused"]) == (503, "StudyError", 503)
    assert "was not changed, because the disk is full" in seen["detail"]
    assert (seen["live"], seen["ready"]) == (200, 503)
    assert seen["flaw"] == ""
    assert seen["decisions"] == seen["reopened"] == seen["answered"] + 1 > 100


def test_a_database_that_hangs_is_seen_and_no_request_waits_without_limit(trial, monkeypatch, log):
    monkeypatch.setattr("rarely.service.app.STALL", 0.2)
    monkeypatch.setattr("rarely.service.app.PROBE_WAIT", 0.3)
    with serving(trial, automatic=False, limits=ServiceLimits(patience=0.5)) as service:
        assert service.send("GET", "/health/ready").status == 200
        with service.opened.study._session.storage.lock:  # as a disk that does not answer
            until(lambda: service.send("GET", "/health/ready").status == 503)  # seen while nobody asks
            reply = service.decide(1)
            assert (reply.status, reply.content["title"]) == (503, "TimedOut")
            assert service.get("versions").status == 503
            ready = service.send("GET", "/health/ready")
            assert ready.content["problems"] == ["the database has not answered for 0.2 seconds"]
            assert service.send("GET", "/health/live").status == 200
            metrics = service.send("GET", "/metrics").body.decode()
            assert float(re.search(r'oldest_waiting_seconds{study="trial"} (\S+)', metrics)[1]) > 0.2
            assert "rarely_ready 0" in metrics
        until(lambda: service.send("GET", "/health/ready").status == 200)
        answer = service.decide(1)  # was on record when the database answered again
        assert (answer.status, service.status().decisions) == (200, 1)
        assert said(log, "decide was not answered within 0.5 seconds", "error")


def test_readiness_connects_again_while_nobody_else_asks(postgresql, request, monkeypatch):
    storage = postgresql.new_schema(request.node.name[5:40])
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    monkeypatch.setattr("rarely.service.opened.RECONNECT_PAUSE", 0.0)
    with serving(storage, automatic=False) as service:
        service.opened.study._session.storage._raw.close()
        assert service.decide(1).status == 503
        monkeypatch.setattr("rarely.service.app.STALL", 0.0)
        until(lambda: service.send("GET", "/health/ready").status == 200)


def test_stopped_backends_of_postgresql_are_seen_and_survived(postgresql, request, monkeypatch):
    storage = postgresql.new_schema(request.node.name[5:40])
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    monkeypatch.setattr("rarely.service.app.STALL", 0.2)
    with serving(storage, automatic=False, limits=ServiceLimits(patience=0.5)) as service:
        first = service.decide(1).body
        backend = service.opened.study._session.storage._raw.info.backend_pid
        assert service.opened.study._session.storage._raw.info.get_parameters()["tcp_user_timeout"] == "30000"
        os.kill(backend, signal.SIGSTOP)
        try:
            assert service.decide(2).status == 503
            assert service.send("GET", "/health/ready").status == 503
        finally:
            os.kill(backend, signal.SIGCONT)
        until(lambda: service.send("GET", "/health/ready").status == 200)
        assert service.decide(2).status == 200
        assert (service.decide(1).body, service.status().decisions) == (first, 2)


def test_a_statement_that_takes_too_long_is_refused(postgresql, request, monkeypatch):
    storage = postgresql.new_schema(request.node.name[5:40])
    with Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]) as study:
        with study._session.reading() as tables:
            assert tables.run("SHOW statement_timeout") == [("1min",)]
        with study._session.writing() as tables:
            assert tables.run("SHOW statement_timeout") == [("1min",)]


# --- metrics


def test_every_family_has_help_and_type_and_stands_together(served):
    served.decide(1)
    served.send("GET", "/nothing")
    body = served.send("GET", "/metrics").body.decode()
    assert body.endswith("\n")
    seen, family = [], None
    for line in body.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            seen.append(family)
        elif not line.startswith("#"):
            name = re.match(r"[a-z_]+", line)[0]
            assert name == family or name.removesuffix(name[name.rindex("_") :]) == family
            float(line.rsplit(" ", 1)[1])
    assert len(seen) == len(set(seen))
    none = {"rarely_trainings_total", "rarely_reconnects_total"}
    assert set(FAMILIES) - set(seen) == none
    assert 'rarely_requests_total{study="trial",route="decide",status="200"} 1' in body
    assert 'rarely_requests_total{study="",route="none",status="404"} 1' in body
    assert 'rarely_request_seconds_count{study="trial",route="decide"} 1' in body
    assert 'rarely_queue_seconds_count{study="trial"} 1' in body


def test_a_histogram_counts_up_to_each_bound():
    meters = Meters(study='a"b')
    meters.observe("rarely_queue_seconds", 0.001, 0.002, 99.0)
    lines = meters.lines()
    assert r'rarely_queue_seconds_bucket{study="a\"b",le="0.001"} 1' in lines
    assert r'rarely_queue_seconds_bucket{study="a\"b",le="30.0"} 2' in lines
    assert r'rarely_queue_seconds_bucket{study="a\"b",le="+Inf"} 3' in lines
    assert r'rarely_queue_seconds_count{study="a\"b"} 3' in lines
    with pytest.raises(KeyError):
        exposition([sample("nameless", 1)])


def names_of(text):
    return set(re.findall(r"\b(?:rarely|process)_[a-z_]+", text))


def test_grafana_and_the_alerts_use_metrics_that_exist(served):
    served.decide(1)
    body = served.send("GET", "/metrics").body.decode() + "\nrarely_trainings_total "
    exist = {re.match(r"[a-z_]+", line)[0] for line in body.splitlines() if line and not line.startswith("#")}
    board = json.loads((EXAMPLES / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    rules = [
        rule["expr"]
        for group in yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len(queries) >= 10
    assert len(rules) >= 6
    used = set().union(*map(names_of, queries + rules))
    assert used - exist == set()
    page = (EXAMPLES.parents[1] / "docs" / "operations.md").read_text()
    assert set(re.findall(r"`((?:rarely|process)_[a-z_]+)`", page)) <= set(FAMILIES)


def metric(service, name, **labels):
    inside = ",".join(f'{key}="{value}"' for key, value in ({"study": "trial"} | labels).items())
    lines = service.send("GET", "/metrics").body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}{{{inside}}} ")]
    return float(line.rpartition(" ")[2])


def test_rewards_are_summed_by_version_and_a_fall_between_updates_is_seen(trial, monkeypatch):
    monkeypatch.setattr("rarely.service.dashboard.BLOCK", 50)
    monkeypatch.setattr("rarely.service.opened.STATUS_LIFETIME", -1.0)
    noise = np.random.default_rng(0)

    def tell(count, chance):
        """Rewards of new decisions, and a look at them now and then."""
        for _ in range(count):
            asked = [(contexts_of(n),) for n in range(25)]
            answers = study.ask_many(asked)
            study.tell_many([(answer.id, float(noise.random() < chance)) for answer in answers])
            assert service.get("status").status == 200

    with serving(trial, automatic=False) as service:
        study = service.opened.study
        tell(12, 0.7)
        assert metric(service, "rarely_reward_count", version="0") == 300
        assert metric(service, "rarely_reward_sum", version="0") == sum(r for r in study.log().rewards)
        assert metric(service, "rarely_rewards_fell") == 0
        tell(6, 0.28)
        assert metric(service, "rarely_rewards_fell") == 1
        study.update()
        tell(1, 0.28)
        assert metric(service, "rarely_rewards_fell") == 0
        assert metric(service, "rarely_reward_count", version="1") == 25


# --- limits before a key is read


def raw_connection(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)


def status_of(raw):
    return int(raw.recv(1000).split()[1])


def test_half_requests_are_closed_and_do_not_keep_others_out(trial):
    limits = ServiceLimits(arrival=0.3, connections=60)
    with serving(trial, automatic=False, limits=limits) as service:
        halves = [raw_connection(service) for _ in range(50)]
        body = b"POST /v1/studies/trial/decide HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        for number, half in enumerate(halves):  # no byte, half a head, half a body
            half.sendall((b"", b"GET / HTTP/1.1\r\nHost:", body)[number % 3])
        assert service.decide(1).status == 200
        assert {status_of(half) for half in halves[:2]} == {408}
        until(lambda: not service.server.server_state.connections)
        for half in halves:
            half.close()
        assert not service.server.config.http.addresses


def test_a_connection_that_is_kept_alive_has_the_limit_for_each_request(trial):
    with serving(trial, automatic=False, limits=ServiceLimits(arrival=0.4)) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
        for _ in range(3):
            connection.request("GET", "/health/live")
            assert json.loads(connection.getresponse().read())["status"] == "ok"
            time.sleep(0.5)
        connection.sock.sendall(b"GET /health/live HTTP/1.1\r\nHost:")
        assert status_of(connection.sock) == 408
        connection.close()


@pytest.mark.parametrize("where", ["header", "path", "trailer"])
def test_a_long_head_is_refused_before_it_takes_memory(shared, where):
    before = {"header": b"GET / HTTP/1.1\r\nX: ", "path": b"GET /"}
    before["trailer"] = b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: "
    sent = 0
    with raw_connection(shared) as raw:
        raw.sendall(before[where])
        try:
            for _ in range(200):
                sent += raw.send(b"x" * 50_000)
        except (ConnectionError, TimeoutError):
            pass
        assert sent < 200 * 50_000
    assert shared.send("GET", "/health/live").status == 200


def test_a_long_head_is_told_so(shared):
    with raw_connection(shared) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000)
        assert status_of(raw) == 431
    assert shared.get("status", headers={"X": "x" * 60_000}).status == 200


def test_an_address_may_have_so_many_connections(trial):
    with serving(trial, automatic=False, limits=ServiceLimits(connections=3)) as service:
        kept = [raw_connection(service) for _ in range(3)]
        for each in kept:
            each.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status_of(each) == 200
        with raw_connection(service) as further:
            assert status_of(further) == 429
        if sys.platform == "linux":  # where all of 127.0.0.0/8 is this machine
            other = ("127.0.0.2", 0)
            with socket.create_connection(("127.0.0.1", service.port), PATIENCE, source_address=other) as further:
                further.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert status_of(further) == 200
        for each in kept:
            each.close()
        until(lambda: not service.server.server_state.connections)
        assert service.decide(1).status == 200


def test_no_redirect_leads_to_the_host_that_a_request_names(shared):
    reply = shared.send("GET", "/v1/studies/trial/status/", headers={"Host": "evil.example"})
    assert (reply.status, reply.headers["location"]) == (404, None)


def test_a_client_that_goes_away_is_not_an_error(served, log):
    with raw_connection(served) as raw:
        head = b"POST /v1/studies/trial/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        raw.sendall(head + b"Content-Length: 100\r\n\r\n{")
    until(lambda: any(line.get("status") == 499 for line in log()))
    assert not [line for line in log() if line["level"] == "error"]


def test_a_study_is_not_named_with_a_slash(storage):
    from rarely.study import InvalidId

    for name in ("a/b", "..", "."):
        with pytest.raises(InvalidId, match="part of addresses"):
            Study.create(storage, name, policy=linear(), arms=["a", "b"])
    assert not Path(storage.removeprefix("sqlite:///")).exists()
    Study.create(storage, "50 % é?#", policy=linear(), arms=["a", "b"]).close()
    with serving(storage, automatic=False) as service:
        assert service.send("GET", "/v1/studies/50%20%25%20%C3%A9%3F%23/status").status == 200


def test_whatever_keeps_the_probe_from_reading_is_not_ready(trial, monkeypatch):
    with serving(trial, automatic=False) as service:
        monkeypatch.setattr(type(service.opened.study), "status", lambda self: 1 / 0)
        assert service.send("GET", "/health/ready").status == 503
