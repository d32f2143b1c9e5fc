"""Makes the matrices Z of a policy: in which form, and within what memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rarely.core.covariance import DEFAULT_SKETCH, FORMS, Auto, Covariance, Kind, Limit, Sketch, Widths
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

    def __post_init__(self) -> None:
        if not isinstance(self.form, Sketch | str) or (isinstance(self.form, str) and self.form not in FORMS):
            raise InvalidInput(f"covariance must be one of {', '.join(FORMS)}, or a Sketch; got {self.form!r}.")
        check_positive("ridge", self.ridge, "because Z_1 = ridge·I is inverted")
        check_whole("memory_limit", self.memory_limit, 1)

    def empty(self, widths: Widths, ahead: int = 0) -> Covariance:
        """λI, for a batch that is known to last at least `ahead` rounds."""
        form, sketch = ("sketched", self.form) if isinstance(self.form, Sketch) else (self.form, DEFAULT_SKETCH)
        limit = Limit(widths, self.memory_limit, self.horizon, sketch)
        if form == "auto":
            return Auto(widths, self.ridge, limit, ahead)
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
        covariance = self.empty(widths, len(contexts) + ahead)
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
