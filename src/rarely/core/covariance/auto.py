"""The cheaper of the exact forms: dual while rounds are few, primal once they outnumber parameters.

With a latency, an approximation from the round on after which neither would keep to it.
"""

from __future__ import annotations

from typing import Any, Self

from rarely.core.covariance.conversion import from_dual, from_primal
from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.delegating import Delegating
from rarely.core.covariance.diagonal import Diagonal
from rarely.core.covariance.dual import Dual
from rarely.core.covariance.last_layer import LastLayer
from rarely.core.covariance.latency import Latency
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import FAR, Covariance, Proposal
from rarely.core.growable_array import shallow
from rarely.core.saving.fields import Fields
from rarely.core.types import Arrays

SMALL = 256
"""With so few parameters p² is next to nothing, and t×t would outgrow it at once."""
LONG = 4
"""A batch known to end beyond this many times p is not played in the t×t form."""
FAST: tuple[type[LastLayer | Diagonal], ...] = (Diagonal, LastLayer)
"""What may keep to a latency where no exact form does, the better first: docs/decisions/0028 says why."""
_NAMES = {LastLayer: "last_layer", Diagonal: "diagonal"}
_FORMS = {"dual": Dual, "primal": Primal, "diagonal": Diagonal, "last_layer": LastLayer}


class Auto(Delegating):
    """Dual while rounds are few, primal from the first update on that has t ≥ p or a long batch before it.

    It starts primal where p is small or the first batch is known to be long, and stays dual where primal
    would not fit the memory limit. It changes inside a batch only if the batch lasts longer than anyone knew, after
    round 4p: a change there alters the rounding of scores.

    With a latency it leaves the dual form as soon as a decision would take longer: for the primal form, if that keeps
    to it, else for an approximation. Without one it never approximates.
    """

    def __init__(
        self,
        widths: Widths,
        ridge: float,
        limit: Limit,
        ahead: int = 0,
        *,
        rows: int = 0,
        latency: Latency | None = None,
    ) -> None:
        self._widths, self._ridge, self._limit = widths, ridge, limit
        self._parameters = sum(o * i for o, i in widths)
        self._follow(latency)
        super().__init__(self._first_form(rows, ahead))

    def _follow(self, latency: Latency | None) -> None:
        """Work out what a latency allows: every decision asks."""
        self.latency = latency
        fast = latency is None or latency.allows("primal", self._widths, 0)
        self._primal_fits = fast and self._limit.allows("primal", 0)
        fitting = FAR if latency is None else latency.dual_rounds(self._widths)
        self._dual_rounds = min(fitting, LONG * self._parameters) if self._primal_fits else fitting

    def _first_form(self, rows: int, ahead: int) -> Covariance:
        """The form for so many rounds that are known, and so many in all that are known or expected."""
        if self._prefers_primal(0, ahead):
            return Primal(self._widths, self._ridge, self._limit)
        if rows >= self._dual_rounds:
            return Primal(self._widths, self._ridge, self._limit) if self._primal_fits else self._fast()
        horizon = self._limit.horizon
        if horizon is not None:
            leaves = self._parameters if self._limit.allows("primal", 0) else horizon
            lasts = self._dual_rounds
            if self.latency is not None and self.latency.arms is None:  # no decision has less than one arm
                lasts = self.latency.among(1).dual_rounds(self._widths)
            self._limit.check_rounds("dual", min(horizon, max(leaves, ahead), lasts))
        return Dual(self._widths, self._ridge, self._limit)

    @property
    def exact_rounds(self) -> int:
        """Rounds up to which it stays exact; `FAR` if it always does, as far as is known."""
        return FAR if self._primal_fits else self._dual_rounds

    def form_at(self, rounds: int) -> str:
        """The form after so many rounds, as far as is known."""
        if self.kind != "dual" or rounds < min(self._dual_rounds, self._parameters):
            return self.kind
        if self._primal_fits:
            return "primal"
        return "dual" if rounds < self._dual_rounds else self._fast().kind

    def _prefers_primal(self, rounds: int, ahead: int) -> bool:
        p = self._parameters
        cheaper = p <= SMALL or p <= rounds or rounds + ahead > LONG * p
        return cheaper and self._primal_fits

    def _fast(self) -> Covariance:
        """The first approximation that keeps to the latency, or the fastest."""
        assert self.latency is not None
        arms = self.latency.arms or 1
        seconds = [self.latency.decision(_NAMES[form], self._widths, 0, arms) for form in FAST]
        fitting = [form for form, each in zip(FAST, seconds, strict=True) if each <= self.latency.seconds]
        form = fitting[0] if fitting else FAST[seconds.index(min(seconds))]
        return form(self._widths, self._ridge, self._limit)

    @property
    def lasts(self) -> int:
        return max(1, self._dual_rounds - self.rounds) if isinstance(self._inner, Dual) else FAR

    def expect(self, arms: int) -> None:
        """Take note that a decision has so many arms, and change the form if it would take too long."""
        if self.latency is not None and arms > (self.latency.arms or 0):
            self._follow(self.latency.among(arms))
            self.keep_to_latency()

    @property
    def inner(self) -> Covariance:
        """The form in use."""
        return self._inner

    def holding(self, inner: Covariance) -> Self:
        """The same with another form in use."""
        other = shallow(self)
        other._inner = inner.limited(self._limit) if isinstance(inner, Dual) else inner
        return other

    def keep_to_latency(self) -> None:
        """Leave a form in which decisions take too long."""
        inner = self._inner
        if isinstance(inner, Dual) and self.rounds >= self._dual_rounds:
            into = Primal(self._widths, self._ridge, self._limit) if self._primal_fits else self._fast()
            self._inner = from_dual(inner, into)
        elif isinstance(inner, Primal) and not self._primal_fits:
            self._inner = from_primal(inner, self._fast())

    def accept(self, proposal: Proposal, count: int) -> None:
        self._inner.accept(proposal, count)
        self.keep_to_latency()

    def freeze(self, ahead: int = 0) -> None:
        if isinstance(self._inner, Dual) and self._prefers_primal(self.rounds, ahead):
            self._inner = from_dual(self._inner, Primal(self._widths, self._ridge, self._limit), frozen=0)
        self._inner.freeze()

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, arrays = self._inner.state()
        latency = None if self.latency is None else self.latency.describe()
        return numbers | {"form": self.kind, "latency": latency}, arrays

    def restore(self, numbers: dict[str, Any], arrays: Arrays) -> None:
        saved = Fields("covariance", numbers, {})
        form = saved.choice("form", _FORMS)
        if "latency" in numbers:  # formats 1 and 2 have none
            described = saved.value("latency")
            self._follow(None if described is None else Latency.restored(Fields("covariance.latency", described, {})))
        self._inner = _FORMS[form](self._widths, self._ridge, self._limit)
        own = ("form", "latency")
        self._inner.restore({name: value for name, value in numbers.items() if name not in own}, arrays)
