"""Z over the last layer's weights alone: exact for an m×m matrix, an approximation of the whole.

The feature is then a_{L−1}(x; θ), the last hidden layer: the *neural-linear* way (Riquelme et al., 2018).
"""

from __future__ import annotations

from rarely.core.covariance.cost import Limit, Widths
from rarely.core.covariance.delegating import Delegating
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Candidates, ErrorBound
from rarely.core.model.features import Factors
from rarely.core.types import Array


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

    def take_over(self, past: Factors, jitters: int, frozen: int = 0) -> None:
        """Become the blocks of a form that has these features."""
        assert isinstance(self._inner, Primal)
        self._inner.take_over(past.last_layer(), jitters, frozen)

    def take_part(self, running: Array, frozen: Array, rounds: int, jitters: int) -> None:
        """Become the last blocks of these matrices."""
        assert isinstance(self._inner, Primal)
        size = self._inner.parameters
        self._inner.take_part(running[-size:, -size:], frozen[-size:, -size:], rounds, jitters)

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        return self._inner.measure(factors.last_layer(), running=running)
