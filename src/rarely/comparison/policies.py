"""Policies by name: the library's, adapters of other packages, and a stranger's own as `module:factory`.

neuralucb, linucb, …           a model of the library under `Paced`
neuralucb@fixed                the same under another schedule: fixed, geometric, trigger
uniform                        any arm alike
forest, lightgbm, vowpal, …    other packages, where they are installed
NAME=module:factory            one's own: factory(task) gives a contestant
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from rarely.comparison.adapters import ADAPTERS
from rarely.comparison.contestant import Contestant, Task
from rarely.comparison.library import MODELS, SCHEDULES, library_contestant
from rarely.core.errors import InvalidInput, RarelyError
from rarely.core.types import Array

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")
"""A name that is a folder on every system."""


class UnavailablePolicy(RarelyError):
    """A policy needs a package that is not installed."""


class UniformContestant:
    """Any arm alike, and never an update."""

    def __init__(self, task: Task) -> None:
        self._generator = np.random.default_rng((task.seed, 0, 5))

    def select(self, contexts: Array) -> int:
        """An arm at random."""
        return int(self._generator.integers(len(contexts)))

    def observe(self, round: int, contexts: Array, arm: int, reward: float) -> None:
        """Rewards change nothing."""

    def due(self, round: int) -> bool:
        """Never."""
        return False

    def update(self) -> None:
        """Nothing is learned."""


@dataclass(frozen=True)
class Entry:
    """A policy that can be made for any task."""

    name: str
    make: Callable[[Task], Contestant]
    model: str
    """The policy of which this is a schedule: with B = T both are the same."""
    text: str = ""
    """A hash of a stranger's source: an edited policy is another one."""
    package: str = ""
    """What must be installed."""


def _library() -> dict[str, Entry]:
    entries = {}
    for model in MODELS:
        for schedule in SCHEDULES:
            name = model if schedule == "paced" else f"{model}@{schedule}"
            entries[name] = Entry(name, partial(library_contestant, model, schedule), model)
    return entries


POLICIES: dict[str, Entry] = {
    "uniform": Entry("uniform", UniformContestant, "uniform"),
    **_library(),
    **{name: Entry(name, make, name, package=package) for name, (make, package) in ADAPTERS.items()},
}
"""Every policy that has a name of its own."""


def find_policy(given: str) -> Entry:
    """A policy by its name, or one's own as `module:factory` or `NAME=module:factory`.

    >>> find_policy("linucb@fixed").model
    'linucb'
    """
    if given in POLICIES:
        entry = POLICIES[given]
        if entry.package:
            _import(entry.package, given)
        return entry
    name, equals, source = given.rpartition("=")
    if ":" not in source:
        raise InvalidInput(
            f"no policy is called {given!r}; there are {', '.join([*MODELS, 'uniform', *ADAPTERS])}, each model also "
            f"with @{', @'.join(SCHEDULES[1:])}, and your own as module:factory."
        )
    return _own(name if equals else source.replace(":", "."), source)


def _import(package: str, policy: str) -> None:
    try:
        import_module(package)
    except ImportError as error:
        installed = {"sklearn": "scikit-learn"}.get(package, package)
        raise UnavailablePolicy(
            f"{policy} needs {installed}, which is not installed: pip install {installed}."
        ) from error


def _own(name: str, source: str) -> Entry:
    if not NAME.fullmatch(name) or name in POLICIES:
        raise InvalidInput(
            f"a policy's name must be letters, digits, '.', '_' or '-', and not one of the suite's; got {name!r}. "
            "Name it: --policy NAME=module:factory."
        )
    module_name, _, factory_name = source.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a command has no folder of its own on the path, as `python file.py` has
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InvalidInput(f"--policy {source}: the module {module_name} cannot be imported: {error}.") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise InvalidInput(f"--policy {source}: {module_name} has no function or class {factory_name!r}.")
    return Entry(name, partial(_made, factory, source), name, _text(module.__file__))


def _made(factory: Callable[[Task], object], source: str, task: Task) -> Contestant:
    made = factory(task)
    lacking = [method for method in ("select", "observe", "due", "update") if not callable(getattr(made, method, None))]
    if lacking:
        raise InvalidInput(f"{source} must give an object with select, observe, due and update; it lacks {lacking[0]}.")
    assert isinstance(made, Contestant)
    return made


def _text(file: str | None) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file and Path(file).is_file() else "unknown"
