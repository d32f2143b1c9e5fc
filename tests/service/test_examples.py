"""The examples of the service, and the commands that serve and make keys."""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rarely._cli import app
from rarely.service import KeyFile
from services import serving

EXAMPLES = Path(__file__).parents[2] / "examples" / "service"


def compose():
    return yaml.safe_load((EXAMPLES / "compose.yaml").read_text())


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "300"})


@pytest.fixture
def banners(storage, tmp_path):
    """A service of the study that the examples use, which asks for keys; and a key with all scopes."""
    made = command("study", "create", storage, "--name", "banners", "--file", EXAMPLES / "study.json")
    assert made.exit_code == 0, made.output
    file = KeyFile(tmp_path / "keys.json")
    secret = file.add("first", ["decide", "reward", "read", "admin", "erase"])
    with serving(storage, keys=file, automatic=False) as service:
        yield service, secret


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.filterwarnings("ignore:decisions of study 'banners' are left out")  # the export, after the erasure
def test_every_route_answers_curl(banners):
    service, secret = banners
    given = os.environ | {"URL": service.url, "KEY": secret}
    done = subprocess.run(["sh", EXAMPLES / "requests.sh"], env=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (EXAMPLES / "requests.sh").read_text()
    routes = {path.replace("/v1/studies/{name}", "$STUDY") for path in service.schema["paths"] if "/v1/" in path}
    # Trials and studies by columns have examples of their own: docs/tutorials/trial.md and personalizer.md.
    others = {"$STUDY/dismiss", "$STUDY/look", "$STUDY/close"}
    missing = {route for route in routes if route not in text and "/personalizer/" not in route}
    assert missing == others


def test_the_client_of_the_examples_asks_and_tells(banners, monkeypatch, tmp_path, capsys):
    service, secret = banners
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["client.py", service.url, secret])
    spec = importlib.util.spec_from_file_location("client_example", EXAMPLES / "client.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21
    assert all(line.endswith(": accepted") for line in lines[:20])


def test_the_compose_file_starts_the_service_with_keys_and_on_this_machine_alone():
    services = compose()["services"]
    assert services["service"]["ports"] == ["127.0.0.1:8000:8000"]
    assert "ports" not in services["database"]
    assert "--keys /keys/keys.json" in (EXAMPLES / "start.sh").read_text()


def test_the_container_has_a_pinned_base_a_health_check_and_no_compiler():
    build, final = (EXAMPLES / "Dockerfile").read_text().split("\n\nFROM ")
    assert 'CMD ["sh", "/start.sh"]' in final
    assert ("gcc" in build, "gcc" in final) == (True, False)
    assert final.splitlines()[0] == re.search(r"FROM (python:\d+\.\d+\.\d+-slim-\w+) AS build", build)[1]
    assert re.search(r"HEALTHCHECK .*\n.*health/ready", final)
    images = [service.get("image", "") for service in compose()["services"].values()]
    assert all(re.search(r":\d+\.\d+-", image) for image in images if image)


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
def test_the_first_key_is_in_a_file_of_its_owner_and_not_in_the_log(tmp_path):
    """The script of the container, with folders and a command of the test."""
    start = (EXAMPLES / "start.sh").read_text().replace("/keys/", f"{tmp_path}/").replace("exec rarely serve", "echo")
    start = start.replace("rarely study create", ": create").replace("rarely keys", f"{sys.executable} -m rarely keys")
    given = os.environ | {"STORAGE": f"sqlite:///{tmp_path}/t.db", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", "-c", start], env=given, capture_output=True, text=True, timeout=120, check=True)
    secret = (tmp_path / "first.key").read_text().strip()
    assert KeyFile(tmp_path / "keys.json").find(secret).name == "first"
    assert secret not in done.stdout + done.stderr
    assert (tmp_path / "first.key").stat().st_mode & 0o777 == 0o600


def test_the_systemd_unit_starts_a_command_that_exists():
    page = (EXAMPLES.parents[1] / "docs" / "operations.md").read_text()
    unit = re.search(r"```ini\n(\[Unit\].*?)```", page, re.DOTALL)[1]
    started = re.search(r"ExecStart=\S+/rarely (serve .*)", unit)[1].split()
    assert command("serve", "--help").exit_code == 0
    options = command("serve", "--help").output
    assert all(option in options for option in started if option.startswith("--"))


def test_keys_are_made_listed_and_revoked_by_commands(tmp_path):
    file = tmp_path / "keys.json"
    first = command("keys", "add", file, "shop", "--scope", "decide", "--scope", "reward", "--days", 30)
    assert first.exit_code == 0
    secret = first.output.splitlines()[0]
    assert KeyFile(file).find(secret).scopes == ("decide", "reward")
    listed = command("keys", "list", file).output
    assert "decide, reward" in listed
    assert secret not in listed
    assert command("keys", "revoke", file, "shop").exit_code == 0
    assert KeyFile(file).find(secret) is None
    refused = command("keys", "revoke", file, "shop")
    assert (refused.exit_code, "no key called" in refused.output) == (1, True)


def test_the_extra_has_all_that_the_command_needs():
    """Without what plans need."""
    extras = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {extra: {re.match(r"[\w-]+", each).group() for each in extras[extra]} for extra in ("plan", "serve")}
    without = "".join(f"sys.modules[{name!r}] = None; " for name in sorted(names["plan"] - names["serve"]))
    assert "matplotlib" in without
    assert "loky" in without
    command = f"import sys; {without}import rarely._cli, rarely.service"
    subprocess.run(
        [sys.executable, "-c", command],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sqlite:///{}/none.db"], "does not exist"),
        (["sqlite:///{}/trial.db", "--host", "0.0.0.0"], "API keys are needed"),
        (["sqlite:///{}/trial.db", "--host", "0.0.0.0", "--keys", "{}/none.json"], "has no API keys"),
        (["{}/none.db"], "does not exist"),
        (["mysql://{}/trial"], "storage must be a string"),
    ],
)
def test_a_service_that_cannot_start_says_why(tmp_path, arguments, says):
    made = command(
        "study", "create", f"sqlite:///{tmp_path}/trial.db", "--name", "t", "--file", EXAMPLES / "study.json"
    )
    assert made.exit_code == 0, made.output
    done = command("serve", *(argument.format(tmp_path) for argument in arguments))
    assert done.exit_code == 1
    assert says in done.output
    assert "Traceback" not in done.output
    assert all(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("rarely").handlers)
