"""Decisions: one is bound by the memory that it reads, a block by its matrix products; many arms; a bare LinUCB."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, FixedGrid, LinTS, LinUCB, NeuralTS, OnDemand, Policy
from rarely._core.types import Array
from rarely.worlds import Cosine, Rounds
from rarely_lab.engine.play import play_policy
from suite.figures import Benchmark, Figure, Tell
from suite.machine import (
    all_cores_read_rate,
    best_of,
    frozen_numbers,
    in_turns,
    product_rate,
    reader,
    scoring_dual,
    seconds_of,
)


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


SEEN, FEW = 60, 10
"""Rounds that are learned from first, and their arms."""


def makers(dim: int, hidden: int) -> dict[str, Callable[[], Policy]]:
    """The policies that are measured."""
    neural: dict[str, Any] = {"dim": dim, "schedule": OnDemand(), "hidden": hidden, "seed": 0}
    return {
        "LinUCB": lambda: LinUCB(dim, OnDemand(), seed=0),
        "LinTS": lambda: LinTS(dim, OnDemand(), beta=0.3, seed=0),
        "diagonal": lambda: BatchNeuralUCB(covariance="diagonal", **neural),
        "last_layer": lambda: BatchNeuralUCB(covariance="last_layer", **neural),
        "NeuralTS": lambda: NeuralTS(covariance="last_layer", **neural),
    }


def trained(policy: Policy, rng: np.random.Generator) -> Policy:
    """The policy after an update."""
    contexts = rng.normal(size=(SEEN, FEW, policy.dim))
    decision = policy.select(contexts)
    policy.observe(decision, contexts[np.arange(SEEN), decision.arm, 0] + rng.normal(size=SEEN))
    policy.update()
    return policy


def large_k(
    tell: Tell, *, sizes: tuple[int, ...] = (10, 100, 1000, 10_000), dim: int = 20, hidden: int = 50, count: int = 12
) -> list[Figure]:
    """One decision among more and more arms, under each policy."""
    rng, figures = np.random.default_rng(0), []
    for name, make in makers(dim, hidden).items():
        tell(name)
        medians = []
        for arms in sizes:
            policy, contexts = trained(make(), rng), rng.normal(size=(count, arms, dim))
            times = [seconds_of(partial(policy.select, one)) for one in contexts]
            medians.append(float(np.median(times[count // 4 :])))
        each = [seconds / arms for seconds, arms in zip(medians, sizes, strict=True)]
        figures.append(
            Figure(
                f"large-k-{name.lower().replace('_', '-')}",
                f"{name}, d = {dim}, m = {hidden}: time per arm of a decision among {sizes[-1]:,} arms over that among "
                f"{sizes[-2]:,}.",
                each[-1] / each[-2],
                "times per arm",
                "lower",
                medians[-1],
                2.0,
                ", ".join(f"K = {arms:,}: {1e3 * s:.2f} ms" for arms, s in zip(sizes, medians, strict=True)),
            )
        )
    return figures


def bare_linucb(rounds: Rounds, ridge: float = 1.0, beta: float = 1.0) -> list[int]:
    """Arms of LinUCB with an intercept: Sherman–Morrison on a d×d inverse, and nothing else."""
    ones = np.ones((*rounds.contexts.shape[:2], 1))
    contexts = np.concatenate([rounds.contexts, ones], axis=2)
    inverse: Array = np.eye(contexts.shape[2]) / ridge
    total: Array = np.zeros(contexts.shape[2])
    arms = []
    for x, rewards in zip(contexts, rounds.rewards, strict=True):
        solved = x @ inverse
        scores = solved @ total + beta * np.sqrt(np.einsum("ij,ij->i", solved, x))
        arm = int(np.argmax(scores))
        total += rewards[arm] * x[arm]
        u = solved[arm]
        inverse -= np.outer(u, u) / (1 + u @ x[arm])
        arms.append(arm)
    return arms


def update_linucb(_: Tell, *, rounds: int = 2000, repeats: int = 3) -> list[Figure]:
    """Both on the same rounds."""
    world = Cosine().rounds(seed=0, count=rounds)
    bare = best_of(repeats, lambda: bare_linucb(world))
    ours = best_of(repeats, lambda: play_policy(LinUCB(10, seed=0), world))
    return [
        Figure(
            "update-linucb",
            f"LinUCB with an update after every round on cosine, T = {rounds}, d = 11, K = 4: a round over one of "
            "a bare rank-one LinUCB in NumPy.",
            ours / bare,
            "times the bare one",
            "lower",
            ours,
            note=f"{1e6 * ours / rounds:.0f} µs a round against {1e6 * bare / rounds:.0f} µs",
        )
    ]


BENCHMARKS = (
    Benchmark("decision", "One exact decision at t = 2000 over one read of what it must read.", decision),
    Benchmark("blocks-64", "Scoring and deciding 64 rounds at once, of the float64 product rate.", block),
    Benchmark("thompson-1000", "One decision of LinTS among 1000 arms over one of LinUCB.", thompson),
    Benchmark("large-k", "One decision among 10 to 10 000 arms: time per arm, by policy.", large_k),
    Benchmark("update-linucb", "LinUCB, updated after every round, against a bare one.", update_linucb),
)
