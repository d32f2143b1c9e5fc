"""What a policy may take: memory for Z, memory for past rounds, and time for a decision."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rarely.core.covariance import DEFAULT_LIMIT, NOMINAL, Latency
from rarely.core.errors import InvalidInput, check_positive, check_whole

DEFAULT_HISTORY = 20_000_000
"""Bytes of past rounds that "auto" allows: a file then stays below 30 MB."""
DEFAULT_LATENCY = 0.005
"""Seconds that a decision of the practical policy may take."""


@dataclass(frozen=True)
class Limits:
    """What a policy may take.

    Parameters
    ----------
    memory
        Bytes that the covariance may take. A form that needs more is refused, and the error lists the alternatives.
    history
        Bytes that past rounds may take. Beyond them an update drops what it does not need, then the oldest rounds
        without a reward, then the oldest that it has learned from, with a `ForgettingWarning` at the first time;
        records count them. None is no limit; "auto" is 20 MB for `LinUCB`, `LinTS`, `Uniform` and where a network
        tunes itself, and no limit elsewhere.
    latency, arms
        Seconds that a decision may take, and how many arms it has, if that is known beforehand; `**blocks.settings`
        and `**roster.settings` say so themselves. With `covariance="auto"` Z is exact while decisions keep to it on
        a nominal machine (8.6·10⁹ multiplications a second on one core), so that a seed gives the same decisions
        everywhere, and diagonal afterwards (or that of the last layer, if only this is fast enough). `policy.cost`
        says from which round on, and what a decision takes on this machine: give less on a slower one. An
        `ApproximationWarning` and `policy.events` tell when it happens. None never
        approximates, as `covariance="exact"` does. "auto" is 0.005 in preset "practical", and None in the others.
        `LinUCB`, `LinTS`, `Uniform` and `KernelUCB` are exact, and take neither.

    Examples
    --------
    >>> from rarely import BatchNeuralUCB, Limits, OnDemand
    >>> policy = BatchNeuralUCB(dim=2, schedule=OnDemand(), limits=Limits(latency=0.01, arms=5), seed=0)
    >>> policy.get_params()["limits"]
    Limits(memory=4294967296, history=20000000, latency=0.01, arms=5)
    """

    memory: int = DEFAULT_LIMIT
    history: int | Literal["auto"] | None = "auto"
    latency: float | Literal["auto"] | None = "auto"
    arms: int | None = None

    def __post_init__(self) -> None:
        check_whole("limits.memory", self.memory, 1)
        if self.history is not None and self.history != "auto":
            check_whole("limits.history", self.history, 1)
        if self.latency is not None and self.latency != "auto":
            check_positive("limits.latency", self.latency, "seconds that a decision may take, or None")
            object.__setattr__(self, "latency", float(self.latency))
        if self.arms is not None:
            check_whole("limits.arms", self.arms, 1)

    def settled(self, *, history: int | None = None, latency: float | None = None, arms: int | None = None) -> Limits:
        """The same with these values in the places of "auto", and with so many arms if nothing was said about them.

        >>> Limits(latency=None).settled(history=100, latency=0.005)
        Limits(memory=4294967296, history=100, latency=None, arms=None)
        """
        return replace(
            self,
            history=history if self.history == "auto" else self.history,
            latency=latency if self.latency == "auto" else self.latency,
            arms=arms if self.arms is None else self.arms,
        )

    def check_unset(self, policy: str, *names: str) -> None:
        """Refuse limits that this kind of policy does not have."""
        for name in names:
            value = getattr(self, name)
            if value not in (None, "auto"):
                raise InvalidInput(f"limits.{name} must be left out for {policy}, which has none; got {value!r}.")

    @property
    def history_bytes(self) -> int | None:
        """Bytes that past rounds may take, once "auto" is settled."""
        return None if self.history is None or self.history == "auto" else int(self.history)

    @property
    def decision_time(self) -> Latency | None:
        """How long a decision may take on the nominal machine, once "auto" is settled."""
        if self.latency is None or self.latency == "auto":
            return None
        return Latency(float(self.latency), self.arms, NOMINAL)

    def describe(self) -> dict[str, Any]:
        """The limits as JSON."""
        return asdict(self)


def limits_from(given: Any) -> Limits:
    """Limits from their description, None or themselves."""
    if given is None or isinstance(given, Limits):
        return given or Limits()
    if isinstance(given, dict):
        return Limits(**given)
    raise InvalidInput(f"limits must be a Limits, such as Limits(memory=10**9); got {given!r}.")
