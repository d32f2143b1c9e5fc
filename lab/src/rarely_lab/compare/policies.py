"""Policies by name: the library's, adapters of other packages, and your own as `module:factory`.

default, linucb, …             a model of the library under `Paced`
default@fixed                  the same under another schedule: fixed, geometric, loglog, trigger
uniform                        any arm with the same probability
linucb-0.1-0.01                LinUCB with λ = 0.1 and β = 0.01, or another pair of 0.001, 0.01, 0.1 and 1; the best of
                               them is the line `linucb-hindsight` of a leaderboard, beside `linucb` with λ = β = 1
blce, elimination-design       linear models that give up arms, on grids of their own
neuralucb-uclaml,              what the code of their authors does, at rounds T(b/B)²
neuralts-zeroweight
NAME=module:factory            your own: factory(task) gives a contestant

Of other packages, where they are installed; all update at rounds T(b/B)²:

forest, boosting, lightgbm     a regressor of rewards with ε-greedy choice, ε = 0.1
NAME-bootstrap                 ten of them, each trained on a resample; one of the ten decides a round
boosting-greedy, -falcon       boosted trees, their number chosen by cross-validation: greedy, or with FALCON's chances
vowpal, vowpal-squarecb        Vowpal Wabbit, --cb_explore_adf with ε = 0.1, or with --squarecb; its other defaults
vowpal-refit                   the first with products of columns, and a pass over all rewards so far at each update
bayesianbandits                its agent with one learner for all arms, as its README has it; -eb with empirical Bayes,
                               -ids with information-directed sampling; -arms as its README begins, one for each arm

`rivals.toml` has a card for each policy of others: source, settings, why these, and what else was tried.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import rarely
from rarely import Policy, Schedule
from rarely.errors import InvalidInput, RarelyError
from rarely.extend import Array
from rarely.theory.kernel_ucb import KernelUCB
from rarely_lab.compare.package_rivals import EPSILON
from rarely_lab.compare.problems import AtEnds, Task
from rarely_lab.engine.play import Contestant, LibraryContestant

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")  # a name that is a folder on every system
MakePolicy = Callable[[Task, Schedule], Policy]


class UnavailablePolicy(RarelyError):
    """A policy needs a package that is not installed."""


class UniformContestant(AtEnds):
    """Any arm with the same probability, and never an update."""

    stream = 5

    def __init__(self, task: Task) -> None:
        super().__init__(task, ())

    def select(self, contexts: Array) -> int:
        return int(self._generator.integers(len(contexts)))


def _of(kind: Callable[..., Policy], **settings: Any) -> MakePolicy:
    def make(task: Task, schedule: Schedule) -> Policy:
        return kind(task.dim, schedule=schedule, context_scale=task.context_scale, seed=task.seed, **settings)

    return make


MODELS: dict[str, MakePolicy] = {
    "default": _of(rarely.BatchNeuralUCB),
    "neuralts": _of(rarely.NeuralTS),
    "neurallinear": _of(rarely.NeuralLinear),
    "neuralepsilon": _of(rarely.NeuralEpsilonGreedy),
    "greedy": _of(rarely.BatchNeuralUCB, beta=0.0),
    "linucb": _of(rarely.LinUCB),
    "lints": _of(rarely.LinTS),
    "kernelucb": _of(KernelUCB),
}
"""Each with its defaults; `greedy` is the default policy without bonuses."""
RIDGES, BETAS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0), (1e-5, 0.0001, 0.001, 0.01, 0.1, 1.0, 10.0)
PAIRS: dict[str, MakePolicy] = {
    f"linucb-{ridge:g}-{beta:g}": _of(rarely.LinUCB, ridge=ridge, beta=beta)
    for ridge, beta in itertools.product(RIDGES, BETAS)
    if (ridge, beta) != (1.0, 1.0)
}
"""LinUCB with other pairs λ, β: those of the paper's grid, and beyond its edges, where the best often lay."""
GRIDS: dict[str, Callable[[int, int], Schedule]] = {
    "paced": rarely.Paced, "fixed": rarely.FixedGrid, "geometric": rarely.GeometricGrid, "loglog": rarely.LogLogGrid
}  # fmt: skip
SCHEDULES = (*GRIDS, "trigger")


def _under(model: str, name: str, task: Task) -> LibraryContestant:
    if task.sequential:  # with B = T all schedules are the same
        schedule: Schedule = rarely.EveryRound()
    elif name in GRIDS:
        schedule = GRIDS[name](task.horizon, task.batches)
    else:
        # log q is a B-th of what log det Z grows by over the contexts of another run, without any reward.
        assert task.pilot is not None
        pilot = MODELS[model](task, rarely.DeterminantTrigger(log_ratio=math.inf))
        pilot.select(task.pilot())
        schedule = rarely.DeterminantTrigger(task.horizon, task.batches, max(float(pilot.log_det), 1e-9) / task.batches)
    return LibraryContestant((MODELS | PAIRS)[model](task, schedule))


RIVALS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("rivals.toml").read_text(encoding="utf-8"))
"""What is to be known of each policy of others, and how it is made."""
EXPLORATIONS: dict[str, dict[str, Any]] = {
    "": {"members": 1, "exploration": rarely.Mixture(EPSILON)},
    "-bootstrap": {"members": 10, "prior": 0},
}


def card_of(policy: str) -> dict[str, Any]:
    """Return what is to be known of a policy of others; nothing of ours."""
    return RIVALS.get(policy.removesuffix("-bootstrap"), {})


@dataclass(frozen=True)
class Entry:
    """A policy that can be made for any task."""

    name: str
    make: Callable[[Task], Contestant]
    model: str  # the policy of which this is a schedule: with B = T both are the same
    text: str = ""
    """A hash of the source of a user's policy and of what it imports beside it: an edited policy is another one."""
    package: str = ""  # what must be installed


def _rivals() -> Iterator[Entry]:
    """Yield every policy of others; around a regressor there are two."""
    for name, card in RIVALS.items():
        if "made" in card:
            module, _, kind = card["made"].partition(":")
            make = partial(getattr(import_module(f"rarely_lab.compare.{module}"), kind), **card.get("with", {}))
            made = {name: make}
            if "regressor" in make.keywords:
                made = {name + suffix: partial(make, settings=settings) for suffix, settings in EXPLORATIONS.items()}
            yield from (Entry(each, one, each, package=card.get("needs", "")) for each, one in made.items())


POLICIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("uniform", UniformContestant, "uniform"),
        *(
            Entry(f"{model}@{on}".removesuffix("@paced"), partial(_under, model, on), model)
            for model in MODELS
            for on in SCHEDULES
        ),
        *(Entry(name, partial(_under, name, "paced"), name) for name in PAIRS),
        *_rivals(),
    )
}
"""Every policy that comes with the package, by name."""


def find_policy(asked: str) -> Entry:
    """Return a policy by its name, or your own as `module:factory` or `NAME=module:factory`.

    >>> find_policy("linucb@fixed").model
    'linucb'
    """
    if (entry := POLICIES.get(asked)) is not None:
        try:
            if entry.package:
                import_module(entry.package)
        except ImportError as error:
            installed = {"sklearn": "scikit-learn"}.get(entry.package, entry.package)
            raise UnavailablePolicy(f"{asked} needs {installed}, which is not installed: pip install it.") from error
        return entry
    source = asked.rpartition("=")[2]
    if ":" not in source:
        plain = [name for name in POLICIES if "@" not in name and name not in PAIRS]
        raise InvalidInput(
            f"no policy is called {asked!r}; there are {', '.join(plain)}, each model also with "
            f"@{', @'.join(SCHEDULES[1:])}, and your own as module:factory."
        )
    return _own(policy_name(asked), source)


def policy_name(asked: str) -> str:
    """Return the name of a policy as it is asked for.

    >>> policy_name("linucb@fixed"), policy_name("mine=my_module:make"), policy_name("my_module:make")
    ('linucb@fixed', 'mine', 'my_module.make')
    """
    name, equals, source = asked.rpartition("=")
    return name if equals else source.replace(":", ".")


def _own(name: str, source: str) -> Entry:
    if not NAME.fullmatch(name) or name in POLICIES:
        raise InvalidInput(
            f"a policy's name must be letters, digits, '.', '_' or '-', and not one of the suite's; got {name!r}. "
            "Name it: --policy NAME=module:factory."
        )
    module_name, _, factory_name = source.partition(":")
    if Path(module_name).name != module_name or module_name.endswith(".py"):
        raise InvalidInput(
            f"--policy {source}: name the module as `import` does, without folder and .py, and run where its file is."
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # unlike `python file.py`, a command has no folder on the path
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever a user's module raises is a fault of what was asked for
        why = f"{module_name} cannot be imported, {type(error).__name__}: {error}"
        raise InvalidInput(f"--policy {source}: {why}.") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        raise InvalidInput(f"--policy {source}: {module_name} has no function or class {factory_name!r}.")
    return Entry(name, partial(_made, factory, source), name, _text(module_name, Path(module.__file__ or "")))


@cache
def _text(module: str, file: Path) -> str:
    """Return a hash of a user's module and of all that it imports from its folder, as they are when it is first used.

    Imports are followed in the source: which modules are loaded depends on what else the process has played.
    """
    if not file.is_file():
        return "unknown"
    root = file.parents[module.count(".") + (file.stem == "__init__")]
    if root.name.endswith("-packages"):  # where packages of others are beside it
        root /= module.partition(".")[0]
    texts, waiting = dict[Path, bytes](), [file]
    while waiting:
        path = waiting.pop()
        if path.is_file() and path not in texts:
            texts[path] = path.read_bytes()
            with suppress(SyntaxError, ValueError):  # of a file that is not Python
                waiting += _imported(path, root)
    return hashlib.sha256(b"\0".join(sorted(texts.values()))).hexdigest()[:16]


def _imported(path: Path, root: Path) -> Iterator[Path]:
    """Yield the files in which all that a file imports would be, if it is beside it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module, level = (node.module or "", node.level) if isinstance(node, ast.ImportFrom) else ("", 0)
            for alias in node.names:
                place = path.parents[level - 1] if level else root
                for part in filter(None, f"{module}.{alias.name}".split(".")):
                    place /= part
                    yield from (place.with_suffix(".py"), place / "__init__.py")


def _made(factory: Callable[[Task], object], source: str, task: Task) -> Contestant:
    made = factory(task)
    lacking = [method for method in ("select", "observe", "due", "update") if not callable(getattr(made, method, None))]
    if lacking:
        raise InvalidInput(f"{source} must give an object with select, observe, due and update; it lacks {lacking[0]}.")
    assert isinstance(made, Contestant)
    return made
