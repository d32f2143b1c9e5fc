"""What any policy should beat, and what makes an unbiased log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rarely._core.choice.random_stream import Seed
from rarely._core.choice.rules import UniformChoice
from rarely._core.covariance import Candidates, Covariance, CovarianceFactory, Kind, Price, Proposal, RowCost, Widths
from rarely._core.errors import InvalidInput
from rarely._core.inputs.history import History
from rarely._core.inputs.scaling import ContextMap, ContextScale
from rarely._core.model.features import Factors
from rarely._core.policies.learner import FitResult, Learner
from rarely._core.policies.options import DEFAULT_HISTORY, Limits, limits_from
from rarely._core.policies.policy import Policy
from rarely._core.saving.fields import Fields
from rarely._core.schedules import OnDemand, Schedule
from rarely._core.training.watch import UNWATCHED, Watch
from rarely._core.types import Array, Arrays, BoolArray, forwarded


@dataclass(frozen=True)
class NoModel(Learner):
    """A learner that predicts 0 and has no features."""

    columns: int
    widths, predicts, rebuilds = (), False, False

    dim = forwarded("columns")

    def assess(self, contexts: Array) -> tuple[Array, Factors]:
        nothing, zeros = contexts[:, :0], np.zeros(len(contexts))
        return zeros, Factors((nothing,), (nothing,), zeros)

    def learn(self, history: History, watch: Watch = UNWATCHED) -> FitResult:
        return FitResult(self)

    def needs(self, history: History) -> BoolArray:
        return np.zeros(len(history), np.bool_)


class NoCovariance(Covariance, by_name=False):
    """Z that stays the identity: it counts rounds, v is ‖φ‖², and log det is 0."""

    kind = "none"
    exact = additive = True

    @classmethod
    def price(cls, widths: Widths, rounds: int, row: RowCost | None = None) -> Price:
        return Price("none", True, 0, 0, (0.0, 0.0))

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        return Candidates(factors, factors.squared_norms)

    def propose(self, chosen: Candidates) -> Proposal:
        return Proposal(chosen.factors, np.zeros(len(chosen.factors)))

    def accept(self, proposal: Proposal, count: int) -> None:
        self.rounds += count

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"rounds": self.rounds}, {}

    def read(self, saved: Fields) -> None:
        self.rounds = saved.whole("rounds")


@dataclass(frozen=True)
class NoCovarianceFactory(CovarianceFactory):
    """Makes no other form."""

    def changed(self, covariance: Kind | None = None, memory_limit: int | None = None) -> CovarianceFactory:
        if covariance is not None:
            raise InvalidInput(f"this policy has no covariance whose form could change; got {covariance!r}.")
        return super().changed(None, memory_limit)

    def empty(self, widths: Widths, *, arms: int = 0, ahead: int = 0, rows: int = 0) -> Covariance:
        return self._new("none", widths)

    def add(self, covariance: Covariance, features: Any, contexts: Array, weights: Array | None = None) -> None:
        covariance.rounds += len(contexts)

    def adapted(self, covariance: Covariance, arms: int) -> Covariance:
        return covariance

    def exact_rounds(self, covariance: Covariance, arms: int) -> int | None:
        return None

    def _new(self, form: str, widths: Widths) -> Covariance:
        return NoCovariance(widths, self.ridge, self._limit(widths))


class Uniform(Policy):
    """Any available arm, each with the same probability, whatever was observed.

    It has no model: means and bonuses are 0, and so is `log_det`, so a `DeterminantTrigger` never fires. An update
    makes a new version that decides as the one before. Any schedule can be given, to compare it with a policy that
    learns; without one, no update is ever due.

    Parameters
    ----------
    dim, schedule
        d, numbers in a context; when updates are due.
    context_scale
        Not used: with it, `**blocks.settings` makes this policy too.
    seed, limits
        As in `LinUCB`.

    Examples
    --------
    >>> from rarely import Uniform
    >>> Uniform(dim=1, seed=0).select([[[0.0], [0.0]]] * 6).arm
    array([1, 0, 0, 0, 1, 1])
    """

    def __init__(
        self,
        dim: int,
        schedule: Schedule | None = None,
        *,
        context_scale: ContextMap | None = None,
        seed: Seed = None,
        limits: Limits | None = None,
    ) -> None:
        ContextScale.start(dim, context_scale, constant=True, fitted=False)  # it must fit the contexts all the same
        schedule = OnDemand() if schedule is None else schedule
        super().__init__(
            NoModel(int(dim)),
            {"dim": int(dim), "schedule": schedule, "context_scale": context_scale},
            UniformChoice(),
            limits=limits_from(limits, self, ("operations", "arms"), DEFAULT_HISTORY),
            seed=seed,
            factory=NoCovarianceFactory,
        )
