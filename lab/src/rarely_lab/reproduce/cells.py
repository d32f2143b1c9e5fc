"""Cells of the paper's experiments: what each plays, how long it takes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from rarely.runs.machine import reset_peak_memory
from rarely.worlds.datasets import Dataset
from rarely.worlds.protocol import World
from rarely_lab.engine import cell as runs
from rarely_lab.engine.play import LibraryContestant, drawn, play, play_policy
from rarely_lab.reproduce.config import Problem, Setup
from rarely_lab.reproduce.records import Record, content_of, log_det_rounds


@dataclass(frozen=True)
class Cell(Setup, runs.Cell):
    """One configuration on one run of one problem."""

    record_type: ClassVar[type[Record]] = Record
    shared_field: ClassVar[str] = "problem"

    @property
    def together(self) -> tuple[str, Any]:
        kind = self.configuration.kind
        if self.problem.timed or self.reading == "code" or self.configuration.linear or kind in ("uniform", "default"):
            return "", None
        return kind if kind == "neuralucb" else "network", (self.problem.name, self.reading, self.rounds)

    def describe(self) -> dict[str, Any]:
        # The world tells the source; B and log q are the configuration's, and T stands below. The rest changes no run.
        others = ("source", "batches", "log_ratios", "rounds", "timed", "runs", "presets")
        problem = {name: value for name, value in vars(self.problem).items() if name not in others}
        return {
            "problem": problem,
            "world": self.world().describe(),
            "reading": self.reading,
            "configuration": asdict(self.configuration),
            "seed": self.seed,
            "rounds": self.rounds,
        }

    def play(self) -> dict[str, Any]:
        start = time.perf_counter()
        reset_peak_memory()
        policy, log_dets, noted = self.policy(), dict[int, float](), {*log_det_rounds(self.rounds)}

        def watch(t: int) -> None:
            if t in noted:
                log_dets[t] = policy.log_det

        rounds = drawn(self.world(), self.seed, self.rounds)
        if self.configuration.kind == "default":  # the same decisions in blocks, which take less time
            played = play(LibraryContestant(policy, sorted(noted)), rounds, watch=watch)
        else:
            played = play_policy(policy, rounds, watch)
        seconds = time.perf_counter() - start
        return content_of(played, policy.updates, log_dets.__getitem__, self.configuration.cause, seconds)

    def work(self) -> float:
        """Predict how long it takes."""
        rounds, problem, configuration = self.rounds, self.problem, self.configuration
        selecting, updates = 0.5e-3 * rounds, self.updates
        if configuration.linear or configuration.kind == "uniform":
            return selecting
        if configuration.kind == "default":
            return selecting + updates * (0.1 + 0.2 * rounds**2 / 4e6)
        if self.reading == "code":
            return 2 * selecting + updates * problem.steps * 6e-5
        width = 10 if isinstance(problem.source, World) else 40
        return 2 * selecting + 2 * updates * rounds * problem.hidden * width * problem.steps / 25e9

    @property
    def updates(self) -> int:
        """Predict how many there are; an adaptive schedule is taken to use all of its budget."""
        rounds, configuration = self.rounds, self.configuration
        updates = min(configuration.batches or rounds, rounds)
        if configuration.log_ratio is not None and updates == rounds:
            # Without a budget log q decides: log det Z grows by about 2000 in such runs.
            updates = min(rounds, round(2000 / configuration.log_ratio))
        return updates

    def portable(self) -> Problem:
        """Return its problem with the table itself in place of the file that holds it."""
        source = self.problem.source
        return replace(self.problem, source=source.table()) if isinstance(source, Dataset) else self.problem
