"""Stages of a trial: who may be given what, and which versions need a person's approval.

    a    allocation limit: each arm that is there has at least this probability
    p    probabilities by the policy's own rule

A round is decided with probabilities a + (1 − Σa)·p, drawn from and logged as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from rarely.core.choice.rules import GRID, ChoiceRule, UniformChoice, summing_to_one
from rarely.core.errors import InvalidContexts, check_flag, check_whole
from rarely.core.types import Array
from rarely.study.errors import InvalidStudy
from rarely.study.texts import check_id


@dataclass(frozen=True, slots=True)
class Stage:
    """Some consecutive decisions of a trial under the same rules.

    Parameters
    ----------
    name
        What reports call it.
    rounds
        How many decisions it lasts; None for the last stage, which has no end.
    least
        The allocation limit: the least probability of each arm that is there, one number for all or one for each name.
    burn_in
        Whether every arm that is there has the same probability, whatever the policy thinks.
    approval
        Whether a person must approve a version before it decides.

    Examples
    --------
    >>> Stage("adaptive", least=0.1, approval=True).rounds is None
    True
    """

    name: str
    rounds: int | None = None
    least: float | Mapping[str, float] = 0.0
    burn_in: bool = False
    approval: bool = False

    def __post_init__(self) -> None:
        check_id(self.name, "the name of a stage")
        if self.rounds is not None:
            check_whole("rounds of a stage", self.rounds, 1)
        check_flag("burn_in", self.burn_in)
        check_flag("approval", self.approval)
        shares = self.least.values() if isinstance(self.least, Mapping) else [self.least]
        for share in shares:
            if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
                raise InvalidStudy(f"least must be probabilities from 0 to 1; got {self.least!r}.")

    def describe(self) -> dict[str, Any]:
        """The stage as JSON: its fields, so `Stage(**description)` is the inverse."""
        least: Any = self.least
        least = {k: float(v) for k, v in least.items()} if isinstance(least, Mapping) else float(least)
        return asdict(self) | {"least": least}

    def limits(self, arms: Sequence[str] | None) -> tuple[float, ...] | float:
        """The limit of each arm, or of all."""
        if not isinstance(self.least, Mapping):
            return float(self.least)
        unknown = sorted(set(self.least) - set(arms or ()))
        if unknown:
            raise InvalidStudy(f"least names arms that the study does not have: {', '.join(unknown)}.")
        return tuple(float(self.least.get(name, 0.0)) for name in arms or ())


def check_stages(stages: Sequence[Stage], arms: Sequence[str] | None) -> None:
    """Refuse stages that cannot follow one another, or limits that leave no room."""
    for i, stage in enumerate(stages):
        if not isinstance(stage, Stage):
            raise InvalidStudy(f"stages must be Stage values, such as Stage('adaptive', least=0.1); got {stage!r}.")
        if (stage.rounds is None) != (i == len(stages) - 1):
            raise InvalidStudy("every stage but the last needs rounds, and the last has none: it lasts until the end.")
        limits = stage.limits(arms)
        total = sum(limits) if isinstance(limits, tuple) else limits * len(arms or ())
        if total > 1 + 1e-12:
            raise InvalidStudy(f"the limits of stage {stage.name!r} must sum to at most 1; they sum to {total:g}.")
    if len({stage.name for stage in stages}) < len(stages):
        raise InvalidStudy("stages must have different names.")


@dataclass(frozen=True, slots=True)
class LimitedRule:
    """Another rule under allocation limits."""

    rule: ChoiceRule
    least: tuple[float, ...] | float

    @property
    def draws(self) -> bool:
        return True

    def probabilities(self, means: Array, bonuses: Array, tolerance: Array) -> Array:
        own, present = self.rule.probabilities(means, bonuses, tolerance), ~np.isnan(means)
        rows = [_on_grid(self.least, there) for there in present]
        least = np.array(rows)
        return summing_to_one(least + np.maximum(1 - least.sum(axis=1), 0.0)[:, None] * own, least)


def _on_grid(least: tuple[float, ...] | float, present: Any) -> Array:
    """Limits of the arms that are there as multiples of 2⁻⁵³: the next above, or below where these leave no room."""
    limits = [least] * len(present) if isinstance(least, float) else list(least)
    exact = [Fraction(limit) * int(GRID) * bool(there) for limit, there in zip(limits, present, strict=True)]
    if sum(exact) > GRID * (1 + 1e-12):
        raise InvalidContexts(f"the allocation limits of {len(limits)} arms must sum to at most 1; got {least!r} each.")
    above = [math.ceil(value) for value in exact]
    chosen = above if sum(above) <= GRID else [math.floor(value) for value in exact]
    return np.array(chosen) / GRID


def rule_of_stage(stage: Stage, own: ChoiceRule, arms: Sequence[str] | None) -> ChoiceRule:
    """How a round of a stage is decided."""
    if stage.burn_in:
        return UniformChoice()
    limits = stage.limits(arms)
    return LimitedRule(own, limits) if np.any(np.asarray(limits) > 0) else own


def stage_at(stages: Sequence[Stage], round: int) -> tuple[int, int | None]:
    """Which stage decides a round, counted from 1, and how many rounds of it are left, this one included.

    >>> stage_at([Stage("burn-in", 10, burn_in=True), Stage("adaptive")], 10)
    (0, 1)
    """
    first = 1
    for i, stage in enumerate(stages):
        if stage.rounds is None or round < first + stage.rounds:
            return i, None if stage.rounds is None else first + stage.rounds - round
        first += stage.rounds
    raise AssertionError("the last stage has no end")
