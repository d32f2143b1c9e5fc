"""What a decision costs, as a multiple of LinUCB's written in plain NumPy, in processor time of one thread.

    OPENBLAS_NUM_THREADS=1 python benchmarks/decision_cost.py [--arms 4 50] [--dims 10 20] [--rounds 1000] [--table]

In every round plain NumPy decides first, so that both find the caches as the rest of a program leaves them; a row has
medians over the rounds, and the best of three repeats. Libraries that are not installed are left out. Below the table,
unless `--table` is set: the default after 1000 rounds as a multiple of its arithmetic, one product of contexts, an
arccos of all its numbers and a solve; what it takes to make contexts of 10 columns of a user and of 40 items; and, as
multiples of the same policy's decision in interleaved loops, a decision with a worth that changes nothing, one under a
ceiling, and ten slots.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from time import process_time_ns
from typing import Any, NamedTuple

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

Numbers = np.ndarray[Any, Any]
Cost = tuple[float, ...]
"""A decision, its reward, an update that is due, and one in the mean, over plain NumPy's decision; 0 where none is."""
MOST = 200
"""Rounds of a peer, or of a block of one."""


class Contestant(NamedTuple):
    """What decides round t, learns its reward, and makes an update that is due."""

    decide: Callable[[int], int]
    learn: Callable[[int, float], None]
    due: Callable[[], bool] = lambda: False
    update: Callable[[], Any] = lambda: None
    most: int = 10**9
    """Rounds that it is timed for."""
    block: Callable[[], Any] | None = None
    """Decides `most` rounds, or 1000, in one call."""


Make = Callable[[Numbers, Numbers], Contestant]


def timed(work: Callable[..., Any], *arguments: Any, into: list[int]) -> Any:
    """Do some work, and note its nanoseconds."""
    start = process_time_ns()
    result = work(*arguments)
    into.append(process_time_ns() - start)
    return result


def cost_of(make: Make, contexts: Numbers, rewards: Numbers) -> Cost:
    """Time a contestant round by round, each time after plain NumPy."""
    bare, one = plain(contexts, rewards), make(contexts, rewards)
    base, select, observe, update = (list[int]() for _ in range(4))
    for t in range(min(one.most, len(contexts))):
        bare.learn(t, float(rewards[t, timed(bare.decide, t, into=base)]))
        arm = timed(one.decide, t, into=select)
        timed(one.learn, t, float(rewards[t, arm]), into=observe)
        if one.due():
            timed(one.update, into=update)
    medians = [float(np.median(part) / np.median(base)) if part else 0.0 for part in (select, observe, update)]
    return *medians, float(np.mean(update) / np.mean(base)) if update else 0.0


def block_cost(make: Make, contexts: Numbers, rewards: Numbers) -> float:
    """Time a round of a block, the better of two, each after some rounds of plain NumPy."""
    bare, one, base, whole = plain(contexts, rewards), make(contexts, rewards), list[int](), list[int]()
    assert one.block is not None
    for _ in range(2):
        for t in range(min(MOST, len(contexts))):
            timed(bare.decide, t, into=base)
        timed(one.block, into=whole)
    return float(min(whole) / min(one.most, len(contexts)) / np.median(base))


def plain(contexts: Numbers, rewards: Numbers) -> Contestant:
    """Make LinUCB in plain NumPy."""
    d = contexts.shape[2]
    inverse, moment, arm = np.eye(d), np.zeros(d), 0

    def decide(t: int) -> int:
        nonlocal arm
        x = contexts[t]
        arm = int(np.argmax(x @ (inverse @ moment) + np.sqrt(np.einsum("ij,ij->i", x @ inverse, x))))
        return arm

    def learn(t: int, reward: float) -> None:
        nonlocal inverse, moment
        x = contexts[t, arm]
        y = inverse @ x
        inverse, moment = inverse - np.outer(y, y) / (1 + x @ y), moment + reward * x

    return Contestant(decide, learn)


def ours(kind: Any, schedule: Callable[[int], Any]) -> Make:
    """Return what makes a policy with the schedule for so many rounds."""

    def make(contexts: Numbers, rewards: Numbers) -> Contestant:
        policy, decision = kind(contexts.shape[2], schedule(len(contexts)), seed=0), None

        def decide(t: int) -> int:
            nonlocal decision
            decision = policy.select(contexts[t])
            return int(decision.arm)

        def learn(t: int, reward: float) -> None:
            policy.observe(decision, reward)

        return Contestant(decide, learn, lambda: policy.due, policy.update, block=lambda: policy.select(contexts))

    return make


def river(contexts: Numbers, rewards: Numbers) -> Contestant:
    """Make River's LinUCBDisjoint, which has one context and K models."""
    from river import bandit  # type: ignore[import-not-found, unused-ignore]

    policy, arms, arm = bandit.LinUCBDisjoint(alpha=1.0, seed=0), range(rewards.shape[1]), 0
    rows = [{str(j): number for j, number in enumerate(x)} for x in contexts[:MOST, 0]]

    def decide(t: int) -> int:
        nonlocal arm
        arm = int(policy.pull(arms, context=rows[t]))
        return arm

    return Contestant(decide, lambda t, reward: policy.update(arm, rows[t], reward), most=MOST)


def mabwiser(contexts: Numbers, rewards: Numbers) -> Contestant:
    """Make MABWiser's LinUCB, which has one context and K models."""
    from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found, unused-ignore]

    policy, rows, arm = MAB([*range(rewards.shape[1])], LearningPolicy.LinUCB(alpha=1.0)), contexts[:MOST, 0], 0
    policy.fit([0] * 5, [0.0] * 5, rows[:5])

    def decide(t: int) -> int:
        nonlocal arm
        arm = int(policy.predict(rows[t : t + 1]))
        return arm

    def learn(t: int, reward: float) -> None:
        policy.partial_fit([arm], [reward], rows[t : t + 1])

    return Contestant(decide, learn, most=MOST, block=lambda: policy.predict(rows))


def vowpal_wabbit(contexts: Numbers, rewards: Numbers) -> Contestant:
    """Make Vowpal Wabbit's SquareCB on text examples, its usual form."""
    from vowpalwabbit import pyvw  # type: ignore[import-not-found, unused-ignore]

    workspace, arm = pyvw.Workspace("--cb_explore_adf --squarecb --quiet"), 0

    def lines(t: int, label: str = "") -> list[str]:
        rows = ["| " + " ".join(f"{j}:{number:.4f}" for j, number in enumerate(row)) for row in contexts[t]]
        return [label + row if label and k == arm else row for k, row in enumerate(rows)]

    def decide(t: int) -> int:
        nonlocal arm
        arm = int(np.argmax(workspace.predict(lines(t))))
        return arm

    def learn(t: int, reward: float) -> None:
        workspace.learn(lines(t, f"{arm}:{-reward:.4f}:0.25 "))

    return Contestant(decide, learn, most=MOST)


def bayesianbandits(contexts: Numbers, rewards: Numbers) -> Contestant:
    """Make Thompson sampling of bayesianbandits, which has one context and K models."""
    import bayesianbandits as bb  # type: ignore[import-not-found, unused-ignore]

    arms = [bb.Arm(k, learner=bb.NormalRegressor(alpha=1, beta=1)) for k in range(rewards.shape[1])]
    agent, rows = bb.ContextualAgent(arms, bb.ThompsonSampling(), random_seed=0), contexts[:MOST, 0]

    def learn(t: int, reward: float) -> None:
        agent.update(rows[t : t + 1], np.array([reward]))

    return Contestant(lambda t: agent.pull(rows[t : t + 1])[0], learn, most=MOST, block=lambda: agent.pull(rows))


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
    """Return what it takes to make the contexts of a user and of items that stay, over plain NumPy's decision."""
    rng, base, added = np.random.default_rng(0), list[int](), list[int]()
    users = [
        {f"u{i}": float(rng.normal()) for i in range(8)} | {"town": f"t{t % 5}", "plan": f"p{t % 3}"}
        for t in range(rounds)
    ]
    items = [{f"i{j}": float(rng.normal()) for j in range(3)} | {"topic": f"x{t % 4}"} for t in range(40)]
    policy = FramePolicy.fit(LinUCB, users, items, schedule=OnDemand(), seed=0)
    bare = plain(rng.random((rounds, 4, 10)), np.zeros((rounds, 4)))
    for t, user in enumerate(users):
        timed(bare.decide, t, into=base)
        timed(policy.contexts, user, items, into=added)
    return float(np.median(added) / np.median(base))


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


CONTESTANTS: dict[str, Make] = {
    "plain NumPy": plain,
    "Uniform": ours(Uniform, lambda rounds: Paced(horizon=rounds, batches=20)),
    "LinUCB": ours(LinUCB, lambda rounds: Paced(horizon=rounds, batches=20)),
    "LinUCB, every round": ours(LinUCB, lambda _: EveryRound()),
    "LinTS": ours(LinTS, lambda rounds: Paced(horizon=rounds, batches=20)),
    **({"River": river} if find_spec("river") else {}),
    **({"MABWiser": mabwiser} if find_spec("mabwiser") else {}),
    **({"Vowpal Wabbit": vowpal_wabbit} if find_spec("vowpalwabbit") else {}),
    **({"bayesianbandits": bayesianbandits} if find_spec("bayesianbandits") else {}),
}
BLOCKS = {"LinUCB": ours(LinUCB, lambda _: OnDemand())} | {
    name: make for name, make in CONTESTANTS.items() if name in ("MABWiser", "bayesianbandits")
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", type=int, nargs="+", default=[4, 50])
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--table", action="store_true", help="the table alone")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for arms, dim in zip(args.arms, args.dims, strict=True):
        rng = np.random.default_rng(0)
        contexts = rng.random((args.rounds, arms, dim))
        rewards = np.cos(contexts @ rng.normal(size=dim)) + 0.1 * rng.normal(size=(args.rounds, arms))
        print(f"\nK = {arms}, d = {dim}\n\n| | select | observe | update | in the mean | a round of a block |")
        print("|---|---|---|---|---|---|")
        for name, make in CONTESTANTS.items():
            cost = [*np.min([cost_of(make, contexts, rewards) for _ in range(3)], axis=0)]
            in_block = BLOCKS.get(name)
            cost.append(min(block_cost(in_block, contexts, rewards) for _ in range(3)) if in_block else 0.0)
            print(f"| {name} | " + " | ".join(f"{part:.2f}" if part else "" for part in cost) + " |", flush=True)
        if args.table:
            continue
        print(f"\nThe default after 1000 rounds: {over_arithmetic(arms, dim):.2f} times its arithmetic")
        for name, ratio in over_bare(arms, dim).items():
            print(f"LinUCB, {name}: {ratio:.2f} times the same without")
    if args.table:
        return
    print(f"\nContexts of a user and 40 items take {frames_add():.1f} times plain NumPy's decision (K = 4, d = 10)")
    for arms in (1000, 10_000):
        for name, ratio in over_bare(arms, 20, slots=10, repeats=20, loop=5).items():
            print(f"LinUCB, {name} among {arms} arms: {ratio:.1f} times one decision")


if __name__ == "__main__":
    main()
