"""Several targets judged by one log: every arm always, all alike, the rule that made the log, and the caller's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, get_args

import numpy as np

from rarely._core.errors import check_choice
from rarely.logs.decision_log import DecisionLog, check_log
from rarely.offpolicy.estimates import Estimate, Estimator, difference, dr, ips, reward_model, snips
from rarely.offpolicy.sample import InvalidTarget, NotIdentified, Target

LOGGED = "the log's own rule"
ROUNDING = 1e-9
"""A gain within this part of the value is rounding, not a gain."""


class Judgement(NamedTuple):
    """What one estimator says of one target; `estimate` is None if the log says nothing of it, as `reason` explains."""

    target: str
    estimator: Estimator
    estimate: Estimate | None
    gain: Estimate | None = None
    """How much more it would have earned than the rule that made the log."""
    reason: str = ""


class Evaluation(tuple[Judgement, ...]):
    """Judgements of several targets; as text a table with the notes.

    Examples
    --------
    >>> print(Evaluation([Judgement("always tea", "ips", None, reason="the log never chose it")]))
    target                     by        value               interval      gain over the log  effective rounds
    always tea                 ips   the log never chose it
    """

    def __str__(self) -> str:
        form = "{:26.26} {:5} {:>9}  {:>21}  {:>21}  {:>16}"
        lines = [form.format("target", "by", "value", "interval", "gain over the log", "effective rounds")]
        notes: dict[str, list[str]] = {}
        for target, by, estimate, gain, reason in self:
            if estimate is None:
                lines.append(f"{target:26.26} {by:5} {reason}")
                continue
            spans = ("" if each is None else f"{each.low:.4g} to {each.high:.4g}" for each in (estimate, gain))
            lines.append(form.format(target, by, f"{estimate.value:.4g}", *spans, f"{estimate.effective_rounds:.0f}"))
            notes.setdefault(estimate.note, []).append(f"{target}, {by}")
        for note, about in notes.items():
            who = "; ".join(about) if len(about) < 4 else f"{len(about)} estimates"
            lines += [f"note ({who}): {note}"] if note else []
        return "\n".join(lines)

    def describe(self) -> list[dict[str, Any]]:
        """Return the judgements as JSON."""
        return [{k: asdict(v) if isinstance(v, Estimate) else v for k, v in each._asdict().items()} for each in self]


def evaluate(
    log: DecisionLog,
    targets: Mapping[str, Target] | None = None,
    *,
    estimators: Sequence[Estimator] = get_args(Estimator),
    level: float = 0.95,
    reward_range: Any = None,
) -> Evaluation:
    """Judge several targets by one log, by several estimators, and against the rule that made the log.

    Parameters
    ----------
    log, level, reward_range
        As in `ips`.
    targets
        Your own by name, each as in `ips`; or the names of arms, one a round of the log; or a function that returns
        either, given the log's columns by their names. Besides them: the log's own rule, all arms alike, and each
        arm always, if it was available in every round. Rounds are in the log's order, which is that of `time`.
    estimators
        By default all three.

    Examples
    --------
    >>> frame = {"age": [20, 30, 40, 50], "offer": ["tea", "rum", "tea", "rum"], "paid": [1, 0, 1, 1], "p": [0.5] * 4}
    >>> log = DecisionLog.from_frame(frame, arm="offer", reward="paid", probability="p")
    >>> [(each.target, each.estimate.value) for each in evaluate(log, estimators=["snips"])]
    [("the log's own rule", 0.75), ('all arms alike', 0.75), ('always rum', 0.5), ('always tea', 1.0)]
    """
    check_log(log)
    for estimator in estimators:
        check_choice("estimators", estimator, Estimator)
    present, logged, made = log.present, log.probabilities, []
    every: dict[str, Target] = {LOGGED: logged, "all arms alike": present / present.sum(axis=1, keepdims=True)}
    every |= {f"always {log.arm_name(k)}": [k] * len(log) for k in np.flatnonzero(present.all(axis=0)).tolist()}
    model = reward_model(log) if "dr" in estimators else None
    for name, target in (every | {name: _read(log, target) for name, target in (targets or {}).items()}).items():
        for estimator in estimators:
            given = {"level": level, "reward_range": reward_range} | ({"model": model} if estimator == "dr" else {})
            try:
                estimate = {"ips": ips, "snips": snips, "dr": dr}[estimator](log, target, **given)
                gain = None if name == LOGGED else difference(log, target, logged, estimator=estimator, **given)
                least = ROUNDING * max(abs(estimate.value), 1e-300)
                if gain is not None and max(abs(gain.low), abs(gain.high)) < least:
                    gain = replace(gain, value=0.0, low=0.0, high=0.0)
                made.append(Judgement(name, estimator, estimate, gain))
            except NotIdentified as error:
                made.append(Judgement(name, estimator, None, reason=str(error)))
    return Evaluation(made)


def _read(log: DecisionLog, target: Any) -> Target:
    """Return a target with the names of arms as numbers, and a function's answer for the log's rows."""
    if callable(target) and not hasattr(target, "select"):
        if log.rows is None or not log.names:
            raise InvalidTarget("a target that is a function needs a log whose rows have named columns.")
        target = target({name: log.rows[:, i] for i, name in enumerate(log.names)})
    names = np.asarray(target) if isinstance(target, Sequence | np.ndarray) else None
    if names is None or names.dtype.kind not in "UO" or not log.arm_names:
        return target
    numbers = {name: number for number, name in enumerate(log.arm_names)}
    if unknown := sorted({str(name) for name in names.ravel().tolist()} - numbers.keys()):
        known = ", ".join(map(repr, log.arm_names))
        raise InvalidTarget(f"a target must name arms of the log, {known}; got {', '.join(map(repr, unknown))}.")
    return [numbers[str(name)] for name in names.ravel().tolist()]
