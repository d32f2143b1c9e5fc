"""What tests of the laboratory share."""

import pytest

from rarely_lab.engine.cell import LocalExecutor


@pytest.fixture(scope="module")
def sketched_figures():
    """Reports with empty figures, for tests that are about something else: drawing takes most of a report's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rarely_lab.reproduce.report.page.drawn", lambda draw: '<svg viewBox="0 0 9 9"></svg>')
        yield


@pytest.fixture
def serial(monkeypatch):
    """Cells played in this process: starting another takes longer than they do."""
    monkeypatch.setattr("rarely_lab.commands.progress.LocalExecutor", lambda jobs: LocalExecutor(None))
