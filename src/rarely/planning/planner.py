"""How many updates, where, and what it costs to have fewer: asked before the first round, and said in sentences.

rewards, fitted, simulated or a world's  →  simulation  →  regret against B, and the batches of each schedule

Shares of the possible gain are told only where there surely is one, by `runs.statistics` in pairs of runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from rarely import EveryRound, FramePolicy, Policy, Schedule
from rarely.errors import InvalidInput, RarelyError
from rarely.extend import Progress, read_progress
from rarely.extend.checks import check_choice, check_not_negative, check_whole, shown
from rarely.logs.decision_log import DecisionLog
from rarely.logs.tables import InvalidLog
from rarely.pages.grid import Grid
from rarely.planning import simulate
from rarely.planning.frontier import MIN_RUNS, PILOTS, Frontier, Point, default_batches, improving
from rarely.planning.simulate import Fit, LoggedRounds, LogWorld, ScheduleKind, SimulatedRewards, fit_rewards
from rarely.runs.files import plain_json
from rarely.worlds.protocol import World

Origin = Literal["world", "fitted", "simulated"]  # where the simulation's rewards are from
REWARDS: dict[Origin, str] = {
    "world": "the world's own rewards",
    "fitted": "rewards fitted to the log",
    "simulated": "the simulator's rewards",
}
TOLERANCE = 0.10  # the share of the possible gain that fewer updates may lose, unless the caller says otherwise
SHOWN_ROUNDS = 8  # rounds of updates that a sentence names
WORDS: dict[ScheduleKind, str] = {
    "paced": "paced batches",
    "fixed": "equal batches",
    "geometric": "growing batches",
    "adaptive": "the trigger of the paper",
}
MIN_ROUNDS = 10  # rounds below which there is nothing to plan, and nothing to plan from
MAX_ROUNDS = 2000  # rounds that are simulated, unless the caller says otherwise
SHORTER, SHORT = 8, 400  # an improving plan begins with runs of an eighth of the rounds, if there are more than 400
MAX_NAMED_ARMS = 12  # arms that a note names


class NothingClose(RarelyError):
    """No schedule of the frontier is within the tolerance."""


@dataclass(frozen=True)
class Plan:
    """How many updates, where, and what fewer of them cost.

    Examples
    --------
    >>> log = DecisionLog.from_arrays(rows=np.random.default_rng(0).random((60, 2)), arm_count=2)
    >>> found = plan(log, horizon=60, runs=1, simulator=np.copy, policy="LinUCB", batches=[2, 4])
    >>> found.horizon, found.schedule(tolerance=10.0).batches
    (60, 2)
    """

    horizon: int
    arms: int
    arm_names: tuple[str, ...]
    dim: int  #: Numbers in a context.
    blocks: bool  #: Whether contexts are a round's row in the arm's block.
    origin: Origin
    policy: str
    settings: dict[str, Any]
    seed: int
    fit: Fit | None  #: How good the fitted reward model is, where one is fitted.
    frontier: Frontier
    notes: tuple[str, ...]  #: What it supposes, and where it extrapolates.

    @property
    def withheld(self) -> bool:
        """Whether no advice is given, because the simulated rewards have nothing to do with the log's."""
        return self.fit is not None and self.fit.r_squared <= 0

    def schedule(
        self, tolerance: float = TOLERANCE, kind: ScheduleKind | None = None, *, surely: bool = False
    ) -> Schedule:
        """Return the schedule with the fewest batches that lose at most this share, by estimate or surely."""
        point = self.frontier.enough(tolerance, kind, surely=surely)
        if point is None:
            raise NothingClose(
                f"nothing tried {'surely ' if surely else ''}loses at most {percent(tolerance)} of what "
                f"{self.frontier.often} gain. Allow more, or plan with more batches or runs."
            )
        return self.frontier.schedule(point, self.horizon)

    def describe(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        enough: dict[str, Any] = {}
        for kind in self.frontier.kinds:
            point, sure = (self.frontier.enough(TOLERANCE, kind, surely=surely) for surely in (False, True))
            enough[kind] = {
                "batches": point and point.batches,
                "surely": sure and sure.batches,
                "verdicts": {str(b): verdict for b, verdict in self.frontier.verdicts(kind, TOLERANCE).items()},
                "schedule": point and self.frontier.schedule(point, self.horizon).describe(),
            }
        return dict(plain_json(asdict(self) | {"enough": enough, "advice": self.text()}))

    def text(self) -> str:
        """Return what updates bring as a table, what that rests on, and the advice, which comes last."""
        table, recipe = self.table(), self.recipe()
        lines = [self.above(), *table.lines()] if table else []
        return "\n".join([*lines, *(f"- {note}" for note in self.notes), *filter(None, [recipe]), self.headline()])

    def above(self) -> str:
        """Return what the shares of the table are of."""
        found = self.frontier
        return (
            f"Share of the possible gain, {found.gain.value:.4g} of reward ({found.gain.low:.4g} to "
            f"{found.gain.high:.4g}), by which {found.often} are better than {found.today} over {found.rounds} rounds:"
        )

    def table(self) -> Grid | None:
        """Return what each B brings; None where it is not shown that there is anything to gain."""
        found = self.frontier
        if self.withheld or not found.gains:
            return None
        counts = sorted({point.batches for point in found.points})
        best = {b: min(p.regret.value for p in found.points if p.batches == b) for b in counts}
        body = []
        for count, later in zip(counts, (*counts[1:], None), strict=True):
            mine = {point.kind: share_of(point) for point in found.points if point.batches == count}
            # The slope to the next B; an update is never worth less than nothing.
            worth = "" if later is None else f"{max(0.0, (best[count] - best[later]) / (later - count)):.3g}"
            body.append([str(count), str(count - 1), *(mine.get(kind, "") for kind in found.kinds), worth])
        return Grid(["B", "updates", *found.kinds, "one update more is worth"], body, numbers=0)

    def headline(self) -> str:
        """Return the advice: the fewest batches that surely bring most of the gain, or why there are none."""
        found, most = self.frontier, percent(1 - TOLERANCE)
        at = f" at {found.rounds} of {self.horizon} rounds" if found.rounds < self.horizon else ""
        times = "one run" if found.runs == 1 else f"{found.runs} runs"
        on = f"simulated{at} with {self.policy} on {REWARDS[self.origin]}, {times}"
        more = f"More runs may %s: runs={4 * max(found.runs, MIN_RUNS)} (--runs {4 * max(found.runs, MIN_RUNS)})."
        if self.withheld:
            return (
                "No advice: the reward model foresees nothing of your rewards (R² ≤ 0), so what was simulated on it "
                "says little of them. Log more rewards or better features, or give a simulator."
            )
        if not found.gains:
            return (
                f"Cannot tell: it is not shown that updates gain anything over {found.today}, whose regret is "
                f"{found.present.value:.4g} where that of {found.often} is {found.sequential.value:.4g} ({on}). "
                f"{more % 'show it'}"
            )
        if (sure := found.enough(TOLERANCE, surely=True)) is not None:
            return (
                f"Take {self._schedule_of(sure)}: at most {sure.batches - 1} updates bring "
                f"{share_of(sure)} of what {found.often} gain, surely {most} ({on}).{self._when(sure)}"
            )
        closest = min(found.points, key=lambda point: point.lost.value)
        if all(found.verdict(point, TOLERANCE) == "outside" for point in found.points):
            return (
                f"Update as often as you can: nothing tried brings {most}. The closest, {WORDS[closest.kind]} with "
                f"B = {closest.batches}, bring {share_of(closest)} ({on})."
            )
        point = found.enough(TOLERANCE) or closest
        return (
            f"Cannot tell yet how many updates bring {most} of the gain: by estimate alone "
            f"{self._schedule_of(point)} does, with {share_of(point)} ({on}). {more % 'tell'}"
        )

    def _when(self, point: Point) -> str:
        """Return when updates come, as a sentence."""
        points = getattr(self.frontier.schedule(point, self.horizon), "points", None)
        rounds = np.cumsum(point.pattern)[:-1].tolist() if points is None else points
        typical = f"A typical run of {self.frontier.rounds} rounds had {len(rounds)}"
        named = ", ".join(map(str, rounds[:SHOWN_ROUNDS])) + (", …" if len(rounds) > SHOWN_ROUNDS else "")
        after = f" after round{'s' if len(rounds) > 1 else ''} {named}" if len(rounds) else ""
        return f" {typical if points is None else 'They come'}{after}."

    def recipe(self) -> str | None:
        """Return the policy with its schedule for the horizon, to be pasted; None if nothing came close enough."""
        point = self.frontier.enough(TOLERANCE, surely=True) or self.frontier.enough(TOLERANCE)
        if point is None or self.withheld:
            return None
        schedule = self._schedule_of(point)
        kind, remarks = {"default": "BatchNeuralUCB", "ensemble": "EnsemblePolicy"}.get(self.policy, self.policy), []
        settings = [f"{name}={value!r}" for name, value in self.settings.items()]
        settings += ["estimator=DecisionTreeRegressor(min_samples_leaf=5)"] if self.policy == "ensemble" else []
        settings += ["ridge='learned'"] if kind in ("LinUCB", "LinTS") and "ridge" not in self.settings else []
        if self.blocks and self.arm_names:
            line = f"FramePolicy.fit({kind}, features, arms={list(self.arm_names)}, schedule={schedule}"
            remarks.append("features: the columns of the log that describe a round")
        else:
            line = f"{kind}({'**blocks.settings' if self.blocks else f'dim={self.dim}'}, schedule={schedule}"
            remarks += [f"blocks = ArmBlocks.fit(features, arms={self.arms})"] if self.blocks else []
            if not self.blocks and self.origin != "world":
                settings.append("context_scale=scale")
                remarks.append("scale = Affine.fit(rows), the features of all arms of the log")
        if point.log_ratio is not None and self.horizon > self.frontier.rounds:
            simulated = f"the {point.log_ratio:g} simulated over {self.frontier.rounds} rounds"
            remarks.append(f"log_ratio is extrapolated from {simulated}")
        written = ", ".join([line, *settings])
        return f"To paste: {written}){'  # ' if remarks else ''}{'; '.join(remarks)}"

    def _schedule_of(self, point: Point) -> str:
        """Return a point's schedule over the horizon as it is constructed."""
        schedule: Any = self.frontier.schedule(point, self.horizon)
        values = {each.name: getattr(schedule, each.name) for each in fields(schedule)}
        named = ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
        return f"{type(schedule).__name__}({named})"


def share_of(point: Point) -> str:
    """Return the share of the gain that a schedule brings, with its interval; more than all is all."""
    value, low, high = (percent(min(1.0, 1 - lost)) for lost in (point.lost.value, point.lost.high, point.lost.low))
    return f"{value} ({low} to {high})" if math.isfinite(point.lost.high) else value


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %" if math.isfinite(share) else "unknown"


# --- simulation


def plan(
    source: DecisionLog | World,
    *,
    horizon: int,
    simulator: simulate.Simulator | None = None,
    noise: float | None = None,
    policy: str | simulate.Make | Policy | FramePolicy = "default",
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
        The policy that you will run: "default", "LinUCB", "LinTS", "ensemble", module:name, a `Policy` or `FramePolicy`
        or the file of one (of which kind and settings count), a class of policies or a function that makes one.
        `settings` are the policy's own arguments, such as hidden and ridge. The planned schedule belongs to these.
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
    *_, last = improving_plan(**locals(), soon=False)
    return last


def improving_plan(*source: Any, soon: bool = True, **given: Any) -> Iterator[Plan]:
    """Yield the plan as it improves: at first of few short runs, then with every run; arguments as in `plan`."""
    asked = simulate.arguments_of(plan, source, given)
    horizon, runs, kinds = asked.horizon, asked.runs, asked.kinds
    simulate.check_each_whole(asked, horizon=MIN_ROUNDS, max_rounds=MIN_ROUNDS, runs=1, jobs=1, seed=0)
    if asked.noise is not None:
        check_not_negative("noise", asked.noise, "because it is a standard deviation")
    for kind in [kinds] if isinstance(kinds, str) or not kinds else kinds:
        check_choice("each of kinds, a list,", kind, ScheduleKind)
    progress = read_progress(asked.progress, "a stage, the steps done and their total")
    maker, played = simulate.Maker(asked.policy, asked.settings), _read_source(asked.source)
    log = played.log if isinstance(played, LoggedRounds) else None
    rounds = min(horizon, asked.max_rounds, horizon if isinstance(played, LoggedRounds) else played.horizon or horizon)
    counts = _counts(asked.batches, rounds)
    world, origin, notes, fit = _case(asked, played, rounds, progress)
    maker(world.dim, world.context_scale, EveryRound(), 0)  # what cannot be made shows before anything is played
    numbers = [int(number) for number in np.random.SeedSequence(asked.seed).generate_state(runs + PILOTS)]
    world = world.with_runs(numbers) if isinstance(world, LogWorld) and origin == "simulated" else world
    few = [count for count in counts if count <= rounds // SHORTER // 4]
    ladder = [(rounds // SHORTER, few, min(runs, MIN_RUNS))] if soon and few and rounds > SHORT else []
    for length, tried, times in [*ladder, (rounds, counts, runs)]:
        seeds = numbers[PILOTS : PILOTS + times], numbers[:PILOTS]
        for frontier in improving(world, maker, length, tried, kinds, *seeds, asked.jobs, progress):
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
                settings=maker.settings,
                seed=asked.seed,
                fit=fit,
                frontier=frontier,
                notes=(*_notes_on_rounds(played, horizon, length, kinds), *notes, *_notes_on_policy(log, maker)),
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
    return LoggedRounds(source)


def _case(
    asked: SimpleNamespace, source: LoggedRounds | World, rounds: int, progress: Any
) -> tuple[World, Origin, Sequence[str], Fit | None]:
    """Return the world to simulate, where its rewards are from, notes on them, and how good a fit of them is."""
    noise = asked.noise
    if isinstance(source, World):
        if asked.simulator is not None or noise is not None:
            raise InvalidInput("a world has its own rewards and noise; give simulator and noise with a log.")
        return source, "world", [f"Contexts and rewards are those of the world {type(source).__name__}."], None
    if asked.simulator is not None:
        simulated = SimulatedRewards(source, asked.simulator, noise)
        simulated.check()
        around = f"{simulate.DEFAULT_NOISE:g} times the spread of its means" if noise is None else f"{noise:g}"
        note = f"Rewards are those of the simulator given, with normal noise of {around} around them."
        return LogWorld(source, simulated, rounds), "simulated", [note], None
    progress("reward model", 0, 1)
    fitted = fit_rewards(source, asked.seed, noise=noise)
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


def _notes_on_rounds(
    source: LoggedRounds | World, horizon: int, rounds: int, kinds: Sequence[ScheduleKind]
) -> Iterator[str]:
    if rounds < horizon:
        trigger = " log q at the whole horizon is EXTRAPOLATED from the simulated growth of log det Z."
        yield (
            f"The simulation is {rounds} rounds long, not {horizon}: shares are those of the SHORTER horizon at the "
            "same numbers of batches. This favours equal batches, of which the first, played untrained, grows with the "
            f"horizon.{trigger if 'adaptive' in kinds else ''}"
        )
    if isinstance(source, LoggedRounds):
        again = f", and {rounds - len(source)} more are drawn from it again" if rounds > len(source) else ""
        yield (
            f"Simulated rounds are those of the log in a random order, {min(rounds, len(source))} of them{again}: what "
            "changed with time in the log does not change in the simulation."
        )


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


def _notes_on_policy(log: DecisionLog | None, maker: simulate.Maker) -> Iterator[str]:
    yield from (str(remark) for remark in (log.remarks if log else ()) if remark.kind != "gap")
    settings = ", ".join(f"{name}={value}" for name, value in maker.settings.items()) or "nothing set"
    yield (
        f"The simulated policy is {maker.name} ({settings}). It starts untrained, and has all rewards of a batch in "
        "time for its update; one that starts from the log needs fewer. The schedule belongs with these settings."
    )
