"""How often trials show what is not there, and how often the intervals of their looks hold, in 20 settings.

python benchmarks/trial_errors.py                    # 10 000 trials of each setting: a quarter of an hour of one core
python benchmarks/trial_errors.py --trials 1000 --jobs 1
python benchmarks/trial_errors.py --only strong      # the settings whose names contain a word
python benchmarks/trial_errors.py --replay 100       # trials that are played again through a study, and must be equal

The family-wise error is the share of trials in which some look of some comparison with the first arm shows a difference
of the wrong sign, or one where there is none (holm), and power the share that show some difference that exists.
Together is the share in which all looks of all comparisons hold.
The coverage of a look is that of a 95 % interval for this look alone, by which the statistic itself is judged: the
lowest and the highest of all looks and comparisons, and the highest of those with ten events, and ten others, in both
arms on average. Every setting has seeds of its own, from 200 000 on; nothing was chosen on them.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import Any

import numpy as np

from rarely import AtRounds, LinTS
from rarely.planning.trial import Trouble, arrivals, cuts_of, draw_rewards, holds, play_many
from rarely.study import AnalysisPlan, RewardRule, Stage, Study
from rarely.study.looks import looks_of, share_of, shown_at

PATIENTS, PART, FIRST_SEED, Z = 600, 250, 200_000, 1.959964
BASE: dict[str, Any] = {
    "means": (0.3, 0.3),
    "looks": 5,
    "least": 0.1,
    "late": 0,
    "lost": 0.0,
    "noise": None,
    "drift": 0.0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "no difference": {},
    "one look": {"looks": 1},
    "ten looks": {"looks": 10},
    "pocock": {"spending": "pocock"},
    "pocock, ten looks": {"spending": "pocock", "looks": 10},
    "half": {"means": (0.5, 0.5)},
    "difference": {"means": (0.3, 0.5)},
    "rare": {"means": (0.02, 0.02)},
    "rare, difference": {"means": (0.02, 0.08)},
    "all alike": {"means": (0.0, 0.0)},
    "one all alike": {"means": (0.0, 0.3)},
    "late": {"late": 100},
    "late and lost": {"late": 100, "lost": 0.2},
    "drift": {"means": (0.2, 0.2), "drift": 0.3},
    "four arms": {"means": (0.3, 0.3, 0.3, 0.3)},
    "four arms, one better": {"means": (0.3, 0.3, 0.3, 0.5)},
    "four arms, pocock, late": {"means": (0.3, 0.3, 0.3, 0.3), "spending": "pocock", "late": 60},
    "strong": {"least": 0.02},
    "strong, difference": {"means": (0.3, 0.5), "least": 0.02},
    "normal, strong": {"means": (0.0, 0.3), "noise": 1.0, "least": 0.02},
}


def part(name: str, first: int, count: int) -> Any:
    """Count errors, power and trials in which all holds; coverage by look and comparison, and events."""
    fields = BASE | SETTINGS[name]
    means, drift = fields["means"], fields["drift"]
    plan = AnalysisPlan(PATIENTS, fields["looks"], fields.get("spending", "obrien-fleming"))
    updates = sorted({PATIENTS // 5, *plan.at[:-1]})
    seeds = range(first, first + count)
    moved = np.asarray(means) + drift * (np.arange(PATIENTS)[:, None] / PATIENTS)
    rewards = np.stack([draw_rewards(moved, fields["noise"], PATIENTS, seed) for seed in seeds])
    came = np.stack([arrivals(Trouble(fields["late"], fields["lost"]), PATIENTS, seed)[1] for seed in seeds])
    trials = play_many("LinTS", rewards, PATIENTS // 5, fields["least"], updates, seeds, came)
    truths = [mean - means[0] for mean in means[1:]]
    alpha, verdicts, held = share_of(plan, len(truths)), np.zeros(3), np.zeros((len(plan.at), len(truths)))
    for comparisons in cuts_of(trials, plan):
        shown = shown_at(comparisons, plan)
        signs = [
            np.sign(cuts[at].summary.estimate * truth)
            for cuts, at, truth in zip(comparisons, shown, truths, strict=True)
            if at is not None
        ]
        hold = all(holds(cuts, plan, alpha, truth) for cuts, truth in zip(comparisons, truths, strict=True))
        verdicts += [min(signs, default=1) < 1, max(signs, default=0) > 0, hold]
        for place, (cuts, truth) in enumerate(zip(comparisons, truths, strict=True)):
            held[:, place] += [low <= truth <= high for low, high in (cut.summary.interval(Z) for cut in cuts)]
    fewest = np.zeros((len(plan.at), len(means)))
    for look, at in enumerate(plan.at):
        came = trials.came[:, :at] <= (at if at < PATIENTS else np.finfo(float).max)
        for arm in range(len(means)):
            mine = came & (trials.arms[:, :at] == arm)
            won = (mine & (trials.rewards[:, :at] > 0.5)).sum()
            fewest[look, arm] = mine.sum() if fields["noise"] else min(won, mine.sum() - won)
    return verdicts, held, fewest


def replay(seed: int) -> None:
    """Play the first trial of a seed again through a study; its patients and its looks must be the same."""
    plan, names = AnalysisPlan(PATIENTS), ["control", "drug"]
    rewards = draw_rewards((0.3, 0.4), None, PATIENTS, seed)
    trials = play_many("LinTS", rewards[None], PATIENTS // 5, 0.1, plan.at[:-1], [seed])
    (cuts,) = cuts_of(trials, plan)[0]
    stages = [Stage("alike", PATIENTS // 5, burn_in=True), Stage("main", least=0.1)]
    settings = {"arms": names, "control": names[0], "rewards": RewardRule(least=0.0, most=1.0), "stages": stages}
    policy = LinTS(dim=2, schedule=AtRounds(plan.at[:-1]), seed=seed)
    study = Study.create("memory://replay", f"{seed}", policy=policy, plan=plan, **settings)
    for first in (0, *plan.at[:-1]):
        answers = study.ask_many([(np.eye(2), f"{i}") for i in range(first, first + PATIENTS // 5)])
        study.tell_many([(answer.id, rewards[int(answer.id), answer.index]) for answer in answers])
        assert [answer.index for answer in answers] == trials.arms[0, first : first + PATIENTS // 5].tolist()
        if study.due:
            study.update()
    expected = looks_of(cuts, plan, 0.05, (-1.0, 1.0))
    for look, other in zip(study.analysis().contrasts[0].looks, expected, strict=True):
        np.testing.assert_allclose(look[1:6], other[1:6], rtol=1e-9)


def report(name: str, trials: int, pool: ProcessPoolExecutor) -> None:
    """Simulate a setting, and print its row."""
    began, start = time.perf_counter(), FIRST_SEED + 100_000 * [*SETTINGS].index(name)
    firsts = range(start, start + trials, PART)
    parts = list(pool.map(part, repeat(name), firsts, [min(PART, start + trials - first) for first in firsts]))
    (errors, power, together), cover, events = (sum(each[place] for each in parts) / trials for place in range(3))
    enough = np.minimum(events[:, 1:], events[:, :1]) >= 10
    most = f"{cover[enough].max():.1%}" if enough.any() else "–"
    print(
        f"| {name} | {errors:.2%} | {power:.1%} | {together:.1%} | {cover.min():.1%} | {cover.max():.1%} | {most} |"
        f" {time.perf_counter() - began:.0f} s |",
        flush=True,
    )


def main() -> None:
    """Print a row of the table for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--replay", type=int, default=0, help="trials to play again through a study, alone")
    parser.add_argument("--only", default="", help="settings whose names contain this")
    asked = parser.parse_args()
    for seed in range(FIRST_SEED, FIRST_SEED + asked.replay):
        replay(seed)
    if asked.replay:
        print(f"{asked.replay} trials of {PATIENTS} patients were the same through a study")
        return
    print("| setting | error | power | all looks hold | a look: lowest | highest | highest with ten events | time |")
    print("|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(asked.jobs) as pool:
        for name in SETTINGS:
            if asked.only in name:
                report(name, asked.trials, pool)


if __name__ == "__main__":
    main()
