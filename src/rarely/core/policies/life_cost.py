"""What a policy costs for life: known when it is made, from its horizon, arms and parameters."""

from __future__ import annotations

from dataclasses import dataclass

from rarely.core.covariance import FAR, Auto, Covariance, Latency, Widths, in_bytes, price, rates
from rarely.core.policies.maker import CovarianceMaker


@dataclass(frozen=True, slots=True)
class LifeCost:
    """The time of a decision on this machine and the memory of Z, now and at the horizon, as estimated.

    Examples
    --------
    >>> from rarely import BatchNeuralUCB, Limits, OnDemand
    >>> policy = BatchNeuralUCB(188, OnDemand(horizon=500_000), limits=Limits(arms=50), seed=0)
    >>> policy.cost.exact, policy.cost.exact_rounds is None
    (False, False)
    """

    parameters: int
    """p."""
    arms: int | None
    """K: as was said, or the most so far; None before any decision."""
    rounds: int | None
    """The horizon, if it is known."""
    latency: float | None
    """Seconds that a decision may take; None where nothing is approximated for it."""
    form: str
    """The form of Z now."""
    exact_rounds: int | None
    """Rounds up to which Z is exact, on any machine; None if for life, as far as is known, and 0 if it is not."""
    seconds: float | None
    """Of a decision at the horizon, or now if there is none; None before K is known."""
    bytes: int
    """That Z takes then."""

    @property
    def exact(self) -> bool:
        """Whether Z is exact for life."""
        return self.exact_rounds is None or (self.rounds is not None and self.exact_rounds >= self.rounds)

    def __str__(self) -> str:
        when = "now" if self.rounds is None else f"at round {self.rounds:,}"
        takes = (
            ""
            if self.seconds is None
            else f"a decision among {self.arms} arms takes about {1e3 * self.seconds:.3g} ms, and "
        )
        told = [f"{when} {takes}Z takes {in_bytes(self.bytes)} (p = {self.parameters:,})"]
        if self.exact_rounds is not None and not self.exact:
            limit = "" if self.latency is None else f", to keep decisions within {1e3 * self.latency:g} ms"
            since = (
                f"exact up to round {self.exact_rounds:,} and approximate afterwards"
                if self.exact_rounds
                else "approximate"
            )
            told.append(f"bonuses are {since}{limit}")
        else:
            told.append("bonuses are exact")
            if self.latency is not None and self.arms is None:
                told[-1] += (
                    f" while decisions take less than {1e3 * self.latency:g} ms; with limits.arms this says how long"
                )
        return "; ".join(told)


def life_cost(covariance: Covariance, maker: CovarianceMaker, widths: Widths) -> LifeCost:
    """Of a policy whose Z stands as it does."""
    auto = covariance if isinstance(covariance, Auto) else None
    latency = maker.latency if auto is None else auto.latency
    arms = None if latency is None else latency.arms
    rounds, form = maker.horizon, covariance.kind
    exact = None if auto is None or auto.exact_rounds == FAR else auto.exact_rounds
    if form not in ("dual", "primal"):
        exact = 0
    end = covariance.rounds if rounds is None else max(rounds, covariance.rounds)
    final = form if auto is None else auto.form_at(end)
    seconds = None
    if arms is not None:
        seconds = Latency(1.0, arms, rates()).decision(final, widths, end, arms, maker.sketch.size)
    p = sum(o * i for o, i in widths)
    cap = None if latency is None else latency.seconds
    return LifeCost(p, arms, rounds, cap, form, exact, seconds, price(final, widths, end, maker.sketch).bytes)
