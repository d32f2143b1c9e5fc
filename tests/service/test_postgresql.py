"""Several services of one PostgreSQL database, and a server that goes away."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rarely.service.opened import Trainer
from rarely.study import Study, train
from services import PATIENCE, serving, until
from studies import linear

THREADS = 64


@pytest.fixture
def storage(postgresql, request):
    storage = postgresql.new_schema(request.node.name[5:40])
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    return storage


def test_two_services_and_64_threads_give_one_id_one_answer(storage):
    with serving(storage, automatic=False) as first, serving(storage, automatic=False) as second:
        gate = threading.Barrier(THREADS, timeout=PATIENCE)

        def one(number):
            service = (first, second)[number % 2]
            gate.wait()
            return service.decide(1, id="one").body, service.decide(2, id=f"own-{number}").status

        with ThreadPoolExecutor(THREADS) as threads:
            found = list(threads.map(one, range(THREADS)))
        assert len({body for body, _ in found}) == 1
        assert {status for _, status in found} == {200}
        assert first.status().decisions == second.status().decisions == 1 + THREADS
        assert first.opened.study.verify().whole


def test_a_version_that_one_service_trained_decides_in_the_other(storage, monkeypatch):
    monkeypatch.setattr(Trainer, "_elsewhere", lambda self, job: train(job))
    with serving(storage, automatic=False) as first, serving(storage, automatic=False) as second:
        first.decide(1)
        second.post("reward", {"id": "visit-1", "reward": 1.0})
        assert first.post("activate", {"version": "next"}).status == 202
        until(lambda: not first.opened.trainer.under_way)
        assert second.decide(2).content["version"] == 1


def test_a_lost_connection_is_made_again_and_the_same_id_is_answered_as_before(storage, monkeypatch):
    monkeypatch.setattr("rarely.service.opened.RECONNECT_PAUSE", 0.0)
    with serving(storage, automatic=False) as service:
        answer = service.decide(1).body
        service.opened.study._session.storage._raw.close()
        lost = service.decide(2)
        assert (lost.status, lost.content["title"]) == (503, "StudyFailed")
        assert service.send("GET", "/health").status == 503  # and the probe has connected again
        assert service.decide(1).body == answer
        assert service.decide(2).status == 200
        assert service.send("GET", "/health").status == 200
        assert service.status().decisions == 2
