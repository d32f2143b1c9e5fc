"""Golden families of comparison records: each model of the library as a contestant, and each rival.

    compare/MODEL                        a model under its schedules, on its policy's own family
    compare/uniform, blce, …             rivals that are written out here
    compare/regressors                   what stands around another package's regressor, with a ridge regression in it
    compare/vowpal, bayesianbandits      what is handed to the package, and what is made of its answers

What another package computes is not ours to check: its records fit as long as we ask it the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rarely.extend import Array
from rarely.golden import FAMILIES as CORE
from rarely.golden import Families, Family, Life, Trace, Watched, nudged
from rarely.golden.policies import Line
from rarely_lab.compare.package_rivals import BayesianContestant, BoostedTrees, RegressorContestant, VowpalContestant
from rarely_lab.compare.policies import EXPLORATIONS, PAIRS, POLICIES, card_of
from rarely_lab.compare.problems import Task, find_problem
from rarely_lab.engine.play import LibraryContestant, play

ROUNDS, BATCHES = 40, 3  # the first update has two rewards: from a single one, rounding decides too much
PROBLEMS = ("cosine", "wheel", "two-sided+delay", "cosine+drift")
"""Problems with rows in blocks, with late rewards and with drift."""
OF_MODEL = {
    "default": "default", "greedy": "default", "neuralts": "neural-ts", "neurallinear": "neural-linear",
    "neuralepsilon": "neural-epsilon", "linucb": "linucb", "lints": "lints", "kernelucb": "kernel-ucb",
}  # fmt: skip
"""The policy's own family."""
SEEDS = {
    "default/cosine": 5, "default/cosine+drift": 5, "default@trigger/cosine": 1, "default@loglog/cosine": 1,
    "greedy/cosine": 1, "neuralts/cosine": 8, "neuralts/cosine+drift": 8, "neuralts/wheel": 2,
    "neuralts/two-sided+delay": 3, "neuralts@trigger/cosine": 1, "neuralts@loglog/cosine": 1,
    "neurallinear/wheel": 1, "neuralepsilon/wheel": 8, "linucb/wheel": 1, "linucb@trigger/cosine": 2,
    "lints/cosine": 1, "lints/cosine+drift": 1, "lints@trigger/cosine": 4, "kernelucb/cosine": 1,
    "kernelucb/two-sided+delay": 6, "kernelucb/cosine+drift": 1, "kernelucb@trigger/cosine": 1,
    "kernelucb@loglog/cosine": 1, "line/wheel": 7, "line-bootstrap/cosine": 1, "line-bootstrap/cosine+drift": 1,
}  # fmt: skip
"""Seeds by life, which leave every choice a clear margin; 0 where none is given."""


def live(make: Callable[[Task], Any], problem: str, seed: int, nudge: float) -> Trace:
    """Play a contestant as a comparison does, and return what happened."""
    asked = find_problem(problem)
    rounds = asked.rounds(seed, ROUNDS)
    contestant = make(asked.task(ROUNDS, BATCHES, seed))
    watched = Watched(contestant.policy) if isinstance(contestant, LibraryContestant) else None
    if watched is not None:
        contestant.policy = watched
    played = play(contestant, nudged(rounds, nudge), BATCHES, asked.delays(seed, ROUNDS))
    # Of a package's stand-in, what it was told is an event as well.
    said = [played.arms.tolist(), next((part.said for part in vars(contestant).values() if hasattr(part, "said")), [])]
    trace = Trace(said) if watched is None else watched.trace(rounds.means)
    trace.events.append(played.updates)
    trace.numbers["regret"] = float(played.regrets.sum())
    return trace


def lives(*names: str, problems: Sequence[str] = PROBLEMS, **makers: Callable[[Task], Any]) -> dict[str, Life]:
    """Return lives of policies on problems: those with a name, or others that are given."""
    every = {name: POLICIES[name].make for name in names} | makers
    return {
        f"{name}/{problem}": partial(live, make, problem, SEEDS.get(f"{name}/{problem}", 0))
        for name, make in every.items()
        for problem in problems
    }


def _model(name: str) -> dict[str, Life]:
    # Of the wheel's five arms four pay the same: the default, which judges them by their own rewards, has near-ties.
    left_out = {"default": ("wheel",), "greedy": PROBLEMS[1:]}.get(name, ())
    schedules = lives(f"{name}@trigger", f"{name}@loglog", problems=PROBLEMS[:1])
    return lives(name, problems=[problem for problem in PROBLEMS if problem not in left_out]) | schedules


class _Workspace:
    """Stands for Vowpal Wabbit: every arm is as likely, and what is learned is kept."""

    def __init__(self, options: str) -> None:
        self.said: list[Any] = [options]

    def predict(self, lines: list[str]) -> list[float]:
        return [1 / len(lines)] * len(lines)

    def learn(self, lines: list[str]) -> None:
        self.said.append(lines)


class _Agent:
    """Stands for the agent of bayesianbandits: it pulls each arm in turn, and keeps what it learns."""

    def __init__(self, arms: list[int], learner: Any, **_: Any) -> None:
        self.arms, self.learner, self.pulls = arms, self, 0
        self.said: list[Any] = []

    def pull(self, contexts: Array) -> list[int]:
        self.said.append(np.round(contexts.sum(), 6))
        self.pulls += 1
        return [self.arms[self.pulls % len(self.arms)]]

    def partial_fit(self, rows: Array, rewards: Array) -> None:
        self.said.append([np.round(rows.sum(), 6), np.round(rewards.sum(), 6)])


_VOWPAL = SimpleNamespace(Workspace=_Workspace)
_BAYESIAN = SimpleNamespace(
    LipschitzContextualAgent=_Agent,
    Arm=lambda arm: arm,
    **dict.fromkeys(("NormalRegressor", "FunctionArmFeaturizer", "ThompsonSampling"), lambda *_, **__: None),
)
_LINES: dict[str, Any] = {
    f"line{suffix}": partial(RegressorContestant, regressor=("rarely.golden.policies", "Line", {}), settings=settings)
    for suffix, settings in EXPLORATIONS.items()
}
_TREES: dict[str, Any] = {
    name: partial(BoostedTrees, falcon=falcon, regressor=lambda seed, count: Line())
    for name, falcon in (("greedy", False), ("falcon", True))
}
FAMILIES = Families(
    Path(__file__).with_name("golden.json"),
    *(Family(f"compare/{name}", partial(_model, name), CORE[core]) for name, core in OF_MODEL.items()),
    Family("compare/regressors", partial(lives, **_LINES), CORE["ensemble"], needs="sklearn"),
    Family("compare/trees", partial(lives, **_TREES)),
    Family("compare/vowpal", partial(lives, vowpal=partial(VowpalContestant, package=_VOWPAL))),
    Family("compare/bayesianbandits", partial(lives, bayesian=partial(BayesianContestant, package=_BAYESIAN))),
    *(
        Family(f"compare/{name}", partial(lives, name))
        for name in ("uniform", "elimination-design", "neuralts-zeroweight")
    ),
    # On the wheel, arms have scores that are equal but for rounding, and these rivals have no rule of ties.
    *(
        Family(f"compare/{name}", partial(lives, name, problems=("cosine", "two-sided+delay", "cosine+drift")))
        for name in ("blce", "neuralucb-uclaml")
    ),
)


def family_of(policy: str) -> str | None:
    """Return the family of a policy by its name; None for a user's own.

    >>> family_of("default@fixed"), family_of("linucb-0.1-0.01"), family_of("mine")
    ('compare/default', 'compare/linucb', None)
    """
    model = policy.partition("@")[0]
    family = f"compare/{'linucb' if model in PAIRS else card_of(model).get('family', model)}"
    return family if model in POLICIES and family in FAMILIES else None
