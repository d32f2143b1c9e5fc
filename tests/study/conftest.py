"""Studies in memory and in a file, and a clock that a test sets."""

import itertools

import pytest

from rarely.study import Study
from studies import Clock, linear

NUMBERS = itertools.count()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def storage(request, tmp_path):
    """A storage string of each kind that needs no server."""
    return f"memory://test-{next(NUMBERS)}" if request.param == "memory" else f"sqlite:///{tmp_path / 'trial.db'}"


@pytest.fixture
def make(storage):
    """A new study; `make.open()` opens it as another process would."""

    def create(policy=None, **settings):
        settings.setdefault("arms", ["a", "b", "c"])
        return Study.create(storage, "trial", policy=linear() if policy is None else policy, **settings)

    create.storage = storage
    create.open = lambda **settings: Study.open(storage, "trial", **settings)
    return create
