"""Small studies for the tests: policies, contexts and a clock that a test sets."""

import numpy as np
import pytest

from effort import MANY
from rarely import BatchNeuralUCB, FixedGrid, LinTS

KINDS = [*(["memory"] if MANY else []), "sqlite", "postgresql"]
"""In memory is SQLite, too, and what all other tests use."""
every_storage = pytest.mark.parametrize("storage", KINDS, indirect=True)


class Clock:
    """A clock that stands still until a test sets it."""

    def __init__(self, now=1_000_000.0):
        self.now = now

    def __call__(self):
        return self.now


def linear(batches=5, **settings):
    """A small policy that draws."""
    return LinTS(dim=2, schedule=FixedGrid(1000, batches), beta=0.5, seed=7, **settings)


def neural(**settings):
    """A small policy whose bonuses follow the running Z."""
    return BatchNeuralUCB(dim=2, schedule=FixedGrid(200, 4), hidden=8, seed=3, **settings)


def contexts_of(seed, arms=3):
    return np.random.default_rng(seed).normal(size=(arms, 2)).round(3)


def play(study, first, count, tell=True):
    """Ask and tell; the answers."""
    answers = [study.ask(contexts_of(i), id=f"visit-{i}") for i in range(first, first + count)]
    for answer in answers if tell else ():
        study.tell(answer.id, float(answer.index == 1))
    return answers


def told_of(study):
    """What each decision has earned by the record itself: the first, the last or the sum of its rewards."""
    rule, told = study.settings.rewards, {}
    for event in study.events():
        if event.kind == "reward":
            before = told.get(event.ref)
            summed = rule.aggregation == "sum" and before is not None
            told[event.ref] = event.content["reward"] + (before if summed else 0)
    records = list(study.decisions())
    return records, np.array([told.get(record.answer.id, np.nan) for record in records])
