"""Policies in MLflow: settings as parameters, updates as metrics, the snapshot as an artifact."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from rarely._core.policies import Policy, load

try:
    import mlflow
except ImportError as error:
    raise ImportError("rarely.adapters.mlflow needs MLflow: pip install mlflow-skinny.") from error

FILE = "policy.npz"
METRICS = ("version", "samples", "missing", "log_det", "beta", "noise", "coverage", "unexplored")


def log_policy(policy: Policy, artifact_path: str = "policy") -> None:
    """Log a policy to the active run, or to a new one: parameters, one metric step per update, and its snapshot.

    Parameters
    ----------
    policy
        The policy, at any moment of its life. Call it again later in the same run: parameters stay, metrics of
        updates that are logged already are logged again at the same step, and the snapshot is replaced.
    artifact_path
        The folder of the snapshot in the run.

    Examples
    --------
    >>> with mlflow.start_run():              # doctest: +SKIP
    ...     log_policy(policy)
    """
    given = policy.settings()
    parameters = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    mlflow.log_params({"policy": type(policy).__name__, **parameters})
    for record in policy.updates:
        values = {name: getattr(record, name) for name in METRICS}
        mlflow.log_metrics({name: float(v) for name, v in values.items() if v is not None}, step=record.round)
    mlflow.set_tag("rarely.fingerprint", policy.fingerprint())
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / FILE)
        mlflow.log_artifact(str(Path(folder) / FILE), artifact_path)


def load_policy(run_id: str, artifact_path: str = "policy") -> Any:
    """Load the policy that `log_policy` put into a run.

    Examples
    --------
    >>> policy = load_policy(run_id)          # doctest: +SKIP
    """
    path = f"{artifact_path}/{FILE}"
    with tempfile.TemporaryDirectory() as folder:
        return load(mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=path, dst_path=folder))
