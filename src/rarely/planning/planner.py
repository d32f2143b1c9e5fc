"""How many updates, where, and what it costs to have fewer: asked before the first round.

rewards, fitted, simulated or a world's  →  simulation  →  regret against B, and the batches of each schedule
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from rarely import EveryRound
from rarely.errors import InvalidInput
from rarely.extend import Progress, read_progress
from rarely.extend.checks import check_choice, check_not_negative, check_whole, shown
from rarely.logs.decision_log import DecisionLog
from rarely.logs.tables import InvalidLog
from rarely.planning import simulate
from rarely.planning.frontier import MIN_RUNS, PILOTS, default_batches, improving
from rarely.planning.plan import Origin, Plan
from rarely.planning.simulate import Fit, LoggedRounds, LogWorld, Maker, ScheduleKind, SimulatedRewards, fit_rewards
from rarely.worlds.protocol import World

MIN_ROUNDS = 10
"""Rounds below which there is nothing to plan, and nothing to plan from."""
MAX_ROUNDS = 2000
"""Rounds that are simulated, unless the caller says otherwise."""
SHORTER, SHORT = 8, 400
"""An improving plan begins with runs of an eighth of the rounds, if there are more than 400."""
MAX_NAMED_ARMS = 12
"""Arms that a note names."""


def plan(
    source: DecisionLog | World,
    *,
    horizon: int,
    simulator: simulate.Simulator | None = None,
    noise: float | None = None,
    policy: str | simulate.Make = "default",
    settings: Mapping[str, Any] | None = None,
    batches: Sequence[int] | None = None,
    kinds: Sequence[ScheduleKind] = ("paced", "fixed"),
    runs: int = 20,
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
        Standard deviation of a reward around its mean. By default rewards are of the log's kind or, with a simulator,
        noise is half the spread of the means.
    policy, settings
        The policy that you will run: "default", "LinUCB", "LinTS", module:name, or a class of policies or a function
        that makes one. `settings` are the policy's own arguments, such as hidden and ridge. The planned schedule
        belongs to these settings.
    batches, kinds, runs
        The values of B to simulate (by default 2, 4, 8, …); of which schedules, "paced", "fixed", "geometric" or
        "adaptive"; and how often. Fewer than 5 runs support no firm answer.
    max_rounds
        A longer horizon is simulated at this many rounds.
    seed, jobs, progress
        The seed of all simulations: the same one gives the same plan; processes that simulate; called with a stage, the
        steps done and their total, or a bar such as tqdm's: `progress=tqdm`.

    Examples
    --------
    >>> log = DecisionLog.from_arrays(rows=np.random.default_rng(0).random((60, 2)), arm_count=2)
    >>> made = plan(log, horizon=60, simulator=np.copy, policy="LinUCB", batches=[2, 4], runs=2)
    >>> [(point.kind, point.batches) for point in made.frontier.points][:3]
    [('paced', 2), ('paced', 4), ('fixed', 2)]
    """
    given = {name: value for name, value in locals().items() if name not in ("source", "progress")}
    *_, last = _plans(source, progress, soon=False, **given)
    return last


def improving_plan(source: DecisionLog | World, *, progress: Progress = None, **given: Any) -> Iterator[Plan]:
    """Yield the plan as it improves: at first of few short runs, then with every run; arguments as in `plan`."""
    known = {name: each.default for name, each in signature(plan).parameters.items()}
    unset = {name: known[name] for name in known if name not in ("source", "horizon", "progress")}
    yield from _plans(source, progress, soon=True, **(unset | given))


def _plans(
    source: DecisionLog | World,
    progress: Progress,
    *,
    soon: bool,
    horizon: int,
    simulator: simulate.Simulator | None,
    noise: float | None,
    policy: str | simulate.Make,
    settings: Mapping[str, Any] | None,
    batches: Sequence[int] | None,
    kinds: Sequence[ScheduleKind],
    runs: int,
    max_rounds: int,
    seed: int,
    jobs: int,
) -> Iterator[Plan]:
    for name, number in (("horizon", horizon), ("max_rounds", max_rounds)):
        check_whole(name, number, MIN_ROUNDS)
    for name, number, least in (("runs", runs, 1), ("jobs", jobs, 1), ("seed", seed, 0)):
        check_whole(name, number, least)
    if noise is not None:
        check_not_negative("noise", noise, "because it is a standard deviation")
    for kind in [kinds] if isinstance(kinds, str) or not kinds else kinds:
        check_choice("each of kinds, a list,", kind, ScheduleKind)
    progress = read_progress(progress, "a stage, the steps done and their total")
    maker, played = simulate.Maker(policy, settings or {}), _read_source(source)
    rounds = min(horizon, max_rounds, played.horizon or horizon if isinstance(played, World) else horizon)
    counts = _counts(batches, rounds)
    world, origin, notes, fit = _case(played, rounds, simulator, noise, seed, progress)
    maker(world.dim, world.context_scale, EveryRound(), 0)  # what cannot be made shows before anything is played
    log = played.log if isinstance(played, LoggedRounds) else None
    numbers = [int(number) for number in np.random.SeedSequence(seed).generate_state(runs + PILOTS)]
    world = world.with_runs(numbers) if isinstance(world, LogWorld) and simulator is not None else world
    few = [count for count in counts if count <= rounds // SHORTER // 4]
    ladder = [(rounds // SHORTER, few, min(runs, MIN_RUNS))] if soon and few and rounds > SHORT else []
    for length, tried, times in [*ladder, (rounds, counts, runs)]:
        seeds = numbers[PILOTS : PILOTS + times], numbers[:PILOTS]
        for frontier in improving(world, maker, length, tried, kinds, *seeds, jobs, progress):
            if frontier.runs < min(MIN_RUNS, runs) and ladder and length == rounds:
                continue  # more short runs say more than fewer long ones
            yield Plan(
                horizon=horizon,
                arms=world.arms,
                arm_names=log.arm_names if log else (),
                dim=played.features.shape[-1] if isinstance(played, LoggedRounds) else played.dim,
                blocks=isinstance(played, LoggedRounds) and played.features.ndim == 2,
                origin=origin,
                policy=maker.name,
                settings=dict(maker.settings),
                seed=seed,
                fit=fit,
                frontier=frontier,
                notes=(
                    *notes_on_rounds(played, horizon, length, kinds),
                    *notes,
                    *(str(remark) for remark in (log.remarks if log else ()) if remark.kind != "gap"),
                    note_on_policy(maker),
                ),
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


def _counts(batches: Sequence[int] | None, rounds: int) -> tuple[int, ...]:
    if batches is None:
        return default_batches(rounds)
    for count in batches:
        check_whole("each of batches", count, 2)
    counts = tuple(sorted({int(count) for count in batches}))
    if not counts or counts[-1] >= rounds:
        raise InvalidInput(f"batches must be some numbers below the {rounds} rounds simulated; got {batches!r}.")
    return counts


# --- what a plan rests on, in sentences


def notes_on_rounds(
    source: LoggedRounds | World, horizon: int, rounds: int, kinds: Sequence[ScheduleKind] = ()
) -> list[str]:
    """Say which rounds were simulated, and how many."""
    notes = []
    if rounds < horizon:
        trigger = " log q at the whole horizon is EXTRAPOLATED from the simulated growth of log det Z."
        notes.append(
            f"The simulation is {rounds} rounds long, not {horizon}: shares are those of the SHORTER horizon at the "
            "same numbers of batches. This favours equal batches, of which the first, played untrained, grows with the "
            f"horizon.{trigger if 'adaptive' in kinds else ''}"
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
    seen = "of the variance of rewards in the thirds of the rounds that it had not seen"
    foreseen = f"{100 * fit.r_squared:.0f} % {seen}" if fit.r_squared > 0 else f"NOTHING {seen}"
    notes = [
        f"Rewards are a network's, fitted to {fit.rewards} of the log's: it foresees {foreseen}. Around its means "
        f"rewards are drawn from the log's own, which lie {fit.noise:.3g} from them.",
        "What the network misses of the truth counts as noise, which makes simulated rewards differ from yours.",
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
    return (
        f"The simulated policy is {maker.name} ({settings}). It starts untrained, and has all rewards of a batch in "
        "time for its update; one that starts from the log needs fewer. The schedule belongs with these settings."
    )
