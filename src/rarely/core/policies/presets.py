"""Ways to read the paper's experiments, by name or one's own; and how a network is trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from rarely.core.errors import InvalidInput, check_choice, check_flag, check_positive, check_whole
from rarely.core.model.network import Initial, Scaling
from rarely.core.training.gradient_descent import Optimiser, Precision

PresetName = Literal["practical", "paper", "code"]


@dataclass(frozen=True)
class Preset:
    """One way to read the paper's experiments.

    Parameters
    ----------
    scale_contexts
        Whether contexts are scaled from the first round on, with a constant appended, and again at an update when
        the data have left their scale.
    standardise_rewards
        Whether the network is trained on rewards less their mean, over their spread.
    biases
        Whether the network has biases.
    scaling
        "ntk": f = √m·u as printed; "standard": f = u.
    initial
        Initial weights: "paired", so that f(·; θ_0) = 0, or "uniform".
    optimiser
        "gradient_descent", or "sgd", descent on single samples.
    precision
        "float32" or "float64", of training alone: decisions are always computed in float64.

    Examples
    --------
    >>> Preset.named("practical", precision="float64").precision
    'float64'
    """

    scale_contexts: bool = False
    standardise_rewards: bool = False
    biases: bool = False
    scaling: Scaling = "ntk"
    initial: Initial = "paired"
    optimiser: Optimiser = "gradient_descent"
    precision: Precision = "float64"

    def __post_init__(self) -> None:
        for name in ("scale_contexts", "standardise_rewards", "biases"):
            check_flag(name, getattr(self, name))
        check_choice("scaling", self.scaling, Scaling)
        check_choice("initial", self.initial, Initial)
        check_choice("optimiser", self.optimiser, Optimiser)
        check_choice("precision", self.precision, Precision)

    @classmethod
    def named(cls, name: PresetName, **changes: Any) -> Self:
        """The preset of this name, with changes."""
        check_choice("preset", name, PresetName)
        return replace(cls(**asdict(PRESET_SETTINGS[name])), **changes)

    def describe(self) -> Any:
        """The preset as JSON: its name, or its fields if it is none of the named ones."""
        names: list[str] = [name for name, preset in PRESET_SETTINGS.items() if preset == self]
        return names[0] if names else asdict(self)


PRESET_SETTINGS: dict[PresetName, Preset] = {
    "practical": Preset(scale_contexts=True, standardise_rewards=True, precision="float32"),
    "paper": Preset(),
    "code": Preset(biases=True, scaling="standard", initial="uniform", optimiser="sgd"),
}


@dataclass(frozen=True)
class Training:
    """How a network is trained at each update; with all but `rows` left out, the practical policy tunes itself.

    Parameters
    ----------
    steps
        J gradient steps. None is 200, or the policy's own choice where it tunes itself.
    step_size
        η; None takes it from the curvature.
    skip
        The strength s of a linear path beside the network, which adds s·c·x. None is no path or, where the policy tunes
        itself, its own choice.
    warm_start
        Whether each training starts at the last version's weights and not at θ_0, so that fewer steps do: a deviation
        from the paper; docs/decisions/0011 says what it does to regret.
    rows
        The most samples that an update trains the network on. With more, the network is trained on the latest half of
        that number and on a uniform sample of the others. A policy that tunes itself then learns by a ridge regression
        on *all* rewards, and the network learns what this leaves. So an update costs the same however long the policy
        lives; `UpdateRecord.trained` has the number. None is 10 000 where the policy tunes itself and "all" elsewhere.

    Examples
    --------
    >>> Training(steps=50).tunes, Training(rows=5000).tunes
    (False, True)
    """

    steps: int | None = None
    step_size: float | None = None
    skip: float | None = None
    warm_start: bool = False
    rows: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_whole("steps", self.steps, 0)
        if self.step_size is not None:
            check_positive("step_size", self.step_size, "or None, which takes it from the curvature")
        check_flag("warm_start", self.warm_start)
        if self.rows is not None and self.rows != "all":
            check_whole("rows", self.rows, 2)

    @property
    def tunes(self) -> bool:
        """Whether a policy may choose J and s itself, because neither these nor η and the start are set."""
        return self == Training(rows=self.rows)

    def describe(self) -> dict[str, Any]:
        """The training as JSON."""
        return asdict(self)


def preset_from(given: Any) -> Preset:
    """A preset from its name, its description or itself."""
    if isinstance(given, Preset):
        return given
    if isinstance(given, dict):
        return Preset(**given)
    return Preset.named(given)


def training_from(given: Any) -> Training:
    """A training from its description, a number of steps, None or itself."""
    if given is None or isinstance(given, Training):
        return given or Training()
    if isinstance(given, dict):
        return Training(**given)
    if isinstance(given, int) and not isinstance(given, bool):
        return Training(steps=given)
    raise InvalidInput(f"training must be a Training, such as Training(steps=200), or the steps; got {given!r}.")
