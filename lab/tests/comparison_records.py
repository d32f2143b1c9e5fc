"""Records of a comparison that were never played."""

from rarely_lab.compare.runs import Record
from rarely_lab.engine.record import FORMAT, identity

ENVIRONMENT = {"machine": "a machine", "rarely": "0", "python": "3", "numpy": "2"}


def record(
    problem="p",
    policy="a",
    batches=5,
    seed=0,
    regret=10.0,
    *,
    uniform=100.0,
    rounds=50,
    family="gallery",
    code="c",
    text="",
    digest="d",
    seconds=1.0,
    machine="a machine",
):
    """One record of a comparison."""
    asked = {
        "problem": {"name": problem, "variant": "", "world": {"world": "W"}},
        "policy": {"name": policy, "text": text},
        "batches": batches,
        "seed": seed,
        "rounds": rounds,
    }
    content = {
        "family": family,
        "rounds_digest": digest,
        "regret": float(regret),
        "uniform": float(uniform),
        "updates": [1, 2],
        "seconds": {"selecting": float(seconds), "training": 0.0},
        "environment": ENVIRONMENT | {"machine": machine},
    }
    cell_id = f"{problem}/{policy}/B{batches or 'T'}/seed{seed}"
    head = {"format": FORMAT, "kind": Record.kind, "id": cell_id, "identity": identity(asked)}
    return Record({**head, "code": code, "asked": asked, **content})
