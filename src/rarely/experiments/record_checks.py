"""Checks of a record, with or without digest: fields of the right kind, counts that fit, numbers that a run can have.

A record without a digest may still have been edited within these bounds, so it is marked wherever it is used.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import numpy as np

from rarely.experiments.catalogue import PROBLEMS
from rarely.experiments.config import PRESETS, Configuration, Kind, identity
from rarely.simulation.json_object import LARGEST, JsonObject
from rarely.simulation.sealed_json import Malformed
from rarely.worlds.protocol import seeded
from rarely.worlds.synthetic import Quadratic
from rarely.worlds.table import View

NEEDED: dict[str, tuple[str, ...]] = {
    "linucb": ("ridge", "beta"),
    "linucb-intercept": ("ridge", "beta"),
    "neuralucb": (),
    "fixed": ("batches",),
    "adaptive": ("batches", "log_ratio"),
    "default": ("batches",),
}
"""The settings of each kind of configuration; the others are null."""
ENVIRONMENT = ("machine", "system", "python", "numpy", "rarely")
ROUNDED = 1e-4
"""Curves are on record with four decimals."""
WIDEST = 1000
"""Numbers in a context beyond which a quadratic world is not made again for its bound."""


def check_record(data: dict[str, Any]) -> None:
    """Refuse a record that no run can have left."""
    record = JsonObject(data)
    asked = record.inside("asked")
    configuration = _configuration(asked.inside("configuration"))
    rounds = asked.whole("rounds", 1)
    _check_question(record, asked, configuration)
    _check_regret(record, rounds, _most_regret(asked))
    _check_updates(record.inside("updates"), configuration, rounds)
    _check_log_det(record, rounds)
    _check_costs(record)
    for name in ("code", "identity"):
        record.text(name)
    environment = record.inside("environment")
    for name in sorted({*ENVIRONMENT, *environment.data}):
        environment.text(name)


def _configuration(given: JsonObject) -> Configuration:
    names = [field.name for field in fields(Configuration)]
    if extra := sorted(given.data.keys() - set(names)):
        raise Malformed(f"{given.within}{extra[0]} is no setting of a configuration")
    kind = given.one_of("kind", get_args(Kind))
    for name in names[1:]:
        if name not in NEEDED[kind] and given.value(name) is not None:
            raise given.wrong(name, f"null for {kind}")
    if "batches" in NEEDED[kind]:
        given.whole("batches", 1)
    for name in NEEDED[kind]:
        given.number(name, 0.0)
    return Configuration(**given.data)


def _check_question(record: JsonObject, asked: JsonObject, configuration: Configuration) -> None:
    """The record's name and its identity follow from the question."""
    problem, world = asked.inside("problem"), asked.inside("world")
    name, seed = problem.text("name"), asked.whole("seed", 0)
    problem.one_of("base", sorted({"", PROBLEMS[name].base if name in PROBLEMS else ""}))
    world.text("world")
    world.whole("arms", 1)
    world.whole("dim", 1)
    if world.has("view"):
        world.one_of("view", get_args(View))
    reading = asked.one_of("reading", get_args(View) if configuration.linear else PRESETS)
    if record.text("id") != f"{name}/{reading}/{configuration.id}/seed{seed}":
        raise record.wrong("id", f"{name}/{reading}/{configuration.id}/seed{seed}, as it was asked")
    if record.value("identity") != identity(asked.data):
        raise Malformed("its identity is not that of what was asked")


def _most_regret(asked: JsonObject) -> float:
    """The most that a round of the world can cost; of an unknown world any number."""
    world = asked.inside("world")
    kind = "" if world.has("text") else world.text("world")  # a class of one's own may have any name
    if kind == "TableWorld":
        return 1.0
    if kind == "Cosine":
        return 2.0
    if kind == "Quadratic" and world.value("dim") <= WIDEST:
        matrix = Quadratic(world.value("dim")).secret(seeded(asked.value("seed"), 0))
        # |Ax|² of x in the unit cube: each coordinate of Ax is largest, or smallest, at a corner of its own.
        corners = np.maximum(np.maximum(matrix, 0).sum(axis=1), np.maximum(-matrix, 0).sum(axis=1))
        return float(np.square(corners).sum())
    return LARGEST


def _check_regret(record: JsonObject, rounds: int, most: float) -> None:
    """Only wrong rounds cost something, and the curve is the sum so far."""
    right = record.number("right", 0.0, 1.0)
    wrong = round(rounds * (1 - right))
    regret = record.number("regret", 0.0, min(LARGEST, most * wrong + ROUNDED))
    curve = np.array(record.numbers("curve", rounds))
    if np.any(np.diff(curve, prepend=0.0) < 0):
        raise Malformed("curve must never fall, because no round has negative regret")
    if abs(curve[-1] - regret) > ROUNDED + 1e-9 * regret:
        raise record.wrong("regret", f"the end of its curve, {curve[-1]:g}")
    record.number("reward")


def _check_updates(updates: JsonObject, configuration: Configuration, rounds: int) -> None:
    """In rising rounds, none after the last round, and within the budget."""
    at = updates.rising("rounds", 1, rounds - 1)
    if configuration.batches is not None and len(at) >= configuration.batches:
        raise updates.wrong("rounds", f"a list of at most {configuration.batches - 1}, which is the budget")
    updates.numbers("log_det", len(at))
    updates.whole("attempts", 0)
    updates.text("cause")
    for rejected in updates.items("rejected"):
        if not (isinstance(rejected, list) and len(rejected) == 2 and isinstance(rejected[1], str)):
            raise updates.wrong("rejected", "a list of rounds with reasons")
        JsonObject({"round": rejected[0]}, f"{updates.within}rejected.").whole("round", 1, rounds)


def _check_log_det(record: JsonObject, rounds: int) -> None:
    """Pairs of a round and a number, from round 0 to the last."""
    pairs = record.items("log_det")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise record.wrong("log_det", "a list of pairs (round, log det Z − log det λI)")
    at = JsonObject({"log_det": [pair[0] for pair in pairs]}).rising("log_det", 0, rounds)
    JsonObject({"log_det": [pair[1] for pair in pairs]}).numbers("log_det")
    if not at or at[0] != 0 or at[-1] != rounds:
        raise record.wrong("log_det", f"a list of pairs from round 0 to round {rounds}")


def _check_costs(record: JsonObject) -> None:
    seconds, wall = record.inside("seconds"), record.inside("wall")
    for name in ("selecting", "training"):
        seconds.number(name, 0.0)
        wall.number(name, 0.0)
    wall.number("cell", 0.0)
    if not wall.data["selecting"] > 0:
        raise wall.wrong("selecting", "above 0, because rounds were decided")
    record.whole("peak_memory", 0)
