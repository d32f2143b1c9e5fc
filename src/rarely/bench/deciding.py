"""Exact decisions at t past rounds: one is bound by the memory that it reads, a block by its matrix products."""

from __future__ import annotations

from functools import partial

import numpy as np

from rarely.bench.measure import Benchmark, Figure, Tell
from rarely.bench.operations import frozen_numbers, scoring_dual
from rarely.bench.yardstick import all_cores_read_rate, in_turns, product_rate, reader, seconds_of
from rarely.core.policies import BatchNeuralUCB, LinTS, LinUCB
from rarely.core.schedules import FixedGrid
from rarely.worlds import Cosine


def _policy_at(rounds: int, hidden: int) -> BatchNeuralUCB:
    """A policy that has frozen so many rounds of cosine; how well it was trained matters to no time."""
    world = Cosine().rounds(seed=0, count=rounds)
    policy = BatchNeuralUCB(10, FixedGrid(2 * rounds, 2), hidden=hidden, training=5, covariance="dual", seed=0)
    decision = policy.select(world.contexts)
    policy.observe(decision, world.paid(decision.arm))
    policy.update()
    return policy


def decision(_: Tell, *, rounds: int = 2000, hidden: int = 200, count: int = 110) -> list[Figure]:
    """One round at a time under a frozen version, in turns with a read: so neither finds the caches of the other."""
    policy, contexts = _policy_at(rounds, hidden), Cosine().rounds(seed=1, count=count).contexts
    numbers = frozen_numbers(rounds, policy.network.shapes)

    read_once = reader(numbers)
    turns = [(seconds_of(partial(policy.select, c)), seconds_of(read_once)) for c in contexts][count // 10 :]
    times, reads = zip(*turns, strict=True)
    median, worst = float(np.median(times)), float(np.quantile(times, 0.99))
    fastest = numbers / all_cores_read_rate(numbers)

    def figure(name: str, what: str, read: float) -> Figure:
        note = (
            f"median {1e3 * median:.2f} ms, 99th percentile {1e3 * worst:.2f} ms; a read of {8e-6 * numbers:.1f} MB "
            f"takes {1e3 * read:.2f} ms"
        )
        says = f"One exact decision at t = {rounds}, K = 4, m = {hidden}: its median time over {what}."
        return Figure(name, says, median / read, "times one read", "lower", median, 2.0, note)

    frozen = "read of the frozen triangle and factors"
    return [
        figure("decision", f"the median time of one core's {frozen}, in turns with it", float(np.median(reads))),
        figure(
            "decision-all-cores",
            f"the shortest of nine, one after another, of all cores' {frozen}",
            fastest,
        ),
    ]


def block(_: Tell, *, rounds: int = 2000, hidden: int = 200, together: int = 64, turns: int = 9) -> list[Figure]:
    """Many rounds in one call, scored alone and decided."""
    policy = _policy_at(rounds, hidden)
    contexts = Cosine().rounds(seed=1, count=together).contexts
    operations = scoring_dual(rounds, together * contexts.shape[1], policy.network.shapes)

    works = partial(policy.score, contexts), partial(policy.select, contexts)
    rate, (score, select) = in_turns(lambda: product_rate(np.float64), *works, turns=turns)
    where = f"Blocks of {together} rounds at t = {rounds}, K = {contexts.shape[1]}, m = {hidden}"

    def figure(name: str, what: str, seconds: float, asked: float | None) -> Figure:
        share, note = 100 * operations / (seconds * rate), f"{1e3 * seconds:.1f} ms a block"
        return Figure(name, f"{where}: {what}", share, "% of product rate", "higher", seconds, asked, note)

    return [
        figure("blocks-64", "operations of the exact scoring over time, of the float64 product rate.", score, 50.0),
        figure("blocks-64-select", "the same operations over the time of `select`, which also records.", select, None),
    ]


def thompson(_: Tell, *, arms: int = 1000, dim: int = 10, rounds: int = 50, count: int = 60) -> list[Figure]:
    """Thompson sampling among many arms, with the exact probability of each, in turns with LinUCB."""
    rng = np.random.default_rng(0)
    seen, contexts = rng.normal(size=(rounds, 1, dim)), rng.normal(size=(count, arms, dim))
    sampled, optimist = LinTS(dim, FixedGrid(10**6, 2), beta=0.3, seed=0), LinUCB(dim, FixedGrid(10**6, 2), beta=0.3)
    for policy in (sampled, optimist):
        policy.observe(policy.select(seen), seen[:, 0, 0] + rng.normal(0, 0.3, rounds))
        policy.update()
    turns = [(seconds_of(partial(sampled.select, c)), seconds_of(partial(optimist.select, c))) for c in contexts]
    ours, plain = (float(np.median(times)) for times in zip(*turns[count // 10 :], strict=True))
    likely = int((sampled.probabilities(contexts[0]) > 1e-6).sum())
    return [
        Figure(
            "thompson-1000",
            f"One LinTS decision among K = {arms} arms with their exact probabilities, d = {dim}: its median time over "
            "that of LinUCB, in turns with it.",
            ours / plain,
            "times LinUCB's",
            "lower",
            ours,
            note=f"{1e3 * ours:.2f} ms against {1e3 * plain:.2f} ms; {likely} arms have a probability above 1e-6",
        )
    ]


BENCHMARKS = (
    Benchmark("decision", "One exact decision at t = 2000 over one read of what it must read.", decision),
    Benchmark("blocks-64", "Scoring and deciding 64 rounds at once, of the float64 product rate.", block),
    Benchmark("thompson-1000", "One decision of LinTS among 1000 arms over one of LinUCB.", thompson),
)
