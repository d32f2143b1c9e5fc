"""Many rounds: primal runs whose contexts are drawn as they go, each in a process of its own.

T  rounds    B  batches    K  arms    d  dim    m  hidden    p  parameters    J  steps
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from rarely import Affine, BatchNeuralUCB, DeterminantTrigger, FixedGrid, Schedule
from rarely._core.types import Array
from rarely.runs.machine import peak_memory, reset_peak_memory
from rarely.worlds import Rounds
from rarely_lab.engine.play import play_policy
from suite.figures import Benchmark, Figure, Tell
from suite.machine import alone, product_rate, scoring_primal, seconds_of, training_pass

CHUNK = 2000
"""Rounds whose contexts are in memory at a time."""
TURNS = 20
MILLION: dict[str, Any] = {"batches": 100, "dim": 20, "arms": 10, "hidden": 64, "steps": 20}


def chunks(rounds: int, arms: int, dim: int, seed: int = 0) -> Iterator[tuple[Array, Array]]:
    """Contexts (n, K, d) and rewards (n, K) of a stream, drawn as it goes: memory does not grow with T."""
    direction = np.random.default_rng(seed).normal(size=dim)
    for start in range(0, rounds, CHUNK):
        rng = np.random.default_rng((seed, start, 1))
        contexts = rng.normal(size=(min(CHUNK, rounds - start), arms, dim)) / np.sqrt(dim)
        means = np.sin(contexts @ direction)
        yield contexts, means + rng.normal(0, 0.1, (len(contexts), 1))


def _primal(dim: int, schedule: Schedule, hidden: int, steps: int) -> BatchNeuralUCB:
    """Contexts come scaled, and no constant is appended: p is m(d + 1)."""
    scale = Affine.identity(dim)
    return BatchNeuralUCB(
        dim, schedule, hidden=hidden, training=steps, covariance="primal", context_scale=scale, seed=0
    )


class Streamed:
    """A long primal run on a fixed grid, or with `log_ratio` under the determinant rule, played a part at a time."""

    def __init__(
        self, *, rounds: int, batches: int, dim: int, arms: int, hidden: int, steps: int, log_ratio: float | None
    ) -> None:
        schedule: Schedule = FixedGrid(rounds, batches)
        if log_ratio is not None:
            schedule = DeterminantTrigger(rounds, batches, log_ratio)
        self.rounds, self.arms, self.steps = rounds, arms, steps
        self.policy = _primal(dim, schedule, hidden, steps)
        self.deciding: list[tuple[int, float]] = []
        """Rounds and seconds, chunk by chunk."""
        self.training = self.processor = 0.0
        self._chunks = chunks(rounds, arms, dim)

    def play(self, until: int) -> None:
        """Go on to this round."""
        begun = time.process_time()
        policy = self.policy
        while policy.round < until:
            contexts, rewards = next(self._chunks)
            done, seconds = 0, 0.0
            while done < len(contexts):
                start = time.perf_counter()
                decision = policy.select(contexts[done:], until_due=True)
                policy.observe(decision, rewards[done:][np.arange(len(decision)), decision.arm])
                seconds += time.perf_counter() - start
                done += len(decision)
                if policy.due and policy.round < self.rounds:
                    self.training += seconds_of(policy.update)
            self.deciding.append((len(contexts), seconds))
        self.processor += time.process_time() - begun

    def described(self, rates: tuple[float, float]) -> dict[str, Any]:
        """What it took, and what its products alone would take at these rates, of float32 and float64."""
        shapes, fifth = self.policy.network.shapes, max(1, len(self.deciding) // 5)
        trained = sum(self.steps * training_pass(update.samples, shapes) for update in self.policy.updates)
        return {
            "parameters": self.policy.network.parameters,
            "versions": self.policy.version + 1,
            "history": sum(array.nbytes for array in self.policy.history.state()[1].values()),
            "deciding": sum(seconds for _, seconds in self.deciding),
            "training": self.training,
            "processor": self.processor,
            "ideal": scoring_primal(self.rounds * self.arms, shapes) / rates[1] + trained / rates[0],
            "start": float(np.median([seconds / n for n, seconds in self.deciding[:fifth]])),
            "end": float(np.median([seconds / n for n, seconds in self.deciding[-fifth:]])),
        }


def stream(tell: Tell, *, rounds: int, times: list[int], **settings: Any) -> list[dict[str, Any]]:
    """Runs of so many times the rounds, in turns, each a twentieth of its own at a time; in a process of their own.

    A machine that is slower for some minutes is then slower for all of them.
    """
    runs = [Streamed(rounds=count * rounds, **settings) for count in times]
    rates = product_rate(np.float32), product_rate(np.float64)
    reset_peak_memory()  # the yardstick's own arrays are not the runs'
    for turn in range(1, TURNS + 1):
        for run in runs:
            run.play(run.rounds * turn // TURNS)
            tell(f"round {run.policy.round:,} of {run.rounds:,}, version {run.policy.version}")
    peak = peak_memory()
    rates = max(rates[0], product_rate(np.float32)), max(rates[1], product_rate(np.float64))
    return [run.described(rates) | {"peak": peak} for run in runs]


def expected_growth(
    rounds: int, schedule: Schedule, probe: int, *, dim: int, arms: int, hidden: int, steps: int
) -> float:
    """log det Z after T rounds, from so many: it grows like log t, so its late slope in log t is carried on."""
    run = Streamed(rounds=probe, batches=1, dim=dim, arms=arms, hidden=hidden, steps=steps, log_ratio=None)
    run.policy = policy = _primal(dim, schedule, hidden, steps)
    run.play(probe)
    ends = [(1, 0.0), *((update.round, update.log_det) for update in policy.updates), (probe, policy.log_det)]
    late = np.array(ends[len(ends) // 2 - 1 :])
    slope = np.polyfit(np.log(late[:, 0]), late[:, 1], 1)[0]
    return float(policy.log_det + slope * np.log(rounds / probe))


def fitting_log_ratio(rounds: int, batches: int, probe: int = 20_000, **own: int) -> float:
    """log q with which about B versions are used in T rounds: the whole growth of log det over B.

    That growth depends on when versions change, for features move with the weights. So a short run on a grid
    makes a first guess, and a short run under the rule with that guess the second.
    """
    probe = min(probe, rounds)
    guess = expected_growth(rounds, FixedGrid(probe, 10), probe, **own) / batches
    return expected_growth(rounds, DeterminantTrigger(log_ratio=guess), probe, **own) / batches


def million_rounds(tell: Tell, *, rounds: int = 1_000_000, settings: dict[str, Any] = MILLION) -> list[Figure]:
    """T and 2T on a fixed grid, and T under the determinant rule."""
    own = {name: settings[name] for name in ("dim", "arms", "hidden", "steps")}
    log_ratio = fitting_log_ratio(rounds, settings["batches"], **own)
    tell(f"log q = {log_ratio:.1f} should make about {settings['batches']} versions")
    once, twice = alone(stream, tell, rounds=rounds, times=[1, 2], log_ratio=None, **settings)
    (rule,) = alone(stream, tell, rounds=rounds, times=[1], log_ratio=log_ratio, **settings)
    setting = (
        f"T = {rounds:,}, d = {own['dim']}, K = {own['arms']}, m = {own['hidden']}, p = {once['parameters']}, "
        f"B = {settings['batches']}, J = {own['steps']}, primal"
    )

    def over_products(name: str, how: str, out: dict[str, Any]) -> Figure:
        seconds = out["deciding"] + out["training"]
        says = (
            f"{setting}, {how}: the whole time over the products of scoring (p² operations a candidate) and training."
        )
        return Figure(
            name,
            says,
            seconds / out["ideal"],
            "times the products' time",
            "lower",
            seconds,
            note=_note(out, alone=out is rule),
        )

    seconds = [out["deciding"] + out["training"] for out in (once, twice)]
    return [
        over_products("million-rounds-fixed", "fixed grid", once),
        over_products("million-rounds-determinant", f"determinant rule, log q = {log_ratio:.1f}", rule),
        Figure(
            "million-rounds-doubled",
            f"{setting}, fixed grid: the time of twice as many rounds at the same B over the time of these, in turns.",
            seconds[1] / seconds[0],
            "times as long",
            "lower",
            seconds[1],
            2.1,
            f"{twice['processor'] / once['processor']:.2f} times the processor's time; {_note(twice, alone=False)}",
        ),
    ]


def _note(out: dict[str, Any], *, alone: bool) -> str:
    memory = f"peak memory {out['peak'] / 2**20:.0f} MiB, of which " if alone else ""
    return (
        f"{out['deciding']:.0f} s of deciding and {out['training']:.0f} s of training, {out['versions']} versions, "
        f"{memory}the history {'' if alone else 'has '}{out['history'] / 2**20:.0f} MiB"
    )


def long_run(tell: Tell, *, rounds: int = 100_000, batches: int = 50) -> list[Figure]:
    """Deciding must cost the same at the end as at the start."""
    settings = {"batches": batches, "dim": 8, "arms": 4, "hidden": 32, "steps": 200, "log_ratio": None}
    (short,) = alone(stream, tell, rounds=rounds // 4, times=[1], **settings)
    (long,) = alone(stream, tell, rounds=rounds, times=[1], **settings)
    grown = (long["peak"] - short["peak"]) / 2**20
    return [
        Figure(
            "long-run",
            f"T = {rounds:,}, d = 8, K = 4, m = 32, B = {batches}, primal: deciding a round in the last fifth of the "
            "run over the first.",
            long["end"] / long["start"],
            "times as long",
            "lower",
            long["deciding"] + long["training"],
            note=f"{_note(long, alone=True)}; {grown:.0f} MiB more than at a quarter of the rounds",
        )
    ]


def wide(tell: Tell, *, rounds: int, hidden: int, depth: int, batches: int, steps: int) -> dict[str, Any]:
    """A wide and deep network in the dual form; runs in a process of its own."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(rounds, 4, 20)) / np.sqrt(20)
    means = np.sin(3 * contexts[:, :, 0])
    world = Rounds(contexts, means, means + rng.normal(0, 0.1, (rounds, 1)))
    schedule = FixedGrid(rounds, batches)
    policy = BatchNeuralUCB(20, schedule, hidden=hidden, depth=depth, preset="paper", seed=0, training=steps)
    tell(f"p = {policy.network.parameters:,}")
    seconds = seconds_of(lambda: play_policy(policy, world))
    return {
        "parameters": policy.network.parameters,
        "peak": peak_memory(),
        "seconds": seconds,
        "versions": policy.version + 1,
    }


def million_parameters(
    tell: Tell, *, rounds: int = 500, hidden: int = 1000, depth: int = 3, batches: int = 20, steps: int = 20
) -> list[Figure]:
    """Exact at a million parameters."""
    out = alone(wide, tell, rounds=rounds, hidden=hidden, depth=depth, batches=batches, steps=steps)
    return [
        Figure(
            "million-parameters",
            f"Peak memory of an exact run at p = {out['parameters']:,} (m = {hidden}, L = {depth}, d = 20): {rounds} "
            f"rounds, B = {batches}, J = {steps}.",
            out["peak"] / 2**30,
            "GiB",
            "lower",
            out["seconds"],
            1.0,
            f"{out['versions']} versions in {out['seconds']:.0f} s",
        )
    ]


BENCHMARKS = (
    Benchmark("long-run", "Deciding at the end of 100 000 rounds over deciding at the start.", long_run, "full"),
    Benchmark(
        "million-rounds",
        "A million rounds and two, fixed grid, and a million under the determinant rule (J = 20): an hour or so.",
        million_rounds,
        "named",
    ),
    Benchmark("million-parameters", "Peak memory of an exact run at a million parameters.", million_parameters, "full"),
)
