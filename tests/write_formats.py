"""Write the files that later versions must read: python tests/write_formats.py

policies-FORMAT.tar.xz a policy of every kind in mid-life, as `save` writes it; expected.json has what each decides next
log.csv, log.parquet   a log of decisions, with arms that were not available and rewards that are missing
fleet-1.tar.xz         a policy, its store, the log of a decider with a wave of its first lines, and rewards
schema-SCHEMA.sql.gz   what pg_dump writes of the study in tests/study/fixtures/schema-SCHEMA.db.gz

What is there is never written again: a release has written it. A new format or schema gets files of its own.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tarfile
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from campaigns import ARMS, DIM, made, write_rewards
from postgresql_server import Server, program
from rarely import LinTS, Worth, load
from rarely._core.saving import archive
from rarely.cluster import Decider, join, publish
from rarely.logs import DecisionLog, write_log
from rarely.study import Study
from rarely.study.storage.database import SCHEMA
from snapshot_layout import CASES, saved
from worlds import contexts

FOLDER = Path(__file__).parent / "formats"
KINDS = (
    "uniform", "linear", "linear_thompson", "linear_discount", "from_log", "budget", "geometric", "kernel", "default",
    "neural_ucb", "neural_linear", "paper", "diagonal", "last_layer", "epsilon_greedy",
)  # fmt: skip
"""Of the cases of tests/snapshot_layout.py one for each kind of policy, schedule and form of Z."""
POLICIES, LOG = FOLDER / f"policies-{archive.FORMAT}.tar.xz", FOLDER / "log.csv"
FLEET, TABLE = FOLDER / "fleet-1.tar.xz", FOLDER / "log.parquet"
DUMP = FOLDER / f"schema-{SCHEMA}.sql.gz"


def said_by(policy) -> dict[str, object]:
    """What a policy is and decides next."""
    told = {"kind": type(policy).__name__, "version": policy.version, "round": policy.round}
    decision = policy.select(contexts()[9:13])
    return told | {"arms": decision.arms.tolist(), "means": decision.means.round(9).tolist()}


def write_policies() -> None:
    assert CASES.keys() >= {*KINDS}
    with tempfile.TemporaryDirectory() as folder, tarfile.open(POLICIES, "w:xz") as packed:
        paths = [Path(folder) / f"{case}.rarely" for case in KINDS]
        for path in paths:
            saved(path.stem, path)
        expected = Path(folder) / "expected.json"
        expected.write_text(json.dumps({path.stem: said_by(load(path)) for path in paths}), encoding="utf-8")
        for path in (expected, *paths):
            packed.add(path, path.name, filter=nameless)


def nameless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who wrote an entry, and when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def write_a_log(path: Path) -> None:
    log, policy, rng = DecisionLog(), LinTS(dim=2, seed=0), np.random.default_rng(0)
    rows = rng.normal(size=(20, 3, 2)).round(3)
    mask = rng.random((20, 3)) < 0.8
    mask[:, 0] = True
    decision = policy.select(rows, mask=mask)
    log.record(rows, decision)
    log.observe(decision[:15], rng.normal(size=15).round(3))
    write_log(log, path)


def write_a_fleet() -> None:
    policy, rng = made("linear", within_batch="running"), np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(FLEET, "w:xz") as packed:
        here = Path(folder)
        policy.save(here / "policy.rarely")
        publish(policy, here / "store")
        for first, joined in ((0, True), (6, False)):
            with Decider(here / "store", here / "logs" / "1.log") as decider:
                for i in range(first, first + 6):
                    mask = None if i % 3 else np.arange(ARMS) != 1
                    worth = Worth(rng.uniform(-2, 2, ARMS), np.zeros(ARMS)) if i % 4 == 1 else None
                    decider.decide(f"visit {i}", rng.normal(size=(ARMS, DIM)), mask, worth=worth)
            if joined:
                join(here / "logs", here / "waves")
        write_rewards(here / "rewards.parquet", [f"visit {i}" for i in range(10)], rng.normal(size=10))
        for path in sorted(here.rglob("[!.]*")):
            if path.is_file():
                packed.add(path, str(path.relative_to(here)), filter=nameless)


def write_a_dump() -> None:
    source = FOLDER.with_name("study") / "fixtures" / f"schema-{SCHEMA}.db.gz"
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            backup = Path(folder) / "backup.db"
            backup.write_bytes(gzip.decompress(source.read_bytes()))
            Study.restore(backup, server.url("postgres"))
        options = ["--inserts", "--no-owner", "--no-privileges", server.url("postgres")]
        text = subprocess.run([program("pg_dump"), *options], check=True, capture_output=True).stdout
        # Lines for psql itself, \restrict, are unknown to earlier ones.
        lines = [line for line in text.splitlines(keepends=True) if not line.startswith(b"\\")]
        DUMP.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    finally:
        server.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.umask(0o022)
    logs = [(path, partial(write_a_log, path)) for path in (LOG, TABLE)]
    for path, write in ((POLICIES, write_policies), *logs, (FLEET, write_a_fleet), (DUMP, write_a_dump)):
        if not path.exists():
            write()
            print(path.name, path.stat().st_size)
