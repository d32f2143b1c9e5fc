"""What a study is created with, fixed for its life: arms, rewards and stages; and the same as JSON.

    a    allocation limit of a stage: the minimal probability of each available arm
    p    probabilities by the policy's own rule

A round is decided with probabilities a + (1 − Σa)·p, which are drawn from and logged exactly as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import NoneType
from typing import Any, Literal

import numpy as np

from rarely import ArmBlocks, AtRounds, Budget, Interval, Schedule
from rarely.errors import InvalidInput, InvalidReward
from rarely.extend import ChoiceRule, Described, FixedShares, UniformChoice
from rarely.extend.checks import (
    as_number,
    check_choice,
    check_flag,
    check_whole,
    is_whole,
    named_arguments,
    read_rewards,
    shown,
)
from rarely.extend.provisional import POLICIES
from rarely.frames.tables import FrameTables
from rarely.study.errors import BrokenStudy, InvalidStudy, NewerSchema
from rarely.study.events import check_id
from rarely.study.plan import AnalysisPlan

FORMAT = 1  # the format of the description in the first event
MAX_REWARD = 1e100  # a larger reward would overflow in every later training, so it is out of every range
MAX_ARMS = 100_000  # arms that a study may have by number: each has a name
Aggregation = Literal["first", "last", "sum"]
_FIELDS = {"policy", "arms", "blocks", "tables", "rewards", "stages", "control", "plan"}


@named_arguments
@dataclass(frozen=True, slots=True)
class RewardRule(Described):
    """How the rewards of a study count.

    Parameters
    ----------
    aggregation
        "first": the first reward of a decision counts, and a second one goes to the quarantine. "last" and "sum" need
        a waiting window, and count when it has closed.
    wait
        Seconds after a decision during which its rewards are accepted; None for no end. A later reward is recorded as
        late and not learned from.
    default
        The reward of a decision that received none in its window; None to learn nothing from it.
    least, most
        The range of a single reward; rewards outside of it go to the quarantine. None for no limit except ±1e100,
        beyond which trainings would overflow.
    outcomes
        Names of outcomes and what one of each is worth, negative for a cost. `tell` then takes a dict of them, whose
        weighted sum is the reward; one that is left out counts 0. Each is on record, and in `log.outcomes`.
    spends
        The outcome that says what a decision took of the policy's `Ceiling(costs="learned")`. The first reward of a
        decision must have it, and it counts at once, late or not, unless the reward goes to the quarantine.

    Examples
    --------
    >>> RewardRule(wait=7 * 24 * 3600, default=0.0, least=0.0, most=1.0).aggregation
    'first'
    >>> RewardRule("sum")
    Traceback (most recent call last):
        ...
    rarely.study.errors.InvalidStudy: aggregation 'sum' needs wait, the seconds after which a decision's rewards are \
complete; got None.
    """

    aggregation: Aggregation = "first"
    wait: float | None = None
    default: float | None = None
    least: float | None = None
    most: float | None = None
    outcomes: dict[str, float] | None = None
    spends: str | None = None

    def __post_init__(self) -> None:
        if self.outcomes is not None:
            weights = self.outcomes if isinstance(self.outcomes, Mapping) else {}
            if not weights or not all(abs(as_number(weight)) <= MAX_REWARD for weight in weights.values()):
                raise InvalidStudy(f"outcomes must be a dict of names and finite weights; got {shown(self.outcomes)}.")
            named = {check_id(name, "the name of an outcome"): float(weight) for name, weight in weights.items()}
            object.__setattr__(self, "outcomes", named)
        check_choice("aggregation", self.aggregation, Aggregation)
        for name in ("wait", "default", "least", "most"):
            value = getattr(self, name)
            if value is None:
                continue
            if not -MAX_REWARD <= as_number(value) <= MAX_REWARD:
                raise InvalidStudy(f"{name} must be a number from -1e100 to 1e100, or None; got {shown(value)}.")
            object.__setattr__(self, name, float(value))
        if self.wait is not None and self.wait <= 0:
            raise InvalidStudy(f"wait must be a positive number of seconds, or None for no end; got {self.wait!r}.")
        if self.wait is None and self.aggregation != "first":
            raise InvalidStudy(
                f"aggregation {self.aggregation!r} needs wait, the seconds after which a decision's rewards are "
                "complete; got None."
            )
        if self.wait is None and self.default is not None:
            raise InvalidStudy("default needs wait, the seconds after which a reward counts as missing; got None.")
        if self.least is not None and self.most is not None and self.least >= self.most:
            raise InvalidStudy(f"least must be below most; got {self.least!r} and {self.most!r}.")
        if self.spends is not None and (self.spends not in (self.outcomes or ()) or self.aggregation != "first"):
            raise InvalidStudy(
                "spends must be one of the outcomes, of rewards of which the first counts; got "
                f"{shown(self.spends)} and aggregation {self.aggregation!r}."
            )

    @property
    def window(self) -> int | None:
        """`wait` in microseconds."""
        return None if self.wait is None else round(self.wait * 1e6)

    def combined(self, reward: Any) -> tuple[Any, dict[str, float] | None]:
        """Return a reward as a number, and the outcomes that it is the sum of; None if it came as a number."""
        weights = self.outcomes
        if weights is None:
            return reward, None
        if not isinstance(reward, Mapping) or not reward or not reward.keys() <= weights.keys():
            raise InvalidReward(f"a reward must be a dict of some of {', '.join(weights)}; got {shown(reward)}.")
        outcomes = dict(zip(reward, read_rewards(list(reward.values()), len(reward)).tolist(), strict=True))
        if any(abs(value) > MAX_REWARD for value in outcomes.values()):  # whose sum might be no number
            raise InvalidReward(f"outcomes must be numbers from -1e100 to 1e100; got {shown(reward)}.")
        if self.spends is not None and not outcomes.get(self.spends, -1.0) >= 0:
            raise InvalidReward(f"a reward must say what was spent, {self.spends!r}, at least 0; got {shown(reward)}.")
        return math.fsum(weights[name] * value for name, value in outcomes.items()), outcomes

    def describe(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        described = Described.describe(self)
        return described if self.spends else {name: described[name] for name in described if name != "spends"}

    def contains(self, value: float) -> bool:
        """Return whether a reward is in range."""
        least, most = -MAX_REWARD if self.least is None else self.least, MAX_REWARD if self.most is None else self.most
        return least <= value <= most


# --- stages


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
    return FixedShares(own, limits) if np.any(np.asarray(limits) > 0) else own


# --- settings


@named_arguments
@dataclass(frozen=True)
class StudySettings:
    """Everything except the policy that a study is created with; see `Study.create`.

    Examples
    --------
    >>> StudySettings(arms=["red", "blue"]).stages[0].name
    'main'
    """

    arms: tuple[str, ...] | None = None
    blocks: ArmBlocks | Interval | None = None
    tables: FrameTables | None = None  #: What columns requests have, where they come by columns.
    rewards: RewardRule = field(default_factory=RewardRule)
    stages: tuple[Stage, ...] = (Stage("main"),)
    control: str | None = None
    plan: AnalysisPlan | None = None

    def __post_init__(self) -> None:
        check_part("plan", self.plan, AnalysisPlan, NoneType)
        check_part("rewards", self.rewards, RewardRule)
        check_part("blocks", self.blocks, ArmBlocks, Interval, NoneType)
        if isinstance(self.blocks, Interval):
            if self.blocks.rows is None:
                raise InvalidStudy(
                    "an Interval of a study must have rows, which requests bring: Interval.fit(rows, …)."
                )
            object.__setattr__(self, "arms", self.arms or self.blocks.names)
        check_part("tables", self.tables, FrameTables, NoneType)
        if self.tables is not None and (self.blocks is not None or self.arms is not None):
            raise InvalidStudy("blocks and arms must be left out where a FramePolicy says what requests bring.")
        arms = self.arms if self.tables is None else self.tables.arms or None
        object.__setattr__(self, "arms", read_arms(arms))
        if self.blocks is not None and (self.blocks.features is not None or self.blocks.arms is None):
            raise InvalidStudy(
                "blocks of a study must have a number of arms and no features of arms; give whole contexts instead."
            )
        if self.blocks is not None and self.arms is not None and len(self.arms) != self.blocks.arms:
            raise InvalidStudy(f"blocks are for {self.blocks.arms} arms; arms names {len(self.arms)}.")
        if self.control is not None and not (isinstance(self.control, str) and self.control in (self.arms or ())):
            raise InvalidStudy(f"control must be one of the arms; got {shown(self.control)}.")
        if isinstance(self.stages, list):
            object.__setattr__(self, "stages", tuple(self.stages))
        if not isinstance(self.stages, tuple) or not self.stages:
            raise InvalidStudy(f"stages must be a list of at least one Stage; got {shown(self.stages)}.")
        check_stages(self.stages, self.arms)

    @property
    def shared(self) -> int:
        """How many numbers all arms of a decision share; 0 where each arm has its own."""
        if self.tables is not None and self.tables.users is not None:
            return len(self.tables.users.names)
        return 0 if self.blocks is None or self.blocks.rows is None else self.blocks.rows.dim

    def with_name(self, arm: int, name: str) -> StudySettings:
        """Return the settings with another name of an arm, which must not be the control arm."""
        old = (self.arms or ())[arm]
        arms = tuple(name if each == old else each for each in self.arms or ())
        stages = list(self.stages)
        for place, stage in enumerate(stages):
            if isinstance(stage.least, Mapping):
                least = {name if each == old else each: share for each, share in stage.least.items()}
                stages[place] = replace(stage, least=least)
        tables = None if self.tables is None else replace(self.tables, arms=arms)
        return replace(self, arms=arms if tables is None else None, tables=tables, stages=tuple(stages))

    def check_subgroups(self, dim: int) -> None:
        """Refuse a registered subgroup by a covariate that decisions do not have."""
        width = self.shared or dim
        for name, (column, *_) in ((self.plan and self.plan.subgroups) or {}).items():
            if column >= width:
                raise InvalidStudy(f"subgroup {name!r} has covariate {column}; covariates are 0 to {width - 1}.")

    def request_schema(self, dim: int) -> dict[str, Any]:
        """Return the JSON schema of what a request for one decision brings, given the numbers in a context."""
        if self.tables is not None:
            return self.tables.schema()
        width = self.shared or dim
        row: dict[str, Any] = {"type": "array", "items": {"type": "number"}, "minItems": width, "maxItems": width}
        if self.blocks is None:
            some = {"minItems": 1} if self.arms is None else dict.fromkeys(("minItems", "maxItems"), len(self.arms))
            row = {"type": "array", "items": row, **some}
        return {"type": "object", "properties": {"contexts": row}, "required": ["contexts"]}

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        described: dict[str, Any] = {"format": FORMAT, "control": self.control, "rewards": self.rewards.describe()}
        described["arms"] = None if self.arms is None or self.tables is not None else list(self.arms)
        described["stages"] = [stage.describe() for stage in self.stages]
        for name, value in {"blocks": self.blocks, "plan": self.plan, "tables": self.tables}.items():
            described[name] = None if value is None else value.describe()
        return described

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> StudySettings:
        """Return the settings that `describe` described."""
        try:
            if description["format"] != FORMAT:
                raise NewerSchema(
                    f"the settings of the study have format {description['format']!r}; this version reads format "
                    f"{FORMAT}. Use the version of rarely that wrote them."
                )
            return cls(description["arms"], control=description["control"], **_values(description))
        except (InvalidInput, AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenStudy(f"the settings of the study cannot be read ({error}). Use a backup.") from error


def check_part(name: str, part: Any, *kinds: type[Any]) -> None:
    """Refuse a part of a study that has none of these classes, the first of which users give."""
    if not isinstance(part, kinds):
        raise InvalidStudy(f"{name} must be a value of {kinds[0].__name__}; got {shown(part)}.")


def _values(description: dict[str, Any]) -> dict[str, Any]:
    """Return blocks, tables, rewards, stages and plan from their descriptions; what is missing or None is left out."""
    return {name: make(description[name]) for name, make in _MAKERS.items() if description.get(name) is not None}


def read_arms(arms: Any) -> tuple[str, ...] | None:
    """Return the names of the arms, given names or a number of arms; None if arms have no names."""
    if arms is None:
        return None
    if is_whole(arms) and 1 <= arms <= MAX_ARMS:
        return tuple(map(str, range(arms)))
    if isinstance(arms, np.ndarray):
        arms = arms.tolist()
    if isinstance(arms, str) or not isinstance(arms, Sequence) or not arms:
        raise InvalidStudy(f"arms must be a list of names or their number, at most {MAX_ARMS:,}; got {shown(arms)}.")
    names = tuple(check_id(name, "the name of an arm") for name in arms)
    if len(set(names)) < len(names):
        raise InvalidStudy(f"arms must have different names; got {list(names)}.")
    return names


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "blocks": lambda said: (Interval if "interval" in said else ArmBlocks).from_description(said),
    "tables": FrameTables.from_description,
    "rewards": lambda fields: RewardRule(**fields),
    "stages": lambda stages: tuple(Stage(**fields) for fields in stages),
    "plan": lambda fields: AnalysisPlan(**fields),
}


# --- JSON from outside


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice[:40]!r} twice")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_names)


def parse_json(text: str) -> Any:
    """Parse JSON strictly: ValueError for NaN, Infinity, repeated names and excessive nesting.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    ValueError: an object has the name 'a' twice
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def arguments_of(description: Any, policy: Any = None) -> dict[str, Any]:
    """Return the arguments of `Study.create` that a JSON description gives, whose policy may stand beside it.

    >>> described = {"policy": {"kind": "LinUCB", "dim": 2}, "arms": ["a", "b"], "rewards": {"most": 1.0}}
    >>> arguments = arguments_of(described)
    >>> arguments["policy"], arguments["rewards"].most
    (<LinUCB: version 0, round 0, 0 rewards missing>, 1.0)
    """
    if not isinstance(description, dict) or ("policy" in description) == (policy is not None):
        raise InvalidStudy(
            'a study is described by a JSON object such as {"policy": {"kind": "LinUCB", "dim": 2}}; its policy comes '
            "once, in it or beside it."
        )
    unknown = sorted(set(description) - _FIELDS)
    if unknown:
        raise InvalidStudy(f"a study has the fields {', '.join(sorted(_FIELDS))}; got {unknown[0]!r}.")
    if policy is None:
        described = description["policy"]
        if not isinstance(described, dict) or not isinstance(described.get("kind"), str):
            raise InvalidStudy('policy must be a JSON object such as {"kind": "LinUCB", "dim": 2}.')
        policy = POLICIES.made(described)
    arguments: dict[str, Any] = {"policy": policy}
    arguments |= {name: description[name] for name in ("arms", "control") if name in description}
    try:
        return arguments | _values(description)
    except (TypeError, KeyError) as error:
        raise InvalidStudy(
            f"blocks, tables, rewards, stages and plan need the fields of their classes: {error}."
        ) from None
