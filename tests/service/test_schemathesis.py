"""The whole API under schemathesis: what its description allows, and what it does not, is answered as described.

`make api-test` runs it; schemathesis is in no extra.
"""

import copy
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from rarely.study import Study
from services import serving
from studies import linear

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
EXAMPLES = os.environ.get("EXAMPLES", "100")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="make api-test installs schemathesis"),
]


def about_the_study(schema):
    """The description with the name of the study that is there, so that requests reach it."""
    schema = copy.deepcopy(schema)
    for methods in schema["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = {"type": "string", "enum": ["trial"]}
    return schema


@pytest.mark.parametrize("described", [about_the_study, lambda schema: schema], ids=["one study", "any study"])
def test_every_operation_is_answered_as_described(tmp_path, described):
    Study.create(f"memory://{tmp_path}", "trial", policy=linear(), arms=["a", "b", "c"])
    with serving(f"memory://{tmp_path}", automatic=False) as service:
        (tmp_path / "openapi.json").write_text(json.dumps(described(service.schema)))
        command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", service.url]
        options = ["--checks", CHECKS, "--max-examples", EXAMPLES, "--mode", "all", "--continue-on-failure"]
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "generated" in done.stdout, done.stdout[-2000:]
        assert service.opened.study.verify().whole
        assert service.status().rewards.balanced
