import pytest


@pytest.fixture
def sketched_figures(monkeypatch):
    """Figures without their pictures for printing, which take most of a report's time."""

    def save(figure, path):
        figure.savefig(path)
        return path

    monkeypatch.setattr("rarely.experiments.report.plots._save", save)
