"""What holds for all tests."""

import os

import pytest
from hypothesis import settings

# How long an example takes depends on the machine and on whatever else runs on it. Every run draws other examples, so
# few of them a run find in time what many would find at once; EXAMPLES=100 draws many, as the workflows do.
settings.register_profile("any machine", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "10")))
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server of this process, or a skip that says why there is none."""
    from postgresql_server import Server, missing  # which exists on POSIX systems alone

    if reason := missing():
        pytest.skip(reason)
    server = Server(durable=False)
    yield server
    server.stop()


@pytest.fixture
def sketched_figures(monkeypatch):
    """Figures without their pictures for printing, which take half of a report's time."""

    def save(figure, path):
        figure.savefig(path, metadata={"Date": None})
        return path

    monkeypatch.setattr("rarely.experiments.report.plots._save", save)
