"""The default against that of an earlier release and LinUCB after every round, on worlds of every kind.

python benchmarks/evidence.py                          # 20 worlds, 8 seeds, B = 40: an hour on two cores
python benchmarks/evidence.py --worlds clicks flip     # some of them
python benchmarks/evidence.py --seeds 32 --first 2000  # other seeds
python benchmarks/evidence.py --reference FOLDER       # and the default of the sources in another folder
python benchmarks/evidence.py --linear                 # LinUCB that learns λ and the noise, and LinUCB with λ = β = 1
python benchmarks/evidence.py --standing               # how often the default forgets worlds that stand still

`network` is the same policy with hidden=200, played where no reference is named. A row has the mean regret of each
policy, and the geometric mean over seeds of the default's regret over the better of the other two in that run, with a
95 % interval of Student's t on the logarithms. Seeds 1000 to 1999 took part in the choice of the default's constants.
Every finished run is a line of --out, and an interrupted command goes on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rarely import BatchNeuralUCB, EveryRound, LinUCB, Paced, Policy
from rarely.extend.provisional import t_quantile
from suite.studies import play_all, play_batches

TASK = ("world", "policy", "batches", "seed")
POLICIES = ("default", "network", "linucb")
REFERENCE = """
import sys
import numpy as np
from rarely import BatchNeuralUCB, Paced
path, batches, seed = sys.argv[1:]
with np.load(path) as given:
    contexts, rewards = given["contexts"], given["rewards"]
policy, arms = BatchNeuralUCB(contexts.shape[2], Paced(len(contexts), int(batches)), seed=int(seed)), []
while len(arms) < len(contexts):
    start = len(arms)
    decision = policy.select(contexts[start:], until_due=True)
    arms += decision.arm.tolist()
    policy.observe(decision, rewards[np.arange(start, len(arms)), decision.arm])
    if policy.due and len(arms) < len(contexts):
        policy.update()
print(*arms)
"""
"""Plays the default of whatever release is imported."""
LINEAR = ("learned", "linucb")
"""LinUCB with an update after every round, with ridge="learned" and with λ = β = 1."""


class Made(NamedTuple):
    """Contexts of all arms, (T, K, d), their means and their rewards, (T, K)."""

    contexts: np.ndarray
    means: np.ndarray
    rewards: np.ndarray


def direction(rng: np.random.Generator, d: int) -> np.ndarray:
    w = rng.normal(size=d)
    return w / np.linalg.norm(w)


def shared(
    mean: Callable[..., np.ndarray], noise: float, arms: int = 4, d: int = 6, rounds: int = 1500
) -> Callable[[int], Made]:
    """A world whose arms share a mean, which may depend on two directions and on the part of the rounds played."""

    def make(seed: int) -> Made:
        rng = np.random.default_rng((seed, d, arms))
        w, v = direction(rng, d), direction(rng, d)
        contexts = rng.normal(size=(rounds, arms, d))
        means = mean(contexts, w, v, np.linspace(0, 1, rounds)[:, None])
        return Made(contexts, means, means + noise * rng.normal(size=means.shape))

    return make


def clicking(mean: Callable[..., np.ndarray], arms: int, d: int, rounds: int) -> Callable[[int], Made]:
    """The same with rewards of 0 and 1."""

    def make(seed: int) -> Made:
        made = shared(mean, 0.0, arms, d, rounds)(seed)
        drawn = np.random.default_rng((seed, 1)).random(made.means.shape)
        return made._replace(rewards=(drawn < made.means).astype(float))

    return make


def heavy(seed: int) -> Made:
    made = shared(lambda x, w, v, t: 0.5 * x @ w, 0.0)(seed)
    return made._replace(rewards=made.means + 0.3 * np.random.default_rng(seed).standard_t(2, size=made.means.shape))


def mistaken(seed: int) -> Made:
    """One reward in a hundred is a mistake, of 10¹² on either side."""
    made, rng = heavy(seed), np.random.default_rng((seed, 4))
    noise = rng.normal(0, 0.3, made.means.shape)
    wrong = np.where(rng.random(made.means.shape) < 0.01, rng.choice([-1e12, 1e12], made.means.shape), 0.0)
    return made._replace(rewards=made.means + noise + wrong)


def purchases(seed: int) -> Made:
    """One visit in twenty buys for 30, among visits that are worth nothing but noise."""
    made, rng = clicking(lambda x, w, v, t: 0.1 * logistic(1.5 * x @ w), 4, 8, 1500)(seed), np.random.default_rng(seed)
    noise = rng.normal(0, 0.3, made.means.shape)
    return made._replace(means=30 * made.means, rewards=30 * made.rewards + noise)


def blocks(rows: np.ndarray, arms: int) -> np.ndarray:
    """Each arm's context is the row in a block of its own."""
    out = np.zeros((len(rows), arms, arms * rows.shape[1]))
    for arm in range(arms):
        out[:, arm, arm * rows.shape[1] : (arm + 1) * rows.shape[1]] = rows
    return out


def classes(arms: int, d: int, *, linear: bool, skew: float, rounds: int = 2000) -> Callable[[int], Made]:
    """Classification as a bandit: linear classes, or classes around centers."""

    def make(seed: int) -> Made:
        rng = np.random.default_rng((seed, arms))
        rows, weights = rng.normal(size=(rounds, d)), rng.normal(size=(arms, d))
        scores = rows @ weights.T if linear else -np.square(rows[:, None] - 1.5 * weights).sum(axis=2)
        scores = scores / np.sqrt(d) + np.linspace(skew, -skew, arms) + 0.3 * rng.normal(size=(rounds, arms))
        means = np.eye(arms)[scores.argmax(axis=1)]
        return Made(blocks(np.column_stack((rows, np.ones(rounds))) / np.sqrt(d + 1), arms), means, means.copy())

    return make


def categories(seed: int, arms: int = 5, levels: int = 6, rounds: int = 1500) -> Made:
    rng = np.random.default_rng((seed, 9))
    users, table = rng.integers(levels, size=(rounds, 3)), rng.random((levels, levels, arms))
    rows = np.concatenate([np.eye(levels)[users[:, j]] for j in range(3)], axis=1)
    means = table[users[:, 0], users[:, 1]]
    return Made(blocks(rows, arms), means, (rng.random(means.shape) < means).astype(float))


def plain(seed: int, arms: int = 10, rounds: int = 1500) -> Made:
    rng = np.random.default_rng((seed, 10))
    means = np.tile(rng.random(arms), (rounds, 1))
    return Made(np.tile(np.eye(arms), (rounds, 1, 1)), means, means + 0.5 * rng.normal(size=means.shape))


def logistic(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


WORLDS: dict[str, Callable[[int], Made]] = {
    "linear": shared(lambda x, w, v, t: 0.5 * x @ w, 0.3),
    "linear, 30 arms": shared(lambda x, w, v, t: 0.3 * x @ w, 0.5, arms=30),
    "linear, 60 columns": shared(lambda x, w, v, t: 0.5 * x @ w, 0.3, arms=8, d=60),
    "cosine": shared(lambda x, w, v, t: np.cos(3 * x @ w / np.sqrt(10)), 0.1, d=10),
    "quadratic": shared(lambda x, w, v, t: np.square(x @ w), 0.1, d=10),
    "absolute": shared(lambda x, w, v, t: np.abs(x @ w), 0.1, d=10),
    "product of two of forty": shared(lambda x, w, v, t: x[..., 3] * x[..., 17], 0.3, d=40),
    "bump and step": shared(lambda x, w, v, t: np.exp(-np.square(x @ w)) + 0.5 * np.tanh(x @ v), 0.2, arms=6, d=5),
    "sine of one direction": shared(lambda x, w, v, t: 1e4 * np.sin(3 * x @ w), 1e3, d=8),
    "heavy tails": heavy,
    "clicks": clicking(lambda x, w, v, t: logistic(1.2 * x @ w + 0.6 * x[..., 0] * x[..., 1] - 4), 6, 5, 3000),
    "logistic": clicking(lambda x, w, v, t: logistic(2 * x @ w), 5, 8, 1500),
    "flip": shared(lambda x, w, v, t: np.tanh(x @ w) * np.where(t < 0.5, 1, -1), 0.3),
    "half a turn": shared(lambda x, w, v, t: 0.5 * (np.cos(np.pi * t) * (x @ w) + np.sin(np.pi * t) * (x @ v)), 0.3),
    "there and back": shared(lambda x, w, v, t: np.tanh(np.where((4 * t).astype(int) % 2 == 0, x @ w, x @ v)), 0.3),
    "fifteen skewed classes": classes(15, 10, linear=True, skew=2.0),
    "five linear classes": classes(5, 6, linear=True, skew=0.0),
    "six classes around centers": classes(6, 4, linear=False, skew=0.0),
    "categories in pairs": categories,
    "ten plain arms": plain,
}


def drifting(mean: Callable[..., np.ndarray], shift: Callable[[np.ndarray], np.ndarray]) -> Callable[[int], Made]:
    """A world that stands still while its contexts move along one direction."""

    def make(seed: int, rounds: int = SHORT, arms: int = 4, d: int = 6) -> Made:
        rng = np.random.default_rng((seed, d, arms))
        w, v = direction(rng, d), direction(rng, d)
        contexts = rng.normal(size=(rounds, arms, d)) + shift(np.linspace(0, 1, rounds)[:, None, None]) * v
        means = mean(contexts, w, v)
        return Made(contexts, means, means + 0.3 * rng.normal(size=means.shape))

    return make


def cut(make: Callable[[int], Made]) -> Callable[[int], Made]:
    """The first rounds of a world."""
    return lambda seed: Made(*(rows[:SHORT] for rows in make(seed)))


def uneven(seed: int) -> Made:
    made = shared(lambda x, w, v, t: 0.5 * x @ w, 0.0)(seed)
    noise = np.random.default_rng((seed, 3)).normal(size=made.means.shape)
    return made._replace(rewards=made.means + np.abs(made.contexts[..., 1]) * noise)


def counts(seed: int) -> Made:
    made = shared(lambda x, w, v, t: np.exp(0.5 + 0.6 * x @ w), 0.0, d=5)(seed)
    return made._replace(rewards=np.random.default_rng((seed, 2)).poisson(made.means).astype(float))


FAR_OUT: dict[str, Callable[[int], Made]] = {"mistaken rewards": mistaken, "rare purchases": purchases}
"""Worlds with rewards that lie far out, which are played where they are named."""
SHORT = 800
"""Rounds of a life of 100 updates."""
CUT = (
    *("linear", "cosine", "absolute", "bump and step", "sine of one direction", "heavy tails"),
    *("logistic", "five linear classes", "six classes around centers", "categories in pairs"),
)
STANDING: dict[str, Callable[[int], Made]] = {
    "contexts drift": drifting(lambda x, w, v: np.square(x @ w) / 3 + x @ v, lambda t: 4 * t),
    "contexts drift, bent": drifting(lambda x, w, v: np.tanh(x @ v) + 0.5 * x @ w, lambda t: 6 * t - 3),
    "seasons": drifting(lambda x, w, v: np.cos(x @ v) + 0.5 * x @ w, lambda t: 2 * np.sin(12 * t)),
    "seasons in steps": drifting(lambda x, w, v: (x @ v > 0.5) * (x @ w), lambda t: 2.0 * ((6 * t).astype(int) % 2)),
    "nearly perfect": shared(lambda x, w, v, t: 0.5 * x @ w, 1e-3, rounds=SHORT),
    "nearly perfect, bent": shared(lambda x, w, v, t: np.cos(2 * x @ w), 1e-3, rounds=SHORT),
    "rare rewards": clicking(lambda x, w, v, t: 0.02 * logistic(2 * x @ w), 4, 5, SHORT),
    "one arm": shared(lambda x, w, v, t: np.sin(2 * x @ w) + x @ v, 0.3, arms=1, d=5, rounds=SHORT),
    "uneven noise": cut(uneven),
    "counts": cut(counts),
    **{f"{name}, short": cut(WORLDS[name]) for name in CUT},
}


def play(world: str, policy: str, batches: int, seed: int) -> dict[str, Any]:
    """Play one run, and return its regret and its processor time by the update."""
    contexts, means, rewards = (WORLDS | FAR_OUT | STANDING)[world](seed)
    rounds, dim = len(contexts), contexts.shape[2]
    player: Policy
    if policy in LINEAR:
        player = LinUCB(dim, EveryRound(), ridge=1.0 if policy == "linucb" else "learned")
    else:
        player = BatchNeuralUCB(dim, Paced(rounds, batches), seed=seed, hidden=200 if policy == "network" else None)
    if policy.startswith("/"):
        arms = of_reference(policy, contexts, rewards, batches, seed)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arms = np.array(play_batches(player, contexts, rewards))
    regret = float((means.max(axis=1) - means[np.arange(rounds), arms]).sum())
    uniform = float((means.max(axis=1) - means.mean(axis=1)).sum())
    forgot = sum(bool(update.memory) for update in player.updates)
    run = {"world": world, "policy": policy, "batches": batches, "seed": seed, "regret": regret, "uniform": uniform}
    return run | {"forgot": forgot}


def of_reference(folder: str, contexts: np.ndarray, rewards: np.ndarray, batches: int, seed: int) -> np.ndarray:
    """Return the arms of the default of the sources in a folder."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "world.npz"
        np.savez(path, contexts=contexts, rewards=rewards)
        command = [sys.executable, "-W", "ignore", "-c", REFERENCE, str(path), str(batches), str(seed)]
        environment = os.environ | {"PYTHONPATH": str(Path(folder) / "src")}
        played = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return np.array(played.stdout.split(), dtype=int)


def count_alarms(runs: list[dict[str, Any]]) -> None:
    """Print how many lives forgot, by world and in all, with the upper end of Clopper and Pearson's 95 % interval."""
    for world in STANDING:
        lives = [run["forgot"] > 0 for run in runs if run["world"] == world]
        print(f"{world:28} {sum(lives):4} of {len(lives)} lives forgot")
    total, count = sum(run["forgot"] > 0 for run in runs), len(runs)
    upper = next(p for p in np.linspace(0, 1, 10_001) if p == 1 or binomial_cdf(total, count, p) <= 0.025)
    print(f"{'in all':28} {total:4} of {count} lives forgot, {total / count:.2%}, at most {upper:.2%}")


def binomial_cdf(most: int, count: int, share: float) -> float:
    """Return the probability of at most so many successes."""
    return sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(most + 1))


def ratio(own: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Return the geometric mean of ratios of paired regrets, and its 95 % interval."""
    logs = np.log(np.maximum(own, 1e-9) / np.maximum(others, 1e-9))
    half = t_quantile(1.959964, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.inf
    center = float(logs.mean())
    return float(np.exp(center)), float(np.exp(center - half)), float(np.exp(center + half))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS | FAR_OUT), metavar="WORLD")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reference", type=Path, help="a folder with the sources of another release")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--standing", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/evidence.jsonl"))
    given = parser.parse_args()
    if given.reference and not (given.reference / "src" / "rarely").is_dir():
        parser.error(f"--reference must be a folder with src/rarely; got {given.reference}.")
    seeds = range(given.first, given.first + given.seeds)
    if given.standing:
        tasks = [(w, "default", 101, seed) for seed in seeds for w in STANDING]
        return count_alarms(play_all(play, tasks, TASK, given.out, given.jobs))
    policies = LINEAR if given.linear else POLICIES
    if given.reference:
        policies = "default", str(given.reference.resolve()), "linucb"
    tasks = [(w, p, given.batches, seed) for seed in seeds for w in given.worlds for p in policies]
    runs = play_all(play, tasks, TASK, given.out, given.jobs)
    regrets = {(run["world"], run["policy"], run["seed"]): run["regret"] for run in runs}
    first, *others = policies
    print(f"{'world':28}", *(f"{policy[-10:]:>10}" for policy in policies), f"   {first}/better of the others")
    logs: dict[str, list[float]] = {policy: [] for policy in others}
    for world in given.worlds:
        of = {policy: np.array([regrets[world, policy, seed] for seed in seeds]) for policy in policies}
        center, low, high = ratio(of[first], np.minimum.reduce([of[policy] for policy in others]))
        means = (f"{of[policy].mean():10.4g}" for policy in policies)
        print(f"{world:28}", *means, f"   {center:.2f} [{low:.2f}, {high:.2f}]")
        for policy in others:
            logs[policy].append(np.log(of[first].mean() / of[policy].mean()))
    for policy, of_worlds in logs.items():
        print(f"geometric mean over worlds, {first} over {policy}: {np.exp(np.mean(of_worlds)):.3f}")


if __name__ == "__main__":
    main()
