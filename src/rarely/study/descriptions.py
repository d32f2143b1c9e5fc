"""A study as JSON: what `rarely study create` reads, and what a service is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rarely.core import policies
from rarely.core.errors import InvalidInput
from rarely.core.inputs.arm_blocks import ArmBlocks
from rarely.core.policies.base import Policy
from rarely.core.policies.settings import decoded
from rarely.study.errors import InvalidStudy
from rarely.study.reward_rule import RewardRule
from rarely.study.trial import Stage

KINDS = ("BatchNeuralUCB", "NeuralTS", "NeuralEpsilonGreedy", "NeuralLinear", "LinUCB", "LinTS", "Uniform")
"""Policies that a description may name."""
_FIELDS = {"policy", "arms", "blocks", "rewards", "stages", "control"}


def arguments_of(description: Any) -> dict[str, Any]:
    """The arguments of `Study.create` from a description.

    >>> given = arguments_of({"policy": {"kind": "LinUCB", "dim": 2}, "arms": ["a", "b"], "rewards": {"most": 1.0}})
    >>> given["policy"], given["rewards"].most
    (<LinUCB: version 0, round 0, 0 rewards missing>, 1.0)
    """
    if not isinstance(description, dict) or "policy" not in description:
        raise InvalidStudy('a study is described by a JSON object such as {"policy": {"kind": "LinUCB", "dim": 2}}.')
    unknown = sorted(set(description) - _FIELDS)
    if unknown:
        raise InvalidStudy(f"a study has the fields {', '.join(sorted(_FIELDS))}; got {unknown[0]!r}.")
    given: dict[str, Any] = {"policy": policy_of(description["policy"])}
    given |= {name: description[name] for name in ("arms", "control") if name in description}
    try:
        if description.get("blocks") is not None:
            given["blocks"] = ArmBlocks.from_description(description["blocks"])
        if description.get("rewards") is not None:
            given["rewards"] = RewardRule(**description["rewards"])
        if description.get("stages") is not None:
            given["stages"] = [Stage(**stage) for stage in description["stages"]]
    except (TypeError, KeyError) as error:
        raise InvalidStudy(f"blocks, rewards and stages must have the fields that the classes have: {error}.") from None
    return given


def policy_of(description: Any) -> Policy:
    """A policy from its kind and its settings, as `policy.settings()` describes them."""
    if not isinstance(description, dict) or description.get("kind") not in KINDS:
        raise InvalidStudy(f"policy must be a JSON object whose kind is one of {', '.join(KINDS)}.")
    settings = {name: value for name, value in description.items() if name != "kind"}
    try:
        settings = dict(zip(settings, decoded(**settings), strict=True))
        policy: Policy = getattr(policies, description["kind"])(**settings)
    except TypeError as error:
        raise InvalidStudy(f"the settings of {description['kind']} do not fit: {error}.") from None
    return policy


def read_json(text: str, what: str) -> Any:
    """JSON with finite numbers and no name twice."""

    def refuse(number: str) -> Any:
        raise ValueError(f"{number} is no number of JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise ValueError("an object has a name twice")
        return fields

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} must be JSON: {error}.") from None


def read_description(path: Path) -> Any:
    """The description in a file."""
    return read_json(path.read_text(encoding="utf-8"), str(path))
