"""The figure of docs/performance.md can be drawn."""

import importlib.util
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "curves.py"


def test_the_cost_model_is_drawn_beside_measured_times(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("curves", SCRIPT)
    curves = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "curves", curves)
    spec.loader.exec_module(curves)
    machine = curves.Machine(1e9, 1e9)
    panels = [
        curves.training_panel(machine, (20, 40), hidden=8, steps=2),
        curves.dual_panel(machine, (20, 40), hidden=8, together=4),
        curves.primal_panel(machine, (4, 8), together=4),
        curves.run_panel(machine, (2, 4), rounds=20, hidden=8, steps=2),
    ]
    for panel in panels:
        for curve in panel.curves:
            assert len(curve.sizes) == len(curve.measured) == len(curve.model) == 2
            assert min(curve.measured + curve.model) > 0
    training = panels[0].curves[0]
    assert training.model[1] == 2 * training.model[0]
    curves.draw(panels, tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()
