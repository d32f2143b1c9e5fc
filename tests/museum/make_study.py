"""Write a golden database of the schema of today into the museum, with what it answered.

    python tests/museum/make_study.py

Run it once for every schema, and never again. `tests/study/test_museum.py` opens every one of them.
"""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np

from rarely import BatchNeuralUCB, FixedGrid, LinTS
from rarely.study import RewardRule, Stage, Study
from rarely.study.storage.schema import SCHEMA


def contexts_of(number: int) -> list[list[float]]:
    """Contexts of the three arms."""
    draws: list[list[float]] = np.random.default_rng(number).normal(size=(3, 2)).round(3).tolist()
    return draws


def live(study: Study) -> list[dict[str, object]]:
    """Every kind of event; the answers."""
    answers = []
    for batch in range(2):
        for i in range(8):
            answers.append(study.ask(contexts_of(i), id=f"{batch}-{i}", available=["a", "b"] if i == 3 else None))
            study.tell(answers[-1].id, 0.25 * answers[-1].index)
        study.update(actor="ann", reason="weekly")
        if study.status().candidate is not None:
            study.shadow("candidate")
            answers.append(study.ask(contexts_of(90 + batch), id=f"shadow {batch}"))
            study.approve(actor="bob")
    study.tell("unknown", 1.0)
    study.tell("0-1", 9.0)
    study.rollback(1, actor="ann")
    answers.append(study.ask(contexts_of(80), id="after"))
    study.pin()
    study.unpin()
    return [answer.describe() for answer in answers]


def main() -> None:
    """Two studies in one file."""
    ticks = itertools.count()
    clock = {"clock": lambda: 1_700_000_000.0 + next(ticks)}
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/trial.db"
        plain = LinTS(2, FixedGrid(40, 5), beta=0.5, seed=1)
        network = BatchNeuralUCB(
            2, FixedGrid(40, 5), hidden=4, training=10, ridge=0.1, beta=0.5, preset="paper", seed=3
        )
        rule = RewardRule("last", wait=12, default=0.5, least=0.0, most=1.0)
        stages = [Stage("burn-in", 6, burn_in=True), Stage("main", least=0.1, approval=True)]
        arms = ["a", "b", "c"]
        notes = {}
        with Study.create(url, "plain", policy=plain, arms=arms, **clock) as study:
            notes["plain"] = {"answers": live(study), "status": study.status().describe()}
        with Study.create(url, "trial", policy=network, arms=arms, rewards=rule, stages=stages, **clock) as study:
            notes["trial"] = {"answers": live(study), "status": study.status().describe()}
        place = Path(__file__).parent / f"study-schema-{SCHEMA}"
        place.mkdir()
        packed = gzip.compress(Path(folder, "trial.db").read_bytes(), mtime=0)
        (place / "trial.db.gz").write_bytes(packed)
        (place / "trial.json").write_text(json.dumps(notes, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
