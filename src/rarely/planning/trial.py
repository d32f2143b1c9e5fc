"""How many patients and looks a trial needs for a wanted power or width, by simulation of whole trials.

Each simulated trial is decided by the policy under the limits of its stages, updated at every look, and analysed as
`Study.analysis` does: what is planned is what will be computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from rarely import AtRounds, BatchNeuralUCB, InvalidInput, LinTS, LinUCB, Policy, Training
from rarely.extend import Array, Progress, read_progress
from rarely.extend.checks import as_number, check_choice, check_not_negative, check_whole, shown
from rarely.extend.provisional import rule_of, set_rule
from rarely.offpolicy.intervals import Span, check_level, deviations, score
from rarely.pages.grid import Grid
from rarely.runs.sealed_json import plain_json
from rarely.study import AnalysisPlan, Stage
from rarely.study.boundaries import Spending
from rarely.study.effects import Outcomes, anytime, predict_rewards, scores_of
from rarely.study.looks import planned_looks
from rarely.study.trial import rule_of_stage, stage_at

TrialPolicy = Literal["LinTS", "LinUCB", "default"]
SIZES = (0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Patients that are tried by default, in units of what two equal groups would need without looks."""
HEAD = ["patients", "looks", "power", "95 % of it", "width", "stopped after", "best arm", "anytime power", "coverage"]


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
    power: float
    """The share of trials in which a look found the best arm better than the control arm."""
    low: float
    """Where a 95 % interval of the power begins, for the number of simulated trials."""
    high: float
    """Where it ends."""
    width: float
    """The mean width of the last look's interval."""
    stopped: float
    """The mean number of patients if a trial ends with the first look that excludes 0."""
    best: float
    """The share of patients with the best arm."""
    anytime: float
    """The power of the anytime interval, looked at as often."""
    coverage: float
    """The share of trials in which all looks contained the true difference."""


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
    policy: TrialPolicy
    runs: int
    seed: int
    points: tuple[TrialPoint, ...]

    @property
    def enough(self) -> TrialPoint | None:
        """The fewest patients, and then the fewest looks, that surely reach what is wanted; None if none does."""
        fit = [point for point in self.points if self.reaches(point)]
        return min(fit, key=lambda point: (point.patients, point.looks), default=None)

    def reaches(self, point: TrialPoint) -> bool:
        """Return whether a point has the wanted power, by the lower end of its interval, and the wanted width."""
        strong = self.power is None or point.low >= self.power
        return strong and (self.width is None or point.width <= self.width)

    def grid(self) -> Grid:
        """Return the curve as a table."""
        rows = []
        for p in self.points:
            row = [f"{p.patients}", f"{p.looks}", f"{p.power:.0%}", f"{p.low:.0%} to {p.high:.0%}", f"{p.width:.3f}"]
            rows.append([*row, f"{p.stopped:.0f}", f"{p.best:.0%}", f"{p.anytime:.0%}", f"{p.coverage:.1%}"])
        return Grid(HEAD, rows, 0)

    def advice(self) -> list[str]:
        """Return what to do, and what it rests on, in sentences; a line of code comes second if there is one."""
        wanted = [f"power {self.power:.0%}"] if self.power is not None else []
        wanted += [f"width {self.width:g}"] if self.width is not None else []
        point, text = self.enough, " and ".join(wanted)
        rewards = "yes or no" if self.noise is None else f"normal with deviation {self.noise:g}"
        rests = (
            f"{self.runs} simulated trials per row, seeds {self.seed} to {self.seed + self.runs - 1}; mean rewards "
            f"{', '.join(f'{mean:g}' for mean in self.means)} (the first is the control arm), rewards {rewards}; "
            f"{self.policy}, at least {self.least:g} for each arm after the first {self.burn_in:.0%}; {self.spending}, "
            f"level {self.level:g}. Covariates, missing rewards and changes over time are not simulated."
        )
        if point is None:
            return [f"None of these sizes surely reaches {text}: try more patients, or a higher limit.", rests]
        plan = AnalysisPlan(point.patients, point.looks, self.spending, self.level)
        stages = _stages(plan, self.burn_in, self.least)
        code = (
            f"schedule=AtRounds({_updates(plan, stages)}), stages=[Stage('burn-in', {stages[0].rounds}, burn_in=True), "
            f"Stage('adaptive', least={self.least:g})], plan={plan!r}"
        )
        return [f"{point.patients} patients with {point.looks} looks surely reach {text}.", code, rests]

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
    policy: TrialPolicy = "LinTS",
    runs: int = 200,
    seed: int = 0,
    progress: Progress = None,
) -> TrialPlan:
    """Simulate trials of several sizes, and return their power and the widths of their intervals.

    Parameters
    ----------
    means
        Mean rewards of the arms, the control arm first: what you expect, or the smallest difference that matters.
    power, width
        What is wanted: the probability that some look finds the best arm better than the control arm, and the mean
        width of the last look's interval. None for no wish.
    noise
        The standard deviation of normal rewards; None for rewards of 0 and 1.
    patients, looks
        The sizes to try, by default around what two equal groups need; numbers of looks, at which it is updated.
    spending, level
        See `rarely.study.AnalysisPlan`.
    least, burn_in
        The allocation limit, and the share of patients that are assigned to all arms alike before.
    policy
        "LinTS", "LinUCB" or "default", which is BatchNeuralUCB with a short training.
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
    values = _check(means, power, width, noise, least, burn_in, runs, seed)
    check_choice("policy", policy, TrialPolicy)
    check_level(level)
    sizes = _sizes(values, noise, level, power) if patients is None else _counts("patients", patients, 2)
    counts = _counts("looks", looks, 1)
    cases, points = list(product(sizes, counts)), []
    for done, (size, count) in enumerate(cases):
        plan = AnalysisPlan(size, int(count), spending, level)
        stages, trials = _stages(plan, burn_in, least), []
        updates = _updates(plan, stages)
        for run in range(runs):
            progress("trials", done * runs + run, len(cases) * runs)
            rewards = draw_rewards(values, noise, size, seed + run)
            contexts = np.broadcast_to(np.eye(len(values)), (size, len(values), len(values)))
            made = make_policy(policy, len(values), updates, seed + run)
            trials.append(_judged(simulate_trial(made, contexts, rewards, stages, updates), plan, values))
        points.append(_point(np.array(trials), plan))
    progress("trials", len(cases) * runs, len(cases) * runs)
    chosen = (values, noise, power, width, float(least), float(burn_in), spending, level, policy, runs, seed)
    return TrialPlan(*chosen, tuple(points))


def _check(means: Any, power: Any, width: Any, noise: Any, least: Any, burn_in: Any, runs: Any, seed: Any) -> Any:
    values = tuple(float(as_number(mean)) for mean in means) if isinstance(means, Sequence | np.ndarray) else ()
    if len(values) < 2 or not all(math.isfinite(mean) for mean in values) or max(values[1:]) <= values[0]:
        raise InvalidInput(
            f"means must be two or more numbers, the control arm's first and another above it; got {shown(means)}."
        )
    if noise is None and not all(0 <= mean <= 1 for mean in values):
        raise InvalidInput(f"means of rewards 0 and 1 lie between 0 and 1; give noise for others; got {shown(means)}.")
    if noise is not None:
        check_not_negative("noise", noise, "because it is a standard deviation")
    wishes = [0 < as_number(wish) < most for wish, most in ((power, 1), (width, math.inf)) if wish is not None]
    if not wishes or not all(wishes):
        raise InvalidInput(f"power between 0 and 1 or width above 0 must be wanted; got {power!r} and {width!r}.")
    if not 0 < as_number(least) <= 1 / len(values) or not 0 < as_number(burn_in) < 1:
        most = f"1/{len(values)}"
        raise InvalidInput(f"least must be above 0 and at most {most}, burn_in in (0, 1); got {least!r}, {burn_in!r}.")
    check_whole("runs", runs, 1)
    check_whole("seed", seed, 0)
    return values


def _counts(name: str, counts: Any, least: int) -> list[int]:
    values = list(counts) if isinstance(counts, Sequence | np.ndarray) else [counts]
    for value in values or [counts]:
        check_whole(name, value, least)
    return [int(value) for value in values]


def _sizes(means: Sequence[float], noise: float | None, level: float, power: float | None) -> list[int]:
    """Return sizes around that of a trial with two equal groups and one look, rounded to two digits."""
    best = max(means)
    variance = sum(mean * (1 - mean) for mean in (means[0], best)) if noise is None else 2 * noise**2
    needed = deviations(level) + NormalDist().inv_cdf(0.8 if power is None else power)
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


def draw_rewards(means: Sequence[float], noise: float | None, patients: int, seed: int) -> Array:
    """Return (n, K) rewards of all arms."""
    rng, levels = np.random.default_rng([seed, 4]), np.asarray(means)
    if noise is None:
        return (rng.random((patients, len(levels))) < levels).astype(float)
    return np.asarray(levels + noise * rng.normal(size=(patients, len(levels))))


def simulate_trial(
    policy: Policy, contexts: Array, rewards: Array, stages: Sequence[Stage], updates: Sequence[int]
) -> Outcomes:
    """Play a trial on (n, K, d) contexts and (n, K) rewards of all arms, with updates after the given rounds.

    The end of each stage must be among the updates.
    """
    n, count = rewards.shape
    names, rule = [str(arm) for arm in range(count)], rule_of(policy)
    arms, chances = np.zeros(n, np.int64), np.zeros((n, count))
    for start, end in pairwise([0, *(update for update in updates if update < n), n]):
        set_rule(policy, rule_of_stage(stages[stage_at(stages, start + 1)[0]], rule, names))
        decision = policy.select(contexts[start:end])
        arms[start:end], chances[start:end] = decision.arms, decision.probabilities
        policy.observe(decision, rewards[np.arange(start, end), decision.arms])
        set_rule(policy, rule)
        if end < n:
            policy.update()
    within = (0.0, 1.0) if ((rewards == 0) | (rewards == 1)).all() else None
    return Outcomes(contexts, np.ones((n, count), np.bool_), arms, rewards[np.arange(n), arms], chances, within)


def _judged(outcomes: Outcomes, plan: AnalysisPlan, means: Sequence[float]) -> list[float]:
    """Return power, width, patients until the first look that excludes 0, best share, anytime power and coverage."""
    best, n = int(np.argmax(means)), len(outcomes.arms)
    scores, truth = scores_of(outcomes, predict_rewards(outcomes), best, 0), means[best] - means[0]
    looks = planned_looks(scores, plan, n)
    clear = [look.round for look in looks if look.low > 0]
    always = [anytime(scores.until(look), plan.rounds, 1 - plan.level) for look in plan.at]
    held = all(look.low <= truth <= look.high for look in looks)
    width = looks[-1].high - looks[-1].low if looks else math.inf
    share = float((outcomes.arms == best).mean())
    return [bool(clear), width, min(clear, default=n), share, any(low > 0 for low, _ in always), held]


def _point(trials: Array, plan: AnalysisPlan) -> TrialPoint:
    power, width, stopped, best, always, held = trials.mean(axis=0).tolist()
    runs, all_of_it = len(trials), (0.0, 1.0)
    # Wilson's interval of a proportion.
    ends = score(power, math.sqrt(power * (1 - power) / runs), deviations(0.95), Span(*all_of_it, runs), 1.0, all_of_it)
    return TrialPoint(plan.rounds, len(plan.at), power, *ends, width, stopped, best, always, held)
