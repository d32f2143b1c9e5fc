"""Everything public has a docstring that says what it is and shows it at work; the examples run as doctests."""

import importlib
import inspect
from pathlib import Path

import pytest

import rarely

MODULES = (
    "rarely",
    "rarely.cluster",
    "rarely.logs",
    "rarely.errors",
    "rarely.offpolicy",
    "rarely.planning",
    "rarely.service",
    "rarely.study",
    "rarely.testing",
    "rarely.theory",
    "rarely.worlds",
    "rarely_lab.compare",
)
HEADING = "Examples\n--------\n"


def exported():
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing


EXPORTED = dict(exported())
ERRORS = {name for name, thing in EXPORTED.items() if inspect.isclass(thing) and issubclass(thing, BaseException)}
"""Errors and warnings are shown where they are raised."""


@pytest.mark.parametrize("name", EXPORTED)
def test_it_has_a_docstring_with_an_example(name):
    text = inspect.cleandoc(EXPORTED[name].__doc__ or "")
    assert text, "no docstring"
    if name not in ERRORS:
        _, heading, examples = text.partition(HEADING)
        assert heading, "no section of examples"
        assert ">>> " in examples, "no example"


@pytest.mark.parametrize("name", [name for name, thing in EXPORTED.items() if inspect.isfunction(thing)])
def test_it_says_what_its_parameters_are(name):
    text = inspect.cleandoc(EXPORTED[name].__doc__)
    _, _, section = text.partition("Parameters\n----------\n")
    described = {word.strip(" *") for line in section.splitlines() if line[:1].strip() for word in line.split(",")}
    assert inspect.signature(EXPORTED[name]).parameters.keys() <= described


@pytest.mark.parametrize("name", [name for name, thing in EXPORTED.items() if inspect.isclass(thing)])
def test_its_methods_have_docstrings(name):
    for method, member in inspect.getmembers(EXPORTED[name], inspect.isroutine):
        assert method.startswith("_") or inspect.getdoc(member), f"{method} has no docstring"


def test_every_package_that_exports_names_is_here():
    packages = [
        f"rarely.{path.name}" for path in Path(rarely.__file__).parent.iterdir() if (path / "__init__.py").is_file()
    ]
    others = [name for name in packages if name not in (*MODULES, "rarely.torch", "rarely.extend", "rarely.golden")]
    assert not [name for name in others if hasattr(importlib.import_module(name), "__all__")]
