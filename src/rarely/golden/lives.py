"""Golden lives: what happens to a policy in a short life, and how far each choice was from another.

A life is a function from a *nudge* to a `Trace`. The nudge changes every reward by about so large a part of itself; a
test asks that it changes no choice, so that neither does the rounding of another processor.

    events    the arms, the rounds of updates and whether they were accepted, forms of Z: what a digest covers
    numbers   means, bonuses, log det and regret, which are compared to a tolerance
    margin    the least distance of a choice from another one, relative to the scores that it was made by
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import LogRecord, getLogger
from typing import Any

import numpy as np

from rarely import LinTS, NeuralLinear, NeuralTS, Policy, Uniform
from rarely.extend import Array, Decision
from rarely.extend.provisional import rule_of, state_of
from rarely.worlds import Rounds

TIE = 1e-12
"""Scores closer than this, relative to their size, are equal but for rounding, and the rule of ties decides alike."""
SAMPLED = (NeuralTS, NeuralLinear, LinTS, Uniform)
"""Policies whose probabilities change smoothly with the scores, so that no gap between scores matters."""


@dataclass
class Trace:
    """What a life left behind; events are JSON."""

    events: list[Any] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    margin: float = np.inf


Life = Callable[[float], Trace]


def curved_rounds(seed: int, count: int, *, arms: int = 3, dim: int = 3, turns: bool = False) -> Rounds:
    """Return rounds of a curved world; one that `turns` pays other arms from its middle on."""
    generator = np.random.default_rng((seed, 45))
    contexts, direction = generator.normal(size=(count, arms, dim)), generator.normal(size=dim)
    slopes = contexts @ (direction / np.linalg.norm(direction))
    if turns:
        slopes[count // 2 :] *= -1
    means = np.sin(1.5 * slopes) + 0.3 * slopes
    return Rounds(contexts, means, means + generator.normal(0, 0.2, (count, 1)))


def nudged(rounds: Rounds, nudge: float) -> Rounds:
    """Return the rounds with rewards that differ by about this part of themselves."""
    noise = np.random.default_rng(46).uniform(-1, 1, rounds.rewards.shape)
    return Rounds(rounds.contexts, rounds.means, rounds.rewards * (1 + nudge * noise))


class Watched:
    """A policy whose decisions and updates are noted; everything else is the policy's own."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._arms: list[int] = []
        self._means: list[float] = []
        self._bonuses: list[float] = []
        self._forms: list[tuple[int, str]] = [(0, policy.covariance)]
        self._margin = np.inf

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def select(self, contexts: Any, mask: Any = None, **options: Any) -> Decision:
        """Decide, and note the arms and how clear they were."""
        random = state_of(self.policy).random
        decision = self.policy.select(contexts, mask, **options)
        means, bonuses, chances = (np.atleast_2d(x) for x in (decision.means, decision.bonuses, decision.probabilities))
        chosen = np.arange(len(means)), decision.arms
        self._arms += decision.arms.tolist()
        self._means += means[chosen].tolist()
        self._bonuses += bonuses[chosen].tolist()
        self._margin = min(self._margin, self._clearness(means + bonuses, chances, random))
        self._note_form()
        return decision

    def update(self, **options: Any) -> Any:
        """Update, and note the form of Z."""
        record = self.policy.update(**options)
        self._note_form()
        return record

    def _note_form(self) -> None:
        if self._forms[-1][1] != self.policy.covariance:
            self._forms.append((self.policy.round, self.policy.covariance))

    def _clearness(self, scores: Array, chances: Array, random: Any) -> float:
        """Return the least distance from another choice: between scores, and of a drawn number from an edge."""
        margin = np.inf
        if rule_of(self.policy).draws:
            edges, drawn = np.cumsum(chances, axis=1)[:, :-1], random.following(len(chances))
            margin = np.abs(edges - drawn[:, None]).min(initial=np.inf)
        if not isinstance(self.policy, SAMPLED) and scores.shape[1] > 1:
            ordered = np.sort(np.nan_to_num(scores, nan=-np.inf), axis=1)
            gaps = (ordered[:, -1] - ordered[:, -2]) / np.maximum(np.abs(ordered[:, -1]), 1e-300)
            margin = min(margin, gaps[gaps > TIE].min(initial=np.inf))
        return float(margin)

    def trace(self, means: Array) -> Trace:
        """Return what has happened; `means` (n, K) are the world's, for the regret."""
        records = self.policy.updates
        events = {
            "arms": self._arms,
            "updates": [[record.round, record.version, int(record.accepted), record.dropped] for record in records],
            "forms": self._forms,
            "memory": [event.round for event in self.policy.events if event.kind == "memory"],
        }
        best = means[: len(self._arms)].max(axis=1) - means[np.arange(len(self._arms)), self._arms]
        # Means over a life: one round more or less exact does not hide another.
        parts = (np.abs(self._means).mean(), np.abs(self._bonuses).mean(), self.policy.log_det, best.sum())
        names = ("mean", "bonus", "log_det", "regret")
        return Trace([events], dict(zip(names, map(float, parts), strict=True)), self._margin)


def live(
    make: Callable[[Rounds, int], Policy],
    world: Callable[[int], Rounds],
    seed: int,
    nudge: float,
    *,
    block: int = 1,
    late: int = 0,
    missing: int = 0,
    few: int = 0,
) -> Trace:
    """Live through the rounds of a seed, and return what happened; the policy may learn from the rounds first.

    Up to `block` rounds are decided in one call, but none beyond an update. Every third reward comes `late` rounds
    later, every `missing`-th one never. For the first `few` rounds half of the arms are offered.
    """
    rounds = nudged(world(seed), nudge)
    policy, count = Watched(make(rounds, seed)), len(rounds)
    waiting: list[tuple[int, int, float]] = []
    done = 0
    while done < count:
        contexts = rounds.contexts[done : done + block, : rounds.contexts.shape[1] // (2 if done < few else 1)]
        decision = policy.select(contexts, until_due=True) if block > 1 else policy.select(contexts[0])
        for number, arm in zip(decision.rounds.tolist(), decision.arms.tolist(), strict=True):
            if not (missing and number % missing == 0):
                when = number + (late if number % 3 == 0 else 0)
                waiting.append((when, number, float(rounds.rewards[number - 1, arm])))
        done += len(decision.arms)
        ready = sorted(each for each in waiting if each[0] <= done)
        waiting = [each for each in waiting if each[0] > done]
        if ready:
            policy.observe(rounds=[number for _, number, _ in ready], rewards=[reward for *_, reward in ready])
        if policy.due:
            policy.update()
    return policy.trace(rounds.means)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings and log lines of golden lives from the user, whose policies they are not about."""
    thread, logger = threading.get_ident(), getLogger("rarely")

    def from_elsewhere(record: LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(from_elsewhere)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.removeFilter(from_elsewhere)
