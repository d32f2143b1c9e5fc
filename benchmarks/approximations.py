"""Which approximation of Z costs the least regret where the exact one is too slow: docs/decisions/0027.

python benchmarks/approximations.py                              # three problems, five forms, 3 seeds: an hour
python benchmarks/approximations.py --problems cosine --seeds 1 --rounds 400
python benchmarks/approximations.py --table                      # what is on record, without playing

The policy is the default one with nothing but the form of Z changed. Every finished run is a line of --out, and a run
that is there is not played again. A row says the mean regret ± its standard error over that of uniform play, and the
processor time of a single decision at the end.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy; other runs share the cores

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from rarely import BatchNeuralUCB, Paced, Sketch
from rarely.worlds import World
from rarely.worlds.synthetic import Cosine, Quadratic

FORMS: dict[str, Any] = {
    "exact": "exact",
    "diagonal": "diagonal",
    "last_layer": "last_layer",
    "sketched 64": Sketch(64),
    "sketched 200": Sketch(200),
}
FIRST_SEED = 80_000


class Articles(World):
    """A small recommender: clicks depend on products of user and article numbers; 3 of 12 articles go in 100 rounds."""

    arms, dim = 12, 6 + 4 + 24

    def secret(self, generator):
        return generator.normal(size=(6, 4)), generator.normal(size=4), generator.normal(size=(400, 4))

    def round(self, t, secret, generator):
        taste, appeal, articles = secret
        user, first = generator.normal(size=6), 3 * (t // 100)
        shown = articles[first : first + 12]
        products = (user[:, None] * shown[:, None, :]).reshape(12, 24)
        contexts = np.hstack([np.tile(user, (12, 1)), shown, products])
        chances = 1 / (1 + np.exp(2.5 - 0.6 * (shown @ (taste.T @ user)) - 0.4 * (shown @ appeal)))
        return contexts, chances, generator.random() - 0.5


PROBLEMS: dict[str, World] = {"cosine": Cosine(), "quadratic": Quadratic(), "articles": Articles()}


def play(problem: str, form: str, seed: int, rounds: int) -> dict[str, Any]:
    """One run: regret, uniform's regret, and the time of a decision at the end."""
    world = PROBLEMS[problem]
    stream = world.rounds(seed=seed, count=rounds)
    policy = BatchNeuralUCB(world.dim, Paced(rounds, 20), covariance=FORMS[form], seed=seed)
    done, regret = 0, 0.0
    while done < rounds:
        decision = policy.select(stream.contexts[done:], until_due=True)
        here = np.arange(done, done + len(decision))
        rewards = stream.rewards[here, decision.arm]
        if problem == "articles":  # clicks
            rewards = (np.random.default_rng((seed, done)).random(len(here)) < stream.means[here, decision.arm]) * 1.0
        policy.observe(decision, rewards)
        regret += float((stream.means[here].max(axis=1) - stream.means[here, decision.arm]).sum())
        done += len(decision)
        if policy.due:
            policy.update()
    start = time.process_time()
    for contexts in stream.contexts[:50]:
        policy.select(contexts)
    seconds = (time.process_time() - start) / 50
    uniform = float((stream.means.max(axis=1) - stream.means.mean(axis=1)).sum())
    return {"regret": regret, "uniform": uniform, "decision": seconds}


def main() -> None:
    """Play what is not on record yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("approximations.jsonl"))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.exists() else []
    found = {tuple(row["run"]): row for row in map(json.loads, lines)}
    runs = [
        (problem, form, FIRST_SEED + seed, given.rounds)
        for seed in range(given.seeds)
        for problem in given.problems
        for form in given.forms
    ]
    for run in [] if given.table else runs:
        if run not in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[run] = {"run": run} | play(*run)
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found[run]) + "\n")
    rows = defaultdict(list)
    for (problem, form, _, rounds), row in found.items():
        rows[problem, form, rounds].append((row["regret"] / row["uniform"], row["decision"]))
    for (problem, form, rounds), values in sorted(rows.items()):
        share, seconds = np.array(values).T
        error = share.std(ddof=1) / np.sqrt(len(share)) if len(share) > 1 else np.nan
        print(f"{problem:10} {form:14} {rounds} {share.mean():.3f} ± {error:.3f}  {1e3 * np.median(seconds):.2f} ms")


if __name__ == "__main__":
    main()
