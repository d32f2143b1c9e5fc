"""The analysis of a trial: arm means and contrasts, stages, missing rewards, balance, and what deviated from the plan.

It reads the record and writes nothing. `effects` has the statistics. Text, Markdown and HTML have the same tables.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from rarely import InvalidInput
from rarely.extend import Array
from rarely.extend.provisional import write_file as write
from rarely.offpolicy.intervals import Range, cut, deviations, effective
from rarely.pages.grid import Grid
from rarely.runs.sealed_json import plain_json
from rarely.study import effects as statistics
from rarely.study.audit import records
from rarely.study.effects import AnalysisPlan, Look, Outcomes, Scores, planned_looks, scores_of
from rarely.study.errors import InvalidStudy
from rarely.study.events import Event
from rarely.study.session import Session
from rarely.study.settings import StudySettings, check_part
from rarely.study.tell import rewards_to_learn

MAX_PAIRED = 10
"""Arms up to which every pair is compared; of more, each with the control arm only."""
FEW = 30
"""Rounds that a variance must rest on before a normal approximation is trusted without a note."""
IMBALANCE = 0.1
"""Standardised difference that counts as an imbalance, if chance does not explain it."""
SHOWN = 12
"""Covariates in the table of balance."""
EFFECTS = ["", "estimate at the last look", "interval of the look", "estimate now", "anytime", "exact anytime"]
EFFECTS += ["rewards", "missing", "bound for missing"]
PROTOCOL, BALANCE = "Protocol", "Covariate balance (standardised differences)"
CAPTION = (
    "Difference of mean rewards to the control arm: the interval of each look, and the anytime interval last (dashed); "
    "the dotted line is no difference."
)


@dataclass(frozen=True, slots=True)
class Effect:
    """The mean reward of an arm, or how much it exceeds that of another.

    Examples
    --------
    >>> effect = Effect("drug", "placebo", True, (), 0.2, 90, 0.1, 0.3, -0.1, 0.5, 0, 0.2, 0.2, 40.0)
    >>> effect.name, effect.excludes(0.0)
    ('drug − placebo', False)
    """

    arm: str
    against: str
    """The other arm of a contrast; "" for a mean."""
    registered: bool
    """Whether the study was created to estimate it: a mean, or a contrast with the control arm."""
    looks: tuple[Look, ...]
    """The planned looks that have come, whose intervals hold together with the level of the plan."""
    estimate: float
    """From all rounds so far."""
    rounds: int
    """Decisions with a reward, for which the arms were available."""
    low: float
    high: float
    """The anytime interval: asymptotic, and valid however often it is looked at."""
    exact_low: float
    exact_high: float
    """An anytime interval that is valid for any number of rounds; infinite without a range of rewards or a limit."""
    missing: int
    """Decisions without a reward so far."""
    bound_low: float
    bound_high: float
    """The last look's interval, whatever the missing rewards are; infinite without a range of rewards or a look."""
    effective: float
    """How many rounds the variance rests on; 0 where all rewards of an arm are alike."""

    @property
    def name(self) -> str:
        """The arm, or both arms of a contrast."""
        return f"{self.arm} − {self.against}" if self.against else self.arm

    def excludes(self, value: float) -> bool:
        """Return whether a look that has come excludes a value."""
        return any(not look.low <= value <= look.high for look in self.looks)


class StageEffect(NamedTuple):
    """An effect within one stage, with an interval for this stage alone that makes no allowance for looks.

    Examples
    --------
    >>> StageEffect("burn-in", "drug − placebo", rounds=231, missing=9, estimate=0.1, low=-0.1, high=0.3).stage
    'burn-in'
    """

    stage: str
    name: str
    rounds: int
    missing: int
    estimate: float
    low: float
    high: float


class Imbalance(NamedTuple):
    """The difference of a covariate between two arms, in standard deviations.

    Examples
    --------
    >>> Imbalance("x0", "drug − placebo", raw=0.4, weighted=0.02, chance=0.1).covariate
    'x0'
    """

    covariate: str
    arms: str
    raw: float
    """As the arms were given, which an adaptive trial does by covariates."""
    weighted: float
    """Weighted by inverse probabilities, which is near 0 if these are right."""
    chance: float
    """How large the weighted one may be by chance, with probability 0.95."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of a trial, as `Study.analysis` returns it; `print` shows its tables.

    Examples
    --------
    >>> from rarely import LinTS
    >>> from rarely.study import AnalysisPlan, RewardRule, Stage, Study
    >>> settings = {"arms": ["red", "blue"], "control": "red", "rewards": RewardRule(least=0.0, most=1.0)}
    >>> settings |= {"stages": [Stage("main", least=0.1)], "plan": AnalysisPlan(60, looks=2)}
    >>> study = Study.create("memory://example-analysis", "colours", policy=LinTS(dim=1, seed=0), **settings)
    >>> _ = [study.tell(study.ask([[1.0], [2.0]]).id, visit % 2) for visit in range(40)]
    >>> [(contrast.name, contrast.rounds, len(contrast.looks)) for contrast in study.analysis().contrasts]
    [('blue − red', 40, 1)]
    """

    study: str
    plan: AnalysisPlan
    decisions: int
    rewards: int
    means: tuple[Effect, ...]
    contrasts: tuple[Effect, ...]
    stages: tuple[StageEffect, ...]
    balance: tuple[Imbalance, ...]
    """The largest imbalances after weighting first."""
    protocol: dict[str, str]
    """What the first event of the record fixed."""
    deviations: tuple[str, ...]
    notes: tuple[str, ...]
    """What the intervals rest on."""

    def describe(self) -> dict[str, Any]:
        """Return the analysis as JSON; what is unknown or infinite is None."""
        return dict(plain_json(asdict(self)))

    def __str__(self) -> str:
        lines = [f"{self.study}: {self.decisions} decisions, {self.rewards} rewards", *answers_of(self)]
        tables = {title: grid.lines() for title, grid in tables_of(self).items()}
        tables[PROTOCOL] = [f"{what}: {value}" for what, value in self.protocol.items()]
        tables |= {"Deviations": list(self.deviations) or ["None."], "Notes": list(self.notes)}
        for title, body in tables.items():
            lines += ["", title, *body]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a report: .html (one file that loads nothing else), .md or .json, by the name of the file."""
        suffix = os.path.splitext(path)[1]
        if suffix == ".json":
            text = json.dumps(self.describe(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        elif suffix == ".html":
            text = html_of(self)
        elif suffix == ".md":
            text = _rendered("analysis.md", self)
        else:
            raise InvalidInput(f"a report is .html, .md or .json; got {os.fspath(path)}.")
        write(path, text)


def analyse(session: Session, *, plan: AnalysisPlan | None = None, control: str | None = None) -> Analysis:
    """Analyse the trial on record; see `Study.analysis`."""
    settings, last = session.settings, session.last_seq()
    names = settings.arms
    chosen = settings.control if control is None else control
    if names is None or len(names) < 2 or (chosen is not None and chosen not in names):
        raise InvalidStudy(
            f"an analysis needs two or more arms with names, and a control arm among them; got {names!r}, {control!r}."
        )
    check_part("plan", plan, AnalysisPlan, NoneType)
    outcomes, stages = outcomes_of(session, last)
    count = len(outcomes.arms)
    _check_chances(outcomes, names)
    used = plan or settings.plan or AnalysisPlan(max(count, 2), looks=1)
    events = session.specials()
    q, policy_settings = statistics.predict_rewards(outcomes), events[0].content["settings"]
    epsilon = float((policy_settings.get("exploration") or {}).get("epsilon", 0.0))
    effects: list[Effect] = []
    parts: list[StageEffect] = []
    for arm, base in _targets(names, chosen):
        scores, limit = scores_of(outcomes, q, arm, base), limit_of(settings, epsilon, arm, base)
        registered = base is None or (settings.control is not None and names[base] == settings.control)
        effects.append(_effect(outcomes, q, scores, used, (arm, base), names, limit, registered))
        if base is None or names[base] == chosen:
            parts += _by_stage(outcomes, scores, stages, effects[-1], (arm, base), used.level)
    made = Analysis(
        study=session.name,
        plan=used,
        decisions=count,
        rewards=int((~np.isnan(outcomes.rewards)).sum()),
        means=tuple(effect for effect in effects if not effect.against),
        contrasts=tuple(effect for effect in effects if effect.against),
        stages=tuple(parts),
        balance=tuple(_balance(outcomes, names, settings)),
        protocol=_protocol(events[0], session.row.budget),
        deviations=tuple(_deviations(events, settings, used, control, count)),
        notes=(),
    )
    return replace(made, notes=tuple(_notes(made, settings, names)))


def outcomes_of(session: Session, last: int) -> tuple[Outcomes, Array]:
    """Return the decisions up to an event as columns, and (n,) the stage of each."""
    settings, rows = session.settings, list(records(session, last))
    rewards, names = rewards_to_learn(session, 0, last), settings.arms or ()
    width = settings.blocks.rows.dim if settings.blocks is not None else session.dim
    covariates = np.zeros((len(rows), len(names), width))
    present = np.zeros((len(rows), len(names)), np.bool_)
    chances = np.zeros(present.shape)
    for i, row in enumerate(rows):
        present[i] = row.present
        covariates[i, row.present if settings.blocks is None else slice(None)] = row.question.numbers
        chances[i] = row.padded(row.probabilities, 0.0)
    rule = settings.rewards
    bounded = rule.least is not None and rule.most is not None and rule.aggregation != "sum"
    bounded = bounded and (rule.default is None or rule.contains(rule.default))
    arms = np.array([row.answer.index for row in rows], np.int64)
    told = np.array([rewards.get(row.answer.round, np.nan) for row in rows], float)
    within = (rule.least or 0.0, rule.most or 0.0) if bounded else None
    stages = np.array([row.answer.stage for row in rows], object)
    return Outcomes(covariates, present, arms, told, chances, within), stages


def _check_chances(outcomes: Outcomes, names: Sequence[str]) -> None:
    """Refuse rounds in which an available arm could not be drawn: they say nothing about it."""
    never = outcomes.present & (outcomes.chances <= 0)
    if not never.any():
        return
    round, arm = (int(place) for place in np.argwhere(never)[0])
    raise InvalidStudy(
        f"an analysis needs a probability above 0 of every available arm; arm {names[arm]!r} had 0 in "
        f"{int(never[:, arm].sum())} of {len(never)} decisions, the first in round {round + 1}, so its rewards there "
        "have no inverse probability. Create the study with stages=[Stage('main', least=0.05)], or its policy with "
        "exploration=Mixture(0.1)."
    )


def _targets(names: Sequence[str], control: str | None) -> list[tuple[int, int | None]]:
    """Return the arms, then the pairs: first those with the control arm."""
    arms = range(len(names))
    base = None if control is None else names.index(control)
    pairs = [] if base is None else [(arm, base) for arm in arms if arm != base]
    if len(names) <= MAX_PAIRED:
        pairs += [(arm, other) for other in arms for arm in arms if arm > other and base not in (arm, other)]
    return [*((arm, None) for arm in arms), *pairs]


def limit_of(settings: StudySettings, epsilon: float, arm: int, base: int | None) -> float:
    """Return the minimal probability of both arms that stages and exploration guarantee; 0 if none."""
    names, least = settings.arms or (), 1.0
    for stage in settings.stages:
        limits = stage.limits(names)
        each = [limits] * len(names) if isinstance(limits, float) else list(limits)
        share = (1 - min(sum(each), 1.0)) * epsilon / len(names)
        here = 1 / len(names) if stage.burn_in else min(each[k] + share for k in (arm, base) if k is not None)
        least = min(least, here)
    return least


def _effect(
    outcomes: Outcomes,
    q: Array,
    scores: Scores,
    plan: AnalysisPlan,
    target: tuple[int, int | None],
    names: Sequence[str],
    limit: float,
    registered: bool,
) -> Effect:
    count, alpha = len(outcomes.arms), 1 - plan.level
    summary, arms = scores.until(count), [arm for arm in target if arm is not None]
    span = math.inf if outcomes.within is None else outcomes.within[1] - outcomes.within[0]
    within = (-span, span) if len(arms) > 1 or outcomes.within is None else outcomes.within

    # No mean or difference of rewards exceeds their range.
    looks = tuple(
        Look(at, rounds, float(np.clip(estimate, *within)), *cut((low, high), within), c)
        for at, rounds, estimate, low, high, c in planned_looks(scores, plan, count)
    )
    exact, shift = (-math.inf, math.inf), 0.0 if len(arms) > 1 else within[0]
    if limit > 0 and math.isfinite(span):
        low, high = statistics.exact_interval(scores.values - shift, span, limit, alpha)
        exact = cut((low + shift, high + shift), within)
    lacking = outcomes.present[:, arms].all(axis=1) & np.isnan(outcomes.rewards)
    now = (float(np.clip(summary.estimate, *within)), summary.rounds)
    always = cut(statistics.anytime(summary, plan.rounds, alpha), within)
    bound = cut(_bound(outcomes, q, plan, target, looks[-1].round if looks else count), within)
    title = (names[arms[0]], names[arms[1]] if len(arms) > 1 else "", registered)
    resting = 0.0 if summary.unseen else summary.effective
    return Effect(*title, looks, *now, *always, *exact, int(lacking.sum()), *bound, resting)


def _bound(outcomes: Outcomes, q: Array, plan: AnalysisPlan, target: tuple[int, int | None], until: int) -> Range:
    """Return the interval if every missing reward were the worst and the best for the effect (Manski, 1990)."""
    if outcomes.within is None:
        return -math.inf, math.inf
    arm, base = target
    lacking, ends = np.isnan(outcomes.rewards), []
    for worst, other in (outcomes.within, outcomes.within[::-1]):
        filled = np.where(lacking, np.where(outcomes.arms == arm, worst, other), outcomes.rewards)
        scores = scores_of(replace(outcomes, rewards=filled), q, arm, base)
        looks = planned_looks(scores, plan, until)
        ends.append((looks[-1].low, looks[-1].high) if looks else (-math.inf, math.inf))
    return ends[0][0], ends[1][1]


def _by_stage(
    outcomes: Outcomes, scores: Scores, stages: Array, effect: Effect, target: tuple[int, int | None], level: float
) -> Iterator[StageEffect]:
    there = outcomes.present[:, [arm for arm in target if arm is not None]].all(axis=1)
    z = deviations(level)
    for stage in dict.fromkeys(stages.tolist()):
        inside = stages == stage
        kept = inside[scores.rounds]
        part = scores._replace(**{name: getattr(scores, name)[kept] for name in scores._fields[:-1]}).until(len(stages))
        lacking = int((inside & there & np.isnan(outcomes.rewards)).sum())
        yield StageEffect(stage, effect.name, part.rounds, lacking, part.estimate, *part.interval(z))


# --- balance of covariates


def _balance(outcomes: Outcomes, names: Sequence[str], settings: StudySettings) -> list[Imbalance]:
    columns, rows = _columns(outcomes, names, shared=settings.blocks is not None), []
    n = len(outcomes.arms)
    inverse = 1 / outcomes.chances[np.arange(n), outcomes.arms]
    for arm, other in _targets(names, settings.control):
        if other is None:
            continue
        both = outcomes.present[:, [arm, other]].all(axis=1)
        pair = [np.flatnonzero(both & (outcomes.arms == each)) for each in (arm, other)]
        if min(map(len, pair)) < 2:
            continue
        chance = deviations(0.95) * math.sqrt(sum(1 / effective(inverse[each]) for each in pair))
        for name, x in columns.items():
            spread = float(x.std())
            raw = float(x[pair[0]].mean() - x[pair[1]].mean()) / spread
            means = [float(np.average(x[each], weights=inverse[each])) for each in pair]
            rows.append(Imbalance(name, f"{names[arm]} − {names[other]}", raw, (means[0] - means[1]) / spread, chance))
    return sorted(rows, key=lambda row: -abs(row.weighted))


def _columns(outcomes: Outcomes, names: Sequence[str], *, shared: bool) -> dict[str, Array]:
    """Return the covariates that vary and differ from one another, by name: a column that arms share counts once."""
    columns: dict[bytes, tuple[str, Array]] = {}
    n, count, width = outcomes.covariates.shape
    for column in range(width):
        for arm in range(1 if shared else count):
            x = outcomes.covariates[:, arm, column]
            if n and x.std() > 1e-12 * (1 + np.abs(x).max()):
                same = shared or (outcomes.covariates[:, :, column] == x[:, None]).all()
                name = f"x{column}" if same else f"x{column} of {names[arm]}"
                columns.setdefault(np.ascontiguousarray(x).tobytes(), (name, x))
    return dict(columns.values())


# --- what was registered, and what deviated


def _protocol(first: Event, budget: int) -> dict[str, str]:
    """Return what the first event of the record fixed as text, the settings of the study one by one."""
    content = first.content
    fixed = content["study"] | {"policy": content["policy"], "budget": budget, "first_event": first.hash}
    fixed |= {name: content["settings"].get(name) for name in ("schedule", "seed")}
    return {
        name: each if isinstance(each, str) else json.dumps(each) for name, each in fixed.items() if each is not None
    }


def _deviations(
    events: Sequence[Event], settings: StudySettings, plan: AnalysisPlan, control: str | None, decisions: int
) -> Iterator[str]:
    if settings.plan is None:
        yield "The study was created without a plan of analysis: looks, spending and level were chosen for this one."
    elif plan != settings.plan:
        yield f"The registered plan is {settings.plan!r}; this analysis uses {plan!r}."
    if control not in (None, settings.control):
        yield f"The registered control arm is {settings.control!r}; this analysis uses {control!r}."
    if decisions > plan.rounds:
        yield f"{decisions - plan.rounds} decisions came after the last planned look; only anytime intervals use them."
    schedule = events[0].content["settings"].get("schedule") or {}
    while "schedule" in schedule:
        schedule = schedule["schedule"]
    planned = schedule["rounds"] if schedule.get("kind") == "AtRounds" else None
    yield from (sentence for event in events if (sentence := _deviation(event, planned)))


def _deviation(event: Event, planned: Sequence[int] | None) -> str:
    """Return how an event departs from what the schedule would have done; "" if it does not."""
    content = event.content
    record = content.get("record") or {}
    shifted = bool(record) and planned is not None and record["round"] not in planned
    late = f"an update came after round {record.get('round')}, which the schedule does not name" if shifted else ""
    what = {
        "rollback": f"version {content.get('number')} replaced version {content.get('from')} by a rollback",
        "pin": "updates were suspended",
        "unpin": "updates were allowed again",
        "dismissed": "a candidate was dismissed",
        "rejected": f"a training was rejected: {record.get('reason', '')}",
        "version": ", and ".join(filter(None, ["an update was forced" if content.get("force") else "", late])),
    }.get(event.kind, "")
    by, why = f" by {event.actor}" if event.actor else "", f" ({event.reason})" if event.reason else ""
    return f"Event {event.seq}{by}: {what}{why}." if what else ""


def _notes(made: Analysis, settings: StudySettings, names: Sequence[str]) -> Iterator[str]:
    yield (
        f"Each interval has the level {made.plan.level:g} by itself: the looks of one effect hold together, different "
        "effects do not. Intervals of looks and anytime intervals are asymptotic; exact ones hold for any number of "
        "rounds. All suppose that later rounds are like earlier ones, and that rewards are not missing for a reason "
        "that depends on the arm; the bound does not."
    )
    if made.plan is not settings.plan and settings.plan is None and len(made.plan.at) == 1:
        yield "Without a plan the interval of the look holds only if this is the only time that the trial is looked at."
    if any(math.isinf(effect.exact_low) for effect in made.means):
        yield "Exact intervals and bounds need RewardRule(least=…, most=…), and a limit: Stage(least=…) or Mixture."
    few = [effect.name for effect in (*made.means, *made.contrasts) if effect.effective < FEW]
    if few:
        yield f"Fewer than {FEW} rounds tell the variance, and intervals are wide or rough, of: {', '.join(few)}."
    if len(names) > MAX_PAIRED:
        yield f"With more than {MAX_PAIRED} arms each is compared with the control arm only, control=."
    wrong = [row for row in made.balance if abs(row.weighted) > max(IMBALANCE, 1.5 * row.chance)]
    if wrong:
        worst = wrong[0]
        yield (
            f"{len(wrong)} covariates differ between arms by more than chance explains, most {worst.covariate} of "
            f"{worst.arms} by {worst.weighted:.2f} standard deviations: check that answers were followed."
        )


# --- text, Markdown and HTML


def tables_of(analysis: Analysis) -> dict[str, Grid]:
    """Return the tables by their titles."""
    plan, level = analysis.plan, f"{100 * analysis.plan.level:g} %"
    looks = [
        [
            *(effect.name, str(look.round), str(look.rounds), _number(look.estimate), _range(look.low, look.high)),
            *(_number(look.boundary), "no" if look.low <= 0 <= look.high else "yes"),
        ]
        for effect in analysis.contrasts
        for look in effect.looks
    ]
    stages = [
        [row.stage, row.name, str(row.rounds), str(row.missing), _number(row.estimate), _range(row.low, row.high)]
        for row in analysis.stages
    ]
    balance = [[*row[:2], *map(_number, row[2:])] for row in analysis.balance[:SHOWN]]
    heads: dict[str, tuple[Any, Any, int]] = {
        "Contrasts": (EFFECTS, [_row(effect) for effect in analysis.contrasts], 1),
        "Arm means": (EFFECTS, [_row(effect) for effect in analysis.means], 1),
        f"Looks ({plan.spending}, {len(plan.at)} planned)": (
            ("", "after decision", "rewards", "estimate", f"{level} interval", "boundary", "excludes 0"),
            looks,
            1,
        ),
        "Stages": (("stage", "", "rewards", "missing", "estimate", f"{level}, this stage alone"), stages, 2),
        BALANCE: (("covariate", "arms", "as given", "weighted", "by chance up to"), balance, 2),
        PROTOCOL: (("registered", "before the first decision"), [*analysis.protocol.items()], 2),
    }
    return {title: Grid(*parts) for title, parts in heads.items() if parts[1]}


def _row(effect: Effect) -> list[str]:
    look = effect.looks[-1] if effect.looks else None
    last = ["–", "–"] if look is None else [_number(look.estimate), _range(look.low, look.high)]
    now = [_number(effect.estimate), _range(effect.low, effect.high), _range(effect.exact_low, effect.exact_high)]
    counts = [str(effect.rounds), str(effect.missing), _range(effect.bound_low, effect.bound_high)]
    return [effect.name + ("" if effect.registered else " (exploratory)"), *last, *now, *counts]


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _range(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}" if math.isfinite(low) and math.isfinite(high) else "–"


def answers_of(analysis: Analysis) -> list[str]:
    """Return which arms were shown to be better than the control arm, by how much and how sure, a sentence each."""
    return [_answer(effect, analysis.plan.level) for effect in analysis.contrasts if effect.registered]


def _answer(effect: Effect, level: float) -> str:
    low, high, estimate, when = effect.low, effect.high, effect.estimate, "by the anytime interval: no look has come"
    if effect.looks:
        look = effect.looks[-1]
        low, high, estimate, when = look.low, look.high, look.estimate, f"at the look after decision {look.round}"
    if effect.effective < FEW and low <= 0 <= high and not effect.exact_low <= 0 <= effect.exact_high:
        low, high, estimate, when = (
            effect.exact_low,
            effect.exact_high,
            effect.estimate,
            "by the exact anytime interval",
        )
    if not math.isfinite(estimate):
        return f"{effect.arm} and {effect.against} cannot be compared yet."
    said = f"{_number(estimate)} ({100 * level:g} % interval {_range(low, high)}), {when}."
    if low <= 0 <= high:
        return f"No difference between {effect.arm} and {effect.against} is shown: {said}"
    return f"{effect.arm} is {'better' if low > 0 else 'worse'} than {effect.against}: {said}"


def html_of(analysis: Analysis | None, *, study: str = "", refused: str = "", live: bool = False) -> str:
    """Return the analysis as one HTML page; or, of a study that has none, why it was refused."""
    chart = "" if analysis is None else _chart(analysis)
    return _rendered("analysis.html", analysis, chart=chart, study=study, refused=refused, live=live, caption=CAPTION)


def _rendered(template: str, analysis: Analysis | None, **context: Any) -> str:
    try:
        from rarely.pages.page import render
    except ImportError:
        raise InvalidInput("a report needs jinja2: pip install jinja2.") from None
    tables = [] if analysis is None else list(tables_of(analysis).items())
    titled = [(f"table-{place}", title, grid) for place, (title, grid) in enumerate(tables)]
    contents = [(id, title.partition(" (")[0]) for id, title, _ in titled]
    contents += [("deviations", "Deviations"), ("notes", "Notes")] if analysis is not None else []
    answers = [] if analysis is None else answers_of(analysis)
    return render(
        "rarely.study", template, contents=contents, analysis=analysis, answers=answers, tables=titled, **context
    )


def _chart(analysis: Analysis) -> Any:
    """Draw the intervals of all contrasts with the control arm, or of all contrasts if there is none."""
    from rarely.pages.svg import Chart

    effects = [effect for effect in analysis.contrasts if effect.registered] or analysis.contrasts
    bars = [[*(look[2:5] for look in each.looks), (each.estimate, each.low, each.high)] for each in effects]
    ends = [end for each in bars for bar in each for end in bar if math.isfinite(end)]
    if not ends:
        return ""
    chart = Chart("intervals of contrasts over looks", (-0.6, len(effects) - 0.4), (min(0, *ends), max(0, *ends)))
    chart.ticks = [(place, effect.name) for place, effect in enumerate(effects)]
    chart.level(0.0)
    for place, each in enumerate(bars):
        for i, (estimate, low, high) in enumerate(each):
            x = place + 0.8 * ((i + 0.5) / len(each) - 0.5)
            chart.line([x, x], [low, high], place, dashed=i == len(each) - 1)
            chart.point(x, estimate, place)
    return chart.svg()
