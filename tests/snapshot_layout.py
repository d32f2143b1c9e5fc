"""Record which names `save` writes: python tests/snapshot_layout.py

    FORMAT → parts → PART → a line for each variant: the names in it, as NAME:KIND. The kind of an array is its dtype
                            and number of axes, that of a value its type in JSON, and "any" where null is usual
           → cases → CASE → which variant of every part it has, counted from 0

`tests/core/test_layout.py` compares the record with what `save` writes today. A format that was released is never
recorded again: raise `archive.FORMAT` first.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

sys.path.insert(0, str(Path(__file__).parent))

from rarely import (
    Affine,
    Budget,
    ComposedPolicy,
    EnsemblePolicy,
    EveryRound,
    GeometricGrid,
    LinUCB,
    NoiseRadius,
    NothingToLearnWarning,
    OnDemand,
    Policy,
    TheoremRadius,
)
from rarely._core.saving import archive
from rarely.extend import UNWATCHED, Array, Factors, FitResult, History, Learner, Watch
from worlds import MAKERS, contexts, play, rewards, sequential, small


@dataclass(frozen=True)
class Curious(Learner):
    """Expects 0 of every context."""

    dim: int = 2
    widths = ((1, 2),)

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        return np.zeros(len(contexts)), Factors((contexts,), (np.ones((len(contexts), 1)),))

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        return FitResult(self)


RECORD = Path(__file__).with_name("snapshot_layout.json")
CASES: dict[str, Callable[[], Policy]] = {
    **MAKERS,
    "neural_ucb": sequential,
    "context_scale": lambda: small(context_scale=Affine.identity(2)),
    "ensemble": lambda: EnsemblePolicy(LinearRegression(), 2, EveryRound(), seed=0),
    "composed": lambda: ComposedPolicy(Curious(), EveryRound(), seed=0),
    "budget": lambda: LinUCB(2, Budget(EveryRound(), 5)),
    "geometric": lambda: LinUCB(2, GeometricGrid(24, 4)),
    "on_demand": lambda: LinUCB(2, OnDemand(batches=3)),
    "theorem_radius": lambda: small(beta=TheoremRadius(nu=0.5, S=1.0)),
    "noise_radius": lambda: small(preset="practical", training=None, beta=NoiseRadius(0.5)),
    "function_radius": lambda: LinUCB(2, EveryRound(), beta=lambda round: 1 / round),
    "from_log": lambda: LinUCB.from_log(contexts()[:9, 0], rewards(contexts()[:9, 0]), schedule=EveryRound()),
}
"""Every policy and form of Z, and every value inside settings."""
Layout = dict[str, str]
"""Names and kinds."""


def saved(case: str, path: Path) -> archive.Archive:
    """What the policy of a case saves today, in mid-life."""
    policy = CASES[case]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingToLearnWarning)
        play(policy, contexts()[:9])
    policy.save(path)
    return archive.read(path)


def layout_of(found: archive.Archive) -> Layout:
    """Every name in a file."""
    arrays = {f"{name}.npy": f"{array.dtype.name}/{array.ndim}" for name, array in found.arrays.items()}
    return dict(sorted((dict(_names(found.header)) | arrays).items()))


def _names(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        yield before + name, "any" if before.startswith(("settings.", "updates.", "reader.")) else type(inner).__name__
        if isinstance(inner, dict):
            yield from _names(inner, f"{before}{name}.")
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from _names(inner[0], f"{before}{name}.#.")


def layouts() -> dict[str, Layout]:
    """The layout of every recorded case, as it is today."""
    with tempfile.TemporaryDirectory() as folder:
        return {case: layout_of(saved(case, Path(folder) / "policy.rarely")) for case in CASES}


def differences(case: str, recorded: Layout, found: Layout) -> list[str]:
    """One line for every name that is new, gone or of another kind."""
    lines = []
    for name in sorted(recorded.keys() | found.keys()):
        before, now = recorded.get(name, "absent"), found.get(name, "absent")
        if before != now:
            lines.append(f"{case}: {name} was {before}, and is {now}")
    return lines


def read(format: int) -> dict[str, Layout]:
    """The recorded layouts of a format."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))[str(format)]
    return {
        case: dict(
            (part + name, kind)
            for part, variant in zip(record["parts"], map(int, variants.split()), strict=True)
            for name, _, kind in (word.rpartition(":") for word in record["parts"][part][variant].split())
        )
        for case, variants in record["cases"].items()
    }


def write(found: dict[str, Layout]) -> None:
    """Record the layouts of today under today's format."""
    names = sorted({name.partition(".")[0] for layout in found.values() for name in layout})
    parts: dict[str, list[str]] = {part: [] for part in names}
    cases = {}
    for case, layout in found.items():
        variants = []
        for part, known in parts.items():
            own = [(name, kind) for name, kind in layout.items() if name.partition(".")[0] == part]
            line = " ".join(f"{name.removeprefix(part)}:{kind}" for name, kind in own)
            if line not in known:
                known.append(line)
            variants.append(known.index(line))
        cases[case] = " ".join(map(str, variants))
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    record[str(archive.FORMAT)] = {"parts": parts, "cases": cases}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(layouts())
