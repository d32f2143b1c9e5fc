"""A service of a small study in a file, and another in memory."""

import itertools
from importlib.util import find_spec

import pytest

from rarely.study import Study
from studies import linear

if find_spec("starlette") is None:  # rarely[serve] is not installed; rarely[dev] has it
    collect_ignore_glob = ["test_*.py"]
else:
    from services import serving

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
