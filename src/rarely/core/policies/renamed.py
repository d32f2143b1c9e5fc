"""Arguments of version 0.1 that are fields of `Preset`, `Training` and `Limits` now: taken until version 0.3."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

from rarely.core.policies.limits import Limits, limits_from
from rarely.core.policies.presets import Preset, Training, preset_from, training_from

OF_PRESET = tuple(field.name for field in fields(Preset) if field.name != "scale_contexts")
OF_TRAINING = ("steps", "step_size", "skip", "warm_start")
OF_LIMITS = {"memory_limit": "memory", "history_limit": "history", "latency": "latency", "arms": "arms"}
"""Names in files, and the fields of `Limits`; `memory_limit` alone was an argument of version 0.1."""


def grouped(
    policy: str, preset: Any, training: Any, limits: Any, renamed: dict[str, Any], *, stacklevel: int = 4
) -> tuple[Preset, Training, Limits]:
    """The preset, the training and the limits, with old arguments in their places."""
    places = dict.fromkeys(OF_PRESET, "preset=Preset.named(…, {}=…)")
    places |= dict.fromkeys(OF_TRAINING, "training=Training({}=…)")
    places |= {"memory_limit": "limits=Limits(memory=…)"}
    _warn(policy, renamed, places, stacklevel)
    old = {name: value for name, value in renamed.items() if name != "memory_limit"}
    return *_merged(preset_from(preset), training_from(training), old), _limited(limits, renamed)


def grouped_limits(policy: str, limits: Any, renamed: dict[str, Any], *, stacklevel: int = 4) -> Limits:
    """The limits of a policy that has no network, with an old argument in its place."""
    _warn(policy, renamed, {"memory_limit": "limits=Limits(memory=…)"}, stacklevel)
    return _limited(limits, renamed)


def grouped_settings(saved: dict[str, Any]) -> dict[str, Any]:
    """Saved settings of a neural policy as they are written now; those of version 0.1 name every argument."""
    if "preset" not in saved or "training" in saved:
        return saved
    old = {name: saved[name] for name in (*OF_PRESET, *OF_TRAINING) if name in saved}
    preset, training = _merged(preset_from(saved["preset"]), Training(), old)
    others = {name: value for name, value in saved.items() if name not in old}
    return others | {"preset": preset.describe(), "training": training.describe()}


def settings_with_limits(saved: dict[str, Any]) -> dict[str, Any]:
    """Saved settings whose limits are one value; what earlier versions do not name had no limit in them."""
    if "limits" in saved or "memory_limit" not in saved:
        return saved
    limits = {field: saved.get(name) for name, field in OF_LIMITS.items()}
    others = {name: value for name, value in saved.items() if name not in (*OF_LIMITS, "training_rows")}
    if isinstance(others.get("training"), dict):
        others["training"] = others["training"] | {"rows": saved.get("training_rows", "all")}
    return others | {"limits": limits}


def _warn(policy: str, renamed: dict[str, Any], places: dict[str, str], stacklevel: int) -> None:
    if unknown := [name for name in renamed if name not in places]:
        raise TypeError(f"{policy} got an unexpected keyword argument {unknown[0]!r}")
    for name in renamed:
        text = f"{name} is an argument of {policy} until version 0.3; write {places[name].format(name)}."
        warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)


def _limited(limits: Any, renamed: dict[str, Any]) -> Limits:
    found = limits_from(limits)
    return replace(found, memory=renamed["memory_limit"]) if "memory_limit" in renamed else found


def _merged(preset: Preset, training: Training, old: dict[str, Any]) -> tuple[Preset, Training]:
    given = {name: value for name, value in old.items() if value is not None}
    return (
        replace(preset, **{name: value for name, value in given.items() if name in OF_PRESET}),
        replace(training, **{name: value for name, value in given.items() if name in OF_TRAINING}),
    )
