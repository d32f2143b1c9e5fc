"""Stages of a trial: allocation limits, burn-in, and which versions a person must approve.

    a    allocation limit: the minimal probability of each available arm
    p    probabilities by the policy's own rule

A round is decided with probabilities a + (1 − Σa)·p, which are drawn from and logged exactly as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from rarely import AtRounds, Budget, Schedule
from rarely.extend import ChoiceRule, Described, FixedShares, UniformChoice
from rarely.extend.checks import as_number, check_flag, check_whole, named_arguments, shown
from rarely.study.errors import InvalidStudy
from rarely.study.events import check_id


@named_arguments
@dataclass(frozen=True, slots=True)
class Stage(Described):
    """Consecutive decisions of a trial under the same rules.

    Parameters
    ----------
    name
        The name of the stage in reports.
    rounds
        How many decisions it lasts; None for the last stage, which has no end.
    least
        The allocation limit: the minimal probability of each available arm, as one number or a number for each name.
    burn_in
        Whether all available arms have the same probability, whatever the policy has learned.
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
        check_whole("rounds of a stage", self.rounds, 1, besides=(None,))
        check_flag("burn_in", self.burn_in)
        check_flag("approval", self.approval)
        least: Any = self.least
        if not all(0 <= as_number(share) <= 1 for share in (least.values() if isinstance(least, Mapping) else [least])):
            raise InvalidStudy(f"least must be probabilities from 0 to 1; got {shown(least)}.")
        least = {arm: float(share) for arm, share in least.items()} if isinstance(least, Mapping) else float(least)
        object.__setattr__(self, "least", least)

    def limits(self, arms: Sequence[str] | None) -> tuple[float, ...] | float:
        """Return the limit of each arm, or one limit for all."""
        if not isinstance(self.least, Mapping):
            return self.least
        unknown = sorted(set(self.least) - set(arms or ()))
        if unknown:
            raise InvalidStudy(f"least must name arms of the study; got {', '.join(unknown)}.")
        return tuple(self.least.get(name, 0.0) for name in arms or ())


def check_stages(stages: Sequence[Stage], arms: Sequence[str] | None) -> None:
    """Refuse stages that cannot follow one another, or limits that sum to more than 1."""
    for i, stage in enumerate(stages):
        if not isinstance(stage, Stage):
            raise InvalidStudy(f"stages must be Stage values, such as Stage('main', least=0.1); got {shown(stage)}.")
        if (stage.rounds is None) != (i == len(stages) - 1):
            raise InvalidStudy("every stage except the last must have rounds; the last stage has no end.")
        limits = stage.limits(arms)
        total = sum(limits) if isinstance(limits, tuple) else limits * len(arms or ())
        if total > 1 + 1e-12:
            raise InvalidStudy(f"the limits of stage {stage.name!r} must sum to at most 1; they sum to {total:g}.")
    if len({stage.name for stage in stages}) < len(stages):
        raise InvalidStudy("stages must have different names.")


def check_updates(schedule: Schedule, stages: Sequence[Stage]) -> None:
    """Refuse a schedule of given rounds that leaves out the end of a stage."""
    while isinstance(schedule, Budget):
        schedule = schedule.schedule
    if not isinstance(schedule, AtRounds):
        return
    ends = list(accumulate(stage.rounds for stage in stages if stage.rounds is not None))
    for stage, end in zip(stages, ends, strict=False):
        if end not in schedule.points:
            raise InvalidStudy(
                "AtRounds must hold the round with which each stage ends, so that the next begins with a new version; "
                f"stage {stage.name!r} ends with round {end}, and the schedule is {schedule!r}. Use "
                f"AtRounds({sorted({*schedule.points, *ends})}), or change the rounds of the stages."
            )


def stage_at(stages: Sequence[Stage], round: int) -> tuple[int, int | None]:
    """Return the index of the stage that decides a round, and how many of its rounds remain, this one included.

    Rounds are counted from 1; None means that the stage has no end.

    >>> stage_at([Stage("burn-in", 10, burn_in=True), Stage("adaptive")], 10)
    (0, 1)
    """
    first = 1
    for i, stage in enumerate(stages):
        if stage.rounds is None or round < first + stage.rounds:
            return i, None if stage.rounds is None else first + stage.rounds - round
        first += stage.rounds
    raise AssertionError("the last stage has no end")


def rule_of_stage(stage: Stage, own: ChoiceRule, arms: Sequence[str] | None) -> ChoiceRule:
    """Return the rule that decides the rounds of a stage, given the policy's own rule."""
    if stage.burn_in:
        return UniformChoice()
    limits = stage.limits(arms)
    if not np.any(np.asarray(limits) > 0):
        return own
    return FixedShares(own, limits)
