"""Files that were written once are read for ever: policies of each kind, logs, a fleet, and a dump of PostgreSQL."""

import gzip
import json
import subprocess
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from campaigns import decided, serially
from postgresql_server import missing, program
from rarely import cluster, load
from rarely.logs import read_log
from rarely.study import Study
from studies import play
from worlds import contexts

FOLDER = Path(__file__).parent / "formats"
HEADS = {5: ("687801a3bbb2222e3916da8fbef17b6276ca13ebf1830a0b182ce5454a492922", 39)}
"""The last hash, and the events, of the study in a dump, as in tests/study/test_upgrade.py: never change them."""


@pytest.mark.parametrize("format", [1])
def test_policies_of_each_kind_decide_as_when_they_were_written(format, tmp_path):
    with tarfile.open(FOLDER / f"policies-{format}.tar.xz") as packed:
        for name in packed.getnames():
            (tmp_path / name).write_bytes(packed.extractfile(name).read())
    expected = json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))
    assert len(expected) == len(list(tmp_path.glob("*.rarely"))) == 15
    for case, told in expected.items():
        policy = load(tmp_path / f"{case}.rarely")
        assert (type(policy).__name__, policy.version, policy.round) == (told["kind"], told["version"], told["round"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their schedules end early
            decision = policy.select(contexts()[9:13])
            assert decision.arms.tolist() == told["arms"], case
            np.testing.assert_allclose(decision.means, told["means"], rtol=1e-6, atol=1e-8, err_msg=case)
            policy.observe(decision, [1.0, 0.0, 0.5, 1.0])
            if policy.due:
                policy.update()


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_a_log_has_what_it_had(name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[parquet]'")
    log = read_log(FOLDER / name)
    assert (len(log), log.missing) == (20, 5)
    assert log.arms.tolist()[:4] == [1, 0, 0, 0]
    assert log.rewards[:4].tolist() == [-0.24, -0.205, -1.043, 0.613]
    assert log.propensities[0] == 0.3404536205369912
    assert np.isnan(log.contexts[1]).any(axis=1).tolist() == [False, True, False]


def test_a_fleet_is_audited_joined_and_learned_from_as_when_it_was_written(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
    with tarfile.open(FOLDER / "fleet-1.tar.xz") as packed:
        for name in packed.getnames():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(packed.extractfile(name).read())
    # Another environment may differ in last digits, and in no arm.
    assert all(by < 1e-9 for by in cluster.audit(tmp_path / "store", tmp_path / "logs").values())
    waves = cluster.join(tmp_path / "logs", tmp_path / "waves")
    assert [decided(Path(wave) / "block-00000000.parquet")["id"].to_pylist() for wave in waves] == [
        [f"visit {i}" for i in visits] for visits in (range(6), range(6, 12))
    ]
    monkeypatch.setattr(cluster.learning, "committing", serially)
    policy = load(tmp_path / "policy.rarely")
    report = cluster.update(policy, waves, tmp_path / "rewards.parquet")
    assert (report.rounds, report.joined, report.unknown, report.open) == (12, 10, 0, 2)
    cluster.publish(policy, tmp_path / "store")
    with cluster.Decider(tmp_path / "store", tmp_path / "logs" / "1.log") as decider:
        assert decider.version == 2
        decider.decide("visit 12", np.ones((4, 3)))
    assert len(cluster.join(tmp_path / "logs", tmp_path / "waves")) == 3


@pytest.mark.skipif(bool(missing()) or program("psql") is None, reason=missing() or "psql is not installed")
@pytest.mark.parametrize("schema", HEADS)
def test_a_dump_of_postgresql_is_the_study_that_it_was(schema, postgresql):
    import psycopg

    name = f"dump_{schema}"
    with psycopg.connect(postgresql.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    text = gzip.decompress((FOLDER / f"schema-{schema}.sql.gz").read_bytes())
    command = [program("psql"), "-q", "-v", "ON_ERROR_STOP=1", postgresql.url(name)]
    subprocess.run(command, input=text, check=True, capture_output=True)
    with Study.open(postgresql.url(name)) as study:
        status = study.status()
        assert (status.head, status.events) == HEADS[schema]
        assert study.verify(*HEADS[schema]).whole
        assert [answer.arm for answer in play(study, 0, 16, tell=False)] == list("bccabcaccbbaabcb")
        study.unpin()
        assert study.update(force=True) == "version"
        assert study.verify().whole
