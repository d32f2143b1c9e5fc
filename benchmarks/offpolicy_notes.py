"""How often intervals of off-policy estimates hold the truth, and whether their notes tell where they do not.

python benchmarks/offpolicy_notes.py                  # 60 logs of each of 336 kinds: about 20 minutes
python benchmarks/offpolicy_notes.py --logs 10 clicks-3%

K arms with contexts x ~ N(0, I) in two dimensions and s = 0.8·x_0 − 0.4·x_1; 300 or 2000 rounds, 3 or 10 arms.

    clicks-p    1 with probability 1/(1 + exp(−b − s)), b such that p of all arms are clicked
    spend       clicks of 10 % that pay log-normal amounts, σ = 1
    amounts     log-normal in every round, σ = 1.5, mean exp(0.3·s)
    minutes     normal, 1 + 0.6·s ± 1

    ordinary    logs of any arm alike; of the smallest x_1 but for 20 % of the rounds; or drawn by exp(−x_1)
    hard        of the smallest x_1 but for 2 %; or drawn by exp(−3·x_1): weights of hundreds

    heavy       probabilities drawn by a Dirichlet(0.3), whatever the contexts, at least 10⁻⁴ or 10⁻²

    target      the largest x_0, in every round or only where the first arm's exceeds 1.28 (the smallest x_1 elsewhere)

A cell says how many of the 95 % intervals hold the truth, how many have a note, and how many hold it of those without
a note and of those with one. The difference is the target's from the old rule, by dr.
"""

from __future__ import annotations

import argparse
import itertools
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable, Iterator

import numpy as np

from rarely.offpolicy import DecisionLog, NotIdentified, difference, dr, ips, snips

Array = np.ndarray
SLOPES = np.array([0.8, -0.4])
REWARDS = ("clicks-1%", "clicks-3%", "clicks-10%", "spend", "amounts", "minutes")
ESTIMATORS = ("ips", "snips", "dr", "difference")


def mostly(x: Array, explored: float) -> Array:
    """(n, K): the smallest x_1, but for a share of the rounds any arm alike."""
    arms = x.shape[1]
    return explored / arms + (1 - explored) * np.eye(arms)[x[..., 1].argmin(axis=1)]


def drawn(x: Array, slope: float) -> Array:
    """(n, K): probabilities proportional to exp(−slope·x_1)."""
    sizes = np.exp(-slope * x[..., 1])
    return sizes / sizes.sum(axis=1, keepdims=True)


def anyhow(x: Array, least: float) -> Array:
    """(n, K): probabilities that have nothing to do with contexts; many are `least`."""
    chances = np.maximum(np.random.default_rng(x.shape[:2]).dirichlet([0.3] * x.shape[1], len(x)), least)
    return chances / chances.sum(axis=1, keepdims=True)


LOGGERS: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "ordinary": (lambda x: mostly(x, 1.0), lambda x: mostly(x, 0.2), lambda x: drawn(x, 1.0)),
    "hard": (lambda x: mostly(x, 0.02), lambda x: drawn(x, 3.0)),
    "heavy": (lambda x: anyhow(x, 1e-4), lambda x: anyhow(x, 1e-2)),
}


def best(x: Array) -> Array:
    """(n,): the largest x_0."""
    return x[..., 0].argmax(axis=1)


def near(x: Array) -> Array:
    """(n,): the largest x_0 in a tenth of the rounds, the smallest x_1 in the others."""
    return np.where(x[:, 0, 0] > 1.28, best(x), x[..., 1].argmin(axis=1))


def chances(kind: str, x: Array) -> Array:
    """(n, K): the probability of a click; spend has those of 10 %."""
    intercept = {"clicks-1%": -5.02, "clicks-3%": -3.87}.get(kind, -2.53)
    return 1 / (1 + np.exp(-intercept - x @ SLOPES))


def means(kind: str, x: Array) -> Array:
    """(n, K): expected rewards."""
    if kind == "minutes":
        return 1 + 0.6 * (x @ SLOPES)
    if kind == "amounts":
        return np.exp(0.3 * (x @ SLOPES))
    return chances(kind, x) * (np.exp(0.5) if kind == "spend" else 1.0)


def rewards_of(kind: str, x: Array, rng: np.random.Generator) -> Array:
    """(n, K): what the arms of a log pay."""
    noise = rng.normal(size=x.shape[:2])
    if kind == "minutes":
        return means(kind, x) + noise
    if kind == "amounts":
        return means(kind, x) * np.exp(1.5 * noise - 1.5**2 / 2)
    return (rng.random(x.shape[:2]) < chances(kind, x)) * (np.exp(noise) if kind == "spend" else 1.0)


def outcomes(
    kind: str, logger: Callable[[Array], Array], target: Callable[[Array], Array], arms: int, rounds: int, logs: int
) -> Iterator[tuple[str, bool, bool]]:
    """Yield the estimator, whether its interval holds the truth, and whether it has a note."""
    many = np.random.default_rng(1).normal(size=(200_000, arms, 2))
    paid = means(kind, many)
    value, old = paid[np.arange(len(many)), target(many)].mean(), (logger(many) * paid).sum(axis=1).mean()
    for seed in range(logs):
        rng = np.random.default_rng([seed, rounds, arms])
        x = rng.normal(size=(rounds, arms, 2))
        all_rewards, probabilities = rewards_of(kind, x, rng), logger(x)
        chosen = (rng.random(rounds)[:, None] > np.cumsum(probabilities, axis=1)[:, :-1]).sum(axis=1)
        log = DecisionLog.from_arrays(x, chosen, all_rewards[np.arange(rounds), chosen], probabilities=probabilities)
        try:
            found = [estimator(log, target(x)) for estimator in (ips, snips, dr)]
            found.append(difference(log, target(x), probabilities))
        except NotIdentified:
            continue
        for name, estimate, truth in zip(ESTIMATORS, found, (value, value, value, value - old), strict=True):
            yield name, estimate.low <= truth <= estimate.high, bool(estimate.note)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rewards", nargs="*", choices=[[], *REWARDS], default=[])
    parser.add_argument("--logs", type=int, default=60)
    asked = parser.parse_args()
    print("| rewards | log | " + " | ".join(ESTIMATORS) + " |\n|---|---|" + "---|" * len(ESTIMATORS))
    for kind, (name, loggers) in itertools.product(asked.rewards or REWARDS, LOGGERS.items()):
        cases = itertools.product(loggers, (best, near), (3, 10), (300, 2000))
        rows = [row for case in cases for row in outcomes(kind, *case, asked.logs)]
        cells = []
        for estimator in ESTIMATORS:
            held, noted = np.array([row[1:] for row in rows if row[0] == estimator]).T
            parts = [f"{part.mean():.0%}" if len(part) else "–" for part in (held[~noted], held[noted])]
            cells.append(f"{held.mean():.0%}, noted {noted.mean():.0%}: {parts[0]} without, {parts[1]} with")
        print(f"| {kind} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
