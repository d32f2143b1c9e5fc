"""How large a sketch of Z may be, and the names of the forms as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from rarely.core.errors import check_whole

Kind = Literal["auto", "exact", "dual", "primal", "diagonal", "last_layer", "sketched"]


@dataclass(frozen=True, slots=True)
class Sketch:
    """The sketched form with `size` inducing points; `covariance="sketched"` is `Sketch()`.

    Rounds beyond the points cost no memory, only accuracy: `policy.error_bound` says how much.

    >>> Sketch(size=200)
    Sketch(size=200)
    """

    size: int = 400

    def __post_init__(self) -> None:
        # With one point half of them, which the first rounds may fill, would be none.
        check_whole("Sketch.size", self.size, 2)


DEFAULT_SKETCH = Sketch()


def describe_form(form: Kind | Sketch) -> Any:
    """The setting as JSON."""
    return asdict(form) if isinstance(form, Sketch) else form


def form_from(description: Any) -> Kind | Sketch:
    """The inverse of `describe_form`."""
    described = isinstance(description, dict) and description.keys() == {"size"}
    form: Kind | Sketch = Sketch(**description) if described else description
    return form
