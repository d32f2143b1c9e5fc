"""The scales of a board, from records of all that was played on it: the best mean regret known on each problem, which
is 0, and that of uniform play, which is 1.

python benchmarks/board.py FOLDER              # the lines of [v2.scales] in lab/src/rarely_lab/compare/boards.toml
python benchmarks/board.py FOLDER --seeds 5    # from as many whole seeds, where the board has not all of them yet

FOLDER is one of `rarely compare --board v2`, or a file of packed records. A mean counts if its policy has that many
seeds, by default all of the board; of every budget, for the best known may have few updates, and of LinUCB's pairs,
though a leaderboard shows the best of them alone. A problem without such a mean is named, and the exit code is 1.
Written once, when a board is released.
"""

from __future__ import annotations

import argparse
import sys

from rarely_lab.compare import read_records
from rarely_lab.compare.scores import BOARDS, Leaderboard


def scales(results: Leaderboard, board: dict, seeds: int) -> dict[str, list[float]]:
    """Return what is 0 and 1 on each problem that was played as the board says."""
    out = {}
    for problem in (*board["tuned"], *board["untuned"]):
        if results.rounds.get(problem) == board["rounds"]:
            cells = ((policy, batches) for policy in results.policies for batches in results.budgets(problem))
            whole = [cell for cell in cells if len(results.runs(problem, *cell)) >= seeds]
            if whole:
                drawn = {seed: one.uniform for cell in whole for seed, one in results.runs(problem, *cell).items()}
                zero = min(results.regret(problem, *cell).value for cell in whole)
                out[problem] = [float(f"{value:.6g}") for value in (zero, sum(drawn.values()) / len(drawn))]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--board", default="v2", choices=list(BOARDS))
    parser.add_argument("--seeds", type=int)
    asked = parser.parse_args()
    board = BOARDS[asked.board]
    found = scales(Leaderboard(read_records(asked.folder).records), board, asked.seeds or board["seeds"])
    print(f"[{asked.board}.scales]")
    for problem, scale in found.items():
        print(f'"{problem}" = {scale}')
    if lacking := [problem for problem in (*board["tuned"], *board["untuned"]) if problem not in found]:
        sys.exit(f"not complete, and left out: {', '.join(lacking)}")


if __name__ == "__main__":
    main()
