"""Makes the matrices Z of a policy: in which form, and within what memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rarely.core.covariance import DEFAULT_SKETCH, FORMS, Auto, Covariance, Kind, Latency, Limit, Sketch, Widths
from rarely.core.errors import InvalidInput, check_positive, check_whole
from rarely.core.model.features import Factors
from rarely.core.types import Array


@dataclass(frozen=True)
class CovarianceMaker:
    """The settings of Z that last for a policy's life."""

    form: Kind | Sketch
    ridge: float
    memory_limit: int
    horizon: int | None
    latency: Latency | None = None
    """What a decision may take, where the form is "auto"."""

    def __post_init__(self) -> None:
        names = ("exact", *FORMS)
        if not isinstance(self.form, Sketch | str) or (isinstance(self.form, str) and self.form not in names):
            raise InvalidInput(f"covariance must be one of {', '.join(names)}, or a Sketch; got {self.form!r}.")
        check_positive("ridge", self.ridge, "because Z_1 = ridge·I is inverted")
        check_whole("memory_limit", self.memory_limit, 1)

    def changed(self, covariance: Kind | Sketch | None = None, memory_limit: int | None = None) -> CovarianceMaker:
        """The same with another form or limit."""
        form = self.form if covariance is None else covariance
        limit = self.memory_limit if memory_limit is None else memory_limit
        return replace(self, form=form, memory_limit=limit)

    @property
    def sketch(self) -> Sketch:
        """The settings of a sketch, if it is one."""
        return self.form if isinstance(self.form, Sketch) else DEFAULT_SKETCH

    def like(self, covariance: Covariance) -> CovarianceMaker:
        """The same, for as many arms as this one has seen."""
        if not isinstance(covariance, Auto) or covariance.latency is self.latency:
            return self
        return replace(self, latency=covariance.latency)

    def empty(self, widths: Widths, ahead: int = 0, rows: int = 0) -> Covariance:
        """λI, for `rows` rounds that are added at once, in a batch that lasts `ahead` rounds, those included."""
        form = "sketched" if isinstance(self.form, Sketch) else self.form
        limit = Limit(widths, self.memory_limit, self.horizon, self.sketch)
        if form in ("auto", "exact"):
            latency = self.latency if form == "auto" else None
            return Auto(widths, self.ridge, limit, ahead, rows=rows, latency=latency)
        limit.check_rounds(form, self.horizon or 0)
        return FORMS[form](widths, self.ridge, limit)

    def of(
        self,
        features: Callable[[Array], Factors],
        widths: Widths,
        contexts: Array,
        weights: Array | None = None,
        ahead: int = 0,
    ) -> Covariance:
        """λI + Σ w φφᵀ over these contexts."""
        covariance = self.empty(widths, len(contexts) + ahead, len(contexts))
        self.add(covariance, features, contexts, weights)
        return covariance

    def add(
        self,
        covariance: Covariance,
        features: Callable[[Array], Factors],
        contexts: Array,
        weights: Array | None = None,
    ) -> None:
        """Add Σ w φφᵀ over these contexts."""
        for start in range(0, len(contexts), covariance.block()):
            part = slice(start, start + covariance.block())
            factors = features(contexts[part]).weighted(None if weights is None else weights[part])
            covariance.accept(covariance.propose(covariance.measure(factors)), len(factors))
