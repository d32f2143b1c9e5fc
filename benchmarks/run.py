"""Every performance figure of docs/benchmarks.md, in one run; ratios, for machines differ.

python benchmarks/run.py                  # all, about 5 minutes on 2 cores
python benchmarks/run.py decision imports # some
python benchmarks/run.py --list
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from machine import describe, product_rate
from rarely import BatchNeuralUCB, DeterminantTrigger, FixedGrid
from rarely.lab.catalogue import PROBLEMS
from rarely.lab.play import play
from rarely.lab.queue import plan_cells
from rarely.lab.records import Store
from rarely.lab.runner import LocalEngine, reproduce
from rarely.worlds import Cosine, Rounds

ADAPTIVE = {"horizon": 2000, "batches": 40, "log_ratio": 40.0}
PRINTED = {"hidden": 200, "ridge": 0.01, "beta": 0.001, "steps": 200}


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def one_file_ratio() -> None:
    """Cosine, T = 2000, m = 200, adaptive B = 40, log q = 40, J = 200: against examples/one_file.py."""
    path = Path(__file__).parents[1] / "examples" / "one_file.py"
    spec = importlib.util.spec_from_file_location("one_file", path)
    assert spec is not None
    assert spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    rounds = Cosine().rounds(seed=0, count=2000)

    def progress(t: int, b: int) -> None:
        if t % 500 == 0:
            print(f"  one_file.py: round {t} of 2000", flush=True)

    def play_plain() -> None:
        plain.batch_neural_ucb(
            rounds.contexts,
            lambda s, arm: rounds.rewards[s, arm],
            scheme="adaptive",
            batches=40,
            log_q=40.0,
            progress=progress,
            **PRINTED,
        )

    ours = {
        preset: min(
            timed(
                lambda p=preset: play(
                    BatchNeuralUCB(10, DeterminantTrigger(**ADAPTIVE), seed=0, preset=p, **PRINTED), rounds
                )
            )
            for _ in range(3)
        )
        for preset in ("paper", "practical")
    }
    slow = timed(play_plain)
    print(f"  one_file.py {slow:.1f} s")
    for preset, seconds in ours.items():
        print(f"  rarely, preset {preset}: {seconds:.2f} s, {slow / seconds:.0f} times faster")


def fixed_200() -> None:
    """Fixed B = 200: time over its training operations (4·n·m·d a pass) at the float32 product rate."""
    policy = BatchNeuralUCB(10, FixedGrid(2000, 200), seed=0, **PRINTED)
    seconds = timed(lambda: play(policy, Cosine().rounds(seed=0, count=2000)))
    operations = sum(200 * 4 * u.samples * 200 * 11 for u in policy.updates)
    ideal = operations / product_rate(np.float32)
    print(f"  {seconds:.1f} s for {operations:.2e} training operations: {seconds / ideal:.1f} times the product rate's")


def in_a_process(name: str, *arguments: int) -> dict[str, float]:
    """Run a function of this file in a process of its own, for its peak memory."""
    command = [sys.executable, __file__, "--inner", name, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def million_inner() -> dict[str, float]:
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(500, 4, 20)) / np.sqrt(20)
    means = np.sin(3 * contexts[:, :, 0])
    rounds = Rounds(contexts, means, means + rng.normal(0, 0.1, (500, 1)))
    policy = BatchNeuralUCB(20, FixedGrid(500, 20), hidden=1000, depth=3, preset="paper", seed=0, steps=20)
    before, seconds = peak_bytes(), timed(lambda: play(policy, rounds))
    return {
        "parameters": policy.network.parameters,
        "peak": peak_bytes(),
        "before": before,
        "seconds": seconds,
        "versions": policy.version + 1,
    }


def million() -> None:
    """Exact at a million parameters: m = 1000, L = 3, d = 20, 500 rounds, B = 20 (J = 20)."""
    out = in_a_process("million_inner")
    print(
        f"  p = {out['parameters']:,}: peak memory {out['peak'] / 2**30:.2f} GiB, {out['versions']} versions, "
        f"{out['seconds']:.0f} s"
    )


def long_inner(rounds: int, batches: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(8, FixedGrid(rounds, batches), hidden=32, covariance="primal", seed=0)
    deciding: list[float] = []
    training: list[float] = []
    for _ in range(batches):
        contexts = rng.normal(size=(rounds // batches, 4, 8))
        start = time.perf_counter()
        decision = policy.select(contexts)
        deciding.append(time.perf_counter() - start)
        chosen = contexts[np.arange(len(decision)), decision.arm]
        policy.observe(decision, np.sin(chosen.sum(axis=1)) + rng.normal(0, 0.1, len(decision)))
        if policy.due:
            training.append(timed(policy.update))
    history = policy.history
    kept = sum(a.nbytes for a in (history.contexts, history.rewards, history.arms, history.versions))
    fifth = batches // 5
    return {
        "peak": peak_bytes(),
        "history": kept,
        "start": float(np.median(deciding[1 : 1 + fifth])) / (rounds // batches),
        "end": float(np.median(deciding[-fifth:])) / (rounds // batches),
        "deciding": sum(deciding),
        "training": sum(training),
    }


def long_run() -> None:
    """Bounded at many rounds: d = 8, m = 32, T = 100 000, B = 50, primal."""
    short, long = in_a_process("long_inner", 25_000, 50), in_a_process("long_inner", 100_000, 50)
    grown, history = long["peak"] - short["peak"], long["history"] - short["history"]
    print(f"  peak memory {short['peak'] / 2**20:.0f} MiB at T = 25 000, {long['peak'] / 2**20:.0f} MiB at 100 000;")
    print(f"  grown by {grown / 2**20:.1f} MiB, of which the history itself {history / 2**20:.1f} MiB")
    print(
        f"  deciding a round: {1e6 * long['start']:.1f} µs in the first fifth of the batches, "
        f"{1e6 * long['end']:.1f} µs in the last: ratio {long['end'] / long['start']:.2f}"
    )
    print(f"  in all {long['deciding']:.1f} s of deciding, {long['training']:.1f} s of training")


def decision() -> None:
    """One exact decision: K = 4, m = 200, t = 2000 past rounds."""
    rounds = Cosine().rounds(seed=0, count=2000)
    policy = BatchNeuralUCB(10, FixedGrid(4000, 2), seed=0, **PRINTED | {"steps": 5})
    policy.observe(policy.select(rounds.contexts), rounds.means[:, 0])
    policy.update()
    times = np.array([timed(lambda c=c: policy.select(c)) for c in Cosine().rounds(seed=1, count=600).contexts][100:])
    read = np.empty(policy._covariance.rounds * 410 + 2000 * 2000 // 2)  # type: ignore[attr-defined]
    read[:] = 1.0
    scan = min(timed(read.sum) for _ in range(5))
    print(
        f"  median {1e3 * np.median(times):.2f} ms, 99th percentile {1e3 * np.quantile(times, 0.99):.2f} ms; "
        f"one read of as many numbers {1e3 * scan:.2f} ms"
    )


def blocks() -> None:
    """Deciding a batch in one call against one round at a time: cosine, preset code, adaptive B = 200, log q = 40."""
    rounds = Cosine().rounds(seed=0, count=2000)

    def policy() -> BatchNeuralUCB:
        trigger = DeterminantTrigger(horizon=2000, batches=200, log_ratio=40.0)
        return BatchNeuralUCB(10, trigger, preset="code", step_size=0.01, seed=0, **PRINTED)

    def in_blocks(policy: BatchNeuralUCB) -> BatchNeuralUCB:
        while policy.round < len(rounds):
            now = rounds[policy.round :]
            decision = policy.select(now.contexts, until_due=True)
            policy.observe(decision, now[: len(decision)].paid(decision.arm))
            if policy.due and policy.round < len(rounds):
                policy.update()
        return policy

    together, singly = policy(), policy()
    seconds = timed(lambda: in_blocks(together)), timed(lambda: play(singly, rounds))
    same = bool(np.array_equal(together.history.arms, singly.history.arms))
    print(f"  in blocks {seconds[0]:.2f} s, one by one {seconds[1]:.2f} s; the same arms: {same}")


def runner() -> None:
    """The runner over the policies' own time: cosine, T = 2000, eight configurations, 2 runs, one process."""
    patterns = ["fixed-B40", "fixed-B100", "adaptive-B40-*", "adaptive-B100-*"]
    cells = plan_cells([PROBLEMS["cosine"]], ["practical"], runs=2, patterns=patterns)
    with tempfile.TemporaryDirectory() as folder:
        seconds = timed(lambda: reproduce(cells, Path(folder), LocalEngine(1)))
        walls = [record.data["wall"] for record in Store(Path(folder)).read()]
    policies = sum(wall["selecting"] + wall["training"] for wall in walls)
    played = sum(wall["cell"] for wall in walls)
    print(f"  {len(cells)} runs, {policies:.1f} s of policies;")
    print(f"  worlds and records {100 * (played / policies - 1):.1f} % more,")
    print(f"  with the process's start and the queue {100 * (seconds / policies - 1):.1f} % more")


def imports() -> None:
    """`import rarely` against the import of NumPy, and of NumPy with SciPy's linalg where it is installed."""

    def seconds(statement: str) -> float:
        code = f"import time; s = time.perf_counter(); {statement}; print(time.perf_counter() - s)"
        runs = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True) for _ in range(15)]
        return min(float(run.stdout) for run in runs)

    ours = seconds("import rarely")
    print(f"  {1e3 * ours:.0f} ms, {ours / seconds('import numpy'):.2f} times NumPy's")
    if importlib.util.find_spec("scipy"):
        print(f"  {ours / seconds('import numpy, scipy.linalg'):.2f} times NumPy's and scipy.linalg's")


BENCHMARKS: dict[str, Callable[[], None]] = {
    "one_file": one_file_ratio,
    "fixed_200": fixed_200,
    "million": million,
    "long_run": long_run,
    "decision": decision,
    "blocks": blocks,
    "runner": runner,
    "imports": imports,
}


def main() -> None:
    """Print the machine, then each benchmark asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--inner", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inner:
        name, *numbers = args.inner
        print(json.dumps(globals()[name](*map(int, numbers))))
        return
    if unknown := set(args.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if args.list:
        for name, work in BENCHMARKS.items():
            print(f"{name:10} {work.__doc__}")
        return
    print(describe())
    print(
        f"matrix products: {product_rate(np.float32) / 1e9:.0f} GFLOP/s in float32, "
        f"{product_rate(np.float64) / 1e9:.0f} in float64"
    )
    for name in args.names or BENCHMARKS:
        print(f"{name}: {BENCHMARKS[name].__doc__}", flush=True)
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
