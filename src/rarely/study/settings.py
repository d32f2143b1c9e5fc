"""What a study is set to for life: arms, rewards, stages, and the policy's own settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput
from rarely.core.inputs.arm_blocks import ArmBlocks
from rarely.study.errors import BrokenStudy, InvalidStudy
from rarely.study.reward_rule import RewardRule
from rarely.study.texts import check_id
from rarely.study.trial import Stage, check_stages

FORMAT = 1
"""Of the description in the first event."""


@dataclass(frozen=True)
class StudySettings:
    """Everything but the policy that a study is created with; see `Study.create`.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-settings", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> study.settings.arms, study.settings.stages[0].name
    (('red', 'blue'), 'main')
    """

    arms: tuple[str, ...] | None = None
    blocks: ArmBlocks | None = None
    rewards: RewardRule = field(default_factory=RewardRule)
    stages: tuple[Stage, ...] = (Stage("main"),)
    control: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rewards, RewardRule):
            raise InvalidStudy(f"rewards must be a RewardRule; got {self.rewards!r}.")
        if self.blocks is not None and not isinstance(self.blocks, ArmBlocks):
            raise InvalidStudy(f"blocks must be an ArmBlocks, which makes contexts of a row; got {self.blocks!r}.")
        if self.blocks is not None:
            object.__setattr__(self, "blocks", replace(self.blocks))  # set_params changes the original
        if self.blocks is not None and (self.blocks.features is not None or self.blocks.arms is None):
            raise InvalidStudy(
                "blocks of a study must have a number of arms and no features of arms; give whole contexts instead."
            )
        if self.blocks is not None and self.arms is not None and len(self.arms) != self.blocks.arms:
            raise InvalidStudy(f"blocks are for {self.blocks.arms} arms; arms names {len(self.arms)}.")
        if self.control is not None and self.control not in (self.arms or ()):
            raise InvalidStudy(f"control must be one of the arms; got {self.control!r}.")
        if not self.stages:
            raise InvalidStudy("stages must hold at least one Stage.")
        check_stages(self.stages, self.arms)

    def describe(self) -> dict[str, Any]:
        """The settings as JSON."""
        return {
            "format": FORMAT,
            "arms": None if self.arms is None else list(self.arms),
            "blocks": None if self.blocks is None else self.blocks.describe(),
            "rewards": self.rewards.describe(),
            "stages": [stage.describe() for stage in self.stages],
            "control": self.control,
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> StudySettings:
        """The inverse of `describe`."""
        try:
            if description["format"] != FORMAT:
                raise InvalidInput(f"its format is {description['format']!r}")
            arms, blocks = description["arms"], description["blocks"]
            return cls(
                None if arms is None else tuple(arms),
                None if blocks is None else ArmBlocks.from_description(blocks),
                RewardRule(**description["rewards"]),
                tuple(Stage(**stage) for stage in description["stages"]),
                description["control"],
            )
        except (InvalidInput, KeyError, TypeError, ValueError) as error:
            raise BrokenStudy(f"the settings of the study cannot be read ({error}). Use a backup.") from error


def read_arms(arms: Any) -> tuple[str, ...] | None:
    """Names of arms, or as many names as a number says; None where arms have no names."""
    if arms is None:
        return None
    if isinstance(arms, int) and not isinstance(arms, bool) and arms >= 1:
        return tuple(map(str, range(arms)))
    if isinstance(arms, np.ndarray):
        arms = arms.tolist()
    if isinstance(arms, str) or not isinstance(arms, Sequence) or not arms:
        raise InvalidStudy(f"arms must be a list of names, or how many there are; got {arms!r}.")
    names = tuple(check_id(name, "the name of an arm") for name in arms)
    if len(set(names)) < len(names):
        raise InvalidStudy(f"arms must have different names; got {list(names)}.")
    return names
