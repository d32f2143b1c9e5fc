"""Logs of Vowpal Wabbit: contextual bandits as text, and as JSON.

    --cb             action:cost:probability | features     a line is a round; actions are 1, 2, …
    --cb_adf         shared | features                      a block of lines is a round, and a blank line ends it
                     action:cost:probability | features     the arm that was chosen
                     | features                             every other arm
    --json --dsjson  {"_label_cost": …, "_label_probability": …, "_labelIndex": …, "a": […], "p": […],
                      "c": {…, "_multi": [{…}, …]}}         a line is a round

Costs become rewards by their sign. A feature is a column `namespace^name`, and text in JSON the feature
`namespace^name=text`, which is 1. An arm's context has what all arms share, and its own. Rounds without a label are
left out, with a remark. Slates and conditional bandits (`_outcomes`, `_slots`) are refused: a round here has one arm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rarely._core.types import Array
from rarely.logs.decision_log import DecisionLog
from rarely.logs.tables import InvalidLog, Remark, lines_of

MAX_NUMBERS = 2**28  # in all contexts: 2 GiB
Features = dict[str, float]
Label = tuple[int, float, float]


class Example(NamedTuple):
    """A round: `arms` is None with --cb, and `label` the chosen arm from 0 on, its cost and its probability."""

    line: int
    shared: Features
    arms: list[Features] | None
    label: Label | None
    chances: Array | None = None


def read_vowpal_wabbit(
    path: str | os.PathLike[str], arm_count: int | None = None, ignore: Sequence[str] = ()
) -> DecisionLog:
    """Return the log of a file; `ignore` has namespaces or features, and `arm_count` is K of a --cb log."""
    examples = list(_examples(path))
    kept = [example for example in examples if example.label]
    every = (name for example in kept for each in (example.shared, *(example.arms or ())) for name in each)
    wanted = dict.fromkeys(name for name in every if not {name, name.split("^")[0]} & {*ignore})
    names = {name: column for column, name in enumerate(wanted)}
    if not names:
        raise InvalidLog(f"{path}: no round has a label action:cost:probability, and features for the context.")
    if (size := sum(len(example.arms or (0,)) for example in kept) * len(names)) > MAX_NUMBERS:
        raise InvalidLog(
            f"{path}: {len(names)} different features make {size} numbers, more than {MAX_NUMBERS}. Leave out those "
            "with many values, such as ids, by ignore=[namespace, …]."
        )
    labels = zip(*(example.label or () for example in kept), strict=True)
    arms, costs, propensities = map(np.array, labels)
    if (odd := np.flatnonzero(~np.isfinite(costs))).size:
        raise InvalidLog(f"{path}, line {kept[odd[0]].line}: a cost must be a finite number; got {costs[odd[0]]}.")
    given: dict[str, Any] = {"propensities": propensities}
    if kept[0].arms is None:
        count = arm_count or int(arms.max()) + 1
        given |= {"arm_count": count, "arm_names": [str(arm + 1) for arm in range(count)]}
        given["rows"] = _dense([example.shared for example in kept], names)
    else:
        chances = [example.chances for example in kept if example.chances is not None]
        if len(chances) == len(kept):
            width = max(map(len, chances))
            given = {"probabilities": [np.pad(each, (0, width - len(each))) for each in chances]}
        given["contexts"] = [_dense([example.shared | arm for arm in example.arms or ()], names) for example in kept]
    log = DecisionLog.from_arrays(arms=arms, rewards=0.0 - costs, names=tuple(names), **given)
    if bare := [example.line for example in examples if not example.label]:
        said = f"{len(bare)} of {len(examples)} rounds have no label and are left out"
        log.remarks = (Remark(said, "gap", tuple(bare), "line"),)
    return log


def _dense(examples: Sequence[Features], names: dict[str, int]) -> Array:
    out = np.zeros((len(examples), len(names)))
    for row, features in zip(out, examples, strict=True):
        for name in features.keys() & names.keys():
            row[names[name]] = features[name]
    return out


def _examples(path: str | os.PathLike[str]) -> Iterator[Example]:
    """Yield the rounds of a file; what cannot be read is an InvalidLog with its line."""
    lines = [(number, line.strip()) for number, line in lines_of(path)]
    filled = [(number, line) for number, line in lines if line]
    number, block = 0, []
    try:
        if filled and filled[0][1].startswith("{"):
            for number, line in filled:
                yield _from_json(number, json.loads(line))
        elif all(line[0].isdigit() for _, line in filled):
            for number, line in filled:
                yield Example(number, _features(line), None, _label(line))
        else:
            for number, line in [*lines, (len(lines) + 1, "")]:
                if line:
                    block.append(line)
                elif block:
                    yield _from_block(number - len(block), block)
                    block = []
    except (ValueError, TypeError, LookupError, AttributeError) as reason:
        why = reason if isinstance(reason, InvalidLog) else f"this is not a round of Vowpal Wabbit; {reason!r}."
        raise InvalidLog(f"{path}, line {number}: {why}") from reason


def _from_block(line: int, block: list[str]) -> Example:
    shared, own = (block[:1], block[1:]) if block[0].startswith("shared") else ([], block)
    labels = [(arm, *label[1:]) for arm, label in enumerate(map(_label, own)) if label]
    if len(labels) > 1:
        raise InvalidLog("one arm of a round must have a label; several do.")
    return Example(line, _features("".join(shared)), [_features(arm) for arm in own], labels[0] if labels else None)


def _label(line: str) -> Label | None:
    """Return the arm, cost and probability that precede the features, or None."""
    text = line.partition("|")[0].removeprefix("shared")
    tokens = [token.split(":") for token in text.split() if token[0] != "'"]
    if len(tokens) > 1 and not text[-1].isspace():  # a tag touches the bar
        tokens = tokens[:-1]
    if sum(map(len, tokens)) < 2:  # nothing, or a tag
        return None
    if len(tokens) > 1 or len(tokens[0]) != 3:
        raise InvalidLog(f"a label must be one action:cost:probability; {text.strip()} is not.")
    return int(tokens[0][0]) - 1, float(tokens[0][1]), float(tokens[0][2])


def _features(line: str) -> Features:
    """Return the features of a line, times the weight of their namespace."""
    found: Features = {}
    for part in line.split("|")[1:]:
        space, _, rest = (part if part[:1].strip() else f" {part.strip()}").partition(" ")
        space, _, scale = space.partition(":")
        for token in rest.split():
            name, _, value = token.partition(":")
            key = f"{space}^{name}" if space else name
            found[key] = found.get(key, 0.0) + float(scale or 1) * float(value or 1)
    return found


def _from_json(line: int, event: dict[str, Any]) -> Example:
    context = event.get("c", event)
    if "_outcomes" in event or "_slots" in context:
        raise InvalidLog("slates and conditional bandits choose several arms in a round; a round here has one.")
    shared, arms, chances = dict(_flat(context)), [dict(_flat(arm)) for arm in context["_multi"]], None
    named = {name.lower(): value for name, value in event.items()}
    if "_label_cost" not in named or named.get("_skiplearn"):
        return Example(line, shared, arms, None)
    if "p" in event and "a" in event:
        chances = np.zeros(len(arms))
        chances[np.asarray(event["a"]) - 1] = event["p"]
        if not abs(chances.sum() - 1) < 1e-3 or min(event["a"]) < 1:
            raise InvalidLog(
                f"the actions a must be 1, 2, …, and their probabilities p sum to 1; got {event['a']} and {event['p']}."
            )
        chances /= chances.sum()  # they have the seven digits of a float32
    chosen = int(named["_labelindex"] if "_labelindex" in named else named["_label_action"] - 1)
    label = chosen, float(named["_label_cost"]), float(named["_label_probability"])
    return Example(line, shared, arms, label, chances)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the features of a JSON value; names that begin with _ are none, but for the words of _text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            words = str(inner).split() if key == "_text" else () if key.startswith("_") else [key]
            for word in words:
                yield from _flat(True if key == "_text" else inner, f"{name}^{word}" if name else word)
    elif isinstance(value, str):
        yield f"{name}={value}", 1.0
    elif isinstance(value, Iterable):
        for i, inner in enumerate(value):
            yield from _flat(inner, name if isinstance(inner, Mapping | str) else f"{name}[{i}]")
    elif value is not None and value is not False:
        yield name, float(value)
