"""A policy logged to MLflow comes back the same."""

import numpy as np
import pytest

pytest.importorskip("mlflow", reason="MLflow is not installed: pip install mlflow-skinny")

import mlflow

from rarely import FixedGrid, LinUCB
from rarely.adapters.mlflow import load_policy, log_policy


def test_a_policy_comes_back_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the only store of mlflow-skinny without a server
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("policies")
    policy = LinUCB(dim=2, schedule=FixedGrid(horizon=8, batches=4), seed=0)
    for _ in range(2):
        policy.observe(policy.select(np.eye(2)), 1.0)
    policy.update()
    with mlflow.start_run() as run:
        log_policy(policy)
    data = mlflow.get_run(run.info.run_id).data
    assert data.params["policy"] == "LinUCB"
    assert data.metrics["version"] == 1.0
    assert data.tags["rarely.fingerprint"] == policy.fingerprint()
    assert load_policy(run.info.run_id).fingerprint() == policy.fingerprint()
