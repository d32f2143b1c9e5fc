"""How many updates, where, and what it costs to have fewer: asked before the first round.

rewards, fitted, simulated or a world's  →  simulation  →  regret against B, and the batches of each schedule
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rarely import InvalidInput
from rarely.extend import Progress, read_progress
from rarely.extend.checks import check_not_negative, check_whole, shown
from rarely.logs.decision_log import DecisionLog
from rarely.logs.tables import InvalidLog
from rarely.planning import simulate
from rarely.planning.frontier import PILOTS, default_batches, measure_frontier
from rarely.planning.plan import Origin, Plan, measure_present
from rarely.planning.simulate import Fit, LoggedRounds, LogWorld, Maker, SimulatedRewards, fit_rewards
from rarely.worlds.protocol import World

MIN_ROUNDS = 10
"""Rounds below which there is nothing to plan, and nothing to plan from."""
MAX_ROUNDS = 2000
"""Rounds that are simulated, unless the caller says otherwise."""
MAX_NAMED_ARMS = 12
"""Arms that a note names."""


def plan(
    source: DecisionLog | World,
    *,
    horizon: int,
    simulator: simulate.Simulator | None = None,
    noise: float | None = None,
    policy: simulate.PolicyName = "neural",
    settings: Mapping[str, Any] | None = None,
    batches: Sequence[int] | None = None,
    runs: int = 10,
    max_rounds: int = MAX_ROUNDS,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = None,
) -> Plan:
    """Plan the updates of `horizon` rounds.

    Parameters
    ----------
    source
        A `DecisionLog` (`from_arrays` and `from_frame` make one of your data) or a `World`.
    horizon
        The rounds to plan for.
    simulator
        A function from a log's features to mean rewards (m, K). Without one the plan fits the log's rewards.
    noise
        Standard deviation of a reward around its mean. The default is what the fit leaves over or, with a simulator,
        half the spread of the means.
    policy, settings
        "neural" is a plain network of 64 units and 100 steps; "default" is BatchNeuralUCB with nothing set, which tunes
        itself and is slower; "linear" is LinUCB. `settings` are the policy's own arguments, such as hidden and ridge.
        The planned schedule belongs to these settings: construct the policy with `**made.settings`.
    batches, runs
        The values of B to simulate (by default 2, 4, 8, …) and how often. Fewer than 5 runs support no firm answer.
    max_rounds
        A longer horizon is simulated at this many rounds.
    seed, jobs, progress
        The seed of all simulations: the same one gives the same plan; processes that simulate; called with a stage, the
        steps done and their total, or a bar such as tqdm's: `progress=tqdm`.

    Examples
    --------
    >>> log = DecisionLog.from_arrays(rows=np.random.default_rng(0).random((60, 2)), arm_count=2)
    >>> made = plan(log, horizon=60, simulator=np.copy, policy="linear", batches=[2, 4], runs=2)
    >>> [(point.kind, point.batches) for point in made.frontier.points][:3]
    [('fixed', 2), ('fixed', 4), ('geometric', 2)]
    """
    for name, number in (("horizon", horizon), ("max_rounds", max_rounds)):
        check_whole(name, number, MIN_ROUNDS)
    for name, number, least in (("runs", runs, 1), ("seed", seed, 0), ("jobs", jobs, 1)):
        check_whole(name, number, least)
    if noise is not None:
        check_not_negative("noise", noise, "because it is a standard deviation")
    progress = read_progress(progress, "a stage, the steps done and their total")
    maker, played = Maker(policy, settings or {}), _read_source(source)
    rounds = min(horizon, max_rounds, played.horizon or horizon if isinstance(played, World) else horizon)
    counts = _counts(batches, rounds, maker)
    world, origin, notes, fit = _case(played, rounds, simulator, noise, seed, progress)
    numbers = [int(number) for number in np.random.SeedSequence(seed).generate_state(runs + PILOTS)]
    world = world.with_runs(numbers) if isinstance(world, LogWorld) else world
    frontier = measure_frontier(world, maker, rounds, counts, numbers[PILOTS:], numbers[:PILOTS], jobs, progress)
    present = measure_present(world, rounds, numbers[PILOTS:], frontier.regrets)
    return Plan(
        horizon=horizon,
        arms=world.arms,
        dim=played.features.shape[-1] if isinstance(played, LoggedRounds) else played.dim,
        blocks=isinstance(played, LoggedRounds) and played.features.ndim == 2,
        origin=origin,
        policy=policy,
        settings=dict(maker.settings),
        seed=seed,
        fit=fit,
        frontier=frontier,
        notes=(
            *notes_on_rounds(played, horizon, rounds),
            *notes,
            *(str(x) for x in (played.log.remarks if isinstance(played, LoggedRounds) else ()) if x.kind != "gap"),
            note_on_policy(maker),
        ),
        present=present,
    )


def _read_source(source: Any) -> LoggedRounds | World:
    if isinstance(source, World):
        return source
    if not isinstance(source, DecisionLog):
        raise InvalidInput(
            f"source must be a DecisionLog or a World; got {shown(source)}. DecisionLog.from_arrays takes arrays."
        )
    if len(source) < MIN_ROUNDS:
        raise InvalidLog(f"a plan needs a log of at least {MIN_ROUNDS} rounds; got {len(source)}.")
    return LoggedRounds.of(source)


def _case(
    source: LoggedRounds | World,
    rounds: int,
    simulator: simulate.Simulator | None,
    noise: float | None,
    seed: int,
    progress: Progress,
) -> tuple[World, Origin, Sequence[str], Fit | None]:
    """Return the world to simulate, where its rewards are from, notes on them, and how good a fit of them is."""
    if isinstance(source, World):
        if simulator is not None or noise is not None:
            raise InvalidInput("a world has its own rewards and noise; give simulator and noise with a log.")
        return source, "world", [f"Contexts and rewards are those of the world {type(source).__name__}."], None
    if simulator is not None:
        simulated = SimulatedRewards(source, simulator, noise)
        simulated.check()
        around = f"{simulate.DEFAULT_NOISE:g} times the spread of its means" if noise is None else f"{noise:g}"
        note = f"Rewards are those of the simulator given, with normal noise of {around} around them."
        return LogWorld(source, simulated, rounds), "simulated", [note], None
    progress("reward model", 0, 1)
    fitted = fit_rewards(source, seed, noise=noise)
    progress("reward model", 1, 1)
    return LogWorld(source, fitted, rounds), "fitted", notes_on_fit(fitted.fit, source.log), fitted.fit


def _counts(batches: Sequence[int] | None, rounds: int, maker: Maker) -> tuple[int, ...]:
    if batches is None:
        return default_batches(rounds, simulate.MAX_DEFAULT_BATCHES if maker.policy == "default" else None)
    for count in batches:
        check_whole("each of batches", count, 2)
    counts = tuple(sorted({int(count) for count in batches}))
    if not counts or counts[-1] >= rounds:
        raise InvalidInput(f"batches must be some numbers below the {rounds} rounds simulated; got {batches!r}.")
    return counts


# --- what a plan rests on, in sentences


def notes_on_rounds(source: LoggedRounds | World, horizon: int, rounds: int) -> list[str]:
    """Say which rounds were simulated, and how many."""
    notes = []
    if rounds < horizon:
        notes.append(
            f"The simulation is {rounds} rounds long, not {horizon}: the frontier is that of the SHORTER horizon at "
            "the same numbers of batches. This favours fixed grids, whose first batch, played untrained, grows with "
            "the horizon. log q at the whole horizon is EXTRAPOLATED from the simulated growth of log det Z."
        )
    if isinstance(source, LoggedRounds):
        again = f", and {rounds - len(source)} more are drawn from it again" if rounds > len(source) else ""
        notes.append(
            f"Simulated rounds are those of the log in a random order, {min(rounds, len(source))} of them{again}: what "
            "changed with time in the log does not change in the simulation."
        )
    return notes


def notes_on_fit(fit: Fit, log: DecisionLog) -> list[str]:
    """Say how good fitted rewards are, and what is wrong with them all the same."""
    seen = "of the variance of rewards in a fifth of the rounds, which it had not seen"
    foreseen = f"{100 * fit.r_squared:.0f} % {seen}" if fit.r_squared > 0 else f"NOTHING {seen}"
    notes = [
        f"Rewards are a network's, fitted to {fit.rewards} of the log's: it foresees {foreseen}. Around it noise is "
        f"normal, of {fit.noise:.3g}.",
        "The network was fitted to all of these, so its means contain some of their noise; and what it misses of the "
        "truth counts as noise. Both make simulated rewards differ from yours.",
    ]
    if fit.rare:
        arms = ", ".join(f"{log.arm_name(arm)} ({count})" for arm, count in fit.rare[:MAX_NAMED_ARMS])
        more = f", and {len(fit.rare) - MAX_NAMED_ARMS} more" if len(fit.rare) > MAX_NAMED_ARMS else ""
        notes.append(
            f"Fewer than {simulate.RARE_REWARDS} rewards are known of some arms (how many, in brackets): {arms}{more}. "
            "What these pay is EXTRAPOLATED from others."
        )
    return notes


def note_on_policy(maker: Maker) -> str:
    """Say what was simulated, and that the schedule belongs to it."""
    settings = ", ".join(f"{name}={value}" for name, value in maker.settings.items()) or "nothing set"
    fixed = "; it does not tune itself, as BatchNeuralUCB does when nothing is set" if maker.policy == "neural" else ""
    return (
        f"The simulated policy is {maker.policy} ({settings}){fixed}. It starts untrained, and has all rewards of a "
        "batch in time for its update. The schedule belongs with these settings, log q above all. A policy that starts "
        "from the log needs fewer updates."
    )
