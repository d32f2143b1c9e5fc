"""Mean regrets of policies of others on a few problems: what the cards in `rarely_lab/compare/rivals.toml` rest on.

    python benchmarks/rivals.py                       # those of the cards that can be played here, some minutes
    python benchmarks/rivals.py vowpal vowpal-refit --rounds 500

Seeds from 1000 on belong to choices; no board has them.
"""

from __future__ import annotations

import argparse
import time
import warnings

from rarely_lab.compare import UnavailablePolicy, find_problem
from rarely_lab.compare.policies import POLICIES, RIVALS, find_policy
from rarely_lab.engine.play import play


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "policies", nargs="*", default=["default", "linucb", *(name for name in RIVALS if name in POLICIES)]
    )
    parser.add_argument("--problems", default="cosine,quadratic,two-sided,magic")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=4)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    problems = [find_problem(name) for name in asked.problems.split(",")]
    for name in asked.policies:
        try:
            entry = find_policy(name)
        except UnavailablePolicy as error:
            print(error)
            continue
        start, told = time.process_time(), []
        for problem in problems:
            regrets = []
            for seed in range(1000, 1000 + asked.seeds):
                contestant = entry.make(problem.task(asked.rounds, asked.batches, seed))
                rounds = problem.rounds(seed, asked.rounds)
                regrets.append(float(play(contestant, rounds, asked.batches).regrets.sum()))
            told.append(f"{problem.name} {sum(regrets) / len(regrets):.0f}")
        print(f"{name}: {', '.join(told)}; {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
