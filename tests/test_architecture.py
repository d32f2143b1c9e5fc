"""What a reader of the source may rely on: few files for a call, short functions, and a page that shows the tree."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import rarely
import rarely_lab
from rarely import BatchNeuralUCB, LinUCB, NeuralTS, Paced

ROOT = Path(__file__).parents[1]
SOURCE = Path(rarely.__file__).parent
SOURCES = {"src/rarely/": SOURCE, "lab/src/rarely_lab/": Path(rarely_lab.__file__).parent}
FUNCTION_LINES = 60
"""Lines of a function without its docstring."""


@pytest.mark.parametrize("package", SOURCES)
def test_the_tree_of_the_architecture_page_is_true(package):
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders, shown = [SOURCES[package]], set()
    for line in text.split(f"```\n{package}\n", 1)[1].split("```")[0].splitlines():
        indent, name, _ = re.fullmatch(r"((?:  )+)(\w+/?) +(\S.*)", line).groups()
        path = folders[len(indent) // 2 - 1] / name
        folders[len(indent) // 2 :] = [path]
        shown.add(path / "__init__.py" if name.endswith("/") else path.with_suffix(".py"))
    assert {str(path) for path in shown} == {str(path) for path in SOURCES[package].rglob("*.py")}


def entered(call):
    """The files of the package that a call enters."""
    names = set()

    def note(frame, event, arg):
        if event == "call":
            names.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(str(path.relative_to(SOURCE)) for path in map(Path, names) if path.is_relative_to(SOURCE))


def new_arms(rng, rounds):
    return rng.random((rounds, 3, 4))


def returning_arms(rng, rounds):
    return np.tile(np.eye(3, 4), (rounds, 1, 1))


# As users construct them, and in how many files their calls may be followed.
CALLS = {
    "default": (BatchNeuralUCB, new_arms, {"select": 20, "update": 28}),
    "default on arms that return": (BatchNeuralUCB, returning_arms, {"select": 21, "update": 28}),
    "thompson": (NeuralTS, new_arms, {"select": 22, "update": 28}),
    "linear": (LinUCB, new_arms, {"select": 18, "update": 21}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_reader_follows_a_round_and_an_update_in_a_few_files(name):
    kind, arms, most = CALLS[name]
    rng, policy = np.random.default_rng(0), kind(dim=4, schedule=Paced(horizon=200, batches=10), seed=0)
    for _ in range(2):
        policy.observe(policy.select(arms(rng, 30)), rng.random(30))
        policy.update()
    files = {"select": entered(lambda: policy.select(arms(rng, 1)[0]))}
    policy.observe(policy.select(arms(rng, 30)), rng.random(30))
    files["update"] = entered(policy.update)
    for call, names in files.items():
        assert len(names) <= most[call], f"{call} enters {len(names)} files: {', '.join(names)}"


def functions(path):
    """Every function of a file, with its lines without the docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield f"{path}::{node.name}", lines


def test_functions_are_short():
    lengths = dict(pair for source in SOURCES.values() for path in source.rglob("*.py") for pair in functions(path))
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}
