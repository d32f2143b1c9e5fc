"""Which policy for a log of decisions: judged three ways, and said in a sentence.

    C    candidates   policies, made anew for every run, and choosing at random
    V    values       mean reward of a round, of each candidate while it learns
    D    difference   of two values, with its standard error s

    replay       a candidate learns online from the rounds of the log in which it would have chosen the log's arm,
                 thinned so that what it meets is as if it had decided itself (Li et al., 2011); all other rounds judge
                 what it would have done there, doubly robustly (Dudík et al., 2012). Needs probabilities.
    learned      it learns from all folds of the log but one, and that one judges it: what it earns in the end
    simulation   it learns online in a world that is fitted to the log, with rewards of the log's kind

Replay is honest and noisy, a simulation is precise and as wrong as its model. A simulated D counts as sure to within
`MODEL_ERROR` of itself; the two are averaged by their precision and, where they contradict each other, s grows by as
much (Birge, 1932). What is learned stands in for a replay where too few rounds can be replayed. A model that foresees
nothing of rewards that it has not seen has no say. `python benchmarks/advice.py` counts how often the answer is wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from rarely import AtRounds, FramePolicy, Paced, Policy
from rarely.errors import InvalidInput
from rarely.extend import Array, Progress, read_progress
from rarely.extend.checks import shown
from rarely.logs.decision_log import DecisionLog, check_log
from rarely.logs.tables import InvalidLog
from rarely.pages.grid import Grid
from rarely.planning.simulate import (
    CANDIDATES,
    FOLDS,
    LoggedRounds,
    LogWorld,
    Make,
    Maker,
    arguments_of,
    check_each_whole,
    fit_rewards,
    play,
)
from rarely.runs.files import plain_json
from rarely.runs.statistics import t_quantile

RANDOM = "at random"
MAX_ROWS = 6000  # rounds of a log that are used; of a longer one these many are drawn
MAX_HORIZON = 2000
LADDER = (8, 1)  # the first runs are of an eighth of the horizon, so that there is an answer soon
MIN_RUNS = 3
MIN_REPLAYED = 150  # rounds that a candidate must be able to replay
TOLERANCE = 0.05  # policies whose gains over chance differ by this share of the best are as good as each other
MODEL_ERROR = 0.4  # standard error of a simulated difference, in units of itself, that its model may cause
LEAST_ERROR = 0.01  # the same in units of the gain over chance
CHEAP = 2.0  # times the least cost that is as cheap: clocks say no more
SURE = NormalDist().inv_cdf(0.975)  # standard errors in an interval of 95 %
TINY = 1e-150


@dataclass(frozen=True)
class Evidence:
    """What one source says of each candidate, and of choosing at random, which comes last."""

    terms: Array  # (n, C + 1): a value for each round or run
    between_runs: Array | float = 0.0
    """(C + 1, C + 1): variance of differences that is one run's luck, and of which the source has a single draw."""

    def difference(self, a: int, b: int) -> tuple[float, float]:
        """Return D and its standard error."""
        each, runs = self.terms[:, a] - self.terms[:, b], np.asarray(self.between_runs)
        few = (t_quantile(len(each) - 1) / SURE) ** 2  # what three runs show of their spread is not much
        own = few * float(each.var(ddof=1)) / len(each)
        return float(each.mean()), math.sqrt(own + (float(runs[a, b]) if runs.ndim else 0.0))


@dataclass(frozen=True)
class Advice:
    """An answer to "which policy for my log?"; `str` is a table and a sentence.

    Examples
    --------
    >>> print(Advice(("a",), 9, 2, 9, 3, 0, ((1.0, 0.5, 1.5),), {}, ((1e-3, 0.1),), "a", "Take a."))
    policy  gain over chance    interval  a decision  an update
         a                 1  0.5 to 1.5        1 ms      0.1 s
    Take a.
    """

    names: tuple[str, ...]
    horizon: int
    batches: int
    rounds: int
    runs: int
    replayed: int  #: Rounds that the first candidate could replay; 0 without probabilities.
    gains: tuple[tuple[float, float, float], ...]  #: Of each candidate what a round earns over chance, with interval.
    sources: dict[str, tuple[tuple[float, float], ...]]  #: What each source alone says of that, with standard errors.
    seconds: tuple[tuple[float, float], ...]  #: For each candidate the seconds of a decision, and of an update.
    recommended: str | None  #: The name of the candidate; None where the log cannot tell.
    sentence: str  #: The recommendation, or why there is none.
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ["policy", "gain over chance", "interval", *self.sources, "a decision", "an update"]
        rows = []
        for i, name in enumerate(self.names):
            gain, low, high = self.gains[i]
            cells = [f"{value:.3g} ± {error:.2g}" for value, error in (each[i] for each in self.sources.values())]
            decide, update = self.seconds[i]
            cost = [f"{1e3 * decide:.2g} ms", f"{update:.2g} s"]
            rows.append([name, f"{gain:.3g}", f"{low:.3g} to {high:.3g}", *cells, *cost])
        return "\n".join([*Grid(head, rows, numbers=1).lines(), *(f"- {note}" for note in self.notes), self.sentence])

    def describe(self) -> dict[str, Any]:
        """Return the advice as JSON."""
        return dict(plain_json(asdict(self)))


def advise(
    log: DecisionLog,
    candidates: Mapping[str, Make | Policy | FramePolicy | str] | Sequence[str] | None = None,
    *,
    horizon: int | None = None,
    batches: int = 20,
    runs: int = 10,
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> Advice:
    """Say which policy suits a log of decisions, with what it rests on, or that the log cannot tell.

    Parameters
    ----------
    log
        Decisions with rewards; with the probabilities of the chosen arms the answer rests on the log itself, too.
    candidates
        Names of `CANDIDATES`, "ensemble" for trees on resamples, or policies of your own by name: a `Policy` or a
        `FramePolicy`, whose kind and settings count, a class, or a function of `(dim, schedule, *, context_scale,
        seed)`. None compares all of `CANDIDATES`.
    horizon, batches
        Decisions to come, by default as many as the log has, at most 2000; versions of the policy, the first included.
    runs, seconds
        Simulated runs, and seconds after which no other is begun. Only `runs` gives the same answer every time.
    seed, progress
        The seed of everything that is drawn; as in `rarely.planning.plan`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, arms = rng.normal(size=(600, 2)), rng.integers(2, size=600)
    >>> past = {"arms": arms, "rewards": rows[:, 0] * arms, "propensities": [0.5] * 600}
    >>> log = DecisionLog.from_arrays(rows=rows, arm_count=2, **past)
    >>> advise(log, ["LinUCB", "LinTS"], horizon=200, runs=3).names
    ('LinUCB', 'LinTS')
    """
    *_, last = improving(**locals())
    return last


def improving(*log: Any, **given: Any) -> Iterator[Advice]:
    """Yield the advice as it improves: soon after a few short runs, then with every run; arguments as in `advise`."""
    begun, asked = time.monotonic(), arguments_of(advise, log, given)
    told = read_progress(asked.progress, "a stage, the steps done and their total")
    made = read_candidates(asked.candidates)
    check_log(asked.log)
    check_each_whole(asked, batches=2, runs=MIN_RUNS, seed=0)
    if asked.horizon is not None:
        check_each_whole(asked, horizon=2 * asked.batches)
    horizon = min(asked.horizon or len(asked.log), MAX_HORIZON)
    comparison = Comparison(made, asked.log, horizon, asked.batches, asked.seed)
    told("replay", 0, len(made))
    comparison.replay(lambda done: told("replay", done, len(made)))
    lengths = [shorter for shorter in LADDER for _ in range(asked.runs if shorter == 1 else MIN_RUNS)]
    for done, shorter in enumerate(lengths, 1):
        answered = any(len(runs) >= MIN_RUNS for runs in comparison.simulated.values())
        if answered and asked.seconds is not None and time.monotonic() - begun > asked.seconds:
            return
        comparison.play(shorter)
        told("simulation", done, len(lengths))
        if len(comparison.simulated[shorter]) >= MIN_RUNS:
            yield comparison.advice()


def read_candidates(candidates: Any) -> dict[str, Maker]:
    """Return candidates by name."""
    if isinstance(candidates, str) or not isinstance(candidates, Mapping | Sequence | None):
        raise InvalidInput(f"candidates must be names, or a dictionary of policies by name; got {shown(candidates)}.")
    named = candidates if isinstance(candidates, Mapping) else {name: name for name in candidates or CANDIDATES}
    if len(named) < 2:
        raise InvalidInput(f"at least two candidates are needed for a comparison; got {', '.join(named) or 'none'}.")
    return {str(name): Maker(make) for name, make in named.items()}


class Comparison:
    """Candidates on one log, and what is known of them so far."""

    def __init__(self, makes: dict[str, Maker], log: DecisionLog, horizon: int, batches: int, seed: int) -> None:
        """Fit the rewards of a log, or of as many of its rounds as are used."""
        self.rewards = fit_rewards(LoggedRounds(log if len(log) <= MAX_ROWS else _part(log, seed)), seed)
        if horizon < 2 * batches:
            raise InvalidLog(f"advice needs at least {2 * batches} rounds for {batches} batches; got {horizon}.")
        self.makes, self.horizon, self.batches, self.seed, self.total = makes, horizon, batches, seed, len(log)
        self.world = LogWorld(self.rewards.log, self.rewards, horizon)
        self.logged: dict[str, Evidence] = {}
        self.replayed = 0
        self.simulated: dict[int, list[Array]] = {}  # less mean regrets, by what the horizon was divided by
        self.seconds: dict[str, tuple[float, float]] = {}

    @property
    def lives(self) -> int:
        """How often a candidate begins anew in a replay."""
        return max(1, round(self.replayed / self.horizon))

    # --- by the log itself

    def replay(self, told: Callable[[int], None]) -> None:
        """Judge each candidate by the log: as it learns where enough rounds can be replayed, else what it learned."""
        log = self.rewards.log.log
        places = log.observed
        if len(places) < MIN_REPLAYED or not np.isfinite(log.propensities[places]).all():
            return
        each, arms = np.arange(len(places)), log.arms[places]
        paid, chances, expected = log.rewards[places], log.propensities[places], self.rewards.held_out()[places]
        part = float(np.quantile(chances, 0.02))
        self.replayed = int(part * len(places))
        online = self.replayed >= max(MIN_REPLAYED, 2 * self.batches)
        targets = []
        for done, make in enumerate(self.makes.values(), 1):
            accepted = np.minimum(1, part / chances) if online else None
            targets.append((self._replayed if online else self._learned)(make, places, arms, paid, accepted))
            told(done)
        targets.append(np.full(expected.shape, 1 / log.arm_count))
        missed = paid - expected[each, arms]
        terms = [(target * expected).sum(axis=1) + target[each, arms] / chances * missed for target in targets]
        self.logged = {"replay" if online else "learned": Evidence(np.column_stack(terms))}
        self.replayed *= online

    def _replayed(self, make: Maker, places: Any, arms: Any, paid: Array, accepted: Any) -> Array:
        """Return (n, K): a candidate's probabilities in each round of the log, in which it learns on its way.

        Where more rounds can be replayed than there are decisions to come, it begins anew after each so many.
        """
        generator, rounds = np.random.default_rng((self.seed, 6)), self.rewards.log
        order, luck = generator.permutation(len(places)), generator.random(len(places))
        target = np.empty((len(places), rounds.arms))
        for life, mine in enumerate(np.array_split(order, self.lives)):
            schedule = Paced(self.replayed // self.lives, self.batches)
            policy = make(self.world.dim, self.world.context_scale, schedule, self.seed + life)
            start = 0
            while start < len(mine):
                # Bonuses follow every round; a larger stretch under the same ones would cost what exploration brings.
                rows = mine[start : start + max(4, start // 40)]
                contexts = rounds.contexts(places[rows])
                chances = policy.probabilities(contexts)
                same = chances[np.arange(len(rows)), arms[rows]]
                hits, end = np.flatnonzero(luck[rows] < accepted[rows] * same), len(rows)
                if len(hits):
                    # A round with the chosen arm alone is one in which the policy chooses it.
                    alone = contexts[hits, arms[rows[hits]]][:, None]
                    decision = policy.select(alone, until_due=True)
                    policy.observe(decision, paid[rows[hits[: len(decision)]]])
                    end = int(hits[len(decision) - 1]) + 1 if policy.due else end
                target[rows[:end]] = chances[:end]
                start += end
                if policy.due:
                    policy.update()
        return target

    def _learned(self, make: Maker, places: Any, arms: Any, paid: Array, _: Any) -> Array:
        """Return (n, K): the probabilities of a candidate that has learned from the other folds."""
        rounds, folds = self.rewards.log, self.rewards.folds[places]
        target = np.empty((len(places), rounds.arms))
        for fold in range(FOLDS):
            seen, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            policy = make(self.world.dim, self.world.context_scale, AtRounds([len(seen)]), self.seed)
            alone = rounds.contexts(places[seen])[np.arange(len(seen)), arms[seen]][:, None]
            policy.observe(policy.select(alone), paid[seen])
            policy.update()
            target[held] = policy.probabilities(rounds.contexts(places[held]))
        return target

    # --- by simulation

    def play(self, shorter: int) -> None:
        """Play another run of every candidate, of the horizon divided by `shorter`."""
        rounds, runs = self._rounds(shorter), self.simulated.setdefault(shorter, [])
        seed = int(np.random.SeedSequence((self.seed, shorter, len(runs))).generate_state(1)[0])
        world = self.world.with_runs([seed])
        means = world.rounds(seed, rounds).means
        outcomes = [play(world, make, rounds, Paced(rounds, self.batches), seed) for make in self.makes.values()]
        self.seconds = {name: outcome.seconds for name, outcome in zip(self.makes, outcomes, strict=True)}
        regrets = [outcome.regret / rounds for outcome in outcomes]
        runs.append(-np.array([*regrets, (means.max(axis=1) - means.mean(axis=1)).mean()]))

    def _rounds(self, shorter: int) -> int:
        return max(self.horizon // shorter, 2 * self.batches)

    # --- the answer

    def advice(self) -> Advice:
        """Return what all evidence so far says."""
        shorter = next(each for each in reversed(LADDER) if len(self.simulated.get(each, ())) >= MIN_RUNS)
        simulation, rounds = Evidence(np.array(self.simulated[shorter])), self._rounds(shorter)
        sources, runs = dict(self.logged), simulation.terms
        if "replay" in sources:  # one log is one run of a candidate, whose luck only a simulation shows
            luck = (runs[:, :, None] - runs[:, None, :]).var(axis=0, ddof=1) * rounds / self.replayed
            sources["replay"] = Evidence(sources["replay"].terms, luck)
        verdict = Verdict(tuple(self.makes), sources, simulation, self.rewards.fit.r_squared > 0)
        costs, every = tuple(self.seconds.values()), range(len(self.makes))
        recommended, sentence = verdict.answer([self.horizon * a + self.batches * b for a, b in costs])
        said = sources | {"simulation": simulation}
        return Advice(
            names=verdict.names,
            horizon=self.horizon,
            batches=self.batches,
            rounds=self.total,
            runs=len(runs),
            replayed=self.replayed,
            gains=tuple(verdict.interval(i, -1) for i in every),
            sources={name: tuple(each.difference(i, -1) for i in every) for name, each in said.items()},
            seconds=costs,
            recommended=None if recommended is None else verdict.names[recommended],
            sentence=sentence,
            notes=tuple(self._notes(rounds, sources)),
        )

    def _notes(self, rounds: int, sources: Mapping[str, Evidence]) -> Iterator[str]:
        fit = self.rewards.fit
        foreseen = f"{100 * fit.r_squared:.0f} %" if fit.r_squared > 0 else "nothing"
        yield (
            f"simulation: {rounds} rounds, {self.batches} batches, on rewards fitted to {fit.rewards} of the log's; "
            f"the model foresees {foreseen} of the variance of those that it has not seen"
            + ("" if fit.r_squared > 0 or not sources else "; so it has no say")
        )
        if "replay" in sources:
            times = f", {self.lives} times" if self.lives > 1 else ""
            yield f"replay: about {self.replayed // self.lives} rounds of the log, as if it had decided{times}"
        elif "learned" in sources:
            yield "learned: judged on a third of the log after learning from the others; too few rounds can be replayed"
        else:
            yield "without the probabilities of the chosen arms (--probability) all rests on the simulation"
        if self.total > MAX_ROWS:
            yield f"{MAX_ROWS} of the log's {self.total} rounds are used, drawn at random"


@dataclass(frozen=True)
class Verdict:
    """All evidence together."""

    names: tuple[str, ...]
    logged: Mapping[str, Evidence]
    simulation: Evidence
    trusted: bool  # whether the simulation's model foresees anything

    def difference(self, a: int, b: int) -> tuple[float, float]:
        """Return D of two candidates, −1 for choosing at random, and its standard error."""
        found = [each.difference(a, b) for each in self.logged.values()]
        if self.trusted or not found:
            value, error = self.simulation.difference(a, b)
            most = max(self.simulation.difference(i, -1)[0] for i in range(len(self.names)))
            found.append((value, math.hypot(error, MODEL_ERROR * value, LEAST_ERROR * most)))
        weights = [1 / max(error, TINY) ** 2 for _, error in found]
        mean = sum(weight * value for weight, (value, _) in zip(weights, found, strict=True)) / sum(weights)
        apart = sum(weight * (value - mean) ** 2 for weight, (value, _) in zip(weights, found, strict=True))
        return mean, math.sqrt(max(1.0, apart / max(len(found) - 1, 1)) / sum(weights))

    def interval(self, a: int, b: int) -> tuple[float, float, float]:
        """Return the same difference with its interval."""
        value, error = self.difference(a, b)
        return value, value - SURE * error, value + SURE * error

    def answer(self, costs: Sequence[float]) -> tuple[int | None, str]:
        """Return the recommended candidate, if there is one, and a sentence; costs are the seconds of all decisions."""
        every = range(len(self.names))
        gains = [self.interval(i, -1) for i in every]

        def cheapest(some: Sequence[int]) -> int:
            least = min(costs[i] for i in some)
            return max((i for i in some if costs[i] <= CHEAP * least), key=lambda i: gains[i][0])

        best = max(every, key=lambda i: gains[i][0])
        if not any(least > 0 for _, least, _ in gains):
            known = f" ({self.names[best]}: {_said(gains[best])} a round)" if abs(gains[best][1]) > SURE * TINY else ""
            return None, (
                f"Cannot tell: it is not shown that any of these earns more than choosing {RANDOM}{known}. "
                "Log more rounds, or other columns."
            )
        margin = TOLERANCE * gains[best][0]
        fine = [i for i in every if gains[i][1] > 0 and all(self.interval(i, j)[1] > -margin for j in every if j != i)]
        if not fine:
            left = [i for i in every if self.interval(i, best)[2] >= 0 or i == best]
            against = max((i for i in every if i != best), key=lambda i: gains[i][0])
            return None, (
                f"Cannot tell which of {', '.join(self.names[i] for i in left)} earns most: {self.names[best]} earns "
                f"{_said(self.interval(best, against))} more a round than {self.names[against]}. "
                f"{self.names[cheapest(left)]} costs least. "
                "To tell, log more rounds with probabilities, or ask for more runs (--runs)."
            )
        chosen = cheapest(fine)
        against = max((i for i in every if i != chosen), key=lambda i: gains[i][0])
        ahead, gain = self.interval(chosen, against), f"{_said(gains[chosen])} a round over chance"
        if ahead[1] > 0:
            return chosen, (
                f"Take {self.names[chosen]}: it earns {gain}, and {_said(ahead)} more than {self.names[against]}, the "
                "next best."
            )
        return chosen, (
            f"Take {self.names[chosen]}: it earns {gain}, surely within {100 * TOLERANCE:.0f} % as much as any other "
            f"({_said(ahead)} more than {self.names[against]}), in the least time."
        )


def _said(interval: tuple[float, float, float]) -> str:
    return "{:.3g} ({:.3g} to {:.3g})".format(*interval)


def _part(log: DecisionLog, seed: int) -> DecisionLog:
    """Return as many rounds of a log as are used, in their order."""
    places = np.sort(np.random.default_rng((seed, 7)).choice(len(log), MAX_ROWS, replace=False))
    apart = log.contexts.shape[2] > 0
    return DecisionLog.from_arrays(
        log.contexts[places] if apart else None,
        log.arms[places],
        log.rewards[places],
        propensities=None if np.isnan(log.propensities).any() else log.propensities[places],
        rows=None if log.rows is None else log.rows[places],
        mask=log.present[places] if apart else None,
        arm_count=log.arm_count,
        names=log.names,
        arm_names=log.arm_names,
    )
