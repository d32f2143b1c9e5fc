"""Forms of Z behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rarely.core.covariance.auto import Auto
from rarely.core.covariance.diagonal import Diagonal
from rarely.core.covariance.dual import Dual
from rarely.core.covariance.last_layer import LastLayer
from rarely.core.covariance.price import DEFAULT_LIMIT, Limit, Price, Widths, in_bytes, prices
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import Candidates, Covariance, Proposal

Kind = Literal["auto", "dual", "primal", "diagonal", "last_layer"]
FORMS: dict[str, Callable[[Widths, float, Limit], Covariance]] = {
    "dual": Dual,
    "primal": Primal,
    "diagonal": Diagonal,
    "last_layer": LastLayer,
    "auto": Auto,
}

__all__ = [
    "DEFAULT_LIMIT",
    "FORMS",
    "Auto",
    "Candidates",
    "Covariance",
    "Diagonal",
    "Dual",
    "Kind",
    "LastLayer",
    "Limit",
    "Price",
    "Primal",
    "Proposal",
    "Widths",
    "in_bytes",
    "prices",
]
