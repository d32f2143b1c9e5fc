"""The plan of a trial's analysis: when it is looked at, which errors may be made, and the document that says so."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from rarely.extend.checks import as_number, check_choice, check_positive, check_whole, is_whole, named_arguments, shown
from rarely.offpolicy.intervals import check_level
from rarely.runs.files import plain_json
from rarely.study.boundaries import Spending, boundaries, spent
from rarely.study.errors import InvalidStudy
from rarely.study.events import canonical, check_id, digest

Comparisons = Literal["holm", "ordered", "each"]
MAX_LOOKS = 100
COMPARED = {
    "holm": "All comparisons with the control arm, and the intervals of their looks, hold together by closed testing: "
    "each of m has an m-th of the error, and what was shown leaves its share to the others.",
    "ordered": "All comparisons with the control arm hold together: each waits, in the order of the arms, until the "
    "one before it was shown.",
    "each": "Each comparison has its error for itself; they do not hold together.",
}
SPENT = {
    "obrien-fleming": "Lan and DeMets' function of O'Brien and Fleming's kind, which keeps most of it for the end",
    "pocock": "Lan and DeMets' function of Pocock's kind, which gives each look about the same",
}
UNSAID_SIZE = "How this number was found is for the authors to write."
ESTIMAND = (
    "The difference of mean rewards between each arm and the control arm, if all patients for whom both were available "
    "followed the arm that was drawn."
)
Ends = tuple[int, float | None, float | None]
"""A covariate by its number, and where a subgroup begins and ends, its end not included; None for no end."""


@named_arguments
@dataclass(frozen=True, slots=True, repr=False)
class AnalysisPlan:
    """When a trial is looked at, and how the error is spent on the looks; give it to `Study.create`.

    Parameters
    ----------
    rounds
        The decisions that are planned in all: the last look comes after them.
    looks
        The number of looks, at equal distances, or the rounds after which they come.
    spending
        "obrien-fleming" spends little on early looks; "pocock" about the same on each.
    level
        1 − level is the probability of showing, at any look, a difference from the control arm that does not exist.
    comparisons
        How that holds for several arms. "holm": for all of them together, by closed testing: each of m comparisons has
        an m-th of the error, and what was shown leaves its share to the others. "ordered": for all together, each with
        the whole error, but only after those before it, in the order of the arms, were shown. "each": for each alone.
    effect
        The smallest difference that matters, above 0: for boundaries of futility, and for conditional power.
    power
        The probability of showing such a difference that boundaries of futility leave.
    subgroups
        Registered subgroups by name: a covariate's number, and where the group begins and ends, None for no end.
    estimand
        What is estimated, of whom, and what happens to those without an outcome, in words, for the document.
    size
        How the number of patients was found, in words, for the document: `rarely.planning.TrialPlan.rationale` says it.

    Examples
    --------
    >>> AnalysisPlan(1200).at
    (240, 480, 720, 960, 1200)
    >>> AnalysisPlan(1200, looks=[100, 1200], spending="pocock").at
    (100, 1200)
    """

    rounds: int
    looks: int | Sequence[int] = 5
    spending: Spending = "obrien-fleming"
    level: float = 0.95
    comparisons: Comparisons = "holm"
    effect: float | None = None
    power: float = 0.8
    subgroups: Mapping[str, Ends] | None = None
    estimand: str = ""
    size: str = ""

    def __post_init__(self) -> None:
        check_whole("rounds of an analysis", self.rounds, 2)
        check_choice("spending", self.spending, Spending)
        check_choice("comparisons", self.comparisons, Comparisons)
        check_level(self.level)
        if self.effect is not None:
            check_positive("effect", self.effect, "because it is the smallest difference that matters")
        if not 0 < as_number(self.power) < 1:
            raise InvalidStudy(f"power must be a number between 0 and 1; got {shown(self.power)}.")
        if not is_whole(self.looks):
            looks = list(self.looks) if isinstance(self.looks, Sequence | np.ndarray) else []
            whole = bool(looks) and all(is_whole(look) and look > 0 for look in looks)
            if not whole or looks != sorted({*looks}) or looks[-1] != self.rounds:
                raise InvalidStudy(
                    f"looks must be a number, or increasing rounds that end with {self.rounds}; got "
                    f"{shown(self.looks)}."
                )
            object.__setattr__(self, "looks", tuple(int(look) for look in looks))
        count = len(self.looks) if isinstance(self.looks, Sequence) else self.looks
        if not 1 <= count <= min(MAX_LOOKS, self.rounds):
            raise InvalidStudy(f"there must be 1 to {MAX_LOOKS} looks, and no more than rounds; got {shown(count)}.")
        for name, text in (("estimand", self.estimand), ("size", self.size)):
            if not isinstance(text, str) or not text.replace("\n", "").isprintable():
                raise InvalidStudy(f"{name} must be printable text; got {shown(text)}.")
        if self.subgroups is not None:
            object.__setattr__(self, "subgroups", _read_subgroups(self.subgroups))

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return f"AnalysisPlan({', '.join(f'{name}={value!r}' for name, value, usual in values if value != usual)})"

    @property
    def at(self) -> tuple[int, ...]:
        """The rounds after which the trial is looked at."""
        if not isinstance(self.looks, int | np.integer):
            return tuple(self.looks)
        return tuple(round(self.rounds * look / int(self.looks)) for look in range(1, int(self.looks) + 1))

    @property
    def hash(self) -> str:
        """The SHA-256 of the plan's fields, which the document and every look on record name."""
        return digest(canonical(self.describe()))

    def document(self, design: Mapping[str, str] | None = None) -> str:
        """Return a statistical analysis plan as Markdown, which ends with its hash; `print` shows it.

        `design` is what a study fixed besides, by name, as `Analysis.protocol` has it.
        """
        lines = [f"# Statistical analysis plan, {self.rounds} patients"]
        for title, text in self.sections(design).items():
            lines += ["", f"## {title}", "", text]
        return "\n".join([*lines, ""])

    __str__ = document

    def save(self, path: str | os.PathLike[str], design: Mapping[str, str] | None = None) -> None:
        """Write the document: .html, which a browser prints to PDF, or .md, by the name of the file."""
        from rarely.study.reports import write_report

        title = f"Statistical analysis plan, {self.rounds} patients"
        made = {".md": lambda: self.document(design)}
        write_report(path, made, "plan.html", title=title, sections=self.sections(design))

    def sections(self, design: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the parts of the document by their titles."""
        fields = {
            "design": "\n".join(f"- {what}: {value}" for what, value in (design or {}).items() if what != "plan"),
            "estimand": self.estimand or ESTIMAND,
            "looks": ", ".join(map(str, self.at)),
            "boundaries": self._boundaries(design or {}),
            "spending": SPENT[self.spending],
            "size": f"{self.rounds} patients. {self.size or UNSAID_SIZE}",
            "error": 100 * (1 - self.level),
            "compared": COMPARED[self.comparisons],
            "futility": "There is no boundary of futility."
            if self.effect is None
            else f"A difference of {self.effect:g} matters. A boundary of futility, which does not bind, leaves "
            f"{self.power:.0%} power for it; the boundaries of efficacy do not count on it.",
            "groups": ", ".join(f"{name} ({_bounds(*ends)})" for name, ends in (self.subgroups or {}).items())
            or "None",
            "hash": self.hash,
        }
        parts = [part.partition("\n") for part in read_template("analysis_plan.txt").split("## ")[1:]]
        made = {title: text.strip().format(**fields) for title, _, text in parts}
        return {title: text for title, text in made.items() if text}

    def _boundaries(self, design: Mapping[str, str]) -> str:
        """Return the boundaries of a comparison before any other was shown, if outcomes come as patients do."""
        several = len(json.loads(design["arms"])) - 1 if "control" in design and self.comparisons == "holm" else 1
        alpha, shares = (1 - self.level) / several, [at / self.rounds for at in self.at]
        bounds = boundaries([spent(self.spending, share, alpha) for share in shares], shares)
        said = "; ".join(f"{c:.3f} ({2 * NormalDist().cdf(-c):.2g})" for c in bounds)
        return f"with an error of {100 * alpha:.4g} %, and if outcomes come as patients do, {said}"

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON: its fields, so that `AnalysisPlan(**description)` is the inverse."""
        fields = dict(plain_json(asdict(self)))
        return {name: value for name, value in fields.items() if value or name != "size"}  # hashes of before had none


def read_template(name: str) -> str:
    """Return a text of the package."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _bounds(column: int, least: float | None, below: float | None) -> str:
    ends = ("" if least is None else f" from {least:g}") + ("" if below is None else f" below {below:g}")
    return f"covariate {column}{ends}"


def _read_subgroups(subgroups: Any) -> dict[str, Ends]:
    """Return subgroups with whole covariates and ordered ends; refuse any other."""
    read: dict[str, Ends] = {}
    for name, ends in subgroups.items() if isinstance(subgroups, Mapping) else [("", subgroups)]:
        column, least, below = ends if isinstance(ends, Sequence) and len(ends) == 3 else (-1, None, None)
        low, high = -math.inf if least is None else as_number(least), math.inf if below is None else as_number(below)
        if not name or not is_whole(column) or column < 0 or not low < high or (math.isinf(low) and math.isinf(high)):
            raise InvalidStudy(
                "subgroups must be names with a covariate's number, where the group begins and where it ends, such as "
                f"{{'older': (0, 65.0, None)}}; got {shown(subgroups)}."
            )
        inside = (int(column), None if least is None else low, None if below is None else high)
        read[check_id(name, "the name of a subgroup")] = inside
    return read
