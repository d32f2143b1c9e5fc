"""How large a sketch of Z may be, and the names of the forms as JSON."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rarely.core.errors import check_whole

Kind = Literal["auto", "exact", "dual", "primal", "diagonal", "last_layer", "sketched"]


@dataclass(frozen=True, slots=True)
class Sketch:
    """The sketched form with `size` inducing points; `covariance="sketched"` is `Sketch()`. Deprecated.

    Rounds beyond the points cost no memory, only accuracy: `policy.error_bound` says how much. What they lose is never
    learned, so bonuses stop falling; "last_layer" and "diagonal" do better in less time (docs/decisions/0028).

    Examples
    --------
    >>> Sketch(size=200)
    Sketch(size=200)
    """

    size: int = 400

    def __post_init__(self) -> None:
        # With one point half of them, which the first rounds may fill, would be none.
        check_whole("Sketch.size", self.size, 2)


DEFAULT_SKETCH = Sketch()


def warn_of_sketch(form: Any) -> None:
    """Warn of a form that is deprecated."""
    if form == "sketched" or isinstance(form, Sketch):
        warnings.warn(
            "covariance 'sketched' is deprecated: its bonuses stop falling once its points are used up, so it explores "
            "too much in a long life (docs/decisions/0028). Use 'auto', 'last_layer' or 'diagonal'; "
            "policy.with_covariance changes a policy that was saved with it.",
            FutureWarning,
            stacklevel=4,
        )


def describe_form(form: Kind | Sketch) -> Any:
    """The setting as JSON."""
    return asdict(form) if isinstance(form, Sketch) else form


def form_from(description: Any) -> Kind | Sketch:
    """The inverse of `describe_form`."""
    described = isinstance(description, dict) and description.keys() == {"size"}
    form: Kind | Sketch = Sketch(**description) if described else description
    return form
