"""Fleets of four deciders and two coordinators in random schedules of rotation, damage and kills.

What was answered is joined once, or an error names the line that has it; what was rewarded is learned once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns import ARMS, DIM, made, serially, write_rewards
from rarely import NothingToLearn, load
from rarely.cluster import (
    Decider,
    FolderBusy,
    LostDecisions,
    LostDecisionsWarning,
    join,
    learning,
    prune,
    publish,
    rotate,
    update,
)
from rarely.cluster.files import Folder

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[ray]'")
parquet = pytest.importorskip("pyarrow.parquet")
PILOT = 60


class Killed(BaseException):
    """Stands for kill -9."""


class Fleet:
    """A fleet, and what an observer of its answers and of its files knows."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.logs, self.away = folder / "logs", folder / "away"
        for each in (self.logs / "old", self.away):
            each.mkdir(parents=True)
        self.deciders: list[Decider | None] = [None] * 4
        self.answered, self.unsure, self.damaged, self.said = set[str](), set[str](), set[str | None](), set[str]()
        self.rewarded = dict[str, float]()
        made("linear", within_batch="running").save(folder / "policy")
        publish(load(folder / "policy"), folder / "store")

    def pick(self, options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def files(self) -> list[Path]:
        return sorted(path for path in self.logs.rglob("[!.]*") if path.is_file())

    def decide(self, kill: str = "") -> None:
        """Let a decider decide some rounds; `kill` says how the last one ends."""
        which = int(self.rng.integers(4))
        try:
            decider = self.deciders[which] or Decider(self.folder / "store", self.logs / f"{which}", poll=1e6)
        except LostDecisions as error:
            self.note(str(error))
            rotate(self.logs)
            return
        self.deciders[which] = decider
        for _ in range(int(self.rng.integers(1, 8))):
            self.answer(decider)
        if kill:
            id = f"{len(self.answered) + len(self.unsure)}"
            self.unsure.add(id)
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                die_in_write(patch, kill, int(self.rng.integers(1, 80)))
                decider.decide(id, self.rng.normal(size=(ARMS, DIM)))
        if kill or self.rng.random() < 0.2:
            self.deciders[which] = None
            decider.close()

    def answer(self, decider: Decider) -> None:
        id = f"{len(self.answered) + len(self.unsure)}"
        decider.decide(id, self.rng.normal(size=(ARMS, DIM)))
        self.answered.add(id)

    def killed(self) -> None:
        self.decide(self.pick(["torn", "whole"]))

    def rename(self) -> None:
        """Rename a log, or move it to a folder within or away."""
        path = self.pick(self.files() or [None])
        if path is not None:
            target = self.pick([self.logs, self.logs / "old", self.away]) / f"{path.name}-{self.rng.integers(10**6)}"
            path.rename(target)

    def put_back(self) -> None:
        for path in self.away.iterdir():
            path.rename(self.logs / path.name)

    def copy(self) -> None:
        path = self.pick(self.files() or [None])
        if path is not None and not any(path.name.endswith(".copy") for path in self.files()):
            shutil.copy(path, path.with_name(path.name + ".copy"))
            (path.with_name(path.name + ".copy")).rename(self.folder / "backup")
            self.join()  # while the copy is elsewhere, and while it is there
            (self.folder / "backup").rename(path.with_name(path.name + ".copy"))
            self.join()
            path.with_name(path.name + ".copy").unlink()

    def damage(self) -> None:
        """Change a byte of a line that holds a decision."""
        path = self.pick(self.files() or [None])
        if path is None:
            return
        with open(path, "rb") as file:
            lines = file.readlines()
        found = [i for i, line in enumerate(lines) if b"\t" in line and line[-1:] == b"\n"]
        if not found or self.rng.random() < 0.5:
            return
        i = self.pick(found)
        content, at = bytearray(path.read_bytes()), sum(map(len, lines[:i])) + int(self.rng.integers(len(lines[i]) - 1))
        content[at] ^= 1 << int(self.rng.integers(8))
        if content[at] == ord("\n"):
            return
        self.damaged |= {id_of(lines[i])} - {None}
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(content[at : at + 1])

    def note(self, message: str) -> None:
        """Keep which line an error names."""
        for path, number in re.findall(r"(\S+), line (\d+)", message):
            self.said.add(f"{Path(path).name}:{number}")

    def rotate(self) -> None:
        with suppress(LostDecisions):
            rotate(self.logs)

    def join(self) -> list[str]:
        """Join as either coordinator, which may be killed, or meet the other."""
        with interfered(self.rng, lambda: join(self.logs, self.folder / "waves")):
            try:
                return join(self.logs, self.folder / "waves")
            except LostDecisions as error:
                self.note(str(error))
            except Killed:
                pass
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", LostDecisionsWarning)
            waves = join(self.logs, self.folder / "waves", accept_losses=True)
        for one in found:
            self.note(str(one.message))
        return waves

    def prune(self) -> None:
        with suppress(LostDecisions):
            prune(self.logs, self.folder / "waves")

    def reward(self) -> None:
        """Pay some decisions."""
        some = {id: float(self.rng.normal()) for id in self.answered - self.rewarded.keys() if self.rng.random() < 0.5}
        if some:
            write_rewards(self.folder / "rewards" / f"{len(self.rewarded)}.parquet", some.keys(), list(some.values()))
            self.rewarded |= some

    def update(self) -> None:
        """Let both coordinators learn from the same policy, one of them with rewards that the other has not seen."""
        waves = self.join()
        policies = [load(self.folder / "policy") for _ in range(int(self.rng.integers(1, 3)))]
        for policy in policies:
            for _ in range(3):  # what was killed is called again
                with suppress(NothingToLearn, Killed), interfered(self.rng, None):
                    if waves and self.rewarded:
                        update(policy, waves, self.folder / "rewards")
                    break
            self.reward()
        policy = self.pick(policies)
        policy.save(self.folder / "policy")
        publish(policy, self.folder / "store")

    def end(self) -> None:
        """Check that nothing was lost or doubled."""
        for decider in filter(None, self.deciders):
            decider.close()
        self.put_back()
        waves = self.join()
        ids = [id for wave in waves for id in parquet.read_table(wave, columns=["id"]).column("id").to_pylist()]
        assert len(ids) == len(set(ids))
        assert set(ids) <= self.answered | self.unsure
        assert self.answered - set(ids) <= self.damaged
        assert len(self.said) >= len(self.answered - set(ids))
        write_rewards(self.folder / "rewards" / "last.parquet", self.rewarded, list(self.rewarded.values()))
        policy, paid = load(self.folder / "policy"), self.rewarded.keys() & set(ids)
        with suppress(NothingToLearn):
            update(policy, waves, self.folder / "rewards")
        assert policy.updates[-1].samples == PILOT + len(paid)


def id_of(line: bytes) -> str | None:
    with suppress(ValueError):
        return str(json.loads(line[9:].split(b"\t")[0])["id"])
    return None


def die_in_write(patch: pytest.MonkeyPatch, kill: str, some: int) -> None:
    """Let the process die within the next write, or right after it."""
    write = os.write

    def dying(file: int, line: bytes) -> int:
        write(file, line[:some] if kill == "torn" else line)
        raise Killed

    def dead(*args: Any) -> None:
        raise Killed

    patch.setattr(os, "write", dying)
    patch.setattr(os, "ftruncate", dead)


@contextmanager
def interfered(rng: np.random.Generator, other: Callable[[], Any] | None) -> Iterator[None]:
    """Let a coordinator be killed as it names a file, or the other one call meanwhile."""
    commit, when, how = Folder.commit, int(rng.integers(6)), rng.integers(3)

    def commits(folder: Folder, temporary: str, name: str) -> None:
        nonlocal when
        when -= 1
        if when == 0 and how == 0:
            raise Killed
        if when == 0 and how == 1 and other is not None:
            with pytest.raises(FolderBusy):
                other()
        commit(folder, temporary, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "commit", commits)
        yield


@pytest.mark.filterwarnings("ignore::rarely.DriftWarning", "ignore::rarely.OutlierWarning")
@pytest.mark.parametrize("seed", range(int(os.environ.get("FLEETS", "4"))))
def test_no_decision_or_reward_is_lost_or_doubled(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "committing", serially)
    fleet = Fleet(tmp_path, seed)
    events = [fleet.decide] * 6 + [fleet.killed, fleet.rename, fleet.put_back, fleet.copy, fleet.damage, fleet.rotate]
    events += [fleet.join, fleet.prune, fleet.reward, fleet.update]
    for _ in range(20):
        fleet.pick(events)()
    fleet.end()
