"""The architecture page shows the tree of modules as it is."""

import re
from pathlib import Path

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
