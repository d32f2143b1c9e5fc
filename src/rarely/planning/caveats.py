"""What a plan rests on, in sentences: what it supposes, and where it extrapolates."""

from __future__ import annotations

from rarely.logs.planning_log import Log
from rarely.planning.dimension_growth import FARTHEST, Growth
from rarely.planning.frontier import Frontier
from rarely.planning.reward_model import RARE, Fit
from rarely.planning.simulate import Maker
from rarely.worlds.protocol import World

NAMED = 12
"""Arms that a note names."""


def notes_on_rounds(source: Log | World, horizon: int, rounds: int) -> list[str]:
    """Which rounds were simulated, and how many."""
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
            f"Simulated rounds are those of the log in a random order, {min(rounds, len(source))} of them{again}: what "
            "changed with time in the log does not change in the simulation."
        )
    return notes


def notes_on_log(source: Log | World) -> list[str]:
    """What looked odd in the file."""
    return list(source.remarks) if isinstance(source, Log) else []


def notes_on_fit(fit: Fit, log: Log) -> tuple[str, ...]:
    """How good fitted rewards are, and what is wrong with them all the same."""
    seen = "of the variance of rewards in a fifth of the rounds, which it had not seen"
    foreseen = f"{100 * fit.r_squared:.0f} % {seen}" if fit.r_squared > 0 else f"NOTHING {seen}"
    notes = [
        f"Rewards are a network's, fitted to {fit.rewards} of the log's: it foresees {foreseen}. Around it noise is "
        f"normal, of {fit.noise:.3g}.",
        "The network was fitted to all of these, so its means contain some of their noise; and what it misses of the "
        "truth counts as noise. Both make simulated rewards differ from yours.",
    ]
    if fit.rare:
        arms = ", ".join(f"{log.arm_name(arm)} ({count})" for arm, count in fit.rare[:NAMED])
        more = f", and {len(fit.rare) - NAMED} more" if len(fit.rare) > NAMED else ""
        notes.append(
            f"Fewer than {RARE} rewards are known of some arms (how many, in brackets): {arms}{more}. What these pay "
            "is EXTRAPOLATED from others."
        )
    return tuple(notes)


def notes_on_frontier(frontier: Frontier) -> list[str]:
    """Adaptive schedules that did not spend what they had."""
    notes = []
    if spare := [point for point in frontier.of_kind("adaptive") if point.spare]:
        told = ", ".join(f"{point.used:.3g} of {point.batches}" for point in spare)
        notes.append(f"Adaptive schedules used clearly fewer versions than their budgets: {told}.")
    if idle := [point for point in frontier.of_kind("adaptive") if point.idle]:
        told = ", ".join(f"B = {point.batches} in {point.idle} of {frontier.runs}" for point in idle)
        notes.append(f"Some runs of adaptive schedules were not updated at all: {told}.")
    return notes


def notes_on_growth(growth: Growth, maker: Maker) -> list[str]:
    """How the effective dimension was found."""
    measured = growth.measured
    how = "exactly" if measured.exact else f"within {measured.lower:.3g} to {measured.upper:.3g}"
    kernel = "the linear kernel" if maker.policy == "linear" else "the tangent kernel of the policy's own networks"
    notes = [
        f"The effective dimension of {measured.count} contexts under {kernel} is {measured.value:.3g}, known {how}; "
        f"random halves of the rounds differ by ±{growth.spread:.2g}."
    ]
    if growth.extrapolated:
        along = "along the logarithm" if maker.policy == "linear" else "along a power"
        if growth.wanted > FARTHEST * measured.count:
            along = f"more than {FARTHEST}-fold, so between bounds alone, which are lines in"
            along += " the logarithm of their number and in the number itself"
        else:
            along += (
                " of their number; its bounds are straight lines in the number's logarithm and in the number itself"
            )
        notes.append(
            f"The effective dimension is EXTRAPOLATED from {measured.count} to {growth.wanted} contexts, {along}."
        )
    return notes


def note_on_policy(maker: Maker) -> str:
    """What was simulated, and that the schedule belongs to it."""
    settings = ", ".join(f"{name}={value}" for name, value in maker.settings.items()) or "nothing set"
    fixed = "; it does not tune itself, as BatchNeuralUCB does when nothing is set" if maker.policy == "neural" else ""
    return (
        f"The simulated policy is {maker.policy} ({settings}){fixed}. It starts untrained, and has all rewards of a "
        "batch in time for its update. The schedule belongs with these settings, log q above all. A policy that starts "
        "from the log needs fewer updates."
    )
