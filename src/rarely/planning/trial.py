"""How many patients and looks a trial needs for a wanted power or width, by simulation of whole trials.

Each simulated trial is decided by the policy under the limits of its stages, updated at every look, and analysed as
`Study.analysis` does: what is planned is what will be computed. Trials of arms without covariates are played at once,
patient by patient for all of them:

    R, n, K   trials, patients, arms        p   (R, K)   probabilities, which change when the policy is updated

LinTS is decided as `rarely.LinTS` decides with a constant and a column for each arm: the same posterior, rule, random
numbers and limits, so a trial replayed through a `Study` is the same. The others have the same limits and updates:

    equal          every arm alike, always: the randomised trial
    thall-wathen   P(best)^(t/2n) of the posterior, after t of n patients (Thall and Wathen, 2007)
    square-root    √q̂ of binary rewards, q̂ the arm's share of successes (Rosenberger et al., 2001)

A reward comes after later patients, or never; a look and an update know those that have come. Where the plan names an
effect, an arm that a look finds futile gets no further patients, as one that a study closes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rarely import AtRounds, BatchNeuralUCB, LinTS, LinUCB, Policy, Training
from rarely.errors import DriftWarning, InvalidInput, NothingToLearnWarning
from rarely.extend import ArmScores, Array, BoolArray, FixedShares, IntArray, Progress, Thompson, read_progress
from rarely.extend.checks import as_number, check_choice, check_not_negative, check_positive, check_whole, shown
from rarely.extend.provisional import rule_of, sample_arms, set_rule
from rarely.offpolicy.estimates import stages as stretches
from rarely.offpolicy.intervals import check_level, deviations
from rarely.pages.grid import Grid
from rarely.runs import statistics
from rarely.runs.files import plain_json
from rarely.study import AnalysisPlan, Stage
from rarely.study.boundaries import Spending, boundaries, spent
from rarely.study.effects import Outcomes, anytime, predict_rewards, scores_of, stable_weights, summarise
from rarely.study.looks import Cut, final_of, is_futile, looks_of, share_of, shown_at
from rarely.study.plan import Comparisons
from rarely.study.settings import rule_of_stage, stage_at

TrialPolicy = Literal["LinTS", "LinUCB", "default", "equal", "thall-wathen", "square-root"]
Rule = Literal["LinTS", "equal", "thall-wathen", "square-root"]  # those that are played at once
SIZES = (0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Patients that are tried by default, in units of what two equal groups would need without looks."""
COLUMNS = {
    "rule": "{0.policy}", "patients": "{0.patients}", "looks": "{0.looks}", "power": "{0.power:.0%}",
    "95 % of it": "{0.low:.0%} to {0.high:.0%}", "any": "{0.some:.0%}", "all": "{0.every:.0%}",
    "false (95 % of it)": "{0.error:.1%} ({0.error_low:.1%} to {0.error_high:.1%})", "width": "{0.width:.3f}",
    "stops at": "{0.stopped:.0f}", "futile": "{0.futile:.0%}", "best arm": "{0.best:.0%}",
    "worse arms": "{0.inferior:.0f}", "bias": "{0.bias:+.3f}", "median bias": "{0.median_bias:+.3f}",
    "anytime": "{0.anytime:.0%}", "coverage": "{0.coverage:.1%}", "time": "{0.time:.3g}",
}  # fmt: skip
"""The table of a plan: what each column says of a point; columns that say nothing of any are left out."""
UNSURE = "more trials (runs=) would tell whether the level is held"
PARTS = 250  # trials that are played side by side
KNOWING: tuple[TrialPolicy, ...] = ("LinTS", "LinUCB", "default", "equal")  # policies that are played with a covariate
FOLLOWED = f"effect, with the arms it closes, is simulated of {', '.join(get_args(Rule))}, without prognosis"
JUDGED = 100  # trials whose median-unbiased estimates are computed


class Trouble(NamedTuple):
    """What the world does to a simulated trial; see `plan_trial`."""

    late: float = 0
    lost: float = 0.0
    drift: float = 0.0
    accrual: float | None = None
    prognosis: float = 0.0


class TrialPoint(NamedTuple):
    """What simulated trials of one size had in common.

    Examples
    --------
    >>> point = plan_trial([0.2, 0.8], patients=[80], looks=[2], runs=5).points[0]
    >>> point.patients, point.power
    (80, 1.0)
    """

    patients: int
    looks: int
    power: float  #: The share of trials in which a look found the best arm better than the control arm, else NaN.
    low: float
    high: float  #: The ends of a 95 % interval of the power, for the number of simulated trials.
    width: float  #: The mean width of the last look's interval.
    stopped: float  #: The mean patients if a trial ends with the first look that excludes 0, or closes the last arm.
    best: float  #: The share of patients with the best arm.
    anytime: float  #: The power of the anytime interval, looked at as often.
    coverage: float  #: The share of trials in which all looks of all comparisons contained the true differences.
    policy: str = "LinTS"
    some: float = math.nan  #: The power to find at least one arm that is better than the control arm.
    every: float = math.nan  #: The power to find every arm that is better than the control arm.
    error: float = math.nan  #: The share of trials that showed a difference that is none, or of the wrong sign.
    error_low: float = math.nan
    error_high: float = math.nan
    inferior: float = math.nan  #: The mean number of patients with another arm than the best, until the trial ends.
    bias: float = math.nan  #: The mean error of the best arm's estimate when the trial ends so.
    median_bias: float = math.nan  #: The median error of its median-unbiased estimate, in the first trials.
    width_high: float = math.inf  #: Where a 95 % interval of the mean width ends.
    time: float | None = None  #: The mean time until the trial ends, its last reward included; None without `accrual`.
    futile: float | None = None  #: The share of trials that end because all arms were futile; None without `effect`.


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """The curve of power and width over patients, as `plan_trial` returns it; `print` shows it.

    Examples
    --------
    >>> made = plan_trial([0.3, 0.6], patients=[100], looks=[2], runs=10)
    >>> [(point.patients, point.looks) for point in made.points], made.enough is None
    ([(100, 2)], True)
    """

    means: tuple[float, ...]
    noise: float | None
    power: float | None
    width: float | None
    least: float
    burn_in: float
    spending: Spending
    level: float
    policy: tuple[TrialPolicy, ...]
    comparisons: Comparisons
    trouble: Trouble
    runs: int
    seed: int
    points: tuple[TrialPoint, ...] = ()
    effect: float | None = None

    @property
    def enough(self) -> TrialPoint | None:
        """The fewest patients, and then the fewest looks, that surely reach what is wanted; None if none does."""
        fit = [point for point in self.points if self.reaches(point) and point.policy == self.policy[0]]
        return min(fit, key=lambda point: (point.patients, point.looks), default=None)

    def reaches(self, point: TrialPoint) -> bool:
        """Return whether a point has the wanted power and width, by the worse ends of their intervals."""
        strong = self.power is None or point.low >= self.power
        return strong and (self.width is None or point.width_high <= self.width)

    def analysis(self, patients: int, looks: int) -> AnalysisPlan:
        """Return the plan of the analysis of trials of one size; futility leaves the power that is wanted."""
        rules: Any = {"spending": self.spending, "level": self.level, "comparisons": self.comparisons}
        if self.effect is not None:
            rules |= {"effect": self.effect} | ({} if self.power is None else {"power": self.power})
        return AnalysisPlan(patients, looks, **rules)

    def grid(self) -> Grid:
        """Return the curve as a table."""
        asked = {"time": self.trouble.accrual, "futile": self.effect}
        unknown: dict[str, Any] = {name: math.nan for name, given in asked.items() if given is None}
        points = [point._replace(**unknown) for point in self.points]
        several = sum(mean > self.means[0] for mean in self.means) > 1  # else any and all are the best one
        forms = {name: form for name, form in COLUMNS.items() if several or name not in ("any", "all")}
        said = {}
        for name, form in forms.items():
            cells = [form.format(point) for point in points]
            cells = ["–" if "nan" in cell else cell for cell in cells]
            if {*cells} != {"–"}:
                said[name] = cells
        return Grid([*said], list(zip(*said.values(), strict=True)), 1)

    def advice(self) -> list[str]:
        """Return what to do, and what it rests on, in sentences; a line of code comes second if there is one."""
        wishes = {"power {:.0%}": self.power, "width {:g}": self.width}.items()
        text = " and ".join(wish.format(value) for wish, value in wishes if value is not None)
        point, t = self.enough, self.trouble
        rewards = "yes or no" if self.noise is None else f"normal with deviation {self.noise:g}"
        unit = "patients" if t.accrual is None else f"units of time ({t.accrual:g} patients come in one)"
        rests = (
            f"{self.runs} simulated trials per row, seeds {self.seed} to {self.seed + self.runs - 1}; mean rewards "
            f"{', '.join(f'{mean:g}' for mean in self.means)} (the first is the control arm), rewards {rewards}; "
            f"at least {self.least:g} for each arm after the first {self.burn_in:.0%}; {self.spending}, level "
            f"{self.level:g}, comparisons {self.comparisons}; rewards come {t.late:g} {unit} late, {t.lost:.0%} never, "
            f"and their means move by {t.drift:g}; a covariate moves them by ±{t.prognosis:g}."
        )
        if self.effect is not None:
            rests += f" Arms that a look finds futile, for a difference of {self.effect:g}, get no further patients."
        if max(self.means[1:]) <= self.means[0]:
            worst = max(self.points, key=lambda point: point.error)
            over, under = worst.error_low > 1 - self.level, worst.error_high <= 1 - self.level
            says = "the level is exceeded" if over else "the level is surely held" if under else UNSURE
            said = (
                f"No arm is better than the control arm. Something untrue was shown in at most {worst.error:.1%} of "
                f"the trials ({worst.error_low:.1%} to {worst.error_high:.1%}): {says}."
            )
            return [said, rests]
        if point is None:
            return [f"None of these sizes surely reaches {text}: try more patients, or a higher limit.", rests]
        plan = self.analysis(point.patients, point.looks)
        stages = _stages(plan, self.burn_in, self.least)
        code = (
            f"schedule=AtRounds({_updates(plan, stages)}), stages=[Stage('burn-in', {stages[0].rounds}, burn_in=True), "
            f"Stage('adaptive', least={self.least:g})], plan={plan!r}"
        )
        looks = "one look" if point.looks == 1 else f"{point.looks} looks"
        return [f"{point.patients} patients with {looks} surely reach {text}.", code, rests]

    def rationale(self) -> str:
        """Return how the size was found, for `AnalysisPlan(size=…)`: what the trials say, and what they rest on."""
        said = self.advice()
        return f"{said[0]} {said[-1]}"

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return dict(plain_json(asdict(self)))  # a width may be infinite

    def __str__(self) -> str:
        return "\n".join([*self.grid().lines(), "", *self.advice()])


def plan_trial(
    means: Sequence[float],
    *,
    power: float | None = 0.8,
    width: float | None = None,
    noise: float | None = None,
    patients: Sequence[int] | None = None,
    looks: int | Sequence[int] = 5,
    spending: Spending = "obrien-fleming",
    level: float = 0.95,
    least: float = 0.1,
    burn_in: float = 0.2,
    policy: TrialPolicy | Sequence[TrialPolicy] = "LinTS",
    comparisons: Comparisons = "holm",
    effect: float | None = None,
    late: float = 0,
    lost: float = 0.0,
    drift: float = 0.0,
    accrual: float | None = None,
    prognosis: float = 0.0,
    runs: int = 200,
    seed: int = 0,
    progress: Progress = None,
) -> TrialPlan:
    """Simulate trials of several sizes, and return their power and the widths of their intervals.

    Parameters
    ----------
    means
        Mean rewards of the arms, the control arm first: what you expect, or the smallest difference that matters. If no
        arm is better, the trials tell how often something untrue is shown.
    power, width
        What is wanted: the probability that some look finds the best arm better than the control arm, and the mean
        width of the last look's interval. None for no wish.
    noise
        The standard deviation of normal rewards; None for rewards of 0 and 1.
    patients, looks
        The sizes to try, by default around what two equal groups need; numbers of looks, at which it is updated.
    spending, level, comparisons
        See `rarely.study.AnalysisPlan`.
    effect
        The smallest difference that matters, for a boundary of futility that leaves the wanted power for it. Trials
        follow it: an arm that a look finds below it gets no further patients, and a trial ends with its last one. For
        rules that are played side by side: all but "LinUCB" and "default", and without `prognosis`.
    least, burn_in
        The allocation limit, and the share of patients that are assigned to all arms alike before.
    policy
        "LinTS", "LinUCB", "default", which is BatchNeuralUCB with a short training, or to compare with them "equal",
        "thall-wathen" and "square-root"; or several of them, of which the first is planned for.
    late, lost, drift
        Trouble: after how many further patients a reward comes, the share that never comes, and by how much all means
        move from the first patient to the last.
    accrual
        The patients that come in a unit of time, at random; `late` is then in these units, and trials have a duration.
    prognosis
        By how much a covariate of patients, +1 or −1, moves the means of all arms. The policies see it, and the
        analysis adjusts for it. For "LinTS", "LinUCB", "default" and "equal", which are then played one by one.
    runs, seed
        Simulated trials of each size, and the first seed.
    progress
        Called with a stage, the trials done and their total; or a bar such as tqdm's: `progress=tqdm`.

    Examples
    --------
    >>> plan_trial([0.2, 0.8], patients=[80], looks=[1], runs=5).points[0].power
    1.0
    """
    progress = read_progress(progress, "a stage, the trials done and their total")
    values = _read_means(means, noise)
    policies: tuple[Any, ...] = (policy,) if isinstance(policy, str) else tuple(policy)
    wanted: Any = {"power": power, "width": width, "least": least, "burn_in": burn_in, "policy": policies}
    rules: Any = {"spending": spending, "level": level, "comparisons": comparisons, "effect": effect}
    trouble = Trouble(late, lost, drift, accrual, prognosis)
    asked = TrialPlan(values, noise, **wanted, **rules, trouble=trouble, runs=runs, seed=seed)
    _check(asked)
    if patients is None and max(values[1:]) <= values[0]:
        raise InvalidInput("where no arm is better than the control arm, patients must be given: patients=[600].")
    sizes = _sizes(asked) if patients is None else _counts("patients", patients, 2)
    cases, points = list(product(policies, sizes, _counts("looks", looks, 1))), []
    for done, (rule, size, count) in enumerate(cases):
        plan, rows = asked.analysis(size, count), []
        for first in range(0, runs, PARTS):
            progress("trials", done * runs + first, len(cases) * runs)
            seeds = range(seed + first, seed + min(first + PARTS, runs))
            rows += _simulated(asked, rule, plan, seeds, judged=first < JUDGED)
        points.append(_point(rows, plan, rule, accrual))
    progress("trials", len(cases) * runs, len(cases) * runs)
    return replace(asked, least=float(least), burn_in=float(burn_in), points=tuple(points))


def _read_means(means: Any, noise: Any) -> tuple[float, ...]:
    values = tuple(float(as_number(mean)) for mean in means) if isinstance(means, Sequence | np.ndarray) else ()
    if len(values) < 2 or not all(math.isfinite(mean) for mean in values):
        raise InvalidInput(f"means must be two or more numbers, the control arm's first; got {shown(means)}.")
    if noise is None and not all(0 <= mean <= 1 for mean in values):
        raise InvalidInput(f"means of rewards 0 and 1 lie between 0 and 1; give noise for others; got {shown(means)}.")
    if noise is not None:
        check_not_negative("noise", noise, "because it is a standard deviation")
    return values


def _check(asked: TrialPlan) -> None:
    """Refuse what makes no sense."""
    t, arms, power, width = asked.trouble, len(asked.means), asked.power, asked.width
    wishes = [0 < as_number(wish) < most for wish, most in ((power, 1), (width, math.inf)) if wish is not None]
    moves = [as_number(t.drift), as_number(t.prognosis)]
    away = [mean + share * moves[0] + sign * moves[1] for mean in asked.means for share in (0, 1) for sign in (-1, 1)]
    known, within = ", ".join(KNOWING), asked.noise is not None or all(0 <= mean <= 1 for mean in away)
    for sensible, says, came in (
        (wishes and all(wishes), "power between 0 and 1 or width above 0 must be wanted", (power, width)),
        (0 < as_number(asked.least) <= 1 / arms, f"least must be above 0 and at most 1/{arms}", asked.least),
        (0 < as_number(asked.burn_in) < 1, "burn_in must lie between 0 and 1", asked.burn_in),
        (0 <= as_number(t.lost) < 1, "lost must be a share from 0 to below 1", t.lost),
        (all(map(math.isfinite, moves)), "drift and prognosis must be numbers", moves),
        (within, "means of rewards 0 and 1 must lie between 0 and 1 after drift and prognosis, too", t),
        (not t.prognosis or {*asked.policy} <= {*KNOWING}, f"prognosis is simulated of {known}", asked.policy),
        (asked.effect is None or ({*asked.policy} <= {*get_args(Rule)} and not t.prognosis), FOLLOWED, asked.policy),
    ):
        if not sensible:
            raise InvalidInput(f"{says}; got {came!r}.")
    check_whole("runs", asked.runs, 1)
    check_whole("seed", asked.seed, 0)
    check_not_negative("late", t.late, "because rewards come after their patients")
    if t.accrual is not None:
        check_positive("accrual", t.accrual, "because it is the patients in a unit of time")
    for each in asked.policy or [None]:
        check_choice("policy", each, TrialPolicy)
    check_choice("comparisons", asked.comparisons, Comparisons)
    check_level(asked.level)


def arrivals(trouble: Trouble, patients: int, seed: int) -> tuple[Array, Array]:
    """Return when each patient comes, and how many there are when the reward does; infinite if it never does.

    >>> [each.tolist() for each in arrivals(Trouble(late=2), 3, 0)]
    [[1.0, 2.0, 3.0], [3.0, 3.0, 3.0]]
    """
    rng = np.random.default_rng([seed, 5])
    lost = rng.random(patients) < trouble.lost
    gaps = 1.0 if trouble.accrual is None else rng.exponential(1 / trouble.accrual, patients)
    times = np.cumsum(np.broadcast_to(gaps, patients))
    return times, np.where(lost, math.inf, np.searchsorted(times, times + trouble.late, side="right"))


def _counts(name: str, counts: Any, least: int) -> list[int]:
    values = list(counts) if isinstance(counts, Sequence | np.ndarray) else [counts]
    for value in values or [counts]:
        check_whole(name, value, least)
    return [int(value) for value in values]


def _sizes(asked: TrialPlan) -> list[int]:
    """Return sizes around that of a trial with two equal groups and one look, rounded to two digits."""
    means, noise, best = asked.means, asked.noise, max(asked.means)
    variance = sum(mean * (1 - mean) for mean in (means[0], best)) if noise is None else 2 * noise**2
    needed = deviations(asked.level) + NormalDist().inv_cdf(0.8 if asked.power is None else asked.power)
    size = max(needed**2 * variance * len(means) / (best - means[0]) ** 2, 40.0)
    digits = 1 - math.floor(math.log10(size))
    return sorted({int(round(size * factor, digits)) for factor in SIZES})


def _stages(plan: AnalysisPlan, burn_in: float, least: float) -> list[Stage]:
    first = min(max(round(burn_in * plan.rounds), 1), plan.rounds - 1)
    return [Stage("burn-in", first, burn_in=True), Stage("adaptive", least=least)]


def _updates(plan: AnalysisPlan, stages: Sequence[Stage]) -> list[int]:
    """Return the rounds after which the policy is updated: the end of the burn-in, and each look but the last."""
    return sorted({stages[0].rounds or 0, *plan.at[:-1]})


def make_policy(kind: TrialPolicy, dim: int, updates: Sequence[int], seed: int, **settings: Any) -> Policy:
    """Return a policy that is updated after these rounds."""
    schedule: Any = AtRounds(updates)
    if kind == "default":
        return BatchNeuralUCB(
            dim=dim, schedule=schedule, seed=seed, **{"hidden": 16, "training": Training(steps=30), **settings}
        )
    return {"LinTS": LinTS, "LinUCB": LinUCB}[kind](dim=dim, schedule=schedule, seed=seed, **settings)


def draw_rewards(means: Sequence[float] | Array, noise: float | None, patients: int, seed: int) -> Array:
    """Return (n, K) rewards of all arms, whose means may be those of each patient."""
    rng, levels = np.random.default_rng([seed, 4]), np.asarray(means)
    shape = (patients, levels.shape[-1])
    if noise is None:
        return (rng.random(shape) < levels).astype(float)
    return np.asarray(levels + noise * rng.normal(size=shape))


def simulate_trial(
    policy: Policy,
    contexts: Array,
    rewards: Array,
    stages: Sequence[Stage],
    updates: Sequence[int],
    came: Array | None = None,
) -> Outcomes:
    """Play a trial on (n, K, d) contexts and (n, K) rewards of all arms, with updates after the given rounds.

    The end of each stage must be among the updates. A reward is known once as many patients have come as `came` says.
    """
    n, count = rewards.shape
    names, rule = [str(arm) for arm in range(count)], rule_of(policy)
    arms, chances = np.zeros(n, np.int64), np.zeros((n, count))
    came = np.arange(1.0, n + 1) if came is None else came
    for start, end in pairwise([0, *(update for update in updates if update < n), n]):
        set_rule(policy, rule_of_stage(stages[stage_at(stages, start + 1)[0]], rule, names))
        decision = policy.select(contexts[start:end])
        arms[start:end], chances[start:end] = decision.arms, decision.probabilities
        told = np.flatnonzero((came[:end] > start) & (came[:end] <= end))
        policy.observe(rounds=told + 1, rewards=rewards[told, arms[told]])
        set_rule(policy, rule)
        if end < n:
            with warnings.catch_warnings():  # what is simulated is known; an alarm says nothing of the trial
                for alarm in (DriftWarning, NothingToLearnWarning):
                    warnings.simplefilter("ignore", alarm)
                policy.update()
    within = (0.0, 1.0) if ((rewards == 0) | (rewards == 1)).all() else None
    return Outcomes(contexts, np.ones((n, count), np.bool_), arms, rewards[np.arange(n), arms], chances, within)


def cuts_at_looks(outcomes: Outcomes, plan: AnalysisPlan, came: Array) -> list[list[Cut]]:
    """Return what was known of each comparison with arm 0 at the looks of the plan."""
    cuts: list[list[Cut]] = [[] for _ in range(1, outcomes.present.shape[1])]
    for at in plan.at:
        known = came[:at] <= (at if at < plan.rounds else np.finfo(float).max)
        names = ("covariates", "present", "arms", "rewards", "chances")
        now = replace(outcomes, **{each: getattr(outcomes, each)[:at] for each in names})
        now = replace(now, rewards=np.where(known, now.rewards, np.nan))
        q, share = predict_rewards(now), float(known.mean()) * at / plan.rounds if at < plan.rounds else 1.0
        for arm, found in enumerate(cuts, 1):
            found.append(Cut(at, share, scores_of(now, q, arm, 0).until(at)))
    return cuts


def _simulated(
    asked: TrialPlan, policy: TrialPolicy, plan: AnalysisPlan, seeds: range, *, judged: bool
) -> list[dict[str, float]]:
    """Play trials of one size under one rule, and return what is said of each."""
    n, count, trouble = plan.rounds, len(asked.means), asked.trouble
    stages = _stages(plan, asked.burn_in, asked.least)
    updates = _updates(plan, stages)
    signs = np.stack([2 * np.random.default_rng([seed, 6]).integers(0, 2, n) - 1.0 for seed in seeds])
    moved = np.asarray(asked.means) + trouble.drift * np.arange(n)[:, None] / max(n - 1, 1)
    levels = moved + trouble.prognosis * signs[..., None]
    rewards = np.stack([draw_rewards(each, asked.noise, n, seed) for each, seed in zip(levels, seeds, strict=True)])
    times, came = np.array([arrivals(trouble, n, seed) for seed in seeds]).swapaxes(0, 1)
    rule: Any = policy
    if policy in get_args(Rule) and not trouble.prognosis:
        trials = play_many(rule, rewards, stages[0].rounds or 0, asked.least, updates, seeds, came, plan)
        played = [*zip(cuts_of(trials, plan), trials.arms, times, trials.ended.tolist(), strict=True)]
    else:
        rule, stages = ("LinTS", [Stage("equal", burn_in=True)]) if policy == "equal" else (rule, stages)
        played = []
        for i, seed in enumerate(seeds):
            columns = np.column_stack([np.ones(n), signs[i]] if trouble.prognosis else [np.ones(n)])
            contexts = np.einsum("jk,nc->njkc", np.eye(count), columns).reshape(n, count, -1)
            made = make_policy(rule, contexts.shape[2], updates, seed)
            outcomes = simulate_trial(made, contexts, rewards[i], stages, updates, came[i])
            played.append((cuts_at_looks(outcomes, plan, came[i]), outcomes.arms, times[i], n))
    return [_said(asked, plan, *each, judged and i < JUDGED) for i, each in enumerate(played)]


def _said(
    asked: TrialPlan, plan: AnalysisPlan, cuts: list[list[Cut]], arms: IntArray, times: Array, ended: int, judged: bool
) -> dict[str, float]:
    """Return what a trial showed, and when, by the fields of its point; its arms were closed after `ended` patients."""
    means, truths = asked.means, [mean - asked.means[0] for mean in asked.means[1:]]
    best, alpha = int(np.argmax(means[1:])), share_of(plan, len(truths))
    shown = shown_at(cuts, plan)
    verdicts = [
        0.0 if at is None else float(math.copysign(1, each[at].summary.estimate) * np.sign(truth)) or -1.0
        for each, at, truth in zip(cuts, shown, truths, strict=True)
    ]
    better = [place for place, truth in enumerate(truths) if truth > 0]
    last_arm = len(plan.at) - 1 if ended == plan.rounds else plan.at.index(ended)
    first = min([at for at in shown if at is not None] + [last_arm])
    stopped, seen = plan.at[first], cuts[best][: first + 1]
    last, known = seen[-1].summary, seen[-1].summary.effective > 0
    end = final_of(looks_of(seen, plan, alpha), last, alpha) if judged and known else None
    low, high = cuts[best][-1].summary.interval(_last_boundary(plan, alpha))
    always = any(anytime(cut.summary, plan.rounds, 1 - plan.level)[0] > 0 for cut in cuts[best])
    found = [verdicts[place] > 0 for place in better]
    powers = {"power": verdicts[best] > 0, "some": any(found), "every": all(found), "anytime": always}
    return (powers if better else dict.fromkeys(powers, math.nan)) | {
        "error": min(verdicts) < 0,
        "coverage": all(holds(each, plan, alpha, truth) for each, truth in zip(cuts, truths, strict=True)),
        "bias": last.estimate - truths[best] if known else math.nan,
        "median_bias": math.nan if end is None else end.median - truths[best],
        "best": float((arms[:ended] == int(np.argmax(means))).mean()),
        "inferior": float((np.asarray(means)[arms[:stopped]] < max(means)).sum()),
        "width": high - low,
        "stopped": stopped,
        "futile": ended < plan.rounds and all(at is None for at in shown),
        "time": float(times[stopped - 1]) + asked.trouble.late,
    }


def holds(cuts: Sequence[Cut], plan: AnalysisPlan, alpha: float, truth: float) -> bool:
    """Return whether all looks of a comparison contain the truth."""
    least = deviations(1 - alpha)  # no boundary is lower
    if all(low <= truth <= high for low, high in (cut.summary.interval(least) for cut in cuts)):
        return True
    return all(look.low <= truth <= look.high for look in looks_of(cuts, plan, alpha))


@lru_cache
def _last_boundary(plan: AnalysisPlan, alpha: float) -> float:
    shares = [at / plan.rounds for at in plan.at]
    return boundaries([spent(plan.spending, share, alpha) for share in shares], shares)[-1]


def _point(rows: list[dict[str, float]], plan: AnalysisPlan, policy: str, accrual: float | None) -> TrialPoint:
    """Return what trials had in common; where nothing could be said of one, of the others."""
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a mean of nothing
        means: dict[str, Any] = {name: float(np.nanmean(column)) for name, column in columns.items()}
        means["median_bias"] = float(np.nanmedian(columns["median_bias"]))
        half = deviations(0.95) * float(columns["width"].std()) / math.sqrt(len(rows))
    means["width_high"] = means["width"] + half if math.isfinite(means["width"]) else math.inf
    for name, low, high in (("power", "low", "high"), ("error", "error_low", "error_high")):
        known = not np.isnan(columns[name]).any()
        found = statistics.share(int(columns[name].sum()), len(rows)) if known else None
        means[low], means[high] = (math.nan, math.nan) if found is None else (found.low, found.high)
    absent = {"time": None} if accrual is None else {}
    absent |= {"futile": None} if plan.effect is None else {}
    return TrialPoint(plan.rounds, len(plan.at), policy=policy, **means | absent)


# --- many trials at once


class Trials(NamedTuple):
    """What happened in many trials."""

    arms: IntArray  # (R, n)
    rewards: Array  # (R, n), also those that never came
    chances: Array  # (R, n, K)
    came: Array  # (R, n): the number of patients when the reward came; infinite if it never did
    within: tuple[float, float] | None

    @property
    def ended(self) -> IntArray:
        """(R,): the patients of each trial before its last arm but the control arm was closed; n if one stayed open."""
        return np.asarray((self.chances[:, :, 1:] > 0).any(axis=2).sum(axis=1))


def play_many(
    rule: Rule,
    rewards: Array,
    burn_in: int,
    least: float,
    updates: Sequence[int],
    seeds: Sequence[int],
    came: Array | None = None,
    plan: AnalysisPlan | None = None,
) -> Trials:
    """Play trials on (R, n, K) rewards of all arms; `seeds` are those of the policies, `came` as in `Trials`.

    With a plan that names an effect its looks, which must be among the updates, close arms for futility.
    """
    runs, n, count = rewards.shape
    uniforms = np.stack([np.random.default_rng(seed).random(n) for seed in seeds])
    arms, chances = np.zeros((runs, n), np.int64), np.full((runs, n, count), 1 / count)
    came = np.broadcast_to(np.arange(1.0, n + 1), (runs, n)) if came is None else came
    told, open_ = np.zeros((runs, n)), np.ones((runs, count), np.bool_)
    within = (0.0, 1.0) if ((rewards == 0) | (rewards == 1)).all() else None
    for start, end in pairwise([0, *(update for update in updates if update < n), n]):
        if plan is not None and plan.effect is not None and start in plan.at:
            before = Trials(arms[:, :start], told[:, :start], chances[:, :start], came[:, :start], within)
            open_ &= ~_futile(before, plan, open_)
        p = open_ / open_.sum(axis=1, keepdims=True)
        if start >= burn_in and rule != "equal":
            known = came[:, :start] <= start
            p = _chances(rule, arms[:, :start], told[:, :start], known, open_, least, start / n)
        chances[:, start:end] = p[:, None]
        flat = chances[:, start:end].reshape(-1, count)
        arms[:, start:end] = sample_arms(flat, uniforms[:, start:end].ravel()).reshape(runs, end - start)
        told[:, start:end] = np.take_along_axis(rewards[:, start:end], arms[:, start:end, None], axis=2)[..., 0]
    return Trials(arms, told, chances, came, within)


def _chances(
    rule: Rule, arms: IntArray, told: Array, known: BoolArray, open_: BoolArray, least: float, share: float
) -> Array:
    """Return (R, K) probabilities of the next patients, given those before, and which arms are open."""
    one = arms[..., None] == np.arange(open_.shape[1])
    counts, heard = one.sum(axis=1).astype(float), (one & known[..., None]).sum(axis=1).astype(float)
    sums = np.where(one & known[..., None], told[..., None], 0.0).sum(axis=1)
    if rule == "square-root":
        free = np.sqrt((sums + 0.5) / (heard + 1)) * open_
    else:
        means, deviations = _posterior(counts, heard, sums)
        scores = ArmScores(np.where(open_, means, np.nan), deviations)
        if rule == "LinTS":
            return FixedShares(Thompson(), least).probabilities(scores)
        free = Thompson().probabilities(scores) ** (share / 2)
    floors = least * open_
    left = 1 - floors.sum(axis=1, keepdims=True)
    return np.asarray(floors + left * free / free.sum(axis=1, keepdims=True))


def _posterior(counts: Array, heard: Array, sums: Array) -> tuple[Array, Array]:
    """Return means and deviations of the arms by ridge regression on a column for each arm, and a constant."""
    count = counts.shape[1]
    x = np.column_stack([np.eye(count), np.ones(count)])

    def matrix(weights: Array) -> Array:
        return np.asarray(np.eye(count + 1) + np.einsum("rk,ki,kj->rij", weights, x, x))

    theta = np.linalg.solve(matrix(heard), (sums @ x)[..., None])[..., 0]
    spread = np.einsum("ki,rij,kj->rk", x, np.linalg.inv(matrix(counts)), x)
    return theta @ x.T, np.sqrt(spread)


# --- what was known at each look


def _futile(trials: Trials, plan: AnalysisPlan, open_: BoolArray) -> BoolArray:
    """Return (R, K): which of the open arms the last of the looks so far finds futile."""
    cuts, found = cuts_of(trials, plan), np.zeros(open_.shape, np.bool_)
    for run, arm in np.argwhere(open_[:, 1:]):
        found[run, arm + 1] = is_futile(cuts[run][arm], plan, share_of(plan, len(cuts[run])))
    return found


def cuts_of(trials: Trials, plan: AnalysisPlan) -> list[list[list[Cut]]]:
    """Return, for each trial and each comparison with arm 0, what was known at the looks that have come.

    An arm that was closed has the share of its own outcomes, as in `Study.analysis`.
    """
    runs, n, count = trials.chances.shape
    out: list[list[list[Cut]]] = [[[] for _ in range(count - 1)] for _ in range(runs)]
    for at in (at for at in plan.at if at <= n):
        known = trials.came[:, :at] <= (at if at < plan.rounds else np.finfo(float).max)
        share = known.sum(axis=1) / plan.rounds if at < plan.rounds else np.ones(runs)
        arms, rewards, chances = trials.arms[:, :at], trials.rewards[:, :at], trials.chances[:, :at]
        q = _predictions(arms, rewards, known, count, trials.within)
        for arm in range(1, count):
            pair = [arm, 0]
            both = known & (chances[..., pair] > 0).all(axis=2)
            inverse = 1 / np.where(both[..., None], chances[..., pair], 1.0)
            chosen = (arms[..., None] == pair) * inverse
            x = (q[..., pair] + chosen * (rewards[..., None] - q[..., pair])) @ np.array([1.0, -1.0])
            h = both * stable_weights(inverse.sum(axis=2), 2.0 * count, both)
            found = summarise(x, h, np.moveaxis(h[..., None] * chosen, 2, 0), rewards, trials.within)
            closed = chances[:, -1, arm] == 0
            for run, summary in enumerate(found):
                own = min(share[run], summary.rounds / plan.rounds) if closed[run] else share[run]
                out[run][arm - 1].append(Cut(at, float(own), summary))
    return out


def _predictions(arms: IntArray, rewards: Array, known: BoolArray, count: int, within: Any) -> Array:
    """Return q (R, n, K): of each arm the mean of its earlier rewards, of all arms if it has none."""
    runs, n = arms.shape
    q = np.full((runs, n, count), 0.0 if within is None else sum(within) / 2)
    for start, end in stretches(n):
        heard = known[:, :start, None] & (arms[:, :start, None] == np.arange(count))
        told = np.where(heard, rewards[:, :start, None], 0.0).sum(axis=1)
        counts, total = heard.sum(axis=1), known[:, :start].sum(axis=1)
        level = np.where(total > 0, told.sum(axis=1) / np.maximum(total, 1), q[0, 0, 0])
        q[:, start:end] = np.where(counts > 0, told / np.maximum(counts, 1), level[:, None])[:, None]
    return q if within is None else np.clip(q, *within)
