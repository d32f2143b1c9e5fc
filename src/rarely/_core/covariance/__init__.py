"""Forms of Z, and the factory that makes and changes them."""

from rarely._core.covariance.cost import DEFAULT_LIMIT, Limit, Price, RowCost, Widths, in_bytes, price, prices
from rarely._core.covariance.diagonal import Diagonal
from rarely._core.covariance.dual import Dual
from rarely._core.covariance.factory import FORMS, RECENT, CovarianceFactory, DualFactory, Kind, parameters_of
from rarely._core.covariance.primal import LastLayer, Primal
from rarely._core.covariance.protocol import CANCELLED, Candidates, Covariance, Proposal, prior_variances
