"""Forms of Z, and the factory that makes and changes them."""

from rarely._core.covariance.diagonal import Diagonal
from rarely._core.covariance.dual import Dual
from rarely._core.covariance.factory import RECENT, CovarianceFactory, DualFactory, Kind, parameters_of
from rarely._core.covariance.primal import LastLayer, Primal
from rarely._core.covariance.protocol import (
    CANCELLED,
    DEFAULT_LIMIT,
    FORMS,
    Candidates,
    Covariance,
    Limit,
    Price,
    Proposal,
    RowCost,
    Widths,
    in_bytes,
    prices,
    prior_variances,
)
