"""Days of a recommender: what a decision, an update, a file and the memory cost on each of them, and the clicks.

python benchmarks/days.py --days 14                          # the default policy, seed 0; minutes a day at most
python benchmarks/days.py --days 100 --seeds 5 --policies default linucb last_layer diagonal vw
python benchmarks/days.py --table                            # what is on record, without playing
python benchmarks/days.py --table --at 1 20 50 99            # the same, and these days one by one

Every day runs in a process of its own: it loads the policy, decides visit by visit while the rewards of earlier visits
come in, updates, and saves. A run that was stopped continues with the day after the last one on record.

Times of decisions and updates are the processor's, so that other programs on the machine do not count; what a clock on
the wall showed is on record too. Clicks are expected ones, over those of uniform choice. Vowpal Wabbit takes part if
`pip install vowpalwabbit` was run.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy; two cores are shared by other runs

import argparse
import importlib.util
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import rarely
from rarely import ArmBlocks, BatchNeuralUCB, LinUCB, Mixture, OnDemand, Roster
from rarely.worlds import Day, Recommender

SAMPLE = 2000
"""Users and articles that the blocks are fitted to, as a log of last month would have them."""


class Player(Protocol):
    """A policy as a service uses it."""

    def decide(self, user: np.ndarray) -> tuple[str, Any]:
        """The name of the article shown to a user, and a ticket for its reward."""

    def tell(self, tickets: list[Any], rewards: list[float]) -> None:
        """Rewards that came in."""

    def begin(self, day: Day) -> None:
        """Open the day's articles, and close those that are gone."""

    def night(self) -> dict[str, Any]:
        """Update; what is on record about it."""

    def save(self, path: Path) -> None:
        """Write everything that the next process needs."""


def policies(days: int, daily: int) -> dict[str, Callable[..., rarely.Policy]]:
    """Makers of the policies of this package."""
    nights = OnDemand(horizon=days * daily)

    def neural(**own: Any) -> Callable[..., rarely.Policy]:
        return lambda **settings: BatchNeuralUCB(schedule=nights, **own, **settings)

    def linear(**settings: Any) -> rarely.Policy:
        return LinUCB(schedule=nights, beta=0.1, within_batch="frozen", exploration=Mixture(0.1), **settings)

    return {
        "default": neural(),
        "linucb": linear,
        "last_layer": neural(covariance="last_layer"),
        "diagonal": neural(covariance="diagonal"),
        "sketched": neural(covariance="sketched"),
    }


class Ours:
    """A policy of this package, with its roster."""

    def __init__(self, policy: rarely.Policy, roster: Roster) -> None:
        self.policy, self.roster = policy, roster

    @classmethod
    def new(cls, name: str, world: Recommender, days: int, seed: int) -> Ours:
        rng = np.random.default_rng((seed, 7))
        users, articles = rng.normal(size=(SAMPLE, world.user_dim)), rng.normal(size=(SAMPLE, world.article_dim))
        roster = Roster(ArmBlocks.fit(users, layout="bilinear", features=articles))
        first = world.day(seed, 0)
        for name_of_article, features in zip(first.names, first.features, strict=True):
            roster.open(name_of_article, features)
        return cls(policies(days, world.daily)[name](seed=seed, **roster.settings), roster)

    @classmethod
    def load(cls, path: Path) -> Ours:
        described = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return cls(rarely.load(path), Roster.from_description(described))

    def begin(self, day: Day) -> None:
        live = set(day.names)
        for name in self.roster.names:
            if name not in live:
                self.roster.close(name)
        for name, features in zip(day.names, day.features, strict=True):
            if name not in self.roster.slots or name not in self.roster.names:
                self.roster.open(name, features)

    def decide(self, user: np.ndarray) -> tuple[str, Any]:
        decision = self.policy.select(*self.roster(user))
        return self.roster.name_of(decision), decision.id

    def tell(self, tickets: list[Any], rewards: list[float]) -> None:
        self.policy.observe(ids=tickets, rewards=rewards)

    def night(self) -> dict[str, Any]:
        record = self.policy.update()
        told = {"accepted": record.accepted, "samples": record.samples, "steps": record.steps, "skip": record.skip}
        return told | {"beta": record.beta, "covariance": record.covariance, "trained": record.trained}

    def save(self, path: Path) -> None:
        path.with_suffix(".json").write_text(json.dumps(self.roster.describe()), encoding="utf-8")
        self.policy.save(path)


class VowpalWabbit:
    """Its squarecb with the products of user and article, trained each night on the rewards of the day."""

    ARGUMENTS = "--cb_explore_adf --squarecb --quiet -q UA --cb_type mtr"

    def __init__(self, seed: int, model: Path | None = None) -> None:
        from vowpalwabbit import Workspace

        known = f" -i {model}" if model else ""
        self._workspace = Workspace(f"{self.ARGUMENTS} --random_seed {seed + 1}{known}")
        self._rng = np.random.default_rng(seed)
        self._examples: list[list[str]] = []

    def begin(self, day: Day) -> None:
        self._names = day.names
        self._articles = [f"|A {self._numbers(article)}" for article in day.features]

    @staticmethod
    def _numbers(values: np.ndarray) -> str:
        return " ".join(f"{i}:{value:.5f}" for i, value in enumerate(values)) + " c"

    def decide(self, user: np.ndarray) -> tuple[str, Any]:
        example = [f"shared |U {self._numbers(user)}", *self._articles]
        chances = np.array(self._workspace.predict(example))
        arm = int(self._rng.choice(len(chances), p=chances / chances.sum()))
        return self._names[arm], (example, arm, float(chances[arm]))

    def tell(self, tickets: list[Any], rewards: list[float]) -> None:
        for (example, arm, chance), reward in zip(tickets, rewards, strict=True):
            self._examples.append(
                [*example[: arm + 1], f"0:{-reward}:{chance} {example[arm + 1]}", *example[arm + 2 :]]
            )

    def night(self) -> dict[str, Any]:
        for example in self._examples:
            self._workspace.learn(example)
        told = {"samples": len(self._examples)}
        self._examples = []
        return told

    def save(self, path: Path) -> None:
        self._workspace.save(str(path))


def play_day(player: Player, day: Day, pending: list[list[Any]]) -> dict[str, Any]:
    """One day: processor time of each decision, and the clicks; rewards still to come stay in `pending`."""
    player.begin(day)
    place = {name: i for i, name in enumerate(day.names)}
    seconds, earned = np.empty((len(day), 2)), 0.0
    for i, user in enumerate(day.users):
        ready = [entry for entry in pending if entry[0] <= day.hours[i]]
        if ready:
            pending[:] = [entry for entry in pending if entry[0] > day.hours[i]]
            player.tell([entry[1] for entry in ready], [entry[2] for entry in ready])
        start = time.process_time(), time.perf_counter()
        name, ticket = player.decide(user)
        seconds[i] = time.process_time() - start[0], time.perf_counter() - start[1]
        earned += day.means[i, place[name]]
        if not np.isnan(day.arrivals[i]):
            pending.append([float(day.arrivals[i]), ticket, float(day.clicks[i, place[name]])])
    (p50, wall_p50), (p99, wall_p99) = np.quantile(1e3 * seconds, (0.5, 0.99), axis=0)
    told = {"p50": p50, "p99": p99, "wall_p50": wall_p50, "wall_p99": wall_p99}
    return told | {"clicks": float(earned / day.means.mean(axis=1).sum())}


def one_day(folder: Path, name: str, number: int, days: int, daily: int, seed: int) -> None:
    """Load, decide, update, save, and put the day on record."""
    warnings.simplefilter("ignore", rarely.ApproximationWarning)  # the record has the form of Z
    world = Recommender(daily=daily)
    before, after = (folder / f"day-{n:03}.rarely" for n in (number - 1, number))
    start = time.perf_counter()
    pending: list[list[Any]] = []
    if number:
        pending = json.loads((folder / f"pending-{number - 1:03}.json").read_text(encoding="utf-8"))
    if name == "vw":
        player: Player = VowpalWabbit(seed, before if number else None)
    else:
        player = Ours.load(before) if number else Ours.new(name, world, days, seed)
    loading = time.perf_counter() - start
    record: dict[str, Any] = {"day": number, "load": loading}
    record |= play_day(player, world.day(seed, number), pending)
    start = time.process_time()
    record |= player.night()
    record["update"] = time.process_time() - start
    player.save(after)
    record |= {"file": after.stat().st_size / 1e6, "resident": peak_resident() / 1e6}
    (folder / f"pending-{number:03}.json").write_text(json.dumps(pending), encoding="utf-8")
    with (folder / "days.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    for stale in (before, before.with_suffix(".json"), folder / f"pending-{number - 1:03}.json"):
        stale.unlink(missing_ok=True)


def peak_resident() -> int:
    """The most bytes that this process has held."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def records(folder: Path) -> list[dict[str, Any]]:
    """The days on record."""
    path = folder / "days.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def play(root: Path, name: str, seed: int, days: int, daily: int) -> None:
    """The days that are not on record yet, each in a process of its own."""
    folder = root / f"{name}-{daily}" / f"seed{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(len(records(folder)), days):
        day = ["--one-day", str(folder), name, *map(str, (number, days, daily, seed))]
        subprocess.run([sys.executable, str(Path(__file__).resolve()), *day], check=True)
        print(f"{name}, seed {seed}: {line(records(folder)[-1])}", flush=True)


def line(record: dict[str, Any]) -> str:
    """A day on record in one line."""
    return (
        f"day {record['day']}: p50 {record['p50']:.2f} ms, p99 {record['p99']:.2f} ms, update {record['update']:.1f} s "
        f"({record.get('samples', 0)} rewards), file {record['file']:.1f} MB, resident {record['resident']:.0f} MB, "
        f"load {record['load']:.2f} s, clicks {record['clicks']:.3f}"
    )


def table(root: Path) -> str:
    """All runs on record: the worst day of each cost, the growth of updates, and the mean clicks."""
    rows = [
        "| policy | days | p50, ms | p99, ms | update, s: day 20, last | file, MB | resident, MB | day 0 | clicks |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for folder in sorted(root.glob("*/seed*")):
        found = records(folder)
        if not found:
            continue
        worst = {key: max(day[key] for day in found) for key in ("p50", "p99", "file", "resident")}
        early, last = found[min(20, len(found) - 1)]["update"], found[-1]["update"]
        rows.append(
            f"| {folder.parent.name} {folder.name} | {len(found)} | {worst['p50']:.2f} | {worst['p99']:.2f} "
            f"| {early:.1f}, {last:.1f} | {worst['file']:.1f} | {worst['resident']:.0f} | {found[0]['clicks']:.3f} "
            f"| {np.mean([day['clicks'] for day in found]):.3f} |"
        )
    return "\n".join(rows)


def single_days(root: Path, numbers: Sequence[int]) -> str:
    """These days of all runs on record, and the time of their updates over that of day 20."""
    rows = [
        "| policy | day | p50, ms | p99, ms | update, s | over day 20 | file, MB | resident, MB | load, s | clicks |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for folder in sorted(root.glob("*/seed*")):
        found = {day["day"]: day for day in records(folder)}
        for number in numbers:
            if number not in found:
                continue
            day, base = found[number], found.get(20)
            growth = "" if base is None or not base["update"] else f"{day['update'] / base['update']:.2f}"
            rows.append(
                f"| {folder.parent.name} {folder.name} | {number} | {day['p50']:.2f} | {day['p99']:.2f} "
                f"| {day['update']:.1f} | {growth} | {day['file']:.1f} | {day['resident']:.0f} | {day['load']:.2f} "
                f"| {day['clicks']:.2f} |"
            )
    return "\n".join(rows)


def clicks_table(root: Path) -> str:
    """Clicks over uniform's of all runs on record, in the mean over the days that a run shares with the others."""
    runs = {folder: [day["clicks"] for day in records(folder)] for folder in sorted(root.glob("*/seed*"))}
    rows = ["| policy | days | clicks | the default's on the same days and seed | days on which the default is ahead |"]
    rows.append("|---|---|---|---|---|")
    for folder, clicks in runs.items():
        default = runs.get(root / f"default-{folder.parent.name.rpartition('-')[2]}" / folder.name, [])
        shared = min(len(clicks), len(default))
        if not shared or folder.parent.name.startswith("default"):
            continue
        mine, theirs = np.array(clicks[:shared]), np.array(default[:shared])
        rows.append(
            f"| {folder.parent.name} {folder.name} | {shared} | {mine.mean():.3f} | {theirs.mean():.3f} "
            f"| {int((theirs > mine).sum())} |"
        )
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the days that are asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--daily", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--policies", nargs="+", default=["default"])
    parser.add_argument("--out", type=Path, default=Path("build/days"))
    parser.add_argument("--table", action="store_true", help="print what is on record, and play nothing")
    parser.add_argument("--at", nargs="+", type=int, default=[], help="print these days one by one as well")
    parser.add_argument("--one-day", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one_day:
        folder, name, *numbers = given.one_day
        one_day(Path(folder), name, *map(int, numbers))
        return
    for seed in range(given.first_seed, given.first_seed + (0 if given.table else given.seeds)):
        for name in given.policies:
            if name == "vw" and importlib.util.find_spec("vowpalwabbit") is None:
                print("Vowpal Wabbit is not installed, so it does not take part.")
                continue
            play(given.out, name, seed, given.days, given.daily)
    print(table(given.out))
    print(f"\n{clicks_table(given.out)}")
    if given.at:
        print(f"\n{single_days(given.out, given.at)}")


if __name__ == "__main__":
    main()
