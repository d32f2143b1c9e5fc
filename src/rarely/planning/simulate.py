"""What a plan simulates: the rounds of a log with rewards, policies on them, and one schedule in one run.

    B    batches   versions of a budget
    T    rounds    of each run

Rewards for the rounds of a log are one of two kinds:

    fitted      by networks that are trained on the log, judged by what they did not see
    simulated   the user's own function

All schedules of a run see the same rounds and the same noise, and start from the same weights.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from inspect import signature
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Literal, get_args

import numpy as np

from rarely import (
    Affine,
    ArmBlocks,
    BatchNeuralUCB,
    EnsemblePolicy,
    EveryRound,
    FramePolicy,
    LinTS,
    LinUCB,
    Policy,
    Schedule,
    load,
)
from rarely.extend import Array, ContextMap, IntArray
from rarely.extend.checks import check_whole, read_real, shown
from rarely.extend.provisional import errors
from rarely.logs.decision_log import DecisionLog
from rarely.logs.tables import InvalidLog
from rarely.worlds.protocol import Rounds, World, seeded

ScheduleKind = Literal["paced", "fixed", "geometric", "adaptive"]
KINDS: tuple[ScheduleKind, ...] = get_args(ScheduleKind)
Make = Callable[..., Policy]  #: A class, or a function of (dim, schedule, *, context_scale, seed), that makes a policy.
CANDIDATES: dict[str, Make] = {
    # A plan must not depend on the speed of the machine that makes it: exact.
    "default": partial(BatchNeuralUCB, covariance="exact"),
    "LinUCB": partial(LinUCB, ridge="learned"),
    "LinTS": partial(LinTS, ridge="learned"),
}
"""Policies by name: each is what a user constructs without settings, in any units of rewards."""


def ensemble(dim: int, schedule: Schedule, **given: Any) -> Policy:
    """Return trees on resamples of the rewards, of which each decision draws one (Elmachtoub et al., 2017)."""
    return EnsemblePolicy(
        {"class": "sklearn.tree:DecisionTreeRegressor", "min_samples_leaf": 5}, dim, schedule, **given
    )


NAMED: dict[str, Make] = CANDIDATES | {"ensemble": ensemble}
"""Those, and what is compared only if it is asked for, because it takes its time and needs scikit-learn."""
MAX_CONTEXT_BYTES = 2**26  # bytes of contexts that are made at once
PLANNER_SETTINGS = ("dim", "schedule", "seed", "context_scale", "intercept")  #: What the planner gives the policy.
REFERENCE_BATCHES = 64  # batches of the schedule that others are compared with; at most half of these are tried unasked
MIN_REWARDS = 50  # rewards below which a network is not fitted: a fifth of them would judge nothing
MAX_REWARDS = 5000  # rewards that a network is fitted to; of more, this many are picked at random
RARE_REWARDS = 10  # rewards of an arm below which next to nothing is known of it
NETWORKS: tuple[dict[str, Any], ...] = ({}, {"hidden": 64, "training": 400}, {"hidden": 64, "training": 1500})
"""Networks of which the one that foresees most is the reward model: one that tunes itself, and two that do not."""
FOLDS = 3  # parts of a log, each of which judges a network that was trained on the others
TINY = 1e-300
GRID = 33  # values of μ that have a distribution of their own
NEAR, EVERYWHERE = 200, 50
"""Rewards in each: those of which about as much was foreseen, and some of all, a tenth of the whole."""
HALVINGS = 60
TIMED = 3  # decisions that are timed, of which the quickest counts
DEFAULT_NOISE = 0.5  # noise of simulated rewards, in units of their spread, where it is not given

Simulator = Callable[[Array], Any]
_Secret = tuple[IntArray, Array, Array]


# --- a log as a world


class LoggedRounds:
    """The rounds of a log as they are played, in contexts scaled as preset `practical` scales them, with a constant.

        features  (n, r)      one row a round: an arm's context is the row in the arm's block
                  (n, K, f)   one row an arm: each has its own features

    All rounds must offer the same arms. Contexts are made when they are asked for: K blocks of every row at once would
    be K² times the log.
    """

    def __init__(self, log: DecisionLog) -> None:
        contexts, rows = log.contexts, log.rows
        check_whole("arms", log.arm_count, 2)
        shared = contexts.shape[2] == 0 and rows is not None
        counts = log.present.sum(axis=1)
        if not shared and (odd := np.flatnonzero(counts < log.arm_count)).size:
            raise InvalidLog(
                f"a plan needs the same arms in every round; of {log.arm_count}, round {log.rounds[odd[0]]} has "
                f"{counts[odd[0]]}. Plan for the rounds that have them all."
            )
        self.log, self.arms, self.features = log, log.arm_count, rows if shared and rows is not None else contexts
        flat = self.features.reshape(-1, self.features.shape[-1])
        self._blocks = ArmBlocks.fit(flat, self.arms) if shared else None
        self._scale = Affine.fit(flat)
        self.dim = self._scale.scaled_dim if self._blocks is None else self._blocks.dim

    def __len__(self) -> int:
        return len(self.features)

    def contexts(self, rounds: Any) -> Array:
        """Return scaled contexts (m, K, dim) of the rounds at these places of the log."""
        features = self.features[rounds]
        if self._blocks is not None:
            return self._blocks(features)
        return self._scale(features.reshape(-1, features.shape[-1])).reshape(*features.shape[:2], -1)


@dataclass(frozen=True)
class Fit:
    """How good a fitted network is."""

    rewards: int  # rewards that it learned from
    r_squared: float  # share of the variance of held-out rewards that it foresees: 1 is all, 0 or below is none
    noise: float  # standard deviation of held-out rewards around its predictions
    tuning: str  # how it was trained, and why so
    rare: tuple[tuple[int, int], ...]
    """(arm, rewards known of it) of arms with fewer than RARE_REWARDS; none where arms have features of their own."""


@dataclass(frozen=True, eq=False)
class RewardLaw:
    """Rewards of the log's kind around a mean: 0/1 stay 0/1, counts stay counts, and skewed ones stay skewed.

        μ    means     what an arm pays on average
        r    rewards   the log's, and what was foreseen of each by a model that had not seen it
        θ    tilts     p(r; θ) ∝ p(r)·exp(θr), whose mean is μ

    Around each of some values of μ stand the log's rewards of which about as much was foreseen. Where rewards cannot be
    negative these are tilted until their mean is μ: an exponential family, in which 0/1 are Bernoulli, Poisson counts
    are Poisson, and zeros remain zeros. A μ between two of these values takes one or the other at random, so the mean
    is exact. Where rewards may be negative, what is left of them is added to μ.
    """

    means: Array  # (G,): values of μ, in order
    values: Array  # (G, V): rewards, or what is left of them, in order
    sums: Array  # (G, V): their cumulated probabilities
    adds: bool  # whether values are added to μ

    @classmethod
    def of(cls, rewards: Array, foreseen: Array) -> RewardLaw:
        """Return the law of a log's rewards, of each of which so much was foreseen."""
        adds, low, high = bool(rewards.min() < 0), float(rewards.min()), float(rewards.max())
        left = rewards - foreseen if adds else rewards
        means = np.quantile(foreseen, np.linspace(0, 1, GRID))
        if not adds:
            means = np.concatenate([[low], np.clip(means, low, high), [high]])
        order = np.argsort(foreseen, kind="stable")
        width = min(len(rewards), max(NEAR, len(rewards) // 10))
        start = np.clip(np.searchsorted(foreseen[order], means) - width // 2, 0, len(rewards) - width)
        near = [np.quantile(left[order[i : i + width]], _levels(NEAR), method="nearest") for i in start]
        everywhere = np.quantile(left, _levels(EVERYWHERE), method="nearest")
        ends = [low, high] if not adds else []
        values = np.array([np.concatenate([each, everywhere, ends]) for each in near])
        weights = np.repeat([0.9 / NEAR, 0.1 / EVERYWHERE, 1e-6], [NEAR, EVERYWHERE, len(ends)])
        order = np.argsort(values, axis=1)
        values, weights = np.take_along_axis(values, order, 1), weights[order]
        if adds:
            values = values - (weights * values).sum(axis=1, keepdims=True)
        else:
            weights = _tilted(values, weights, means)
        sums = np.cumsum(weights, axis=1)
        return cls(np.maximum.accumulate(means), values, sums / sums[:, -1:], adds)

    def within(self, means: Array) -> Array:
        """Return means that rewards can have."""
        return means if self.adds else np.clip(means, self.means[0], self.means[-1])

    def draw(self, means: Array, luck: Array, more: Array) -> Array:
        """Return a reward for each mean, by two uniform numbers each."""
        after = np.clip(np.searchsorted(self.means, means), 1, len(self.means) - 1)
        gap = self.means[after] - self.means[after - 1]
        share = np.divide(means - self.means[after - 1], gap, out=np.zeros(means.shape), where=gap > 0)
        row = np.where(more < share, after, after - 1)
        drawn = np.empty(means.shape)
        for each in np.unique(row):
            mine = row == each
            place = np.searchsorted(self.sums[each], luck[mine], side="right")
            drawn[mine] = self.values[each, np.minimum(place, self.values.shape[1] - 1)]
        return means + drawn if self.adds else drawn


def _levels(count: int) -> Array:
    return (np.arange(count) + 0.5) / count


def _tilted(values: Array, weights: Array, means: Array) -> Array:
    """Return the weights, (G, V), multiplied by exp(θr), with the θ of each row that gives it its mean."""
    centre, spread = values.mean(), float(np.ptp(values))
    x, wanted = (values - centre) / spread, (means - centre) / spread
    low, high = np.full(len(means), -1e4), np.full(len(means), 1e4)

    def tilt(theta: Array) -> Array:
        logs = np.log(weights) + theta[:, None] * x
        out = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = (tilt(middle) * x).sum(axis=1) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return tilt((low + high) / 2)


@dataclass(frozen=True, eq=False)
class FittedRewards:
    """The means of networks, each trained on all folds of the log but one, and rewards of the log's kind around them.

    What a fold's rewards do not confirm of what was foreseen of them is taken from all means: `slope` is at most 1.
    """

    log: LoggedRounds
    networks: tuple[BatchNeuralUCB, ...]
    folds: IntArray  # the fold of each round of the log
    level: float
    slope: float
    law: RewardLaw
    fit: Fit
    deviation: float | None = None  # of normal noise, if it is given

    def means(self, rounds: IntArray, network: int = 0) -> Array:
        """Return what one network expects of these rounds, (m, K)."""
        parts = _parts(len(rounds), 8 * self.log.arms * self.log.dim)
        score = self.networks[network].score
        means = np.concatenate([score(self.log.contexts(rounds[part])).means for part in parts])
        return self.law.within(self.level + self.slope * (means - self.level))

    def held_out(self) -> Array:
        """Return (n, K): for each round of the log what is expected by the network that has not seen it."""
        means = np.empty((len(self.log), self.log.arms))
        for fold in range(FOLDS):
            mine = np.flatnonzero(self.folds == fold)
            means[mine] = self.means(mine, fold)
        return means

    def pay(self, means: Array, luck: Array) -> Array:
        """Return rewards of these means; `luck` has two uniform numbers for each."""
        if self.deviation is not None:
            return _normal(means, luck, self.deviation)
        return self.law.draw(means, luck[..., 0], luck[..., 1])


@dataclass(frozen=True, eq=False)
class SimulatedRewards:
    """The user's function of features, (m, r) or (m, K, f) as the log has them, to means (m, K)."""

    log: LoggedRounds
    simulator: Simulator
    deviation: float | None = None

    def means(self, rounds: IntArray, network: int = 0) -> Array:
        features = self.log.features[rounds]
        means = read_real(self.simulator(features), "means of the simulator", errors.InvalidInput)
        if means.shape != (len(rounds), self.log.arms) or not np.isfinite(means).all():
            raise errors.InvalidInput(
                f"the simulator must give a finite mean for every arm, {(len(rounds), self.log.arms)} of features "
                f"{features.shape}; got {means.shape}{'' if np.isfinite(means).all() else ', not all finite'}."
            )
        return means

    def check(self) -> None:
        """Raise InvalidInput for one that cannot be used, or that draws: means must be the same at every call."""
        some = np.arange(min(8, len(self.log)))
        if not np.array_equal(self.means(some), self.means(some)):
            raise errors.InvalidInput(
                "the simulator must give mean rewards, the same for the same features; got others the second time. "
                "Noise is added by the plan: leave it out of the simulator, or seed it."
            )

    def pay(self, means: Array, luck: Array) -> Array:
        """Return rewards of these means, of a run, with normal noise."""
        return _normal(means, luck, DEFAULT_NOISE * float(means.std()) if self.deviation is None else self.deviation)


Rewards = FittedRewards | SimulatedRewards
"""What arms pay on average, `means` (m, K) of rounds of the log, and what they pay in a run, `pay`."""


def _normal(means: Array, luck: Array, deviation: float) -> Array:
    radius = np.sqrt(-2 * np.log1p(-luck[..., 0]))
    return np.asarray(means + deviation * radius * np.cos(2 * np.pi * luck[..., 1]))


def fit_rewards(log: LoggedRounds, seed: int, *, noise: float | None = None) -> FittedRewards:
    """Train networks on the known rewards of a log, once without each fold, which then judges them; the best stays."""
    rounds, arms, rewards = log.log.known_rewards()
    if len(rewards) < MIN_REWARDS:
        raise InvalidLog(
            f"a reward model needs at least {MIN_REWARDS} rewards; the log has {len(rewards)}. Name their column "
            "(reward=…, --reward), log more of them, or give a simulator."
        )
    if not np.ptp(rewards) > 0:
        raise InvalidLog(f"rewards must differ for a model of them; all are {rewards[0]:g}. Give a simulator.")
    counts = np.bincount(arms, minlength=log.arms)
    few = np.flatnonzero(counts < RARE_REWARDS) if log.features.ndim == 2 else np.empty(0, np.int64)
    # Whole rounds in a random order: no round has one reward to learn from and another to be judged by.
    places = np.random.default_rng((seed, 5)).permutation(len(log))
    folds, order = places % FOLDS, np.argsort(places[rounds], kind="stable")[:MAX_REWARDS]
    rounds, arms, rewards = rounds[order], arms[order], rewards[order]
    contexts = np.empty((len(order), log.dim))
    for part in _parts(len(order), 8 * log.arms * log.dim):
        contexts[part] = log.contexts(rounds[part])[np.arange(len(arms[part])), arms[part]]
    spread, tried = 0.0, []
    for settings in NETWORKS:
        made, expected, spread = [], np.empty(len(rewards)), 0.0
        for fold in range(FOLDS):
            held = folds[rounds] == fold
            made.append(_trained(contexts[~held], rewards[~held], seed, settings))
            expected[held] = made[-1].score(contexts[held, None]).means[:, 0]
            spread += float(np.square(rewards[held] - rewards[~held].mean()).sum())
        tuning = ", ".join(f"{name}={value}" for name, value in settings.items()) or made[0].updates[-1].tuning
        tried.append((float(np.square(rewards - expected).sum()), expected, tuple(made), tuning))
    missed, foreseen, networks, tuning = min(tried, key=lambda each: each[0])
    level, centred = float(rewards.mean()), foreseen - foreseen.mean()
    slope = float(np.clip(centred @ rewards / max(float(centred @ centred), TINY), 0, 1))
    law = RewardLaw.of(rewards, level + slope * (foreseen - level))
    fit = Fit(
        rewards=len(order),
        r_squared=1 - missed / spread if spread > 0 else 0.0,
        noise=noise if noise is not None else float(np.sqrt(missed / len(rewards))),
        tuning=tuning,
        rare=tuple(zip(few.tolist(), counts[few].tolist(), strict=True)),
    )
    return FittedRewards(log, networks, folds, level, slope, law, fit, noise)


def _trained(contexts: Array, rewards: Array, seed: int, settings: Mapping[str, Any] = NETWORKS[0]) -> BatchNeuralUCB:
    """Train a network; its bonuses are not used, so the cheapest covariance does."""
    given: dict[str, Any] = {"context_scale": Affine.identity(contexts.shape[1]), "covariance": "diagonal"}
    return BatchNeuralUCB.from_log(contexts, rewards, schedule=EveryRound(), seed=seed, **given, **settings)


@dataclass(eq=False)
class LogWorld(World):
    """The rounds of a log in a random order, and drawn with replacement beyond its end, paying such rewards."""

    log: LoggedRounds
    rewards: Rewards
    horizon: int
    drawn: Mapping[int, _Secret] = field(default_factory=dict)
    """Order, means and rewards of some runs, by their seeds: made once, shared by all schedules."""

    def __post_init__(self) -> None:
        self.arms, self.dim, self.context_scale = self.log.arms, self.log.dim, Affine.identity(self.log.dim)

    def with_runs(self, seeds: Sequence[int]) -> LogWorld:
        """Return the same world with the means of these runs computed once: simulators may be slow."""
        return replace(self, drawn={seed: self.secret(seeded(seed, 0)) for seed in seeds})

    def secret(self, generator: np.random.Generator) -> _Secret:
        order = generator.permutation(len(self.log))[: self.horizon]
        again = generator.integers(len(self.log), size=self.horizon - len(order))
        order = np.concatenate([order, again])
        means = self.rewards.means(order, int(generator.integers(FOLDS)))
        return order, means, self.rewards.pay(means, generator.random((*means.shape, 2)))

    def round(self, t: int, secret: _Secret, generator: np.random.Generator) -> tuple[Array, Array, Array]:
        order, means, rewards = secret
        return self.log.contexts(order[t - 1 : t])[0], means[t - 1], rewards[t - 1] - means[t - 1]

    def rounds(self, seed: int, count: int, first: int = 1) -> Rounds:
        """Return these rounds of a run, all at once."""
        order, means, rewards = self.drawn.get(seed) or self.secret(seeded(seed, 0))
        here = slice(first - 1, first - 1 + count)
        return Rounds(self.log.contexts(order[here]), means[here], rewards[here])


def _parts(count: int, bytes_each: int) -> list[slice]:
    """Return slices of `count` things that each fit `MAX_CONTEXT_BYTES`."""
    size = max(1, MAX_CONTEXT_BYTES // bytes_each)
    return [slice(start, start + size) for start in range(0, count, size)]


# --- policies and schedules in it


class SimulationFailed(errors.RarelyError):
    """A simulation raised an error, or its process was killed."""


def settings_of(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy that are not as usual, with which others of its kind are made."""
    own, parameters = policy.settings(), signature(type(policy)).parameters
    if isinstance(own.get("model"), dict):
        raise errors.InvalidInput(
            f"a {type(policy).__name__} must be given as a function that makes one, because every run needs a new one."
        )
    needed = {name for name, each in parameters.items() if each.default is each.empty} - {"dim", "schedule"}
    usual: Any = type(policy)
    usual = usual(dim=policy.dim, schedule=EveryRound(), **{name: own[name] for name in needed}).settings()
    ours = (*PLANNER_SETTINGS, "limits")  # which a plan sets
    other = {
        name: value for name, value in own.items() if name not in ours and (name in needed or value != usual[name])
    }
    # A plan must not depend on the form that a length has brought about.
    return other | ({"covariance": "exact"} if own.get("covariance") in ("auto", "primal", "dual") else {})


class Maker:
    """How the simulated policy is made: by a name of `NAMED`, by module:name, by a function of one's own, or as one is.

    The last may be a `Policy`, a `FramePolicy` or the file of one: its kind and settings count, and nothing it learned.
    """

    def __init__(self, policy: Any = "default", settings: Mapping[str, Any] | None = None) -> None:
        own: dict[str, Any] = {}
        if isinstance(policy, str) and policy not in NAMED and os.path.isfile(policy):
            policy = load(policy)
        if isinstance(policy, Policy | FramePolicy):
            one = policy.policy if isinstance(policy, FramePolicy) else policy
            policy, own = type(one), settings_of(one)
        if policy in (LinUCB, LinTS):  # which a recipe must not take for the candidates, whose λ is learned
            own = {"ridge": 1.0} | own
        self.make, self.settings = _make_of(policy), own | {**(settings or {})}
        self.name: str = policy if isinstance(policy, str) else getattr(policy, "__name__", "one of your own")
        if ours := [name for name in PLANNER_SETTINGS if name in self.settings]:
            raise errors.InvalidInput(
                f"settings must leave {', '.join(PLANNER_SETTINGS)} to the planner; got {ours[0]}."
            )
        if self.make in NAMED.values():  # one that nobody plays shows now what would else show in the middle
            self(2, None, EveryRound(), 0)

    def __call__(self, dim: int, scale: ContextMap | None, schedule: Schedule, seed: int) -> Policy:
        """Return a policy for contexts of a world's dimension and scale."""
        policy = self.make(dim, schedule, context_scale=scale, seed=seed, **self.settings)
        if not isinstance(policy, Policy):
            raise errors.InvalidInput(f"{self.name} must make a Policy; got {shown(policy)}.")
        return policy


def _make_of(policy: Any) -> Make:
    """Return the class, or the function, that makes a policy."""
    if callable(policy):
        return policy  # type: ignore[no-any-return]
    if isinstance(policy, str) and policy in NAMED:
        return NAMED[policy]
    module, colon, attribute = str(policy).partition(":")
    if not isinstance(policy, str) or not colon:
        raise errors.InvalidInput(
            f"a policy must be one of {', '.join(NAMED)}, module:name, the file of one, a policy, a class of "
            f"policies, or a function that makes one; got {shown(policy)}."
        )
    try:
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
    except (ImportError, AttributeError) as error:
        raise errors.InvalidInput(f"the policy {policy} cannot be imported: {error}.") from None


@dataclass(frozen=True)
class Outcome:
    """What came of one schedule in one run."""

    regret: float
    ends: tuple[int, ...]  # rounds that ended a batch, T last
    log_dets: tuple[tuple[int, float], ...]  # (round, growth of log det Z until then) at every batch's end
    seconds: tuple[float, float] = field(default=(0.0, 0.0), compare=False)
    """Of a single decision of the last version, and of the mean update."""

    @property
    def pattern(self) -> tuple[int, ...]:
        return tuple(b - a for a, b in pairwise((0, *self.ends)))

    @property
    def updates(self) -> int:
        """Versions after the first."""
        return len(self.ends) - 1


def play(world: World, maker: Maker, rounds: int, schedule: Schedule, seed: int) -> Outcome:
    """Play one schedule in one run: rewards of a batch are in before its update."""
    policy = maker(world.dim, world.context_scale, schedule, seed)
    regret, log_dets, spent, took = 0.0, [(0, 0.0)], 0.0, []
    for part in stretches(world, seed, rounds):
        start = 0
        while start < len(part):
            # No more rounds than the batch may have: the others would be read for nothing.
            ahead = policy.schedule.lookahead(policy.round, 0.0, 0)
            decision = policy.select(part.contexts[start : start + ahead], until_due=True)
            decided = part[start : start + len(decision)]
            policy.observe(decision, decided.paid(decision.arm))
            regret += float(decided.regrets(decision.arm).sum())
            start += len(decided)
            if policy.due and policy.round < rounds:
                with warnings.catch_warnings():
                    # Budgets that are spent early and trainings that fail are part of what is simulated.
                    for category in (errors.ScheduleWarning, errors.RejectedWarning, errors.OutlierWarning):
                        warnings.simplefilter("ignore", category)
                    begun = time.perf_counter()
                    policy.update()
                    spent += time.perf_counter() - begun
                log_dets.append((policy.round, policy.log_det))
    ends = tuple(record.round for record in policy.updates if record.accepted)
    for _ in range(TIMED):
        begun = time.perf_counter()
        policy.score(part.contexts[0])
        took.append(time.perf_counter() - begun)
    seconds = min(took), spent / max(len(ends), 1)
    return Outcome(regret, (*ends, rounds), (*log_dets, (rounds, policy.log_det)), seconds)


def stretches(world: World, seed: int, rounds: int) -> Iterator[Rounds]:
    """Yield the run's rounds, as many at once as memory should hold."""
    for part in _parts(rounds, 8 * world.arms * world.dim):
        yield world.rounds(seed, min(part.stop, rounds) - part.start, part.start + 1)


# --- what a caller asks for


def arguments_of(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> SimpleNamespace:
    """Return all arguments of a call of the function, its defaults among them."""
    call = signature(function).bind(*positional, **named)
    call.apply_defaults()
    return SimpleNamespace(**call.arguments)


def check_each_whole(asked: SimpleNamespace, **least: int) -> None:
    """Refuse arguments that are not whole numbers of at least so much."""
    for name, smallest in least.items():
        check_whole(name, getattr(asked, name), smallest)
