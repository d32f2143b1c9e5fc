"""Several targets judged by one log: every arm always, all alike, the rule that made the log, and the caller's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from rarely._core.errors import check_choice
from rarely.logs.decision_log import DecisionLog, check_log
from rarely.offpolicy.estimates import Estimate, Estimator, difference, dr, ips, snips
from rarely.offpolicy.models import reward_model
from rarely.offpolicy.sample import InvalidTarget, NotIdentified, Target

LOGGED = "the log's own rule"
MAX_SHOWN = 20
"""Targets that the text names; `describe` has all."""


@dataclass(frozen=True)
class Judgement:
    """What one estimator says of one target."""

    target: str
    estimator: Estimator
    estimate: Estimate | None
    """None if the log says nothing of the target; `reason` says why."""
    gain: Estimate | None
    """How much more it would have earned than the rule that made the log."""
    reason: str = ""

    def __str__(self) -> str:
        text = self.reason
        if self.estimate is not None:
            low, high = (_interval(each) for each in (self.estimate, self.gain))
            text = f"{self.estimate.value:9.4g}  {low:>21}  {high:>21}  {self.estimate.effective_rounds:16.0f}"
        return f"{self.target[:26]:26} {self.estimator:5} {text}"


class Evaluation(tuple[Judgement, ...]):
    """Judgements of several targets; as text a table with the notes.

    Examples
    --------
    >>> print(Evaluation([Judgement("always tea", "ips", None, None, "the log never chose it")]))
    target                     by        value               interval      gain over the log  effective rounds
    always tea                 ips   the log never chose it
    """

    def __str__(self) -> str:
        titles = ("target", "by", "value", "interval", "gain over the log", "effective rounds")
        lines = ["{:26} {:5} {:>9}  {:>21}  {:>21}  {:>16}".format(*titles)]
        targets = list(dict.fromkeys(each.target for each in self))
        lines += [str(each) for each in self if each.target in targets[:MAX_SHOWN]]
        lines += [f"and {len(targets) - MAX_SHOWN} more targets"] if len(targets) > MAX_SHOWN else []
        noted = [(each.estimate.note, f"{each.target}, {each.estimator}") for each in self if each.estimate]
        for note in dict.fromkeys(note for note, _ in noted if note):
            about = [name for other, name in noted if other == note]
            lines.append(f"note ({'; '.join(about) if len(about) < 4 else f'{len(about)} estimates'}): {note}")
        return "\n".join(lines)

    def describe(self) -> list[dict[str, Any]]:
        """Return the judgements as JSON."""
        return [asdict(each) for each in self]


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
        Your own by name, each as in `ips`. Besides them: the log's own rule, all arms alike, and each arm always, if it
        was available in every round.
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
    for name, target in (every | dict(targets or {})).items():
        for estimator in estimators:
            given = {"level": level, "reward_range": reward_range} | ({"model": model} if estimator == "dr" else {})
            try:
                estimate = {"ips": ips, "snips": snips, "dr": dr}[estimator](log, target, **given)
                gain = None if name == LOGGED else difference(log, target, logged, estimator=estimator, **given)
                made.append(Judgement(name, estimator, estimate, gain))
            except (NotIdentified, InvalidTarget) as error:
                made.append(Judgement(name, estimator, None, None, str(error)))
    return Evaluation(made)


def _interval(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.low:.4g} to {estimate.high:.4g}"
