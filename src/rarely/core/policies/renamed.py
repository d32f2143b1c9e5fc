"""Arguments of version 0.1 that are fields of `Preset` and `Training` now: taken until version 0.3, with a warning."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

from rarely.core.policies.presets import Preset, Training, preset_from, training_from

OF_PRESET = tuple(field.name for field in fields(Preset) if field.name != "scale_contexts")
OF_TRAINING = tuple(field.name for field in fields(Training))


def grouped(
    policy: str, preset: Any, training: Any, renamed: dict[str, Any], *, stacklevel: int = 3
) -> tuple[Preset, Training]:
    """The preset and the training, with old arguments in their places."""
    if unknown := [name for name in renamed if name not in (*OF_PRESET, *OF_TRAINING)]:
        raise TypeError(f"{policy} got an unexpected keyword argument {unknown[0]!r}")
    for names, new in ((OF_PRESET, "preset=Preset.named(…, {}=…)"), (OF_TRAINING, "training=Training({}=…)")):
        for name in (name for name in renamed if name in names):
            text = f"{name} is an argument of {policy} until version 0.3; write {new.format(name)}."
            warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
    return _merged(preset_from(preset), training_from(training), renamed)


def grouped_settings(saved: dict[str, Any]) -> dict[str, Any]:
    """Saved settings of a neural policy as they are written now; those of version 0.1 name every argument."""
    if "preset" not in saved or "training" in saved:
        return saved
    old = {name: saved[name] for name in (*OF_PRESET, *OF_TRAINING) if name in saved}
    preset, training = _merged(preset_from(saved["preset"]), Training(), old)
    others = {name: value for name, value in saved.items() if name not in old}
    return others | {"preset": preset.describe(), "training": training.describe()}


def _merged(preset: Preset, training: Training, old: dict[str, Any]) -> tuple[Preset, Training]:
    given = {name: value for name, value in old.items() if value is not None}
    return (
        replace(preset, **{name: value for name, value in given.items() if name in OF_PRESET}),
        replace(training, **{name: value for name, value in given.items() if name in OF_TRAINING}),
    )
