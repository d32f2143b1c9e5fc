"""What a decision costs, as a multiple of LinUCB's written in plain NumPy, in processor time of one thread.

    OPENBLAS_NUM_THREADS=1 python benchmarks/decision_cost.py [--arms 4 50] [--dims 10 20] [--rounds 1000]

Medians over the rounds, and the best of three repeats; libraries that are not installed are left out. Below the table:
the default after 1000 rounds as a multiple of its arithmetic, one product of contexts, an arccos of all its numbers and
a solve; what a frame of 10 columns of a user and 40 items adds to the same policy on arrays; and, as multiples of the
same policy's decision in interleaved loops, a decision with a worth that changes nothing, one under a ceiling, and ten
slots.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from time import process_time_ns
from typing import Any

import numpy as np

from rarely import (
    BatchNeuralUCB,
    Ceiling,
    EveryRound,
    FramePolicy,
    LinTS,
    LinUCB,
    OnDemand,
    Paced,
    Uniform,
    Worth,
)
from rarely._core.covariance.cholesky import GrowingCholesky

Cost = tuple[float, float, float]
"""Microseconds of a decision, of its reward, and of an update that is due."""
Play = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Cost]


def medians(*parts: list[int]) -> Cost:
    """Return the median of each part in microseconds; 0 without numbers."""
    select, observe, update = (float(np.median(part)) / 1e3 if part else 0.0 for part in parts)
    return select, observe, update


def plain(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
    """Time LinUCB in plain NumPy."""
    d = contexts.shape[2]
    inverse, moment, select, learn = np.eye(d), np.zeros(d), list[int](), list[int]()
    for x, r in zip(contexts, rewards, strict=True):
        start = process_time_ns()
        k = int(np.argmax(x @ (inverse @ moment) + np.sqrt(np.einsum("ij,ij->i", x @ inverse, x))))
        middle = process_time_ns()
        y = inverse @ x[k]
        inverse, moment = inverse - np.outer(y, y) / (1 + x[k] @ y), moment + r[k] * x[k]
        select.append(middle - start)
        learn.append(process_time_ns() - middle)
    return medians(select, learn, [])


def ours(make: Callable[[int, int], Any]) -> Play:
    """Return what times a policy round by round."""

    def play(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
        policy, parts = make(contexts.shape[2], len(contexts)), (list[int](), list[int](), list[int]())
        for x, r in zip(contexts, rewards, strict=True):
            start = process_time_ns()
            decision = policy.select(x)
            parts[0].append(process_time_ns() - start)
            reward, start = float(r[decision.arm]), process_time_ns()
            policy.observe(decision, reward)
            parts[1].append(process_time_ns() - start)
            if policy.due:
                start = process_time_ns()
                policy.update()
                parts[2].append(process_time_ns() - start)
        return medians(*parts)

    return play


def block(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
    """Time a round of LinUCB in one block."""
    policy = LinUCB(contexts.shape[2], OnDemand(), seed=0)
    start = process_time_ns()
    policy.select(contexts)
    return (process_time_ns() - start) / len(contexts) / 1e3, 0.0, 0.0


def river(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
    """Time River's LinUCBDisjoint, which has one context and K models."""
    from river import bandit  # type: ignore[import-not-found, unused-ignore]

    policy, select, learn = bandit.LinUCBDisjoint(alpha=1.0, seed=0), list[int](), list[int]()
    for x, r in zip(contexts[:200, 0], rewards, strict=False):
        row = {str(j): number for j, number in enumerate(x)}
        start = process_time_ns()
        k = policy.pull(range(len(r)), context=row)
        middle = process_time_ns()
        policy.update(k, row, r[k])
        select.append(middle - start)
        learn.append(process_time_ns() - middle)
    return medians(select, learn, [])


def mabwiser(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
    """Time MABWiser's LinUCB, which has one context and K models."""
    from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found, unused-ignore]

    arms, rows, select, learn = list(range(rewards.shape[1])), contexts[:200, 0], list[int](), list[int]()
    policy = MAB(arms=arms, learning_policy=LearningPolicy.LinUCB(alpha=1.0))
    policy.fit([0] * 5, [0.0] * 5, rows[:5])
    for t, r in enumerate(rewards[: len(rows)]):
        start = process_time_ns()
        k = policy.predict(rows[t : t + 1])
        middle = process_time_ns()
        policy.partial_fit([k], [r[k]], rows[t : t + 1])
        select.append(middle - start)
        learn.append(process_time_ns() - middle)
    return medians(select, learn, [])


def vowpal_wabbit(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
    """Time Vowpal Wabbit's SquareCB on text examples, its usual form."""
    from vowpalwabbit import pyvw  # type: ignore[import-not-found, unused-ignore]

    workspace, select, learn = pyvw.Workspace("--cb_explore_adf --squarecb --quiet"), list[int](), list[int]()

    def lines(x: np.ndarray[Any, Any], r: np.ndarray[Any, Any], label: int | None = None) -> list[str]:
        rows = ["| " + " ".join(f"{j}:{number:.4f}" for j, number in enumerate(row)) for row in x]
        return [(f"{k}:{-r[k]:.4f}:0.25 " if k == label else "") + row for k, row in enumerate(rows)]

    for x, r in zip(contexts[:200], rewards, strict=False):
        start = process_time_ns()
        k = int(np.argmax(workspace.predict(lines(x, r))))
        middle = process_time_ns()
        workspace.learn(lines(x, r, k))
        select.append(middle - start)
        learn.append(process_time_ns() - middle)
    return medians(select, learn, [])


def bayesianbandits(contexts: np.ndarray[Any, Any], rewards: np.ndarray[Any, Any]) -> Cost:
    """Time Thompson sampling of bayesianbandits, which has one context and K models."""
    import bayesianbandits as bb  # type: ignore[import-not-found, unused-ignore]

    arms = [bb.Arm(k, learner=bb.NormalRegressor(alpha=1, beta=1)) for k in range(rewards.shape[1])]
    agent, rows = bb.ContextualAgent(arms, bb.ThompsonSampling(), random_seed=0), contexts[:200, 0]
    select, learn = list[int](), list[int]()
    for t, r in enumerate(rewards[: len(rows)]):
        start = process_time_ns()
        (k,) = agent.pull(rows[t : t + 1])
        middle = process_time_ns()
        agent.update(rows[t : t + 1], np.array([r[k]]))
        select.append(middle - start)
        learn.append(process_time_ns() - middle)
    return medians(select, learn, [])


def over_arithmetic(arms: int, dim: int, rounds: int = 1000) -> float:
    """Return what the default's decision takes over its arithmetic, after so many rounds."""
    rng = np.random.default_rng(0)
    contexts, theta = rng.random((rounds + 100, arms, dim)), rng.normal(size=dim)
    policy = BatchNeuralUCB(dim=dim, schedule=Paced(horizon=2 * rounds, batches=20), seed=0)
    for x in contexts[:rounds]:
        decision = policy.select(x)
        policy.observe(decision, float(np.cos(x[decision.arm] @ theta) + 0.1 * rng.normal()))
        if policy.due:
            policy.update()
    past, ours, bare = rng.random((rounds, dim)), list[int](), list[int]()
    factor = GrowingCholesky.of(past @ past.T + np.eye(rounds))[0]
    for x in contexts[rounds:]:
        start = process_time_ns()
        policy.select(x)
        middle = process_time_ns()
        inner = past @ x.T
        factor.solve(inner + np.arccos(inner / (1 + inner.max())), rounds)
        ours.append(middle - start)
        bare.append(process_time_ns() - middle)
    return float(np.median(ours) / np.median(bare))


def frames_add(rounds: int = 200) -> float:
    """Return what a frame adds to a decision on arrays, in microseconds."""
    rng = np.random.default_rng(0)
    users = [
        {f"u{i}": float(rng.normal()) for i in range(8)} | {"town": f"t{t % 5}", "plan": f"p{t % 3}"}
        for t in range(rounds)
    ]
    items = [{f"i{j}": float(rng.normal()) for j in range(3)} | {"topic": f"x{t % 4}"} for t in range(40)]
    policy, added = FramePolicy.fit(LinUCB, users, items, schedule=OnDemand(), seed=0), list[int]()
    for user in users:
        start = process_time_ns()
        policy.select(user, items)
        middle = process_time_ns()
        contexts, begin = policy.contexts(user, items), process_time_ns()
        policy.policy.select(contexts)
        added.append(middle - start - (process_time_ns() - begin))
    return float(np.median(added)) / 1e3


def over_bare(arms: int, dim: int, *, slots: int = 0, repeats: int = 40, loop: int = 100) -> dict[str, float]:
    """Return what decisions with more to heed take over a bare one of the same policy, the least of many loops each."""
    rng, made = np.random.default_rng(0), [LinUCB(dim, OnDemand(), seed=0) for _ in range(4)]
    contexts, gains, spends = rng.random((arms, dim)), np.ones(arms), rng.random(arms)
    bare, valued, spending = made[0], made[1], made[2].under(Ceiling(1e9, per=10**9))
    plays: dict[str, Callable[[], Any]] = {"bare": lambda: bare.select(contexts)}
    if slots:
        plays[f"{slots} slots"] = lambda: made[3].select(contexts, slots=slots)
    else:
        plays["worth"] = lambda: valued.select(contexts, worth=gains)
        plays["ceiling"] = lambda: spending.select(contexts, worth=Worth(gains, spends=spends))
    costs: dict[str, list[int]] = {name: [] for name in plays}
    for _ in range(repeats):
        for name, play in plays.items():
            start = process_time_ns()
            for _ in range(loop):
                play()
            costs[name].append(process_time_ns() - start)
    return {name: min(each) / min(costs["bare"]) for name, each in costs.items() if name != "bare"}


PLAYS: dict[str, Play] = {
    "plain NumPy": plain,
    "Uniform": ours(lambda d, n: Uniform(d, Paced(horizon=n, batches=20), seed=0)),
    "LinUCB": ours(lambda d, n: LinUCB(d, Paced(horizon=n, batches=20), seed=0)),
    "LinUCB, every round": ours(lambda d, n: LinUCB(d, EveryRound(), seed=0)),
    "LinTS": ours(lambda d, n: LinTS(d, Paced(horizon=n, batches=20), seed=0)),
    "LinUCB, in a block": block,
    **({"River": river} if find_spec("river") else {}),
    **({"MABWiser": mabwiser} if find_spec("mabwiser") else {}),
    **({"Vowpal Wabbit": vowpal_wabbit} if find_spec("vowpalwabbit") else {}),
    **({"bayesianbandits": bayesianbandits} if find_spec("bayesianbandits") else {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, nargs="+", default=[4, 50])
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--rounds", type=int, default=1000)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for arms, dim in zip(args.arms, args.dims, strict=True):
        rng = np.random.default_rng(0)
        contexts = rng.random((args.rounds, arms, dim))
        rewards = np.cos(contexts @ rng.normal(size=dim)) + 0.1 * rng.normal(size=(args.rounds, arms))
        costs = {name: np.min([play(contexts, rewards) for _ in range(3)], axis=0) for name, play in PLAYS.items()}
        base = costs["plain NumPy"][0]
        print(f"\nK = {arms}, d = {dim}: plain NumPy decides in {base:.1f} µs\n")
        print("| | select | observe | update |\n|---|---|---|---|")
        for name, cost in costs.items():
            print(f"| {name} | " + " | ".join(f"{part / base:.2f}" if part else "" for part in cost) + " |")
        print(f"\nThe default after 1000 rounds: {over_arithmetic(arms, dim):.2f} times its arithmetic")
        print(f"A frame adds {frames_add() / base:.1f} times plain NumPy's decision")
        for name, ratio in over_bare(arms, dim).items():
            print(f"LinUCB, {name}: {ratio:.2f} times the same without")
    for arms in (1000, 10_000):
        for name, ratio in over_bare(arms, 20, slots=10, repeats=20, loop=5).items():
            print(f"LinUCB, {name} among {arms} arms: {ratio:.1f} times one decision")


if __name__ == "__main__":
    main()
