"""Constructor arguments as JSON and back: `settings()` gives descriptions, and every constructor takes them.

An argument that is a value of ours (a schedule, a scale, a radius) is described by a dict; all others are JSON as
they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rarely.core.choice.confidence_radius import beta_from, describe_beta
from rarely.core.choice.rules import Mixture
from rarely.core.covariance import describe_form, form_from
from rarely.core.errors import InvalidInput, RarelyError
from rarely.core.inputs.crossing import scale_from
from rarely.core.inputs.forgetting import forgetting_from
from rarely.core.policies.limits import limits_from
from rarely.core.policies.presets import preset_from, training_from
from rarely.core.schedules import schedule_from

_DECODERS: dict[str, Callable[[Any], Any]] = {
    "schedule": schedule_from,
    "covariance": form_from,
    "beta": beta_from,
    "forgetting": forgetting_from,
    "context_scale": scale_from,
    "exploration": lambda description: Mixture(**description),
    "preset": preset_from,
    "training": training_from,
    "limits": limits_from,
}
_ENCODERS: dict[str, Callable[[Any], Any]] = {"beta": describe_beta, "covariance": describe_form}


def decoded(**arguments: Any) -> tuple[Any, ...]:
    """Arguments from their descriptions, in order; what is not a dict is the argument itself.

    >>> decoded(beta=0.5, exploration={"epsilon": 0.1})
    (0.5, Mixture(epsilon=0.1))
    """
    return tuple(_decoded(name, value) for name, value in arguments.items())


def _decoded(name: str, value: Any) -> Any:
    if name not in _DECODERS or not isinstance(value, dict):
        return value
    try:
        return _DECODERS[name](value)
    except RarelyError:
        raise
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidInput(f"{name} must be what settings() describes; got {value!r} ({error}).") from None


def encoded(settings: dict[str, Any]) -> dict[str, Any]:
    """All arguments as JSON.

    >>> encoded({"dim": 2, "exploration": Mixture(0.1)})
    {'dim': 2, 'exploration': {'epsilon': 0.1}}
    """

    def described(name: str, value: Any) -> Any:
        if name in _ENCODERS and value is not None:
            return _ENCODERS[name](value)
        return value.describe() if hasattr(value, "describe") else value

    return {name: described(name, value) for name, value in settings.items()}
