"""A service of a small study in a file, and another in memory."""

import itertools

import pytest

pytest.importorskip("fastapi", reason="the service needs rarely[serve]")

from rarely.study import Study
from services import serving
from studies import linear

NUMBERS = itertools.count()


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path / 'trial.db'}"


@pytest.fixture
def served(storage):
    """A service whose study has three arms and a seed."""
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"]).close()
    with serving(storage, automatic=False) as service:
        yield service


@pytest.fixture(scope="module")
def shared():
    """A service that the tests of a file share; one decision is on record."""
    storage = f"memory://shared-{next(NUMBERS)}"
    Study.create(storage, "trial", policy=linear(), arms=["a", "b", "c"])
    with serving(storage, automatic=False) as service:
        assert service.decide(1).status == 200
        yield service
