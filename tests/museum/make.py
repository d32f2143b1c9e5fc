"""Write what the installed version of rarely writes into the museum: snapshots, logs, records and a plan.

    python tests/museum/make.py [FOLDER [CASE ...]]

FOLDER is a folder beside this file, by default named after the version; with cases ("tuned*") only their snapshots are
made. Run it once for every release, and never again: a file of the museum is never changed. `tests/test_museum.py`
loads every file of every folder.

It also runs with older code since version 0.2 (`PYTHONPATH=OTHER/src`): what that code cannot make is left out.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rarely

ARMS, DIM = 3, 2
SLOPE = 0.125
"""β = SLOPE·t of the policy whose β is a function."""


class Life(NamedTuple):
    """How a policy was used before it is saved."""

    rounds: int = 10
    missing: tuple[int, ...] = (2, 9)
    """Rounds whose rewards have not come in."""
    update: bool = True
    """Whether updates are made when they are due."""


def stream(seed: int, rounds: int) -> np.ndarray:
    """(rounds, K, d) contexts."""
    return np.random.default_rng(seed).normal(size=(rounds, ARMS, DIM)).round(6)


def reward_of(context: np.ndarray) -> float:
    """The reward of an arm with this context."""
    return float(np.sin(context.sum()) + 0.1 * np.cos(100 * context[0]))


def live(policy: Any, contexts: np.ndarray, life: Life) -> None:
    """Decide, observe and update as `life` says."""
    for t in range(life.rounds):
        decision = policy.select(contexts[t])
        if t + 1 not in life.missing:
            policy.observe(decision, reward_of(contexts[t, decision.arm]))
        if policy.due and life.update:
            policy.update()


def neural(schedule: Any = None, kind: str = "BatchNeuralUCB", **settings: Any) -> Any:
    """A small network with a fixed plan of training, as printed."""
    defaults = {"hidden": 4, "training": 10, "ridge": 0.1, "beta": 0.5, "preset": "paper", "seed": 3}
    return getattr(rarely, kind)(DIM, schedule or rarely.FixedGrid(20, 5), **(defaults | settings))


def tuned(schedule: Any = None, kind: str = "BatchNeuralUCB", **settings: Any) -> Any:
    """A small network that tunes itself."""
    return getattr(rarely, kind)(DIM, schedule or rarely.FixedGrid(28, 2), **({"hidden": 4, "seed": 1} | settings))


def linear(schedule: Any = None, kind: str = "LinUCB", **settings: Any) -> Any:
    """LinUCB or a relative of it."""
    return getattr(rarely, kind)(DIM, schedule or rarely.FixedGrid(20, 5), **settings)


def sequential(**settings: Any) -> Any:
    """NeuralUCB."""
    return rarely.NeuralUCB(DIM, hidden=4, training=10, seed=3, preset="paper", **settings)


def logged(kind: str, **settings: Any) -> Any:
    """A policy that starts from a log of twelve samples."""
    rows = stream(5, 12)[:, 0]
    return getattr(rarely, kind).from_log(
        rows, [reward_of(row) for row in rows], schedule=rarely.FixedGrid(20, 5), seed=2, **settings
    )


def blocks(layout: str = "disjoint") -> Any:
    """Blocks fitted to a few rows of two numbers."""
    return rarely.ArmBlocks.fit(stream(6, 8)[:, 0], arms=ARMS, layout=layout)


def roster() -> Any:
    """Three names on a roster with room for three, one of them closed."""
    made = rarely.Roster(blocks())
    for name in ("red", "green", "blue"):
        made.open(name)
    made.close("green")
    return made


LONG = Life(rounds=16, missing=(2, 15))
"""Two rounds into the second batch of a `tuned` policy, with 12 or more rewards judged."""
CASES: dict[str, tuple[Callable[[], Any], Life]] = {
    # The default policy at every stage of its life.
    "tuned": (tuned, LONG),
    "tuned-new": (tuned, Life(rounds=0)),
    "tuned-first-batch": (tuned, Life(rounds=5)),
    "tuned-due": (lambda: tuned(hidden=2), Life(rounds=14, update=False)),
    "tuned-spent": (lambda: tuned(rarely.FixedGrid(12, 1), hidden=2), Life(rounds=12, missing=())),
    "tuned-from-log": (lambda: logged("BatchNeuralUCB", hidden=2), Life(rounds=2)),
    "tuned-window": (lambda: tuned(hidden=2, forgetting=rarely.Window(8)), LONG),
    "tuned-discount": (lambda: tuned(hidden=2, forgetting=rarely.Discount(0.9)), LONG),
    "tuned-dual": (lambda: tuned(hidden=2, covariance="dual"), LONG),
    "tuned-thompson": (lambda: tuned(hidden=2, kind="NeuralTS"), LONG),
    "tuned-linear": (lambda: tuned(hidden=2, kind="NeuralLinear"), LONG),
    "blocks": (lambda: rarely.BatchNeuralUCB(schedule=rarely.FixedGrid(28, 2), hidden=2, **blocks().settings), LONG),
    # Plans of training.
    "paper": (neural, Life()),
    "code": (lambda: neural(preset="code", training=rarely.Training(10, 0.01)), Life()),
    "practical": (lambda: neural(preset="practical", training=rarely.Training(10, skip=1.0)), Life()),
    "deep": (lambda: neural(depth=3, preset=rarely.Preset(biases=True, precision="float32"), hidden=2), Life()),
    "warm-start": (lambda: neural(training=rarely.Training(10, warm_start=True)), Life()),
    "context-scale": (lambda: neural(context_scale=rarely.Affine([1.0, 0.0], [2.0, 0.5])), Life()),
    "from-log": (lambda: logged("BatchNeuralUCB", hidden=4, training=10), Life(rounds=2)),
    # Other policies.
    "neural-ucb": (sequential, Life(rounds=5, missing=())),
    "neural-ts": (lambda: neural(kind="NeuralTS"), Life()),
    "neural-linear": (lambda: neural(kind="NeuralLinear", preset="practical"), Life()),
    "epsilon-greedy": (
        lambda: rarely.NeuralEpsilonGreedy(DIM, rarely.FixedGrid(20, 5), hidden=4, training=10, epsilon=0.3, seed=3),
        Life(),
    ),
    "linucb": (linear, Life()),
    "linucb-from-log": (lambda: logged("LinUCB"), Life(rounds=2)),
    "linucb-plain": (lambda: linear(rarely.DeterminantTrigger(20, 4, 1.0), intercept=False), Life()),
    "lints": (lambda: linear(kind="LinTS", seed=4), Life()),
    "uniform": (lambda: linear(kind="Uniform", seed=5), Life()),
    "kernel": (lambda: linear(kind="KernelUCB", ridge=0.1), Life()),
    "kernel-steps": (
        lambda: linear(kind="KernelUCB", steps=10, depth=3, forgetting=rarely.Discount(0.9)),
        Life(),
    ),
    # Forms of Z.
    "dual": (lambda: neural(covariance="dual"), Life()),
    "primal": (lambda: neural(covariance="primal"), Life()),
    "primal-absorbed": (lambda: neural(rarely.FixedGrid(40, 2), covariance="primal", hidden=2), Life(rounds=28)),
    "auto-dual": (lambda: neural(covariance="auto", hidden=86), Life()),
    "diagonal": (lambda: neural(covariance="diagonal"), Life()),
    "last-layer": (lambda: neural(covariance="last_layer"), Life()),
    "sketched": (lambda: neural(covariance=rarely.Sketch(6)), Life(rounds=14)),
    # Rules, memories, schedules and radii.
    "window": (lambda: neural(forgetting=rarely.Window(6)), Life()),
    "discount": (lambda: neural(forgetting=rarely.Discount(0.9)), Life()),
    "linucb-discount": (lambda: linear(forgetting=rarely.Discount(0.8)), Life()),
    "mixture": (lambda: neural(exploration=rarely.Mixture(0.3)), Life()),
    "random-ties": (lambda: neural(ties="random"), Life()),
    "budget": (lambda: linear(rarely.Budget(rarely.EveryRound(), 4)), Life()),
    "geometric": (lambda: linear(rarely.GeometricGrid(20, 4)), Life()),
    "theorem-radius": (lambda: linear(beta=rarely.TheoremRadius(nu=0.5, S=1.0)), Life()),
    "noise-radius": (lambda: tuned(hidden=2, beta=rarely.NoiseRadius(0.1)), LONG),
    "function-radius": (lambda: linear(beta=lambda t: SLOPE * t), Life()),
}


def contexts_for(name: str, seed: int, rounds: int) -> np.ndarray:
    """(rounds, K, ·) contexts for a case."""
    drawn = stream(seed, rounds)
    return blocks()(drawn[:, 0]) if name == "blocks" else drawn


def answers(policy: Any, contexts: np.ndarray) -> dict[str, Any]:
    """What the policy is, and what it decides next."""
    before = {name: getattr(policy, name) for name in ("version", "round", "due", "missing", "log_det", "beta")}
    decision = policy.select(contexts)
    chances = getattr(decision, "probabilities", None)
    return before | {
        "arms": decision.arm.tolist(),
        "means": decision.means.tolist(),
        "bonuses": decision.bonuses.tolist(),
        "probabilities": None if chances is None else chances.tolist(),
        "log_det_after": policy.log_det,
    }


def make_snapshots(folder: Path, patterns: Sequence[str] = ()) -> None:
    """A snapshot of every case, and beside it what the policy answered next."""
    folder.mkdir(parents=True)
    for name, (maker, life) in CASES.items():
        if not any(fnmatch(name, pattern) for pattern in patterns or ["*"]):
            continue
        try:
            policy = maker()
        except (AttributeError, TypeError, rarely.InvalidInput) as error:
            print(f"left out: {name} ({error})")
            continue
        live(policy, contexts_for(name, 1, life.rounds), life)
        policy.save(file := folder / f"{name}.rarely")
        # Most of a small snapshot is the padding of its arrays' headers.
        (folder / f"{name}.rarely.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
        contexts = contexts_for(name, 2, 3)
        note = {"kind": type(policy).__name__, "contexts": contexts.tolist()} | answers(policy, contexts)
        if name == "function-radius":
            note["slope"] = SLOPE
        write_json(folder / f"{name}.json", note)


def make_logs(folder: Path) -> None:
    """A log of decisions as a table, one to plan from, and arms' blocks and names as JSON."""
    from rarely.offpolicy import DecisionLog, write_csv, write_parquet

    folder.mkdir(parents=True)
    log, policy, contexts = DecisionLog(), rarely.Uniform(DIM, seed=0), stream(3, 6)
    for t, arms in enumerate(contexts):
        mask = [True, t != 4, True]
        decision = policy.select(arms, mask)
        log.record(arms, decision, rows=[float(t)])
        if t != 2:
            log.observe(decision, reward_of(arms[decision.arm]))
    write_csv(log, folder / "decisions.csv")
    try:
        write_parquet(log, folder / "decisions.parquet")
    except ImportError as error:
        print(f"left out: decisions.parquet ({error})")
    columns = ("rounds", "versions", "arms", "rewards", "propensities", "probabilities", "contexts", "rows")
    write_json(folder / "decisions.json", {name: getattr(log, name).tolist() for name in columns})
    lines = ["age,income,treatment,outcome"]
    for t, row in enumerate(stream(4, 20)[:, 0]):
        outcome = "" if t % 7 == 3 else repr(reward_of(row))
        lines.append(f"{row[0]},{row[1]},{'ab'[t % 2]},{outcome}")
    (folder / "past.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "blocks.json", blocks("hybrid").describe())
    write_json(folder / "roster.json", roster().describe())


def make_laboratory(folder: Path) -> None:
    """Records of a few cells, and a plan."""
    from rarely.experiments.catalogue import PROBLEMS
    from rarely.experiments.queue import plan_cells
    from rarely.experiments.runner import play_cell
    from rarely.experiments.store import Store
    from rarely.logs.planning_log import Log
    from rarely.planning.planner import plan

    folder.mkdir(parents=True)
    patterns = ("linucb-r1-b1", "fixed-B40", "adaptive-B40-logq20")
    for cell in plan_cells([PROBLEMS["cosine"]], ["practical"], runs=1, rounds=60, patterns=patterns):
        record = play_cell(cell).record
        assert record is not None
        record.data["environment"]["machine"] = "a machine, 2 cores"
        Store(folder).write(record)
    rows = stream(4, 60)[:, 0]
    log = Log.of(rows, arms=2, chosen=np.arange(60) % 2, rewards=[reward_of(row) for row in rows])
    made = plan(log, horizon=40, policy="linear", batches=[2, 4], runs=2)
    write_json(folder / "plan.json", made.describe())


def write_json(path: Path, value: Any) -> None:
    """As little text as all digits need."""
    path.write_text(json.dumps(value, allow_nan=True, separators=(",", ":")) + "\n", encoding="utf-8")


def main(name: str = rarely.__version__, *patterns: str) -> None:
    """Write one folder."""
    wing = Path(__file__).parent / name
    make_snapshots(wing / "snapshots", patterns)
    if not patterns:
        make_logs(wing / "logs")
        make_laboratory(wing / "laboratory")


if __name__ == "__main__":
    main(*sys.argv[1:])
