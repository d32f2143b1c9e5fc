"""Keys and scopes: every route is refused without its scope, and a service off this machine without keys."""

import base64
import json
import os
import shutil
import stat
import tempfile
import time
from types import SimpleNamespace

import pytest

from rarely import LinTS
from rarely._core.errors import InvalidInput
from rarely.service import SCOPES, KeyFile
from rarely.service.access import is_loopback
from rarely.service.app import PUBLIC
from rarely.service.server import configured
from rarely.study import AnalysisPlan, RewardRule, Stage, Study
from services import serving
from studies import contexts_of, linear

BODIES = {
    "decide": {"contexts": contexts_of(1).tolist()},
    "reward": {"id": "visit-1", "reward": 1.0},
    "activate": {"version": 0},
    "erase": {"ids": ["nobody"]},
    "prune": {"before": 1},
}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """A service with a key for each scope, and their secrets."""
    folder = tmp_path_factory.mktemp("keys")
    Study.create("memory://keyed", "trial", policy=linear(), arms=["a", "b", "c"])
    file = KeyFile(folder / "keys.json")
    secrets = {scope: file.add(f"only-{scope}", [scope]) for scope in SCOPES}
    with serving("memory://keyed", keys=file, automatic=False) as service:
        yield service, file, secrets


def test_two_people_close_an_arm_and_only_some_see_arms(tmp_path):
    """Who takes looks, who agrees to closings and who may be unblinded are keys of their own."""
    plan, rule = AnalysisPlan(40, looks=2), RewardRule(least=0.0, most=1.0)
    policy = LinTS(dim=2, seed=0)
    settings = {"arms": ["placebo", "drug", "both"], "control": "placebo", "rewards": rule, "plan": plan}
    study = Study.create("memory://roles", "trial", policy=policy, stages=[Stage("main", least=0.1)], **settings)
    answers = study.ask_many([(contexts_of(i), f"{i}") for i in range(20)])
    study.tell_many([(answer.id, float(answer.index)) for answer in answers])
    file = KeyFile(tmp_path / "keys.json")
    roles = {"ann": ["look"], "bob": ["approve"], "eve": ["approve"], "may": ["blinded"], "joe": ["approve"]}
    keys = {
        name: file.add(name, scopes, studies=["other"] if name == "joe" else None) for name, scopes in roles.items()
    }
    with serving("memory://roles", keys=file, automatic=False) as service:

        def send(verb, body, name):
            return service.send("POST", f"/v1/studies/trial/{verb}", body, key=keys[name])

        assert send("look", {"reason": "board"}, "ann").content["outcome"] == "taken"
        assert send("look", {}, "ann").status == 422  # none is due
        assert send("look", {}, "may").status == 403
        seen = service.send("GET", "/studies/trial/blinded", key=keys["may"]).body.decode()
        assert "20 of 40 decisions" in seen
        assert not any(arm in seen for arm in settings["arms"])
        assert service.send("GET", "/studies/trial/analysis", key=keys["may"]).status == 403
        for wrong in (keys["bob"], keys["ann"], keys["joe"], "rk_nobody_x"):
            refused = send("close", {"arm": "drug", "approval": wrong}, "bob")
            assert (refused.status, refused.content["title"]) in ((403, "ApprovalNeeded"), (409, "ApprovalNeeded"))
            assert wrong not in refused.body.decode()
        assert send("close", {"arm": "drug", "approval": keys["eve"]}, "bob").content["outcome"] == "closed"
        assert send("close", {"arm": "none", "approval": keys["eve"]}, "bob").status == 422
        assert send("close", {"approval": keys["eve"], "reason": "done"}, "bob").status == 200
    event = next(event for event in study.events() if event.kind == "close")
    assert (event.actor, event.content["approved_by"]) == ("bob", "eve")


def operations(schema):
    """Method, path and scope of every route, as the description of the API says."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            scopes = [scope for need in operation.get("security", ()) for scope in need["key"]]
            yield method.upper(), path.replace("{name}", "trial"), scopes[0] if scopes else PUBLIC


def body_of(method, path):
    return None if method == "GET" else BODIES.get(path.rsplit("/", 1)[-1], {})


def test_every_route_is_refused_without_its_scope(keyed):
    service, _, secrets = keyed
    seen = set()
    for method, path, scope in operations(service.schema):
        if scope == PUBLIC:
            assert path in ("/health", "/health/live", "/health/ready", "/openapi.json")
            assert service.send(method, path).status == 200
            continue
        before = service.status().events
        assert service.send(method, path, body_of(method, path)).status == 401
        assert service.send(method, path, body_of(method, path), key="rk_nobody_x").status == 401
        for other, secret in secrets.items():
            if other != scope:
                reply = service.send(method, path, body_of(method, path), key=secret)
                assert (reply.status, reply.content["title"]) == (403, "ScopeMissing"), (path, other)
        assert service.status().events == before
        reply = service.send(method, path, body_of(method, path), key=secrets[scope])
        # A button sends a form, not JSON; what is no trial has no looks, and nobody agreed to close it.
        well = (415,) if path.endswith("/act") else (200, 202, 409)
        well = (204, 404, 422) if "/personalizer/" in path else well  # this study is not asked by columns
        trial = path.rsplit("/", 1)[-1] in ("blinded", "look", "close") and "ScopeMissing" not in reply.body.decode()
        assert reply.status in well or trial, path
        seen.add(scope)
    assert seen == set(SCOPES)


def test_every_route_of_the_application_is_described_with_a_scope(keyed):
    service, _, _ = keyed
    app = service.server.config.app
    described = {(method, path) for method, path, _ in operations(service.schema)}
    routed = {
        (method, route.path.replace("{name}", "trial")) for route in app.routes for method in route.methods - {"HEAD"}
    }
    assert routed == described


def test_a_key_is_the_actor_of_what_is_done_with_it(keyed):
    service, _, secrets = keyed
    reply = service.post("decide", {"id": "signed", "contexts": contexts_of(2).tolist()}, key=secrets["decide"])
    assert reply.status == 200
    assert service.opened.study.decision("signed").actor == "only-decide"


def test_a_browser_may_send_the_key_as_a_password(keyed):
    service, _, secrets = keyed
    basic = base64.b64encode(f"me:{secrets['read']}".encode()).decode()
    assert service.get("status", headers={"Authorization": f"Basic {basic}"}).status == 200
    assert service.get("status", headers={"Authorization": "Basic !!!"}).status == 401
    refused = service.get("status")
    assert "Basic" in refused.headers["www-authenticate"]


def test_keys_are_hashed_and_revoked_while_the_service_runs(keyed):
    service, file, _ = keyed
    first = file.add("shop", ["read"])
    with open(file.path, encoding="utf-8") as opened:
        text = opened.read()
    assert first not in text
    assert first.split("_", 2)[2] not in text  # the secret itself may contain underscores
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    assert service.get("status", key=first).status == 200
    second = file.add("shop-2", ["read"])
    assert [service.get("status", key=key).status for key in (first, second)] == [200, 200]
    file.revoke("shop")
    assert [service.get("status", key=key).status for key in (first, second)] == [401, 200]


def test_an_expired_key_is_refused(tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    secret = file.add("guest", ["read"], expires=1000.0)
    assert file.find(secret, now=999.0).name == "guest"
    assert file.find(secret, now=1000.0) is None


@pytest.mark.parametrize(("name", "scopes"), [("Shop", ["read"]), ("", ["read"]), ("shop", []), ("shop", ["root"])])
def test_a_key_needs_a_name_and_scopes(tmp_path, name, scopes):
    with pytest.raises(InvalidInput):
        KeyFile(tmp_path / "keys.json").add(name, scopes)
    assert not (tmp_path / "keys.json").exists()


def test_a_file_that_holds_no_keys_is_refused(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps([1, 2]))
    with pytest.raises(InvalidInput, match="not a file of API keys"):
        KeyFile(path).all()


KEY = '{"keys": [{"name": "x", "hash": "%s", "scopes": [], "created": 0, "rate": %s}]}'


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"keys": [{"name": "x"}]}', "[" * 100_000, KEY % ("é", 1), KEY % ("0", 0), None]
)
def test_a_damaged_file_keeps_the_last_good_keys_and_is_an_alarm(tmp_path, text, caplog):
    Study.create("memory://damaged", "trial", policy=linear(), arms=["a", "b", "c"])
    file = KeyFile(tmp_path / "keys.json")
    secret = file.add("shop", ["read"])
    good = (tmp_path / "keys.json").read_bytes()
    with serving("memory://damaged", keys=KeyFile(file.path), automatic=False) as service:
        if text is None:
            os.remove(file.path)
        else:
            (tmp_path / "keys.json").write_text(text)
        for _ in range(3):
            assert service.get("status", key=secret).status == 200
            assert service.get("status", key="rk_nobody_x").status == 401
        assert service.send("GET", "/health/ready").status == 200  # it can decide
        assert "rarely_keys_valid 0" in service.send("GET", "/metrics", key=secret).body.decode()
        assert len([record for record in caplog.records if "last good keys" in record.message]) == 1
        if text is not None:
            with pytest.raises(InvalidInput, match="not a file of API keys"):
                file.add("other", ["read"])  # nothing is written over what may be mended
            assert (tmp_path / "keys.json").read_text() == text
        (tmp_path / "keys.json").write_bytes(good)
        assert service.get("status", key=secret).status == 200
        assert "rarely_keys_valid 1" in service.send("GET", "/metrics", key=secret).body.decode()


def as_user(uid, call):
    """What a call returns, or the error that it raises, in a process of another user, which only root can start."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = call()
        except Exception as error:
            said = error
        os.write(writing, str(said).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root changes users")
def test_root_may_add_and_revoke_the_keys_of_the_services_user():
    folder, user = tempfile.mkdtemp(prefix="rarely-keys-"), 65534
    try:
        os.chown(folder, user, user)
        path = os.path.join(folder, "keys.json")
        first = as_user(user, lambda: KeyFile(path).add("shop", ["read"]))
        assert KeyFile(path).find(first)
        made = KeyFile(path).add("ann", ["read"])  # as root
        kept = os.stat(path)
        assert (kept.st_uid, kept.st_gid, kept.st_mode & 0o777) == (user, user, 0o600)
        assert "ann" in as_user(user, lambda: KeyFile(path).find(made))
        KeyFile(path).revoke("ann")
        assert as_user(user, lambda: KeyFile(path).find(made)) == "None"
        os.chmod(folder, 0o777)
        os.chmod(path, 0o644)
        assert "belongs to another user" in as_user(65533, lambda: KeyFile(path).add("eve", ["read"]))
        os.chmod(path, 0o600)
        assert "chown USER" in as_user(65533, lambda: KeyFile(path).find(made))
    finally:
        shutil.rmtree(folder)


def test_a_key_file_that_cannot_be_read_says_that_revoked_keys_still_work(tmp_path, caplog, monkeypatch):
    file = KeyFile(tmp_path / "keys.json")
    secret = file.add("shop", ["read"])
    reader = KeyFile(file.path)
    assert reader.find(secret)
    file.revoke("shop")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert reader.find(secret)
    assert "also those revoked since" in caplog.text
    monkeypatch.undo()
    assert reader.find(secret) is None


def test_a_key_may_be_for_single_studies(tmp_path):
    storage = "memory://single"
    for name in ("trial", "other"):
        Study.create(storage, name, policy=linear(), arms=["a", "b", "c"])
    file = KeyFile(tmp_path / "keys.json")
    secret = file.add("shop", ["decide", "read"], studies=["trial"])
    with serving(storage, keys=file, automatic=False) as service:
        body = {"contexts": contexts_of(1).tolist()}
        assert service.post("decide", body, key=secret).status == 200
        for name in ("other", "nobody"):
            reply = service.send("POST", f"/v1/studies/{name}/decide", body, key=secret)
            assert (reply.status, reply.content["title"]) == (403, "StudyNotAllowed")
            assert service.send("GET", f"/studies/{name}", key=secret).status == 403
        for path in ("/", "/metrics"):
            text = service.send("GET", path, key=secret).body.decode()
            assert ("trial" in text, "other" in text.replace("others", "")) == (True, False)


def test_a_key_may_have_a_rate(tmp_path, monkeypatch):
    Study.create("memory://rate", "trial", policy=linear(), arms=["a", "b", "c"])
    now = [1000.0]
    file = KeyFile(tmp_path / "keys.json")
    secret, free = file.add("shop", ["decide", "reward"], rate=8.0), file.add("free", ["reward"])
    with serving("memory://rate", keys=file, automatic=False) as service:
        clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
        monkeypatch.setattr("rarely.service.access.time", clock)
        body = {"contexts": contexts_of(1).tolist()}
        found = [service.post("decide", body, key=secret) for _ in range(11)]
        assert [reply.status for reply in found] == [200] * 9 + [429] * 2  # a second's worth, and one in advance
        assert (found[-1].content["title"], found[-1].headers["retry-after"]) == ("RateExceeded", "1")
        now[0] += 5.0
        many = {"rewards": [{"id": "nobody", "reward": float(i)} for i in range(40)]}
        assert service.post("reward", many, key=secret).status == 200  # counts 40 times
        refused = service.post("decide", body, key=secret)
        assert (refused.status, refused.headers["retry-after"]) == (429, "4")
        assert [service.post("reward", many, key=free).status for _ in range(5)] == [200] * 5
        now[0] += 4.1
        assert service.post("decide", body, key=secret).status == 200


def test_off_this_machine_keys_are_demanded(tmp_path):
    Study.create("memory://keyed", "trial", policy=linear(), arms=["a", "b", "c"])
    with pytest.raises(InvalidInput, match="API keys are needed"):
        configured("memory://keyed", host="0.0.0.0")
    with pytest.raises(InvalidInput, match="has no API keys"):
        configured("memory://keyed", host="0.0.0.0", keys=KeyFile(tmp_path / "none.json"))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.1.2", "example.org", "127.0.0.1.example.org", "")))
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST")))


def test_without_keys_another_name_than_this_machines_is_refused(shared):
    for host, status in (
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("rebound.example", 421),
        ("", 421),
        ("[", 421),
    ):
        assert shared.get("status", headers={"Host": host}).status == status


def test_the_address_is_told_once_the_service_listens_there_and_only_then():
    Study.create("memory://announced", "trial", policy=linear(), arms=["a", "b", "c"])
    told = []
    with serving("memory://announced", announce=told.append) as service:
        assert told == [f"http://127.0.0.1:{service.port}"]
        other = configured("memory://announced", port=service.port)
        other.announce = told.append
        with pytest.raises(SystemExit):  # uvicorn has logged that the port is taken
            other.run()
    assert len(told) == 1
