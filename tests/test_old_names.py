"""Names of earlier versions still work for one version, and say what replaces them."""

import subprocess
import sys

import pytest


def test_the_old_name_of_the_planner_warns_and_works():
    sys.modules.pop("rarely.lab", None)
    with pytest.warns(DeprecationWarning, match=r"rarely\.planning"):
        import rarely.lab
    from rarely import planning

    assert rarely.lab.plan is planning.plan
    assert set(rarely.lab.__all__) == set(planning.__all__)


def test_nothing_of_the_library_uses_an_old_name():
    code = "import rarely.cli, rarely.planning, rarely.experiments.report.writer"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:rarely", "-c", code], check=True)
