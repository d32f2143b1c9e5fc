"""Rounds decided in one compiled call: of a linear policy, or of one without a model, under a rule of the package.

What `select.decide` does in many steps `native/steps.c` does in one, for one round or for thousands, with the same arms
up to near-ties and the same numbers up to rounding. `CompiledStep.fits` says where; everything else, such as a rule or
a covariance of one's own, and a machine without a compiler, goes the plain way, which is the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from rarely._core.choice.gaussian_argmax import LARGE_BONUSES, tables
from rarely._core.choice.random_stream import UniformStream
from rarely._core.choice.rules import MixedRule, lot_share
from rarely._core.covariance import Covariance, CovarianceFactory
from rarely._core.covariance.cholesky import PANEL
from rarely._core.covariance.primal import Primal
from rarely._core.errors import InvalidContexts, InvalidInput
from rarely._core.inputs.contexts import ContextReader, RoundContexts
from rarely._core.native import in_use, library
from rarely._core.native.linalg import NO_MEMORY, address
from rarely._core.native.loader import StepTask
from rarely._core.policies.select import LARGE_FEATURES, LARGE_VARIANCES, MODEL, NO_MODEL, Chosen, conclude
from rarely._core.policies.state import ArmStats, PolicyState, Version
from rarely._core.types import Array, Decision

AT_ONCE = 2**16
"""Numbers in the contexts of one call of a block, which then stay in the second-level cache."""
RULES = {"upper": 0, "thompson": 2, "uniform": 4, "given": 5}
"""`enum rule` of `steps.c`; one more where ties are shared."""
TROUBLE = {2: LARGE_FEATURES, 3: LARGE_VARIANCES}
"""What to say of `enum trouble`."""
MEMORY, BONUSES = 4, 5
KINDS = {"picked": np.int64, "present": np.bool_, "held_out": np.bool_}
"""The numbers of arrays that do not hold float64."""
RUNNING = (("factor", "next_factor"), ("matrix", "next_matrix"))


@cache
def _tables() -> tuple[Array, int]:
    """Return the tables of the normal distribution, and where they lie."""
    values = tables()
    return values, address(values)


class CompiledStep:
    """The room in which the rounds of one policy are decided: arrays whose addresses C knows, used again and again.

    It is scratch, as a policy's generator is: what a version consists of is copied in when the version changes, and
    what lives longer than a call is copied out. A call that raises or is interrupted, at any line, may leave it half
    changed: then the next one begins with an empty room.
    """

    def __init__(self) -> None:
        self._in_use = False
        """Whether a call has begun and not ended."""
        self._task: Any = None
        self._ready: Version | None = None
        """The version whose learner, rule and radius lie in the room."""
        self._possible = False
        self._sizes: tuple[int, int] = (0, 0)
        self._shape: tuple[int, int, int] = (0, 0, 0)
        self._room: dict[str, Any] = {}
        self._place: dict[str, int] = {}
        self._running: Any = None
        """The factor of the running Z that lies in the room, and of the frozen one."""
        self._frozen: Any = None

    def fits(self, state: PolicyState, rounds: RoundContexts, factory: CovarianceFactory) -> bool:
        """Return whether these rounds can be decided here; get ready for the version in use."""
        if self._in_use:
            self.__init__()  # type: ignore[misc]
        self._in_use = True
        now, ready, arms = state.current, self._ready, rounds.present.shape[1]
        if (
            ready is None
            or now.learner is not ready.learner
            or now.rule is not ready.rule
            or now.radius != ready.radius
            or now.override is not ready.override
            or type(now.covariance) is not type(ready.covariance)
        ):
            self._ready, self._possible = now, in_use() and self._get_ready(now)
        self._in_use = self._possible and (
            arms <= state.most_arms or factory.adapted(now.covariance, arms) is now.covariance
        )
        return self._in_use

    def _get_ready(self, current: Version) -> bool:
        """Copy what stays the same within a version; return whether the version can be decided here at all."""
        learner, covariance, rule = current.learner, current.covariance, current.rule
        own = rule.rule if isinstance(rule, MixedRule) else rule
        linear = learner.linear_form if type(covariance) is Primal and covariance.parameters <= PANEL else None
        if not own.compiled or current.override is not None or current.unit != 1 or (learner.predicts and not linear):
            return False
        task = self._task = self._task or StepTask(normal=_tables()[1])
        shared = own.draws if own.compiled == "upper" else not getattr(own, "lowest", True)
        task.rule, task.dim, task.parameters = RULES[own.compiled] + shared, learner.dim, 0
        task.epsilon = rule.mixture.epsilon if isinstance(rule, MixedRule) else 0.0
        task.per_deviation, task.reward_spread, task.ridge = current.radius, learner.reward_spread, covariance.ridge
        if linear is not None and isinstance(covariance, Primal):
            (scale, theta), d, p = linear, learner.dim, covariance.parameters
            if self._sizes != (d, p):
                vectors = (("center", (d,)), ("spread", (d,)), ("theta", (p,)))
                panels = [(name, (p, PANEL)) for name in ("scoring", "factor", "next_factor")]
                self._lay_out([*vectors, *panels, ("matrix", (p, p)), ("next_matrix", (p, p))])
                self._sizes, self._running, self._frozen = (d, p), None, None
            room, task.parameters = self._room, p
            room["center"][:], room["spread"][:], room["theta"][:] = scale.center, scale.spread, theta
            task.center = self._place["center"] if scale.changes else None
        return True

    def _lay_out(self, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Make arrays of these shapes, which C knows by the same names, in one piece of memory."""
        kinds: list[np.dtype[Any]] = [np.dtype(KINDS.get(name, np.float64)) for name, _ in shapes]
        sizes = [kind.itemsize * prod(shape) for kind, (_, shape) in zip(kinds, shapes, strict=True)]
        memory = np.empty(sum(-(-size // 8) for size in sizes))
        begin, bytes_ = address(memory), memory.view(np.uint8)
        start = 0
        for (name, shape), kind, size in zip(shapes, kinds, sizes, strict=True):
            self._room[name] = bytes_[start : start + size].view(kind).reshape(shape)
            self._place[name] = begin + start
            setattr(self._task, name, begin + start)
            start += -(-size // 8) * 8

    def decide(
        self,
        state: PolicyState,
        rounds: RoundContexts,
        reader: ContextReader,
        generator: np.random.Generator,
        *,
        life: str,
        until_due: bool,
    ) -> tuple[PolicyState, Decision]:
        """Return what `select.decide` returns."""
        current, clock, stats, round = state.current, state.clock, state.arm_stats, state.history.rounds
        covariance, total, (_, arms) = current.covariance.fork(), len(rounds), rounds.present.shape
        draws = UniformStream(generator, state.random) if current.rule.draws else None
        most, start, done = max(1, AT_ONCE // (arms * self._task.dim)), 0, list[Chosen]()
        while start < total:
            count = min(total - start, most)
            if until_due:
                count = min(count, clock.lookahead(round, covariance.log_det))
            end = clock.first_due(round, self._play(current, covariance, stats, rounds, start, count, draws))
            if end is not None:
                clock = clock.ended()
                if until_due and end + 1 < count:
                    count = end + 1
                    self._play(current, covariance, stats, rounds, start, count, draws)
            if draws is not None:
                draws.keep(count)
            stats = self._accept(covariance, stats, count)
            start, round = start + count, round + count
            done.append(self._chosen(current, draws, alone=start == total and not done))
            if end is not None and until_due:
                break
        concluded = conclude(
            state,
            current.with_covariance(covariance),
            clock,
            stats,
            state.random if draws is None else draws.state,
            reader,
            max(arms, state.most_arms),
            done,
            life,
            single=rounds.single,
        )
        self._in_use = False
        return concluded

    def scores(self, state: PolicyState, rounds: RoundContexts) -> Array:
        """Return mean, bonus and probability of every arm under the Z in use, (3, n, K)."""
        current, parts, (_, arms) = state.current, [], rounds.present.shape
        covariance, most = current.covariance.fork(), max(1, AT_ONCE // (arms * self._task.dim))
        for start in range(0, len(rounds), most):
            count = min(len(rounds) - start, most)
            self._play(current, covariance, state.arm_stats, rounds, start, count, None, alike=True)
            parts.append(self._room["scores"].copy())
        return np.concatenate(parts, axis=1)

    def _play(
        self,
        current: Version,
        covariance: Covariance,
        stats: ArmStats,
        rounds: RoundContexts,
        start: int,
        count: int,
        draws: UniformStream | None,
        *,
        alike: bool = False,
    ) -> Array:
        """Let C decide the next rounds, and return log det of the running Z after each; nothing is accepted yet.

        With `alike` all of them have the bonuses of the Z before them.
        """
        task, end, rule, (_, arms) = self._task, start + count, current.rule, rounds.present.shape
        if self._shape != (count, arms, task.dim):
            offered = (("rows", (count, arms, task.dim)), ("present", (count, arms)), ("scores", (3, count, arms)))
            each = [(name, (count,)) for name in ("uniforms", "shares", "log_dets", "picked", "held_out")]
            self._lay_out([*offered, *each, ("known", (count, 3)), ("chosen", (count, task.dim)), ("sums", (4,))])
            self._shape = task.rounds, task.arms, _ = (count, arms, task.dim)
        room, place = self._room, self._place
        if rounds.whole:
            np.add(rounds.given[start:end], 0.0, out=room["rows"])  # −0 becomes 0: equal contexts are the same bytes
            task.present = None
        else:
            there = rounds.rows(start, end)
            room["rows"].reshape(-1, task.dim)[: len(there)] = there
            room["present"][:], task.present = rounds.present[start:end], place["present"]
        task.uniforms = task.shares = None
        if draws is not None:
            room["uniforms"][:], task.uniforms = draws.peek(count), place["uniforms"]
        if type(rule) is MixedRule:  # isinstance asks the abstract base class, which takes a microsecond
            even = task.present is None
            room["shares"][:] = (
                lot_share(task.epsilon, arms) if even else rule.exploration_share(rounds.present[start:end]).max(axis=1)
            )
            task.shares = place["shares"]
        elif rule.compiled == "given":
            script: Any = rule
            room["picked"][:] = script.take(count)
        if task.parameters:
            self._load(covariance, running=current.uses_running, alike=alike or rule.ignore_running_bonuses)
        # Sums go on from those of earlier calls, so that rounds one by one and in a block have the same bits.
        room["sums"][:] = stats.unexplored, stats.chosen, stats.least_known, stats.arms
        task.disjoint, task.log_det = stats.disjoint, covariance.log_det
        if trouble := library().rarely_step(task):
            _explain(trouble, rounds, start, count)
        log_dets: Array = room["log_dets"]
        return log_dets

    def _load(self, covariance: Covariance, *, running: bool, alike: bool) -> None:
        """Copy both factors of Z, unless they lie there already."""
        assert isinstance(covariance, Primal)
        task, room, place = self._task, self._room, self._place
        factor, frozen, matrix = covariance.factors_in_use()
        if factor is not self._running:
            room["factor"][:], room["matrix"][:], self._running = factor.inverse, matrix, factor
        if not running and frozen is not self._frozen:
            room["scoring"][:], self._frozen = frozen.inverse, frozen
        task.scoring = (place["factor"] if alike else None) if running else place["scoring"]

    def _accept(self, covariance: Covariance, stats: ArmStats, count: int) -> ArmStats:
        """Make the rounds that were played part of Z, and return the sums with their arms."""
        task, room, place = self._task, self._room, self._place
        if type(covariance) is not Primal:
            covariance.rounds += count
            return stats
        covariance.advance(room["next_factor"].copy(), room["next_matrix"].copy(), count, task.log_det)
        self._running = covariance.factors_in_use()[0]
        for now, then in RUNNING:  # where the next call will find it
            room[now], room[then], place[now], place[then] = room[then], room[now], place[then], place[now]
            setattr(task, now, place[now])
            setattr(task, then, place[then])
        unexplored, chosen, least_known, offered = room["sums"].tolist()
        return ArmStats(stats.rounds + count, int(offered), unexplored, chosen, least_known, bool(task.disjoint))

    def _chosen(self, current: Version, draws: UniformStream | None, *, alone: bool) -> Chosen:
        """Return the rounds that were played; what only the history takes is copied unless they are `alone`."""
        room = self._room
        means, bonuses, probabilities = room["scores"].copy()
        arms, chosen, known = room["picked"].copy(), room["chosen"], room["known"]
        if not alone:
            chosen, known = chosen.copy(), known.copy()
        lot = room["held_out"].copy() if draws is not None and type(current.rule) is MixedRule else None
        source = MODEL if current.learner.predicts else NO_MODEL
        return Chosen(means, bonuses, probabilities, arms, chosen, lot, known, source)


def _explain(trouble: int, rounds: RoundContexts, start: int, count: int) -> None:
    """Raise what C has found to be wrong."""
    if trouble == MEMORY:
        raise MemoryError(NO_MEMORY)
    if trouble == BONUSES:
        raise InvalidInput(LARGE_BONUSES)
    rounds.part(start, lambda: count)  # says which number is not finite
    raise InvalidContexts(TROUBLE[trouble])
