"""How often `rarely advise` is wrong, and how often it tells: twenty made logs whose truth is known.

    python benchmarks/advice.py                     all twenty, seed 0
    python benchmarks/advice.py --seed 100 --only clicks-xor,counts

A log is of users with 6 numbers (or of four offers with 5 numbers each) and four arms. What is true is what each
candidate earns over `--horizon` rounds of the world that made the log, in `--truths` runs on other rounds. A gain is
what a round earns over choosing at random. The answer is *wrong* if some other candidate's true gain is larger than
the recommended one's by more than a twentieth of the best, and by more than two standard errors of the truth. Policies
*differ* if the gains of the default and of the better linear one differ by a fifth of the best, which is surely a gain.
"""

import argparse
import json
import time
from dataclasses import dataclass

import numpy as np

from rarely import Paced
from rarely.logs import DecisionLog
from rarely.planning.advice import improving
from rarely.planning.simulate import CANDIDATES, LoggedRounds, LogWorld, Maker, play

ARMS = 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(rng, x):
    return x @ rng.normal(size=(x.shape[-1], ARMS)) / 2


def xor(rng, x):
    signs = rng.permutation([1, 1, -1, -1])
    return 1.2 * signs * np.sign(x[:, :1] * x[:, 1:2])


def regions(rng, x):
    centres = rng.normal(size=(ARMS, 2))
    return 2 * np.exp(-np.square(x[:, None, :2] - centres).sum(axis=2)) - 0.3


def steps(rng, x):
    return np.where(x[:, :1] > rng.normal(size=ARMS) / 2, 1.0, -0.5) * np.array([1, 1, -1, 0.3])


def offers(shape):
    def means(rng, x):
        w = rng.normal(size=x.shape[-1])
        return shape(x @ (w / np.linalg.norm(w)))

    return means


def plain(rng, x):
    return np.tile(np.linspace(-0.5, 0.5, ARMS), (len(x), 1))


def nothing(rng, x):
    return np.zeros((len(x), ARMS))


def normal(mu, rng):
    return mu, mu + rng.normal(size=mu.shape)


def clicks(mu, rng):
    p = sigmoid(mu - 1.5)
    return p, (rng.random(mu.shape) < p) * 1.0


def counts(mu, rng):
    rate = np.exp(mu / 1.5)
    return rate, rng.poisson(rate) * 1.0


def money(mu, rng):
    buys = sigmoid(mu - 1)
    return 20 * buys, (rng.random(mu.shape) < buys) * 20 * rng.lognormal(-0.5, 1.0, mu.shape)


MADE = {
    "normal-linear": (linear, normal, 5000, "uniform"),
    "clicks-linear": (linear, clicks, 8000, "uniform"),
    "counts": (linear, counts, 5000, "uniform"),
    "money-linear": (linear, money, 8000, "uniform"),
    "normal-xor": (xor, normal, 5000, "uniform"),
    "clicks-xor": (xor, clicks, 8000, "uniform"),
    "counts-xor": (xor, counts, 5000, "uniform"),
    "money-xor": (xor, money, 8000, "uniform"),
    "normal-regions": (regions, normal, 5000, "uniform"),
    "clicks-regions": (regions, clicks, 8000, "uniform"),
    "steps": (steps, normal, 5000, "leaning"),
    "clicks-steps": (steps, clicks, 8000, "leaning"),
    "offers-cosine": (offers(lambda z: np.cos(3 * z)), normal, 5000, "uniform"),
    "offers-square": (offers(lambda z: z * z - 1), normal, 5000, "leaning"),
    "offers-linear": (offers(lambda z: z), clicks, 5000, "uniform"),
    "plain-arms": (plain, clicks, 5000, "uniform"),
    "nothing": (nothing, normal, 5000, "uniform"),
    "no-chances": (xor, normal, 5000, "unknown"),
    "no-chances-linear": (linear, clicks, 5000, "unknown"),
    "short": (regions, normal, 1000, "uniform"),
}


@dataclass
class Truth:
    """Rewards as they are, where a plan has fitted ones."""

    mu: np.ndarray
    kind: object

    def means(self, rounds, network=0):
        return self.kind(self.mu[rounds], np.random.default_rng(0))[0]

    def pay(self, means, luck):
        return self.kind(self.now, np.random.default_rng(int(luck[0, 0, 0] * 2**53)))[1]


class TrueWorld(LogWorld):
    """The world that made the log, on rounds of its own."""

    def secret(self, generator):
        order = generator.permutation(len(self.log))[: self.horizon]
        self.rewards.now = self.rewards.mu[order]
        means = self.rewards.means(order)
        return order, means, self.rewards.pay(means, generator.random((*means.shape, 2)))


def make(name, seed):
    """Return the log and its world."""
    shape, kind, count, logging = MADE[name]
    rng = np.random.default_rng((seed, list(MADE).index(name)))
    total = count + 6000
    x = rng.normal(size=(total, ARMS, 5) if name.startswith("offers") else (total, 6))
    mu = shape(rng, x)
    chances = np.full((count, ARMS), 1 / ARMS)
    if logging == "leaning":
        chances = np.exp(0.8 * rng.normal(size=(count, ARMS)))
        chances /= chances.sum(axis=1, keepdims=True)
    arms = (rng.random((count, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(max=ARMS - 1)
    paid = kind(mu[:count], rng)[1][np.arange(count), arms]
    place = {"rows": x[:count], "arm_count": ARMS} if x.ndim == 2 else {"contexts": x[:count]}
    known = (
        {}
        if logging == "unknown"
        else {
            "probabilities" if x.ndim == 3 else "propensities": chances
            if x.ndim == 3
            else chances[np.arange(count), arms]
        }
    )
    log = DecisionLog.from_arrays(arms=arms, rewards=paid, **place, **known)
    other = DecisionLog.from_arrays(
        **({"rows": x[count:], "arm_count": ARMS} if x.ndim == 2 else {"contexts": x[count:]})
    )
    return log, LoggedRounds(other), Truth(mu[count:], kind)


def truth_of(rounds, rewards, horizon, batches, runs):
    """Return the gains (runs, C) of all candidates."""
    world, gains = TrueWorld(rounds, rewards, horizon), []
    for seed in range(runs):
        played = world.rounds(seed, horizon)
        chance = float((played.means.max(axis=1) - played.means.mean(axis=1)).sum())
        row = []
        for each in map(Maker, CANDIDATES):
            regret = play(world, each, horizon, Paced(horizon, batches), seed).regret
            row.append((chance - regret) / horizon)
        gains.append(row)
    return np.array(gains)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--horizon", type=int, default=600)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--truths", type=int, default=6)
    given = parser.parse_args()
    names, told, wrong, far, far_told = tuple(CANDIDATES), 0, 0, 0, 0
    asked = given.only.split(",") if given.only else list(MADE)
    for name in asked:
        log, rounds, rewards = make(name, given.seed)
        gains = truth_of(rounds, rewards, given.horizon, given.batches, given.truths)
        true, begun, first = gains.mean(axis=0), time.process_time(), None
        settings = {"horizon": given.horizon, "batches": given.batches, "runs": given.runs, "seed": given.seed}
        for advice in improving(log, **settings):
            first = first or time.process_time() - begun
            last = advice
        best, size = int(true.argmax()), max(float(true.max()), 1e-12)
        error = gains[:, best].std(ddof=1) / np.sqrt(len(gains))
        differ = abs(true[0] - true[1:].max()) >= 0.2 * size and len(log) >= 5000 and size > 3 * error
        miss = False
        if last.recommended is not None:
            chosen = names.index(last.recommended)
            each = gains[:, best] - gains[:, chosen]
            miss = each.mean() > 0.05 * size and each.mean() > 2 * each.std(ddof=1) / np.sqrt(len(each))
        told, wrong = told + (last.recommended is not None), wrong + miss
        far, far_told = far + differ, far_told + (differ and last.recommended is not None)
        print(
            f"{name:18} true gains {np.round(true, 4).tolist()} advice {np.round(last.gains, 4).tolist()} "
            f"-> {last.recommended} {'WRONG' if miss else ''}{' differ' if differ else ''} "
            f"first {first:.0f} s of processor time, all {time.process_time() - begun:.0f} s",
            flush=True,
        )
        print("    " + json.dumps({k: np.round(v, 4).tolist() for k, v in last.sources.items()}), flush=True)
    print(f"{len(asked)} logs: {told} told, {wrong} wrong; of {far} with 5000 rows that differ {far_told} told")


if __name__ == "__main__":
    main()
