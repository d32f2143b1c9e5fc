"""What a policy is made with besides its sizes: a reading of the paper, how a network is trained, and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self, TypeVar

from rarely._core.covariance import DEFAULT_LIMIT
from rarely._core.errors import (
    InvalidInput,
    as_number,
    check_choice,
    check_flag,
    check_not_negative,
    check_positive,
    check_whole,
    named_arguments,
    shown,
)
from rarely._core.model.network import Initial, Scaling
from rarely._core.training.gradient_descent import Optimiser, Precision
from rarely._core.types import Described

PresetName = Literal["practical", "paper", "code"]
Setting = TypeVar("Setting")


@named_arguments
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
        "float32" or "float64", of training a given number of steps: decisions are always computed in float64, and so is
        training that tunes itself.

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
        kinds = {"scaling": Scaling, "initial": Initial, "optimiser": Optimiser, "precision": Precision}
        for name, kind in kinds.items():
            check_choice(name, getattr(self, name), kind)

    @property
    def can_tune(self) -> bool:
        """Whether a policy with this preset may choose what is not named by the likelihood of the rewards."""
        return self.scale_contexts and self.optimiser == "gradient_descent" and not self.biases

    @classmethod
    def named(cls, name: PresetName, **changes: Any) -> Self:
        """Return the preset of this name, with changes."""
        check_choice("preset", name, PresetName)
        return replace(cls(**asdict(PRESET_SETTINGS[name])), **changes)

    def describe(self) -> Any:
        """Return the preset as JSON: its name, or its fields if it has none."""
        names: list[str] = [name for name, preset in PRESET_SETTINGS.items() if preset == self]
        return names[0] if names else asdict(self)


PRESET_SETTINGS: dict[PresetName, Preset] = {
    "practical": Preset(scale_contexts=True, standardise_rewards=True, precision="float32"),
    "paper": Preset(),
    "code": Preset(biases=True, scaling="standard", initial="uniform", optimiser="sgd"),
}


@named_arguments
@dataclass(frozen=True)
class Training(Described):
    """How a network is trained at each update; with all but `rows` left out, the practical policy tunes itself.

    Parameters
    ----------
    steps
        J gradient steps. None is 200, or the policy's own choice where it tunes itself.
    step_size
        η; None takes it from the curvature.
    skip
        The strength s of a linear path beside the network, which adds s·c·x. None leaves the path out or, where the
        policy tunes itself, lets it choose.
    warm_start
        Whether each training starts at the last version's weights and not at θ_0, so that fewer steps do: a deviation
        from the paper, which mostly costs some regret.
    rows
        The most samples that an update trains the network on. With more, the network is trained on the latest half of
        that number and on a uniform sample of the others, so an update costs the same however long the policy lives;
        `UpdateRecord.trained` has the number. None is 10 000 where a network tunes itself and "all" elsewhere.
    clip
        Two quantiles, such as (0.02, 0.98), for rewards with heavy tails: a training takes rewards beyond those
        quantiles of all that it learns from as equal to them. `UpdateRecord.clipped` counts them; the history keeps
        rewards as they came. Not where few rounds earn most of the reward: they would be clipped away.

    Examples
    --------
    >>> Training(steps=50).tunes, Training(rows=5000, clip=(0.02, 0.98)).tunes
    (False, True)
    """

    steps: int | None = None
    step_size: float | None = None
    skip: float | None = None
    warm_start: bool = False
    rows: int | Literal["all"] | None = None
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_whole("steps", self.steps, 0, besides=(None,))
        if self.step_size is not None:
            check_positive("step_size", self.step_size, "or None, which takes it from the curvature")
        if self.skip is not None:
            check_not_negative("skip", self.skip, "or None for no skip path")
        check_flag("warm_start", self.warm_start)
        check_whole("rows", self.rows, 2, besides=("all", None))
        if self.clip is not None:
            ends = tuple(map(as_number, self.clip)) if isinstance(self.clip, tuple | list) else ()
            if len(ends) != 2 or not 0 <= ends[0] < ends[1] <= 1:
                got = shown(self.clip)
                raise InvalidInput(f"clip must be two quantiles, such as (0.02, 0.98), or None; got {got}.")
            object.__setattr__(self, "clip", ends)

    @property
    def tunes(self) -> bool:
        """Whether the policy may tune itself: nothing but `rows` and `clip` is set."""
        return self == Training(rows=self.rows, clip=self.clip)

    def with_rows(self, rows: int | Literal["all"]) -> Training:
        """Return the training with this number of rows, if none was given."""
        return replace(self, rows=rows) if self.rows is None else self


def preset_from(value: Any) -> Preset:
    """Return a preset, given its name, its description or itself."""
    return _read(Preset, value, "") if isinstance(value, dict | Preset) else Preset.named(value)


def training_from(value: Any) -> Training:
    """Return a training, given its description, a number of steps, None or itself."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Training(steps=value)
    return _read(Training, value, "training must be a Training, such as Training(steps=200), or the steps")


def _read(kind: type[Setting], value: Any, rule: str) -> Setting:
    """Return a setting, given its description, None or itself; else raise InvalidInput with the rule."""
    if value is None or isinstance(value, kind):
        return value or kind()
    if not isinstance(value, dict):
        raise InvalidInput(f"{rule}; got {shown(value)}.")
    return kind(**value)


TUNED_ROWS = 10_000  # samples that a training that tunes itself uses, at most
DEFAULT_HISTORY = 20_000_000  # bytes of past rounds that "auto" allows: a file then stays below 30 MB
DEFAULT_OPERATIONS = 37_800_000
"""Multiplications that a decision of the practical policy may take in an exact form: about 5 ms on a common server."""


@named_arguments
@dataclass(frozen=True)
class Limits(Described):
    """Bytes and multiplications that a policy may take.

    Parameters
    ----------
    memory
        Bytes that the covariance may take. A form that needs more is refused, and the error lists the alternatives.
    history
        Bytes that past rounds may take. Beyond them an update drops what it does not need, then the oldest rounds
        without a reward, then the oldest that it has learned from, with a `ForgettingWarning` the first time;
        records count them. None sets no limit; "auto" is 20 MB for `LinUCB`, `LinTS`, `Uniform` and where a network
        tunes itself, and no limit elsewhere.
    operations, arms
        Multiplications that the bonuses of one decision may take in an exact form of Z, and how many arms a decision
        has, if that is known beforehand; `**blocks.settings` and `**roster.settings` give it. With K arms, t rounds,
        p parameters and c numbers in a round's factors, a decision takes (K + 4)·t²/2 + (K + 2)·2ct in the t×t form
        and (K + 4)·p²/2 + Kp in the p×p form. With `covariance="auto"` Z is exact while one of them is within
        `operations`, and diagonal or that of the last layer afterwards: `policy.exact_rounds` says until when, and an
        `ApproximationWarning` that it happened. None never approximates; "auto" is 37.8 million in preset "practical",
        about 5 ms on one core of a common server, and None in the others. Linear and kernel policies take neither.

    Examples
    --------
    >>> from rarely import BatchNeuralUCB, Limits, OnDemand
    >>> limits = Limits(operations=10**6, arms=5)
    >>> BatchNeuralUCB(dim=2, hidden=200, schedule=OnDemand(), limits=limits, seed=0).exact_rounds
    128
    """

    memory: int = DEFAULT_LIMIT
    history: int | Literal["auto"] | None = "auto"
    operations: int | Literal["auto"] | None = "auto"
    arms: int | None = None

    def __post_init__(self) -> None:
        others: Any = {"memory": (), "history": ("auto", None), "operations": ("auto", None), "arms": (None,)}
        for name, besides in others.items():
            check_whole(f"limits.{name}", getattr(self, name), 1, besides=besides)

    def with_defaults(
        self, *, history: int | None = None, operations: int | None = None, arms: int | None = None
    ) -> Limits:
        """Return the limits with these values in the places of "auto", and of `arms` if none were given.

        >>> Limits(operations=None).with_defaults(history=100, operations=1000)
        Limits(memory=4294967296, history=100, operations=None, arms=None)
        """
        history = history if self.history == "auto" else self.history
        operations = operations if self.operations == "auto" else self.operations
        return Limits(self.memory, history, operations, arms if self.arms is None else self.arms)


def limits_from(value: Any, policy: object = None, without: Sequence[str] = (), history: int | None = None) -> Limits:
    """Return limits, given their description, None or themselves; refuse those that this policy is `without`.

    With a policy, `history` stands in the place of "auto".
    """
    limits = _read(Limits, value, "limits must be a Limits, such as Limits(memory=10**9)")
    for name in without:
        if (value := getattr(limits, name)) not in (None, "auto"):
            kind = type(policy).__name__
            raise InvalidInput(f"limits.{name} must be left out for {kind}, which has none; got {value!r}.")
    return limits if policy is None else limits.with_defaults(history=history)
