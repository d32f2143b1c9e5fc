"""How many updates, where, and what it costs to have fewer: asked before the first round.

contexts    of a log, or a sample of a world       →  effective dimension  →  theory's B and q
rewards     fitted, imagined, simulated, a world's →  simulation           →  regret against B, and the batches of each
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput, check_not_negative, check_whole
from rarely.core.scaling import Affine
from rarely.core.types import Array
from rarely.lab.advice import Origin, Plan, Theory
from rarely.lab.frontier import Maker, PolicyName, default_batches, measure_frontier
from rarely.lab.growth import Growth, linear_measure, measure_growth, neural_measure
from rarely.lab.logged import InvalidLog, Log
from rarely.lab.reward_model import (
    NOISE,
    Fit,
    ImaginedRewards,
    LogWorld,
    SimulatedRewards,
    Simulator,
    fit_rewards,
)
from rarely.theory import adaptive_plan, fixed_batches
from rarely.worlds.protocol import World

FEWEST = 10
"""Rounds below which there is nothing to plan, and nothing to plan from."""
MAX_ROUNDS, MAX_CONTEXTS = 2000, 4000

Progress = Callable[[str, int, int], None]
"""Hears the stage's name, how much of it is done, and of how much."""


def plan(
    source: Log | World,
    *,
    horizon: int,
    simulator: Simulator | None = None,
    noise: float | None = None,
    policy: PolicyName = "neural",
    settings: Mapping[str, Any] | None = None,
    batches: Sequence[int] | None = None,
    runs: int = 5,
    max_rounds: int = MAX_ROUNDS,
    max_contexts: int = MAX_CONTEXTS,
    memory_limit: int = 2**30,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = lambda stage, done, of: None,
) -> Plan:
    """Plan the updates of `horizon` rounds.

        source          a `Log` (`Log.of` arrays, `Log.from_csv` a file), or a `World`
        simulator       a function of a log's features to mean rewards (m, K); without one the log's rewards are
                        fitted or, where it has none, imagined
        noise           standard deviation of a reward around its mean; by default what the fit leaves or, of a
                        simulator and of imagined rewards, half the spread of the means
        policy          "neural" or "linear"; `settings` are the policy's own, such as hidden and ridge
        batches, runs   the values of B to simulate (2, 4, 8, … by default), and how often
        max_rounds      longer horizons are simulated at so many rounds
        max_contexts    of so many contexts at most the effective dimension is measured
        jobs            processes that simulate

    The same seed gives the same plan.

    >>> log = Log.of(np.random.default_rng(0).random((60, 2)), arms=2)
    >>> made = plan(log, horizon=60, policy="linear", batches=[2, 4], runs=2)
    >>> [(point.kind, point.batches) for point in made.frontier.points][:3]
    [('fixed', 2), ('fixed', 4), ('geometric', 2)]
    """
    check_whole("horizon", horizon, FEWEST)
    check_whole("runs", runs, 1)
    check_whole("max_rounds", max_rounds, FEWEST)
    check_whole("max_contexts", max_contexts, FEWEST)
    check_whole("seed", seed, 0)
    check_whole("jobs", jobs, 1)
    if noise is not None:
        check_not_negative("noise", noise, "because it is a standard deviation")
    maker = Maker(policy, settings or {})
    rounds = min(horizon, max_rounds, source.horizon or horizon if isinstance(source, World) else horizon)
    counts = _counts(batches, rounds)
    case = _case(source, rounds, simulator, noise, seed, progress)
    growth = _growth(source, horizon, maker, max_contexts, memory_limit, seed, progress)
    ridge = maker.settings["ridge"]
    adaptive, lower, upper = (
        adaptive_plan(value, rounds=horizon, arms=case.world.arms, ridge=ridge)
        for value in (growth.value, growth.lower, growth.upper)
    )
    notes = [*_notes_on_rounds(source, horizon, rounds), case.note, *_notes_on_growth(growth, maker), _note_on(maker)]
    pilot, *seeds = (int(number) for number in np.random.SeedSequence(seed).generate_state(runs + 1))
    frontier = measure_frontier(
        case.world, maker, rounds, counts, seeds, pilot, jobs, lambda done, of: progress("simulation", done, of)
    )
    return Plan(
        horizon=horizon,
        arms=case.world.arms,
        origin=case.origin,
        policy=policy,
        settings=dict(maker.settings),
        seed=seed,
        growth=growth,
        theory=Theory(fixed_batches(horizon), adaptive, lower, upper),
        fit=case.fit,
        frontier=frontier,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Case:
    """A world to simulate, and what is to be said of it."""

    world: World
    origin: Origin
    note: str
    fit: Fit | None = None


def _case(
    source: Log | World,
    rounds: int,
    simulator: Simulator | None,
    noise: float | None,
    seed: int,
    progress: Progress,
) -> _Case:
    if isinstance(source, World):
        if simulator is not None or noise is not None:
            raise InvalidInput("a world has rewards and noise of its own; give simulator and noise with a Log.")
        return _Case(source, "world", f"Contexts and rewards are those of the world {type(source).__name__}.")
    if not isinstance(source, Log):
        raise InvalidInput(f"source must be a Log or a World; got {source!r}. Log.of takes arrays.")
    if len(source) < FEWEST:
        raise InvalidLog(f"a plan needs a log of at least {FEWEST} rounds; got {len(source)}.")
    if simulator is not None:
        simulated = SimulatedRewards(source, simulator, noise)
        return _Case(LogWorld(source, simulated, rounds), "simulated", "Rewards are those of the simulator given.")
    if source.rewards is None:
        imagined = ImaginedRewards(source, NOISE if noise is None else noise)
        return _Case(
            LogWorld(source, imagined, rounds),
            "imagined",
            "REWARDS ARE IMAGINED: the log has none, so each run draws a random function of the contexts, as a wide "
            f"network could learn it, with noise of {imagined.deviation:g} times its spread. Yours may be simpler, or "
            "harder.",
        )
    progress("reward model", 0, 1)
    fitted = fit_rewards(source, seed, noise=noise)
    progress("reward model", 1, 1)
    return _Case(LogWorld(source, fitted, rounds), "fitted", _note_on_fit(fitted.fit), fitted.fit)


def _counts(batches: Sequence[int] | None, rounds: int) -> tuple[int, ...]:
    if batches is None:
        return default_batches(rounds)
    for count in batches:
        check_whole("each of batches", count, 2)
    counts = tuple(sorted({int(count) for count in batches}))
    if not counts or counts[-1] >= rounds:
        raise InvalidInput(f"batches must be some numbers below the {rounds} rounds simulated; got {batches!r}.")
    return counts


def _growth(
    source: Log | World,
    horizon: int,
    maker: Maker,
    max_contexts: int,
    memory_limit: int,
    seed: int,
    progress: Progress,
) -> Growth:
    """The effective dimension of as many of the horizon's contexts as there are, and may be measured."""
    rounds = max(2, min(horizon, max_contexts // source.arms))
    contexts = _sampled(source, rounds, seed)
    ridge = float(maker.settings["ridge"])
    if maker.policy == "linear":
        measure = linear_measure(ridge)
    else:
        measure = neural_measure(ridge, maker.settings["depth"], seed, memory_limit)
    stage = "effective dimension"
    wanted = horizon * source.arms
    return measure_growth(contexts, wanted, ridge, measure, seed, lambda done, of: progress(stage, done, of))


def _sampled(source: Log | World, rounds: int, seed: int) -> Array:
    """Scaled contexts (m, K, d) of distinct rounds."""
    if isinstance(source, Log):
        return source.contexts(np.random.default_rng((seed, 3)).permutation(len(source))[:rounds])
    contexts = source.rounds(seed, min(rounds, source.horizon or rounds)).contexts
    flat = contexts.reshape(-1, source.dim)
    scale = source.context_scale or Affine.fit(flat)
    return scale(flat).reshape(*contexts.shape[:2], -1)


def _notes_on_rounds(source: Log | World, horizon: int, rounds: int) -> list[str]:
    notes = []
    if rounds < horizon:
        notes.append(
            f"The simulation is {rounds} rounds long, not {horizon}: the frontier is that of the SHORTER horizon at "
            "the same numbers of batches. This favours fixed grids, whose first batch, played untrained, grows with "
            "the horizon. log q at the whole horizon is EXTRAPOLATED from the simulated growth of log det Z."
        )
    if isinstance(source, Log):
        again = f", and {rounds - len(source)} more are drawn from it again" if rounds > len(source) else ""
        notes.append(
            f"Simulated rounds are those of the log in a random order, {min(rounds, len(source))} of them{again}."
        )
    return notes


def _notes_on_growth(growth: Growth, maker: Maker) -> list[str]:
    measured = growth.measured
    how = "exactly" if measured.exact else f"within {measured.lower:.1f} to {measured.upper:.1f}"
    kernel = "the linear kernel" if maker.policy == "linear" else "the tangent kernel"
    notes = [
        f"The effective dimension of {measured.count} contexts under {kernel} is {measured.value:.1f}, known {how}; "
        f"random halves of the rounds differ by ±{growth.spread:.1f}."
    ]
    if growth.extrapolated:
        notes.append(
            f"The effective dimension is EXTRAPOLATED from {measured.count} to {growth.wanted} contexts, along a power "
            "of their number; its bounds are straight lines in the number's logarithm and in the number itself."
        )
    return notes


def _note_on_fit(fit: Fit) -> str:
    foreseen = f"{100 * fit.r_squared:.0f} % of the variance of rewards that it had not seen"
    note = f"Rewards are a network's, fitted to {fit.rewards} of the log's: it foresees {foreseen}. "
    note += f"Around it noise is normal, of {fit.noise:.3g}."
    if fit.r_squared <= 0:
        note += " That is NOTHING: the simulation says little about your rewards."
    if fit.unseen:
        note += f" No reward is known of arms {', '.join(map(str, fit.unseen))}: what these pay is EXTRAPOLATED."
    return note


def _note_on(maker: Maker) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in maker.settings.items())
    return (
        f"The simulated policy is {maker.policy} ({settings}), starts untrained, and has all rewards of a batch in "
        "time for its update. One that starts from the log needs fewer updates; that one, and one with other settings, "
        "needs other values of log q."
    )
