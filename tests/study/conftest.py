"""Studies in memory and in a file, and a clock that a test sets."""

import itertools
from contextlib import ExitStack

import pytest

from rarely.study import Study
from studies import Clock, linear

NUMBERS = itertools.count()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def storage(request, tmp_path):
    """The storage string of a new database: in memory, or of the kind that `studies.every_storage` names."""
    kind, number = getattr(request, "param", "memory"), next(NUMBERS)
    if kind == "memory":
        return f"memory://test-{number}"
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'trial.db'}"
    return request.getfixturevalue("postgresql").new_schema(f"trial_{number}")


@pytest.fixture
def make(storage):
    """A new study; `make.open()` opens it as another process would."""

    with ExitStack() as opened:

        def create(policy=None, **settings):
            settings.setdefault("arms", ["a", "b", "c"])
            policy = linear() if policy is None else policy
            return opened.enter_context(Study.create(storage, "trial", policy=policy, **settings))

        create.storage = storage
        create.open = lambda **settings: opened.enter_context(Study.open(storage, "trial", **settings))
        yield create
