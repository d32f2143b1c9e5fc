"""`rarely fleet`, from a saved policy to a report of two nights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from campaigns import made, serially, write_rewards, written
from rarely import load
from rarely._cli import app
from rarely.cluster import Decider, LostDecisionsWarning, campaign, learning

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (campaign, learning):
        monkeypatch.setattr(module, "committing", serially)


def call(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["fleet", *words], env={"COLUMNS": "300"})
    assert done.exit_code == code, done.output
    return done.output


def test_two_nights_of_a_campaign() -> None:
    made("linear").save("policy")
    for night in (1, 2):
        written(Path(f"in{night}"), 50, seed=night)
        assert "50 rounds decided by version" in call("decide", "policy", f"in{night}", f"night{night}")
        write_rewards(Path(f"r/{night}.parquet"), [f"{night}-{i}" for i in range(40)], np.linspace(0, night, 40))
        nights = [f"night{n}" for n in range(1, night + 1)]
        said = call("update", "policy", *nights, "--rewards", "r", "--publish", "store")
    assert load("policy").version == 3
    assert said.startswith(call("report", "night1", "night2"))
    lines = call("report", "night2", "night1").splitlines()
    assert [line.split()[0] for line in lines] == ["version", "1", "2"]
    assert "0.5 ± " in lines[1]
    assert "accepted" in lines[2]
    assert "must have been part of an update" in call("report", "in1", code=1)


def test_a_fleet() -> None:
    made("linear").save("policy")
    name = call("publish", "policy", "store").strip()
    Path("logs").mkdir()
    with Decider("store", "logs/a") as decider:
        for i in range(10):
            decider.decide(f"{i}", np.ones((2, 3)))
    assert "Every decision is the same." in call("audit", "store", "logs")
    wave = call("join", "logs", "waves").strip()
    write_rewards(Path("r.parquet"), ["3"], [1.0])
    renamed = call("rotate", "logs").strip()
    assert "No log has decisions." in call("rotate", "logs")
    assert call("join", "logs", "waves").strip() == wave  # and knows now that the log has ended
    assert "No log can be removed." in call("prune", "logs", "waves", "--keep", "1")
    assert call("prune", "logs", "waves").strip() == renamed
    call("update", "policy", wave, "--rewards", "r.parquet", "--publish", "store")
    assert call("rollback", "store").strip() == name
    assert "none to return to" in call("rollback", "store", code=1)


def test_a_damaged_log() -> None:
    made("linear").save("policy")
    call("publish", "policy", "store")
    Path("logs").mkdir()
    with Decider("store", "logs/a") as decider:
        for i in range(3):
            decider.decide(f"{i}", np.ones((2, 3)))
    content = bytearray(Path("logs/a").read_bytes())
    content[-200] ^= 1
    Path("logs/a").write_bytes(content)
    for words in (("join", "logs", "waves"), ("audit", "store", "logs")):
        assert "logs/a, line 4 " in call(*words, code=1)
    with pytest.warns(LostDecisionsWarning, match="line 4 "):
        assert "wave-000001" in call("join", "logs", "waves", "--accept-losses")
    assert "line 4: cannot be made again" in call("audit", "store", "logs", "--accept-losses", code=1)
