"""A log in the forms that other programs read and write: CSV, Parquet, Open Bandit Pipeline's and Vowpal Wabbit's.

A table has one row a round and these columns. A cell is empty where no reward is in, no arm was available, or the
probability of an arm that was not chosen is unknown:

    round  version  arm  reward  propensity
    probability_k                k = 0 … K−1
    row_j                        j = 0 … r−1, where rows were recorded
    slate                        the round of the slate's first slot, where there are slates
    gain_k  cost_k               what outcomes of arm k are worth, where a decision said so
    context_k_j                  j = 0 … d−1, of arm k

Numbers keep all their digits, so what is read back is what was written.

Vowpal Wabbit has contextual bandits as text, and as JSON:

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

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from rarely.extend import Array, Arrays, Decision
from rarely.extend.checks import check_names, read_real, read_whole
from rarely.extend.provisional import Worth, path_of
from rarely.logs.decision_log import DecisionLog, check_log, probabilities_of
from rarely.logs.tables import InvalidLog, NamedRows, Remark, exact_number, is_missing, lines_of, open_table, pyarrow

WHOLE = ("round", "version", "arm")  # the columns of whole numbers, besides the slate
NOTES = ("id", "time", "stage", "actor", "name", "sent")
"""Columns of a table that say more about a decision than a log holds; the last two where it was asked by columns."""
LARGEST_WHOLE = np.iinfo(np.int64).max
MAX_NUMBERS = 2**28  # in all contexts: 2 GiB
MAX_ARMS = 2**16  # arms of a --cb log, of which only the largest number says how many there are
Features = dict[str, float]
Label = tuple[int, float, float]


def write_log(log: DecisionLog, path: str | os.PathLike[str]) -> None:
    """Write a log as a table; `read_log` is the inverse.

    Parameters
    ----------
    log
        The log.
    path
        Where to write it; an existing file is replaced. It becomes Parquet if the name ends in .parquet, which needs
        `pip install 'rarely[parquet]'`, and CSV otherwise.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=1, seed=0)
    >>> log.record([[0.1], [3.0]], policy.select([[0.1], [3.0]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(log, folder + "/log.csv")
    ...     print(pathlib.Path(folder, "log.csv").read_text())
    round,version,arm,reward,propensity,probability_0,probability_1,context_0_0,context_1_0
    1,0,1,,0.5,0.5,0.5,0.1,3.0
    <BLANKLINE>
    """
    write_table(path, [columns_of(log)])


def write_table(path: str | os.PathLike[str], parts: Iterable[Mapping[str, Any]]) -> None:
    """Write a table from at least one part of it: as Parquet if its name ends in .parquet, else as CSV.

    A part has columns: arrays, NaN where a cell is empty, or lists, which are `NOTES`.
    """
    name, parts = path_of(path), iter(parts)
    first = next(parts)  # before the file is opened
    if not name.endswith(".parquet"):
        with open(name, "w", newline="", encoding="utf-8") as file:
            file.write(csv_of(first, head=True))
            file.writelines(csv_of(part, head=False) for part in parts)
        return
    arrow = pyarrow()
    kinds = {note: arrow.int64() if note == "time" else arrow.string() for note in NOTES}

    def table(part: Mapping[str, Any]) -> Any:
        cells = {
            column: arrow.array(each, kinds[column]) if column in kinds else arrow.array(each, mask=each != each)
            for column, each in part.items()
        }
        return arrow.table(cells)

    whole = table(first)
    with pyarrow("parquet").ParquetWriter(name, whole.schema) as out:
        for part in chain([whole], map(table, parts)):
            out.write_table(part)


def csv_of(columns: Mapping[str, Any], *, head: bool) -> str:
    """Return a part of a table as CSV, with the names of its columns if it is the first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if head:
        writer.writerow(columns)
    # tolist gives Python's own floats, whose text has every digit.
    cells = [each if isinstance(each, list) else each.tolist() for each in columns.values()]
    writer.writerows(["" if value != value else value for value in row] for row in zip(*cells, strict=True))
    return text.getvalue()


def read_log(source: Any, **columns: Any) -> DecisionLog:
    """Read a log in whichever form it is.

    Known are what `write_log` wrote, files of Vowpal Wabbit (--cb, --cb_adf, --dsjson) and the `bandit_feedback` of
    Open Bandit Pipeline. Any other table is read by `DecisionLog.from_frame`.

    Parameters
    ----------
    source
        A file or a frame, as in `DecisionLog.from_frame`, or a dictionary of Open Bandit Pipeline.
    columns
        As in `DecisionLog.from_frame`. If the arm, the reward or the round is named, it is any table. For a file of
        Vowpal Wabbit `ignore` has namespaces or features.

    Examples
    --------
    >>> read_log({"action": [1, 0], "reward": [1, 0], "pscore": [0.5, 0.25], "context": [[3.0], [4.0]]})
    <DecisionLog: 2 rounds, 0 rewards missing>
    """
    named = {name: value for name, value in columns.items() if value is not None}
    if {"arm", "reward", "round"} & named.keys():
        return DecisionLog.from_frame(source, **named)
    if isinstance(source, Mapping) and {"action", "reward", "context"} <= source.keys():
        check_names("a bandit_feedback", named, ())
        return _of_feedback(source)
    if isinstance(source, str | os.PathLike) and not path_of(source).endswith(".parquet"):
        first = next((line.strip() for _, line in lines_of(source) if line.strip()), "")
        if re.match(r"""(shared\b[^|,]*|\d+:[^|,]*|'[^|,]*)?\||\{.*"_(label|multi)""", first):
            check_names("a log of Vowpal Wabbit", named, ("arm_count", "ignore"))
            return read_vowpal_wabbit(source, **named)
    table = open_table(source)
    if {*WHOLE, "propensity"} <= {*table.header}:
        check_names("a log that write_log wrote", named, ("encoder",))  # whose contexts are encoded already
        return _log_of(table)
    return DecisionLog.from_frame(source, **named)


def bandit_feedback(log: DecisionLog) -> dict[str, Any]:
    """Return the rounds whose rewards are in, as Open Bandit Pipeline's `bandit_feedback`.

    Its rounds are those of `log.observed`; make an `action_dist` on the same rounds. Its `context` has (n, r) recorded
    rows or, without them, the arms' contexts side by side, (n, K·d), 0 where an arm is absent. `action_context` is
    one-hot, (K, K), and `position` 0. `pi_b` is None if the probabilities of some arms are unknown.

    Parameters
    ----------
    log
        The decisions and their rewards.

    Examples
    --------
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=2, seed=0)
    >>> decision = policy.select([[1.0, 2.0], [3.0, 4.0]])
    >>> log.record([[1.0, 2.0], [3.0, 4.0]], decision, rows=[7.0])
    >>> log.observe(decision, 1.5)
    >>> feedback = bandit_feedback(log)
    >>> feedback["context"], feedback["action"], feedback["pscore"], feedback["pi_b"].shape
    (array([[7.]]), array([1]), array([0.5]), (1, 2, 1))
    """
    check_log(log)
    places = log.observed
    probabilities, rows = probabilities_of(log, places), log.rows
    n, arms = probabilities.shape
    if rows is None:
        rows = np.where(log.present[..., None], log.contexts, 0.0).reshape(len(log), -1)
    return {
        "n_rounds": n,
        "n_actions": arms,
        "context": rows[places],
        "action_context": np.eye(arms, dtype=int),
        "action": log.arms[places],
        "position": np.zeros(n, int),
        "reward": log.rewards[places],
        "expected_reward": None,
        "pscore": log.propensities[places],
        "pi_b": None if np.isnan(probabilities).any() else probabilities[:, :, None],
    }


def _of_feedback(feedback: Mapping[str, Any]) -> DecisionLog:
    """Return the log of a `bandit_feedback`; where it has several positions, a column for each joins the context."""
    arms = read_whole(feedback["action"], "action", InvalidLog)
    rows = read_real(feedback["context"], "context", InvalidLog)
    position, chances = feedback.get("position"), feedback.get("pi_b")
    places = np.zeros(len(arms), np.int64) if position is None else read_whole(position, "position", InvalidLog)
    if not len(arms) or places.shape != arms.shape or places.min() < 0:
        raise InvalidLog(f"a bandit_feedback needs a position of at least 0 for each action; got {position}.")
    drawn: dict[str, Any] = {"propensities": feedback.get("pscore")}
    if chances is not None:
        chances = read_real(chances, "pi_b", InvalidLog)
        if chances.ndim != 3 or len(chances) != len(arms) or chances.shape[2] <= places.max():
            raise InvalidLog(f"pi_b must have shape ({len(arms)}, K, {places.max() + 1} or more); got {chances.shape}.")
        drawn = {"probabilities": chances[np.arange(len(arms)), :, places]}
    rows = np.hstack([rows, np.eye(places.max() + 1)[places]]) if places.any() else rows
    count = int(feedback.get("n_actions") or arms.max() + 1)
    return DecisionLog.from_arrays(None, arms, feedback["reward"], rows=rows, arm_count=count, **drawn)


def columns_of(log: DecisionLog, *, slates: bool = False, worth: bool = False) -> Arrays:
    """Return the table, NaN where a cell is empty; with columns of slates and worth also where the log has none."""
    check_log(log)
    contexts, given = log.contexts, log.worth or (Worth() if worth else None)
    if len(log) and (np.isnan(log.propensities).any() or not contexts.shape[2]):
        raise InvalidLog("only a log of decisions, with their contexts and probabilities, can be written.")
    probabilities = np.where(log.present, log.probabilities, np.nan)
    rows = np.empty((len(log), 0)) if log.rows is None else log.rows
    marks = log.rounds if slates and log.slates is None else log.slates
    worths = [] if given is None else [np.where(log.present, each, np.nan).T for each in (given.gain, given.cost)]
    flat = contexts.reshape(len(log), contexts.shape[1] * contexts.shape[2])
    columns = (log.rounds, log.versions, log.arms, log.rewards, log.propensities, *probabilities.T, *rows.T)
    columns += () if marks is None else (marks,)
    sizes = probabilities.shape[1], rows.shape[1], contexts.shape[2]
    names = names_of(*sizes, slates=marks is not None, worth=given is not None)
    return dict(zip(names, (*columns, *chain.from_iterable(worths), *flat.T), strict=True))


def names_of(arms: int, rows: int, dim: int, *, slates: bool = False, worth: bool = False) -> list[str]:
    """Return the names of the columns of a table."""
    worths = range(arms if worth else 0)
    places = [f"{k}_{j}" for k in range(arms) for j in range(dim)]
    counted = {"probability": range(arms), "row": range(rows), "gain": worths, "cost": worths, "context": places}
    names = {kind: [f"{kind}_{each}" for each in some] for kind, some in counted.items()}
    names["row"] += ["slate"] if slates else []
    return [*WHOLE, "reward", "propensity", *chain.from_iterable(names.values())]


def _log_of(table: NamedRows) -> DecisionLog:
    """Return the log of a table; every check of `record` and `observe` is made again."""
    header = [name for name in table.header if name not in NOTES]
    kinds = "probability_", "row_", "gain_", "context_"
    arms, width, worths, cells = (sum(name.startswith(kind) for name in header) for kind in kinds)
    slates, worth = "slate" in header, worths > 0
    wanted = names_of(arms, width, cells // max(arms, 1), slates=slates, worth=worth)
    if odd := sorted({*wanted} ^ {*header}):
        raise InvalidLog(
            "a table must have the columns round, version, arm, reward, propensity, probability_k, row_j, slate, "
            "gain_k and cost_k if any, and context_k_j for every arm k; "
            f"{odd[0]} is {'missing' if odd[0] in wanted else 'not one of them'}."
        )
    columns = _numbers_of(table)
    if not len(columns["round"]):
        return DecisionLog()
    parts = [arms, width, *(arms, arms) * worth]
    numbers = np.column_stack([columns[name] for name in wanted if name not in (*WHOLE, "slate")])[:, 2:]
    probabilities, rows, *given, contexts = np.split(numbers, np.cumsum(parts), axis=1)
    contexts = contexts.reshape(len(numbers), arms, -1)
    absent = np.isnan(probabilities) & np.isnan(contexts).all(axis=2)
    blank, chances = np.where(absent, np.nan, 0.0), np.where(absent, 0.0, probabilities)
    if any(np.isnan(each[~absent]).any() for each in given):
        raise InvalidLog("gain_k and cost_k must be numbers for every arm k that is there; some are empty.")
    about: dict[str, Any] = {"worth": Worth(*given) if worth else None, "slate": columns.get("slate")}
    decision = Decision(columns["arm"], blank, blank, columns["version"], columns["round"], chances, **about)
    log = DecisionLog()
    log.record(contexts, decision, rows=rows if width else None, unknown=True)
    if (bad := np.flatnonzero(log.propensities != columns["propensity"])).size:
        raise InvalidLog(
            "propensity must be the probability of the chosen arm in every row of a table; in that of round "
            f"{log.rounds[bad[0]]} they are {columns['propensity'][bad[0]]} and {log.propensities[bad[0]]}."
        )
    rewarded = ~np.isnan(columns["reward"])
    log.observe(rounds=columns["round"][rewarded], rewards=columns["reward"][rewarded])
    return log


def _numbers_of(table: NamedRows) -> Arrays:
    cells: dict[str, list[int | float]] = {name: [] for name in table.header if name not in NOTES}
    for number, line in table.lines:
        for name, cell in zip(table.header, line, strict=True):
            if name not in cells:
                continue
            whole, value = name in (*WHOLE, "slate"), exact_number(cell)
            if value is None and is_missing(cell) and not whole:
                value = np.nan
            if value is None or (whole and not (isinstance(value, int) and abs(value) <= LARGEST_WHOLE)):
                kind = "a whole number" if whole else "a finite number or empty"
                raise InvalidLog(f"{name} in {table.unit} {number} of {table.name} must be {kind}; got {cell!r}.")
            cells[name].append(value)
    kinds = {name: np.int64 for name in (*WHOLE, "slate")}
    return {name: np.array(column, kinds.get(name, np.float64)) for name, column in cells.items()}


# --- Vowpal Wabbit


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
    rest: dict[str, Any] = {"propensities": propensities}
    if kept[0].arms is None:
        count = arm_count or int(arms.max()) + 1
        if count > MAX_ARMS:
            raise InvalidLog(f"{path}: a log has at most {MAX_ARMS} arms, numbered 1, 2, …; got an arm {count}.")
        rest |= {"arm_count": count, "arm_names": [str(arm + 1) for arm in range(count)]}
        rest["rows"] = _dense([example.shared for example in kept], names)
    else:
        chances = [example.chances for example in kept if example.chances is not None]
        if len(chances) == len(kept):
            width = max(map(len, chances))
            rest = {"probabilities": [np.pad(each, (0, width - len(each))) for each in chances]}
        rest["contexts"] = [_dense([example.shared | arm for arm in example.arms or ()], names) for example in kept]
    log = DecisionLog.from_arrays(arms=arms, rewards=0.0 - costs, names=tuple(names), **rest)
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
    shared, arms = (block[:1], block[1:]) if block[0].startswith("shared") else ([], block)
    labels = [(arm, *label[1:]) for arm, label in enumerate(map(_label, arms)) if label]
    if len(labels) > 1:
        raise InvalidLog("one arm of a round must have a label; several do.")
    return Example(line, _features("".join(shared)), [_features(arm) for arm in arms], labels[0] if labels else None)


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
    features: Features = {}
    for part in line.split("|")[1:]:
        space, _, rest = (part if part[:1].strip() else f" {part.strip()}").partition(" ")
        space, _, scale = space.partition(":")
        for token in rest.split():
            name, _, value = token.partition(":")
            key = f"{space}^{name}" if space else name
            features[key] = features.get(key, 0.0) + float(scale or 1) * float(value or 1)
    return features


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
