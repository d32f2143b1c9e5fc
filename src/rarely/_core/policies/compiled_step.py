"""Rounds decided in one compiled call: of a linear policy, or of one without a model, under a rule of the package.

What `select.decide` does in many steps `native/steps.c` does in one, for one round or for thousands, with the same arms
up to near-ties and the same numbers up to rounding. `CompiledStep.fits` says where; everything else, such as a rule or
a covariance of one's own, and a machine without a compiler, goes the plain way, which is the oracle.

A single round may be scored by kernels, too, under the t×t form of Z:

    k   (t, K)   kernels between past features and those of the arms       mean   αᵀk       v   (‖φ‖² − |L⁻¹k|²)/λ

C makes features, k, means, L⁻¹k and variances (`native/evidence.c`); Z takes in the chosen arm as on the plain way, to
which its features and its column of L⁻¹k are handed over.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rarely._core.choice.gaussian_argmax import LARGE_BONUSES, tables
from rarely._core.choice.random_stream import RandomPlace
from rarely._core.choice.rules import MixedRule, lot_share
from rarely._core.covariance import Candidates, Covariance, CovarianceFactory, Dual
from rarely._core.covariance.cholesky import PANEL
from rarely._core.covariance.primal import Primal
from rarely._core.errors import InvalidContexts, InvalidInput, InvalidWorth
from rarely._core.growable_array import address, changed
from rarely._core.inputs.contexts import ContextReader, RoundContexts
from rarely._core.inputs.history import History
from rarely._core.inputs.worth import Worth
from rarely._core.model.features import Factors
from rarely._core.model.kernels import CLIP, COLUMNS, LINEAR, KernelForm, products
from rarely._core.native import in_use, library, linalg
from rarely._core.native.loader import struct
from rarely._core.policies.select import LARGE_FEATURES, LARGE_VARIANCES, LARGE_WORTH, MODEL, NO_MODEL, decision_of
from rarely._core.policies.state import ArmStats, PolicyState, Version
from rarely._core.types import Array, Decision

AT_ONCE = 2**16
"""Numbers in the contexts of one call of a block, which then stay in the second-level cache."""
RULES = {"upper": 0, "thompson": 2, "uniform": 4, "given": 5}
"""`enum rule` of `steps.c`; one more where ties are shared."""
TROUBLE = {2: LARGE_FEATURES, 3: LARGE_VARIANCES}
"""What to say of `enum trouble`."""
MEMORY, BONUSES, ROUNDED_OFF, WORTH, WRONG_WORTH = 4, 5, 6, 7, 8
KINDS = {"given": np.int64, "present": np.bool_, "held_out": np.bool_}
"""The numbers of arrays that do not hold float64."""
FLOATS = np.dtype(np.float64)
SIDE = ("x", "u", "z", "s", "clocks", "x_lengths", "u_lengths", "z_lengths", "s_lengths")
OF_A_SIDE = ("raw", "centred", "learned", "columns", "clocks", "raw_lengths", "lengths", "learned_lengths")
"""The arrays of a feature by kernels."""
NONE = np.zeros((1, 1))


class CompiledStep:
    """The room in which the rounds of one policy are decided: arrays whose addresses C knows, used again and again.

    It is scratch, as a policy's generator is: what a version consists of is copied in when the version changes, and
    what lives longer than a call is copied out, or written by C behind the rows of the history. A call that raises or
    is interrupted, at any line, may leave it half changed: then the next one begins with an empty room.
    """

    def __init__(self) -> None:
        self._task: Any = None
        self._room: dict[str, Any] = {}
        self._place: dict[str, int] = {}
        self._ready: Version | None = None  # the version whose learner, rule and radius lie in the room
        self._covariance: Any = None  # Z before the rounds that were played last
        self._possible = False
        self._parameters = -1
        self._shape: tuple[int, ...] | None = None
        self._tables: Any = None  # the contexts of the history into which C writes
        self._factor: Any = None  # the factors of the running Z that lies in the room
        self._frozen: Any = None  # and of the frozen one
        # What the last round left: if the state still has both, and its shape comes again, nothing is left to do.
        self._current: Version | None = None
        self._stats: ArmStats | None = None
        self._one: tuple[int, int] | None = None
        self._slate: Array | None = None
        self._said: Any = None  # gain, cost and what is spent of a ceiling
        self._same_cost: float | None = None  # the number that all costs are; None where they differ
        self._curve: Any = None  # C(p) that C knows
        self._charges = False  # whether known costs alone have a say in what is spent
        self._kernels: Any = None
        # Whether a call has begun and not ended; the last line, because this may be interrupted as well.
        self._in_use = False

    def fits(self, state: PolicyState, rounds: RoundContexts, factory: CovarianceFactory, slots: int = 1) -> bool:
        """Return whether these rounds, or slots, can be decided here; get ready for the version in use."""
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
            self._ready, self._possible = now, self.possible(now)
        known = arms <= state.most_arms or factory.adapted(now.covariance, arms) is now.covariance
        self._in_use = self._possible and known and (self._kernels is None or len(rounds) == slots == 1)
        return self._in_use

    def possible(self, current: Version) -> bool:
        """Copy what stays the same within a version; return whether the version can be decided here at all."""
        learner, covariance, rule = current.learner, current.covariance, current.rule
        self._mixed, self._draws = isinstance(rule, MixedRule), rule.draws
        self._lots = self._mixed and self._draws
        own = rule.rule if isinstance(rule, MixedRule) else rule
        linear = learner.linear_form if type(covariance) is Primal and covariance.parameters <= PANEL else None
        kernels = learner.kernel_form if by_kernels(covariance) else None
        scored = linear or kernels or not learner.predicts
        if not (in_use() and own.compiled and scored and current.override is None and current.unit == 1):
            return False
        task = self._task = self._task or struct("step_task")(normal=address(tables()))
        self._step = library().rarely_step
        shared = own.draws if own.compiled == "upper" else not getattr(own, "lowest", True)
        task.rule, task.dim, task.parameters = RULES[own.compiled] + shared, learner.dim, 0
        task.epsilon = rule.mixture.epsilon if isinstance(rule, MixedRule) else 0.0
        task.per_deviation, task.reward_spread, task.ridge = current.radius, learner.reward_spread, covariance.ridge
        self._source = MODEL if learner.predicts else NO_MODEL
        self._kernels = task.dual = None
        if kernels is not None and isinstance(covariance, Dual):
            self._kernels = KernelRoom(kernels, learner.dim, covariance)
            task.dual, task.parameters = ctypes.addressof(self._kernels.task), 1
        if linear is not None and isinstance(covariance, Primal):
            (scale, theta), d, p = linear, learner.dim, covariance.parameters
            if self._parameters != p:
                vectors = (("center", (d,)), ("spread", (d,)), ("theta", (p,)))
                self._lay_out([*vectors, ("scoring", (p, p)), ("running", (2, p, p))])
                begin = self._place["running"]
                self._parameters, task.factor, task.matrix = p, begin, begin + 8 * p * p
                self._factor = self._frozen = None
            room, task.parameters = self._room, p
            room["center"][:], room["spread"][:], room["theta"][:] = scale.center, scale.spread, theta
            task.center = self._place["center"] if scale.changes else None
        return True

    def _lay_out(self, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Make arrays of these shapes, which C knows by the same names."""
        for name, shape in shapes:
            array = self._room[name] = np.empty(shape, KINDS.get(name, np.float64))
            self._place[name] = address(array)
            setattr(self._task, name, self._place[name])

    def decide_again(
        self, state: PolicyState, contexts: Any, worth: Any, generator: np.random.Generator, life: str
    ) -> tuple[PolicyState, Decision] | None:
        """Decide one round of all arms that comes as the last one did, for which the room is ready; else None.

        It does what `decide` does, with nothing around it: most rounds of a life are decided here.
        """
        current, stats, history = state.current, state.arm_stats, state.history
        if self._in_use or type(contexts) is not np.ndarray or not (current is self._current or self._renewed(state)):
            return None
        again = stats is self._stats and contexts.shape == self._one
        if not again or contexts.dtype is not FLOATS or state.reader.arms != contexts.shape[0]:
            return None
        task, place, self._covariance = self._task, state.random, current.covariance
        ledger, task.gains = state.ledger, None
        if (worth is not None or ledger is not None) and not self._take(worth, ledger, len(history) + 1):
            return None
        self._in_use = True
        if history.full or history.tables[0] is not self._tables:
            history = self._bind(history, 1)
        np.add(contexts, 0.0, out=self._room["rows"][0])  # −0 becomes 0: equal contexts are the same bytes
        if self._draws:
            place = place.ahead(generator, 1)
            task.uniforms, place = place.address + 8 * place.used, place.after(1)
        task.row = len(history)
        if self._kernels is not None:
            self._kernels.prepare(self._covariance, len(contexts), running=current.uses_running)
        if trouble := self._step(task):
            if trouble in (ROUNDED_OFF, WRONG_WORTH):
                self._in_use = trouble == ROUNDED_OFF
                return None
            _explain(trouble, RoundContexts(contexts[None], np.ones((1, len(contexts)), np.bool_), 1, True), 0, 1)
        current, stats = self._accepted(current, stats, 1)
        history = history.after_rounds(1, life)
        clock = state.clock.after_round(history.rounds, current.covariance.log_det)
        after = changed(state, current=current, clock=clock, history=history, random=place, arm_stats=stats)
        tables, lot = self._room["tables"], self._room["held_out"] if self._lots else None
        scores = tables[0 if worth is None else 1 if ledger is None else 2].copy()
        decision = decision_of(scores, (task.arm,), after, life, lot, self._source, None, single=True)
        if worth is not None:
            del decision.__dict__["worth"]  # which is made of the scores when it is asked for
        if ledger is not None:
            decision.__dict__["price"] = task.price
            after.__dict__["ledger"] = ledger.charged(task.spent, self._room["rows"][0].copy(), scores)
        self._in_use = False
        return after, decision

    def _renewed(self, state: PolicyState) -> bool:
        """Return whether the version differs in θ alone from the one whose Z lies in the room; get ready for it."""
        current, ready, covariance = state.current, self._ready, state.current.covariance
        if self._one is None or ready is None or self._factor is None or not isinstance(covariance, Primal):
            return False
        form, before = current.learner.linear_form, ready.learner.linear_form
        same = form is not None and before is not None and form[0] is before[0]
        same = same and current.rule is ready.rule and current.radius == ready.radius and current.override is None
        if form is None or not same or covariance.advanced_to is not self._factor or not current.uses_running:
            return False
        self._in_use = True
        self._room["theta"][:] = form[1]
        self._set_sums(state.arm_stats, covariance)
        self._task.version, self._stats = state.clock.version, state.arm_stats
        self._ready = self._current = current
        self._in_use = False
        return True

    def _set_sums(self, stats: ArmStats, covariance: Covariance) -> None:
        """Let sums go on from those of earlier calls, so that rounds one by one and in a block have the same bits."""
        task = self._task
        task.disjoint, task.offered, task.log_det = stats.disjoint, stats.arms, covariance.log_det
        task.unexplored, task.picked, task.least_known = stats.unexplored, stats.chosen, stats.least_known

    def _take(self, worth: Any, ledger: Any, round: int) -> bool:
        """Tell C gain, cost and spending of one round, if they are arrays or numbers; what is wrong it finds itself."""
        gain, cost, spends = worth, 0.0, None
        if type(worth) is Worth:
            gain, cost, spends = worth.gain, worth.cost, worth.spends
        if (spends is None) is not (ledger is None) or (ledger is not None and not self._charge(ledger, round)):
            return False
        gains, costs, spent = self._said
        try:  # in half the time of assignments to arrays, and with shapes and kinds checked
            gains[:] = gain if type(gain) is not float else np.full(len(gains), gain)
            if cost is not self._same_cost:
                self._same_cost = None
                costs[:] = cost if type(cost) is not float else np.full(len(costs), cost)
                self._same_cost = cost if type(cost) is float else None
            if ledger is not None:
                spent[:] = spends if type(spends) is not float else np.full(len(spent), spends)
                self._task.spends = self._spends
        except (TypeError, ValueError):
            return False
        self._task.gains = self._gains
        return True

    def _charge(self, ledger: Any, round: int) -> bool:
        """Tell C how a ceiling stands; return whether it is one of known costs, alone, in a period under way."""
        task = self._task
        if ledger.curve is not self._curve:
            curve, self._curve, self._charges = ledger.curve, None, ledger.by_known_costs
            if self._charges:
                task.total, task.curve, task.points = ledger.ceiling.total, address(curve), curve.shape[1]
            self._curve = curve
        task.spent, task.rounds_left = ledger.spent, ledger.rounds_left(round)
        return self._charges and task.rounds_left > 0

    def decide(
        self,
        state: PolicyState,
        rounds: RoundContexts,
        reader: ContextReader,
        factory: CovarianceFactory,
        generator: np.random.Generator,
        life: str,
        *,
        until_due: bool = False,
        slots: int = 0,
    ) -> tuple[PolicyState, Decision] | None:
        """Return what `select.decide` returns, or `slate_at_once`; None where these should, and warn of lost digits."""
        if not self.fits(state, rounds, factory, slots or 1):
            return None
        current, clock, stats, history, place = state.current, state.clock, state.arm_stats, state.history, state.random
        total, arms, single = slots or len(rounds), rounds.present.shape[1], rounds.single and not slots
        self._one, self._task.version = None, clock.version
        most = slots or max(1, AT_ONCE // (arms * self._task.dim))
        start, parts, lots = 0, list[Array](), list[Array]()
        while start < total and not (until_due and clock.due):
            count = min(total - start, most)
            if until_due:
                count = min(count, clock.lookahead(history.rounds, current.covariance.log_det))
            if self._draws:
                place = place.ahead(generator, count)
            history = self._bind(history, count)
            log_dets = self._play(current, stats, history, rounds, start, count, place, slots=slots > 0)
            if log_dets is None:
                return None
            end = None if self._kernels is not None else clock.first_due(history.rounds, log_dets)
            if end is not None:
                clock = clock.ended(history.rounds + end + 1)
                if until_due and end + 1 < count:
                    count = end + 1
                    self._factor = None  # which the rounds too many have changed
                    self._play(current, stats, history, rounds, start, count, place)
            current, stats = self._accepted(current, stats, count)
            history, start = history.after_rounds(count, life), start + count
            if self._kernels is not None:
                clock = clock.after_round(history.rounds, current.covariance.log_det)
            place = place.after(count) if self._draws else place
            parts.append(self._room["scores"][:3].copy() if self._slate is None else self._slate)
            lots.append(self._room["held_out"].copy())
        after = changed(state, current=current, clock=clock, history=history, random=place, reader=reader)
        after.__dict__.update(arm_stats=stats, most_arms=max(arms, state.most_arms))
        scores = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        lot = np.concatenate(lots) if self._lots else None
        if single:
            chosen: Any = (self._task.arm,)
            self._one = (arms, self._task.dim) if rounds.whole else None
        else:
            chosen = history.arms[-scores.shape[1] :].copy()
        worth = rounds.worth and rounds.worth[np.zeros(slots, np.int64)] if slots else rounds.worth_of(len(chosen))
        decision = decision_of(scores, chosen, after, life, lot, self._source, worth, single=single)
        if slots:
            decision.__dict__["slate"] = np.full(slots, decision.rounds[0])
        self._in_use = False
        return after, decision

    def scores(self, state: PolicyState, rounds: RoundContexts, factory: CovarianceFactory) -> Array | None:
        """Return mean, bonus and probability of every arm under the Z in use, (3, n, K); None as `decide` does."""
        if not self.fits(state, rounds, factory):
            return None
        parts, arms, stats = [], rounds.present.shape[1], state.arm_stats
        most = max(1, AT_ONCE // (arms * self._task.dim))
        self._task.advances = 0
        for start in range(0, len(rounds), most):
            count = min(len(rounds) - start, most)
            if self._play(state.current, stats, state.history, rounds, start, count, None) is None:
                return None
            parts.append(self._room["scores"][:3].copy())
        return np.concatenate(parts, axis=1)

    def _play(
        self,
        current: Version,
        stats: ArmStats,
        history: History,
        rounds: RoundContexts,
        start: int,
        count: int,
        place: RandomPlace | None,
        *,
        slots: bool = False,
    ) -> Array | None:
        """Let C decide the next rounds, or slots, and return log det of the running Z after each; nothing is accepted.

        Without a place in the stream of random numbers none is used, and Z stays as it is.
        """
        task, rule, (_, arms) = self._task, current.rule, rounds.present.shape
        given = 1 if slots else count
        end, task.slots = start + given, slots
        self._make_room(count, arms, slots=slots)
        room, places = self._room, self._place
        # Those of a slate are many: C writes them where they stay.
        self._slate = np.empty((3, count, arms)) if slots else None
        task.scores = places["scores"] if self._slate is None else address(self._slate)
        if rounds.whole:
            np.add(rounds.given[start:end], 0.0, out=room["rows"][:given])
        else:
            there = rounds.rows(start, end)
            room["rows"].reshape(-1, task.dim)[: len(there)] = there
        task.present = None if rounds.whole and not slots else places["present"]
        if task.present is not None:
            room["present"][:given] = rounds.present[start:end]
        self._say_worth(rounds.worth, start, end)
        drawn, task.advances = place is not None and self._draws, place is not None
        task.uniforms = place.address + 8 * place.used if drawn and place is not None else None
        task.shares = places["shares"] if self._mixed else None
        if isinstance(rule, MixedRule):
            left = [arms] if task.present is None else rounds.present[start:end].sum(axis=1)
            counts = left[0] - np.arange(count) if slots else left
            room["shares"][:] = [lot_share(task.epsilon, int(number)) for number in counts]
        elif rule.compiled == "given":
            script: Any = rule
            room["given"][:] = script.take(count)
        self._covariance = current.covariance
        if self._kernels is not None:
            self._kernels.prepare(self._covariance, arms, running=current.uses_running)
        elif task.parameters:
            self._covariance = self._load(current, alike=rule.ignore_running_bonuses)
        task.row = len(history)
        self._set_sums(stats, current.covariance)
        if trouble := self._step(task):
            if trouble == ROUNDED_OFF:
                return None
            _explain(trouble, rounds, start, count)
        log_dets: Array = room["log_dets"]
        return log_dets

    def _make_room(self, count: int, arms: int, *, slots: bool) -> None:
        """Lay out what rounds of this shape need, unless the last ones had it."""
        task = self._task
        shape = (count, arms, task.dim, slots * task.parameters)
        if self._shape == shape:
            return
        tables = [("rows", (count, arms, task.dim)), ("scores", (6, count, arms)), ("present", (count, arms))]
        each = [(name, (count,)) for name in ("shares", "log_dets", "given", "held_out")]
        self._lay_out([*tables, *each, ("work", (6 * arms + slots * (arms + 15) * (task.parameters + 5),))])
        self._shape, task.rounds, task.arms = shape, count, arms
        scores, size = self._room["scores"], 8 * count * arms
        self._room["worth"], self._room["tables"] = scores[3:], (scores[:3], scores[:5], scores)
        self._gains, task.costs, self._spends = (self._place["scores"] + i * size for i in (3, 4, 5))
        self._said, self._same_cost = [memoryview(values[0]) for values in scores[3:]], None

    def _say_worth(self, worth: Worth | None, start: int, end: int) -> None:
        """Tell C what outcomes are worth: of the arms there are, in order."""
        self._task.gains, self._task.spends = None if worth is None else self._gains, None
        if worth is not None:
            self._same_cost = None
            there = ... if self._task.present is None else self._room["present"][: end - start]
            for table, values in zip(self._room["worth"], (worth.gain, worth.cost), strict=False):
                numbers = values[start:end][there].ravel()
                table.ravel()[: len(numbers)] = numbers

    def _bind(self, history: History, rounds: int) -> History:
        """Return the history with room for so many more rounds, whose tables C knows."""
        history = history.with_room(rounds)
        tables = history.tables
        if tables[0] is not self._tables:
            task, self._tables = self._task, tables[0]
            task.chosen, task.known, task.numbers = map(address, tables)
        return history

    def _load(self, current: Version, *, alike: bool) -> Covariance:
        """Copy both factors of Z, unless they lie there already; return Z without pending rounds."""
        task, room, covariance, running = self._task, self._room, current.covariance, current.uses_running
        assert isinstance(covariance, Primal)
        if covariance.advanced_to is None or covariance.advanced_to is not self._factor:
            covariance, room["running"][0], room["running"][1] = covariance.settled()
            self._factor = None
        if not running and (frozen := covariance.frozen_inverse())[0] is not self._frozen:
            self._frozen, room["scoring"][:] = frozen
        if running and alike:
            room["scoring"][:], self._frozen = room["running"][0], None
        task.scoring = None if running and not alike else self._place["scoring"]
        return covariance

    def _accepted(self, current: Version, stats: ArmStats, count: int) -> tuple[Version, ArmStats]:
        """Return the version and the sums after the rounds that were played."""
        task, covariance = self._task, self._covariance
        if task.parameters:
            sums = (task.offered, task.unexplored, task.picked, task.least_known)
            stats = ArmStats(stats.rounds + count, *sums, bool(task.disjoint))
        if self._kernels is not None:
            self._ready = current = self._grown(current)
        elif task.parameters:
            self._factor = self._room["running"].copy()
            current = changed(current, covariance=covariance.advanced(count, task.log_det, self._factor))
        else:
            current = changed(current, covariance=changed(covariance, rounds=covariance.rounds + count))
        self._current, self._stats = current, stats
        return current, stats

    def _grown(self, current: Version) -> Version:
        """Return the version after a round scored by kernels, as the plain way makes it."""
        task, covariance, arm = self._task, self._covariance.fork(), self._task.arm
        rows = self._room["rows"][0]
        if task.present:
            present = self._room["present"][0]
            arm, rows = int(present[:arm].sum()), rows[: int(present.sum())]
        scored = covariance.rounds if current.uses_running else covariance.frozen_rounds
        covariance.accept(covariance.propose(self._kernels.chosen(arm, covariance.ridge, scored)), 1)
        return changed(current, covariance=covariance, learner=current.learner.observe_contexts(rows.copy(), 1))


def _explain(trouble: int, rounds: RoundContexts, start: int, count: int) -> None:
    """Raise what C has found to be wrong."""
    if trouble == MEMORY:
        raise MemoryError(linalg.NO_MEMORY)
    if trouble == BONUSES:
        raise InvalidInput(LARGE_BONUSES)
    if trouble == WORTH:
        raise InvalidWorth(LARGE_WORTH)
    rounds.part(start, lambda: count)  # says which number is not finite
    raise InvalidContexts(TROUBLE[trouble])


class KernelRoom:
    """What C is told of a version, of past rounds and of where to write."""

    def __init__(self, form: KernelForm, dim: int, covariance: Dual) -> None:
        self._past: Any = None
        self._panels: Any = None
        units, raw, learned = form.units, dim * (form.roots[LINEAR] > 0), (dim + 1) * (form.metric is not None)
        columns = dim * (form.roots[COLUMNS] > 0)
        task = self.task = struct("dual_task")(raw=raw, centred=dim + 1, learned=learned, columns=columns)
        self._widths = (raw, dim + 1, learned, columns, 2, 1, 3, 1, 1)
        held: dict[str, Any] = {"roots": form.roots, "metric": form.metric, "coefficients": form.coefficients}
        held |= {name: getattr(units, name) for name in ("center", "rates", "sizes")}
        some = {name: array for name, array in held.items() if array is not None and array.size}
        self._held = {name: np.ascontiguousarray(array, np.float64) for name, array in some.items()}
        for name, array in self._held.items():
            setattr(task, name, address(array))
        task.most = CLIP / math.sqrt(dim) if units.clips else math.inf
        (task.time, task.side), task.predicted = form.clock, len(form.coefficients)
        task.reward_center, task.reward_scale = form.center, form.spread
        points = form.points
        if points is not None and not _begins_with(covariance, points):
            self._points, task.points_count = [*map(np.ascontiguousarray, _side(points))], len(points)
            self._point_to("points", self._points)
        self._arms, self._rows = 0, 0
        self._room: dict[str, Array] = {}

    def _point_to(self, side: str, arrays: Sequence[Array]) -> None:
        for name, array in zip(OF_A_SIDE, arrays, strict=True):
            setattr(self.task, f"{side}_{name}", address(array) if array.size else None)

    def prepare(self, covariance: Dual, arms: int, *, running: bool) -> None:
        """Tell C of the past rounds, and make room for what it writes."""
        task, rows = self.task, covariance.rounds if running else covariance.frozen_rounds
        past = covariance.past.buffers
        if past[1] is not self._past:
            self._past = past[1]
            self._point_to("past", past[: len(OF_A_SIDE)])
        if covariance.panels is not self._panels:
            self._panels = panels = covariance.panels
            task.left = places = ctypes.addressof(panels.addresses)
            task.inverse = places + len(panels.left) * ctypes.sizeof(ctypes.c_void_p)
        task.past_count = rows
        if arms != self._arms or rows > self._rows:
            self._arms, self._rows = arms, max(rows, 2 * self._rows, 64)
            task.width, task.blocks = linalg.blocks_of(arms)
            lanes = 8 * task.width * task.blocks or task.blocks
            self._room = {name: np.zeros((arms, w)) for name, w in zip(SIDE, self._widths, strict=True)}
            self._room |= {"norms": np.empty(arms), "solution": np.empty(self._rows * lanes)}
            self._room["k"] = np.empty(max(1, task.points_count * arms))
            for name, array in self._room.items():
                setattr(task, name, address(array if array.size else NONE))

    def chosen(self, row: int, ridge: float, rows: int) -> Candidates:
        """Return the features of an arm, measured."""
        room, task = self._room, self.task
        arrays = [room[name][row : row + 1].copy() for name in SIDE]
        norms = room["norms"][row : row + 1].copy()
        factors = Factors((*arrays[:5],), (*arrays[5:], np.zeros((1, 1))), norms)
        lanes = 8 * task.width * task.blocks
        if lanes:
            solved = room["solution"][: rows * lanes].reshape(rows, lanes)[:, row : row + 1].copy()
        else:
            solved = room["solution"][row * rows : (row + 1) * rows, None].copy()
        return Candidates(factors, (norms - np.square(solved).sum()) / ridge, solved, norms / ridge)


def _side(features: Factors) -> tuple[Array, ...]:
    """Return the arrays of features in the order of `SIDE`."""
    return (*features.inputs, *features.signals[:3])


def _begins_with(covariance: Dual, points: Factors) -> bool:
    """Return whether the first past features are these, bit for bit."""
    if covariance.frozen_rounds < len(points):
        return False
    first = covariance.past.part(0, len(points))
    pairs = zip((*first.inputs, *first.signals), (*points.inputs, *points.signals), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def by_kernels(covariance: Covariance) -> bool:
    """Return whether Z is the t×t form of the kernels that C knows, which measures as that form does."""
    own = type(covariance).measure is Dual.measure
    return own and isinstance(covariance, Dual) and covariance.inner is products
