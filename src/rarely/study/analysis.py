"""The analysis of a trial: arm means and contrasts, stages, missing rewards, balance, and what deviated from the plan.

Looks on record are shown as they were taken, with what later outcomes would have made of them; where none was taken,
they are computed from what is known. `effects` and `looks` have the statistics, `reports` the tables and pages.

What people do in a trial is an event of the record each: looks, arms that are closed, and the end of enrolment. The
event of a look has the last event that it knows, the share of the planned information that it uses, and of every effect
the sums, the interval and the boundary. What comes later changes none of it.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from rarely.extend import Array
from rarely.offpolicy.intervals import Range, cut, deviations, effective
from rarely.runs.files import plain_json
from rarely.study import effects as statistics
from rarely.study import looks as planned
from rarely.study import reports
from rarely.study.audit import records
from rarely.study.boundaries import Final
from rarely.study.effects import Outcomes, Scores, Summary, scores_of
from rarely.study.errors import Erased, InvalidStudy
from rarely.study.events import Body, Event, EventKind, day, read_moment
from rarely.study.looks import EVERYTHING, Cut, Look, Outlook
from rarely.study.plan import COMPARED, AnalysisPlan
from rarely.study.session import Session
from rarely.study.settings import check_part
from rarely.study.tell import OVERRIDE, rewards_to_learn

MAX_PAIRED = 10  # arms up to which every pair is compared; of more, each with the control arm only
IMBALANCE = 0.1  # standardised difference that counts as an imbalance, if chance does not explain it
TENTHS = 10  # parts of the rounds over which the allocation is shown
TIPPING = 1e-3  # to which a tipping point is found
UNKNOWN = {"estimate": math.nan, "low": -math.inf, "high": math.inf, "boundary": math.inf}
"""What a look on record says of an effect, and what it means where that is None, as JSON has no number for it."""
Arms = tuple[int, ...]  # the arm of a mean, or an arm and the one that it is compared with


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
    against: str  #: The other arm of a contrast; "" for a mean.
    registered: bool  #: Whether the study was created to estimate it: a mean, or a contrast with the control arm.
    looks: tuple[Look, ...]  #: The planned looks that have come; their intervals hold together with its level.
    estimate: float  #: From all rounds so far.
    rounds: int  #: Decisions with a reward, for which the arms were available.
    low: float
    high: float  #: The anytime interval: asymptotic, and valid however often it is looked at.
    exact_low: float
    exact_high: float  #: The same for any number of rounds; infinite without a range of rewards or a limit.
    missing: int  #: Decisions without a reward so far.
    bound_low: float
    bound_high: float  #: The last look's interval, whatever the missing rewards are; infinite without a range or look.
    effective: float  #: How many rounds the variance rests on.
    level: float = 0.95  #: Of the intervals of its looks.
    shown: int | None = None  #: The look, from 0, that showed a difference by the plan's comparisons; None if none.
    final: Final | None = None  #: What is said at the end, by the order of stages; None before.
    adjusted: float | None = None  #: Its p-value for all registered comparisons together; None before.
    tipping: float | None = None
    """How far missing rewards must lie from what is expected, 1 at the worst, to undo what was shown; None if never."""
    closed: bool = False  #: Whether the arm, or the arm compared with, gets no further patients.

    @property
    def name(self) -> str:
        """The arm, or both arms of a contrast."""
        return f"{self.arm} − {self.against}" if self.against else self.arm

    @property
    def outlook(self) -> Outlook | None:
        """What is to be expected after the last look; None after all of them."""
        return self.looks[-1].outlook if self.looks and self.final is None else None

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
    raw: float  #: As the arms were given, which an adaptive trial does by covariates.
    weighted: float  #: Weighted by inverse probabilities, which is near 0 if these are right.
    chance: float  #: How large the weighted one may be by chance, with probability 0.95.


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
    balance: tuple[Imbalance, ...]  #: The largest imbalances after weighting first.
    protocol: dict[str, str]  #: What the first event of the record fixed.
    deviations: tuple[str, ...]
    notes: tuple[str, ...]  #: What the intervals rest on.
    flow: tuple[tuple[str, int, int, int, int | None, float], ...] = ()
    """Of each arm: its name, patients, outcomes, patients without one, when it was closed, and the plain mean."""
    patients: tuple[tuple[str, tuple[float, ...]], ...] = ()  #: Each covariate's mean in each stage, in their order.
    allocation: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """The mean probability of each arm over time: the last round of each tenth, and the probabilities."""
    acts: tuple[tuple[str, str, str, str], ...] = ()  #: Looks taken and what was closed: the day, who, what, and why.
    event: int = 0  #: The last event that was analysed, the cut of the data.
    hash: str = ""  #: Its hash, on which those of all events before it depend.
    time: int = 0  #: Its time, in microseconds since 1970 (UTC).
    enrolled: tuple[int, int] | None = None  #: When the first and the last patient were decided on, in the same unit.
    ended: bool = False  #: Whether the last look has come, or no further patients are taken.

    @property
    def day(self) -> str:
        """The day of the last event that was analysed (UTC)."""
        return day(self.time)

    def describe(self) -> dict[str, Any]:
        """Return the analysis as JSON; what is unknown or infinite is None."""
        return dict(plain_json(asdict(self)))

    def blinded(self) -> str:
        """Return what may be seen by those who must not know arms: counts over all arms, looks and deviations."""
        return reports.blinded_text_of(self)

    def __str__(self) -> str:
        return reports.text_of(self)

    def _repr_html_(self) -> str:
        return reports.html_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a report: .html (one file that loads nothing else), .md or .json, by the name of the file."""
        made = {".html": lambda: reports.html_of(self), ".md": lambda: reports.rendered("analysis.md", self)}
        json_text = json.dumps(self.describe(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        reports.write_report(path, made | {".json": lambda: json_text})

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Write the statistical analysis plan with what the study fixed besides: .html, which prints, or .md."""
        self.plan.save(path, self.protocol)


class Recorded(NamedTuple):
    """A look on record, or one that is about to be."""

    event: int
    round: int
    fraction: float
    rows: dict[str, dict[str, Any]]  # what was found of each effect, by its name


def analyse(
    session: Session, *, plan: AnalysisPlan | None = None, control: str | None = None, as_of: Any = None
) -> Analysis:
    """Analyse the trial on record; see `Study.analysis`."""
    last = session.last_seq()
    moment = last if as_of is None else read_moment(as_of, "as_of", last, end=True)
    if not isinstance(moment, int):
        with session.reading() as tables:
            moment = tables.last_until(round(moment.timestamp() * 1e6), last)
        if not moment:
            raise InvalidStudy(f"the study began after {as_of}: nothing was on record then.")
    return _Trial(session, moment, plan, control).analysis()


class _Trial:
    """A trial as of an event, and the parts of its analysis."""

    def __init__(
        self,
        session: Session,
        last: int,
        plan: AnalysisPlan | None = None,
        control: str | None = None,
        *,
        look: bool | None = None,
    ) -> None:
        """Read the trial; with another look now, which is the last one or not, if `look` says so."""
        settings, names = session.settings, session.settings.arms
        chosen = settings.control if control is None else control
        if names is None or len(names) < 2 or (chosen is not None and chosen not in names):
            raise InvalidStudy(
                f"an analysis needs two or more arms with names, and a control arm among them; got {names!r}, "
                f"{control!r}."
            )
        check_part("plan", plan, AnalysisPlan, NoneType)
        self._session, self._last, self._settings = session, last, settings
        self._names, self._control = names, chosen
        self._outcomes, self._stages, self._times = outcomes_of(session, last)
        _check_chances(self._outcomes, names)
        self._count, self._missing = len(self._outcomes.arms), np.isnan(self._outcomes.rewards)
        self._plan = plan or settings.plan or AnalysisPlan(max(self._count, 2), looks=1, comparisons="each")
        self._events = [event for event in session.specials() if event.seq <= last]
        self.looks = [
            Recorded(event.seq, event.content["round"], event.content["fraction"], Body(event.content["effects"]))
            for event in self._of("look")
            if self._plan == settings.plan and chosen == settings.control
        ]
        if look is not None:
            # All error is left to the look after all planned patients: a stop before must not choose where it is spent.
            fraction = 1.0 if look else min(int((~self._missing).sum()) / self._plan.rounds, 1.0)
            self.looks.append(Recorded(0, self._count, fraction, {}))
        self._closed = {event.content["arm"]: event for event in self._of("close")}  # None: enrolment
        final = self.looks[-1].fraction >= 1 if self.looks else self._count >= self._plan.rounds
        self._ended = final or None in self._closed
        self._q, self._arms = statistics.predict_rewards(self._outcomes), self._targets(chosen)
        self._scores = {arms: scores_of(self._outcomes, self._q, *arms) for arms in self._arms}
        self.cuts = {self._name(arms): self._cuts(arms) for arms in self._arms}

    def _of(self, kind: EventKind) -> list[Event]:
        return [event for event in self._events if event.kind == kind]

    def analysis(self) -> Analysis:
        """Return the analysis."""
        effects, chances, stages, times = self._effects(), self._outcomes.chances, self._stages, self._times
        (cut_at,) = self._session.events(self._last - 1, self._last)
        each_stage = [stages == stage for stage in dict.fromkeys(stages.tolist())]
        tenths = np.array_split(np.arange(self._count), min(TENTHS, self._count)) if self._count else []
        made = Analysis(
            study=self._session.name,
            plan=self._plan,
            decisions=self._count,
            rewards=int((~self._missing).sum()),
            means=tuple(effect for effect in effects if not effect.against),
            contrasts=tuple(effect for effect in effects if effect.against),
            stages=tuple(self._parts()),
            balance=tuple(sorted(self._balance(), key=lambda row: -abs(row.weighted))),
            protocol=self._protocol(),
            deviations=(),
            notes=(),
            flow=tuple(self._flow()),
            patients=tuple(
                (name, tuple(float(x[there].mean()) for there in each_stage)) for name, x in self._columns().items()
            ),
            acts=tuple(self._acts()),
            allocation=tuple((int(part[-1]) + 1, (*chances[part].mean(axis=0).tolist(),)) for part in tenths),
            event=cut_at.seq,
            hash=cut_at.hash,
            time=cut_at.time,
            enrolled=(times[0], times[-1]) if times else None,
            ended=self._ended,
        )
        deviations = (*self._deviations(), *self._at_the_end(made), *self._left_out())
        return replace(made, notes=tuple(self._notes(made)), deviations=deviations)

    def _effects(self) -> list[Effect]:
        """Return all effects."""
        compared = [arms for arms in self._arms if len(arms) > 1 and self._registered(arms)]
        shown = planned.shown_at([self.cuts[self._name(arms)] for arms in compared], self._plan)
        share = planned.share_of(self._plan, len(compared))
        found = {arms: self._compared(arms, share, at) for arms, at in zip(compared, shown, strict=True)}
        ended = {arms: effect.final.p for arms, effect in found.items() if effect.final is not None}
        for arms, p in zip(ended, planned.adjusted([*ended.values()], len(compared), self._plan), strict=True):
            found[arms] = replace(found[arms], adjusted=p)
        return [found.get(arms) or self._effect(arms, 1 - self._plan.level) for arms in self._arms]

    def _targets(self, control: str | None) -> list[Arms]:
        """Return the arms, then the pairs: first those with the control arm."""
        arms = range(len(self._names))
        base = None if control is None else self._names.index(control)
        pairs = [] if base is None else [(arm, base) for arm in arms if arm != base]
        if len(arms) <= MAX_PAIRED:
            pairs += [(arm, other) for other in arms for arm in arms if arm > other and base not in (arm, other)]
        return [*((arm,) for arm in arms), *pairs]

    def _name(self, arms: Arms) -> str:
        return " − ".join(self._names[arm] for arm in arms)

    def _registered(self, arms: Arms) -> bool:
        return len(arms) == 1 or self._names[arms[1]] == self._settings.control

    def _cuts(self, arms: Arms) -> list[Cut]:
        """Return what was known of an effect at each look: as it was recorded, or as it is now.

        An arm that was closed leaves no error to the looks after it, beyond the share of its own outcomes: else whoever
        closes arms chooses where error is spent, by what they showed.
        """
        scores, name = self._scores[arms], self._name(arms)
        end = min((self._closed[arm] for arm in arms if arm in self._closed), key=lambda event: event.seq, default=None)
        found, late = planned.cuts_of(scores, self._plan, self._count), list[bool]()
        if self.looks:
            known = [read_summary(x.rows[name]["summary"]) if x.event else scores.until(x.round) for x in self.looks]
            found = [Cut(x.round, x.fraction, summary) for x, summary in zip(self.looks, known, strict=True)]
        if end is not None:
            late = [not look.event or look.event > end.seq for look in self.looks]
            late = late or [each.round > end.content["round"] for each in found]
        for place in np.flatnonzero(late):
            least = min(found[place].fraction, found[place].summary.rounds / self._plan.rounds)
            found[place] = found[place]._replace(fraction=least)
        return found

    def _effect(self, arms: Arms, alpha: float) -> Effect:
        names, limit, error = self._names, self._limit(arms), 1 - self._plan.level
        scores, cuts, within = self._scores[arms], self.cuts[self._name(arms)], self._within(arms)
        span, summary = (within[1] - within[0]) / len(arms), scores.until(self._count)  # the span of rewards
        registered, closed = self._registered(arms), any(arm in self._closed for arm in arms)
        looks = planned.looks_of(cuts, self._plan, alpha, within)
        if len(arms) > 1 and registered:
            looks = planned.taken(cuts, self._plan, alpha, within, closed=closed or None in self._closed)
        looks = self._as_taken(self._name(arms), looks, scores, within)
        exact, shift = EVERYTHING, 0.0 if len(arms) > 1 else within[0]
        if limit > 0 and math.isfinite(span):
            low, high = statistics.exact_interval(scores.values - shift, span, limit, error)
            exact = cut((low + shift, high + shift), within)
        lacking = self._outcomes.present[:, arms].all(axis=1) & self._missing
        now = (float(np.clip(summary.estimate, *within)), summary.rounds)
        always = cut(statistics.anytime(summary, self._plan.rounds, error), within)
        bound = cut(self._bound(arms, looks[-1]) if looks else EVERYTHING, within)
        title = (names[arms[0]], names[arms[1]] if len(arms) > 1 else "", registered)
        figures = (*title, tuple(looks), *now, *always, *exact, int(lacking.sum()), *bound, summary.effective)
        return Effect(*figures, level=1 - alpha, closed=closed)

    def _within(self, arms: Arms) -> Range:
        """Return the range of the mean of an arm, or of a difference."""
        low, high = self._outcomes.within or EVERYTHING
        return (low, high) if len(arms) < 2 else (low - high, high - low)

    def _as_taken(self, name: str, looks: Sequence[Look], scores: Scores, within: Range) -> list[Look]:
        """Return looks with the numbers on record, and what later outcomes would have made of them."""
        shown = list(looks)
        for place, each in enumerate(self.looks):
            if each.event:
                row, now = each.rows[name], scores.until(each.round)
                said: Any = {part: x if row[part] is None else row[part] for part, x in UNKNOWN.items()}
                ends = cut(now.interval(said["boundary"]), within)
                later = (now.rounds, float(np.clip(now.estimate, *within)), *ends)
                known = {part: math.nan if x is None else x for part, x in (row.get("outlook") or {}).items()}
                outlook = Outlook(**known) if known else None
                shown[place] = looks[place]._replace(**said, event=each.event, later=later, outlook=outlook)
        return shown

    def _compared(self, arms: Arms, alpha: float, shown: int | None) -> Effect:
        """Return a registered comparison: also what it showed, may show, and shows at the end."""
        effect = replace(self._effect(arms, alpha), shown=shown)
        going = not (self._ended or effect.closed)
        if going or not self.looks:
            effect = replace(effect, looks=planned.with_outlooks(effect.looks, self._plan, alpha))
        if shown is not None and effect.missing and effect.looks[-1].excludes_zero:
            effect = replace(effect, tipping=self._tipping(arms, effect.looks[-1]))
        if going:
            return effect
        known = [each.summary for each in self.cuts[effect.name]] or [statistics.NOTHING]
        return replace(effect, final=planned.final_of(effect.looks, known[-1], alpha, self._within(arms)))

    def _filled(self, arms: Arms, look: Look, share: float, ends: Range) -> Range:
        """Return a look's interval if missing rewards lay a share of the way from what is expected to given ends."""
        rewards, chosen = self._outcomes.rewards, self._outcomes.arms
        expected = self._q[np.arange(len(chosen)), chosen]
        far = np.where(chosen == arms[0], ends[0], ends[1])
        filled = np.where(np.isnan(rewards), expected + share * (far - expected), rewards)
        scores = scores_of(replace(self._outcomes, rewards=filled), self._q, *arms)
        return scores.until(look.round).interval(look.boundary)

    def _bound(self, arms: Arms, look: Look) -> Range:
        """Return the interval if every missing reward were the worst and the best for the effect (Manski, 1990)."""
        ends = self._outcomes.within
        if ends is None or not math.isfinite(look.boundary):
            return EVERYTHING
        return self._filled(arms, look, 1.0, ends)[0], self._filled(arms, look, 1.0, ends[::-1])[1]

    def _tipping(self, arms: Arms, look: Look) -> float | None:
        """Return the share of the way to the worst at which the look shows nothing any more; None if it always does."""
        ends = self._outcomes.within
        if ends is None:
            return None
        worst = ends if look.low > 0 else ends[::-1]

        def undone(share: float) -> bool:
            low, high = self._filled(arms, look, share, worst)
            return low <= 0 if look.low > 0 else high >= 0

        if not undone(1.0):
            return None
        low, high = 0.0, 1.0
        while high - low > TIPPING:
            middle = (low + high) / 2
            low, high = (low, middle) if undone(middle) else (middle, high)
        return high

    def _parts(self) -> Iterator[StageEffect]:
        """Yield means, and differences from the control arm, within each stage and each registered subgroup."""
        z, stages = deviations(self._plan.level), dict.fromkeys(self._stages.tolist())
        for arms in self._arms:
            if len(arms) > 1 and self._names[arms[1]] != self._control:
                continue
            there, within, scores = self._outcomes.present[:, arms].all(axis=1), self._within(arms), self._scores[arms]
            parts = {name: self._stages == name for name in stages}
            for name, (column, least, below) in (self._plan.subgroups or {}).items():
                x = self._outcomes.covariates[:, arms[0], column]
                inside = np.ones(len(x), np.bool_) if least is None else x >= least
                parts[f"{name} (subgroup)"] = inside if below is None else inside & (x < below)
            for part, inside in parts.items():
                kept = inside[scores.rounds]
                rows = {name: getattr(scores, name)[kept] for name in scores._fields[:-1]}
                found = scores._replace(**rows).until(len(inside))
                lacking, ends = int((inside & there & self._missing).sum()), cut(found.interval(z), within)
                figures = (found.rounds, lacking, float(np.clip(found.estimate, *within)), *ends)
                yield StageEffect(part, self._name(arms), *figures)

    def _limit(self, arms: Arms) -> float:
        """Return the minimal probability of all of these arms that stages and exploration guarantee; 0 if none."""
        names, least = self._names, 1.0
        exploration = self._events[0].content["settings"].get("exploration") or {}
        for stage in self._settings.stages:
            limits = stage.limits(names)
            each = [limits] * len(names) if isinstance(limits, float) else list(limits)
            share = (1 - min(sum(each), 1.0)) * float(exploration.get("epsilon", 0.0)) / len(names)
            least = min(least, 1 / len(names) if stage.burn_in else min(each[arm] + share for arm in arms))
        return least

    # --- patients

    def _flow(self) -> Iterator[tuple[str, int, int, int, int | None, float]]:
        closed = {arm: event.content["round"] for arm, event in self._closed.items()}
        for arm, name in enumerate(self._names):
            rewards = self._outcomes.rewards[self._outcomes.arms == arm]
            known = rewards[~np.isnan(rewards)]
            plain = float(known.mean()) if len(known) else math.nan
            yield name, len(rewards), len(known), len(rewards) - len(known), closed.get(arm), plain

    def _balance(self) -> Iterator[Imbalance]:
        outcomes, columns = self._outcomes, self._columns()
        inverse = 1 / outcomes.chances[np.arange(self._count), outcomes.arms]
        for arms in self._targets(self._settings.control)[len(self._names) :]:
            both = outcomes.present[:, arms].all(axis=1)
            pair = [np.flatnonzero(both & (outcomes.arms == each)) for each in arms]
            if min(map(len, pair)) < 2:
                continue
            chance = deviations(0.95) * math.sqrt(sum(1 / effective(inverse[each]) for each in pair))
            for name, x in columns.items():
                first, other = (
                    [np.average(x[each], weights=w[each]) for w in (np.ones(len(x)), inverse)] for each in pair
                )
                raw, weighted = ((np.array(first) - other) / x.std()).tolist()
                yield Imbalance(name, self._name(arms), raw, weighted, chance)

    def _columns(self) -> dict[str, Array]:
        """Return the covariates that vary and differ from one another, by name: one that arms share counts once."""
        columns: dict[bytes, tuple[str, Array]] = {}
        covariates, shared = self._outcomes.covariates, self._settings.shared > 0
        n, count, width = covariates.shape
        for column in range(width):
            for arm in range(1 if shared else count):
                x = covariates[:, arm, column]
                if n and x.std() > 1e-12 * (1 + np.abs(x).max()):
                    same = shared or (covariates[:, :, column] == x[:, None]).all()
                    name = f"x{column}" if same else f"x{column} of {self._names[arm]}"
                    columns.setdefault(np.ascontiguousarray(x).tobytes(), (name, x))
        return dict(columns.values())

    # --- what was registered, and what deviated

    def _protocol(self) -> dict[str, str]:
        """Return what the first event of the record fixed as text, the settings of the study one by one."""
        first = self._events[0]
        content, settings = first.content, first.content["settings"]
        fixed = content["study"] | {"policy": content["policy"], "budget": self._session.row.budget}
        fixed |= {"plan_hash": self._settings.plan and self._settings.plan.hash}
        fixed |= {"first_event": first.hash, "schedule": settings.get("schedule"), "seed": settings.get("seed")}
        texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in fixed.items()}
        return {name: text for name, text in texts.items() if fixed[name] is not None}

    def _acts(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield what people did: looks that were taken, and what was closed."""
        for event in self._events:
            content = event.content
            if event.kind == "look":
                advice = "; ".join(each.partition(";")[0].partition(" (")[0] for each in content["advice"])
                number = "final look" if content["final"] else f"look {content['number']}"
                what = f"{number} after decision {content['round']}" + (f": {advice}" if advice else "")
            elif event.kind == "close":
                what = "enrolment" if content["arm"] is None else f"arm {self._names[content['arm']]}"
                what = f"closed {what} after decision {content['round']}, approved by {content['approved_by']}"
            else:
                continue
            yield day(event.time), event.actor, what, event.reason

    def _deviations(self) -> Iterator[str]:
        settings, plan, control, decisions = self._settings, self._plan, self._control, self._count
        if settings.plan is None:
            yield (
                "The study was created without a plan of analysis: looks, spending and level were chosen for this one."
            )
        elif plan != settings.plan:
            yield f"The registered plan is {settings.plan!r}; this analysis uses {plan!r}."
        if control != settings.control:
            yield f"The registered control arm is {settings.control!r}; this analysis uses {control!r}."
        if decisions > plan.rounds:
            after = decisions - plan.rounds
            yield f"{after} decisions came after the last planned look; only anytime intervals use them."
        looks = self._of("look")
        for event, before in zip(looks, [None, *looks], strict=False):
            last = 0 if before is None else before.content["number"]
            missed = [str(at) for at in plan.at[last : event.content["number"] - 1]]
            if missed:
                at = ", ".join(missed)
                yield f"The look planned after decision {at} was not taken; its error went to the next one."
            compared = [self._name(arms) for arms in self._arms if len(arms) > 1]
            fell = [name for name, row in event.content["effects"].items() if row["fell"] and name in compared]
            if fell:
                yield f"The information about {', '.join(fell)} fell before event {event.seq}: taken as equal."
        later = int((~self._missing).sum()) - looks[-1].content["rewards"] if looks else 0
        if later > 0 and looks[-1].content["final"]:
            yield (
                f"{later} outcomes came after the final look, which was taken without them: whoever chooses its moment "
                "by what is known errs more often than planned."
            )
        schedule = self._events[0].content["settings"].get("schedule") or {}
        while "schedule" in schedule:
            schedule = schedule["schedule"]
        planned = schedule["rounds"] if schedule.get("kind") == "AtRounds" else None
        yield from (sentence for event in self._events if (sentence := _deviation(event, planned, self._names)))

    def _at_the_end(self, made: Analysis) -> Iterator[str]:
        """Say which comparisons ended early although no boundary was crossed, of efficacy or of futility."""
        registered = [effect for effect in made.contrasts if effect.registered and effect.looks]
        stopped = made.ended and made.decisions < made.plan.rounds
        stopped = stopped and all(effect.shown is None for effect in registered)
        early = [effect for effect in registered if effect.shown is None and (stopped or effect.closed)]
        if names := ", ".join(effect.name for effect in early if not self._futile(effect)):
            yield (
                f"Enrolment was closed before the last planned look, and no boundary was crossed, of {names}: p-values "
                "and intervals are those that hold for every reason to stop."
            )

    def _futile(self, effect: Effect) -> bool:
        """Return whether the last look before an effect ended advised to stop for futility."""
        arms = (self._names.index(effect.arm), self._names.index(effect.against), None)
        end = min(self._closed[arm].seq for arm in arms if arm in self._closed)
        advised = [look.outlook and look.z < look.outlook.futility for look in effect.looks if look.event < end]
        return bool(advised and advised[-1])

    def _left_out(self) -> Iterator[str]:
        """Say how many patients were given another arm than the one drawn, and which outcomes do not count."""
        with self._session.reading() as tables:
            quarantined, late = (tables.of_kind(kind, 0, self._last) for kind in ("quarantine", "late reward"))
        given = [event for event in quarantined if event.why == OVERRIDE]
        if given:
            patients = len({event.ref for event in given})
            yield f"{patients} patients were given another arm than was drawn; estimates leave their outcomes out."
        closed = {arm: event.seq for arm, event in self._closed.items()}
        after = {e.ref for e in given if closed.get(e.content.get("arm"), self._last) < e.content["decided"]}
        if after:
            yield f"{len(after)} outcomes are of an arm that had been closed before their patients came."
        others = Counter(event.why for event in quarantined if event.why != OVERRIDE)
        others |= {"later than its window": len(late)} if late else {}
        for why, count in others.items():
            yield f"{count} outcomes that came do not count ({why})."

    def _notes(self, made: Analysis) -> Iterator[str]:
        yield (
            f"The level is {made.plan.level:g}: all looks of one effect hold together. "
            f"{COMPARED[made.plan.comparisons]} Means, exploratory comparisons, stages and subgroups have it by "
            "themselves. Intervals of looks and anytime intervals are asymptotic; exact ones hold for any number of "
            "rounds. A trend that arms share does no harm; if their difference moves, estimates are its mean over the "
            "rounds as they are weighed. All suppose that rewards are not missing for a reason that depends on the "
            "arm; the bound does not. Outcomes used are those of all patients for whom the arms were available: what "
            "is predicted of patients with another arm tells something, too."
        )
        looks = [look for effect in made.contrasts for look in effect.looks]
        if looks and self._settings.plan is not None and not any(look.event for look in looks):
            yield "No look is on record: those shown are computed from what is known now. Take each with study.look."
        if made.plan is not self._settings.plan and self._settings.plan is None and len(made.plan.at) == 1:
            once = "holds only if this is the only time that the trial is looked at."
            yield f"Without a plan the interval of the look {once}"
        if any(math.isinf(effect.exact_low) for effect in made.means):
            yield "Exact intervals and bounds need RewardRule(least=…, most=…), and a limit: Stage(least=…) or Mixture."
        few = [effect.name for effect in (*made.means, *made.contrasts) if effect.effective < reports.FEW]
        if few:
            least = f"Fewer than {reports.FEW} rounds tell the variance, and intervals are wide or rough, of:"
            yield f"{least} {', '.join(few)}."
        if len(self._names) > MAX_PAIRED:
            yield f"With more than {MAX_PAIRED} arms each is compared with the control arm only, control=."
        wrong = [row for row in made.balance if abs(row.weighted) > max(IMBALANCE, 1.5 * row.chance)]
        if wrong:
            worst = wrong[0]
            yield (
                f"{len(wrong)} covariates differ between arms by more than chance explains, most {worst.covariate} of "
                f"{worst.arms} by {worst.weighted:.2f} standard deviations: check that answers were followed."
            )
        closed = self._closed.get(None)
        with self._session.reading() as tables:
            late = 0 if closed is None else len(tables.of_kind("reward", closed.seq, self._last))
        if late:
            yield (
                f"{late} outcomes came after enrolment was closed (overrunning). The final look has them, and replaces "
                "the one at which the trial was stopped in the order of stages (Whitehead, 1992)."
            )


def _check_chances(outcomes: Outcomes, names: Sequence[str]) -> None:
    """Refuse rounds in which an available arm could not be drawn: they say nothing about it."""
    never = outcomes.present & (outcomes.chances <= 0)
    for round, arm in np.argwhere(never)[:1].tolist():
        raise InvalidStudy(
            f"an analysis needs a probability above 0 of every available arm; arm {names[arm]!r} had 0 in "
            f"{int(never[:, arm].sum())} of {len(never)} decisions, the first in round {round + 1}, so its rewards "
            "there have no inverse probability. Create the study with stages=[Stage('main', least=0.05)], or its "
            "policy with exploration=Mixture(0.1)."
        )


def read_summary(summary: Any) -> Summary:
    """Return a summary from the record, where None is what JSON has no number for."""
    unknown = (0, math.nan, math.inf, 0.0, math.inf, 0.0, 0.0, 0.0)
    values: list[Any] = [other if value is None else value for other, value in zip(unknown, summary, strict=True)]
    return Summary(*values)


def outcomes_of(session: Session, last: int) -> tuple[Outcomes, Array, list[int]]:
    """Return the decisions up to an event as columns, and (n,) the stage and the time of each."""
    settings, rows, gone = session.settings, list(records(session, last)), session.gone()
    if gone.last:
        raise Erased(f"an analysis needs all decisions of the trial; {gone.said[-1]}.")
    rewards, names = rewards_to_learn(session, 0, last), settings.arms or ()
    shared = settings.shared
    width = shared or session.dim
    covariates = np.zeros((len(rows), len(names), width))
    present = np.zeros((len(rows), len(names)), np.bool_)
    chances = np.zeros(present.shape)
    for i, row in enumerate(rows):
        present[i] = row.present
        covariates[i, slice(None) if shared else row.present] = row.question.numbers
        chances[i] = row.padded(row.probabilities, 0.0)
    erased = np.array([row.erased for row in rows], np.bool_)
    if erased.any() and not erased.all():  # any constant leaves estimates right, and the mean leaves balance as it is
        covariates[erased] = covariates[~erased].mean(axis=0)
    rule = settings.rewards
    bounded = rule.least is not None and rule.most is not None and rule.aggregation != "sum"
    bounded = bounded and (rule.default is None or rule.contains(rule.default))
    arms = np.array([row.answer.index for row in rows], np.int64)
    told = np.array([rewards.get(row.answer.round, np.nan) for row in rows], float)
    within = (rule.least or 0.0, rule.most or 0.0) if bounded else None
    stages = np.array([row.answer.stage for row in rows], object)
    return Outcomes(covariates, present, arms, told, chances, within), stages, [row.answer.time for row in rows]


def _deviation(event: Event, planned: Sequence[int] | None, names: Sequence[str]) -> str:
    """Return how an event departs from what the schedule would have done; "" if it does not."""
    content = event.content
    record = content.get("record") or {}
    shifted = bool(record) and planned is not None and record["round"] not in planned
    late = f"an update came after round {record.get('round')}, which the schedule does not name" if shifted else ""
    arm = names[content["arm"]] if event.kind in ("retire", "activate", "add") else ""
    what = {
        "rollback": f"version {content.get('number')} replaced version {content.get('from')} by a rollback",
        "pin": "updates were suspended",
        "unpin": "updates were allowed again",
        "retire": f"{arm} was retired after decision {content.get('round')}",
        "activate": f"{arm} was activated after decision {content.get('round')}",
        "add": f"{arm} was added after decision {content.get('round')}",
        "dismissed": "a candidate was dismissed",
        "erase": f"contexts of {len(content.get('rounds', ()))} decisions were erased; estimates count their outcomes, "
        "with the mean of the others' covariates",
        "rejected": f"a training was rejected: {record.get('reason', '')}",
        "version": ", and ".join(filter(None, ["an update was forced" if content.get("force") else "", late])),
    }.get(event.kind, "")
    by, why = f" by {event.actor}" if event.actor else "", f" ({event.reason})" if event.reason else ""
    return f"Event {event.seq}{by}: {what}{why}." if what else ""


# --- what people do


def take_look(session: Session, signed: dict[str, str]) -> Analysis:
    """Record the next planned look, with what is known now; see `Study.look`."""
    plan = session.settings.plan
    if plan is None:
        raise InvalidStudy("a look needs a plan: Study.create(plan=AnalysisPlan(…)); `analysis` needs none.")
    with session.writing():
        position, last = session.position, session.position.seq
    taken = [event for event in session.specials() if event.kind == "look"]
    number = _next_number(plan, taken[-1].content if taken else None, position.rounds, enrolling=position.enrolling)
    whole = number >= len(plan.at) and position.rounds >= plan.rounds
    trial = _Trial(session, last, look=whole)
    made, rows = trial.analysis(), {}
    for effect in (*made.means, *made.contrasts):
        look, cuts = effect.looks[-1], trial.cuts[effect.name]
        row = {name: getattr(look, name) for name in UNKNOWN}
        fell = len(cuts) > 1 and cuts[-1].summary.information < cuts[-2].summary.information
        row |= {"summary": list(cuts[-1].summary), "fell": fell}
        rows[effect.name] = row | ({} if effect.outlook is None else {"outlook": effect.outlook})
    body: dict[str, Any] = {"number": number, "round": made.decisions, "cut": last}
    body |= {"fraction": trial.looks[-1].fraction, "advice": reports.advice_of(made)}
    body |= {"final": whole or not position.enrolling, "rewards": made.rewards, "plan": plan.hash, "effects": rows}
    with session.writing() as tables:
        if [event.seq for event in tables.specials() if event.kind == "look"] != [event.seq for event in taken]:
            raise InvalidStudy("another look was taken at the same time; call again for the next one.")
        event = session.append(tables, "look", dict(plain_json(body)), **signed)
    return analyse(session, as_of=event.seq)


def _next_number(plan: AnalysisPlan, last: dict[str, Any] | None, decisions: int, *, enrolling: bool) -> int:
    """Return the number of the look that is due, or refuse one out of order."""
    before = 0 if last is None else int(last["number"])
    if last is not None and last["final"]:
        raise InvalidStudy("the last look was taken; outcomes that came later are shown beside it in the analysis.")
    due = sum(at <= decisions for at in plan.at)
    if enrolling and due <= before:
        raise InvalidStudy(
            f"look {before + 1} comes after decision {plan.at[before]}, and there are {decisions}: wait for it, or "
            "close enrolment, after which the final look may be taken."
        )
    return max(due, min(before + 1, len(plan.at)))
