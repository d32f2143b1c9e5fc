"""How often the intervals of off-policy estimates hold the truth when few rewards differ from 0.

python benchmarks/rare_rewards.py                 # all loggers, 400 logs for each line, about 6 minutes
python benchmarks/rare_rewards.py --logs 60 uniform

Clicks of three arms with x ~ N(0, I) in two dimensions, P(click) = 1/(1 + exp(−b − 0.8·x_0 + 0.4·x_1)). The intercept b
is such that a logger that chooses any arm alike gets clicks in 1, 3 or 10 % of the rounds. The target takes the arm of
the largest x_0 with probability 0.9, the others share the rest. It is compared with one that takes the smallest x_1 so.

    uniform     logger that chooses any arm alike: weights up to 2.7
    greedy      the smallest x_1 with probability 0.8, any arm alike otherwise: weights up to 13.5
    learning    LinUCB with Mixture(0.3), five versions: weights up to 9

Shown for each estimator is the coverage of the normal 95 % interval, the share of logs whose note warns of rare rewards
or few effective rounds, and the normal coverage of the others; then the coverage of the interval for rewards in [0, 1],
and its width as a multiple of the normal one's, both in the mean.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable

import numpy as np

from rarely import FixedGrid, LinUCB, Mixture
from rarely.offpolicy import DecisionLog, Estimate, difference, dr, ips, snips
from rarely.offpolicy.intervals import deviations, normal

ARMS, SURE, SLOPES = 3, 0.9, np.array([0.8, -0.4])
RATES, ROUNDS = (0.01, 0.03, 0.1), (200, 500, 2000)
Z = deviations(0.95)
Logger = Callable[[np.ndarray, np.ndarray, np.random.Generator], DecisionLog]


def chances_of(best: np.ndarray, sure: float) -> np.ndarray:
    """(n, K): one arm with probability `sure`, the others alike."""
    return np.where(np.eye(ARMS)[best] > 0, sure, (1 - sure) / (ARMS - 1))


def targets(contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, K) each: the target, and the one that it is compared with."""
    return chances_of(contexts[..., 0].argmax(axis=1), SURE), chances_of(contexts[..., 1].argmin(axis=1), SURE)


def clicks(contexts: np.ndarray, intercept: float) -> np.ndarray:
    """(n, K): the probability of a click."""
    return 1 / (1 + np.exp(-intercept - contexts @ SLOPES))


def intercept_for(rate: float) -> float:
    """By bisection, on contexts of any arm."""
    contexts, low, high = np.random.default_rng(0).normal(size=(400_000, 2)), -15.0, 5.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if clicks(contexts, middle).mean() < rate else (low, middle)
    return low


def fixed(probabilities: Callable[[np.ndarray], np.ndarray]) -> Logger:
    """A logger that never learns."""

    def play(contexts: np.ndarray, outcomes: np.ndarray, rng: np.random.Generator) -> DecisionLog:
        chances, each = probabilities(contexts), np.arange(len(contexts))
        arms = (rng.random(len(contexts))[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        return DecisionLog.from_arrays(contexts, arms, outcomes[each, arms], probabilities=chances)

    return play


def learning(contexts: np.ndarray, outcomes: np.ndarray, rng: np.random.Generator) -> DecisionLog:
    """A logger that learns between batches."""
    n, log = len(contexts), DecisionLog()
    policy = LinUCB(2, FixedGrid(n, 5), exploration=Mixture(0.3), within_batch="frozen", seed=rng)
    while policy.round < n:
        start = policy.round
        decision = policy.select(contexts[start:], until_due=True)
        now = slice(start, policy.round)
        rewards = outcomes[now][np.arange(len(decision)), decision.arm]
        log.record(contexts[now], decision)
        for each in (log, policy):
            each.observe(decision, rewards)
        if policy.due:
            policy.update()
    return log


LOGGERS: dict[str, Logger] = {
    "uniform": fixed(lambda contexts: np.full(contexts.shape[:2], 1 / ARMS)),
    "greedy": fixed(lambda contexts: 0.2 / ARMS + 0.8 * np.eye(ARMS)[contexts[..., 1].argmin(axis=1)]),
    "learning": learning,
}
NAMES = ("ips", "snips", "dr", "difference")


def estimates(log: DecisionLog) -> list[Estimate]:
    """One for each name."""
    one, other = targets(log.contexts)
    return [*(estimator(log, one) for estimator in (ips, snips, dr)), difference(log, one, other)]


def measured(logger: Logger, rate: float, rounds: int, logs: int) -> np.ndarray:
    """(names, 5): normal coverage, noted, coverage where not noted, coverage and relative width of the other."""
    intercept = intercept_for(rate)
    many = np.random.default_rng(1).normal(size=(1_000_000, ARMS, 2))
    one, other = ((target * clicks(many, intercept)).sum(axis=1).mean() for target in targets(many))
    truths = np.array([one, one, one, one - other])
    rows = []
    for seed in range(logs):
        rng = np.random.default_rng([seed, rounds])
        contexts = rng.normal(size=(rounds, ARMS, 2))
        outcomes = (rng.random((rounds, ARMS)) < clicks(contexts, intercept)).astype(float)
        log = logger(contexts, outcomes, rng)
        rows.append([facts(found, truth) for found, truth in zip(estimates(log), truths, strict=True)])
    table = np.array(rows)
    covered, noted, inside, width, plain = np.moveaxis(table, 2, 0)
    quiet = np.where(noted == 0, covered, np.nan)
    with np.errstate(invalid="ignore"):
        rest = np.array([np.nanmean(column) if (column == column).any() else np.nan for column in quiet.T])
    return np.stack([covered.mean(0), noted.mean(0), rest, inside.mean(0), width.mean(0) / plain.mean(0)], axis=1)


def facts(found: Estimate, truth: float) -> tuple[float, ...]:
    """Of one estimate: covered by the normal interval, noted, covered by the other, and both widths."""
    low, high = normal(found.value, found.error, Z)
    noted = any(word in found.note for word in ("rewards that count", "effective rounds"))
    return low <= truth <= high, noted, found.low <= truth <= found.high, found.high - found.low, high - low


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loggers", nargs="*", choices=[[], *LOGGERS], default=[])
    parser.add_argument("--logs", type=int, default=400)
    asked = parser.parse_args()
    print("| log | clicks | rounds | " + " | ".join(NAMES) + " |")
    print("|---|---|---|" + "---|" * len(NAMES))
    for name in asked.loggers or LOGGERS:
        for rate in RATES:
            for rounds in ROUNDS:
                cells = []
                for plain, noted, quiet, covered, wider in measured(LOGGERS[name], rate, rounds, asked.logs):
                    rest = "–" if np.isnan(quiet) else f"{quiet:.0%}"
                    cells.append(f"{plain:.0%} ({noted:.0%} noted, else {rest}) → {covered:.0%}, ×{wider:.2f}")
                print(f"| {name} | {rate:.0%} | {rounds} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
