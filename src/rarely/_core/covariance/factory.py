"""The life of Z: which form it has, when that changes, what it may cost, and how bonuses keep their size.

    t   rounds    p   parameters    K   arms of a decision    c   numbers in one round's factors, Σ (out_l + in_l)

    form     multiplications for the bonuses of one decision, reading Z from memory included
    dual     (K + 4)·t²/2 + (K + 2)·2ct
    primal   (K + 4)·p²/2 + Kp

"exact" is the dual form while rounds are few, and the primal form from the first update on that has t ≥ p or a long
batch before it; it changes inside a batch only if the batch lasts longer than anyone knew, after round 4p. "auto" is
the same while a decision takes at most `operations` multiplications, then the primal form if that does, else an
approximation: the diagonal form, or that of the last layer if only this is small enough. The rule depends on sizes
alone, so that a seed gives the same decisions on every machine.

An approximation measures √v on another scale: after n rounds of one arm the diagonal form has √(p/n) or so where the
exact form has √(1/n). β, and the deviations on record that it follows, belong to the scale before. So where a form
gives way to an approximation, √v is multiplied by a unit ω: `rescale_bonuses`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from rarely._core.covariance.diagonal import SparseDiagonal
from rarely._core.covariance.dual import Dual, InnerProducts
from rarely._core.covariance.primal import Primal
from rarely._core.covariance.protocol import FORMS, Covariance, Limit, RowCost, Widths
from rarely._core.errors import InvalidInput, check_positive, check_whole, nearest, shown
from rarely._core.model.features import Factors
from rarely._core.model.sparse_features import SparseFactorRows
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, Arrays

Kind = str  # the name of a form, or "auto" or "exact"
BY_SIZE = ("auto", "exact")  # names under which the size of Z decides its form
Features = Callable[[Array], Factors]

UNLIMITED = 2**62  # more rounds than anyone will see
SMALL_PRIMAL = 256  # with this few parameters p² is next to nothing, and t×t would outgrow it at once
LONG_BATCH = 4  # a batch known to end beyond this many times p is not played in the t×t form
RECENT = 64  # chosen contexts by which two forms of Z are compared, the latest ones


class SizeRule(NamedTuple):
    """What "auto" and "exact" do at given sizes."""

    dual_rounds: int  # rounds after which the dual form is left inside a batch
    primal: bool  # whether the primal form is small enough
    approximation: str  # the form to use where neither is


@dataclass(frozen=True)
class CovarianceFactory:
    """Makes the matrices Z of a policy, and changes their form."""

    form: Kind
    ridge: float
    memory_limit: int
    horizon: int | None
    operations: float | None = None
    """Multiplications that a decision may take in an exact form, where the form is "auto"; None: any number."""
    arms: int | None = None  # arms of a decision, where that is known beforehand
    row: RowCost | None = None
    """What a round takes in the dual form, and what makes that form, where a model of the user's says so."""
    dual: Callable[[Widths, float, Limit], Covariance] = Dual

    def __post_init__(self) -> None:
        if not isinstance(self.form, str) or self.form not in (*BY_SIZE, *FORMS):
            names = [*BY_SIZE, *FORMS]
            raise InvalidInput(
                f"covariance must be one of {', '.join(map(repr, names))}; got {shown(self.form)}. "
                f"{nearest(self.form, names)}If the form is your own, import its module first."
            )
        check_positive("ridge", self.ridge, "because Z_1 = ridge·I is inverted")
        object.__setattr__(self, "ridge", float(self.ridge))  # NumPy has no logarithm of an int beyond 64 bits
        check_whole("memory_limit", self.memory_limit, 1)

    def changed(self, covariance: Kind | None = None, memory_limit: int | None = None) -> CovarianceFactory:
        """Return the factory with another form or limit."""
        form = self.form if covariance is None else covariance
        return replace(self, form=form, memory_limit=self.memory_limit if memory_limit is None else memory_limit)

    # --- making Z

    def empty(self, widths: Widths, *, arms: int = 0, ahead: int = 0, rows: int = 0) -> Covariance:
        """Return λI for `rows` rounds that are added at once, in a batch of `ahead` rounds, those included."""
        limit = self._limit(widths)
        if self._fixed:
            limit.check_rounds(self.form, self.horizon or 0)
            return self._new(self.form, widths)
        rule, p = self._rule(widths, arms), parameters_of(widths)
        if rule.primal and _primal_is_cheaper(p, 0, ahead):
            return self._new("primal", widths)
        if rows >= rule.dual_rounds:
            return self._new("primal" if rule.primal else rule.approximation, widths)
        if self.horizon is not None:
            leaves = p if limit.allows("primal", 0) else self.horizon
            # While K is unknown, the dual form is left no later than with one arm.
            lasts = rule.dual_rounds if self._known_arms(arms) else self._rule(widths, 1).dual_rounds
            limit.check_rounds("dual", min(self.horizon, max(leaves, ahead), lasts))
        return self._new("dual", widths)

    def build(
        self,
        features: Features,
        widths: Widths,
        contexts: Array,
        weights: Array | None = None,
        *,
        arms: int = 0,
        ahead: int = 0,
    ) -> Covariance:
        """Return λI + Σ w φφᵀ over these contexts, for a batch of `ahead` more rounds."""
        covariance = self.empty(widths, arms=arms, ahead=len(contexts) + ahead, rows=len(contexts))
        self.add(covariance, features, contexts, weights)
        return covariance

    def add(self, covariance: Covariance, features: Features, contexts: Array, weights: Array | None = None) -> None:
        """Add Σ w φφᵀ over these contexts to the running matrix."""
        for start in range(0, len(contexts), covariance.block()):
            part = slice(start, start + covariance.block())
            covariance.add(features(contexts[part]).weighted(None if weights is None else weights[part]))

    # --- changing its form

    def adapted(self, covariance: Covariance, arms: int) -> Covariance:
        """Return Z in the form that its size allows among that many arms: itself where it may stay."""
        if self._fixed or not covariance.exact:
            return covariance
        rule = self._rule(covariance.widths, arms)
        if rule.primal if covariance.kind == "primal" else covariance.rounds < rule.dual_rounds:
            return covariance
        return self._filled(covariance, "primal" if rule.primal else rule.approximation)

    def sized(self, covariance: Covariance, arms: int) -> Covariance:
        """Return Z in the form that it has after any number of rounds, whose size does not grow with them."""
        form = self.empty(covariance.widths, arms=arms, rows=UNLIMITED).kind
        return covariance if covariance.kind == form else self._filled(covariance, form)

    def freeze_for_batch(self, covariance: Covariance, arms: int, ahead: int) -> Covariance:
        """Freeze Z for a batch of at least `ahead` rounds, in the form that is the cheaper for it."""
        if not self._fixed and covariance.kind == "dual":
            p = parameters_of(covariance.widths)
            if self._rule(covariance.widths, arms).primal and _primal_is_cheaper(p, covariance.rounds, ahead):
                covariance = self._filled(covariance, "primal", frozen=0)
        covariance.freeze()
        return covariance

    def converted(self, source: Covariance, arms: int, *, same_form: bool) -> Covariance | None:
        """Return Z in this factory's form, made from the one in use; None where that does not hold enough for it.

        The dual form holds the features of all rounds, so every form can be made of it; the primal form is the matrix,
        of which the diagonal and the last layer's block are parts; the others hold too little. With `same_form` only
        the limit of memory is another.
        """
        into = self.empty(source.widths, arms=arms, ahead=source.rounds)
        if isinstance(source, Dual):
            stays = same_form or into.kind == "dual"
            return self.adapted(source.limited(into.limit) if stays else self._filled(source, into.kind), arms)
        if same_form or source.kind == self.form or (source.kind == "primal" and not self._fixed):
            return self.adapted(source.fork(), arms)
        part = source.kind == "primal" and into.takes_matrices
        return self._filled(source, self.form) if part else None

    def rescale_bonuses(
        self, after: Covariance, before: Covariance, factors: Callable[[], tuple[Factors, Factors]]
    ) -> None:
        """Set ω of the form `after`, so that bonuses keep the size that they had under the form `before`.

        `factors` gives the features of recent contexts as both forms see them: (after, before). ω is the geometric mean
        of √v before, in its own unit, over √v after. Between exact forms it is 1.
        """
        if after.exact:
            after.running_unit = after.frozen_unit = 1.0
        elif after.kind == before.kind:
            after.running_unit, after.frozen_unit = before.running_unit, before.frozen_unit
        else:
            before, (new, old) = before.fork(), factors()
            after.running_unit = before.running_unit * _ratio(before, old, after, new, running=True)
            after.frozen_unit = before.frozen_unit * _ratio(before, old, after, new, running=False)

    def _filled(self, source: Covariance, form: str, frozen: int | None = None) -> Covariance:
        """Return a form with both matrices of an exact one, as far as it can hold them.

        The frozen matrix has the first `frozen` rounds of a dual form, or as many as there.
        """
        into = self._new(form, source.widths)
        if isinstance(source, Dual):
            into.take_over(source.past.view, source.jitters, source.frozen_rounds if frozen is None else frozen)
        else:
            assert isinstance(source, Primal)
            into.take_part(*source.written_out(), source.rounds, source.jitters)
        return into

    # --- the size rule

    @property
    def _fixed(self) -> bool:
        return self.form not in BY_SIZE

    def _limit(self, widths: Widths) -> Limit:
        return Limit(widths, self.memory_limit, self.horizon, self.row)

    def _known_arms(self, arms: int) -> int:
        return max(self.arms or 0, arms)

    def _rule(self, widths: Widths, arms: int) -> SizeRule:
        operations = self.operations if self.form == "auto" else None
        return size_rule(widths, self.memory_limit, operations, self._known_arms(arms), self.row, FORMS.changes)

    def rounds_until_change(self, covariance: Covariance, arms: int) -> int:
        """Return after how many more rounds of the batch the form may change, at least 1."""
        if self._fixed or covariance.kind != "dual":
            return UNLIMITED
        return max(1, self._rule(covariance.widths, arms).dual_rounds - covariance.rounds)

    def exact_rounds(self, covariance: Covariance, arms: int) -> int | None:
        """Return the rounds up to which Z stays exact, 0 if it is not; None: for life, as far as is known."""
        if not covariance.exact:
            return 0
        if self._fixed:
            return None
        rule = self._rule(covariance.widths, arms)
        return None if rule.primal or rule.dual_rounds == UNLIMITED else rule.dual_rounds

    # --- files

    def state(self, covariance: Covariance) -> tuple[dict[str, Any], Arrays]:
        """Return numbers and arrays from which `restored` makes the same object, bit for bit."""
        numbers, arrays = covariance.state()
        units = {"running_unit": covariance.running_unit, "frozen_unit": covariance.frozen_unit}
        return {"form": covariance.kind} | units | numbers, arrays

    def restored(self, widths: Widths, saved: Fields) -> Covariance:
        """Return the saved Z."""
        with saved:
            covariance = self._new(saved.text("form"), widths)
            covariance.running_unit, covariance.frozen_unit = (
                saved.number(f"{which}_unit", above=0.0) for which in ("running", "frozen")
            )
            covariance.read(saved)
        return covariance

    def _new(self, form: str, widths: Widths) -> Covariance:
        """Return an empty matrix; every one of them is made here."""
        make = self.dual if form == "dual" else FORMS[form]
        return make(widths, self.ridge, self._limit(widths))


@dataclass(frozen=True, kw_only=True)
class DualFactory(CovarianceFactory):
    """Makes Z of features that are known by their inner products: in the dual form, which is exact."""

    inner: InnerProducts
    columns: int = 0  # d of sparse contexts, which have the diagonal form too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in ("auto", "exact", "dual", *(("diagonal",) if self.columns else ())):
            raise InvalidInput(
                "a kernel has only the dual form, because it has no parameters, and sparse contexts have the diagonal "
                f"form too; got {self.form!r}."
            )
        object.__setattr__(self, "form", "diagonal" if self.form == "diagonal" else "dual")

    def _new(self, form: str, widths: Widths) -> Covariance:
        if form == "diagonal":
            return SparseDiagonal(widths, self.ridge, self._limit(widths), self.columns)
        rows = partial(SparseFactorRows, widths, self.columns) if self.columns else None
        return Dual(widths, self.ridge, self._limit(widths), self.inner, rows)


@lru_cache(maxsize=256)
def size_rule(
    widths: Widths, memory: int, operations: float | None, arms: int, row: RowCost | None = None, forms: int = 0
) -> SizeRule:
    """Return the rule for these sizes and limits; `arms` is 0 before K is known, and then no decision is too large.

    `forms` counts the definitions of forms: a new one may change what is the best approximation.
    """
    p, c = parameters_of(widths), sum(o + i for o, i in widths) if row is None else row.products
    limited = operations is not None and arms > 0
    allowed = operations if limited and operations is not None else float("inf")
    primal = arms * (p * p // 2 + p) + 2 * p * p <= allowed and Limit(widths, memory).allows("primal", 0)
    rounds = _dual_rounds(c, arms, allowed) if limited else UNLIMITED
    if primal:
        rounds = min(rounds, LONG_BATCH * p)
    return SizeRule(rounds, primal, _approximation(widths, max(arms, 1), allowed))


def _dual_rounds(c: int, arms: int, allowed: float) -> int:
    """Return the largest t, rounded down to a power of √2, at which the dual form takes what is allowed.

    Rounding makes the rule one of magnitudes: a little more work allowed changes nothing.
    """
    a, b = arms / 2 + 2, 2 * c * arms + 4 * c  # a·t² + b·t ≤ allowed
    root = (-b + (b * b + 4 * a * allowed) ** 0.5) / (2 * a)
    return isqrt(2 ** (max(1, int(root) ** 2).bit_length() - 1))


def _approximation(widths: Widths, arms: int, allowed: float) -> str:
    """Return the first approximation that takes what is allowed, or the one that is quickest."""
    ranked = sorted((form.auto_rank, name) for name, form in FORMS.items() if form.auto_rank is not None)
    costs = {form: FORMS[form].price(widths, 0) for _, form in ranked}
    small = (form for form, cost in costs.items() if arms * cost.flops + cost.bytes // 3 / 2 <= allowed)
    return next(small, None) or min(costs, key=lambda form: costs[form].seconds)


def _primal_is_cheaper(p: int, rounds: int, ahead: int) -> bool:
    return p <= SMALL_PRIMAL or p <= rounds or rounds + ahead > LONG_BATCH * p


def parameters_of(widths: Widths) -> int:
    """Return p."""
    return sum(o * i for o, i in widths)


def _ratio(before: Covariance, old: Factors, after: Covariance, new: Factors, *, running: bool) -> float:
    """Return the geometric mean of √v before over √v after; 1 where nothing can be compared."""
    was, now = before.measure(old, running=running).variances, after.measure(new, running=running).variances
    positive = (was > 0) & (now > 0)
    return float(np.exp(np.mean(np.log(was[positive] / now[positive])) / 2)) if positive.any() else 1.0
