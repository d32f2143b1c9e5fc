"""Forms of Z behind one protocol."""

from __future__ import annotations

from collections.abc import Callable

from rarely.core.covariance.auto import Auto
from rarely.core.covariance.cost import DEFAULT_LIMIT, Limit, Price, Widths, in_bytes, price, prices
from rarely.core.covariance.deferred import Deferred, Recorded, may_wait
from rarely.core.covariance.diagonal import Diagonal
from rarely.core.covariance.dual import Dual
from rarely.core.covariance.last_layer import LastLayer
from rarely.core.covariance.latency import NOMINAL, Latency, rates
from rarely.core.covariance.primal import Primal
from rarely.core.covariance.protocol import FAR, Candidates, Covariance, ErrorBound, Proposal
from rarely.core.covariance.sketch.nystrom import Sketched
from rarely.core.covariance.sketch_settings import (
    DEFAULT_SKETCH,
    Kind,
    Sketch,
    describe_form,
    form_from,
    warn_of_sketch,
)

FORMS: dict[str, Callable[[Widths, float, Limit], Covariance]] = {
    "dual": Dual,
    "primal": Primal,
    "diagonal": Diagonal,
    "last_layer": LastLayer,
    "sketched": Sketched,
    "auto": Auto,
}

__all__ = [
    "DEFAULT_LIMIT",
    "DEFAULT_SKETCH",
    "FAR",
    "FORMS",
    "NOMINAL",
    "Auto",
    "Candidates",
    "Covariance",
    "Deferred",
    "Diagonal",
    "Dual",
    "ErrorBound",
    "Kind",
    "LastLayer",
    "Latency",
    "Limit",
    "Price",
    "Primal",
    "Proposal",
    "Recorded",
    "Sketch",
    "Sketched",
    "Widths",
    "describe_form",
    "form_from",
    "in_bytes",
    "may_wait",
    "price",
    "prices",
    "rates",
    "warn_of_sketch",
]
