"""The architecture page shows the tree of modules as it is, and its promises to a reader hold."""

import re
import sys
from pathlib import Path
from statistics import median

import numpy as np

from rarely import BatchNeuralUCB, Paced

ROOT = Path(__file__).parents[1]


def test_the_tree_of_the_architecture_page_is_true():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = text[text.index("src/rarely/\n") :].split("```")[0]
    modules = {path.stem for path in (ROOT / "src" / "rarely").rglob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in (ROOT / "src" / "rarely").rglob("__init__.py")}
    shown = set(re.findall(r"\w+", tree))
    assert modules - shown == set()
    assert {f"{folder}/" for folder in folders} - set(re.findall(r"\w+/", tree)) == set()
    named = {name for name in re.findall(r"\b(\w+)\.py\b", tree) if name != "__init__"}
    assert {name for name in named if not (ROOT / "examples" / f"{name}.py").exists()} == set()


def entered(call):
    """The modules of `core/policies` that a call enters."""
    found = set()

    def note(frame, event, arg):
        path = Path(frame.f_code.co_filename)
        if path.parent.name == "policies" and path.parent.parent.name == "core":
            found.add(path.stem)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_a_reader_follows_a_round_and_an_update_in_a_few_files():
    rng = np.random.default_rng(0)
    policy = BatchNeuralUCB(dim=4, schedule=Paced(horizon=200, batches=10), hidden=8, seed=0)
    policy.observe(policy.select(rng.random((30, 3, 4))), rng.random(30))
    policy.update()
    assert len(entered(lambda: policy.select(rng.random((3, 4))))) <= 12
    policy.observe(policy.select(rng.random((30, 3, 4))), rng.random(30))
    assert len(entered(policy.update)) <= 15


def test_files_are_short():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert {str(path): n for path, n in lengths.items() if n > 350} == {}
    assert median(lengths.values()) <= 120
