"""How many updates, where, and what it costs to have fewer: asked before the first round.

contexts    of a log, or a sample of a world       →  effective dimension  →  theory's B and q
rewards     fitted, imagined, simulated, a world's →  simulation           →  regret against B, and the batches of each
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rarely.core.errors import InvalidInput, check_not_negative, check_whole
from rarely.core.inputs.scaling import Affine
from rarely.core.types import Array
from rarely.logs.errors import InvalidLog
from rarely.logs.planning_log import Log
from rarely.planning.calibrate_log_ratio import PILOTS
from rarely.planning.caveats import (
    note_on_policy,
    notes_on_fit,
    notes_on_frontier,
    notes_on_growth,
    notes_on_log,
    notes_on_rounds,
)
from rarely.planning.dimension_growth import Growth, linear_measure, measure_growth, neural_measure
from rarely.planning.finished_trials import FinishedTrials, question_of
from rarely.planning.frontier import default_batches, measure_frontier
from rarely.planning.plan import Origin, Plan, Theory
from rarely.planning.present import measure_present
from rarely.planning.reward_model import NOISE, Fit, ImaginedRewards, LogWorld, SimulatedRewards, Simulator, fit_rewards
from rarely.planning.simulate import MOST_BATCHES, Maker, PolicyName
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
    resume: str | Path | None = None,
) -> Plan:
    """Plan the updates of `horizon` rounds.

    Parameters
    ----------
    source
        A `Log` (`Log.of` takes arrays, `Log.from_csv` a file) or a `World`.
    horizon
        The rounds to plan for.
    simulator
        A function from a log's features to mean rewards (m, K). Without one the plan fits the log's rewards or, where
        the log has none, invents some and says so.
    noise
        Standard deviation of a reward around its mean. The default is what the fit leaves over or, with a simulator or
        invented rewards, half the spread of the means.
    policy, settings
        "neural" is a plain network of 64 units and 100 steps; "default" is BatchNeuralUCB with nothing set, which tunes
        itself and is slower; "linear" is LinUCB. `settings` are the policy's own arguments, such as hidden and ridge.
        The planned schedule belongs to these settings: construct the policy with `**made.settings`.
    batches, runs
        The values of B to simulate (by default 2, 4, 8, …) and how often. Fewer than 5 runs support no firm answer.
    max_rounds
        A longer horizon is simulated at this many rounds.
    max_contexts, memory_limit
        The effective dimension is measured on at most `max_contexts` contexts, and on fewer where the contexts alone
        would take more than a quarter of `memory_limit` bytes.
    seed
        Of all simulations.
    jobs
        Processes that simulate.
    progress
        Called with a stage, the steps done and their total.
    resume
        A file for simulated runs that are finished. A plan that was interrupted goes on from it if it is called with
        the same arguments, and the file is removed when the plan is made. Not with a simulator, whose code may change.

    Notes
    -----
    The same seed gives the same plan.

    Examples
    --------
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
    counts = _counts(batches, rounds, maker)
    if resume is not None and simulator is not None:
        raise InvalidInput("resume must be None with a simulator: a file cannot tell whether it is still the same one.")
    case = _case(source, rounds, simulator, noise, seed, progress)
    growth = _growth(source, horizon, maker, max_contexts, memory_limit, seed, progress)
    adaptive, lower, upper = (
        None if math.isnan(value) else adaptive_plan(value, rounds=horizon, arms=case.world.arms, ridge=maker.ridge)
        for value in (growth.value, growth.lower, growth.upper)
    )
    assert lower is not None
    assert upper is not None
    numbers = [int(number) for number in np.random.SeedSequence(seed).generate_state(runs + PILOTS)]
    pilots, seeds = numbers[:PILOTS], numbers[PILOTS:]
    world = case.world.settle(numbers) if isinstance(case.world, LogWorld) else case.world
    asked = {"rounds": rounds, "batches": counts, "runs": runs, "noise": noise, "seed": seed, "maker": maker}
    finished = FinishedTrials() if resume is None else FinishedTrials(Path(resume), question_of(source, asked))
    frontier = measure_frontier(world, maker, rounds, counts, seeds, pilots, jobs, progress, finished)
    present = measure_present(world, rounds, seeds)
    finished.remove()
    notes = [
        *notes_on_rounds(source, horizon, rounds),
        *case.notes,
        *notes_on_log(source),
        *notes_on_frontier(frontier),
        *notes_on_growth(growth, maker),
        note_on_policy(maker),
    ]
    return Plan(
        horizon=horizon,
        arms=case.world.arms,
        dim=source.features.shape[-1] if isinstance(source, Log) else source.dim,
        blocks=isinstance(source, Log) and source.features.ndim == 2,
        origin=case.origin,
        policy=policy,
        settings=dict(maker.settings),
        seed=seed,
        growth=growth,
        theory=Theory(fixed_batches(horizon), adaptive, lower, upper),
        fit=case.fit,
        frontier=frontier,
        notes=tuple(notes),
        present=present,
    )


@dataclass(frozen=True)
class _Case:
    """A world to simulate, and what is to be said of it."""

    world: World
    origin: Origin
    notes: tuple[str, ...]
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
        return _Case(source, "world", (f"Contexts and rewards are those of the world {type(source).__name__}.",))
    if not isinstance(source, Log):
        raise InvalidInput(f"source must be a Log or a World; got {source!r}. Log.of takes arrays.")
    if len(source) < FEWEST:
        raise InvalidLog(f"a plan needs a log of at least {FEWEST} rounds; got {len(source)}.")
    if simulator is not None:
        simulated = SimulatedRewards(source, simulator, noise)
        simulated.check()
        around = f"{NOISE:g} times the spread of its means" if noise is None else f"{noise:g}"
        note = f"Rewards are those of the simulator given, with normal noise of {around} around them."
        return _Case(LogWorld(source, simulated, rounds), "simulated", (note,))
    if not len(source.known()[2]):
        imagined = ImaginedRewards(source, NOISE if noise is None else noise)
        return _Case(
            LogWorld(source, imagined, rounds),
            "imagined",
            (
                "REWARDS ARE IMAGINED: the log has none, so each run draws a random function of the contexts, as a "
                f"wide network could learn it, with noise of {imagined.deviation:g} times its spread. Yours may be "
                "simpler, or harder.",
            ),
        )
    progress("reward model", 0, 1)
    fitted = fit_rewards(source, seed, noise=noise)
    progress("reward model", 1, 1)
    return _Case(LogWorld(source, fitted, rounds), "fitted", notes_on_fit(fitted.fit, source), fitted.fit)


def _counts(batches: Sequence[int] | None, rounds: int, maker: Maker) -> tuple[int, ...]:
    if batches is None:
        return default_batches(rounds, MOST_BATCHES if maker.policy == "default" else None)
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
    affordable = memory_limit // (4 * 8 * source.arms * (source.dim + 1))
    rounds = max(2, min(horizon, max_contexts // source.arms, affordable))
    contexts = _sampled(source, rounds, maker, seed)
    linear = maker.policy == "linear"
    measure = linear_measure(maker.ridge) if linear else neural_measure(maker.ridge, maker.depth, seed, memory_limit)
    return measure_growth(
        contexts,
        horizon * source.arms,
        maker.ridge,
        measure,
        seed,
        lambda done, of: progress("effective dimension", done, of),
        linear=linear,
    )


def _sampled(source: Log | World, rounds: int, maker: Maker, seed: int) -> Array:
    """Contexts (m, K, d) of distinct rounds, as the policy sees them."""
    if isinstance(source, Log):
        return source.contexts(np.random.default_rng((seed, 3)).permutation(len(source))[:rounds])
    contexts = source.rounds(seed, min(rounds, source.horizon or rounds)).contexts
    flat = contexts.reshape(-1, source.dim)
    if maker.policy == "linear":
        # LinUCB takes contexts as they come, and adds a constant to those that were not scaled.
        scale = Affine.identity(source.dim, constant=source.context_scale is None)
    elif maker.settings.get("preset", "practical") != "practical":
        scale = source.context_scale or Affine.identity(source.dim)
    else:
        scale = source.context_scale or Affine.fit(flat)
    return scale(flat).reshape(*contexts.shape[:2], -1)
