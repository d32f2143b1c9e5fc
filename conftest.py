"""What holds for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on the machine and on whatever else runs on it. `make test` draws the same few
# examples every time, so that a change alone turns it red; EXAMPLES=100 draws many new ones, as the workflows do.
FEW = 6
EXAMPLES = int(os.environ.get("EXAMPLES", FEW))
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= FEW,
)
settings.load_profile("any machine")
# Ray stays on loopback if it finds this when a test first imports it.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Have one process more than cores: many tests wait for servers and other processes."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len(cores) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for doctests in the packages alone: tests have none, and there are many of them."""
    found = yield
    return found if "src" in file_path.parts else [one for one in found if type(one).__name__ != "DoctestModule"]


@pytest.fixture(scope="session")
def postgresql():
    """A PostgreSQL server of this process, or a skip that says why there is none."""
    from postgresql_server import Server, missing  # which exists on POSIX systems alone

    if reason := missing():
        pytest.skip(reason)
    server = Server(durable=False)
    yield server
    server.stop()
