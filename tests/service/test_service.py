"""What the service promises: one answer for each id, nothing accepted is dropped, decisions go on during an update."""

import importlib
import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rarely.service import ServiceLimits
from rarely.service.opened import Trainer
from rarely.service.server import configured
from rarely.study import BrokenStudy, Stage, Study, StudyFailed, train
from services import PATIENCE, Served, serving, until
from studies import contexts_of, linear

THREADS = 64


def test_answers_are_those_of_the_study_without_a_server(served, tmp_path):
    with Study.create("memory://beside", "trial", policy=linear(), arms=["a", "b", "c"]) as beside:
        for number in range(5):
            expected = beside.ask(contexts_of(number), id=f"visit-{number}").describe()
            answer = served.decide(number).content
            for name in ("seq", "time"):
                del answer[name], expected[name]
            assert answer == expected


def test_64_threads_with_one_id_get_one_answer_and_one_row(served):
    gate = threading.Barrier(THREADS, timeout=PATIENCE)

    def one(number):
        gate.wait()
        same = served.decide(1, id="one")
        reward = served.post("reward", {"id": "one", "reward": 1.0})
        own = served.decide(2, id=f"own-{number}")
        return same.body, reward.content["status"], own.status

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(one, range(THREADS)))
    assert len({same for same, _, _ in found}) == 1
    assert sorted(status for _, status, _ in found) == ["accepted"] + ["duplicate"] * (THREADS - 1)
    assert {status for _, _, status in found} == {200}
    assert served.status().decisions == 1 + THREADS
    assert served.opened.study.verify().whole


def test_many_in_one_request_share_a_commit_and_are_answered_each(served):
    requests = [{"id": f"v{number}", "contexts": contexts_of(number).tolist()} for number in range(20)]
    requests[7]["contexts"] = [[1.0]]
    answers = served.post("decide", {"requests": requests}).content["answers"]
    assert [answer.get("id") for answer in answers] == [f"v{n}" if n != 7 else None for n in range(20)]
    assert answers[7]["title"] == "InvalidContexts"
    rewards = [{"id": f"v{number}", "reward": 1.0} for number in range(20)]
    receipts = served.post("reward", {"rewards": rewards}).content["receipts"]
    assert [receipt["status"] for receipt in receipts] == ["quarantined" if n == 7 else "accepted" for n in range(20)]
    assert 'rarely_group_size_count{study="trial"} 2' in served.opened.meters.lines()


def test_the_same_id_with_another_body_is_a_conflict(served):
    assert served.decide(1, id="one").status == 200
    reply = served.decide(2, id="one")
    assert (reply.status, reply.content["title"]) == (409, "StudyConflict")


def test_decisions_go_on_under_the_old_version_during_an_update(served, monkeypatch):
    for number in range(6):
        served.decide(number)
        served.post("reward", {"id": f"visit-{number}", "reward": float(number % 2)})
    begun, gate, train_elsewhere = threading.Event(), threading.Event(), Trainer._elsewhere

    def slowly(self, job):
        begun.set()
        assert gate.wait(PATIENCE)
        return train_elsewhere(self, job)

    monkeypatch.setattr(Trainer, "_elsewhere", slowly)
    assert served.post("activate", {"version": "next", "reason": "a test"}).status == 202
    assert begun.wait(PATIENCE)
    answers = [served.decide(number).content for number in range(100, 110)]
    assert {answer["version"] for answer in answers} == {0}
    again = served.post("activate", {"version": "next"})
    assert (again.status, again.content["title"]) == (409, "StudyBusy")
    gate.set()
    until(lambda: not served.opened.trainer.under_way)
    assert served.decide(200).content["version"] == 1
    assert [served.decide(number).content for number in range(100, 110)] == answers
    versions = served.get("versions").content["versions"]
    assert [(row["number"], row["parent"]) for row in versions] == [(0, None), (1, 0)]
    assert served.opened.study.replay().equal


def test_a_class_of_ones_own_is_trained_in_the_other_process_too(storage, tmp_path, monkeypatch):
    """As in `rarely serve … --import my_model`: the other process finds the module in the same folder."""
    (tmp_path / "my_model.py").write_text("from rarely import LinTS\n\n\nclass Timid(LinTS):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("my_model").Timid(dim=2, seed=0)
    Study.create(storage, "trial", policy=policy, arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        service.decide(1)
        service.post("reward", {"id": "visit-1", "reward": 1.0})
        assert service.post("activate", {"version": "next"}).status == 202
        until(lambda: not service.opened.trainer.under_way)
        assert service.decide(2).content["version"] == 1


def test_the_next_version_is_trained_when_the_schedule_ends_a_batch(storage, monkeypatch):
    monkeypatch.setattr(Trainer, "_elsewhere", lambda self, job: train(job))
    Study.create(storage, "trial", policy=linear(batches=200), arms=["a", "b", "c"]).close()
    with serving(storage) as service:
        for number in range(6):
            service.decide(number)
            service.post("reward", {"id": f"visit-{number}", "reward": 1.0})
        until(lambda: any('outcome="version"' in line for line in service.opened.metrics()))
        assert service.decide(10).content["version"] >= 1


def test_a_candidate_is_approved_or_dismissed_and_a_version_rolled_back(storage, monkeypatch):
    monkeypatch.setattr(Trainer, "_elsewhere", lambda self, job: train(job))
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"], stages=[Stage("main", approval=True)]).close()
    with serving(storage, automatic=False) as service:
        service.decide(1)
        service.post("reward", {"id": "visit-1", "reward": 1.0})
        for verb, body, version in (("dismiss", {}, 0), ("activate", {"version": "candidate"}, 1)):
            assert service.post("activate", {"version": "next", "force": True}).status == 202
            until(lambda: not service.opened.trainer.under_way)
            assert service.opened.study.status().candidate is not None
            assert service.post(verb, body).content["version"] == version
        assert service.post("activate", {"version": 0, "reason": "too bold"}).content["version"] == 0
        assert service.post("activate", {"version": 7}).status == 422
        assert service.post("dismiss", {}).status == 409
        assert service.post("pin", {}).status == 200
        assert service.status().pinned
        assert service.post("unpin", {"reason": "go on"}).status == 200


def test_a_training_process_that_dies_gives_the_lease_back(served, monkeypatch):
    served.decide(1)
    monkeypatch.setattr("sys.executable", "/bin/false")
    served.post("activate", {"version": "next", "force": True})
    until(lambda: not served.opened.trainer.under_way)
    assert "ended with code 1" in served.opened.trainer.last_error
    assert served.status().trainer == ""
    assert served.decide(2).content["version"] == 0


class Stuck:
    """Holds the writer in the middle of a commit until the test lets go."""

    def __init__(self, service, monkeypatch):
        self.held, self.gate = threading.Event(), threading.Event()
        answer = service.opened.writer._answer

        def wait(calls):
            self.size = len(calls)
            self.held.set()
            assert self.gate.wait(PATIENCE)
            return answer(calls)

        monkeypatch.setattr(service.opened.writer, "_answer", wait)


def test_a_full_queue_refuses_and_drops_nothing_that_it_took(storage, monkeypatch):
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with (
        serving(storage, limits=ServiceLimits(waiting=5), automatic=False) as service,
        ThreadPoolExecutor(40) as threads,
    ):
        stuck = Stuck(service, monkeypatch)
        first = threads.submit(service.decide, 0)
        assert stuck.held.wait(PATIENCE)
        others = [threads.submit(service.decide, number) for number in range(1, 30)]
        until(lambda: sum(other.done() for other in others) == 24)
        refused = [other.result() for other in others if other.done()]
        assert {reply.status for reply in refused} == {429}
        assert {reply.headers["retry-after"] for reply in refused} == {"1"}
        assert service.opened.writer.waiting == 5
        stuck.gate.set()
        accepted = [other.result() for other in (first, *others) if other.result().status == 200]
        assert len(accepted) == 6
        assert service.status().decisions == 6
        counted = service.send("GET", "/metrics").body.decode()
        assert 'rarely_requests_total{study="trial",route="decide",status="429"} 24' in counted


def test_a_stopping_service_answers_what_it_took(storage, monkeypatch):
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with ThreadPoolExecutor(10) as threads:
        with serving(storage, automatic=False) as service:
            stuck = Stuck(service, monkeypatch)
            replies = [threads.submit(service.decide, number) for number in range(8)]
            assert stuck.held.wait(PATIENCE)
            until(lambda: service.opened.writer.waiting + stuck.size == 8)
            service.server.should_exit = True
            time.sleep(0.2)
            stuck.gate.set()
        assert {reply.result().status for reply in replies} == {200}
    with Study.open(storage) as study:
        assert study.status().decisions == 8


def test_a_commit_that_fails_stops_the_study_and_health_says_so(served, monkeypatch):
    def fail(calls):
        raise StudyFailed("the disk did not confirm.")

    study = served.opened
    monkeypatch.setattr("rarely.service.opened.answer_many", lambda study, calls: fail(calls))
    assert served.send("GET", "/health").status == 200
    reply = served.decide(1)
    assert (reply.status, reply.content["title"]) == (503, "StudyFailed")
    monkeypatch.undo()
    assert served.decide(2).status == 503
    assert served.get("status").status == 503
    health = served.send("GET", "/health")
    assert (health.status, health.content["status"]) == (503, "failed")
    assert study.study.status().decisions == 0


def test_a_request_that_breaks_something_does_not_break_those_of_others(served, monkeypatch):
    from rarely.service import opened

    answer, gate = opened.answer_many, threading.Barrier(8, timeout=PATIENCE)

    def poisoned(study, calls):
        if any(call.id == "visit-3" for call in calls):
            raise ZeroDivisionError
        return answer(study, calls)

    def one(number):
        gate.wait()
        return served.decide(number).status

    monkeypatch.setattr(opened, "answer_many", poisoned)
    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(one, range(8)))
    assert statuses == [500 if number == 3 else 200 for number in range(8)]
    assert served.status().decisions == 7


def test_metrics_are_as_prometheus_reads_them(served):
    for number in range(3):
        served.decide(number)
    lines = served.send("GET", "/metrics").body.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['rarely_answers_total{study="trial",kind="decision"}'] == "3"
    assert (
        values['rarely_group_size_bucket{study="trial",le="+Inf"}'] == values['rarely_group_size_count{study="trial"}']
    )
    assert float(values['rarely_decisions{study="trial"}']) == 3
    assert all(float(value) >= 0 for value in values.values())
    assert values['rarely_alarm_raised{study="trial",kind="rewards"}'] == "0"
    assert values['rarely_alarms_total{study="trial",kind="missing"}'] == "0"


def altered(storage, tmp_path, name):
    """A study whose record was altered behind its back."""
    with Study.create(storage, name, policy=linear(), arms=["a", "b", "c"]) as study:
        study.ask(contexts_of(1), id="one")
    raw = sqlite3.connect(tmp_path / "trial.db")
    raw.execute("DROP TRIGGER rarely_events_no_update")
    raw.execute("UPDATE rarely_events SET body = replace(body, '\"arm\":', '\"arm\": ') WHERE kind = 'decide'")
    raw.commit()
    raw.close()


def test_a_damaged_study_is_not_served(storage, tmp_path):
    altered(storage, tmp_path, "trial")
    with pytest.raises(BrokenStudy, match="Use a backup"):
        configured(storage)


def test_a_damaged_study_does_not_keep_others_from_being_served(storage, tmp_path):
    altered(storage, tmp_path, "damaged")
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        assert service.send("GET", "/health/ready").status == 200
        assert service.decide(1).status == 200
        for _ in range(2):
            reply = service.send("GET", "/v1/studies/damaged/status")
            assert (reply.status, reply.content["title"]) == (503, "BrokenStudy")
        metrics = service.send("GET", "/metrics").body.decode()
        assert 'rarely_healthy{study="damaged"} 0' in metrics
        assert 'rarely_healthy{study="trial"} 1' in metrics


def test_damage_that_is_found_later_does_not_keep_others_from_being_served(storage, tmp_path):
    for name in ("trial", "second"):
        Study.create(storage, name, policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        assert service.decide(1).status == 200
        raw = service.opened.study._session.storage._raw
        raw.execute("DROP TRIGGER rarely_events_no_delete")
        raw.execute("DELETE FROM rarely_events WHERE kind = 'decide'")
        assert service.get("status").status == 503
        assert service.send("GET", "/health/ready").status == 200
        assert service.send("GET", "/v1/studies/second/status").status == 200
        assert 'rarely_healthy{study="trial"} 0' in service.send("GET", "/metrics").body.decode()


def test_a_service_lives_while_it_opens_its_studies(storage, monkeypatch):
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    opened, gate = Study.open.__func__, threading.Event()
    monkeypatch.setattr(Study, "open", lambda *given, **more: (gate.wait(PATIENCE), opened(Study, *given, **more))[1])
    monkeypatch.setattr("rarely.service.opened.START_WAIT", 0.01)
    server = configured(storage, port=0, automatic=False)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    service = Served(server, server.servers[0].sockets[0].getsockname()[1])
    try:
        assert service.send("GET", "/health/live").status == 200
        ready = service.send("GET", "/health/ready")
        assert (ready.status, ready.content["problems"]) == (503, ["studies are being opened"])
        reply = service.decide(1)
        assert (reply.status, reply.content["title"]) == (503, "Opening")
        gate.set()
        until(lambda: service.send("GET", "/health/ready").status == 200)
        assert service.decide(1).status == 200
    finally:
        gate.set()
        server.should_exit = True
        thread.join(PATIENCE)


def test_a_study_made_later_is_served_too(served, storage):
    assert served.send("GET", "/v1/studies/second/status").status == 404
    Study.create(storage, "second", policy=linear(), arms=["x", "y"]).close()
    reply = served.send("POST", "/v1/studies/second/decide", {"contexts": {"x": [1, 0], "y": [0, 1]}})
    assert reply.status == 200
    assert json.loads(served.send("GET", "/v1/studies/second/status").body)["decisions"] == 1
