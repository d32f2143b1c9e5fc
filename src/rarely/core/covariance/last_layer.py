"""Z over the last layer's weights alone: exact for an m×m matrix, an approximation of the whole.

The feature is then a_{L−1}(x; θ), the last hidden layer: the *neural-linear* way (Riquelme et al., 2018).
"""

from __future__ import annotations

from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.delegating import Delegating
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Candidates, ErrorBound
from rarely.core.model.features import Factors


class LastLayer(Delegating):
    """The primal form over the last layer's part of each feature."""

    def __init__(self, widths: Widths, ridge: float, limit: Limit) -> None:
        limit.check_rounds("last_layer", 0)
        super().__init__(Primal(widths[-1:], ridge, limit.unbounded()))

    @property
    def kind(self) -> str:
        return "last_layer"

    @property
    def error_bound(self) -> ErrorBound | None:
        return None

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        return self._inner.measure(factors.last_layer(), running=running)
