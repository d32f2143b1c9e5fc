"""Ways to read the paper's experiments, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from rarely.core.model.network import Initial, Scaling
from rarely.core.training.gradient_descent import Optimiser, Precision

PresetName = Literal["practical", "paper", "code"]


@dataclass(frozen=True)
class Preset:
    """One way to read the paper's experiments: what a preset sets where the user does not."""

    standardise_rewards: bool = False
    biases: bool = False
    scaling: Scaling = "ntk"
    initial: Initial = "paired"
    optimiser: Optimiser = "gradient_descent"
    precision: Precision = "float64"

    def given(self, **knobs: Any) -> Preset:
        """The same with the user's own choices, where they are not None."""
        return replace(self, **{name: value for name, value in knobs.items() if value is not None})


PRESET_SETTINGS: dict[PresetName, Preset] = {
    "practical": Preset(standardise_rewards=True, precision="float32"),
    "paper": Preset(),
    "code": Preset(biases=True, scaling="standard", initial="uniform", optimiser="sgd"),
}
