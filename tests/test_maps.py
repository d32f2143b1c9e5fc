"""The maps from the paper to the code name files and members that exist."""

import importlib
import re
from pathlib import Path

import pytest

import rarely

ROOT = Path(__file__).resolve().parents[1]
SOURCE, LAB = ROOT / "src" / "rarely", ROOT / "lab" / "src" / "rarely_lab"
PAGES = [ROOT / "docs" / name for name in ("paper-map.md", "notation.md")]
MODULES = [
    importlib.import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    for package, patterns in (
        (SOURCE, ("_core/**/*.py", "theory/*.py", "worlds/*.py", "offpolicy/*.py", "logs/*.py")),
        (LAB, ("reproduce/**/*.py",)),
    )
    for pattern in patterns
    for path in package.glob(pattern)
]


def found(name):
    """Whether some module has the name, and the name its attribute, that of an instance included."""
    head, _, attribute = name.partition(".")
    owners = [getattr(module, head) for module in [rarely, *MODULES] if hasattr(module, head)]
    return any(
        not attribute
        or hasattr(owner, attribute)
        or any(attribute in getattr(kind, "__annotations__", {}) for kind in getattr(owner, "__mro__", ()))
        for owner in owners
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_on_the_map_exists(page):
    files = set(re.findall(r"`([\w/]+\.(?:py|c))`", page.read_text(encoding="utf-8")))
    assert len(files) > 10
    gone = {name for name in files if not any((base / name).exists() for base in (SOURCE / "_core", SOURCE, LAB, ROOT))}
    assert gone == set()


@pytest.mark.parametrize(("page", "least"), list(zip(PAGES, (40, 15), strict=True)), ids=["paper-map", "notation"])
def test_every_class_on_the_map_exists_with_its_members(page, least):
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)`", text)) - {"None"}
    assert len(names) > least
    assert {name for name in names if not found(name)} == set()
